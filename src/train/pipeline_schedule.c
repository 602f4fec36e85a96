#include "train/pipeline_schedule.h"

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

/* Returns the number of a stage's forward passes before its first backward pass. */
static int schedule_warmup_passes(const struct trm_schedule *schedule, int stage)
{
  const int behind = schedule->stages - 1 - stage;
  if (schedule->chunks > 1)
    return 2 * behind + (schedule->chunks - 1) * schedule->stages;
  return behind;
}

/* A list of actions. Interleaving is regular for whole groups of micro-batches; actions of micro-batches >= micros,
 * which only fill the last group, are left out. */
struct action_list {
  struct trm_action *action;
  int count, micros;
};

static void schedule_list_add(struct action_list *list, struct trm_action action)
{
  if (action.micro < list->micros)
    list->action[list->count++] = action;
}

static int schedule_round_up_to_groups(const struct trm_schedule *schedule, int micros)
{
  return (micros + schedule->stages - 1) / schedule->stages * schedule->stages;
}

static struct action_list schedule_list_create(const struct trm_schedule *schedule, int micros)
{
  const size_t max_actions = 2 * (size_t)micros * (size_t)schedule->chunks;
  return (struct action_list){.action = trm_alloc(max_actions * sizeof(struct trm_action), "the schedule"),
                              .micros = micros};
}

struct trm_action *trm_schedule_actions(const struct trm_schedule *schedule, int stage, int batches, int *count)
{
  const int micros = batches * schedule->micros,
            total = schedule_round_up_to_groups(schedule, micros) * schedule->chunks;
  const int warmup = schedule->name == TRM_GPIPE ? total : schedule_warmup_passes(schedule, stage);
  const int ahead = warmup < total ? warmup : total;
  struct action_list list = schedule_list_create(schedule, micros);
  for (int k = 0; k < total + ahead; k++) {
    if (k < total)
      schedule_list_add(&list, schedule_action_at(schedule, k, false));
    if (k >= ahead)
      schedule_list_add(&list, schedule_action_at(schedule, k - ahead, true));
  }
  *count = list.count;
  return list.action;
}

struct trm_action *trm_schedule_forward(const struct trm_schedule *schedule, int micros, int *count)
{
  const int total = schedule_round_up_to_groups(schedule, micros) * schedule->chunks;
  struct action_list list = schedule_list_create(schedule, micros);
  for (int k = 0; k < total; k++)
    schedule_list_add(&list, schedule_action_at(schedule, k, false));
  *count = list.count;
  return list.action;
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
