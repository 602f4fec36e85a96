/* Where a run takes place, for record.json: its command line, hosts, the cores of each rank, the Slurm job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "train/trainer.h"

struct trainer_place {
  char host[64], cores[64]; /* cores that its first thread may use: "0-3,8" */
};

/* "" if the system does not tell them. */
static void places_list_cores(char *text, size_t bytes)
{
  static const char key[] = "Cpus_allowed_list:";
  char line[4096];
  FILE *in = fopen("/proc/self/status", "r");
  text[0] = '\0';
  while (in && fgets(line, sizeof line, in))
    if (strncmp(line, key, sizeof key - 1) == 0) {
      const char *list = line + sizeof key - 1 + strspn(line + sizeof key - 1, " \t");
      const size_t n = strcspn(list, "\n");
      snprintf(text, bytes, n < bytes ? "%.*s" : "%.*s...", (int)(n < bytes ? n : bytes - 4), list);
    }
  if (in)
    fclose(in);
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
