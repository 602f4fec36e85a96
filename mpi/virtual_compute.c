/* Computations of the virtual network: they run on a pool of threads while the ranks' fibers go on, in real time. Their
 * results do not depend on the threads, since each uses what is its rank's alone. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "core/memory.h"
#include "mpi/virtual_private.h"

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
  pthread_cond_t begun, done; /* a task has been added, or the pool ends; a task is done */
  struct compute_task *first, *last; /* not begun */
  bool ends;
  int threads;
  pthread_t thread[]; /* (threads) */
};

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
    struct compute_task *task = pool->first;
    if (!task)
      break;
    pool->first = task->next;
    pthread_mutex_unlock(&pool->lock);
    trm_context_set(task->context);
    const int status = task->work(task->work_context);
    trm_context_set(NULL);
    pthread_mutex_lock(&pool->lock);
    task->status = status;
    task->done = true;
    pthread_cond_broadcast(&pool->done);
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
  if (pool->threads > 0)
    return pool;
  virtual_pool_free(pool);
  return NULL;
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

static void compute_begin(struct virtual_pool *pool, struct compute_task *task)
{
  pthread_mutex_lock(&pool->lock);
  if (pool->first)
    pool->last->next = task;
  else
    pool->first = task;
  pool->last = task;
  pthread_cond_signal(&pool->begun);
  pthread_mutex_unlock(&pool->lock);
}

static void compute_wait(struct virtual_pool *pool, const struct compute_task *task)
{
  pthread_mutex_lock(&pool->lock);
  while (!task->done)
    pthread_cond_wait(&pool->done, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}

int virtual_compute(struct trm_comm *comm, int (*work)(void *context), void *context, double seconds)
{
  struct virtual_net *net = virtual_net_of(comm);
  const double end = net->now + seconds + virtual_random_delay(net);
  if (!net->pool) {
    const int status = work(context);
    virtual_sleep_until(net, end);
    return status;
  }
  struct compute_task task = {.work = work, .work_context = context, .context = trm_context_current()};
  compute_begin(net->pool, &task);
  virtual_sleep_until(net, end);
  compute_wait(net->pool, &task);
  return task.status;
}
