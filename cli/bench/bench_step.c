/* trireme bench step */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/bench/bench_run.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"

static const char usage[] =
  "usage: [mpiexec -n N] trireme bench step [--model=TEXT] [--batch=B] [--steps=S] [FLAG...] [--SECTION.KEY=VALUE...]\n"
  "\n"
  "Seconds of a whole training step (forward, loss, backward, strategy, update) on random samples that are\n"
  "in memory; of each of its parts, beside the least that the machine needs for its arithmetic (at the rate of\n"
  "a large matrix product) or for its bytes (at the rate of memory; arrays that stay in the caches may do better);\n"
  "and the bound: what the step's matrix products take by themselves, convolutions and attention at the rate of a\n"
  "large product, and the bytes that the optimizer moves. All are measured in turns; medians. Several ranks: B\n"
  "samples each; the slowest rank counts.\n"
  "\n"
  "  --model=TEXT   the model (default \"mlp 784-2048-2048-10 relu\")\n"
  "  --input=SHAPE  of a sample: F values or tokens, or CxHxW (default: the model's usual shape, else 784)\n"
  "  --classes=C    classes, or tokens of the vocabulary (default: the last size of an mlp, 1000 for resnet18 and\n"
  "                 vgg11, 65 for gpt, 50257 for gpt2, else 10)\n"
  "  --batch=B      samples of a rank (default 256)\n"
  "  --steps=S      measured steps (default 30)\n"
  "  --warmup=W     steps before these (default 5)\n"
  "  --threads=T    threads of a rank (default: the node's cores divided by its ranks)\n"
  "  --bound=no     only the steps; on a GPU, where calls return before they are done, there is nothing else\n"
  "  --peak=N       the large product is of N x N matrices (default 2048)\n"
  "  --json         one JSON object\n"
  "\n"
  "The options of a run are accepted, too (trireme options); optim.lr is 0.01 if not given, and optim.name\n"
  "momentum.\n";

/* -- rates of arithmetic and memory, measured alternately with the steps, so that disturbances affect both */

struct roofline {
  /* set by the caller */
  struct bench_run *run;
  size_t rounds, peak; /* peak: rows and columns of the large product */
  /* set by roofline_open */
  struct bench_product product[TIMED_MAX_PRODUCTS], large; /* of a step; the one for the peak rate */
  size_t calls[TIMED_MAX_PRODUCTS];                        /* of each in a step */
  int products;
  float *array[3];       /* host, for the rate of memory */
  size_t slice, uncached;  /* elements that this rank updates; elements that exceed the caches */
  double *slice_s, *uncached_s; /* (rounds) of one pass over as many elements */
};

struct roofline_rates {
  double flop_per_s;     /* of the large product */
  double bytes_per_s;    /* of memory */
  double products_s;     /* all products of a step, each alone with its factors in the caches */
  double optimizer_s;    /* the optimizer's bytes at the rate of memory, or of the caches for few weights */
};

/* Reads the products from the counts of run, which has made `steps` steps since they were zeroed. To be closed, even if
 * it fails. */
static int bench_step_open_roofline(struct roofline *l, size_t steps)
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
  l->large = (struct bench_product){.m = l->peak, .n = l->peak, .k = l->peak};
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

static void bench_step_close_roofline(struct roofline *l)
{
  struct trm_device *device = &l->run->job->device;
  for (int i = 0; i < l->products; i++)
    bench_product_close(&l->product[i], device);
  bench_product_close(&l->large, device);
  for (int i = 0; i < 3; i++)
    trm_free(l->array[i]);
  trm_free(l->slice_s);
}

static void bench_step_memory_body(const void *context, size_t low, size_t high)
{
  const struct roofline *l = context;
  float *restrict w = l->array[0], *restrict v = l->array[1];
  const float *restrict g = l->array[2];
#pragma omp simd
  for (size_t i = low; i < high; i++) {
    v[i] = 0.5f * v[i] + g[i];
    w[i] -= 0.5f * v[i];
  }
}

