/* trireme bench step */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/bench/bench_roofline.h"
#include "cli/bench/bench_run.h"
#include "core/memory.h"
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
  "  --bound=no     only the steps\n"
  "  --json         one JSON object\n"
  "\n"
  "The options of a run are accepted, too (trireme options); optim.lr is 0.01 if not given, and\n"
  "optim.momentum 0.9 if optim.name is not.\n";

struct bench {
  struct bench_run run;
  struct roofline roof;
  size_t steps, warmup;
  bool bound, json;
  double *step, *compute, *update;   /* (steps) seconds */
  double *part[TIMED_PARTS];         /* (steps) seconds */
  struct timed_sum sum[TIMED_PARTS]; /* over all steps; after bench_step_reduce_figures of one */
  double wait_s, comm_s;             /* over all steps: waiting for other ranks; communication */
};

static int bench_step_time_step(struct bench *b, size_t k)
{
  struct bench_run *run = &b->run;
  struct trm_comm *comm = run->comm;
  double computed = 0;
  const double waited = run->strategy.wait_s, sent = run->strategy.comm_s;
  comm->ops->barrier(comm);
  memset(run->timed.sum, 0, sizeof run->timed.sum);
  const double begin = comm->ops->clock(comm);
  TRM_CHECK(bench_run_step(run, &computed));
  const double end = comm->ops->clock(comm);
  b->wait_s += run->strategy.wait_s - waited;
  b->comm_s += run->strategy.comm_s - sent;
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
  struct roofline_rates rates; /* NAN, like the bound, with --bound=no */
  double bound_s;
};

static double bench_step_median_slowest(struct bench *b, double *seconds)
{
  bench_slowest(b->run.comm, seconds, b->steps);
  return bench_median(seconds, b->steps);
}

/* Reduces the sums to one step: seconds of the slowest rank, the mean of the work, of which leading ranks do more. */
static void bench_step_reduce_part(struct bench *b, int part)
{
  struct trm_comm *comm = b->run.comm;
  struct timed_sum *sum = &b->sum[part];
  double amounts[] = {sum->flop, sum->bytes};
  comm->ops->allreduce(comm, amounts, 2, TRM_DOUBLE, TRM_SUM);
  const double steps = (double)b->steps * comm->size;
  *sum = (struct timed_sum){bench_step_median_slowest(b, b->part[part]), amounts[0] / steps, amounts[1] / steps};
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
  struct figures f = {.rates = {NAN, NAN, NAN, NAN}, .bound_s = NAN, .wait_s = means[0], .comm_s = means[1]};
  f.step_s = bench_step_median_slowest(b, b->step);
  f.compute_s = bench_step_median_slowest(b, b->compute);
  f.update_s = bench_step_median_slowest(b, b->update);
  for (int i = 0; i < TIMED_PARTS; i++)
    bench_step_reduce_part(b, i);
  f.items_per_s = (double)b->run.batch * (double)bench_run_items(&b->run) * b->run.comm->size / f.step_s;
  if (!b->bound)
    return f;
  f.rates = roofline_reduce(&b->roof);
  f.bound_s = f.rates.products_s + f.rates.optimizer_s + b->sum[TIMED_CONVOLUTION].flop / f.rates.flop_per_s +
              b->sum[TIMED_ATTENTION].flop / f.rates.flop_per_s;
  return f;
}

static void bench_step_print_parts(const struct bench *b, const struct figures *f)
{
  double rest = f->step_s;
  printf("  %-16s %10s %7s %9s %8s", "part", "ms", "of step", "GFLOP/s", "GB/s");
  printf(b->bound ? " %10s %8s\n" : "\n", "least ms", "reached");
  for (int i = 0; i < TIMED_PARTS; i++) {
    const struct timed_sum *sum = &b->sum[i];
    if (sum->s == 0)
      continue;
    rest -= sum->s;
    printf("  %-16s %10.3f %6.1f%% %9.1f %8.1f", timed_part_name[i], 1e3 * sum->s, 100 * sum->s / f->step_s,
           1e-9 * sum->flop / sum->s, 1e-9 * sum->bytes / sum->s);
    if (b->bound)
      printf(" %10.3f %7.0f%%", 1e3 * bench_step_min(sum, &f->rates), 100 * bench_step_min(sum, &f->rates) / sum->s);
    printf("\n");
  }
  printf("  %-16s %10.3f %6.1f%%   messages, waiting, the program itself\n", "the rest", 1e3 * rest,
         100 * rest / f->step_s);
}

