/* The rates of arithmetic and of memory, in turns with the steps, so that what disturbs the machine disturbs both. */
#include "cli/bench/bench_limits.h"

#include "core/memory.h"
#include "core/status.h"

enum { LARGE = 2048 };

int limits_open(struct limits *l, size_t steps)
{
  struct work *work = l->work;
  struct trm_device *device = &work->job->device;
  const struct timed *timed = &work->timed;
  for (size_t i = 0; i < timed->products; i++) {
    const struct timed_product *p = &timed->product[i];
    l->product[i] = (struct bench_product){
      .transpose_a = p->transpose_a, .transpose_b = p->transpose_b, .m = p->m, .n = p->n, .k = p->k};
    l->calls[i] = p->calls / steps;
    l->products++;
    TRM_CHECK(bench_product_open(&l->product[i], device, l->rounds));
  }
  l->large = (struct bench_product){.m = LARGE, .n = LARGE, .k = LARGE};
  TRM_CHECK(bench_product_open(&l->large, device, l->rounds));
  size_t low, high;
  trm_interval(work->model.parameters, (size_t)work->comm->size, (size_t)work->comm->rank, &low, &high);
  l->slice = high - low;
  l->plenty = l->slice > (size_t)1 << 23 ? l->slice : (size_t)1 << 23;
  for (int i = 0; i < 3; i++)
    l->array[i] = trm_alloc(l->plenty * sizeof(float), "bench: memory measure");
  for (size_t i = 0; i < l->plenty; i++)
    l->array[2][i] = 1e-3f;
  l->slice_s = trm_alloc(2 * l->rounds * sizeof *l->slice_s, "bench: times");
  l->plenty_s = l->slice_s + l->rounds;
  return TRM_OK;
}

void limits_close(struct limits *l)
{
  struct trm_device *device = &l->work->job->device;
  for (int i = 0; i < l->products; i++)
    bench_product_close(&l->product[i], device);
  bench_product_close(&l->large, device);
  for (int i = 0; i < 3; i++)
    trm_free(l->array[i]);
  trm_free(l->slice_s);
}

/* Reads three arrays and writes two of them, as momentum does: 5 floats an element over memory. */
static double memory_time(struct limits *l, size_t n)
{
  struct trm_comm *comm = l->work->comm;
  float *restrict w = l->array[0], *restrict v = l->array[1];
  const float *restrict g = l->array[2];
  comm->ops->barrier(comm);
  const double begin = comm->ops->clock(comm);
#pragma omp parallel for simd schedule(static) num_threads(l->work->device.threads)
  for (size_t i = 0; i < n; i++) {
    v[i] = 0.5f * v[i] + g[i];
    w[i] -= 0.5f * v[i];
  }
  return comm->ops->clock(comm) - begin;
}

static void product_round(struct limits *l, struct bench_product *p, size_t round)
{
  bench_product_time(p, l->work->job); /* brings its factors into the caches, as bench gemm does */
  p->took[round] = bench_product_time(p, l->work->job);
}

void limits_round(struct limits *l, size_t round)
{
  struct trm_comm *comm = l->work->comm;
  comm->ops->barrier(comm);
  for (int i = 0; i < l->products; i++)
    product_round(l, &l->product[i], round);
  product_round(l, &l->large, round);
  l->slice_s[round] = memory_time(l, l->slice);
  l->plenty_s[round] = memory_time(l, l->plenty);
}

static double median_slowest(struct limits *l, double *seconds)
{
  bench_slowest(l->work->comm, seconds, l->rounds);
  return bench_median(seconds, l->rounds);
}

struct limits_found limits_find(struct limits *l)
{
  struct limits_found f = {.products_s = 0};
  for (int i = 0; i < l->products; i++)
    f.products_s += (double)l->calls[i] * median_slowest(l, l->product[i].took);
  f.flop_per_s = bench_product_flop(&l->large) / median_slowest(l, l->large.took);
  f.bytes_per_s = 5 * sizeof(float) * (double)l->plenty / median_slowest(l, l->plenty_s);
  /* weights and states in and out, and a gradient of each rank in */
  const double floats = 2.0 + 2.0 * l->work->optimizer.states + l->work->comm->size;
  f.optimizer_s = floats / 5 * median_slowest(l, l->slice_s);
  return f;
}
