/* Rates of arithmetic and memory, measured alternately with the steps, so that disturbances affect both. */
#include "cli/bench/bench_roofline.h"

#include "core/memory.h"
#include "core/status.h"

enum { PEAK_SIZE = 2048 };

int roofline_open(struct roofline *l, size_t steps)
{
  struct bench_run *run = l->run;
  struct trm_device *device = &run->job->device;
  const struct timed_profile *timed = &run->timed;
  for (size_t i = 0; i < timed->products; i++) {
    const struct timed_product *p = &timed->product[i];
    l->product[i] = (struct bench_product){
      .transpose_a = p->transpose_a, .transpose_b = p->transpose_b, .m = p->m, .n = p->n, .k = p->k};
    l->calls[i] = p->calls / steps;
    l->products++;
    TRM_CHECK(bench_product_open(&l->product[i], device, l->rounds));
  }
  l->large = (struct bench_product){.m = PEAK_SIZE, .n = PEAK_SIZE, .k = PEAK_SIZE};
  TRM_CHECK(bench_product_open(&l->large, device, l->rounds));
  size_t low, high;
  trm_interval(run->model.parameters, (size_t)run->comm->size, (size_t)run->comm->rank, &low, &high);
  l->slice = high - low;
  l->uncached = l->slice > (size_t)1 << 23 ? l->slice : (size_t)1 << 23;
  for (int i = 0; i < 3; i++)
    l->array[i] = trm_alloc(l->uncached * sizeof(float), "bench: memory measure");
  for (size_t i = 0; i < l->uncached; i++)
    l->array[2][i] = 1e-3f;
  l->slice_s = trm_alloc(2 * l->rounds * sizeof *l->slice_s, "bench: times");
  l->uncached_s = l->slice_s + l->rounds;
  return TRM_OK;
}

void roofline_close(struct roofline *l)
{
  struct trm_device *device = &l->run->job->device;
  for (int i = 0; i < l->products; i++)
    bench_product_close(&l->product[i], device);
  bench_product_close(&l->large, device);
  for (int i = 0; i < 3; i++)
    trm_free(l->array[i]);
  trm_free(l->slice_s);
}

/* Reads three arrays and writes two of them, as momentum does: memory traffic of 5 floats per element. */
static double roofline_time_memory(struct roofline *l, size_t n)
{
  struct trm_comm *comm = l->run->comm;
  float *restrict w = l->array[0], *restrict v = l->array[1];
  const float *restrict g = l->array[2];
  comm->ops->barrier(comm);
  const double begin = comm->ops->clock(comm);
#pragma omp parallel for simd schedule(static) num_threads(l->run->device.threads)
  for (size_t i = 0; i < n; i++) {
    v[i] = 0.5f * v[i] + g[i];
    w[i] -= 0.5f * v[i];
  }
  return comm->ops->clock(comm) - begin;
}

static void roofline_time_product(struct roofline *l, struct bench_product *p, size_t round)
{
  bench_product_time(p, l->run->job); /* fills the caches with its factors, as bench gemm does */
  p->seconds[round] = bench_product_time(p, l->run->job);
}

void roofline_round(struct roofline *l, size_t round)
{
  struct trm_comm *comm = l->run->comm;
  comm->ops->barrier(comm);
  for (int i = 0; i < l->products; i++)
    roofline_time_product(l, &l->product[i], round);
  roofline_time_product(l, &l->large, round);
  l->slice_s[round] = roofline_time_memory(l, l->slice);
  l->uncached_s[round] = roofline_time_memory(l, l->uncached);
}

static double roofline_median_slowest(struct roofline *l, double *seconds)
{
  bench_slowest(l->run->comm, seconds, l->rounds);
  return bench_median(seconds, l->rounds);
}

struct roofline_rates roofline_reduce(struct roofline *l)
{
  struct roofline_rates f = {.products_s = 0};
  for (int i = 0; i < l->products; i++)
    f.products_s += (double)l->calls[i] * roofline_median_slowest(l, l->product[i].seconds);
  f.flop_per_s = bench_product_flop(&l->large) / roofline_median_slowest(l, l->large.seconds);
  f.bytes_per_s = 5 * sizeof(float) * (double)l->uncached / roofline_median_slowest(l, l->uncached_s);
  /* weights and states read and written, a gradient of each rank read */
  const double floats = 2.0 + 2.0 * l->run->optimizer.states + l->run->comm->size;
  f.optimizer_s = floats / 5 * roofline_median_slowest(l, l->slice_s);
  return f;
}