static void bench_step_print_bound(struct bench *b, const struct figures *f)
{
  const struct roofline_rates *rates = &f->rates;
  printf("  the machine: %.1f GFLOP/s in a large product, %.1f GB/s of memory, a rank\n", 1e-9 * rates->flop_per_s,
         1e-9 * rates->bytes_per_s);
  printf("  bound       %10.3f ms   %.1f %% of the step\n", 1e3 * f->bound_s, 100 * f->bound_s / f->step_s);
  printf("    products  %10.3f ms   by themselves:\n", 1e3 * rates->products_s);
  for (int i = 0; i < b->roof.products; i++) {
    const struct bench_product *p = &b->roof.product[i];
    const double s = bench_median(p->seconds, b->steps);
    printf("      %3zu times %5zu x %5zu x %5zu %c%c %10.3f ms  %8.1f GFLOP/s\n", b->roof.calls[i], p->m, p->n, p->k,
           p->transpose_a ? 't' : 'n', p->transpose_b ? 't' : 'n', 1e3 * s, 1e-9 * bench_product_flop(p) / s);
  }
  printf("    optimizer %10.3f ms   its bytes\n", 1e3 * rates->optimizer_s);
}

static void bench_step_print_table(struct bench *b, const struct figures *f)
{
  const struct bench_run *run = &b->run;
  printf("%s, %zu parameters\n%d rank%s x %d thread%s, %lld samples a rank, strategy %s, %s\n",
         strlen(run->model.text) > 400 ? run->text : run->model.text, trm_model_size(&run->model), run->comm->size,
         run->comm->size == 1 ? "" : "s", run->device.threads, run->device.threads == 1 ? "" : "s",
         (long long)run->batch, run->strategy.ops->name, run->device.blas->detail());
  printf("  step        %10.3f ms   %.0f %s/s over all ranks\n", 1e3 * f->step_s, f->items_per_s,
         run->spec.tokens ? "tokens" : "samples");
  printf("    model     %10.3f ms   forward, loss, backward\n", 1e3 * f->compute_s);
  printf("    strategy  %10.3f ms   sum over the ranks, update; means: %.3f ms waiting, %.3f ms in messages\n",
         1e3 * f->update_s, 1e3 * f->wait_s, 1e3 * f->comm_s);
  bench_step_print_parts(b, f);
  if (b->bound)
    bench_step_print_bound(b, f);
}

static void bench_step_print_json(struct bench *b, const struct figures *f)
{
  const struct bench_run *run = &b->run;
  struct trm_json line;
  bench_line_open(&line, "step");
  trm_json_text(&line, "model", run->text);
  trm_json_text(&line, "strategy", run->strategy.ops->name);
  trm_json_integer(&line, "ranks", run->comm->size);
  trm_json_integer(&line, "threads", run->device.threads);
  trm_json_integer(&line, "batch", run->batch);
  trm_json_integer(&line, "params", (int64_t)trm_model_size(&run->model));
  trm_json_text(&line, "blas", run->device.blas->detail());
  trm_json_number(&line, "step_s", f->step_s);
  trm_json_number(&line, "items_per_s", f->items_per_s);
  trm_json_number(&line, "model_s", f->compute_s);
  trm_json_number(&line, "strategy_s", f->update_s);
  trm_json_number(&line, "wait_s", f->wait_s);
  trm_json_number(&line, "comm_s", f->comm_s);
  trm_json_integer(&line, "max_resident_bytes", (int64_t)trm_memory_peak());
  if (b->bound) {
    trm_json_number(&line, "bound_s", f->bound_s);
    trm_json_number(&line, "products_s", f->rates.products_s);
    trm_json_number(&line, "optimizer_s", f->rates.optimizer_s);
    trm_json_number(&line, "memory_gb_per_s", 1e-9 * f->rates.bytes_per_s);
    trm_json_number(&line, "product_gflop_per_s", 1e-9 * f->rates.flop_per_s);
    trm_json_number(&line, "share_of_bound", f->bound_s / f->step_s);
  }
  trm_json_object(&line, "parts");
  for (int i = 0; i < TIMED_PARTS; i++) {
    const struct timed_sum *sum = &b->sum[i];
    if (sum->s == 0)
      continue;
    trm_json_object(&line, timed_part_name[i]);
    trm_json_number(&line, "part_s", sum->s);
    trm_json_number(&line, "part_gflop", 1e-9 * sum->flop);
    trm_json_number(&line, "part_gb", 1e-9 * sum->bytes);
    if (b->bound)
      trm_json_number(&line, "least_s", bench_step_min(sum, &f->rates));
    trm_json_end(&line);
  }
  trm_json_end(&line);
  bench_line_close(&line);
}

