/* The options of a run, described by one table (options_table.c): a row for each option with type, default, range and
 * help. A configuration file (YAML, sections of keys) and the command line (--section.key=value) both set a struct
 * trm_options; the last setting wins. The help (trireme options) says what each option does. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/api.h"
#include "core/choices.h"

TRM_BEGIN_DECLS

/* Section data. */
struct trm_data_options {
  char *file, *validation, *test;
  int64_t memory; /* bytes of samples in memory, per sharing domain */
  int64_t threads; /* prefetch threads: 0 or 1 */
  int64_t limit, limit_test; /* samples; 0: all */
  int64_t context, stride; /* tokens */
  int64_t pad;    /* pixels on each side of an image */
  double crop, jitter;
  bool shuffle, flip, balance, drop_last;
};
/* Section train. */
struct trm_train_options {
  int64_t epochs, steps, batch, accumulate, evaluate_every, stop_patience, loss_chunk;
  double seconds, stop_delta, smoothing, huber_delta;
  char *class_weights;
  enum trm_loss_kind loss;
  enum trm_value_type activations;
};
/* Section optim. */
struct trm_optim_options {
  enum trm_update_rule name;
  enum trm_lr_schedule schedule;
  double rate, adamw_rate, momentum, beta1, beta2, epsilon, l2, decay, clip, warmup, gamma, final, trust, ema;
  double threshold;
  int64_t patience;
  bool decay_all;
  char *milestones, *groups;
};
/* Section parallel. */
struct trm_parallel_options {
  int64_t data, pipeline, tensor, zero, threads, chunks;
  bool sequence, stash, error_feedback;
  enum trm_layout_mode layout;
  enum trm_schedule_name schedule;
  enum trm_share share;
  enum trm_progress progress;
  enum trm_shard shard;
  char *cut, *recompute, *offload, *shares, *collectives;
  int64_t bucket; /* bytes */
};
/* Section strategy. */
struct trm_strategy_options {
  char *name;
  enum trm_assignment data;
  enum trm_batch_meaning batch;
  enum trm_stale_rate rate;
  enum trm_stragglers stragglers;
  enum trm_aggregate aggregate;
  enum trm_peer_graph graph;
  enum trm_compensation compensation;
  enum trm_replica replica;
  enum trm_compress compress;
  enum trm_compress_bits compress_bits;
  int64_t tau, servers, groups, splits, slack, overlap, rows, fragments, compress_rank, collect, max_delay, trials;
  int64_t global_every;
  double alpha, lambda, memory, outer_rate, outer_momentum, compress_ratio, frame;
  double rate_exponent, rate_bound, rate_slope, activation, global_rate, global_momentum;
  bool dylu, stops;
  bool error_feedback;
};
/* Section run. */
struct trm_run_options {
  char *dir, *resume, *group;
  char *sign, *verify_with; /* sources of keys (core/secret_key.h) */
  int64_t seed, lanes, checkpoint_every, keep, verify_every;
  int64_t buddy; /* steps; 0: no copies */
  enum trm_background_saves background;
  bool overwrite, singletons, encrypt;
  char *slow, *jitter, *outages; /* train/slowdown.h */
  char *record; /* folder: the order of events of an asynchronous run */
  enum trm_trace_mode trace;
  double stall_after, stall_abort; /* s; 0: never */
};
/* Section log. */
struct trm_log_options {
  int64_t every;
  bool quiet;
  char *tensorboard; /* "no", "yes": in run.dir, or a folder of runs */
};
/* Section device. */
struct trm_device_options {
  char *name, *blas;
  enum trm_matmul matmul;
  bool graphs;
  enum trm_compute compute;
  double gflops; /* modeled speed of a rank, 10^9 operations per second, where time is modeled */
};
/* Section security. */
struct trm_security_options {
  char *key; /* source of a key (core/secret_key.h) */
};
/* The virtual network (mpi/virtual.h). */
struct trm_simulate_options {
  int64_t workers, nodes, cores, threads, schedule;
  double slice, latency, bandwidth, node_latency, node_bandwidth, service, service_bandwidth; /* s, bytes/s, ... */
  char *machine; /* a file of plan/machine.h */
  bool gradients;
  enum trm_conflicts conflicts;
  char *replay; /* folder written with run.record */
};

/* All options of a run. Texts are owned: trm_options_free. */
struct trm_options {
  char *model; /* canonical text: items separated by " | " (nn/model.h) */
  char *model_init, *model_skip, *model_freeze, *model_lora; /* model.init, model.skip, ... */
  int64_t model_lora_rank;
  double model_lora_alpha;
  struct trm_data_options data;
  struct trm_train_options train;
  struct trm_optim_options optim;
  struct trm_parallel_options parallel;
  struct trm_strategy_options strategy;
  struct trm_run_options run;
  struct trm_security_options security;
  struct trm_log_options log;
  struct trm_device_options device;
  struct trm_simulate_options simulate;
};

/* One row of the table. */
enum trm_option_type {
  TRM_OPTION_BOOL,
  TRM_OPTION_INT,
  TRM_OPTION_REAL,
  TRM_OPTION_BYTES,
  TRM_OPTION_TEXT,
  TRM_OPTION_CHOICE, /* an enum of core/choices.h */
};
struct trm_option {
  const char *name; /* "section.key" */
  enum trm_option_type type;
  size_t offset;         /* into struct trm_options */
  const char *default_text; /* the default, as text */
  double low, high;      /* range of numbers */
  const char *const *choices; /* words of the enum's values in order, then NULL */
  const char *help;      /* one line */
};
extern const struct trm_option trm_option_table[]; /* ends with a row whose name is NULL */

void trm_options_default(struct trm_options *options); /* release with trm_options_free */
void trm_options_free(struct trm_options *options);

/* Sets one option from text. TRM_USAGE: the message names the nearest known option, or the allowed type and range. */
int trm_options_set(struct trm_options *options, const char *name, const char *value);

/* The same for any table of rows and the zeroed struct that their offsets are into, such as the flags of a command.
 * Defaults are trusted; a row whose default_text is NULL stays zero. */
void trm_values_default(void *values, const struct trm_option *table);
int trm_values_set(void *values, const struct trm_option *row, const char *text);
void trm_values_free(void *values, const struct trm_option *table);

/* Returns the word of a choice's value: ("optim.name", TRM_UPDATE_SGD) is "sgd". name: of a choice in the table. */
const char *trm_choice_text(const char *name, int value);

/* Reads a configuration file: sections of keys, or section.key in one word. Options that it does not name keep their
 * values. The model is a text, a list of layers, or a map {text: one of these, init: FILE, ...}; `parallel: auto` is
 * {layout: auto}. Errors name file and line. */
int trm_options_read(struct trm_options *options, const char *path);

/* Writes the options as YAML that trm_options_read reads; the lines of head become comments. */
int trm_options_write(const struct trm_options *options, FILE *stream, const char *head);

/* Returns the value as it is in such a file. The caller frees it with free(). */
char *trm_options_value_text(const struct trm_options *options, const struct trm_option *row);

/* Prints the table (all, or the rows of one section) for `trireme options`. */
int trm_options_print(FILE *stream, const char *section);

/* Returns the known option nearest to an unknown name; without a section, the one with the nearest key. NULL: none is
 * near. */
const char *trm_nearest_option(const char *name);

/* Returns the known word nearest to `word` by edit distance, NULL if none is near. known: ends with NULL. */
const char *trm_nearest_word(const char *word, const char *const *known);

TRM_END_DECLS
