/* trireme bench */
#include "cli/bench/bench.h"


#include "core/bfloat16.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"
#include "plan/planner.h"

const struct command cmd_bench = {
  .name = "trireme bench", .help = "measure the speed of this machine",
  .usage = "usage: trireme bench NAME [--json] [FLAG...]\n\n"
           "trireme bench NAME --help describes each. Figures are medians; --json prints JSON lines.\n\n",
  .group = (const struct command *const[]){&bench_gemm, &bench_step, &bench_allreduce, &bench_rma, &bench_param_server,
                                           &bench_hogwild, &bench_io, NULL},
  .member = "bench",
};

double bench_median(double *values, size_t n)
{
  return trm_quantile(values, n, 0.5);
}

void bench_slowest(struct trm_comm *comm, double *values, size_t n)
{
  if (comm->size > 1)
    comm->ops->allreduce(comm, values, n, TRM_DOUBLE, TRM_MAX);
}

void bench_fill(struct trm_device *device, void *to, enum trm_value_type type, size_t n, uint32_t stream)
{
  float *host = trm_alloc(n * sizeof *host, "bench: inputs");
  for (size_t i = 0; i < n; i += 4) {
    uint32_t bits[4];
    trm_random_block(1, TRM_RANDOM_BENCH, stream, i / 4, bits);
    for (size_t k = 0; k < 4 && i + k < n; k++)
      host[i + k] = (float)(bits[k] >> 8) * 0x1p-23f - 1;
  }
  trm_bf16 *rounded = trm_alloc(n * sizeof *rounded, "bench: inputs");
  trm_bf16_narrow(rounded, host, n);
  device->ops->upload(device, to, type == TRM_VALUES_BF16 ? (const void *)rounded : host, n * trm_value_bytes(type));
  device->ops->sync(device); /* failures are reported again by the next sync */
  trm_free(rounded);
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
}

void bench_print_row(const char *bench, bool json, const struct figure *figure, size_t n)
{
  struct trm_json line;
  if (json)
    bench_line_open(&line, bench);
  figures_print(json ? &line : NULL, figure, n);
  if (json)
    bench_line_close(&line);
  else
    puts("");
  fflush(stdout);
}
