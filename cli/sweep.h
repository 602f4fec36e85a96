/* The runs of `trireme sweep`: every combination of listed values of options, each run in its own process and folder
 * (private to cli). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/options.h"

/* -- axes: the options with several values */

enum sweep_role {
  SWEEP_CELL,  /* a row of the table for each value */
  SWEEP_TUNED, /* its value is chosen for each cell, on the validation split */
  SWEEP_SEED,  /* run.seed: means are over it */
};
struct sweep_axis {
  const struct trm_option *row;
  enum sweep_role role;
  char **value;     /* (count) texts that the option takes, without duplicates */
  size_t capacity;  /* of value */
  int count;
  int listed;       /* the first ones, which the option lists: variants add theirs */
  bool ordered;     /* numbers */
  bool range;       /* low..high of a random search: `value` is drawn from it */
  double low, high;
};
enum { SWEEP_MAX_AXES = 16, SWEEP_MAX_RUNS = 1000000 };
enum sweep_search { SWEEP_GRID, SWEEP_RANDOM, SWEEP_HALVING };

/* Reads the values of an option: "0.1,0.2,0.4", of whole numbers also "1..5"; of texts, other than strategy.name,
 * "A; B". random: LO..HI of a number is a range to draw from. TRM_USAGE: no such option, a value that it does not take,
 * a value twice. For sweep_axis_free, also on failure. */
int sweep_axis_read(struct sweep_axis *axis, const char *name, const char *list, bool random);
/* Reads the text as one value of the option, whatever separators it has. */
int sweep_axis_one(struct sweep_axis *axis, const char *name, const char *value);
bool sweep_axis_has(const struct sweep_axis *axis, const char *value);
/* Adds a value as it is. */
int sweep_axis_add(struct sweep_axis *axis, const char *value);
void sweep_axis_free(struct sweep_axis *axis);

/* -- the sweep */

enum sweep_outcome { SWEEP_NOT_RUN, SWEEP_DONE, SWEEP_DIVERGED, SWEEP_FAILED, SWEEP_TIMEOUT, SWEEP_OUTCOMES };
extern const char *const sweep_outcome_name[SWEEP_OUTCOMES];

enum { SWEEP_MAX_FIGURES = 12 };
/* The scores of a split; NAN: none. */
struct sweep_scores {
  double accuracy, loss;
};
struct sweep_run {
  const char *value[SWEEP_MAX_AXES]; /* of each axis */
  char *name;                        /* of its folder in DIR/runs */
  int cell, setting, seed, rung;     /* indices */
  int64_t budget;                    /* steps or epochs of a rung; 0: those of the options */
  enum sweep_outcome outcome;
  struct sweep_scores validation, test; /* of a run that is done */
  double figure[SWEEP_MAX_FIGURES];     /* of a run that is done; NAN: none */
};
struct sweep_runs {
  struct sweep_run *run; /* (count) by cell, setting, seed */
  int count;
  size_t capacity;       /* of run */
};

/* Successive halving (Jamieson and Talwalkar, AISTATS 2016): the settings of a cell, with a third of the budget in each
 * rung before the last; the best third of them goes to the next. Each run begins at step 0, with the schedule of its
 * budget. */
struct sweep_halving {
  const char *option; /* that has the budget: train.steps or train.epochs */
  int64_t budget;     /* of the last rung, and of the final runs */
  int rungs, rung;    /* rung: the latest one with runs */
  bool *kept;         /* (cells, settings): in the latest rung */
};

/* Rows with options of their own, and with own values of tuned options. */
struct sweep_variant {
  char *line;    /* "name | options" */
  char *options; /* those that are not tuned: "--key=value --key=value" */
};
struct sweep_own {
  int variant;
  struct sweep_axis values; /* of a tuned option, in place of those that it lists */
};

struct sweep {
  const char *dir;
  struct trm_options options; /* of every run, but the axes */
  struct sweep_axis axis[SWEEP_MAX_AXES]; /* (axes), the seeds last */
  int axes;
  struct sweep_axis tune_seeds;
  struct sweep_variant *variant; /* (variants): the values of axis 0, if there are any */
  int variants;
  size_t variant_capacity;
  struct sweep_own *own; /* (owns) */
  int owns;
  size_t own_capacity;
  const char *figure[SWEEP_MAX_FIGURES]; /* (figures): "key", "key.key" of summary.json, "target.key" */
  int figures;
  double target; /* validation accuracy; 0: none */
  const char **setting; /* (settings, axes): values of the tuned axes */
  int settings, cells;
  int *chosen;          /* (cells): the setting; -1: no run of the cell is done */
  struct sweep_halving halving; /* of another search: one rung */
  struct sweep_runs tune, final;
};

/* -- variants: an axis "variant", the first one */

