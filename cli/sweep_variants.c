/* Rows of a sweep that have options of their own: the lines "name | --key=value --key=value" of a file. */
#include <string.h>

#include "cli/sweep.h"
#include "core/memory.h"
#include "core/status.h"

static const struct trm_option variant_row = {.name = "variant", .type = TRM_OPTION_TEXT};

bool sweep_has_variants(const struct sweep *sweep)
{
  return sweep->axes > 0 && sweep->axis[0].row == &variant_row;
}

bool sweep_is_listed(const char *list, const char *name)
{
  const size_t length = strlen(name);
  for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length]))
      return true;
  return false;
}

/* Returns text without the blanks around it, up to its end. free. */
static char *variant_trim(const char *text, const char *end)
{
  while (text < end && strchr(" \t\r\n", *text))
    text++;
  while (end > text && strchr(" \t\r\n", end[-1]))
    end--;
  return trm_format("%.*s", (int)(end - text), text);
}

static int variant_find_axis(const struct sweep *sweep, const struct trm_option *row)
{
  for (int i = 0; i < sweep->axes; i++)
    if (sweep->axis[i].row == row)
      return i;
  return -1;
}

/* Adds own values of a tuned option: the axis gets those that it lacks. */
static int variant_add_own(struct sweep *sweep, int variant, struct sweep_axis *values)
{
  int at = variant_find_axis(sweep, values->row);
  if (at < 0) {
    if (sweep->axes == SWEEP_MAX_AXES - 1)
      return trm_error(TRM_USAGE, "sweep: more than %d options with lists", SWEEP_MAX_AXES - 1);
    at = sweep->axes++;
    sweep->axis[at] = (struct sweep_axis){.row = values->row, .role = SWEEP_TUNED, .ordered = values->ordered};
  }
  values->role = SWEEP_TUNED;
  for (int i = 0; i < values->count; i++)
    if (!sweep_axis_has(&sweep->axis[at], values->value[i]))
      TRM_CHECK(sweep_axis_add(&sweep->axis[at], values->value[i]));
  sweep->own = trm_grow(sweep->own, &sweep->own_capacity, (size_t)sweep->owns, (size_t)sweep->owns + 1,
                        sizeof *sweep->own, "sweep: own values");
  sweep->own[sweep->owns++] = (struct sweep_own){.variant = variant, .values = *values};
  *values = (struct sweep_axis){0};
  return TRM_OK;
}

/* word: "--KEY=VALUE". */
static int variant_add_option(struct sweep *sweep, int variant, const char *word, const char *tune, char **options)
{
  const size_t length = strcspn(word, "=");
  if (strncmp(word, "--", 2) != 0 || !word[length])
    return trm_error(TRM_USAGE, "sweep: variant %s: \"%s\" is no --KEY=VALUE", sweep->axis[0].value[variant], word);
  char *name = trm_format("%.*s", (int)length - 2, word + 2);
  const bool tuned = sweep_is_listed(tune, name);
  struct sweep_axis values;
  int status = tuned ? sweep_axis_read(&values, name, word + length + 1, false)
                     : sweep_axis_one(&values, name, word + length + 1);
  if (status == TRM_OK && (values.role == SWEEP_SEED || strcmp(name, "run.dir") == 0))
    status = trm_error(TRM_USAGE, "sweep: variant %s: %s is not a variant's", sweep->axis[0].value[variant], name);
  if (status == TRM_OK && !tuned && variant_find_axis(sweep, values.row) >= 0)
    status = trm_error(TRM_USAGE, "sweep: variant %s: %s has a list of values, too", sweep->axis[0].value[variant], name);
  if (status == TRM_OK && tuned)
    status = variant_add_own(sweep, variant, &values);
  else if (status == TRM_OK)
    trm_append(options, "%s%s", **options ? " " : "", word);
  sweep_axis_free(&values);
  trm_free(name);
  return status;
}

/* Returns the end of the option at text: " --" begins the next one. */
static const char *variant_option_end(const char *text)
{
  const char *next = strstr(text, " --");
  return next ? next : text + strlen(text);
}

