/* Writes options as a configuration file, and as the table of `trireme options`. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/options.h"
#include "core/options_private.h"
#include "core/document.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

static const char *const type_name[] = {
  [TRM_OPTION_BOOL] = "bool",   [TRM_OPTION_INT] = "int",   [TRM_OPTION_REAL] = "real",
  [TRM_OPTION_BYTES] = "bytes", [TRM_OPTION_TEXT] = "text", [TRM_OPTION_CHOICE] = "choice",
};

/* Returns true if this YAML word needs no quotes. */
static bool options_show_is_plain(const char *text)
{
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  if (!*text || (!strchr(letters, *text) && *text != '/' && *text != '.'))
    return false;
  text += strspn(text, letters);
  while (*text && strchr("_-./+", *text))
    text += 1 + strspn(text + 1, letters);
  return *text == '\0' && text[-1] != '.'; /* "..." alone ends a document */
}

/* Returns the UTF-8 character at *s, which is valid, and advances *s. */
static uint32_t options_show_next_char(const unsigned char **s)
{
  const unsigned char *p = *s;
  const int extra = p[0] < 0x80 ? 0 : p[0] < 0xe0 ? 1 : p[0] < 0xf0 ? 2 : 3;
  uint32_t code = extra == 0 ? p[0] : p[0] & (0x3fu >> extra);
  for (int i = 1; i <= extra; i++)
    code = code << 6 | (p[i] & 0x3fu);
  *s = p + 1 + extra;
  return code;
}

static void options_show_write_text(FILE *stream, const char *text)
{
  if (options_show_is_plain(text)) {
    fputs(text, stream);
    return;
  }
  const unsigned char *s = (const unsigned char *)text;
  fputc('"', stream);
  while (*s) {
    const unsigned char *from = s;
    const uint32_t code = options_show_next_char(&s);
    if (code == '"' || code == '\\')
      fprintf(stream, "\\%c", (char)code);
    else if (code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 || code == 0xfeff ||
             (code >= 0xfffe && code <= 0xffff)) /* refused or folded by YAML parsers */
      fprintf(stream, "\\u%04" PRIx32, code);
    else
      fwrite(from, 1, (size_t)(s - from), stream);
  }
  fputc('"', stream);
}

static void options_show_write_value(const struct trm_options *options, const struct trm_option *row, FILE *stream)
{
  const void *at = (const char *)options + row->offset;
  char text[32];
  switch (row->type) {
  case TRM_OPTION_BOOL:
    fputs(*(const bool *)at ? "yes" : "no", stream);
    break;
  case TRM_OPTION_INT:
  case TRM_OPTION_BYTES:
    fprintf(stream, "%" PRId64, *(const int64_t *)at);
    break;
  case TRM_OPTION_REAL:
    fputs(trm_number_text(*(const double *)at, text), stream);
    break;
  case TRM_OPTION_TEXT:
    options_show_write_text(stream, *(char *const *)at);
    break;
  case TRM_OPTION_CHOICE:
    options_show_write_text(stream, row->choices[*(const int *)at]);
    break;
  }
}

char *trm_options_value_text(const struct trm_options *options, const struct trm_option *row)
{
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  if (!stream)
    trm_abort_on_error(trm_error(TRM_FAILED, "no memory for a text"));
  options_show_write_value(options, row, stream);
  fclose(stream);
  return text;
}

int trm_options_write(const struct trm_options *options, FILE *stream, const char *head)
{
  while (head && *head) {
    const size_t length = strcspn(head, "\n");
    fprintf(stream, "# %.*s\n", (int)length, head);
    head += length + (head[length] == '\n');
  }
  const struct trm_option *first = trm_option_table; /* of the section */
  for (const struct trm_option *row = first; row->name; row++) {
    const size_t length = trm_section_length(row->name);
    if (trm_section_length(first->name) != length || memcmp(first->name, row->name, length) != 0)
      first = row;
    const bool nested = first->name[length] == '.'; /* false: the section is also an option (model, model.init) */
    if (nested && row == first)
      fprintf(stream, "%.*s:\n", (int)length, row->name);
    fprintf(stream, nested ? "  %s: " : "%s: ", row->name + (nested ? length + 1 : 0));
    options_show_write_value(options, row, stream);
    fputc('\n', stream);
  }
  if (ferror(stream))
    return trm_error(TRM_FAILED, "the configuration could not be written");
  return TRM_OK;
}

/* Returns "1..", "0..1", "yes|no"; "" for bytes, whose limits are omitted. Owned by the caller. */
static char *options_show_limits(const struct trm_option *row)
{
  char low[32] = "", high[32] = "";
  if (row->choices)
    return trm_option_choices_text(row);
  if (row->type != TRM_OPTION_BYTES && isfinite(row->low))
    trm_number_text(row->low, low);
  if (row->type != TRM_OPTION_BYTES && isfinite(row->high))
    trm_number_text(row->high, high);
  return trm_format("%s%s%s", low, *low || *high ? ".." : "", high);
}

int trm_options_print(FILE *stream, const char *section)
{
  enum { NAME, DEFAULT, LIMITS, COLUMNS };
  int width[COLUMNS] = {0};
  if (section)
    TRM_CHECK(trm_section_check(section));
  for (int pass = 0; pass < 2; pass++) { /* measures, then prints */
    for (const struct trm_option *row = trm_option_table; row->name; row++) {
      const size_t length = trm_section_length(row->name);
      if (section && (strlen(section) != length || memcmp(section, row->name, length) != 0))
        continue;
      char *limits = options_show_limits(row);
      const char *const column[COLUMNS] = {row->name, row->default_text, limits};
      for (int c = 0; c < COLUMNS && pass == 0; c++) {
        const int n = (int)strlen(column[c]);
        if (n > width[c] && (c != LIMITS || n <= 32)) /* a long list of choices exceeds the column */
          width[c] = n;
      }
      if (pass == 1)
        fprintf(stream, "%-*s  %-6s  %-*s  %-*s  %s\n", width[NAME], row->name, type_name[row->type], width[DEFAULT],
                row->default_text, width[LIMITS], limits, row->help);
      trm_free(limits);
    }
  }
  if (ferror(stream))
    return trm_error(TRM_FAILED, "the options could not be printed");
  return TRM_OK;
}
