/* What this machine could do at best, measured beside the steps (private to cli). */
#ifndef TRM_CLI_BENCH_LIMITS_H
#define TRM_CLI_BENCH_LIMITS_H

#include "cli/bench/bench.h"
#include "cli/bench/bench_work.h"

struct limits {
  /* set by the caller */
  struct work *work;
  size_t rounds;
  /* the rest is set by limits_open */
  struct bench_product product[TIMED_PRODUCTS_MOST], large; /* those of a step, and the one that sets the peak */
  size_t calls[TIMED_PRODUCTS_MOST];                        /* of each in a step */
  int products;
  float *array[3];       /* host: of the memory measures */
  size_t slice, plenty;  /* elements that this rank updates, elements that fit no cache */
  double *slice_s, *plenty_s; /* (rounds) seconds of one pass over that much of the arrays */
};

/* The work has done `steps` steps since its counts were zeroed: they tell the products. limits_close also after an
 * error. */
int limits_open(struct limits *limits, size_t steps);
void limits_close(struct limits *limits);

/* Collective. Measures everything once. */
void limits_round(struct limits *limits, size_t round);

/* Medians over the rounds, of the slowest rank. Collective. */
struct limits_found {
  double flop_per_s;     /* of the large product */
  double bytes_per_s;    /* of memory */
  double products_s;     /* all products of a step, each as it is by itself with its factors in the caches */
  double optimizer_s;    /* the bytes of the optimizer at the rate of memory (or of the caches, for few weights) */
};
struct limits_found limits_find(struct limits *limits);

#endif