int sweep_add_variant(struct sweep *sweep, const char *line, const char *tune)
{
  const char *bar = strchr(line, '|');
  char *name = variant_trim(line, bar ? bar : line + strlen(line)), *options = trm_strdup("");
  int status = TRM_OK;
  if (!*name || *name == '#') {
    trm_free(name);
    trm_free(options);
    return TRM_OK;
  }
  if (!sweep_has_variants(sweep) && sweep->axes == SWEEP_MAX_AXES - 1)
    status = trm_error(TRM_USAGE, "sweep: more than %d options with lists", SWEEP_MAX_AXES - 1);
  else if (!sweep_has_variants(sweep)) {
    memmove(&sweep->axis[1], &sweep->axis[0], (size_t)sweep->axes++ * sizeof *sweep->axis);
    sweep->axis[0] = (struct sweep_axis){.row = &variant_row};
  }
  if (status == TRM_OK && !bar)
    status = trm_error(TRM_USAGE, "sweep: variant %s: the line has no \"| options\"", name);
  else if (status == TRM_OK && sweep_axis_has(&sweep->axis[0], name))
    status = trm_error(TRM_USAGE, "sweep: variant %s is given twice", name);
  if (status == TRM_OK)
    status = sweep_axis_add(&sweep->axis[0], name);
  for (const char *at = bar ? bar + 1 : "", *end; status == TRM_OK && *at; at = end) {
    end = variant_option_end(at);
    char *word = variant_trim(at, end);
    if (*word)
      status = variant_add_option(sweep, sweep->axis[0].count - 1, word, tune, &options);
    trm_free(word);
    end += *end != '\0';
  }
  sweep->variant = trm_grow(sweep->variant, &sweep->variant_capacity, (size_t)sweep->variants,
                            (size_t)sweep->variants + 1, sizeof *sweep->variant, "sweep: variants");
  sweep->variant[sweep->variants++] = (struct sweep_variant){trm_strdup(line), options};
  trm_free(name);
  return status;
}

int sweep_read_variants(struct sweep *sweep, const char *text, const char *tune)
{
  for (const char *at = text; *at;) {
    const size_t length = strcspn(at, "\n");
    char *line = trm_format("%.*s", (int)length, at);
    const int status = sweep_add_variant(sweep, line, tune);
    trm_free(line);
    TRM_CHECK(status);
    at += length + (at[length] != '\0');
  }
  return sweep->variants > 0 ? TRM_OK : trm_error(TRM_USAGE, "sweep: --variants: the file has no line \"name | options\"");
}

int sweep_finish_variants(struct sweep *sweep)
{
  for (int i = 1; i < sweep->axes; i++) {
    struct sweep_axis *axis = &sweep->axis[i];
    for (int v = 0; axis->role == SWEEP_TUNED && axis->listed == 0 && v < sweep->variants; v++) {
      struct sweep_axis none = {.row = axis->row};
      bool owns = false;
      for (int k = 0; k < sweep->owns; k++)
        owns |= sweep->own[k].variant == v && sweep->own[k].values.row == axis->row;
      if (owns)
        continue;
      TRM_CHECK(sweep_axis_add(&none, ""));
      TRM_CHECK(variant_add_own(sweep, v, &none));
    }
  }
  return TRM_OK;
}

struct sweep_axis sweep_values_of(const struct sweep *sweep, int cell, int i)
{
  struct sweep_axis values = sweep->axis[i];
  const char *value[SWEEP_MAX_AXES];
  if (values.role != SWEEP_TUNED || sweep->owns == 0)
    return values;
  sweep_cell_values(sweep, cell, value);
  values.count = values.listed;
  for (int k = 0; k < sweep->owns; k++)
    if (sweep->own[k].values.row == values.row && sweep->axis[0].value[sweep->own[k].variant] == value[0])
      return sweep->own[k].values;
  return values;
}

const char *sweep_variant_options(const struct sweep *sweep, const struct sweep_run *run)
{
  for (int v = 0; v < sweep->variants; v++)
    if (sweep->axis[0].value[v] == run->value[0])
      return sweep->variant[v].options;
  return "";
}

void sweep_variants_free(struct sweep *sweep)
{
  for (int v = 0; v < sweep->variants; v++) {
    trm_free(sweep->variant[v].line);
    trm_free(sweep->variant[v].options);
  }
  for (int k = 0; k < sweep->owns; k++)
    sweep_axis_free(&sweep->own[k].values);
  trm_free(sweep->variant);
  trm_free(sweep->own);
}
