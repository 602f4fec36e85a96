#include "mpi/async/service.h"

#include <sched.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/service_private.h"

#define PAGE ((size_t)4096)

static size_t round_up(size_t n, size_t unit)
{
  return (n + unit - 1) / unit * unit;
}

/* -- where everything is */

static bool has_centre(const struct service *s)
{
  return s->plan.objects == 1;
}

/* The pieces that a home has of one object. */
static void home_pieces(const struct service *s, int home, size_t *low, size_t *high)
{
  *low = 0;
  *high = s->pieces;
  if (has_centre(s))
    trm_interval(s->pieces, (size_t)s->homes, (size_t)(home - s->first_home), low, high);
}

/* The elements that a home has of each array. */
static void home_elements(const struct service *s, int home, size_t *low, size_t *high)
{
  home_pieces(s, home, low, high);
  *low *= SERVICE_PIECE;
  *high *= SERVICE_PIECE;
  *low = *low < s->plan.elements ? *low : s->plan.elements;
  *high = *high < s->plan.elements ? *high : s->plan.elements;
}

static bool is_home(const struct service *s, int rank)
{
  return rank >= s->first_home && rank < s->first_home + s->homes;
}

static size_t control_bytes(const struct service *s, int home)
{
  size_t low, high;
  home_pieces(s, home, &low, &high);
  return (high - low) * sizeof(struct control);
}

/* From array to array at a home, elements. */
static size_t home_stride(const struct service *s, int home)
{
  size_t low, high;
  home_elements(s, home, &low, &high);
  return round_up(high - low, 16);
}

static size_t home_bytes(const struct service *s, int home)
{
  if (!is_home(s, home))
    return 0;
  return round_up(control_bytes(s, home), PAGE) + (size_t)s->plan.arrays * home_stride(s, home) * sizeof(float);
}

int service_home(const struct service *s, int object, size_t piece)
{
  if (!has_centre(s))
    return object;
  for (int i = 0; i < s->homes; i++) {
    size_t low, high;
    home_pieces(s, s->first_home + i, &low, &high);
    if (piece < high)
      return s->first_home + i;
  }
  return s->first_home;
}

/* Dedicated servers are always sent to: they are asked for so that workers need not do their work. */
bool service_is_direct(const struct service *s, int home)
{
  return s->plan.servers == 0 && s->node_rank[home] >= 0;
}

static float *home_arrays(const struct service *s, int home)
{
  return (float *)((char *)s->shared.base[s->node_rank[home]] + round_up(control_bytes(s, home), PAGE));
}

static struct control *control_at(const struct service *s, int home, size_t piece)
{
  size_t low, high;
  home_pieces(s, home, &low, &high);
  return (struct control *)s->shared.base[s->node_rank[home]] + (piece - low);
}

/* -- calls */

static void lock(_Atomic int *lock)
{
  for (int tries = 0; atomic_exchange_explicit(lock, 1, memory_order_acquire); tries++)
    if (tries > 20)
      sched_yield(); /* who has it may be waiting for a core */
}

static void unlock(_Atomic int *lock)
{
  atomic_store_explicit(lock, 0, memory_order_release);
}

int64_t service_run(struct service *s, int object, size_t piece, int64_t seen, struct service_call *call)
{
  const int home = service_home(s, object, piece);
  struct control *control = control_at(s, home, piece);
  size_t low, high;
  home_elements(s, home, &low, &high);
  const size_t at = piece * SERVICE_PIECE, left = s->plan.elements - at;
  const struct service_piece face = {
    .object = object,
    .low = at,
    .n = left < SERVICE_PIECE ? left : SERVICE_PIECE,
    .first = home_arrays(s, home) + (at - low),
    .stride = home_stride(s, home),
    .clock = &control->clock,
    .note = control->note,
  };
  lock(&control->lock);
  call->late = control->clock - seen;
  s->plan.function(s->plan.context, &face, call);
  const int64_t clock = control->clock;
  unlock(&control->lock);
  return clock;
}

static void run_directly(struct service *s, size_t piece, const struct service_request *request, int64_t *late)
{
  const size_t at = piece * SERVICE_PIECE;
  struct service_call call = {
    .kind = request->kind,
    .from = s->plan.comm->rank,
    .each = request->each ? request->each[piece] : 0,
    .in = request->in ? request->in + at : NULL,
    .out = request->out ? request->out + at : NULL,
  };
  memcpy(call.value, request->value, sizeof call.value);
  const int64_t clock = service_run(s, request->object, piece, request->seen ? request->seen[piece] : 0, &call);
  if (call.late > *late)
    *late = call.late;
  if (request->each)
    request->each[piece] = call.each;
  if (request->seen && request->out)
    request->seen[piece] = clock;
}

