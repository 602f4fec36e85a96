/* Computations of the virtual network, and the cores that they share in virtual time. In real time they run on a pool
 * of threads while the ranks' fibers go on; their results do not depend on the threads, since each uses what is its
 * rank's alone. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/virtual_private.h"

enum { HELPS_A_TIMED_ONE = 7 };

struct compute_task {
  struct compute_task *next;
  int (*work)(void *context);
  void *work_context;
  struct trm_context *context; /* of the rank */
  int status;
  bool done;
};

struct virtual_pool {
  pthread_mutex_t lock;
  pthread_cond_t begun, done; /* a task has been added, or the pool ends; the awaited task is done */
  const struct compute_task *awaited; /* that the ranks' thread waits for; NULL: none */
  struct compute_task *first, *last; /* not begun */
  bool ends;
  uint64_t helps, timed; /* tasks that the ranks' thread has run; those of them whose time was measured */
  double timed_s;        /* processor seconds */
  int threads;           /* besides the ranks' */
  pthread_t thread[]; /* (threads) */
};

/* With the pool locked: takes the first task, unlocks the pool while the task runs. NULL: there is none. */
static struct compute_task *compute_next(struct virtual_pool *pool)
{
  struct compute_task *task = pool->first;
  if (!task)
    return NULL;
  pool->first = task->next;
  pthread_mutex_unlock(&pool->lock);
  trm_context_set(task->context);
  const int status = task->work(task->work_context);
  trm_context_set(NULL);
  pthread_mutex_lock(&pool->lock);
  task->status = status;
  task->done = true;
  return task;
}

static void *compute_thread(void *of)
{
  struct virtual_pool *pool = of;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL); /* signals go to the main thread */
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    while (!pool->first && !pool->ends)
      pthread_cond_wait(&pool->begun, &pool->lock);
    struct compute_task *task = compute_next(pool);
    if (!task)
      break;
    if (pool->awaited != task)
      continue;
    pthread_mutex_unlock(&pool->lock); /* the other thread needs it */
    pthread_cond_signal(&pool->done);
    pthread_mutex_lock(&pool->lock);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

struct virtual_pool *virtual_pool_create(int threads)
{
  struct virtual_pool *pool = trm_alloc(sizeof *pool + (size_t)threads * sizeof *pool->thread, "a pool of threads");
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->begun, NULL);
  pthread_cond_init(&pool->done, NULL);
  while (pool->threads < threads &&
         pthread_create(&pool->thread[pool->threads], NULL, compute_thread, pool) == 0)
    pool->threads++;
  return pool;
}

void virtual_pool_free(struct virtual_pool *pool)
{
  if (!pool)
    return;
  pthread_mutex_lock(&pool->lock);
  pool->ends = true;
  pthread_cond_broadcast(&pool->begun);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < pool->threads; i++)
    pthread_join(pool->thread[i], NULL);
  pthread_cond_destroy(&pool->done);
  pthread_cond_destroy(&pool->begun);
  pthread_mutex_destroy(&pool->lock);
  trm_free(pool);
}

double virtual_pool_seconds(const struct virtual_pool *pool)
{
  double seconds = pool->timed > 0 ? pool->timed_s * (double)pool->helps / (double)pool->timed : 0;
  clockid_t clock;
  for (int i = 0; i < pool->threads; i++)
    if (pthread_getcpuclockid(pool->thread[i], &clock) == 0)
      seconds += virtual_processor_seconds(clock);
  return seconds;
}

static void compute_begin(struct virtual_pool *pool, struct compute_task *task)
{
  pthread_mutex_lock(&pool->lock);
  if (pool->first)
    pool->last->next = task;
  else
    pool->first = task;
  pool->last = task;
  pthread_mutex_unlock(&pool->lock);
  pthread_cond_signal(&pool->begun);
}

/* The ranks' thread runs a task; false: there is none. */
static bool compute_help(struct virtual_pool *pool)
{
  struct trm_context *context = trm_context_current();
  const bool timed = pool->helps % HELPS_A_TIMED_ONE == 0;
  const double began = timed ? virtual_processor_seconds(CLOCK_THREAD_CPUTIME_ID) : 0;
  if (!compute_next(pool))
    return false;
  trm_context_set(context);
  pool->helps++;
  if (timed) {
    pool->timed++;
    pool->timed_s += virtual_processor_seconds(CLOCK_THREAD_CPUTIME_ID) - began;
  }
  return true;
}

