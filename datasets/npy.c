/* The header of a .npy file is a magic number, a version, a length and a Python dictionary with the keys descr,
 * fortran_order and shape (numpy.lib.format). */
#include "datasets/npy.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/utf8.h"
#include "datasets/zip_stream.h"

#define MAX_HEADER 65536
#define MAX_TEXT 65536 /* characters */

static int npy_error(const struct npy_array *array, const char *what)
{
  return trm_error(TRM_FAILED, "%s: %s", array->name, what);
}

/* Returns the value of a key of the dictionary, or NULL. */
static const char *npy_key_find(const char *text, const char *key)
{
  const char *at = strstr(text, key);
  at = at ? strchr(at, ':') : NULL;
  return at ? at + 1 + strspn(at + 1, " ") : NULL;
}

/* Parses "'<f4'", or of texts "'<U5'", characters of 4 bytes, or "'|S5'". */
static int npy_type_parse(struct npy_array *array, const char *text)
{
  if (!text || *text != '\'')
    return npy_error(array, "is an array of records, which are not read");
  const char order = text[1];
  char *end;
  array->kind = order ? text[2] : '\0';
  if (array->kind == 'O')
    return npy_error(array, "is an array of Python objects, which are not read");
  array->item = array->kind ? strtoul(text + 3, &end, 10) : 0;
  const bool power = array->item == 1 || array->item == 2 || array->item == 4 || array->item == 8;
  const bool number = array->kind && strchr("biuf", array->kind) && power &&
                      !(array->kind == 'f' && array->item < 4) && !(array->kind == 'b' && array->item > 1);
  const bool is_text = npy_is_text(array) && array->item > 0 && array->item <= MAX_TEXT && text[3] != '-';
  if (!(number || is_text) || !strchr("<>|=", order) || *end != '\'')
    return trm_error(TRM_FAILED, "%s: has elements of type %.*s; integers and floats of 32 and 64 bits are read, and "
                     "texts as labels", array->name, (int)strcspn(text + 1, "',") + 2, text);
  array->unit = is_text ? 1 : array->item;
  if (array->kind == 'U') {
    array->unit = sizeof(uint32_t);
    array->item *= array->unit;
  }
  const uint16_t one = 1;
  const bool little = *(const uint8_t *)&one == 1;
  array->swapped = array->unit > 1 && ((order == '>' && little) || (order == '<' && !little));
  return TRM_OK;
}

/* Parses "(60000, 28, 28)". */
static int npy_shape_parse(struct npy_array *array, const char *text)
{
  uint64_t items = 1;
  if (!text || *text++ != '(')
    return npy_error(array, "has no shape");
  for (text += strspn(text, " "); *text != ')'; text += strspn(text, ", ")) {
    char *end;
    const uint64_t size = strtoull(text, &end, 10);
    if (end == text || *text == '-' || array->dims == NPY_MAX_DIMS)
      return npy_error(array, array->dims == NPY_MAX_DIMS ? "has too many dimensions" : "has a damaged shape");
    if (size == 0)
      return npy_error(array, "is empty");
    if (array->dims > 0 && __builtin_mul_overflow(items, size, &items))
      return npy_error(array, "has a damaged shape");
    array->size[array->dims++] = size;
    text = end;
  }
  array->row_items = (size_t)items;
  return array->dims ? TRM_OK : npy_error(array, "is a single number");
}

/* Checks that the rest of the file is as long as the shape says. */
static int npy_length_check(const struct npy_array *array)
{
  uint64_t bytes;
  const uint64_t left = zip_stream_left(array->stream);
  if (__builtin_mul_overflow(array->size[0], (uint64_t)array->row_items, &bytes) ||
      __builtin_mul_overflow(bytes, (uint64_t)array->item, &bytes) || bytes != left)
    return trm_error(TRM_FAILED, "%s: has %llu bytes, which its shape and type do not make: it is damaged or cut short",
                     array->name, (unsigned long long)left);
  return TRM_OK;
}

