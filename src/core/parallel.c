#define _GNU_SOURCE
#include "core/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "core/comm.h"
#include "core/context.h"
#include "core/memory.h"

enum { CACHE_LINE = 64, PAUSES = 32 }; /* pauses between looks at the clock */
/* Waiting for longer is sleeping. In this time the kernel parts threads that it has put on one core; of threads that
 * sleep sooner it sees no two ready at a time, and leaves them there. */
#define SPIN_S 4e-3
/* Beside another busy process that is wrong: a thread that spins keeps the core from another one of ours, which has to
 * wait for its own core. A part of a loop that ends so much later than the others, by half of their time and DELAY_S,
 * has waited for a core: for PASSIVE_S threads sleep after SHORT_SPIN_S. */
#define SHORT_SPIN_S 2e-5
#define DELAY_S 1e-3
#define PASSIVE_S 0.2

struct pool;

struct worker {
  _Alignas(CACHE_LINE) _Atomic unsigned task; /* number of the loop that it is to compute */
  _Atomic bool sleeps;
  struct pool *pool;
  int number; /* from 1 */
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
};

/* The threads of one that begins loops, and its loop. */
struct pool {
  struct worker **worker; /* (workers) */
  int workers;
  size_t capacity;
  trm_parallel_body *body; /* NULL: the threads end */
  const void *context;
  size_t n;
  int threads;
  _Alignas(CACHE_LINE) _Atomic int running; /* workers that compute */
  _Atomic bool sleeps, oversubscribed; /* oversubscribed: there are fewer cores than threads */
  _Atomic bool passive; /* threads sleep after SHORT_SPIN_S */
  double passive_until; /* s of parallel_clock; the caller's alone */
  pthread_mutex_t lock;
  pthread_cond_t done;
};

static _Thread_local int parallel_number;
static _Thread_local bool parallel_inside;
static pthread_key_t parallel_key;
static pthread_once_t parallel_once = PTHREAD_ONCE_INIT;

static double parallel_clock(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void parallel_pause(void)
{
#if defined __x86_64__ || defined __i386__
  __builtin_ia32_pause();
#endif
}

/* -- waiting */

static bool parallel_is_zero(const void *of)
{
  return atomic_load((const _Atomic int *)of) == 0;
}

struct next_task {
  const struct worker *worker;
  unsigned seen;
};

static bool parallel_has_task(const void *of)
{
  const struct next_task *next = of;
  return atomic_load(&next->worker->task) != next->seen;
}

/* Returns whether ready(of): as soon as it is, or after a time. */
static bool parallel_spin(const struct pool *pool, bool (*ready)(const void *of), const void *of)
{
  const double begin = parallel_clock();
  while (!ready(of)) {
    for (int i = 0; i < PAUSES && !ready(of); i++)
      parallel_pause();
    const bool passive = atomic_load_explicit(&pool->passive, memory_order_relaxed);
    if (parallel_clock() - begin > (passive ? SHORT_SPIN_S : SPIN_S))
      return ready(of);
  }
  return true;
}

/* Returns when ready(of). Who makes it so looks at *sleeps afterwards, and signals the condition. */
static void parallel_wait(const struct pool *pool, bool (*ready)(const void *of), const void *of, _Atomic bool *sleeps,
                          pthread_mutex_t *lock, pthread_cond_t *condition)
{
  if (ready(of) || (!atomic_load_explicit(&pool->oversubscribed, memory_order_relaxed) && parallel_spin(pool, ready, of)))
    return;
  pthread_mutex_lock(lock);
  atomic_store(sleeps, true);
  while (!ready(of))
    pthread_cond_wait(condition, lock);
  atomic_store(sleeps, false);
  pthread_mutex_unlock(lock);
}

static void parallel_signal(_Atomic bool *sleeps, pthread_mutex_t *lock, pthread_cond_t *condition)
{
  if (!atomic_load(sleeps))
    return;
  pthread_mutex_lock(lock);
  pthread_cond_signal(condition);
  pthread_mutex_unlock(lock);
}

/* -- threads */

static void parallel_compute(const struct pool *pool, int number)
{
  size_t low, high;
  trm_interval(pool->n, (size_t)pool->threads, (size_t)number, &low, &high);
  parallel_inside = true;
  parallel_number = number;
  if (low < high)
    pool->body(pool->context, low, high);
  parallel_number = 0;
  parallel_inside = false;
}

static void *parallel_work(void *context)
{
  struct worker *self = context;
  struct pool *pool = self->pool;
  struct next_task next = {.worker = self};
#ifdef _OPENMP
  omp_set_num_threads(1); /* of libraries, in this thread */
#endif
  for (;; next.seen++) {
    parallel_wait(pool, parallel_has_task, &next, &self->sleeps, &self->lock, &self->wake);
    if (!pool->body)
      return NULL;
    parallel_compute(pool, self->number);
    if (atomic_fetch_sub(&pool->running, 1) == 1)
      parallel_signal(&pool->sleeps, &pool->lock, &pool->done);
  }
}

static void parallel_begin_task(struct worker *worker)
{
  atomic_fetch_add(&worker->task, 1);
  parallel_signal(&worker->sleeps, &worker->lock, &worker->wake);
}

static bool parallel_is_oversubscribed(int threads)
{
  cpu_set_t set;
  return trm_rank_current()->oversubscribed ||
         (sched_getaffinity(0, sizeof set, &set) == 0 && threads > CPU_COUNT(&set));
}

/* Returns false if there is no thread to be had. Signals are for the threads that the program began itself. */
static bool parallel_add_worker(struct pool *pool)
{
  struct worker *worker = trm_alloc(sizeof *worker, "threads");
  sigset_t all, before;
  worker->pool = pool;
  worker->number = pool->workers + 1;
  pthread_mutex_init(&worker->lock, NULL);
  pthread_cond_init(&worker->wake, NULL);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool started = pthread_create(&worker->thread, NULL, parallel_work, worker) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!started) {
    trm_free(worker);
    return false;
  }
  pool->worker = trm_grow(pool->worker, &pool->capacity, (size_t)pool->workers, (size_t)pool->workers + 1,
                          sizeof(struct worker *), "threads");
  pool->worker[pool->workers++] = worker;
  atomic_store(&pool->oversubscribed, parallel_is_oversubscribed(pool->workers + 1));
  return true;
}

