/* The time of a step: how the actions of all stages (stage_cost.h) fit together. */
#include <math.h>

#include "core/memory.h"
#include "plan/layout.h"
#include "plan/stage_cost.h"

/* Ranks of a node that compute without sharing a core. */
static int places_of(const struct trm_layout_job *job)
{
  return job->cores > job->threads ? job->cores / job->threads : 1;
}

/* A stage on its way through its actions. */
struct walker {
  struct trm_action *action;
  int count, at;
  bool runs;
  double left;  /* seconds of the action at a whole core */
  double busy;  /* in which it ran */
};

struct run {
  struct costing of;
  struct stage_cost *stage; /* (stages) */
  struct walker *walker;    /* likewise */
  double *ended;            /* (2, pieces, micros): when the value, or its gradient, is there; infinite: not yet */
  double now;
};

static double *ended_at(const struct run *r, int way, int piece, int micro)
{
  const struct trm_schedule *schedule = &r->of.models->schedule;
  return &r->ended[(way * schedule->stages * schedule->chunks + piece) * r->of.micros + micro];
}

/* When what the action needs is there. */
static double comes(const struct run *r, int stage, const struct trm_action *action)
{
  const struct trm_schedule *schedule = &r->of.models->schedule;
  const int pieces = schedule->stages * schedule->chunks, piece = action->chunk * schedule->stages + stage;
  if (action->kind == TRM_FORWARD)
    return piece ? *ended_at(r, 0, piece - 1, action->micro) : 0;
  return piece + 1 < pieces ? *ended_at(r, 1, piece + 1, action->micro) : *ended_at(r, 0, piece, action->micro);
}

/* A message and its copies into and out of its buffer. */
static double passes_on(const struct run *r, int stage, const struct trm_action *action)
{
  const struct costing *c = &r->of;
  const struct trm_schedule *schedule = &c->models->schedule;
  const int pieces = schedule->stages * schedule->chunks, piece = action->chunk * schedule->stages + stage;
  const bool forward = action->kind == TRM_FORWARD;
  const int to = forward ? piece + 1 : piece; /* the piece whose entry it crosses */
  if (to == 0 || to == pieces)
    return 0;
  const double bytes = r->stage[to % schedule->stages].message[to / schedule->stages];
  const int block = c->layout->size[TRM_AXIS_DATA] * c->layout->size[TRM_AXIS_TENSOR];
  const int here = c->job->ranks / c->job->nodes;
  const int from = stage * block / here, there = (forward ? to : to - 1) % schedule->stages * block / here;
  return stage_message_seconds(c, bytes, from == there);
}

/* Begins what can begin. Returns when the next one that waits for something known may. */
static double begin_all(struct run *r)
{
  double next = INFINITY;
  for (int s = 0; s < r->of.models->stages; s++) {
    struct walker *w = &r->walker[s];
    if (w->runs || w->at == w->count)
      continue;
    const struct trm_action *action = &w->action[w->at];
    const double when = comes(r, s, action);
    if (when <= r->now) {
      const struct action_cost *cost = &r->stage[s].cost[action->kind == TRM_BACKWARD][action->chunk];
      w->runs = true;
      w->left = cost->compute + cost->tensor + cost->data;
    } else {
      next = fmin(next, when);
    }
  }
  return next;
}

static int clamp(int value, int most)
{
  return value < 0 ? 0 : value < most ? value : most;
}

/* Numbers in [0, below) that leave `rest` when divided by `by`. */
static int alike(int below, int by, int rest)
{
  return below > rest ? (below - rest + by - 1) / by : 0;
}

/* How much of a core the slowest rank of a stage has. Ranks of a node beyond its cores share them, rank by rank in
 * turn, and stay there: a rank that waits polls, so that no core ever looks idle to the system. */
static double speed(const struct run *r, int stage)
{
  const struct costing *c = &r->of;
  const int block = c->layout->size[TRM_AXIS_DATA] * c->layout->size[TRM_AXIS_TENSOR];
  const int here = c->job->ranks / c->job->nodes, begin = stage * block / here * here;
  const int places = places_of(c->job);
  int most = 1;
  for (int place = 0; place < places && here > places; place++) {
    int running = 0;
    bool own = false;
    for (int s = 0; s < c->models->stages; s++) {
      const int low = clamp(s * block - begin, here), high = clamp((s + 1) * block - begin, here);
      const int ranks = r->walker[s].runs ? alike(high, places, place) - alike(low, places, place) : 0;
      running += ranks;
      own = own || (s == stage && ranks > 0);
    }
    most = own && running > most ? running : most;
  }
  return 1.0 / most;
}

