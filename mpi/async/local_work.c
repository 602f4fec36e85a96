#include "mpi/async/local_work.h"

#include <math.h>
#include <string.h>

#include "core/status.h"

static struct local_work *local_work_of(const struct trm_strategy *s)
{
  return worker_of(s)->method;
}

int local_work_create(struct trm_strategy *s, const struct local_work_plan *plan, size_t method_bytes)
{
  const struct worker_plan worker = {.centralized = true,
                                     .arrays = plan->arrays,
                                     .method_states = plan->method_states,
                                     .handler = plan->handler,
                                     .local = true,
                                     .groups_of_workers = plan->groups_of_workers};
  TRM_CHECK(peers_create(s, &worker, method_bytes));
  struct worker *w = worker_of(s);
  struct local_work *work = local_work_of(s);
  const size_t chunks = param_server_chunks(w->server);
  work->plan = *plan;
  work->period.length = s->options->tau;
  work->per_chunk = plan->adapts ? worker_alloc(s, chunks * sizeof *work->per_chunk) : NULL;
  TRM_CHECK(trm_strategy_keep(s, "clocks seen", w->seen, chunks * sizeof *w->seen));
  TRM_CHECK(trm_strategy_keep(s, "period", &work->period, sizeof work->period));
  return plan->sends_weights ? TRM_OK : trm_agree(s->comm, worker_array(s, s->elements, "start", &work->start));
}

/* A period begins with the weights that the server has sent. */
static void local_work_begin(struct trm_strategy *s)
{
  struct local_work *work = local_work_of(s);
  if (work->start) {
    memcpy(work->start, s->w, s->elements * sizeof *s->w);
    trm_strategy_pass_time(s, 2 * s->elements);
  }
  work->period.steps = 0;
  work->period.begun = true;
}

int local_work_before_forward(struct trm_strategy *s)
{
  struct local_work *work = local_work_of(s);
  if (!work->period.begun) {
    worker_exchange(s, SERVER_PULL, NULL, NULL, s->w, false);
    local_work_begin(s);
  }
  work->began_s = s->comm->ops->clock(s->comm);
  return TRM_OK;
}

/* g becomes what is sent. */
static void local_work_fill(struct trm_strategy *s)
{
  const float *restrict w = s->w, *restrict start = local_work_of(s)->start;
  float *restrict g = s->g;
  for (size_t i = 0; i < s->elements; i++)
    g[i] = start ? w[i] - start[i] : w[i];
  trm_strategy_pass_time(s, (start ? 3 : 2) * s->elements);
}

/* Speeds are rounded, so that workers whose measured times differ in the last bits make as many steps. */
static int64_t local_work_length(const struct trm_strategy *s, double speed)
{
  const struct local_work *work = local_work_of(s);
  double fastest = 0;
  for (size_t i = 0; work->per_chunk && i < param_server_chunks(worker_of(s)->server); i++)
    fastest = fmax(fastest, work->per_chunk[i]);
  if (!(fastest > 0))
    return s->options->tau;
  return (int64_t)fmax(1, floor((double)s->options->tau * speed / fastest + 1e-6));
}

static void local_work_push(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  struct local_work *work = local_work_of(s);
  struct local_period *period = &work->period;
  const double speed = period->timed_s > 0 ? (double)period->timed_steps / period->timed_s : 0;
  local_work_fill(s);
  const struct server_request request = {
    .kind = SERVER_PUSH,
    .value = {[LOCAL_STEPS] = (double)period->steps, [LOCAL_SPEED] = speed},
    .per_chunk = work->per_chunk,
    .in = s->g,
    .out = s->w,
    .seen = w->seen,
  };
  const int64_t staleness = peers_exchange(s, &request);
  trm_staleness_add(&w->staleness, staleness > 0 ? (uint64_t)staleness : 0);
  local_work_begin(s);
  period->length = local_work_length(s, speed);
}

int local_work_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  struct local_work *work = local_work_of(s);
  struct local_period *period = &work->period;
  struct trm_update update;
  bool exchanges; /* peers_step's own periods are of equal lengths */
  period->timed_s += s->comm->ops->clock(s->comm) - work->began_s;
  period->timed_steps++;
  TRM_CHECK(peers_step(s, rate, sums, &update, &exchanges));
  worker_apply_all(s, &update);
  if (++period->steps >= period->length)
    local_work_push(s);
  return TRM_OK;
}

void local_work_fastest(struct server_call *call, double *fastest)
{
  *fastest = fmax(*fastest, call->value[LOCAL_SPEED]);
  call->per_chunk = *fastest;
}

int local_work_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct worker *w = worker_of(s);
  struct local_work *work = local_work_of(s);
  if (!s->local_state_restored) {
    size_t bytes;
    void *data = param_server_local_states(w->server, &bytes);
    if (bytes > 0)
      memset(data, 0, bytes);
    data = param_server_local_arrays(w->server, 1, &bytes);
    if (bytes > 0)
      memset(data, 0, bytes);
    work->peers.batches = worker_gradients(s, updates) / w->workers;
    work->period = (struct local_period){.length = s->options->tau};
  }
  return server_weights_restore(s, from, updates);
}
