#include "mpi/async/node_sum.h"

#include <string.h>

#include "core/counter.h"
#include "core/status.h"

#define STATE_BYTES ((size_t)4096) /* of the segment, before the arrays */

struct node_sum_state {
  struct trm_lock lock;  /* of all below, of weights, and of the sum that grows */
  bool sending;
  int64_t begun;         /* messages: the number of the sum that gradients are added to, at index number % 2 */
  int batches[2];        /* in each sum */
  double rates[2];       /* of these */
  struct trm_counter publications; /* of weights */
};

int node_sum_create(struct trm_strategy *s, struct node_sum *n)
{
  n->node = worker_of(s)->node;
  const size_t bytes = STATE_BYTES + 3 * s->elements * sizeof(float);
  TRM_CHECK(n->node->ops->share(n->node, n->node->rank == 0 ? bytes : 0, TRM_MEMORY_BUFFERS, &n->shared));
  n->state = n->shared.base[0];
  n->sum[0] = (float *)((char *)n->shared.base[0] + STATE_BYTES);
  n->sum[1] = n->sum[0] + s->elements;
  n->weights = n->sum[1] + s->elements;
  n->added = -1;
  return TRM_OK;
}

void node_sum_free(struct node_sum *n)
{
  if (n->shared.base)
    n->node->ops->unshare(n->node, &n->shared);
}

static void node_sum_empty(const struct trm_strategy *s, struct node_sum *n, int i)
{
  s->device->ops->fill(s->device, n->sum[i], 0, s->elements);
  n->state->batches[i] = 0;
  n->state->rates[i] = 0;
}

void node_sum_clear(struct trm_strategy *s, struct node_sum *n)
{
  n->node->ops->barrier(n->node);
  for (int i = 0; i < 2 && n->node->rank == 0; i++)
    node_sum_empty(s, n, i);
  n->node->ops->barrier(n->node);
  n->added = -1;
  node_sum_pulled(n);
}

void node_sum_pulled(struct node_sum *n)
{
  trm_lock_acquire(n->node, &n->state->lock);
  n->read = trm_counter_get(&n->state->publications);
  trm_lock_release(n->node, &n->state->lock);
}

/* With the lock. Returns true if this worker is to send, then sum *i. */
static bool node_sum_begin(struct node_sum *n, int *i)
{
  struct node_sum_state *state = n->state;
  *i = (int)(state->begun % 2);
  if (state->sending || state->batches[*i] == 0)
    return false;
  state->sending = true;
  state->begun++;
  return true;
}

/* A publication after number `last`, for wait_until. */
struct node_sum_answer {
  const struct trm_counter *publications;
  int64_t last;
};

static bool node_sum_is_answered(void *context)
{
  const struct node_sum_answer *answer = context;
  return trm_counter_get(answer->publications) > answer->last;
}

/* With the lock, which is released meanwhile: waits until the message under way has been answered. */
static void node_sum_await(struct node_sum *n)
{
  struct node_sum_answer answer = {&n->state->publications, trm_counter_get(&n->state->publications)};
  trm_lock_release(n->node, &n->state->lock);
  n->node->ops->wait_until(n->node, node_sum_is_answered, &answer);
  trm_lock_acquire(n->node, &n->state->lock);
}

/* Sends sum i, which no other worker uses meanwhile, and publishes the reply. */
static void node_sum_send(struct trm_strategy *s, struct node_sum *n, int i)
{
  struct node_sum_state *state = n->state;
  gradient_sum_push(s, n->sum[i], state->batches[i], state->rates[i]);
  trm_lock_acquire(n->node, &state->lock);
  memcpy(n->weights, s->w, s->elements * sizeof *n->weights);
  node_sum_empty(s, n, i);
  n->read = trm_counter_add(n->node, &state->publications, 1) + 1;
  state->sending = false;
  trm_lock_release(n->node, &state->lock);
}

void node_sum_step(struct trm_strategy *s, struct node_sum *n, double rate, double scale)
{
  struct node_sum_state *state = n->state;
  int i;
  bool sends = false;
  trm_lock_acquire(n->node, &state->lock);
  while (!sends && n->added == state->begun) { /* the sum that grows has a gradient of this worker */
    sends = node_sum_begin(n, &i);
    if (!sends)
      node_sum_await(n);
  }
  n->added = state->begun;
  const int growing = (int)(n->added % 2);
  gradient_sum_add(s, n->sum[growing], ++state->batches[growing], rate, scale);
  state->rates[growing] += rate;
  sends = sends || node_sum_begin(n, &i);
  if (!sends && trm_counter_get(&state->publications) > n->read) {
    memcpy(s->w, n->weights, s->elements * sizeof *s->w);
    n->read = trm_counter_get(&state->publications);
  }
  trm_lock_release(n->node, &state->lock);
  if (sends)
    node_sum_send(s, n, i);
}

void node_sum_drain(struct trm_strategy *s, struct node_sum *n)
{
  for (;;) {
    int i;
    trm_lock_acquire(n->node, &n->state->lock);
    const bool sends = node_sum_begin(n, &i);
    trm_lock_release(n->node, &n->state->lock);
    if (!sends)
      return;
    node_sum_send(s, n, i);
  }
}
