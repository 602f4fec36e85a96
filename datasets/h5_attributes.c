#include "h5.h"

#include <string.h>

#include "core/memory.h"

/* Writes `count` elements; -1: a scalar. */
static bool h5_attribute_put(hid_t object, const char *name, hid_t file_type, hid_t memory_type, int count,
                             const void *value)
{
  const hsize_t size = count > 0 ? (hsize_t)count : 1;
  H5_LOCKED;
  if (H5Aexists(object, name) > 0)
    H5Adelete(object, name);
  H5_CLOSED const hid_t space = count > 0 ? H5Screate_simple(1, &size, NULL) : H5Screate(count ? H5S_SCALAR : H5S_NULL);
  H5_CLOSED const hid_t attribute = H5Acreate2(object, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
  return attribute >= 0 && H5Awrite(attribute, memory_type, value) >= 0;
}

hid_t h5_text_type(size_t bytes)
{
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, bytes ? bytes : 1);
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  H5Tset_cset(type, H5T_CSET_UTF8);
  return type;
}

bool h5_put_text(hid_t object, const char *name, const char *text)
{
  H5_LOCKED;
  H5_CLOSED const hid_t type = h5_text_type(strlen(text));
  return h5_attribute_put(object, name, type, type, -1, text);
}

bool h5_put_integer(hid_t object, const char *name, uint64_t value)
{
  return h5_attribute_put(object, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, -1, &value);
}

bool h5_put_real(hid_t object, const char *name, double value)
{
  return h5_attribute_put(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, -1, &value);
}

bool h5_put_shape(hid_t object, const char *name, const struct trm_shape *shape)
{
  uint64_t size[TRM_MAX_DIMS] = {0};
  for (int d = 0; d < shape->dims; d++)
    size[d] = shape->size[d];
  return h5_attribute_put(object, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, shape->dims, size);
}

/* Opens an attribute; *count: its elements. The caller closes it and *type. -1: absent or of another class. */
static hid_t h5_attribute_open(hid_t object, const char *name, H5T_class_t class, hid_t *type, hssize_t *count)
{
  const hid_t attribute = H5Aexists(object, name) > 0 ? H5Aopen(object, name, H5P_DEFAULT) : -1;
  *type = -1;
  if (attribute < 0)
    return -1;
  H5_CLOSED const hid_t space = H5Aget_space(attribute);
  *count = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
  *type = H5Aget_type(attribute);
  if (*type >= 0 && *count >= 0 && H5Tget_class(*type) == class)
    return attribute;
  h5_close(attribute);
  return -1;
}

char *h5_get_text(hid_t object, const char *name)
{
  hssize_t count;
  H5_LOCKED;
  H5_CLOSED hid_t type = -1;
  H5_CLOSED const hid_t attribute = h5_attribute_open(object, name, H5T_STRING, &type, &count);
  if (attribute < 0 || count != 1)
    return NULL;
  if (H5Tis_variable_str(type) > 0) { /* files of other programs */
    char *variable = NULL, *copy = NULL;
    if (H5Aread(attribute, type, &variable) >= 0 && variable)
      copy = trm_strdup(variable);
    H5free_memory(variable);
    return copy;
  }
  char *text = trm_alloc(H5Tget_size(type) + 1, name);
  if (H5Aread(attribute, type, text) >= 0)
    return text;
  trm_free(text);
  return NULL;
}

/* Reads at most `capacity` elements; returns their number, -1: absent, unreadable or more. */
static int h5_numbers_get(hid_t object, const char *name, H5T_class_t class, hid_t memory_type, void *value,
                          int capacity)
{
  hssize_t count = -1;
  H5_LOCKED;
  H5_CLOSED hid_t type = -1;
  H5_CLOSED const hid_t attribute = h5_attribute_open(object, name, class, &type, &count);
  const bool done =
    attribute >= 0 && count <= capacity && (count == 0 || H5Aread(attribute, memory_type, value) >= 0);
  return done ? (int)count : -1;
}

bool h5_get_integer(hid_t object, const char *name, uint64_t *value)
{
  return h5_numbers_get(object, name, H5T_INTEGER, H5T_NATIVE_UINT64, value, 1) == 1;
}

bool h5_get_real(hid_t object, const char *name, double *value)
{
  return h5_numbers_get(object, name, H5T_FLOAT, H5T_NATIVE_DOUBLE, value, 1) == 1;
}

bool h5_get_shape(hid_t object, const char *name, struct trm_shape *shape)
{
  uint64_t size[TRM_MAX_DIMS];
  *shape = (struct trm_shape){
    .dims = h5_numbers_get(object, name, H5T_INTEGER, H5T_NATIVE_UINT64, size, TRM_MAX_DIMS)};
  for (int d = 0; d < shape->dims; d++)
    shape->size[d] = size[d];
  return shape->dims >= 0;
}
