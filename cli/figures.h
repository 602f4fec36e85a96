/* Figures that a command prints, as a table for readers or as JSON for programs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/document.h"

/* One figure: `key` in JSON, and in the table `format`, of a text or of value * scale. Either may be NULL: the figure
 * is left out there. A value that is NAN is "-" in the table. */
struct figure {
  const char *key, *format, *text;
  double value, scale;
};
struct figure figure_text(const char *key, const char *format, const char *text);
struct figure figure_number(const char *key, const char *format, double value, double scale);

/* Prints figures (n) to stdout, or adds them to the open object `json` unless it is NULL. */
void figures_print(struct trm_json *json, const struct figure *figure, size_t n);
