/* The options of a run: one table (options_table.c), one row an option, with type, default, range and help.
 *
 * A configuration file (YAML, sections of keys) and the command line (--section.key=value) both end in struct
 * trm_options. Later settings win: defaults, file, command line in order.
 */
#ifndef TRM_CORE_OPTIONS_H
#define TRM_CORE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/api.h"

TRM_BEGIN_DECLS

struct trm_options {
  char *model; /* canonical text: items separated by " | " (nn/model.h) */
  char *model_init; /* model.init */
  struct {
    char *file, *validation, *test;
    char *shuffle; /* "yes" | "no" */
    int64_t memory; /* bytes of samples in memory, per sharing domain */
    int64_t threads; /* prefetch threads: 0 reads when needed, 1 ahead */
    int64_t limit, limit_test; /* use only the first samples of a split; 0: all */
    int64_t context, stride; /* tokens a row, and from row to row */
    int64_t pad;    /* images: pixels of zeros around them, before one is cut out at random */
    bool flip, drop_last;
  } data;
  struct {
    int64_t epochs, steps, batch, accumulate, evaluate_every, stop_patience;
    double stop_delta, smoothing;
    char *loss;
  } train;
  struct {
    char *name, *schedule;
    double rate, momentum, beta1, beta2, epsilon, l2, decay, clip, warmup, gamma, final, trust, ema;
    bool decay_all;
    char *milestones;
  } optim;
  struct {
    int64_t data, pipeline, tensor, zero, threads, chunks;
    bool sequence, stash;
    char *layout, *share, *shard, *schedule, *cut, *recompute, *offload;
    int64_t bucket; /* bytes */
  } parallel;
  struct {
    char *name, *data, *rate, *compensation;
    int64_t tau, servers, groups, splits, slack, rows;
    double alpha, lambda, memory;
  } strategy;
  struct {
    char *dir, *resume;
    int64_t seed, lanes, checkpoint_every, keep;
    bool overwrite, singletons;
    char *slow, *jitter; /* computing times on purpose (train/slowdown.h) */
    char *trace;
  } run;
  struct {
    int64_t every;
    bool quiet;
  } log;
  struct {
    char *name, *blas, *matmul, *compute;
    double gflops; /* modeled speed of a rank, where compute is "sleep" */
  } device;
};

/* One row of the table. */
enum trm_option_type {
  TRM_OPTION_BOOL,
  TRM_OPTION_INT,
  TRM_OPTION_REAL,
  TRM_OPTION_BYTES,
  TRM_OPTION_TEXT,
  TRM_OPTION_CHOICE,
};
struct trm_option {
  const char *name; /* "section.key" */
  enum trm_option_type type;
  size_t offset;         /* into struct trm_options */
  const char *default_text; /* the default, as text */
  double low, high;      /* range of numbers */
  const char *choices;   /* "a|b|c" */
  const char *help;      /* one line */
};
extern const struct trm_option trm_option_table[]; /* ends with a row whose name is NULL */

void trm_options_default(struct trm_options *options); /* owns its texts: trm_options_free */
void trm_options_free(struct trm_options *options);

/* Sets one option from text. Unknown names are answered with the nearest known one; wrong types and ranges with what is
 * allowed. TRM_USAGE on any error. */
int trm_options_set(struct trm_options *options, const char *name, const char *value);

/* Reads a configuration file over what is set: sections of keys, or section.key in one word. The model is a text, a
 * list of layers, or a map {text: one of these, init: FILE}; `parallel: auto` is {layout: auto}. Errors name file and
 * line. */
int trm_options_read(struct trm_options *options, const char *path);

/* Writes the resolved options as YAML that trm_options_read takes; head lines become comments. */
int trm_options_write(const struct trm_options *options, FILE *stream, const char *head);

/* Prints the table (all, or the rows of one section) for `trireme options`. */
int trm_options_print(FILE *stream, const char *section);

/* The known word nearest to `word` by edit distance, NULL if none is near. `known`: NULL-terminated. */
const char *trm_nearest_word(const char *word, const char *const *known);

TRM_END_DECLS
#endif