/* Reads three arrays and writes two of them, as momentum does: memory traffic of 5 floats per element. */
static double bench_step_time_memory(struct roofline *l, size_t n)
{
  struct trm_comm *comm = l->run->comm;
  comm->ops->barrier(comm);
  const double begin = comm->ops->clock(comm);
  trm_parallel_for(l->run->device.threads, n, bench_step_memory_body, l);
  return comm->ops->clock(comm) - begin;
}

static void bench_step_time_product(struct roofline *l, struct bench_product *p, size_t round)
{
  bench_product_time(p, l->run->job); /* fills the caches with its factors, as bench gemm does */
  p->seconds[round] = bench_product_time(p, l->run->job);
}

/* Collective. Measures everything once, as round `round`. */
static void bench_step_measure_roofline(struct roofline *l, size_t round)
{
  struct trm_comm *comm = l->run->comm;
  comm->ops->barrier(comm);
  for (int i = 0; i < l->products; i++)
    bench_step_time_product(l, &l->product[i], round);
  bench_step_time_product(l, &l->large, round);
  l->slice_s[round] = bench_step_time_memory(l, l->slice);
  l->uncached_s[round] = bench_step_time_memory(l, l->uncached);
}

/* Collective. The median of the slowest rank's seconds (n). */
static double bench_step_median(struct trm_comm *comm, double *seconds, size_t n)
{
  bench_slowest(comm, seconds, n);
  return bench_median(seconds, n);
}

/* Collective. Medians over the rounds, of the slowest rank. */
static struct roofline_rates bench_step_reduce_roofline(struct roofline *l)
{
  struct roofline_rates f = {.products_s = 0};
  for (int i = 0; i < l->products; i++)
    f.products_s += (double)l->calls[i] * bench_step_median(l->run->comm, l->product[i].seconds, l->rounds);
  f.flop_per_s = bench_product_flop(&l->large) / bench_step_median(l->run->comm, l->large.seconds, l->rounds);
  f.bytes_per_s = 5 * sizeof(float) * (double)l->uncached / bench_step_median(l->run->comm, l->uncached_s, l->rounds);
  /* weights and states read and written, a gradient of each rank read */
  const double floats = 2.0 + 2.0 * l->run->optimizer.states + l->run->comm->size;
  f.optimizer_s = floats / 5 * bench_step_median(l->run->comm, l->slice_s, l->rounds);
  return f;
}

/* -- steps */

struct bench {
  struct bench_run run;
  struct roofline roof;
  int64_t steps, warmup, peak;
  bool bound, json;
  double *step, *compute, *update;   /* (steps) seconds */
  double *part[TIMED_PARTS];         /* (steps) seconds */
  struct timed_sum sum[TIMED_PARTS]; /* over all steps; after bench_step_reduce_figures of one */
  double wait_s, comm_s;             /* over all steps: waiting for other ranks; communication */
  struct trm_wire wire;              /* over all steps: between nodes */
};
#define AT(field) offsetof(struct bench, field)
static const struct trm_option flags[] = {
  {"model", TRM_OPTION_TEXT, AT(run.text), "mlp 784-2048-2048-10 relu", NO_RANGE},
  {"input", TRM_OPTION_TEXT, AT(run.input), NULL, NO_RANGE},
  {"classes", TRM_OPTION_INT, AT(run.classes), NULL, RANGE(1, 1 << 24)},
  {"batch", TRM_OPTION_INT, AT(run.batch), "256", RANGE(1, 1 << 24)},
  {"steps", TRM_OPTION_INT, AT(steps), "30", RANGE(1, 1 << 20)},
  {"warmup", TRM_OPTION_INT, AT(warmup), "5", RANGE(1, 1 << 20)},
  {"bound", TRM_OPTION_BOOL, AT(bound), "yes", NO_RANGE},
  {"peak", TRM_OPTION_INT, AT(peak), "2048", RANGE(1, 1 << 16)},
  {"json", TRM_OPTION_BOOL, AT(json), NULL, NO_RANGE},
  END_OF_FLAGS};

