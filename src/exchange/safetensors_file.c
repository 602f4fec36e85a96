/* Safetensors files: the fully validated header, and tensor values as floats. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/float16.h"
#include "core/memory.h"
#include "core/security.h"
#include "core/status.h"
#include "safetensors.h"

static const struct {
  const char *name;
  enum safetensors_type type;
  unsigned bytes;
} types[] = {
  {"F32", SAFETENSORS_F32, 4},     {"F64", SAFETENSORS_F64, 8},     {"F16", SAFETENSORS_F16, 2},
  {"BF16", SAFETENSORS_BF16, 2},   {"I64", SAFETENSORS_OTHER, 8},   {"I32", SAFETENSORS_OTHER, 4},
  {"I16", SAFETENSORS_OTHER, 2},   {"I8", SAFETENSORS_OTHER, 1},    {"U64", SAFETENSORS_OTHER, 8},
  {"U32", SAFETENSORS_OTHER, 4},   {"U16", SAFETENSORS_OTHER, 2},   {"U8", SAFETENSORS_OTHER, 1},
  {"BOOL", SAFETENSORS_OTHER, 1},  {"F8_E4M3", SAFETENSORS_OTHER, 1}, {"F8_E5M2", SAFETENSORS_OTHER, 1},
};
enum { TYPES = sizeof types / sizeof *types };

/* -- the header */

static int st_damaged(const struct safetensors *file, const char *name, const char *problem)
{
  return trm_error(TRM_FAILED, "%s: tensor %.100s: %s", file->path, name, problem);
}

/* Parses a JSON integer. */
static bool st_parse_number(const struct trm_node *node, uint64_t *value)
{
  if (node->kind != TRM_NODE_SCALAR || !*node->text || node->text[strspn(node->text, "0123456789")])
    return false;
  errno = 0;
  *value = strtoull(node->text, NULL, 10);
  return errno == 0;
}

static int st_read_shape(const struct safetensors *file, const struct trm_node *shape, struct safetensors_tensor *t)
{
  t->count = 1;
  for (const struct trm_node *size = shape->first; size; size = size->next) {
    if (t->dims == SAFETENSORS_MAX_DIMS || !st_parse_number(size, &t->size[t->dims]))
      return st_damaged(file, t->name, "its shape is no list of up to 8 sizes");
    if (__builtin_mul_overflow(t->count, t->size[t->dims++], &t->count))
      return st_damaged(file, t->name, "its shape is larger than any memory");
  }
  return TRM_OK;
}

static int st_read_tensor(const struct safetensors *file, const struct trm_node *node, uint64_t data_bytes,
                          struct safetensors_tensor *t)
{
  *t = (struct safetensors_tensor){.name = node->key};
  const struct trm_node *type = trm_node_get(node, "dtype"), *shape = trm_node_get(node, "shape");
  const struct trm_node *offsets = trm_node_get(node, "data_offsets");
  if (!type || type->kind != TRM_NODE_SCALAR || !shape || shape->kind != TRM_NODE_LIST || !offsets)
    return st_damaged(file, t->name, "dtype, shape or data_offsets is missing in the header");
  TRM_CHECK(st_read_shape(file, shape, t));
  const struct trm_node *begin = offsets->first, *end = begin ? begin->next : NULL;
  if (!end || end->next || !st_parse_number(begin, &t->begin) || !st_parse_number(end, &t->end) || t->begin > t->end)
    return st_damaged(file, t->name, "its data_offsets are no [BEGIN, END]");
  if (t->end > data_bytes)
    return st_damaged(file, t->name, "lies beyond the end of the file");
  int known = 0;
  while (known < TYPES && strcmp(type->text, types[known].name) != 0)
    known++;
  if (known == TYPES)
    return trm_error(TRM_USAGE, "%s: tensor %.100s: the type %.20s is not known", file->path, t->name, type->text);
  t->type = types[known].type;
  t->type_name = types[known].name;
  uint64_t bytes;
  if (__builtin_mul_overflow(t->count, (uint64_t)types[known].bytes, &bytes) || bytes != t->end - t->begin)
    return st_damaged(file, t->name, "its data_offsets do not agree with its shape and type");
  return TRM_OK;
}

