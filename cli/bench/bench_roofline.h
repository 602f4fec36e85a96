/* What this machine could do at best, measured beside the steps (private to cli). */
#ifndef TRM_CLI_BENCH_LIMITS_H
#define TRM_CLI_BENCH_LIMITS_H

#include "cli/bench/bench.h"
#include "cli/bench/bench_run.h"

struct roofline {
  /* set by the caller */
  struct bench_run *run;
  size_t rounds;
  /* the rest is set by roofline_open */
  struct bench_product product[TIMED_MAX_PRODUCTS], large; /* those of a step, and the one that sets the peak */
  size_t calls[TIMED_MAX_PRODUCTS];                        /* of each in a step */
  int products;
  float *array[3];       /* host: of the memory measures */
  size_t slice, uncached;  /* elements that this rank updates, elements that fit no cache */
  double *slice_s, *uncached_s; /* (rounds) seconds of one pass over that much of the arrays */
};

/* The work has done `steps` steps since its counts were zeroed: they tell the products. roofline_close also after an
 * error. */
int roofline_open(struct roofline *roofline, size_t steps);
void roofline_close(struct roofline *roofline);

/* Collective. Measures everything once. */
void roofline_round(struct roofline *roofline, size_t round);

/* Medians over the rounds, of the slowest rank. Collective. */
struct roofline_rates {
  double flop_per_s;     /* of the large product */
  double bytes_per_s;    /* of memory */
  double products_s;     /* all products of a step, each as it is by itself with its factors in the caches */
  double optimizer_s;    /* the bytes of the optimizer at the rate of memory (or of the caches, for few weights) */
};
struct roofline_rates roofline_reduce(struct roofline *roofline);

#endif