/* Callers begin at different pieces, so that they do not queue up behind one another. */
int64_t service_exchange(struct service *s, const struct service_request *request)
{
  const size_t first = request->first, count = (request->last ? request->last : s->pieces) - first;
  const size_t start = count * (size_t)s->plan.comm->rank / (size_t)s->plan.comm->size;
  int64_t late = 0;
  for (size_t i = 0; i < count; i++) {
    const size_t piece = first + (start + i) % count;
    const int home = service_home(s, request->object, piece);
    if (service_is_direct(s, home))
      run_directly(s, piece, request, &late);
    else
      remote_post(s, home, piece, request, &late);
  }
  if (s->remote)
    remote_await(s, request, &late);
  return late;
}

bool service_work(struct service *s)
{
  return s->remote && remote_work(s);
}

size_t service_pieces(const struct service *s)
{
  return s->pieces;
}

/* -- life */

/* Where the ranks of comm stand in my node. */
static void find_neighbours(struct service *s)
{
  struct trm_comm *comm = s->plan.comm, *node = s->plan.node;
  int32_t *world = trm_alloc((size_t)node->size * sizeof *world, "ranks of the node");
  const int32_t own = comm->rank;
  node->ops->allgather(node, &own, world, 1, TRM_INT32);
  for (int i = 0; i < comm->size; i++)
    s->node_rank[i] = -1;
  for (int i = 0; i < node->size; i++)
    s->node_rank[world[i]] = i;
  trm_free(world);
}

int service_create(struct service **service, const struct service_plan *plan)
{
  struct service *s = trm_alloc(sizeof *s, "the parameter service");
  const int ranks = plan->comm->size;
  s->plan = *plan;
  s->pieces = (plan->elements + SERVICE_PIECE - 1) / SERVICE_PIECE;
  s->homes = plan->servers > 0 ? plan->servers : ranks;
  s->first_home = ranks - s->homes;
  s->node_rank = trm_alloc((size_t)ranks * sizeof *s->node_rank, "the parameter service");
  find_neighbours(s);
  int status = trm_agree(plan->comm, plan->node->ops->share(plan->node, home_bytes(s, plan->comm->rank),
                                                            "the parameter service", &s->shared));
  if (status == TRM_OK && (plan->servers > 0 || plan->node->size < ranks))
    status = trm_agree(plan->comm, remote_create(s));
  *service = s;
  if (status != TRM_OK) {
    service_free(s);
    *service = NULL;
  }
  return status;
}

void service_free(struct service *s)
{
  if (!s)
    return;
  if (s->remote)
    remote_free(s);
  if (s->shared.base)
    s->plan.node->ops->unshare(s->plan.node, &s->shared);
  trm_free(s->node_rank);
  trm_free(s);
}

/* -- the state as a whole */

static void whole(struct service *s, int object, int array, float *to, const float *from)
{
  struct trm_comm *comm = s->plan.comm;
  comm->ops->barrier(comm);
  for (int i = 0; i < s->homes; i++) {
    const int home = has_centre(s) ? s->first_home + i : object;
    size_t low, high;
    home_elements(s, home, &low, &high);
    float *there = s->node_rank[home] >= 0 ? home_arrays(s, home) + (size_t)array * home_stride(s, home) : NULL;
    const size_t bytes = (high - low) * sizeof(float);
    if (from && home == comm->rank)
      memcpy(there, from + low, bytes);
    if (to && there)
      memcpy(to + low, there, bytes);
    if (to && s->plan.node->size < comm->size)
      comm->ops->broadcast(comm, to + low, high - low, TRM_FLOAT, home);
    if (!has_centre(s))
      break;
  }
  comm->ops->barrier(comm);
}

void service_gather(struct service *s, int object, int array, float *to)
{
  whole(s, object, array, to, NULL);
}

void service_scatter(struct service *s, int object, int array, const float *from)
{
  whole(s, object, array, NULL, from);
}

void service_set_clocks(struct service *s, int64_t clock)
{
  const int rank = s->plan.comm->rank;
  if (is_home(s, rank))
    for (size_t i = 0; i < control_bytes(s, rank) / sizeof(struct control); i++)
      ((struct control *)s->shared.own)[i].clock = clock;
  s->plan.comm->ops->barrier(s->plan.comm);
}

void *service_control(struct service *s, size_t *bytes)
{
  *bytes = is_home(s, s->plan.comm->rank) ? control_bytes(s, s->plan.comm->rank) : 0;
  return s->shared.own;
}

void *service_arrays(struct service *s, int first_array, size_t *bytes)
{
  const int rank = s->plan.comm->rank;
  *bytes = 0;
  if (!is_home(s, rank))
    return NULL;
  const size_t stride = home_stride(s, rank);
  *bytes = (size_t)(s->plan.arrays - first_array) * stride * sizeof(float);
  return home_arrays(s, rank) + (size_t)first_array * stride;
}
