#include "cli/run_hosts.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run_child.h"
#include "core/memory.h"
#include "core/status.h"

enum { PROBE_S = 20, KILL_S = 2 };

static void hosts_add(struct run_hosts *hosts, const char *name)
{
  hosts->name = trm_grow(hosts->name, &hosts->capacity, (size_t)hosts->count, (size_t)hosts->count + 1,
                         sizeof *hosts->name, "hosts");
  hosts->name[hosts->count++] = trm_strdup(name);
}

static void hosts_add_list(struct run_hosts *hosts, const char *list)
{
  char *copy = trm_strdup(list), *rest = NULL;
  for (char *name = strtok_r(copy, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
    hosts_add(hosts, name);
  trm_free(copy);
}

static void hosts_add_allocation(struct run_hosts *hosts)
{
  char name[256];
  FILE *names = getenv("SLURM_JOB_NODELIST") ? popen("scontrol show hostnames", "r") : NULL;
  while (names && fgets(name, sizeof name, names)) {
    name[strcspn(name, "\n")] = '\0';
    hosts_add(hosts, name);
  }
  if (names)
    pclose(names);
}

int run_hosts_open(struct run_hosts *hosts, const char *list, int ranks)
{
  const char *tasks = getenv("SLURM_NTASKS_PER_NODE");
  *hosts = (struct run_hosts){.ranks_per_host = ranks > 0 ? ranks : tasks && atoi(tasks) > 0 ? atoi(tasks) : 1};
  if (list)
    hosts_add_list(hosts, list);
  else
    hosts_add_allocation(hosts);
  if (hosts->count > 0)
    return TRM_OK;
  return trm_error(TRM_USAGE, "run: the command has places for hosts, and none are known: name them with --hosts=A,B "
                   "(in a Slurm job they are those of its allocation)");
}

void run_hosts_copy(struct run_hosts *to, const struct run_hosts *from)
{
  *to = (struct run_hosts){.ranks_per_host = from->ranks_per_host};
  for (int i = 0; i < from->count; i++)
    hosts_add(to, from->name[i]);
}

/* Waits until the probes have ended, and ends the others. Returns a signal that came, or 0. */
static int hosts_wait(struct run_child *probe, int count)
{
  const int signal = run_child_wait(probe, count, PROBE_S);
  run_child_signal(probe, count, SIGTERM);
  run_child_wait(probe, count, KILL_S);
  run_child_signal(probe, count, SIGKILL);
  run_child_wait(probe, count, KILL_S);
  return signal;
}

/* Runs a program once on each host, and sets child (count). Returns the signal that came meanwhile, or 0. */
static int hosts_run(const struct run_hosts *hosts, const struct run_words *words, const char *const *program,
                     struct run_child *child)
{
  setenv("SLURM_OVERLAP", "1", 1); /* srun waits for no step that ends on a lost node */
  for (int i = 0; i < hosts->count; i++) {
    char **list = run_words_on_host(words, hosts->name[i], program);
    if (run_child_start(&child[i], list, "/dev/null") != TRM_OK)
      child[i].status = -1;
    run_words_free(list);
  }
  return hosts_wait(child, hosts->count);
}

int run_hosts_probe(const struct run_hosts *hosts, const struct run_words *words, struct run_hosts *answering)
{
  static const char *const program[] = {"true", NULL};
  struct run_child *probe = trm_alloc((size_t)hosts->count * sizeof *probe, "hosts");
  *answering = (struct run_hosts){.ranks_per_host = hosts->ranks_per_host};
  const int signal = hosts_run(hosts, words, program, probe);
  for (int i = 0; i < hosts->count; i++)
    if (!probe[i].runs && probe[i].status == 0)
      hosts_add(answering, hosts->name[i]);
  trm_free(probe);
  return signal;
}

void run_hosts_remove(const struct run_hosts *hosts, const struct run_words *words, const char *folder)
{
  const char *const program[] = {"rm", "-r", "-f", "--", folder, NULL};
  struct run_child *child = trm_alloc((size_t)hosts->count * sizeof *child, "hosts");
  hosts_run(hosts, words, program, child);
  trm_free(child);
}

void run_hosts_free(struct run_hosts *hosts)
{
  for (int i = 0; i < hosts->count; i++)
    trm_free(hosts->name[i]);
  trm_free(hosts->name);
  *hosts = (struct run_hosts){0};
}
