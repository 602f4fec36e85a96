/* The runs of `trireme report`, and what it writes of them (private to cli). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/svg.h"
#include "core/document.h"

/* One line of metrics.jsonl. NAN: not finite, or not logged. */
enum report_field {
  REPORT_STEP, REPORT_EPOCH, REPORT_SAMPLES, REPORT_WALL, REPORT_LOSS, REPORT_ACCURACY, REPORT_RATE, REPORT_FIELDS
};
struct report_point {
  double value[REPORT_FIELDS];
};

struct report_series {
  struct report_point *point; /* (n) in order of step */
  size_t n, capacity;
};

struct report_run {
  const char *path;  /* as given, not owned */
  char *name;        /* its last component; the path where two runs have the same one */
  char *config_text; /* config.yaml */
  struct trm_node *config, *summary; /* summary is NULL for a run that has not ended */
  struct trm_node *staleness; /* staleness.json, NULL: none */
  struct report_series train, test; /* test: evaluations, on the validation split if `validates`, else the test split */
  bool validates;
  bool has_loss, has_accuracy, has_rate; /* loss and accuracy of evaluations, learning rate are logged */
  size_t superseded; /* lines that the resumed run logged again */
};

/* Reads the run directories. Errors name the file and the line; a run that has not ended is a warning. report_free
 * follows in any case. */
int report_read(struct report_run *runs, int count, char **paths);
void report_free(struct report_run *runs, int count);

/* One curve of each run: the values of metrics.jsonl that are drawn over one another. */
struct report_curve {
  const char *title, *x_label;
  bool test; /* of the evaluations, not of the training steps */
  enum report_field x, y;
  enum svg_unit x_unit, y_unit;
  bool may_log, means; /* as in struct svg_plot */
};
/* The split that the runs' evaluations are on: "Validation", "Test", or "Evaluation" where runs differ. */
const char *report_evaluated_split(const struct report_run *runs, int count);
/* Draws the curves of the runs that have values and, unless it is NULL, those of `dots` as dots. plot has the size, the
 * title, and whether there are labels. out: NULL to draw nothing. Returns the number of curves. */
int report_curve_draw(FILE *out, const struct report_curve *line, const struct report_curve *dots,
                      const struct report_run *runs, int count, struct svg_plot plot, struct svg_notes *notes);

/* Writes the report as one self-contained page. */
int report_html(const char *out, const char *title, const struct report_run *runs, int count);

/* Writes the page's section on staleness; nothing where no run has any. */
void report_staleness(FILE *out, const struct report_run *runs, int count);

/* Writes the page's section on schedules: a Gantt chart of each run's trace; nothing where no run has one. */
void report_trace(FILE *out, const struct report_run *runs, int count);

/* Writes loss and accuracy as one picture. PDF and PNG need librsvg; without it they are refused. */
enum report_format { REPORT_SVG, REPORT_PDF, REPORT_PNG };
int report_picture(const char *path, enum report_format format, const char *title, const struct report_run *runs,
                   int count);