static int st_by_offset(const void *a, const void *b)
{
  const struct safetensors_tensor *x = a, *y = b;
  if (x->begin != y->begin)
    return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

static int st_by_name(const void *a, const void *b)
{
  return strcmp(((const struct safetensors_tensor *)a)->name, ((const struct safetensors_tensor *)b)->name);
}

/* Checks that every byte belongs to exactly one tensor, and that names differ. */
static int st_check_tensors(const struct safetensors *file, uint64_t data_bytes)
{
  struct safetensors_tensor *t = file->tensor;
  qsort(t, file->tensors, sizeof *t, st_by_name);
  for (size_t i = 1; i < file->tensors; i++)
    if (strcmp(t[i - 1].name, t[i].name) == 0)
      return st_damaged(file, t[i].name, "stands twice in the header");
  qsort(t, file->tensors, sizeof *t, st_by_offset);
  uint64_t end = 0;
  for (size_t i = 0; i < file->tensors; i++) {
    if (t[i].begin < end)
      return st_damaged(file, t[i].name, "its bytes are another tensor's, too");
    if (t[i].begin > end)
      return st_damaged(file, t[i].name, "the bytes before it belong to no tensor");
    end = t[i].end;
  }
  if (end != data_bytes)
    return trm_error(TRM_FAILED, "%s: the last %" PRIu64 " bytes belong to no tensor", file->path, data_bytes - end);
  return TRM_OK;
}

static int st_parse_header(struct safetensors *file, const char *text, size_t bytes, uint64_t data_bytes)
{
  if (text[0] != '{')
    return trm_error(TRM_FAILED, "%s: no safetensors file: its header is no JSON object", file->path);
  if (trm_document_parse(text, bytes, file->path, &file->header) != TRM_OK)
    return trm_error_context(TRM_FAILED, "the header of a safetensors file");
  size_t capacity = 0;
  for (const struct trm_node *node = file->header->first; node; node = node->next)
    capacity++;
  file->tensor = trm_alloc((capacity ? capacity : 1) * sizeof *file->tensor, "tensors of a file");
  for (const struct trm_node *node = file->header->first; node; node = node->next)
    if (strcmp(node->key, "__metadata__") != 0)
      TRM_CHECK(st_read_tensor(file, node, data_bytes, &file->tensor[file->tensors++]));
  return st_check_tensors(file, data_bytes);
}

static int st_read_error(const struct safetensors *file)
{
  const char *failed = errno == EBADMSG ? "was changed after it was encrypted" : strerror(errno);
  return trm_error(TRM_FAILED, "%s: %s", file->path, ferror(file->stream) ? failed : "ends too early");
}

static uint64_t st_load_le(const unsigned char *bytes, int count)
{
  uint64_t value = 0;
  for (int i = 0; i < count; i++)
    value |= (uint64_t)bytes[i] << 8 * i;
  return value;
}

int safetensors_open(struct safetensors *file, const char *path)
{
  *file = (struct safetensors){.path = path};
  TRM_CHECK(security_open(path, &file->stream));
  if (fseeko(file->stream, 0, SEEK_END) != 0)
    return trm_error(TRM_USAGE, "%s: %s", path, strerror(errno));
  const uint64_t file_bytes = (uint64_t)ftello(file->stream);
  rewind(file->stream);
  unsigned char first[8];
  if (fread(first, 1, sizeof first, file->stream) != sizeof first)
    return st_read_error(file);
  const uint64_t length = st_load_le(first, 8);
  if (length < 2 || length > SAFETENSORS_MAX_HEADER)
    return trm_error(TRM_FAILED, "%s: no safetensors file: it begins with a header of %" PRIu64 " bytes", path, length);
  if (length > file_bytes - sizeof first)
    return trm_error(TRM_FAILED, "%s: its header of %" PRIu64 " bytes ends beyond the file", path, length);
  file->data_offset = sizeof first + length;
  char *text = trm_alloc((size_t)length + 1, "header of a file");
  int status = fread(text, 1, (size_t)length, file->stream) == length ? TRM_OK : st_read_error(file);
  if (status == TRM_OK)
    status = st_parse_header(file, text, (size_t)length, file_bytes - file->data_offset);
  trm_free(text);
  return status;
}

void safetensors_close(struct safetensors *file)
{
  if (file->stream)
    fclose(file->stream);
  trm_node_free(file->header);
  trm_free(file->tensor);
  *file = (struct safetensors){0};
}

const char *safetensors_shape_text(const struct safetensors_tensor *tensor)
{
  char *text = trm_context_text();
  const size_t bytes = SAFETENSORS_MAX_DIMS * 22 + 3;
  size_t at = (size_t)snprintf(text, bytes, "(");
  for (int d = 0; d < tensor->dims; d++)
    at += (size_t)snprintf(text + at, bytes - at, "%s%" PRIu64, d ? ", " : "", tensor->size[d]);
  snprintf(text + at, bytes - at, ")");
  return text;
}

/* -- values */

static float st_float(uint32_t word)
{
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

static float st_value(enum safetensors_type type, const unsigned char *bytes)
{
  uint64_t word;
  double value;
  switch (type) {
  case SAFETENSORS_F16:
    return trm_f16_value((trm_f16)st_load_le(bytes, 2));
  case SAFETENSORS_BF16:
    return st_float((uint32_t)st_load_le(bytes, 2) << 16);
  case SAFETENSORS_F64:
    word = st_load_le(bytes, 8);
    memcpy(&value, &word, sizeof value);
    return (float)value;
  default:
    return st_float((uint32_t)st_load_le(bytes, 4));
  }
}

int safetensors_read_values(struct safetensors *file, const struct safetensors_tensor *tensor, float *values)
{
  static const unsigned widths[] = {[SAFETENSORS_F32] = 4, [SAFETENSORS_F64] = 8, [SAFETENSORS_F16] = 2,
                                    [SAFETENSORS_BF16] = 2};
  const size_t width = widths[tensor->type];
  unsigned char block[1 << 16];
  if (fseeko(file->stream, (off_t)(file->data_offset + tensor->begin), SEEK_SET) != 0)
    return st_read_error(file);
  for (uint64_t at = 0; at < tensor->count;) {
    const size_t limit = sizeof block / width, some = tensor->count - at < limit ? (size_t)(tensor->count - at) : limit;
    if (fread(block, width, some, file->stream) != some)
      return st_read_error(file);
    for (size_t i = 0; i < some; i++, at++) {
      values[at] = st_value(tensor->type, block + i * width);
      if (!isfinite(values[at]))
        return trm_error(TRM_FAILED, "%s: tensor %.100s: value %" PRIu64 " is not finite", file->path, tensor->name,
                         at);
    }
  }
  return TRM_OK;
}
