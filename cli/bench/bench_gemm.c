/* trireme bench gemm */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "core/bfloat16.h"
#include "core/memory.h"
#include "core/status.h"

static const char usage[] =
  "usage: trireme bench gemm [--shapes=MxNxK[:TT],...] [--threads=T] [--repeat=R] [--json]\n"
  "\n"
  "Rates of matrix products C (M, N) = A (M, K) B (K, N) of the values of train.activations. TT: n or t for each\n"
  "factor, t where it is stored transposed (default nn). Without --shapes: the products of a training step of the perceptron\n"
  "784-2048-2048-10 on 256 samples, and a large square one. The shapes take turns; medians of R rounds.\n"
  "\n"
  "  --shapes=...  such as 256x2048x784:nt,4096x4096x4096\n"
  "  --threads=T   threads (default: all cores)\n"
  "  --repeat=R    rounds (default 15)\n"
  "  --json        a JSON object for each shape\n";

enum { MAX_PRODUCTS = 64 };

int bench_product_open(struct bench_product *p, struct trm_device *device, size_t rounds)
{
  const struct trm_device_ops *ops = device->ops;
  const size_t bytes = trm_value_bytes(p->type);
  TRM_CHECK(ops->alloc(device, p->m * p->k * bytes, TRM_MEMORY_BUFFERS, &p->a));
  TRM_CHECK(ops->alloc(device, p->k * p->n * bytes, TRM_MEMORY_BUFFERS, &p->b));
  TRM_CHECK(ops->alloc(device, p->m * p->n * bytes, TRM_MEMORY_BUFFERS, &p->c));
  bench_fill(device, p->a, p->type, p->m * p->k, 0);
  bench_fill(device, p->b, p->type, p->k * p->n, 1);
  p->seconds = trm_alloc(rounds * sizeof *p->seconds, "bench: times");
  return TRM_OK;
}

void bench_product_close(struct bench_product *p, struct trm_device *device)
{
  void *const factor[] = {p->a, p->b, p->c};
  for (int i = 0; i < 3; i++)
    if (factor[i])
      device->ops->release(device, factor[i]);
  trm_free(p->seconds);
}

double bench_product_time(const struct bench_product *p, struct trm_job *job)
{
  struct trm_device *device = &job->device;
  struct trm_comm *comm = job->modules.comm;
  const double begin = comm->ops->clock(comm);
  device->ops->gemm(device, &(struct trm_gemm){
    .transpose_a = p->transpose_a, .transpose_b = p->transpose_b, .m = p->m, .n = p->n, .k = p->k, .alpha = 1,
    .a = p->a, .lda = p->transpose_a ? p->m : p->k, .b = p->b, .ldb = p->transpose_b ? p->k : p->n, .c = p->c,
    .ldc = p->n, .type_ab = p->type, .type_c = p->type});
  device->ops->sync(device); /* failures are reported again by the next sync */
  return comm->ops->clock(comm) - begin;
}

double bench_product_flop(const struct bench_product *p)
{
  return 2.0 * (double)p->m * (double)p->n * (double)p->k;
}

/* Reads "256x2048x784:nt,...". */
static int gemm_parse_shapes(const char *text, struct bench_product *product, int *count)
{
  const char *at = text;
  for (*count = 0; *count < MAX_PRODUCTS; (*count)++) {
    long m = 0, n = 0, k = 0, max = 1 << 20;
    char a = 'n', b = 'n';
    int used = 0;
    const char *begin = at;
    bool good = sscanf(at, "%ldx%ldx%ld%n", &m, &n, &k, &used) == 3;
    good = good && m > 0 && n > 0 && k > 0 && m <= max && n <= max && k <= max;
    at += used;
    if (good && *at == ':') {
      good = sscanf(at, ":%c%c", &a, &b) == 2 && strchr("nt", a) && strchr("nt", b);
      at += good ? 3 : 0;
    }
    if (!good || (*at && *at != ','))
      return trm_error(TRM_USAGE, "bench gemm: --shapes=%s: at \"%s\": wanted MxNxK or MxNxK:TT, sizes from 1 to %d",
                       text, begin, 1 << 20);
    product[*count] = (struct bench_product){
      .transpose_a = a == 't', .transpose_b = b == 't', .m = (size_t)m, .n = (size_t)n, .k = (size_t)k};
    if (!*at++) {
      (*count)++;
      return TRM_OK;
    }
  }
  return trm_error(TRM_USAGE, "bench gemm: --shapes: more than %d", MAX_PRODUCTS);
}

