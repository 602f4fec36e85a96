/* The runs of `trireme report`, and what it writes of them (private to cli). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/svg.h"
#include "core/document.h"

/* One line of metrics.jsonl. NAN: not finite, or not logged. TIME: of training without evaluations where that is
 * logged, on the virtual clock of a run that has one. */
enum report_field {
  REPORT_STEP, REPORT_EPOCH, REPORT_SAMPLES, REPORT_WALL, REPORT_TIME, REPORT_LOSS, REPORT_ACCURACY, REPORT_RATE,
  REPORT_FIELDS
};
struct report_point {
  double value[REPORT_FIELDS];
};

struct report_series {
  struct report_point *point; /* (n) in order of step */
  size_t n, capacity;
};

struct report_run {
  char *path;        /* of its folder */
  char *name;        /* its last component; the path where two runs have the same one */
  char *config_text; /* config.yaml */
  struct trm_node *config, *summary; /* NULL: a sweep's run left no config.yaml, a run has not ended */
  struct trm_node *staleness; /* staleness.json, NULL: none */
  const char *outcome; /* "done", "diverged" (as in a sweep), the summary's status, "not ended", a sweep's status */
  char *sweep_status;  /* in runs.csv, NULL: not of a sweep */
  struct report_series train, test; /* test: evaluations, on the validation split if `validates`, else the test split */
  bool validates;
  bool has_loss, has_accuracy, has_rate; /* loss and accuracy of evaluations, learning rate are logged */
  bool modeled;      /* its times, REPORT_WALL too, are of a virtual clock */
  size_t superseded; /* lines that the resumed run logged again */
  int group;         /* its series */
};

/* Runs whose settings differ in run.seed alone: one series of every curve. */
struct report_group {
  char *name, *label; /* label: with "(4 of 5)" where there are several runs */
  struct report_run **run; /* (count), the `used` ones first */
  size_t capacity;
  int count, used; /* used: in means; without those that failed, diverged or have not ended */
};

enum report_axis { REPORT_OVER_SAMPLES, REPORT_OVER_UPDATES, REPORT_OVER_TIME };
struct report {
  struct report_run *run; /* (count) */
  size_t capacity;
  int count;
  struct report_group *group; /* (groups) */
  int groups;
  int baseline;    /* the group that a sweep's --baseline names; else the first one */
  char *baselines; /* the names of a sweep's baseline; NULL: none */
  enum report_axis axis;
  double target;      /* accuracy, or loss of runs that have none; that of a sweep if none is given; NAN: none */
  double window[2];   /* seconds of a trace; NAN: the last steps */
};

/* Reads run directories; that of a sweep stands for its final runs. Errors name the file and the line; a run that has
 * not ended is a warning. report_free follows in any case. */
int report_read(struct report *report, int count, char **paths);
/* Sets the outcomes and the groups. */
void report_make_groups(struct report *report);
/* True of options that change no result: run.dir, ... */
bool report_is_no_setting(const char *name);
/* True if two configurations are equal but for those, and the options of the list, which ends with NULL. */
bool report_same_settings(const struct trm_node *a, const struct trm_node *b, const char *const *but);
void report_free(struct report *report);
void report_free_groups(struct report *report);

/* -- panels: one form of all pictures, which svg.h draws and report_csv writes */

struct report_panel {
  char title[128];
  struct svg_plot plot; /* its series are the panel's */
  size_t capacity, row_capacity;
  char **row;
};
/* Adds a series of n points, whose x and y it allocates; bands and ends: with low and high, with end and box. */
struct svg_series *report_panel_add(struct report_panel *panel, const char *label, int number, size_t n,
                                    enum svg_form form);
void report_panel_add_band(struct svg_series *series);
void report_panel_add_row(struct report_panel *panel, char *name); /* takes the name */
void report_panel_free(struct report_panel *panel);
/* Writes panels (count) as CSV: a line for each point, the same columns for every picture. */
void report_csv(FILE *out, const struct report_panel *panel, int count);

