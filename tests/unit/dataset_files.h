/* Small data sets of every kind for tests; each row contains its number. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "datasets/format.h"

enum made_kind { MADE_BYTES, MADE_FLOATS, MADE_VALUES, MADE_CSR, MADE_TOKENS, MADE_WIDE_TOKENS, MADE_KINDS };

#define MADE_CLASSES 7
#define MADE_FEATURES 1000 /* csr */
#define MADE_VOCABULARY 300
#define MADE_WIDE_VOCABULARY 100000
#define MADE_SCALE 0.5f
#define MADE_SHIFT -3.0f

/* Hashes a position; cell values derive from it. */
static inline uint32_t made_mix(uint64_t i, uint64_t j)
{
  uint64_t h = i * UINT64_C(0x9e3779b97f4a7c15) + j * UINT64_C(0xbf58476d1ce4e5b9) + 1;
  h ^= h >> 31;
  h *= UINT64_C(0x94d049bb133111eb);
  return (uint32_t)(h >> 32);
}

/* Element j of row i, as stored. A row's number is in its first four bytes (bytes) or its first float. */
static inline uint8_t made_byte(uint64_t i, size_t j)
{
  return j < 4 ? (uint8_t)(i >> 8 * j) : (uint8_t)made_mix(i, j);
}
static inline float made_float(uint64_t i, size_t j)
{
  return j == 0 ? (float)i : (float)(int32_t)made_mix(i, j) * 0x1p-20f;
}
static inline int32_t made_class(uint64_t i)
{
  return (int32_t)(made_mix(i, 77) % MADE_CLASSES);
}
static inline int32_t made_token(enum made_kind kind, uint64_t i)
{
  return (int32_t)(made_mix(i, 5) % (kind == MADE_TOKENS ? MADE_VOCABULARY : MADE_WIDE_VOCABULARY));
}
/* Number of entries of csr row i: 0 to 8, columns ascending. Value 0 is the row's number. */
static inline int made_entries(uint64_t i)
{
  return (int)(i % 9);
}
static inline int32_t made_column(uint64_t i, int e)
{
  return (int32_t)(e * 110 + (int)(made_mix(i, (uint64_t)e) % 110));
}

static inline void made_spec(enum made_kind kind, size_t width, int compress, struct trm_data_spec *spec)
{
  static const char *const names[MADE_CLASSES] = {"zero", "one", "two", "three", "four", "five", "s\xc3\xa9ven"};
  *spec = (struct trm_data_spec){
    .kind = kind == MADE_BYTES                                   ? TRM_DATA_IMAGE
            : kind == MADE_CSR                                   ? TRM_DATA_CSR
            : kind == MADE_TOKENS || kind == MADE_WIDE_TOKENS    ? TRM_DATA_TOKENS
                                                                 : TRM_DATA_VECTOR,
    .element = kind == MADE_BYTES ? TRM_ELEMENT_UINT8 : TRM_ELEMENT_FLOAT,
    .shape = {.dims = 1, .size = {kind == MADE_CSR ? MADE_FEATURES : width}},
    .scale = MADE_SCALE, .shift = MADE_SHIFT,
    .target = kind == MADE_VALUES ? TRM_TARGET_VALUE : TRM_TARGET_CLASS,
    .classes = kind == MADE_VALUES ? 2 : MADE_CLASSES,
    .class_names = kind == MADE_BYTES || kind == MADE_CSR ? names : NULL,
    .vocabulary = kind == MADE_TOKENS ? MADE_VOCABULARY : MADE_WIDE_VOCABULARY,
    .source = "made for a test", .compress = compress,
  };
  if (kind == MADE_BYTES)
    spec->shape = (struct trm_shape){.dims = 3, .size = {1, 2, width / 2}};
}

/* Appends rows [first, first + rows). */
static inline int made_append(struct trm_data_writer *writer, enum made_kind kind, size_t width, uint64_t first,
                              size_t rows)
{
  struct trm_data_rows all = {.rows = rows};
  uint8_t *bytes = calloc(rows * width + 1, 1);
  float *floats = calloc(rows * width + 1, sizeof *floats), *values = calloc(rows * 8 + 1, sizeof *values);
  int32_t *columns = calloc(rows * 8 + 1, sizeof *columns), *classes = calloc(rows + 1, sizeof *classes);
  int64_t *starts = calloc(rows + 1, sizeof *starts);
  for (size_t i = 0; i < rows; i++) {
    const uint64_t row = first + i;
    for (size_t j = 0; j < width; j++) {
      bytes[i * width + j] = made_byte(row, j);
      floats[i * width + j] = made_float(row, j);
    }
    classes[i] = kind == MADE_TOKENS || kind == MADE_WIDE_TOKENS ? made_token(kind, row) : made_class(row);
    starts[i + 1] = starts[i];
    for (int e = 0; e < made_entries(row); e++, starts[i + 1]++) {
      columns[starts[i + 1]] = made_column(row, e);
      values[starts[i + 1]] = made_float(row, (size_t)e);
    }
  }
  all.bytes = bytes;
  all.floats = floats;
  all.starts = starts;
  all.columns = columns;
  all.values = values;
  all.tokens = all.target_class = classes;
  float *targets = calloc(2 * rows + 1, sizeof *targets);
  for (size_t i = 0; i < 2 * rows; i++)
    targets[i] = made_float(first + i / 2, 50 + i % 2);
  all.target_value = targets;
  const int status = trm_data_writer_append(writer, &all);
  free(bytes);
  free(floats);
  free(values);
  free(columns);
  free(classes);
  free(starts);
  free(targets);
  return status;
}

