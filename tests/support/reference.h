/* Reference results of PyTorch, recorded by tests/reference/make_reference.py: cases of named settings and arrays. */
#pragma once

#include <stdio.h>

#include "mpi/strategies.h"
#include "support/nn_case.h"

enum { MAX_ENTRIES = 256 };

/* One case of a file. */
struct reference {
  int settings, arrays;
  struct {
    char name[48], text[512];
  } setting[MAX_ENTRIES];
  struct {
    char name[48];
    size_t size[2], count; /* vectors: size[1] is 1; scalars: count is 1 */
    double *values;
  } array[MAX_ENTRIES];
};

FILE *reference_open(const char *name);                     /* a file of tests/reference */
bool reference_next(FILE *file, struct reference *r);       /* reads the next case; false at the end */
void reference_free(struct reference *r);

const char *reference_setting(const struct reference *r, const char *name);
int reference_array(const struct reference *r, const char *prefix, const char *name); /* index; must exist */

/* |got - array| <= tolerance * |array| */
void reference_check_array(const struct reference *r, int a, const float *got, double tolerance);

/* Compares all parameters, or a flat array of the same layout, with the arrays named prefix + name. */
void reference_check_parameters(const struct reference *r, const struct trm_model *model, const char *prefix,
                                const float *flat, double tolerance);

/* Sets the model's weights to those of the case. */
void reference_weights(const struct reference *r, struct nn_case *c);

/* Training on one rank as the program does it: the case's options (settings optim.*), the optimizer and the synchronous
 * strategy, which owns the model's arrays. */
struct reference_run {
  struct trm_options options;
  struct trm_optimizer optimizer;
  struct trm_strategy strategy;
  struct nn_case *c;
};
void reference_run_open(struct reference_run *run, const struct reference *r, struct nn_case *c); /* from c's weights */
float reference_run_step(struct reference_run *run, double rate, size_t batch); /* on c's batch; the mean loss before */
void reference_run_close(struct reference_run *run); /* before closing c */
