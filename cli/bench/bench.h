/* The benches of `trireme bench`, and what they share (private to cli). They measure through the contracts that
 * training uses. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/command.h"
#include "cli/figures.h"

extern const struct command bench_gemm, bench_step, bench_allreduce, bench_rma, bench_param_server, bench_hogwild,
  bench_io;

/* The median of n values, which are sorted; NAN if n is 0. */
double bench_median(double *values, size_t n);

/* Collective over comm. values[i] (n) = the maximum over the ranks. */
void bench_slowest(struct trm_comm *comm, double *values, size_t n);

/* Fills a device array (n) with uniform numbers in [-1, 1). */
void bench_fill(struct trm_device *device, void *to, enum trm_value_type type, size_t n, uint32_t stream);

/* Open and close one JSON object on a line of stdout; its first field is the bench's name. */
void bench_line_open(struct trm_json *line, const char *bench);
void bench_line_close(struct trm_json *line);

/* Prints the figures (n) as a row of a table, or as such an object. */
void bench_print_row(const char *bench, bool json, const struct figure *figure, size_t n);

/* -- matrix products, with arrays of their own: C (m, n) = op(A) (m, k) op(B) (k, n) */
struct bench_product {
  char label[40];
  bool transpose_a, transpose_b;
  size_t m, n, k;
  enum trm_value_type type; /* of all three matrices; sums are float32 */
  void *a, *b, *c;          /* device */
  double *seconds;  /* (rounds) */
};

int bench_product_open(struct bench_product *product, struct trm_device *device, size_t rounds);
void bench_product_close(struct bench_product *product, struct trm_device *device);
double bench_product_time(const struct bench_product *product, struct trm_job *job); /* seconds of one, run once */
double bench_product_flop(const struct bench_product *product);
