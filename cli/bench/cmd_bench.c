/* trireme bench */
#include "cli/bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"

static const struct {
  const char *name, *help;
  int (*run)(int argc, char **argv);
} benches[] = {
  {"gemm", "matrix products of a training step, and a large square one", bench_gemm},
  {"step", "whole steps and their parts, beside what the machine could do at best", bench_step},
  {"allreduce", "sums over the ranks: the MPI library's, the fixed tree, in shared memory", bench_allreduce},
  {"rma", "one-sided access to another rank's memory, while that rank waits and while it computes", bench_rma},
  {"service", "the parameter server of asynchronous training, beside plain one-sided operations", bench_param_server},
  {"hogwild", "stochastic updates over sparse rows by all ranks at once, beside a plain loop", bench_hogwild},
  {"io", "reading a data set, beside plain reading of the same file", bench_io},
};
enum { BENCHES = sizeof benches / sizeof *benches };

int cmd_bench(int argc, char **argv)
{
  const char *known[BENCHES + 1] = {NULL};
  for (int i = 0; i < BENCHES; i++)
    known[i] = benches[i].name;
  if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
    printf("usage: trireme bench NAME [--json] [FLAG...]\n\n");
    for (int i = 0; i < BENCHES; i++)
      printf("  %-10s %s\n", benches[i].name, benches[i].help);
    printf("\ntrireme bench NAME --help describes each. Figures are medians; --json prints JSON lines.\n");
    return TRM_OK;
  }
  if (argc < 2)
    return trm_error(TRM_USAGE, "bench: no bench named: gemm, step, allreduce, rma, service, hogwild or io "
                     "(trireme bench --help)");
  for (int i = 0; i < BENCHES; i++)
    if (!strcmp(argv[1], benches[i].name))
      return benches[i].run(argc - 1, argv + 1);
  const char *near = trm_nearest_word(argv[1], known);
  return near ? trm_error(TRM_USAGE, "bench: there is no bench \"%s\"; did you mean \"%s\"?", argv[1], near)
              : trm_error(TRM_USAGE, "bench: there is no bench \"%s\" (there are gemm, step, allreduce, rma, service, "
                          "hogwild, io)", argv[1]);
}

static int cmd_bench_compare_doubles(const void *a, const void *b)
{
  const double one = *(const double *)a, two = *(const double *)b;
  return (one > two) - (one < two);
}

double bench_median(double *values, size_t n)
{
  if (n == 0)
    return NAN;
  qsort(values, n, sizeof *values, cmd_bench_compare_doubles);
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void bench_slowest(struct trm_comm *comm, double *values, size_t n)
{
  if (comm->size > 1)
    comm->ops->allreduce(comm, values, n, TRM_DOUBLE, TRM_MAX);
}

void bench_fill(struct trm_device *device, float *to, size_t n, uint32_t stream)
{
  float *host = trm_alloc(n * sizeof *host, "bench: inputs");
  for (size_t i = 0; i < n; i += 4) {
    uint32_t bits[4];
    trm_random_block(1, TRM_RANDOM_BENCH, stream, i / 4, bits);
    for (size_t k = 0; k < 4 && i + k < n; k++)
      host[i + k] = (float)(bits[k] >> 8) * 0x1p-23f - 1;
  }
  device->ops->upload(device, to, host, n * sizeof *host);
  device->ops->sync(device); /* failures are reported again by the next sync */
  trm_free(host);
}

void bench_line_open(struct trm_json *line, const char *bench)
{
  trm_json_open(line, stdout);
  trm_json_object(line, NULL);
  trm_json_text(line, "bench", bench);
  trm_json_text(line, "version", PACKAGE_VERSION);
}

void bench_line_close(struct trm_json *line)
{
  trm_json_end(line);
  fflush(stdout);
}