/* The ranks' thread computes, too, and sleeps only while other threads have the last tasks. */
static void compute_wait(struct virtual_pool *pool, const struct compute_task *task)
{
  pthread_mutex_lock(&pool->lock);
  while (!task->done && compute_help(pool))
    continue;
  pool->awaited = task;
  while (!task->done)
    pthread_cond_wait(&pool->done, &pool->lock);
  pool->awaited = NULL;
  pthread_mutex_unlock(&pool->lock);
}

/* -- virtual time: a node's cores, and a queue of the computations that wait for one */

static void compute_end_slice(struct virtual_net *net, void *of);

/* Gives the computation a core until it ends, or its rank's slice does. */
static void compute_run(struct virtual_net *net, struct virtual_computation *c)
{
  const double slice = net->plan.slice > 0 ? net->plan.slice - c->rank->slice_used : INFINITY;
  c->granted = fmin(c->left, slice);
  net->node[c->rank->node].running++;
  virtual_act_at(net, net->now + c->granted, compute_end_slice, c);
}

static void compute_enqueue(struct virtual_node *node, struct virtual_computation *c)
{
  struct virtual_computation **end = &node->computing;
  while (*end)
    end = &(*end)->next;
  *end = c;
  c->next = NULL;
}

/* Gives free cores to the first in the queue. */
static void compute_dispatch(struct virtual_net *net, void *of)
{
  struct virtual_node *node = of;
  for (struct virtual_computation *c; node->running < net->plan.cores && (c = node->computing);) {
    node->computing = c->next;
    c->rank->slice_used = 0;
    compute_run(net, c);
  }
}

/* A rank whose computation has ended may begin the next at once, on the same core: others get it after that. */
static void compute_end_slice(struct virtual_net *net, void *of)
{
  struct virtual_computation *c = of;
  struct virtual_rank *rank = c->rank;
  struct virtual_node *node = &net->node[rank->node];
  node->running--;
  rank->slice_used += c->granted;
  c->left -= c->granted;
  if (c->left > 0) {
    compute_enqueue(node, c);
    compute_dispatch(net, node);
    return;
  }
  rank->computed_until = net->now;
  virtual_resume_at(net, net->now, c->fiber);
  virtual_act_at(net, net->now, compute_dispatch, node);
}

static void compute_describe(const void *of, char *text, size_t bytes)
{
  (void)of;
  snprintf(text, bytes, "the end of a computation");
}

/* Returns when the rank has computed for so many seconds of a core. */
static void compute_pass(struct virtual_rank *rank, double seconds)
{
  struct virtual_net *net = rank->net;
  struct virtual_node *node = &net->node[rank->node];
  const double delay = virtual_random_delay(net);
  if (net->plan.cores == 0 || net->plan.cores >= net->plan.ranks_per_node || seconds + delay <= 0) {
    virtual_sleep_until(net, net->now + seconds + delay);
    return;
  }
  struct virtual_computation mine = {.rank = rank, .fiber = net->current, .left = seconds + delay};
  const bool goes_on = rank->computed_until == net->now && (net->plan.slice <= 0 || rank->slice_used < net->plan.slice);
  if (!goes_on)
    rank->slice_used = 0;
  if (node->running < net->plan.cores && (goes_on || !node->computing))
    compute_run(net, &mine);
  else
    compute_enqueue(node, &mine);
  virtual_park(net, compute_describe, NULL);
}

static int compute_in_time(struct virtual_rank *rank, int (*work)(void *context), void *context, double seconds)
{
  const struct virtual_net *net = rank->net;
  if (!net->pool || !work) {
    const int status = work ? work(context) : TRM_OK;
    compute_pass(rank, seconds);
    return status;
  }
  struct compute_task task = {.work = work, .work_context = context, .context = trm_context_current()};
  compute_begin(net->pool, &task);
  compute_pass(rank, seconds);
  compute_wait(net->pool, &task);
  return task.status;
}

/* The work is not traced: it takes no virtual time where it runs, and may be in another thread. */
int virtual_compute(struct trm_comm *comm, int (*work)(void *context), void *context, double seconds)
{
  struct virtual_rank *rank = virtual_rank_of(comm);
  struct virtual_notes *notes = *virtual_fiber_notes(rank->net->current);
  struct trm_trace *trace = rank->state.trace;
  if (notes) { /* part of a call's answer, which takes longer */
    notes->seconds += seconds;
    return work ? work(context) : TRM_OK;
  }
  rank->state.trace = NULL;
  const int status = compute_in_time(rank, work, context, seconds);
  rank->state.trace = trace;
  return status;
}
