#include "datasets/csv_reader.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/file_reader.h"

int csv_reader_open(struct csv_reader *reader, const char *path)
{
  reader->line = reader->fields = 0;
  reader->only = CSV_ALL_FIELDS;
  return trm_reader_open(&reader->file, path);
}

void csv_reader_close(struct csv_reader *reader)
{
  trm_reader_close(reader->file);
  reader->file = NULL;
}

void csv_reader_free(struct csv_reader *reader)
{
  trm_free(reader->text);
  trm_free(reader->field);
}

int csv_reader_error(const struct csv_reader *reader, const char *what)
{
  return trm_error(TRM_FAILED, "%s:%zu: %s", trm_reader_path(reader->file), reader->line, what);
}

/* Returns the most frequent separator of a record outside of quotes; a comma if there is none. */
static char csv_separator_detect(const char *text)
{
  static const char separators[] = {',', ';', '\t'};
  size_t count[sizeof separators] = {0}, best = 0;
  bool quoted = false;
  for (; *text; text++) {
    quoted ^= *text == '"';
    for (size_t i = 0; i < sizeof separators; i++)
      count[i] += !quoted && *text == separators[i];
  }
  for (size_t i = 1; i < sizeof separators; i++)
    if (count[i] > count[best])
      best = i;
  return separators[best];
}

/* White space around fields; a tab that separates them is none. */
static bool csv_is_space(const struct csv_reader *reader, char c)
{
  return c == ' ' || (c == '\t' && reader->separator != '\t');
}

static void csv_field_add(struct csv_reader *reader, char *begin)
{
  if (reader->fields == reader->field_capacity)
    reader->field = trm_grow(reader->field, &reader->field_capacity, reader->fields, reader->fields + 1,
                             sizeof *reader->field, "csv fields");
  reader->field[reader->fields++] = begin;
}

/* Unquotes the field that begins after the quote at `at`. Returns its end, after the closing quote. *bad: there is
 * none. */
static char *csv_field_unquote(struct csv_reader *reader, char *at, bool *bad)
{
  char *to = ++at;
  csv_field_add(reader, to);
  for (; *at && (*at != '"' || at[1] == '"'); *to++ = *at++)
    at += *at == '"';
  *bad |= !*at;
  at += *at == '"';
  *to = '\0';
  return at;
}

/* Trims the text from `begin` to `end` and makes it a field. */
static void csv_field_end(const struct csv_reader *reader, size_t field, char *begin, char *end)
{
  while (csv_is_space(reader, *begin))
    begin++;
  while (end > begin && csv_is_space(reader, end[-1]))
    end--;
  *end = '\0';
  reader->field[field] = begin;
}

/* Counts the fields of a record without quotes, of `length` bytes, and finds the only one that is wanted. */
static void csv_plain_find(struct csv_reader *reader, char *at, size_t length)
{
  const char separator = reader->separator;
  size_t separators = 0;
  for (size_t i = 0; i < length; i++)
    separators += at[i] == separator;
  reader->fields = separators + 1;
  reader->field = trm_grow(reader->field, &reader->field_capacity, 0, reader->fields, sizeof *reader->field,
                           "csv fields");
  if (reader->only >= reader->fields)
    return;
  char *end = at + length, *begin = end;
  if (reader->only == separators) {
    while (begin > at && begin[-1] != separator)
      begin--;
  } else {
    begin = at;
    for (size_t i = 0; i < reader->only; i++)
      begin = (char *)memchr(begin, separator, (size_t)(end - begin)) + 1;
    end = memchr(begin, separator, (size_t)(end - begin));
  }
  csv_field_end(reader, reader->only, begin, end);
}

/* Cuts a record without quotes, of `length` bytes, into its fields. */
static void csv_plain_cut(struct csv_reader *reader, char *at, size_t length)
{
  char *const all = at + length;
  reader->fields = 0;
  for (char *next; at; at = next) {
    char *end = memchr(at, reader->separator, (size_t)(all - at));
    next = end ? end + 1 : NULL;
    csv_field_add(reader, at);
    csv_field_end(reader, reader->fields - 1, at, end ? end : all);
  }
}

/* Cuts a record into its fields. *bad: a quote is misplaced. */
static void csv_quoted_cut(struct csv_reader *reader, char *at, bool *bad)
{
  const char separator = reader->separator;
  reader->fields = 0;
  for (;;) {
    while (csv_is_space(reader, *at))
      at++;
    if (*at == '"') {
      at = csv_field_unquote(reader, at, bad);
      while (csv_is_space(reader, *at))
        at++;
      *bad |= *at && *at != separator;
      if (!*at)
        return;
      at++;
      continue;
    }
    char *const begin = at;
    csv_field_add(reader, begin);
    while (*at != separator && *at) {
      *bad |= *at == '"';
      at++;
    }
    const bool last = !*at;
    char *end = at++;
    while (end > begin && csv_is_space(reader, end[-1]))
      end--;
    *end = '\0';
    if (last)
      return;
  }
}

/* Reads the lines of a record: one, unless a quoted field continues. *record: NULL at the end of the file. *plain: its
 * bytes if it has no quotes, else 0. */
static int csv_lines_read(struct csv_reader *reader, char **record, size_t *plain)
{
  char *line;
  size_t length, used = 0;
  bool open = false; /* a quoted field continues in the next line */
  *plain = 0;
  *record = NULL;
  do {
    if (!open && trm_reader_at_limit(reader->file))
      return TRM_OK;
    TRM_CHECK(trm_reader_line(reader->file, &line, &length));
    if (!line)
      return open ? csv_reader_error(reader, "a quoted field is not closed") : TRM_OK;
    if (!open)
      reader->line = trm_reader_line_number(reader->file);
    if (!open && reader->line == 1 && !strncmp(line, "\xef\xbb\xbf", 3)) { /* byte order mark */
      line += 3;
      length -= 3;
    }
    const char *const quote = memchr(line, '"', length);
    for (const char *c = quote; c; c = strchr(c + 1, '"'))
      open = !open;
    if (!open && !used) {
      *record = line;
      *plain = quote ? 0 : length;
      return TRM_OK;
    }
    reader->text = trm_grow(reader->text, &reader->text_capacity, used, used + length + 2, 1, "a csv record");
    memcpy(reader->text + used, line, length + 1);
    used += length;
    if (open)
      reader->text[used++] = '\n';
  } while (open);
  *record = reader->text;
  return TRM_OK;
}

int csv_record_next(struct csv_reader *reader, bool *found)
{
  char *record;
  size_t plain;
  bool bad = false;
  *found = false;
  do {
    TRM_CHECK(csv_lines_read(reader, &record, &plain));
    if (!record)
      return TRM_OK;
  } while (!record[strspn(record, reader->separator == '\t' ? " " : " \t")]);
  if (!reader->separator)
    reader->separator = csv_separator_detect(record);
  if (plain && reader->only != CSV_ALL_FIELDS)
    csv_plain_find(reader, record, plain);
  else if (plain)
    csv_plain_cut(reader, record, plain);
  else
    csv_quoted_cut(reader, record, &bad);
  *found = true;
  return bad ? csv_reader_error(reader, "a quote in the middle of a field") : TRM_OK;
}
