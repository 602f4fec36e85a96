#include "train/pipeline_schedule.h"

#include <limits.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/partition.h"

bool trm_schedule_flushes(const struct trm_schedule *schedule)
{
  return schedule->name != TRM_PIPEDREAM && schedule->name != TRM_2BW;
}

int trm_schedule_create(struct trm_schedule *schedule, enum trm_schedule_name name, int stages, int chunks, int micros)
{
  const bool interleaved = name == TRM_INTERLEAVED && stages > 1;
  *schedule = (struct trm_schedule){
    .name = name, .stages = stages, .chunks = interleaved ? chunks : 1, .micros = micros};
  if (interleaved && (chunks < 2 || chunks > TRM_MAX_CHUNKS))
    return trm_error(TRM_USAGE, "parallel.chunks: the interleaved schedule takes 2 to %d chunks a stage, not %d",
                     TRM_MAX_CHUNKS, chunks);
  if (name == TRM_2BW && micros < stages - 1)
    return trm_error(TRM_USAGE, "parallel.schedule: 2bw has two versions of the weights, which are enough for %d "
                     "stages if train.accumulate is at least %d; it is %d", stages, stages - 1, micros);
  return TRM_OK;
}

/* Returns pass number k of a stage: groups of `stages` micro-batches go through one chunk after the other. */
static struct trm_action schedule_action_at(const struct trm_schedule *schedule, int k, bool backward)
{
  const int s = schedule->stages, v = schedule->chunks;
  const int group = k / (s * v), within = k % (s * v), chunk = within / s;
  return (struct trm_action){.kind = backward ? TRM_BACKWARD : TRM_FORWARD, .chunk = backward ? v - 1 - chunk : chunk,
                             .micro = group * s + within % s};
}

/* The passes of `micros` micro-batches: backward passes, if any, follow after `warmup` forward passes. Interleaving is
 * regular for whole groups of micro-batches; passes that only fill the last group are left out. */
static struct trm_action *schedule_list(const struct trm_schedule *schedule, int micros, bool backward, int warmup,
                                        int *count)
{
  const int total = (micros + schedule->stages - 1) / schedule->stages * schedule->stages * schedule->chunks;
  const int ahead = warmup < total ? warmup : total, end = backward ? total + ahead : total;
  struct trm_action *list = trm_alloc(2 * (size_t)micros * (size_t)schedule->chunks * sizeof *list, "the schedule");
  *count = 0;
  for (int k = 0; k < end; k++) {
    const struct trm_action forward = schedule_action_at(schedule, k, false);
    if (k < total && forward.micro < micros)
      list[(*count)++] = forward;
    const struct trm_action back = schedule_action_at(schedule, k - ahead, true);
    if (backward && k >= ahead && back.micro < micros)
      list[(*count)++] = back;
  }
  return list;
}

struct trm_action *trm_schedule_actions(const struct trm_schedule *schedule, int stage, int batches, int *count)
{
  const int behind = schedule->stages - 1 - stage;
  int warmup = schedule->chunks > 1 ? 2 * behind + (schedule->chunks - 1) * schedule->stages : behind;
  if (schedule->name == TRM_GPIPE)
    warmup = INT_MAX;
  return schedule_list(schedule, batches * schedule->micros, true, warmup, count);
}

struct trm_action *trm_schedule_forward(const struct trm_schedule *schedule, int micros, int *count)
{
  return schedule_list(schedule, micros, false, 0, count);
}

int trm_schedule_slots(const struct trm_schedule *schedule, int stage)
{
  if (schedule->name == TRM_GPIPE)
    return schedule->micros;
  const int batches = trm_schedule_flushes(schedule) ? 1 : schedule->stages; /* enough to fill the pipeline */
  int count, max_under_way = 1, under_way[TRM_MAX_CHUNKS] = {0};
  struct trm_action *action = trm_schedule_actions(schedule, stage, batches, &count);
  for (int i = 0; i < count; i++) {
    int *active = &under_way[action[i].chunk];
    *active += action[i].kind == TRM_FORWARD ? 1 : -1;
    max_under_way = *active > max_under_way ? *active : max_under_way;
  }
  trm_free(action);
  return max_under_way;
}

double trm_schedule_bubble(const struct trm_schedule *schedule, double batches)
{
  const double idle = schedule->stages - 1;
  return idle / (schedule->chunks * batches * schedule->micros + idle);
}