static int bench_step_time_step(struct bench *b, size_t k)
{
  struct bench_run *run = &b->run;
  struct trm_comm *comm = run->comm;
  double computed = 0;
  const double waited = run->strategy.wait_s, sent = run->strategy.comm_s;
  run->strategy.wire = b->wire;
  comm->ops->barrier(comm);
  memset(run->timed.sum, 0, sizeof run->timed.sum);
  const double begin = comm->ops->clock(comm);
  TRM_CHECK(bench_run_step(run, &computed));
  const double end = comm->ops->clock(comm);
  b->wait_s += run->strategy.wait_s - waited;
  b->comm_s += run->strategy.comm_s - sent;
  b->wire = run->strategy.wire;
  b->step[k] = end - begin;
  b->compute[k] = computed - begin;
  b->update[k] = end - computed;
  for (int i = 0; i < TIMED_PARTS; i++) {
    b->part[i][k] = run->timed.sum[i].s;
    b->sum[i].flop += run->timed.sum[i].flop;
    b->sum[i].bytes += run->timed.sum[i].bytes;
  }
  return TRM_OK;
}

/* -- results */

struct figures {
  double step_s, compute_s, update_s, items_per_s;
  double wait_s, comm_s;       /* means of a step, of the slowest rank */
  struct trm_wire_means wire;
  struct roofline_rates rates; /* NAN, like the bound, with --bound=no */
  double bound_s;
};

/* Reduces the sums to one step: seconds of the slowest rank, the mean of the work, of which leading ranks do more. */
static void bench_step_reduce_part(struct bench *b, int part)
{
  struct trm_comm *comm = b->run.comm;
  struct timed_sum *sum = &b->sum[part];
  double amounts[] = {sum->flop, sum->bytes};
  comm->ops->allreduce(comm, amounts, 2, TRM_DOUBLE, TRM_SUM);
  const double steps = (double)b->steps * comm->size;
  *sum = (struct timed_sum){bench_step_median(comm, b->part[part], (size_t)b->steps), amounts[0] / steps,
                            amounts[1] / steps};
}

/* Returns a lower bound of a part's seconds. */
static double bench_step_min(const struct timed_sum *sum, const struct roofline_rates *rates)
{
  return fmax(sum->flop / rates->flop_per_s, sum->bytes / rates->bytes_per_s);
}

/* Collective. */
static struct figures bench_step_reduce_figures(struct bench *b)
{
  double means[] = {b->wait_s / (double)b->steps, b->comm_s / (double)b->steps};
  bench_slowest(b->run.comm, means, 2);
  struct figures f = {.rates = {NAN, NAN, NAN, NAN}, .bound_s = NAN, .wait_s = means[0], .comm_s = means[1],
                      .wire = trm_wire_means(&b->wire, b->run.comm)};
  f.step_s = bench_step_median(b->run.comm, b->step, (size_t)b->steps);
  f.compute_s = bench_step_median(b->run.comm, b->compute, (size_t)b->steps);
  f.update_s = bench_step_median(b->run.comm, b->update, (size_t)b->steps);
  for (int i = 0; i < TIMED_PARTS; i++)
    bench_step_reduce_part(b, i);
  const double items = b->run.spec.tokens ? (double)trm_shape_count(&b->run.spec.shape) : 1; /* of a sample */
  f.items_per_s = (double)b->run.batch * items * b->run.comm->size / f.step_s;
  if (!b->bound)
    return f;
  f.rates = bench_step_reduce_roofline(&b->roof);
  f.bound_s = f.rates.products_s + f.rates.optimizer_s + b->sum[TIMED_CONVOLUTION].flop / f.rates.flop_per_s +
              b->sum[TIMED_ATTENTION].flop / f.rates.flop_per_s;
  return f;
}

static void bench_step_print_job(const struct bench *b)
{
  const struct bench_run *run = &b->run;
  printf("%s, %zu parameters\n%d rank%s x %d thread%s, %lld samples a rank, strategy %s, %s\n",
         strlen(run->model.text) > 400 ? run->text : run->model.text, trm_model_size(&run->model), run->comm->size,
         run->comm->size == 1 ? "" : "s", run->device.threads, run->device.threads == 1 ? "" : "s",
         (long long)run->batch, run->strategy.ops->name, run->device.blas->detail());
}

