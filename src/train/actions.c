#include "train/actions.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/cut.h"

static const char *const names[] = {
  [TRM_GPIPE] = "gpipe", [TRM_1F1B] = "1f1b", [TRM_INTERLEAVED] = "interleaved", [TRM_PIPEDREAM] = "pipedream",
  [TRM_2BW] = "2bw"};

enum { NAMES = sizeof names / sizeof *names };

bool trm_schedule_flushes(const struct trm_schedule *schedule)
{
  return schedule->name != TRM_PIPEDREAM && schedule->name != TRM_2BW;
}

int trm_schedule_create(struct trm_schedule *schedule, const char *name, int stages, int chunks, int micros)
{
  int found = 0;
  while (found < NAMES && strcmp(names[found], name) != 0)
    found++;
  if (found == NAMES)
    return trm_error(TRM_USAGE, "parallel.schedule: there is no \"%s\"", name);
  const bool several = found == TRM_INTERLEAVED && stages > 1;
  *schedule = (struct trm_schedule){.name = (enum trm_schedule_name)found, .stages = stages,
                                    .chunks = several ? chunks : 1, .micros = micros};
  if (several && (chunks < 2 || chunks > TRM_MAX_CHUNKS))
    return trm_error(TRM_USAGE, "parallel.chunks: the interleaved schedule takes 2 to %d chunks a stage, not %d",
                     TRM_MAX_CHUNKS, chunks);
  if (found == TRM_PIPEDREAM && micros != 1)
    return trm_error(TRM_USAGE, "parallel.schedule: pipedream updates after every micro-batch, so each is a batch: "
                     "train.accumulate must be 1, not %d (2bw accumulates)", micros);
  if (found == TRM_2BW && micros < stages - 1)
    return trm_error(TRM_USAGE, "parallel.schedule: 2bw has two versions of the weights, which are enough for %d "
                     "stages if train.accumulate is at least %d; it is %d", stages, stages - 1, micros);
  return TRM_OK;
}

/* In which order a stage takes micro-batches and chunks: groups of as many micro-batches as there are stages go through
 * one chunk after the other. Number k of that order. */
static struct trm_action order_at(const struct trm_schedule *schedule, int k, bool backward)
{
  const int s = schedule->stages, v = schedule->chunks;
  const int group = k / (s * v), within = k % (s * v), chunk = within / s;
  return (struct trm_action){.kind = backward ? TRM_BACKWARD : TRM_FORWARD, .chunk = backward ? v - 1 - chunk : chunk,
                             .micro = group * s + within % s};
}

/* Forward passes that a stage makes before its first backward one. */
static int warm_up(const struct trm_schedule *schedule, int stage)
{
  const int behind = schedule->stages - 1 - stage;
  if (schedule->chunks > 1)
    return 2 * behind + (schedule->chunks - 1) * schedule->stages;
  return behind;
}

/* A list, and how many micro-batches there really are: interleaving is regular for whole groups, of which those that
 * there are not are left out, and the order remains right. */
struct list {
  struct trm_action *action;
  int count, micros;
};

static void list_add(struct list *list, struct trm_action action)
{
  if (action.micro < list->micros)
    list->action[list->count++] = action;
}

static int whole_groups(const struct trm_schedule *schedule, int micros)
{
  return (micros + schedule->stages - 1) / schedule->stages * schedule->stages;
}

static struct list list_create(const struct trm_schedule *schedule, int micros)
{
  const size_t most = 2 * (size_t)micros * (size_t)schedule->chunks;
  return (struct list){.action = trm_alloc(most * sizeof(struct trm_action), "the schedule"), .micros = micros};
}

struct trm_action *trm_schedule_actions(const struct trm_schedule *schedule, int stage, int batches, int *count)
{
  const int micros = batches * schedule->micros, total = whole_groups(schedule, micros) * schedule->chunks;
  const int wanted = schedule->name == TRM_GPIPE ? total : warm_up(schedule, stage);
  const int ahead = wanted < total ? wanted : total;
  struct list list = list_create(schedule, micros);
  for (int k = 0; k < total + ahead; k++) {
    if (k < total)
      list_add(&list, order_at(schedule, k, false));
    if (k >= ahead)
      list_add(&list, order_at(schedule, k - ahead, true));
  }
  *count = list.count;
  return list.action;
}

struct trm_action *trm_schedule_forward(const struct trm_schedule *schedule, int micros, int *count)
{
  const int total = whole_groups(schedule, micros) * schedule->chunks;
  struct list list = list_create(schedule, micros);
  for (int k = 0; k < total; k++)
    list_add(&list, order_at(schedule, k, false));
  *count = list.count;
  return list.action;
}

int trm_schedule_slots(const struct trm_schedule *schedule, int stage)
{
  if (schedule->name == TRM_GPIPE)
    return schedule->micros;
  const int batches = trm_schedule_flushes(schedule) ? 1 : schedule->stages; /* enough to fill the pipeline */
  int count, most = 1, under_way[TRM_MAX_CHUNKS] = {0};
  struct trm_action *action = trm_schedule_actions(schedule, stage, batches, &count);
  for (int i = 0; i < count; i++) {
    int *here = &under_way[action[i].chunk];
    *here += action[i].kind == TRM_FORWARD ? 1 : -1;
    most = *here > most ? *here : most;
  }
  trm_free(action);
  return most;
}

double trm_schedule_bubble(const struct trm_schedule *schedule, double batches)
{
  const double idle = schedule->stages - 1;
  return idle / (schedule->chunks * batches * schedule->micros + idle);
}