/* Writes a file with `rows` rows (of tokens: tokens) in train and `test` in test (0: no such split), appended in uneven
 * parts. */
static inline int made_file(const char *path, enum made_kind kind, size_t width, uint64_t rows, uint64_t test,
                            int compress)
{
  struct trm_data_spec spec;
  struct trm_data_writer *writer;
  made_spec(kind, width, compress, &spec);
  TRM_CHECK(trm_data_writer_open(&writer, path, &spec));
  int status = TRM_OK;
  for (int split = 0; split < (test ? 2 : 1) && status == TRM_OK; split++) {
    status = trm_data_writer_split(writer, split ? "test" : "train");
    const uint64_t all = split ? test : rows;
    size_t part = 1;
    for (uint64_t at = 0; at < all && status == TRM_OK; at += part, part = part * 3 % 1000 + 1) {
      part = all - at < part ? (size_t)(all - at) : part;
      status = made_append(writer, kind, width, at, part);
    }
  }
  if (status == TRM_OK)
    return trm_data_writer_finish(writer, 0);
  trm_data_writer_abandon(writer);
  return status;
}

/* Returns true if row `at` of the batch is row `row` of the file. Rows of tokens start `stride` tokens apart. */
static inline bool made_is_row_strided(enum made_kind kind, size_t width, size_t context, size_t stride,
                                       const struct trm_host_batch *batch, size_t at, uint64_t row)
{
  bool same = true;
  if (kind == MADE_TOKENS || kind == MADE_WIDE_TOKENS) {
    for (size_t t = 0; t < context; t++)
      same = same && batch->tokens[at * context + t] == made_token(kind, row * stride + t) &&
             batch->target_class[at * context + t] == made_token(kind, row * stride + t + 1);
    return same;
  }
  if (kind == MADE_CSR) {
    same = batch->starts[at + 1] - batch->starts[at] == made_entries(row);
    for (int e = 0; same && e < made_entries(row); e++)
      same = batch->columns[batch->starts[at] + e] == made_column(row, e) &&
             batch->values[batch->starts[at] + e] == made_float(row, (size_t)e);
  }
  for (size_t j = 0; kind != MADE_CSR && j < width && same; j++)
    same = batch->dense[at * width + j] ==
           (kind == MADE_BYTES ? MADE_SCALE * (float)made_byte(row, j) + MADE_SHIFT : made_float(row, j));
  if (kind == MADE_VALUES)
    return same && batch->target_value[2 * at] == made_float(row, 50) &&
           batch->target_value[2 * at + 1] == made_float(row, 51);
  return same && batch->target_class[at] == made_class(row);
}

static inline bool made_is_row(enum made_kind kind, size_t width, size_t context, const struct trm_host_batch *batch,
                               size_t at, uint64_t row)
{
  return made_is_row_strided(kind, width, context, context, batch, at, row);
}

/* Returns the number stored in row `at` of a batch, for kinds that store it. */
static inline uint64_t made_number(enum made_kind kind, size_t width, const struct trm_host_batch *batch, size_t at)
{
  uint64_t number = 0;
  if (kind == MADE_FLOATS || kind == MADE_VALUES)
    return (uint64_t)batch->dense[at * width];
  for (size_t j = 0; j < 4; j++)
    number |= (uint64_t)((batch->dense[at * width + j] - MADE_SHIFT) / MADE_SCALE) << 8 * j;
  return number;
}

/* Makes a temporary folder of this process; made_folder_remove removes it with its files. */
static inline void made_folder(char path[256])
{
  const char *base = getenv("TMPDIR");
  snprintf(path, 256, "%s/trireme-test-XXXXXX", base && strlen(base) < 200 ? base : "/tmp");
  if (!mkdtemp(path))
    path[0] = '\0';
}
static inline void made_folder_remove(const char *path)
{
  char command[400];
  snprintf(command, sizeof command, "rm -rf '%s'", path);
  if (path[0] && system(command) != 0)
    fprintf(stderr, "%s is still there\n", path);
}
