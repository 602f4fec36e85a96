/* Where a run takes place, for record.json: its command line, hosts, the cores of each rank, the Slurm job. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "train/trainer.h"

struct trainer_place {
  char host[64], cores[64]; /* cores that its first thread may use: "0-3,8" */
};

static void places_list_cores(char *text, size_t bytes)
{
  cpu_set_t set;
  size_t n = 0;
  text[0] = '\0';
  if (sched_getaffinity(0, sizeof set, &set) != 0)
    return;
  for (int i = 0; i < CPU_SETSIZE; i++) {
    if (!CPU_ISSET(i, &set))
      continue;
    int last = i;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set))
      last++;
    char range[32];
    const int length = last > i ? snprintf(range, sizeof range, "%s%d-%d", n ? "," : "", i, last)
                                : snprintf(range, sizeof range, "%s%d", n ? "," : "", i);
    if (n + (size_t)length + 4 >= bytes) {
      strcpy(text + n, "...");
      return;
    }
    memcpy(text + n, range, (size_t)length + 1);
    n += (size_t)length;
    i = last;
  }
}

void trainer_gather_places(struct trainer *t)
{
  struct trainer_place mine = {.host = ""};
  gethostname(mine.host, sizeof mine.host - 1);
  places_list_cores(mine.cores, sizeof mine.cores);
  t->places = t->comm->ops->compute ? 1 : t->comm->size;
  t->place = trm_alloc((size_t)t->places * sizeof *t->place, "hosts");
  if (t->comm->ops->compute)
    t->place[0] = mine;
  else
    t->comm->ops->allgather(t->comm, &mine, t->place, sizeof mine, TRM_BYTE);
}

/* Adds the words of the command line. */
static void places_add_command(struct trm_json *json)
{
  char *text = NULL;
  size_t capacity = 0;
  FILE *in = fopen("/proc/self/cmdline", "r");
  trm_json_list(json, "command");
  while (in && getdelim(&text, &capacity, '\0', in) > 0)
    trm_json_text(json, NULL, text);
  trm_json_end(json);
  free(text);
  if (in)
    fclose(in);
}

static void places_add_slurm(struct trm_json *json)
{
  static const char *const names[][2] = {{"job", "SLURM_JOB_ID"},
                                         {"name", "SLURM_JOB_NAME"},
                                         {"partition", "SLURM_JOB_PARTITION"},
                                         {"array_job", "SLURM_ARRAY_JOB_ID"},
                                         {"array_task", "SLURM_ARRAY_TASK_ID"},
                                         {"restarts", "SLURM_RESTART_COUNT"}};
  if (!getenv("SLURM_JOB_ID"))
    return;
  trm_json_object(json, "slurm");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (getenv(names[i][1]))
      trm_json_text(json, names[i][0], getenv(names[i][1]));
  trm_json_end(json);
}

/* Adds each host with the cores of its ranks, in order of rank. */
static void places_add_hosts(struct trm_json *json, const struct trainer_place *place, int count)
{
  trm_json_list(json, "hosts");
  for (int i = 0; i < count; i++) {
    bool listed = false;
    for (int k = 0; k < i && !listed; k++)
      listed = strcmp(place[k].host, place[i].host) == 0;
    if (listed)
      continue;
    trm_json_object(json, NULL);
    trm_json_text(json, "host", place[i].host);
    trm_json_list(json, "cores");
    for (int k = i; k < count; k++)
      if (strcmp(place[k].host, place[i].host) == 0)
        trm_json_text(json, NULL, place[k].cores);
    trm_json_end(json);
    trm_json_end(json);
  }
  trm_json_end(json);
}

void trainer_add_places(struct trm_json *json, const struct trainer *t)
{
  places_add_command(json);
  places_add_slurm(json);
  places_add_hosts(json, t->place, t->places);
}
