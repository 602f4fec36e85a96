/* The time of a step: a simulation of the stages, each at its list of actions (train/pipeline_schedule.h). */
#include <math.h>

#include "core/memory.h"
#include "plan/layout.h"
#include "plan/stage_cost.h"

/* Number of ranks of a node that can compute without sharing a core. */
static int layout_time_parallel_ranks(const struct trm_layout_job *job)
{
  return job->cores > job->threads ? job->cores / job->threads : 1;
}

/* The state of a stage. */
struct stage_cursor {
  struct trm_action *action;
  int count, next;
  bool running;
  double remaining_s; /* of the running action, at one core */
  double busy_s;      /* time in which actions ran */
};

struct simulation {
  struct cost_context ctx;
  struct stage_cost *stage; /* (stages) */
  struct stage_cursor *cursor; /* (stages) */
  double *end_s; /* (2, virtual stages, micro-batches) arrival of the output, the input gradient; INFINITY: not yet */
  double now_s;
};

static double *layout_time_end_of(const struct simulation *r, int direction, int virtual_stage, int micro)
{
  const struct trm_schedule *schedule = &r->ctx.models->schedule;
  return &r->end_s[(direction * schedule->stages * schedule->chunks + virtual_stage) * r->ctx.micros + micro];
}

/* The time at which the action's input has arrived. */
static double layout_time_ready_at(const struct simulation *r, int stage, const struct trm_action *action)
{
  const struct trm_schedule *schedule = &r->ctx.models->schedule;
  const int virtual_stages = schedule->stages * schedule->chunks;
  const int virtual_stage = action->chunk * schedule->stages + stage;
  if (action->kind == TRM_FORWARD)
    return virtual_stage ? *layout_time_end_of(r, 0, virtual_stage - 1, action->micro) : 0;
  return virtual_stage + 1 < virtual_stages ? *layout_time_end_of(r, 1, virtual_stage + 1, action->micro)
                                            : *layout_time_end_of(r, 0, virtual_stage, action->micro);
}

/* Seconds of the message that carries the action's result to the next stage, its copies included. */
static double layout_time_transfer_seconds(const struct simulation *r, int stage, const struct trm_action *action)
{
  const struct cost_context *c = &r->ctx;
  const struct trm_schedule *schedule = &c->models->schedule;
  const int virtual_stages = schedule->stages * schedule->chunks;
  const int virtual_stage = action->chunk * schedule->stages + stage;
  const bool forward = action->kind == TRM_FORWARD;
  const int to_stage = forward ? virtual_stage + 1 : virtual_stage; /* the message is its input, or the gradient */
  if (to_stage == 0 || to_stage == virtual_stages)
    return 0;
  const double bytes = r->stage[to_stage % schedule->stages].message_bytes[to_stage / schedule->stages];
  const int stage_ranks = c->layout->size[TRM_AXIS_DATA] * c->layout->size[TRM_AXIS_TENSOR];
  const int node_size = c->job->ranks / c->job->nodes;
  const int from_node = stage * stage_ranks / node_size,
            to_node = (forward ? to_stage : to_stage - 1) % schedule->stages * stage_ranks / node_size;
  return stage_message_seconds(c, bytes, from_node == to_node);
}

/* Starts every action that can run now. Returns the earliest known time at which another one can. */
static double layout_time_start_actions(struct simulation *r)
{
  double next = INFINITY;
  for (int s = 0; s < r->ctx.models->stages; s++) {
    struct stage_cursor *w = &r->cursor[s];
    if (w->running || w->next == w->count)
      continue;
    const struct trm_action *action = &w->action[w->next];
    const double when = layout_time_ready_at(r, s, action);
    if (when <= r->now_s) {
      const struct action_cost *cost = &r->stage[s].cost[action->kind == TRM_BACKWARD][action->chunk];
      w->running = true;
      w->remaining_s = cost->compute + cost->tensor + cost->data;
    } else {
      next = fmin(next, when);
    }
  }
  return next;
}

/* The share of a core that the slowest rank of a stage has. Where a node has more ranks than cores, rank r computes on
 * core r modulo cores: ranks that wait poll, so the system sees no idle core to move a rank to. */
static double layout_time_core_share(const struct simulation *r, int stage)
{
  const struct cost_context *c = &r->ctx;
  const int stage_ranks = c->layout->size[TRM_AXIS_DATA] * c->layout->size[TRM_AXIS_TENSOR];
  const int node_size = c->job->ranks / c->job->nodes, node_begin = stage * stage_ranks / node_size * node_size;
  const int cores = layout_time_parallel_ranks(c->job);
  int max_running = 1;
  for (int core = 0; core < cores && node_size > cores; core++) {
    int running = 0;
    bool has_stage = false;
    for (int rank = core; rank < node_size; rank += cores) {
      const int its_stage = (node_begin + rank) / stage_ranks;
      running += r->cursor[its_stage].running;
      has_stage |= its_stage == stage;
    }
    max_running = has_stage && running > max_running ? running : max_running;
  }
  return 1.0 / max_running;
}

