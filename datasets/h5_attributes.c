#include "h5.h"

#include <string.h>

#include "core/memory.h"

static bool h5_attribute_put(hid_t object, const char *name, hid_t file_type, hid_t memory_type, hid_t space,
                             const void *value)
{
  if (H5Aexists(object, name) > 0)
    H5Adelete(object, name);
  const hid_t attribute = H5Acreate2(object, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
  const bool done = attribute >= 0 && H5Awrite(attribute, memory_type, value) >= 0;
  if (attribute >= 0)
    H5Aclose(attribute);
  H5Sclose(space);
  return done;
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
  h5_enter();
  const hid_t type = h5_text_type(strlen(text));
  const bool done = h5_attribute_put(object, name, type, type, H5Screate(H5S_SCALAR), text);
  H5Tclose(type);
  h5_leave();
  return done;
}

bool h5_put_integer(hid_t object, const char *name, uint64_t value)
{
  h5_enter();
  const bool done = h5_attribute_put(object, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, H5Screate(H5S_SCALAR), &value);
  h5_leave();
  return done;
}

bool h5_put_real(hid_t object, const char *name, double value)
{
  h5_enter();
  const bool done = h5_attribute_put(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, H5Screate(H5S_SCALAR), &value);
  h5_leave();
  return done;
}

bool h5_put_integers(hid_t object, const char *name, const uint64_t *value, int count)
{
  const hsize_t size = (hsize_t)count;
  h5_enter();
  const hid_t space = count ? H5Screate_simple(1, &size, NULL) : H5Screate(H5S_NULL);
  const bool done = h5_attribute_put(object, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, space, value);
  h5_leave();
  return done;
}

/* Opens an attribute of a type class; *count: its elements. The caller closes it and *type. -1: absent or of another
 * class. */
static hid_t h5_attribute_open(hid_t object, const char *name, H5T_class_t class, hid_t *type, hssize_t *count)
{
  *type = -1;
  if (H5Aexists(object, name) <= 0)
    return -1;
  const hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
  if (attribute < 0)
    return -1;
  const hid_t space = H5Aget_space(attribute);
  *count = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
  if (space >= 0)
    H5Sclose(space);
  *type = H5Aget_type(attribute);
  if (*type >= 0 && *count >= 0 && H5Tget_class(*type) == class)
    return attribute;
  if (*type >= 0)
    H5Tclose(*type);
  H5Aclose(attribute);
  return -1;
}

char *h5_get_text(hid_t object, const char *name)
{
  h5_enter();
  char *text = NULL;
  hid_t type;
  hssize_t count;
  const hid_t attribute = h5_attribute_open(object, name, H5T_STRING, &type, &count);
  if (attribute >= 0) {
    if (count == 1 && H5Tis_variable_str(type) > 0) { /* files of other programs */
      char *variable = NULL;
      const hid_t memory = H5Tcopy(type);
      if (H5Aread(attribute, memory, &variable) >= 0 && variable) {
        text = trm_strdup(variable);
        H5free_memory(variable);
      }
      H5Tclose(memory);
    } else if (count == 1) {
      const size_t bytes = H5Tget_size(type);
      text = trm_alloc(bytes + 1, name);
      if (H5Aread(attribute, type, text) < 0) {
        trm_free(text);
        text = NULL;
      }
    }
    H5Tclose(type);
    H5Aclose(attribute);
  }
  h5_leave();
  return text;
}

static int h5_numbers_get(hid_t object, const char *name, H5T_class_t class, hid_t memory_type, void *value,
                          int capacity)
{
  h5_enter();
  hid_t type;
  hssize_t count = -1;
  const hid_t attribute = h5_attribute_open(object, name, class, &type, &count);
  int found = -1;
  if (attribute >= 0) {
    if (count <= capacity && (count == 0 || H5Aread(attribute, memory_type, value) >= 0))
      found = (int)count;
    H5Tclose(type);
    H5Aclose(attribute);
  }
  h5_leave();
  return found;
}

bool h5_get_integer(hid_t object, const char *name, uint64_t *value)
{
  return h5_numbers_get(object, name, H5T_INTEGER, H5T_NATIVE_UINT64, value, 1) == 1;
}

bool h5_get_real(hid_t object, const char *name, double *value)
{
  return h5_numbers_get(object, name, H5T_FLOAT, H5T_NATIVE_DOUBLE, value, 1) == 1;
}

int h5_get_integers(hid_t object, const char *name, uint64_t *value, int capacity)
{
  return h5_numbers_get(object, name, H5T_INTEGER, H5T_NATIVE_UINT64, value, capacity);
}