static int npy_header_read(struct npy_array *array)
{
  unsigned char start[12];
  TRM_CHECK(zip_stream_read(array->stream, start, 10));
  if (memcmp(start, "\x93NUMPY", 6) != 0)
    return npy_error(array, "is not an array of NumPy (.npy)");
  if (start[6] < 1 || start[6] > 3)
    return trm_error(TRM_FAILED, "%s: has version %d of the format; 1 to 3 are read", array->name, start[6]);
  size_t length = start[8] + 256u * start[9];
  if (start[6] > 1) {
    TRM_CHECK(zip_stream_read(array->stream, start + 10, 2));
    length += (size_t)start[10] << 16 | (size_t)start[11] << 24;
  }
  if (length > MAX_HEADER)
    return npy_error(array, "has a damaged header");
  char *text = trm_alloc(length + 1, "a header");
  int status = zip_stream_read(array->stream, text, length);
  const char *fortran = npy_key_find(text, "'fortran_order'");
  if (status == TRM_OK)
    status = npy_type_parse(array, npy_key_find(text, "'descr'"));
  if (status == TRM_OK)
    status = npy_shape_parse(array, npy_key_find(text, "'shape'"));
  if (status == TRM_OK && (!fortran || strncmp(fortran, "False", 5) != 0) && array->dims > 1)
    status = npy_error(array, "is in Fortran order: save numpy.ascontiguousarray(...)");
  trm_free(text);
  return status;
}

int npy_open(struct npy_array *array, const char *path, const char *member)
{
  *array = (struct npy_array){.name = member ? trm_format("%s: %s", path, member) : trm_strdup(path)};
  TRM_CHECK(zip_stream_open(&array->stream, path, member));
  TRM_CHECK(npy_header_read(array));
  return npy_length_check(array);
}

void npy_close(struct npy_array *array)
{
  zip_stream_close(array->stream);
  trm_free(array->name);
  *array = (struct npy_array){.stream = NULL};
}

int npy_read(struct npy_array *array, size_t rows, void *to)
{
  const size_t bytes = rows * array->row_items * array->item, unit = array->unit;
  TRM_CHECK(zip_stream_read(array->stream, to, bytes));
  for (unsigned char *byte = to, *end = byte + bytes; byte < end && array->swapped; byte += unit)
    for (size_t k = 0; k < unit / 2; k++) {
      const unsigned char one = byte[k];
      byte[k] = byte[unit - 1 - k];
      byte[unit - 1 - k] = one;
    }
  return TRM_OK;
}

bool npy_is_text(const struct npy_array *array)
{
  return array->kind == 'U' || array->kind == 'S';
}

/* Appends UTF-8 of the character to `to`; NULL: it is none. */
static char *npy_character_encode(char *to, uint32_t code)
{
  const bool good = code > 0 && code < UTF8_CODES && (code < 0xd800 || code > 0xdfff);
  return good ? utf8_encode(to, (int32_t)code) : NULL;
}

char *npy_text(const struct npy_array *array, const void *rows, size_t element)
{
  const char *from = (const char *)rows + element * array->item;
  size_t length = array->item / array->unit;
  uint32_t code = 0;
  char *text = trm_alloc(array->item + 1, "a text"), *to = text; /* UTF-8 takes no more bytes than UTF-32 */
  while (length && (memcpy(&code, from + (length - 1) * array->unit, array->unit), code == 0)) /* padding */
    length--;
  for (size_t i = 0; i < length && to && array->kind == 'U'; i++) {
    memcpy(&code, from + i * array->unit, array->unit);
    to = npy_character_encode(to, code);
  }
  if (array->kind == 'S')
    memcpy(text, from, length);
  const char *wrong = !to ? "not UTF-32" : array->kind == 'S' ? utf8_check(text, length) : NULL;
  if (!wrong && !length)
    wrong = "empty";
  if (!wrong)
    return text;
  trm_free(text);
  trm_error(TRM_FAILED, "%s: element %zu is no text: %s", array->name, element, wrong);
  return NULL;
}

double npy_value(const struct npy_array *array, const void *rows, size_t element)
{
  union {
    uint8_t u8;
    int8_t i8;
    uint16_t u16;
    int16_t i16;
    uint32_t u32;
    int32_t i32;
    uint64_t u64;
    int64_t i64;
    float f32;
    double f64;
  } value;
  memcpy(&value, (const char *)rows + element * array->item, array->item);
  const bool is_signed = array->kind == 'i';
  if (array->kind == 'f')
    return array->item == 4 ? (double)value.f32 : value.f64;
  switch (array->item) {
  case 1: return is_signed ? value.i8 : value.u8;
  case 2: return is_signed ? value.i16 : value.u16;
  case 4: return is_signed ? (double)value.i32 : (double)value.u32;
  default: return is_signed ? (double)value.i64 : (double)value.u64;
  }
}