static void layout_time_advance_to(struct simulation *r, double when)
{
  for (int s = 0; s < r->ctx.models->stages; s++)
    if (r->cursor[s].running) {
      r->cursor[s].remaining_s -= (when - r->now_s) * layout_time_core_share(r, s);
      r->cursor[s].busy_s += when - r->now_s;
    }
  r->now_s = when;
}

static void layout_time_finish_actions(struct simulation *r)
{
  const struct trm_schedule *schedule = &r->ctx.models->schedule;
  for (int s = 0; s < r->ctx.models->stages; s++) {
    struct stage_cursor *w = &r->cursor[s];
    if (!w->running || w->remaining_s > 1e-12)
      continue;
    const struct trm_action *action = &w->action[w->next++];
    *layout_time_end_of(r, action->kind == TRM_BACKWARD, action->chunk * schedule->stages + s, action->micro) =
      r->now_s + layout_time_transfer_seconds(r, s, action);
    w->running = false;
  }
}

/* Runs the simulation. Returns the time at which the gradients of all stages are complete. */
static double layout_time_simulate(struct simulation *r)
{
  for (;;) {
    double next = layout_time_start_actions(r);
    for (int s = 0; s < r->ctx.models->stages; s++)
      if (r->cursor[s].running)
        next = fmin(next, r->now_s + r->cursor[s].remaining_s / layout_time_core_share(r, s));
    if (isinf(next))
      return r->now_s;
    layout_time_advance_to(r, next);
    layout_time_finish_actions(r);
  }
}

/* Sets the times of the passes: computation and communication of the busiest stage, and the rest as pipeline. */
static void layout_time_of_passes(struct simulation *r, struct trm_layout_time *time)
{
  const struct trm_schedule *schedule = &r->ctx.models->schedule;
  const int stages = r->ctx.models->stages;
  const size_t values = 2 * (size_t)stages * (size_t)schedule->chunks * (size_t)r->ctx.micros;
  r->cursor = trm_alloc((size_t)stages * sizeof *r->cursor, "a schedule");
  r->end_s = trm_alloc(values * sizeof *r->end_s, "a schedule");
  for (size_t i = 0; i < values; i++)
    r->end_s[i] = INFINITY;
  for (int s = 0; s < stages; s++)
    r->cursor[s].action = trm_schedule_actions(schedule, s, 1, &r->cursor[s].count);
  const double passes = layout_time_simulate(r);
  int busiest = 0;
  for (int s = 1; s < stages; s++)
    busiest = r->cursor[s].busy_s > r->cursor[busiest].busy_s ? s : busiest;
  struct action_cost sum = {0, 0, 0};
  for (int k = 0; k < schedule->chunks; k++)
    for (int direction = 0; direction < 2; direction++) {
      const struct action_cost *cost = &r->stage[busiest].cost[direction][k];
      sum.compute += cost->compute;
      sum.tensor += cost->tensor;
      sum.data += cost->data;
    }
  const double all = sum.compute + sum.tensor + sum.data, busy = r->cursor[busiest].busy_s;
  time->compute_s = all > 0 ? busy * sum.compute / all : 0;
  time->axis_s[TRM_AXIS_TENSOR] = all > 0 ? busy * sum.tensor / all : 0;
  time->axis_s[TRM_AXIS_DATA] = all > 0 ? busy * sum.data / all : 0;
  time->axis_s[TRM_AXIS_PIPELINE] = passes - busy;
  for (int s = 0; s < stages; s++)
    trm_free(r->cursor[s].action);
  trm_free(r->cursor);
  trm_free(r->end_s);
}

void trm_layout_time(const struct trm_layout_job *job, const struct trm_layout *layout,
                     const struct trm_layout_models *models, struct trm_layout_time *time)
{
  struct simulation r = {.ctx = {.job = job,
                                 .layout = layout,
                                 .models = models,
                                 .rows = trm_layout_micro_batch_rows(job, layout),
                                 .micros = (int)job->options->train.accumulate}};
  const double ranks_per_core = ceil((double)job->ranks / job->nodes / layout_time_parallel_ranks(job));
  r.stage = trm_alloc((size_t)models->stages * sizeof *r.stage, "stages");
  *time = (struct trm_layout_time){.step_s = 0};
  double update = 0;
  for (int s = 0; s < models->stages; s++) {
    struct stage_cost *stage = &r.stage[s];
    stage_cost_compute(&r.ctx, s, stage);
    update = fmax(update, ranks_per_core * stage->update_s);
    time->traffic[TRM_AXIS_DATA] = fmax(time->traffic[TRM_AXIS_DATA], stage->data_bytes);
    time->between_nodes = fmax(time->between_nodes, stage->between_nodes);
    time->traffic[TRM_AXIS_TENSOR] = fmax(time->traffic[TRM_AXIS_TENSOR], stage->tensor_bytes);
    time->traffic[TRM_AXIS_PIPELINE] = fmax(time->traffic[TRM_AXIS_PIPELINE], stage->pipeline_bytes);
  }
  layout_time_of_passes(&r, time);
  time->axis_s[TRM_AXIS_DATA] += update;
  time->step_s = time->compute_s;
  for (int a = 0; a < TRM_AXES; a++)
    time->step_s += time->axis_s[a];
  trm_free(r.stage);
}
