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

static hid_t h5_text_type(size_t bytes)
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

/* Opens an attribute of the class wanted; *count: its elements. */
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
    if (count == 1 && H5Tis_variable_str(type) > 0) { /* as other writers make them */
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

/* -- lists of texts */

#define COMPRESS_BYTES ((size_t)64 << 10) /* bytes */

bool h5_put_texts(hid_t file, const char *name, const char *const *texts, size_t count)
{
  size_t longest = 1;
  for (size_t i = 0; i < count; i++) {
    const size_t length = strlen(texts[i]);
    longest = length > longest ? length : longest;
  }
  char *flat = trm_alloc(count * longest + 1, name);
  for (size_t i = 0; i < count; i++)
    memcpy(flat + i * longest, texts[i], strlen(texts[i]));
  h5_enter();
  const hid_t type = h5_text_type(longest);
  const hsize_t size = count;
  const hid_t space = H5Screate_simple(1, &size, NULL);
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  if (count) { /* one chunk, with its checksum; long lists of mostly short texts are compressed */
    H5Pset_chunk(plist, 1, &size);
    if (count * longest > COMPRESS_BYTES && H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0)
      H5Pset_deflate(plist, 4);
    H5Pset_fletcher32(plist);
  }
  const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  const bool done = dataset >= 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, flat) >= 0 &&
                    H5Dclose(dataset) >= 0;
  H5Pclose(plist);
  H5Sclose(space);
  H5Tclose(type);
  h5_leave();
  trm_free(flat);
  return done;
}

bool h5_get_texts(hid_t file, const char *name, size_t count, char ***texts)
{
  *texts = NULL;
  h5_enter();
  bool done = true;
  if (h5_exists(file, name)) {
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    const hid_t type = dataset < 0 ? -1 : H5Dget_type(dataset);
    const hid_t space = dataset < 0 ? -1 : H5Dget_space(dataset);
    const size_t bytes = type < 0 ? 0 : H5Tget_size(type);
    done = type >= 0 && space >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 &&
           H5Sget_simple_extent_npoints(space) == (hssize_t)count && bytes < 1 << 20 && count < 1 << 20 &&
           count * bytes < 1 << 28;
    if (done) {
      char *flat = trm_alloc(count * bytes, name);
      char **list = trm_alloc(count * (sizeof(char *) + bytes + 1), name);
      char *to = (char *)(list + count);
      done = H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, flat) >= 0;
      for (size_t i = 0; i < count; i++, to += bytes + 1)
        list[i] = memcpy(to, flat + i * bytes, bytes);
      trm_free(flat);
      if (done)
        *texts = list;
      else
        trm_free(list);
    }
    if (space >= 0)
      H5Sclose(space);
    if (type >= 0)
      H5Tclose(type);
    if (dataset >= 0)
      H5Dclose(dataset);
  }
  h5_leave();
  return done;
}

bool h5_exists(hid_t object, const char *name)
{
  h5_enter();
  const bool found = H5Lexists(object, name, H5P_DEFAULT) > 0;
  h5_leave();
  return found;
}
