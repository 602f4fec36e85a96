/* Upper bounds of the machine's speed, measured beside the steps of bench step (private to cli). */
#pragma once

#include "cli/bench/bench.h"
#include "cli/bench/bench_run.h"

struct roofline {
  /* set by the caller */
  struct bench_run *run;
  size_t rounds;
  /* set by roofline_open */
  struct bench_product product[TIMED_MAX_PRODUCTS], large; /* of a step; the one for the peak rate */
  size_t calls[TIMED_MAX_PRODUCTS];                        /* of each in a step */
  int products;
  float *array[3];       /* host, for the rate of memory */
  size_t slice, uncached;  /* elements that this rank updates; elements that exceed the caches */
  double *slice_s, *uncached_s; /* (rounds) of one pass over as many elements */
};

/* Reads the products from the counts of run, which has made `steps` steps since they were zeroed. roofline_close
 * follows even if it fails. */
int roofline_open(struct roofline *roofline, size_t steps);
void roofline_close(struct roofline *roofline);

/* Collective. Measures everything once, as round `round`. */
void roofline_round(struct roofline *roofline, size_t round);

/* Collective. Medians over the rounds, of the slowest rank. */
struct roofline_rates {
  double flop_per_s;     /* of the large product */
  double bytes_per_s;    /* of memory */
  double products_s;     /* all products of a step, each alone with its factors in the caches */
  double optimizer_s;    /* the optimizer's bytes at the rate of memory, or of the caches for few weights */
};
struct roofline_rates roofline_reduce(struct roofline *roofline);