static int bench_step_measure(struct bench *b)
{
  const size_t arrays = 3 + TIMED_PARTS;
  double computed;
  TRM_CHECK(bench_run_open(&b->run));
  b->step = trm_alloc(arrays * b->steps * sizeof *b->step, "bench: times");
  b->compute = b->step + b->steps;
  b->update = b->compute + b->steps;
  for (int i = 0; i < TIMED_PARTS; i++)
    b->part[i] = b->update + (size_t)(1 + i) * b->steps;
  for (size_t k = 0; k < b->warmup; k++)
    TRM_CHECK(bench_run_step(&b->run, &computed));
  if (b->bound) {
    b->roof.run = &b->run;
    b->roof.rounds = b->steps;
    TRM_CHECK(trm_agree(b->run.comm, roofline_open(&b->roof, b->warmup)));
    roofline_round(&b->roof, 0);
  }
  for (size_t k = 0; k < b->steps; k++) {
    TRM_CHECK(bench_step_time_step(b, k));
    if (b->bound)
      roofline_round(&b->roof, k);
  }
  const struct figures f = bench_step_reduce_figures(b);
  if (b->run.comm->rank == 0) {
    if (b->json)
      bench_step_print_json(b, &f);
    else
      bench_step_print_table(b, &f);
  }
  return TRM_OK;
}

/* Sets the optimizer of the peer programs; flags, which are read later, override it. */
static char **bench_step_add_defaults(int argc, char **argv, int *count)
{
  static char rate[] = "--optim.lr=0.01", momentum[] = "--optim.momentum=0.9";
  char **all = trm_alloc(((size_t)argc + 3) * sizeof *all, "bench: arguments");
  bool named = false;
  *count = 0;
  for (int i = 1; i < argc; i++)
    named |= strncmp(argv[i], "--optim.name=", 13) == 0;
  all[(*count)++] = argv[0];
  all[(*count)++] = rate;
  if (!named)
    all[(*count)++] = momentum;
  for (int i = 1; i < argc; i++)
    all[(*count)++] = argv[i];
  return all;
}

int bench_step(int argc, char **argv)
{
  struct trm_job job;
  struct bench b = {.run = {.job = &job, .text = "mlp 784-2048-2048-10 relu", .batch = 256}, .bound = true};
  int64_t steps = 30, warmup = 5;
  bool help_shown;
  const struct flag table[] = {{"model", FLAG_TEXT, &b.run.text, 0, 0},
                               {"input", FLAG_TEXT, &b.run.input, 0, 0},
                               {"classes", FLAG_INTEGER, &b.run.classes, 1, 1 << 24},
                               {"batch", FLAG_INTEGER, &b.run.batch, 1, 1 << 24},
                               {"steps", FLAG_INTEGER, &steps, 1, 1 << 20},
                               {"warmup", FLAG_INTEGER, &warmup, 1, 1 << 20},
                               {"threads", FLAG_INTEGER, &job.options.parallel.threads, 1, 65536},
                               {"bound", FLAG_BOOL, &b.bound, 0, 0},
                               {"json", FLAG_BOOL, &b.json, 0, 0},
                               {NULL, FLAG_BOOL, NULL, 0, 0}};
  const struct job_request request = {.command = "bench step", .usage = usage, .flags = table};
  int nargs, count;
  char **all = bench_step_add_defaults(argc, argv, &count);
  int status = job_open(&job, &request, count, all, &nargs, &help_shown);
  if (status == TRM_OK && !help_shown) {
    b.steps = (size_t)steps;
    b.warmup = (size_t)warmup;
    status = bench_step_measure(&b);
    if (b.roof.run)
      roofline_close(&b.roof);
    bench_run_close(&b.run);
    trm_free(b.step);
  }
  trm_job_close(&job);
  trm_free(all);
  return status;
}
