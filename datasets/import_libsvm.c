/* Sparse rows in the text format of SVMlight and LIBSVM (Joachims 1999; Chang & Lin 2011):
 *   label index:value index:value ...   # comment
 * Indices count from 1 in the file and from 0 in the data set; they must ascend. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/file_reader.h"
#include "datasets/import.h"

#define CHUNK_ENTRIES ((size_t)1 << 20)

struct libsvm {
  struct trm_reader *reader;
  bool normalize;
  char *label, *entries;              /* of the current row, owned by the reader */
  int64_t starts[TRM_IMPORT_ROWS + 1]; /* of the rows gathered */
  int32_t *columns;                   /* (entries gathered) */
  float *values;
  size_t columns_capacity, values_capacity;
  size_t features;                    /* largest index so far */
};

static int libsvm_open(void *impl, const char *path)
{
  return trm_reader_open(&((struct libsvm *)impl)->reader, path);
}

static void libsvm_close(void *impl)
{
  struct libsvm *file = impl;
  trm_reader_close(file->reader);
  file->reader = NULL;
}

static struct trm_reader *libsvm_file(const void *impl)
{
  return ((const struct libsvm *)impl)->reader;
}

/* Steps to the next line that holds a row; cuts it into its label and its entries. */
static int libsvm_next(void *impl, const char **label)
{
  struct libsvm *file = impl;
  char *line;
  size_t length;
  *label = NULL;
  do {
    if (trm_reader_at_limit(file->reader))
      return TRM_OK;
    TRM_CHECK(trm_reader_line(file->reader, &line, &length));
    if (!line)
      return TRM_OK;
    line[strcspn(line, "#")] = '\0';
    line += strspn(line, " \t");
  } while (!*line);
  char *end = line + strcspn(line, " \t");
  file->entries = *end ? end + 1 : end;
  *end = '\0';
  if (strchr(line, ':'))
    return trm_reader_error(file->reader, "the row begins with \"%s\" in place of a label", line);
  if (strchr(line, ','))
    return trm_reader_error(file->reader, "several labels in one row (\"%s\") are not supported", line);
  *label = file->label = line;
  return TRM_OK;
}

static int libsvm_label_error(const void *impl, const char *what)
{
  const struct libsvm *file = impl;
  return trm_reader_error(file->reader, "label \"%s\" %s", file->label, what);
}

static size_t libsvm_values(const void *impl)
{
  (void)impl;
  return 1;
}

static int libsvm_values_parse(const void *impl, float *values)
{
  const struct libsvm *file = impl;
  const char *wrong = trm_parse_float(file->label, values);
  return wrong ? libsvm_label_error(impl, wrong) : TRM_OK;
}

/* Parses "index:value" at *text and steps over it. before: the index of the entry before it. */
static int libsvm_entry_parse(const struct trm_reader *reader, char **text, int64_t before, int32_t *column,
                              float *value)
{
  char *token = *text, *at = token, *end = token;
  while (*end && *end != ' ' && *end != '\t')
    end++;
  *text = *end ? end + 1 : end;
  *end = '\0';
  if (*token == 'q' && !strncmp(token, "qid:", 4))
    return trm_reader_error(reader, "\"%s\": query groups are not supported", token);
  int64_t index = 0;
  while (*at >= '0' && *at <= '9' && index <= INT32_MAX)
    index = 10 * index + (*at++ - '0');
  if (index > INT32_MAX)
    return trm_reader_error(reader, "\"%s\": the index is too large", token);
  if (at == token || *at != ':')
    return trm_reader_error(reader, "\"%s\" is not index:value", token);
  if (index == 0)
    return trm_reader_error(reader, "\"%s\": indices begin at 1", token);
  if (index == before)
    return trm_reader_error(reader, "\"%s\": index %lld is there twice", token, (long long)index);
  if (index < before)
    return trm_reader_error(reader, "\"%s\": index %lld comes after %lld; they must ascend", token, (long long)index,
                            (long long)before);
  const char *wrong = trm_parse_float(at + 1, value);
  if (wrong)
    return trm_reader_error(reader, "\"%s\": the value %s", token, wrong);
  *column = (int32_t)(index - 1);
  return TRM_OK;
}

static void libsvm_row_normalize(float *values, size_t n)
{
  double sum = 0;
  for (size_t i = 0; i < n; i++)
    sum += (double)values[i] * values[i];
  if (sum > 0) /* a row of zeros stays one */
    for (size_t i = 0; i < n; i++)
      values[i] = (float)(values[i] / sqrt(sum));
}

static int libsvm_add(void *impl, struct trm_data_rows *rows, bool *full)
{
  struct libsvm *file = impl;
  const size_t first = (size_t)file->starts[rows->rows];
  size_t entry = first;
  int64_t before = 0;
  for (char *text = file->entries + strspn(file->entries, " \t"); *text; text += strspn(text, " \t")) {
    file->columns = trm_grow(file->columns, &file->columns_capacity, entry, entry + 1, sizeof(int32_t), "indices");
    file->values = trm_grow(file->values, &file->values_capacity, entry, entry + 1, sizeof(float), "values");
    TRM_CHECK(libsvm_entry_parse(file->reader, &text, before, &file->columns[entry], &file->values[entry]));
    before = file->columns[entry++] + (int64_t)1;
  }
  file->starts[rows->rows + 1] = (int64_t)entry;
  if ((size_t)before > file->features)
    file->features = (size_t)before;
  if (file->normalize && entry > first)
    libsvm_row_normalize(file->values + first, entry - first);
  rows->starts = file->starts;
  rows->columns = file->columns;
  rows->values = file->values;
  *full = entry >= CHUNK_ENTRIES;
  return TRM_OK;
}

static int libsvm_describe(void *impl, struct trm_data_spec *spec, struct trm_comm *comm)
{
  (void)impl;
  (void)comm;
  spec->kind = TRM_DATA_CSR;
  spec->element = TRM_ELEMENT_FLOAT;
  spec->shape.dims = 1;
  return TRM_OK;
}

static size_t libsvm_features(const void *impl)
{
  return ((const struct libsvm *)impl)->features;
}

int trm_import_libsvm(const struct trm_import_request *request)
{
  static const struct trm_row_format format = {
    .name = "libsvm",
    .open = libsvm_open,
    .close = libsvm_close,
    .file = libsvm_file,
    .next = libsvm_next,
    .label_error = libsvm_label_error,
    .values = libsvm_values,
    .values_parse = libsvm_values_parse,
    .add = libsvm_add,
    .describe = libsvm_describe,
    .features = libsvm_features,
  };
  struct libsvm *file = trm_alloc(sizeof *file, "libsvm rows");
  file->normalize = request->normalize;
  const int status = trm_import_rows(request, &format, file);
  trm_free(file->columns);
  trm_free(file->values);
  trm_free(file);
  return status;
}
