/* Options written: as a configuration file, and as the table for `trireme options`. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/options.h"
#include "core/options_private.h"
#include "core/document.h"
#include "core/memory.h"
#include "core/status.h"

static const char *options_show_type(enum trm_option_type type)
{
  switch (type) {
  case TRM_OPTION_BOOL:
    return "bool";
  case TRM_OPTION_INT:
    return "int";
  case TRM_OPTION_REAL:
    return "real";
  case TRM_OPTION_BYTES:
    return "bytes";
  case TRM_OPTION_TEXT:
    return "text";
  case TRM_OPTION_CHOICE:
    return "choice";
  }
  return "";
}

/* Whether this is a YAML word that needs no quotes. */
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
             (code >= 0xfffe && code <= 0xffff)) /* refused or folded by YAML readers */
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

int trm_options_write(const struct trm_options *options, FILE *stream, const char *head)
{
  while (head && *head) {
    const size_t length = strcspn(head, "\n");
    fprintf(stream, "# %.*s\n", (int)length, head);
    head += length + (head[length] == '\n');
  }
  const char *section = "";
  size_t section_length = 0;
  bool is_option = false; /* the section's own name, too: model, model.init */
  for (const struct trm_option *row = trm_option_table; row->name; row++) {
    const size_t length = trm_section_length(row->name);
    const bool begins = length != section_length || memcmp(section, row->name, length) != 0;
    const char *key = row->name;
    if (begins)
      is_option = row->name[length] == '\0';
    if (!is_option) {
      key += length + 1;
      if (begins)
        fprintf(stream, "%.*s:\n", (int)length, row->name);
      fputs("  ", stream);
    }
    section = row->name;
    section_length = length;
    fprintf(stream, "%s: ", key);
    options_show_write_value(options, row, stream);
    fputc('\n', stream);
  }
  if (ferror(stream))
    return trm_error(TRM_FAILED, "the configuration could not be written");
  return TRM_OK;
}

/* "1..", "0..1", "yes|no" */
static void options_show_format_limits(const struct trm_option *row, char *text, size_t bytes)
{
  char low[32] = "", high[32] = "";
  text[0] = '\0';
  if (row->choices) {
    char *choices = trm_option_choices_text(row);
    snprintf(text, bytes, "%s", choices);
    trm_free(choices);
  } else if (row->type == TRM_OPTION_BYTES) { /* the limits are not worth a column */
    return;
  } else if (isfinite(row->low) || isfinite(row->high)) {
    snprintf(text, bytes, "%s..%s", isfinite(row->low) ? trm_number_text(row->low, low) : "",
             isfinite(row->high) ? trm_number_text(row->high, high) : "");
  }
}

int trm_options_print(FILE *stream, const char *section)
{
  if (section)
    TRM_CHECK(trm_section_check(section));
  int name_width = 0, default_width = 0, limits_width = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (const struct trm_option *row = trm_option_table; row->name; row++) {
      const size_t length = trm_section_length(row->name);
      if (section && (strlen(section) != length || memcmp(section, row->name, length) != 0))
        continue;
      char limits[128];
      options_show_format_limits(row, limits, sizeof limits);
      const int widths[3] = {(int)strlen(row->name), (int)strlen(row->default_text), (int)strlen(limits)};
      if (pass == 0) {
        name_width = widths[0] > name_width ? widths[0] : name_width;
        default_width = widths[1] > default_width ? widths[1] : default_width;
        if (widths[2] > limits_width && widths[2] <= 32) /* a long list of choices takes more than the column */
          limits_width = widths[2];
      } else {
        fprintf(stream, "%-*s  %-6s  %-*s  %-*s  %s\n", name_width, row->name, options_show_type(row->type),
                default_width, row->default_text, limits_width, limits, row->help);
      }
    }
  }
  if (ferror(stream))
    return trm_error(TRM_FAILED, "the options could not be printed");
  return TRM_OK;
}