/* One curve of each series: the values of metrics.jsonl that are drawn over one another. */
struct report_curve {
  const char *title, *x_label;
  bool test; /* of the evaluations, not of the training steps */
  enum report_field x, y;
  enum svg_unit x_unit, y_unit;
  bool may_log, means; /* as in struct svg_plot */
};
/* The field, label and unit of an axis. */
void report_set_axis(const struct report *report, enum report_axis axis, struct report_curve *curve);
/* The split that the runs' evaluations are on: "Validation", "Test", or "Evaluation" where runs differ. */
const char *report_evaluated_split(const struct report *report);
/* Adds the curves of the series that have values: of one run its points, of several the mean of their piecewise linear
 * curves with a band from the least to the largest. Runs that have ended keep their last values. */
void report_add_curves(struct report_panel *panel, const struct report_curve *curve, const struct report *report,
                       enum svg_form form);
/* Adds the curve of one series. Returns NULL, and adds nothing, if it has no values. */
const struct svg_series *report_add_curve(struct report_panel *panel, const struct report_curve *curve,
                                          const struct report_group *group, int number, enum svg_form form);

/* The time, updates or samples of a run's first evaluation that reaches the target; INFINITY: none does. */
double report_target_of(const struct report *report, enum report_axis axis, const struct report_run *run);
int report_target(const struct report *report, struct report_panel *panel);
/* Writes the page's section on the target; nothing without one. */
void report_target_table(FILE *out, const struct report *report);
int report_scaling(const struct report *report, struct report_panel *panel);
/* Adds the distribution of the staleness of each series. */
int report_stale(const struct report *report, struct report_panel *panel);
/* Adds the boxes of a run's trace.json. Returns false if it has none. */
bool report_trace_read(const struct report *report, const struct report_run *run, struct report_panel *panel);

/* Write a number of a table: 1,234,567; "12.3 s", "1 h 05 min". */
void report_write_count(FILE *out, double value);
void report_write_duration(FILE *out, double seconds);
/* Draws the line of a series as a key. */
void report_write_key(FILE *out, int number);

/* Write the page's tables: of series, where some have several runs; of runs; of settings that differ, if any do. */
void report_series_table(FILE *out, const struct report *report);
void report_runs_table(FILE *out, const struct report *report);
void report_differences_table(FILE *out, const struct report *report);

/* Writes the report as one self-contained page. */
int report_html(const char *out, const char *title, const struct report *report);

/* Writes the page's section on staleness; nothing where no run has any. */
void report_staleness(FILE *out, const struct report *report);

/* Writes the page's section on schedules: a Gantt chart of each run's trace; nothing where no run has one. */
void report_trace(FILE *out, const struct report *report);

/* Writes a picture. PDF and PNG need librsvg; without it they are refused. TRM_USAGE: the runs have nothing to draw. */
enum report_format { REPORT_SVG, REPORT_PDF, REPORT_PNG, REPORT_CSV, REPORT_FORMATS };
enum report_kind { REPORT_CURVES, REPORT_LOSSES, REPORT_ACCURACIES, REPORT_STALENESS, REPORT_TARGET, REPORT_SCALING,
                   REPORT_GANTT };
extern const char *const report_kinds[]; /* words of --picture */
int report_picture(const char *path, enum report_format format, enum report_kind kind, const char *title,
                   const struct report *report);

/* Replaces *made, the *bytes of an SVG picture (of open_memstream, the caller's to free), by the same as PDF, one point
 * for a unit of the drawing, or as PNG, three pixels for a unit. On an error *made is NULL or incomplete. */
int report_render(enum report_format format, char **made, size_t *bytes, int width, int height);

/* The lines of a run's metrics.jsonl. */
struct report_lines {
  struct trm_node **line; /* (n) */
  size_t n;
  double start; /* seconds since 1970 when the run began, by the file's time and the last line's wall_s */
};
int report_lines_read(struct report_lines *lines, const struct report_run *run); /* then report_lines_free */
double report_lines_time(const struct report_lines *lines, size_t i);           /* of line i, seconds since 1970 */
void report_lines_free(struct report_lines *lines);

/* Write TensorBoard's event files of each run in DIR/NAME; the runs as MLflow's file store DIR. Runs that were written
 * there before are replaced. */
int report_tensorboard(const char *dir, const struct report *report);
int report_mlflow(const char *dir, const struct report *report);