/* True if the name is one of a list that is separated by commas; list may be NULL. */
bool sweep_is_listed(const char *list, const char *name);
bool sweep_has_variants(const struct sweep *sweep);
/* Adds a line "name | --key=value ..."; nothing if it is empty or begins with "#". A value of an option of tune is a
 * list: the variant's own values. TRM_USAGE: an unknown option, a value that it does not take, an option with a list,
 * a name twice. */
int sweep_add_variant(struct sweep *sweep, const char *line, const char *tune);
int sweep_read_variants(struct sweep *sweep, const char *text, const char *tune); /* lines of a file */
/* Once all are there: a variant without values of a tuned option that lists none is run without the option. */
int sweep_finish_variants(struct sweep *sweep);
/* The values that a cell may have of axis i: not to be freed. */
struct sweep_axis sweep_values_of(const struct sweep *sweep, int cell, int i);
const char *sweep_variant_options(const struct sweep *sweep, const struct sweep_run *run);
void sweep_variants_free(struct sweep *sweep);

/* The values of the cell's axes; NULL for other axes. */
void sweep_cell_values(const struct sweep *sweep, int cell, const char *value[SWEEP_MAX_AXES]);
/* Makes the settings of the tuned axes: all combinations, or so many that are drawn at random and differ (fewer where
 * there are fewer). A seed gives the same ones. Halving: also the rungs, as many as the budget allows. */
int sweep_make_settings(struct sweep *sweep, enum sweep_search search, int trials, uint64_t seed);
/* Makes the runs that tune, if an axis is tuned, of the first or next rung, and, once the settings are chosen, the
 * final ones. */
int sweep_make_tune(struct sweep *sweep);
int sweep_make_final(struct sweep *sweep);
void sweep_runs_free(struct sweep_runs *runs);

/* -- processes */

struct sweep_jobs {
  int count;          /* processes at a time */
  double limit_s;     /* of a run; 0: none */
  bool retry;         /* runs that failed or took too long, too */
  const char *launch; /* words before the program, separated by spaces; NULL: none */
};
/* Reads what a run has left in its folder. */
int sweep_run_read(const struct sweep *sweep, struct sweep_run *run);
int sweep_runs_read(const struct sweep *sweep, struct sweep_runs *runs);
/* Runs those that have not ended before, and reads the results. A run that fails, diverges or takes too long is an
 * outcome, not an error. TRM_STOPPED: a signal came, and was passed on to the runs. */
int sweep_runs_start(const struct sweep *sweep, struct sweep_runs *runs, const struct sweep_jobs *jobs);
/* Writes DIR/task.sbatch, which runs one run by its number in a job array, and DIR/submit.sh, which submits all. */
int sweep_write_slurm(const struct sweep *sweep, const struct sweep_jobs *jobs);

/* -- the choice */

/* True if the runs that are done have validation accuracies: they decide, otherwise losses do. */
bool sweep_has_accuracy(const struct sweep_runs *runs, bool test);
/* Keeps the best third of each cell's settings, rounded up, by the latest rung, and goes on to the next. */
void sweep_halve(struct sweep *sweep);
/* Sets sweep->chosen: of the settings of the latest rung with the most runs that are done, the one with the best mean
 * validation score. */
void sweep_choose(struct sweep *sweep);
/* Returns the cell that is best in the same sense, -1: none is done. */
int sweep_best_cell(const struct sweep *sweep);
/* True if the value is the smallest or the largest of an ordered axis that has several. */
bool sweep_at_edge(const struct sweep_axis *axis, const char *value);

/* -- statistics */

struct sweep_sample {
  int n;
  double mean, deviation; /* standard deviation (n - 1); NAN below two values */
};
struct sweep_sample sweep_sample_of(const double *value, int n);
/* Returns the two-sided p-value of Student's t: P(|T| >= |t|) at `freedom` degrees of freedom, by the regularized
 * incomplete beta function (its continued fraction: Press et al., Numerical Recipes, 6.4). */
double sweep_t_probability(double t, double freedom);
/* Returns the p-value of the paired t-test of differences; NAN below two of them. */
double sweep_paired_test(const struct sweep_sample *differences);

/* -- results */

/* Writes DIR/runs.csv (every run), DIR/results.csv and DIR/table.md (a row for each cell), prints the table and the
 * warnings. baseline: KEY=VALUE[,KEY=VALUE], the values of a cell's axes that the others are compared with, at equal
 * values of the other axes; NULL: none. */
int sweep_check_baseline(const struct sweep *sweep, const char *baseline); /* before the runs */
int sweep_write_results(const struct sweep *sweep, const char *baseline);
/* Writes DIR/picture.svg: test results, or the figure y, over the values of the option x. */
int sweep_check_picture(const struct sweep *sweep, const char *x, const char *y); /* NULL: none */
int sweep_write_picture(const struct sweep *sweep, const char *x, const char *y);