static void go_to(struct run *r, double when)
{
  for (int s = 0; s < r->of.models->stages; s++)
    if (r->walker[s].runs) {
      r->walker[s].left -= (when - r->now) * speed(r, s);
      r->walker[s].busy += when - r->now;
    }
  r->now = when;
}

static void end_some(struct run *r)
{
  const struct trm_schedule *schedule = &r->of.models->schedule;
  for (int s = 0; s < r->of.models->stages; s++) {
    struct walker *w = &r->walker[s];
    if (!w->runs || w->left > 1e-12)
      continue;
    const struct trm_action *action = &w->action[w->at++];
    *ended_at(r, action->kind == TRM_BACKWARD, action->chunk * schedule->stages + s, action->micro) =
      r->now + passes_on(r, s, action);
    w->runs = false;
  }
}

/* Seconds until the gradients of all stages are complete. */
static double walk(struct run *r)
{
  for (;;) {
    double next = begin_all(r);
    for (int s = 0; s < r->of.models->stages; s++)
      if (r->walker[s].runs)
        next = fmin(next, r->now + r->walker[s].left / speed(r, s));
    if (isinf(next))
      return r->now;
    go_to(r, next);
    end_some(r);
  }
}

/* The step as the busiest stage has it. */
static void all_stages(struct run *r, struct trm_layout_time *time)
{
  const struct trm_schedule *schedule = &r->of.models->schedule;
  const int stages = r->of.models->stages;
  const size_t values = 2 * (size_t)stages * (size_t)schedule->chunks * (size_t)r->of.micros;
  r->walker = trm_alloc((size_t)stages * sizeof *r->walker, "a schedule");
  r->ended = trm_alloc(values * sizeof *r->ended, "a schedule");
  for (size_t i = 0; i < values; i++)
    r->ended[i] = INFINITY;
  for (int s = 0; s < stages; s++)
    r->walker[s].action = trm_schedule_actions(schedule, s, 1, &r->walker[s].count);
  const double passes = walk(r);
  int most = 0;
  for (int s = 1; s < stages; s++)
    most = r->walker[s].busy > r->walker[most].busy ? s : most;
  struct action_cost sum = {0, 0, 0};
  for (int k = 0; k < schedule->chunks; k++)
    for (int way = 0; way < 2; way++) {
      const struct action_cost *cost = &r->stage[most].cost[way][k];
      sum.compute += cost->compute;
      sum.tensor += cost->tensor;
      sum.data += cost->data;
    }
  const double all = sum.compute + sum.tensor + sum.data, busy = r->walker[most].busy;
  time->compute_s = all > 0 ? busy * sum.compute / all : 0;
  time->axis_s[TRM_AXIS_TENSOR] = all > 0 ? busy * sum.tensor / all : 0;
  time->axis_s[TRM_AXIS_DATA] = all > 0 ? busy * sum.data / all : 0;
  time->axis_s[TRM_AXIS_PIPELINE] = passes - busy;
  for (int s = 0; s < stages; s++)
    trm_free(r->walker[s].action);
  trm_free(r->walker);
  trm_free(r->ended);
}

void trm_layout_time(const struct trm_layout_job *job, const struct trm_layout *layout,
                     const struct trm_layout_models *models, struct trm_layout_time *time)
{
  struct run r = {.of = {.job = job, .layout = layout, .models = models, .machine = job->machine,
                         .rows = trm_layout_rows(job, layout), .micros = (int)job->options->train.accumulate}};
  const double crowd = ceil((double)job->ranks / job->nodes / places_of(job)); /* ranks of a core when all compute */
  r.stage = trm_alloc((size_t)models->stages * sizeof *r.stage, "stages");
  *time = (struct trm_layout_time){.step_s = 0};
  double update = 0;
  for (int s = 0; s < models->stages; s++) {
    struct stage_cost *stage = &r.stage[s];
    stage_cost_make(&r.of, s, stage);
    update = fmax(update, crowd * stage->step_s);
    time->traffic[TRM_AXIS_DATA] = fmax(time->traffic[TRM_AXIS_DATA], stage->data_bytes);
    time->traffic[TRM_AXIS_TENSOR] = fmax(time->traffic[TRM_AXIS_TENSOR], stage->tensor_bytes);
    time->traffic[TRM_AXIS_PIPELINE] = fmax(time->traffic[TRM_AXIS_PIPELINE], stage->pipeline_bytes);
  }
  all_stages(&r, time);
  time->axis_s[TRM_AXIS_DATA] += update;
  time->step_s = time->compute_s;
  for (int a = 0; a < TRM_AXES; a++)
    time->step_s += time->axis_s[a];
  trm_free(r.stage);
}
