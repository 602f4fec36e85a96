/* What `trireme report` knows about its runs, and the two pictures of them (private to cli). */
#ifndef TRM_CLI_REPORT_H
#define TRM_CLI_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "core/document.h"

/* One line of metrics.jsonl. NAN: not finite in the run, or not logged. */
struct report_point {
  double step, epoch, samples, wall_s, loss, accuracy, rate;
};

struct report_series {
  struct report_point *point; /* (n) in order of step */
  size_t n, capacity;
};

struct report_run {
  const char *path;  /* as given, not owned */
  char *name;        /* its last part, or the path where two runs share that */
  char *config_text; /* config.yaml */
  struct trm_node *config, *summary; /* summary is NULL for a run that has not ended */
  struct report_series train, test;
  bool has_loss, has_accuracy, has_rate; /* test loss, test accuracy, learning rate are logged */
  size_t superseded; /* lines that a resumed run computed again */
};

/* Reads the run directories. Errors name the file and the line; what can be lived with is a warning. */
int report_read(struct report_run *runs, int count, char **paths);
void report_free(struct report_run *runs, int count);

/* One self-contained page. */
int report_html(const char *out, const char *title, const struct report_run *runs, int count);

/* The page's section on staleness; nothing where no run has any. */
void report_staleness(FILE *out, const struct report_run *runs, int count);

/* The page's section on schedules: Gantt charts of what traces tell; nothing where no run has any. */
void report_trace(FILE *out, const struct report_run *runs, int count);

/* Loss and accuracy, drawn by gnuplot. Errors: no gnuplot, gnuplot's own. */
int report_gnuplot(const char *out, const char *title, const struct report_run *runs, int count);

/* Escapes for text and attribute values of HTML and SVG; bytes that are not UTF-8 or not allowed become U+FFFD. */
void html_text(FILE *out, const char *text);

#endif
