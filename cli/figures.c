#include "cli/figures.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/printable.h"

struct figure figure_text(const char *key, const char *format, const char *text)
{
  return (struct figure){.key = key, .format = format, .text = text};
}

struct figure figure_number(const char *key, const char *format, double value, double scale)
{
  return (struct figure){.key = key, .format = format, .value = value, .scale = scale};
}

static void figures_print_number(const char *format, double value)
{
  char cell[256];
  snprintf(cell, sizeof cell, format, isnan(value) ? (double)NAN : value);
  char *nan = strstr(cell, "nan");
  if (nan)
    memcpy(nan, "  -", 3);
  fputs(cell, stdout);
}

static void figures_print_text(const char *format, const char *text)
{
  char *shown = trm_printable(text);
  printf(format, shown);
  trm_free(shown);
}

void figures_print(struct trm_json *json, const struct figure *figure, size_t n)
{
  for (const struct figure *f = figure; f < figure + n; f++)
    if (json && f->key && f->text)
      trm_json_text(json, f->key, f->text);
    else if (json && f->key)
      trm_json_number(json, f->key, f->value);
    else if (!json && f->format && f->text)
      figures_print_text(f->format, f->text);
    else if (!json && f->format)
      figures_print_number(f->format, f->value * f->scale);
}
