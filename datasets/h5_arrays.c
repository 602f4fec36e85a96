/* HDF5 data sets that are written or read whole. */
#include "h5.h"

#include <string.h>

#include "core/memory.h"

#define COMPRESS_BYTES ((size_t)64 << 10) /* lists of texts that are longer are compressed */

bool h5_exists(hid_t object, const char *name)
{
  h5_enter();
  const bool found = H5Lexists(object, name, H5P_DEFAULT) > 0;
  h5_leave();
  return found;
}

bool h5_array_write(hid_t group, const char *name, const struct h5_array *array, const void *data)
{
  hsize_t chunk[H5S_MAX_RANK] = {array->chunk_rows}, count = array->size[0];
  for (int d = 1; d < array->dims; d++)
    count *= chunk[d] = array->size[d];
  h5_enter();
  const hid_t space = H5Screate_simple(array->dims, array->size, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER);
  if (array->chunk_rows) {
    H5Pset_chunk(plist, array->dims, chunk);
    if (array->deflate && H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0)
      H5Pset_deflate(plist, (unsigned)array->deflate);
    H5Pset_fletcher32(plist);
  }
  const hid_t dataset = H5Dcreate2(group, name, array->file_type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  const bool done =
    dataset >= 0 &&
    (!count || H5Dwrite(dataset, array->memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0) &&
    H5Dclose(dataset) >= 0;
  const hid_t errors = H5Eget_current_stack(); /* the next calls of HDF5 would forget the reason */
  H5Pclose(plist);
  H5Sclose(space);
  H5Eset_current_stack(errors);
  h5_leave();
  return done;
}

hid_t h5_array_open(hid_t group, const char *name, int *dims, hsize_t size[H5S_MAX_RANK])
{
  h5_enter();
  hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT);
  const hid_t space = dataset < 0 ? -1 : H5Dget_space(dataset);
  *dims = space < 0 ? -1 : H5Sget_simple_extent_dims(space, size, NULL);
  if (space >= 0)
    H5Sclose(space);
  if (dataset >= 0 && *dims < 0) {
    H5Dclose(dataset);
    dataset = -1;
  }
  h5_leave();
  return dataset;
}

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
  const struct h5_array array = {
    .dims = 1, .size = &size, .file_type = type, .memory_type = type, .chunk_rows = count,
    .deflate = count * longest > COMPRESS_BYTES ? 4 : 0, /* long lists of mostly short texts */
  };
  const bool done = h5_array_write(file, name, &array, flat);
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
    hsize_t size[H5S_MAX_RANK];
    int dims;
    const hid_t dataset = h5_array_open(file, name, &dims, size);
    const hid_t type = dataset < 0 ? -1 : H5Dget_type(dataset);
    const size_t bytes = type < 0 ? 0 : H5Tget_size(type);
    done = type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 && dims == 1 &&
           size[0] == count && bytes < 1 << 20 && count < 1 << 20 && count * bytes < 1 << 28;
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
    if (type >= 0)
      H5Tclose(type);
    if (dataset >= 0)
      H5Dclose(dataset);
  }
  h5_leave();
  return done;
}