static void bench_step_print_whole(const struct bench *b, const struct figures *f, struct trm_json *json)
{
  const struct bench_run *run = &b->run;
  const struct figure row[] = {
    figure_text("model", NULL, run->text),
    figure_text("strategy", NULL, run->strategy.ops->name),
    figure_text("device", NULL, run->job->device.ops->name),
    figure_text("values", NULL, trm_choice_text("train.activations", run->model.values)),
    figure_text("blas", NULL, run->device.blas->detail()),
    figure_number("ranks", NULL, run->comm->size, 1),
    figure_number("threads", NULL, run->device.threads, 1),
    figure_number("batch", NULL, (double)run->batch, 1),
    figure_number("params", NULL, (double)trm_model_size(&run->model), 1),
    figure_number("max_resident_bytes", NULL, (double)trm_memory_peak(), 1),
    figure_number("step_s", "  step        %10.3f ms", f->step_s, 1e3),
    figure_number("items_per_s", "   %.0f", f->items_per_s, 1),
    figure_text(NULL, " %s/s over all ranks\n", run->spec.tokens ? "tokens" : "samples"),
  };
  const struct figure parts[] = {
    figure_number("model_s", "    model     %10.3f ms   forward, loss, backward\n", f->compute_s, 1e3),
    figure_number("strategy_s", "    strategy  %10.3f ms   sum over the ranks, update", f->update_s, 1e3),
    figure_number("wait_s", "; means: %.3f ms waiting", f->wait_s, 1e3),
    figure_number("comm_s", ", %.3f ms in messages\n", f->comm_s, 1e3),
  };
  figures_print(json, row, sizeof row / sizeof *row);
  if (run->job->device.host_memory)
    figures_print(json, parts, sizeof parts / sizeof *parts);
  const struct figure wire[] = {
    figure_number("wire_bytes", "    between nodes: %.3f MB from each rank", f->wire.bytes, 1e-6),
    figure_number("wire_s", ", wire %.3f ms", f->wire.wire_s, 1e3),
    figure_number("hidden_s", ": %.3f ms hidden", f->wire.hidden_s, 1e3),
    figure_number("exposed_s", ", %.3f ms exposed\n", f->wire.exposed_s, 1e3),
  };
  if (f->wire.bytes > 0)
    figures_print(json, wire, sizeof wire / sizeof *wire);
}

static void bench_step_print_bound(struct bench *b, const struct figures *f, struct trm_json *json)
{
  const struct roofline_rates *rates = &f->rates;
  const struct figure row[] = {
    figure_number("product_gflop_per_s", "  the machine: %.1f GFLOP/s in a large product", 1e-9 * rates->flop_per_s, 1),
    figure_number("memory_gb_per_s", ", %.1f GB/s of memory, a rank\n", 1e-9 * rates->bytes_per_s, 1),
    figure_number("bound_s", "  bound       %10.3f ms", f->bound_s, 1e3),
    figure_number("share_of_bound", "   %.1f %% of the step\n", f->bound_s / f->step_s, 100),
    figure_number("optimizer_s", "    optimizer %10.3f ms   its bytes\n", rates->optimizer_s, 1e3),
    figure_number("products_s", "    products  %10.3f ms   by themselves:\n", rates->products_s, 1e3),
  };
  figures_print(json, row, sizeof row / sizeof *row);
  for (int i = 0; !json && i < b->roof.products; i++) {
    const struct bench_product *p = &b->roof.product[i];
    const double s = bench_median(p->seconds, (size_t)b->steps);
    printf("      %3zu times %5zu x %5zu x %5zu %c%c %10.3f ms  %8.1f GFLOP/s\n", b->roof.calls[i], p->m, p->n, p->k,
           p->transpose_a ? 't' : 'n', p->transpose_b ? 't' : 'n', 1e3 * s, 1e-9 * bench_product_flop(p) / s);
  }
}