/* The products of a linear layer: forward, weight gradient and, except of the first layer, input gradient. */
static int gemm_default_shapes(struct bench_product *product)
{
  enum { ROWS = 256, LARGE = 2048 };
  static const size_t size[] = {784, 2048, 2048, 10};
  static const char *const name[] = {"forward", "dW", "dX"};
  int count = 0;
  for (int i = 0; i < 3; i++) {
    const size_t in = size[i], out = size[i + 1];
    const size_t m[] = {ROWS, out, ROWS}, n[] = {out, in, in}, k[] = {in, ROWS, out};
    for (int j = 0; j < (i > 0 ? 3 : 2); j++) {
      struct bench_product *p = &product[count++];
      *p = (struct bench_product){.transpose_a = j == 1, .transpose_b = j == 0, .m = m[j], .n = n[j], .k = k[j]};
      snprintf(p->label, sizeof p->label, "layer %d %s", i + 1, name[j]);
    }
  }
  product[count++] = (struct bench_product){.label = "large square", .m = LARGE, .n = LARGE, .k = LARGE};
  return count;
}

static void gemm_print_product(struct trm_job *job, struct bench_product *p, size_t rounds, bool json)
{
  const double s = bench_median(p->seconds, rounds);
  const char kind[] = {p->transpose_a ? 't' : 'n', p->transpose_b ? 't' : 'n', '\0'};
  const struct figure row[] = {
    figure_text("label", "%-16s", p->label),
    figure_number("m", " %6.0f x", (double)p->m, 1),
    figure_number("n", " %5.0f x", (double)p->n, 1),
    figure_number("k", " %5.0f", (double)p->k, 1),
    figure_text("transposes", "  %s", kind),
    figure_text("values", NULL, trm_choice_text("train.activations", p->type)),
    figure_text("device", NULL, job->device.ops->name),
    figure_number("threads", NULL, job->device.threads, 1),
    figure_text("blas", NULL, job->device.blas->detail()),
    figure_number("product_s", "  %10.3f ms", s, 1e3),
    figure_number("gflop_per_s", "  %8.1f", 1e-9 * bench_product_flop(p) / s, 1),
  };
  bench_print_row("gemm", json, row, sizeof row / sizeof *row);
}

struct gemm_flags {
  const char *shapes;
  int64_t repeat;
  bool json;
};
#define AT(field) offsetof(struct gemm_flags, field)
static const struct trm_option flags[] = {{"shapes", TRM_OPTION_TEXT, AT(shapes), NULL, NO_RANGE},
                                          {"repeat", TRM_OPTION_INT, AT(repeat), "15", RANGE(1, 100000)},
                                          {"json", TRM_OPTION_BOOL, AT(json), NULL, NO_RANGE},
                                          END_OF_FLAGS};

static int gemm_run_products(struct trm_job *job, struct bench_product *product, int count,
                             const struct gemm_flags *f)
{
  const size_t rounds = (size_t)f->repeat;
  for (int i = 0; i < count; i++) {
    product[i].type = job->options.train.activations;
    TRM_CHECK(bench_product_open(&product[i], &job->device, rounds));
  }
  for (size_t r = 0; r < rounds; r++)
    for (int i = 0; i < count; i++) {
      bench_product_time(&product[i], job); /* fills the caches with its factors */
      product[i].seconds[r] = bench_product_time(&product[i], job);
    }
  TRM_CHECK(job->device.ops->sync(&job->device));
  if (!f->json)
    printf("%s, %d thread%s\n%-16s %6s   %5s   %5s      %10s     GFLOP/s\n", job->device.blas->detail(),
           job->device.threads, job->device.threads == 1 ? "" : "s", "product", "M", "N", "K", "time");
  for (int i = 0; i < count; i++)
    gemm_print_product(job, &product[i], rounds, f->json);
  return TRM_OK;
}

static int gemm_run(const struct call *call)
{
  const struct gemm_flags *f = call->values;
  struct bench_product product[MAX_PRODUCTS];
  memset(product, 0, sizeof product);
  int count = f->shapes ? 0 : gemm_default_shapes(product);
  int status = f->shapes ? gemm_parse_shapes(f->shapes, product, &count) : TRM_OK;
  if (status == TRM_OK)
    status = gemm_run_products(call->job, product, count, f);
  for (int i = 0; i < count; i++)
    bench_product_close(&product[i], &call->job->device);
  return status;
}

const struct command bench_gemm = {
  .name = "bench gemm", .help = "matrix products of a training step, and a large square one",
  .usage = usage, .flags = flags, .bytes = sizeof(struct gemm_flags),
  .job = SERIAL_JOB, .threads = true, .run = gemm_run,
};