/* Ends the threads of one that ends. */
static void parallel_close(void *of)
{
  struct pool *pool = of;
  pool->body = NULL;
  for (int i = 0; i < pool->workers; i++) {
    parallel_begin_task(pool->worker[i]);
    pthread_join(pool->worker[i]->thread, NULL);
    pthread_mutex_destroy(&pool->worker[i]->lock);
    pthread_cond_destroy(&pool->worker[i]->wake);
    trm_free(pool->worker[i]);
  }
  pthread_mutex_destroy(&pool->lock);
  pthread_cond_destroy(&pool->done);
  trm_free(pool->worker);
  trm_free(pool);
}

static void parallel_make_key(void)
{
  if (pthread_key_create(&parallel_key, parallel_close) != 0)
    abort();
}

static struct pool *parallel_pool(void)
{
  pthread_once(&parallel_once, parallel_make_key);
  struct pool *pool = pthread_getspecific(parallel_key);
  if (!pool) {
    pool = trm_alloc(sizeof *pool, "threads");
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->done, NULL);
    pthread_setspecific(parallel_key, pool);
  }
  return pool;
}

/* -- loops */

/* own: the seconds of the caller's part of a loop that has ended, which it had computed at the time `computed`. */
static void parallel_find_delays(struct pool *pool, double own, double computed)
{
  const double now = parallel_clock();
  if (now - computed > own / 2 + DELAY_S)
    pool->passive_until = now + PASSIVE_S;
  atomic_store_explicit(&pool->passive, now < pool->passive_until, memory_order_relaxed);
}

int trm_parallel_thread(void)
{
  return parallel_number;
}

void trm_parallel_unbind(void)
{
#ifdef _OPENMP
  enum { CORES = CPU_SETSIZE };
  cpu_set_t set;
  int core[CORES];
  CPU_ZERO(&set);
  for (int place = 0; place < omp_get_num_places(); place++) {
    const int cores = omp_get_place_num_procs(place);
    if (cores > CORES)
      return;
    omp_get_place_proc_ids(place, core);
    for (int i = 0; i < cores; i++)
      if (core[i] < CORES)
        CPU_SET(core[i], &set);
  }
  if (omp_get_proc_bind() != omp_proc_bind_false && CPU_COUNT(&set) > 0)
    sched_setaffinity(0, sizeof set, &set);
#endif
}

int trm_parallel_default(void)
{
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  const char *text = getenv("OMP_NUM_THREADS");
  const int wanted = text ? atoi(text) : 0;
  cpu_set_t set;
  return wanted > 0 ? wanted : sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
#endif
}

void trm_parallel_for(int threads, size_t n, trm_parallel_body *body, const void *context)
{
  threads = n < (size_t)threads ? (int)n : threads;
  struct pool *pool = threads > 1 && !parallel_inside ? parallel_pool() : NULL;
  while (pool && pool->workers < threads - 1 && parallel_add_worker(pool))
    ;
  if (!pool || pool->workers == 0) {
    if (n > 0)
      body(context, 0, n);
    return;
  }
  pool->body = body;
  pool->context = context;
  pool->n = n;
  pool->threads = threads < pool->workers + 1 ? threads : pool->workers + 1;
  atomic_store(&pool->running, pool->threads - 1);
  for (int i = 0; i < pool->threads - 1; i++)
    parallel_begin_task(pool->worker[i]);
  const double begin = parallel_clock();
  parallel_compute(pool, 0);
  const double computed = parallel_clock();
  parallel_wait(pool, parallel_is_zero, &pool->running, &pool->sleeps, &pool->lock, &pool->done);
  parallel_find_delays(pool, computed - begin, computed);
}