/* Prints a line for each part, or adds an object. */
static void bench_step_print_parts(const struct bench *b, const struct figures *f, struct trm_json *json)
{
  double rest = f->step_s;
  if (json)
    trm_json_object(json, "parts");
  else
    printf("  part                     ms of step   GFLOP/s     GB/s%s\n", b->bound ? "   least ms  reached" : "");
  for (int i = 0; i < TIMED_PARTS; i++) {
    const struct timed_sum *sum = &b->sum[i];
    const double minimum = b->bound ? bench_step_min(sum, &f->rates) : NAN;
    const struct figure row[] = {
      figure_text(NULL, "  %-16s", timed_part_name[i]),
      figure_number("part_s", " %10.3f", sum->s, 1e3),
      figure_number(NULL, " %6.1f%%", sum->s / f->step_s, 100),
      figure_number("part_gflop", NULL, 1e-9 * sum->flop, 1),
      figure_number("part_gb", NULL, 1e-9 * sum->bytes, 1),
      figure_number(NULL, " %9.1f", 1e-9 * sum->flop / sum->s, 1),
      figure_number(NULL, " %8.1f", 1e-9 * sum->bytes / sum->s, 1),
      figure_number(b->bound ? "least_s" : NULL, b->bound ? " %10.3f" : NULL, minimum, 1e3),
      figure_number(NULL, b->bound ? " %7.0f%%\n" : "\n", minimum / sum->s, 100),
    };
    if (sum->s == 0)
      continue;
    rest -= sum->s;
    if (json)
      trm_json_object(json, timed_part_name[i]);
    figures_print(json, row, sizeof row / sizeof *row);
    if (json)
      trm_json_end(json);
  }
  if (json)
    trm_json_end(json);
  else
    printf("  %-16s %10.3f %6.1f%%   messages, waiting, the program itself\n", "the rest", 1e3 * rest,
           100 * rest / f->step_s);
}

static void bench_step_print(struct bench *b, const struct figures *f)
{
  struct trm_json line, *json = b->json ? &line : NULL;
  if (json)
    bench_line_open(json, "step");
  else
    bench_step_print_job(b);
  bench_step_print_whole(b, f, json);
  if (b->bound)
    bench_step_print_bound(b, f, json);
  if (b->run.job->device.host_memory) /* calls of others return before they are done */
    bench_step_print_parts(b, f, json);
  if (json)
    bench_line_close(json);
}

static int bench_step_measure(struct bench *b)
{
  const size_t steps = (size_t)b->steps, arrays = 3 + TIMED_PARTS;
  double computed;
  TRM_CHECK(bench_run_open(&b->run));
  b->bound = b->bound && b->run.job->device.host_memory;
  b->step = trm_alloc(arrays * steps * sizeof *b->step, "bench: times");
  b->compute = b->step + steps;
  b->update = b->compute + steps;
  for (int i = 0; i < TIMED_PARTS; i++)
    b->part[i] = b->update + (size_t)(1 + i) * steps;
  for (int64_t k = 0; k < b->warmup; k++)
    TRM_CHECK(bench_run_step(&b->run, &computed));
  if (b->bound) {
    b->roof.run = &b->run;
    b->roof.rounds = steps;
    b->roof.peak = (size_t)b->peak;
    TRM_CHECK(trm_agree(b->run.comm, bench_step_open_roofline(&b->roof, (size_t)b->warmup)));
    bench_step_measure_roofline(&b->roof, 0);
  }
  for (size_t k = 0; k < steps; k++) {
    if (b->bound) /* the arrays of the limits have taken the step's place in the caches */
      TRM_CHECK(bench_run_step(&b->run, &computed));
    TRM_CHECK(bench_step_time_step(b, k));
    if (b->bound)
      bench_step_measure_roofline(&b->roof, k);
  }
  const struct figures f = bench_step_reduce_figures(b);
  if (b->run.comm->rank == 0)
    bench_step_print(b, &f);
  return TRM_OK;
}

static int bench_step_run(const struct call *call)
{
  struct bench *b = call->values;
  b->run.job = call->job;
  const int status = bench_step_measure(b);
  if (b->roof.run)
    bench_step_close_roofline(&b->roof);
  bench_run_close(&b->run);
  trm_free(b->step);
  return status;
}

const struct command bench_step = {
  .name = "bench step", .help = "whole steps and their parts, beside what the machine could do at best",
  .usage = usage, .flags = flags, .bytes = sizeof(struct bench),
  .job = JOB_OF_RANKS, .threads = true,
  .presets = (const char *const[]){"optim.name", "momentum", "optim.lr", "0.01", NULL}, .run = bench_step_run,
};
