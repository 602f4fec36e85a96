/* Writes and reads whole HDF5 data sets. */
#include "h5.h"

#include <string.h>

#include "core/ledger.h"
#include "core/memory.h"
#include "core/status.h"

#define COMPRESS_BYTES ((size_t)64 << 10) /* longer lists of texts are compressed */

bool h5_exists(hid_t object, const char *name)
{
  H5_LOCKED;
  return H5Lexists(object, name, H5P_DEFAULT) != 0; /* a failure: opening it fails, too, and says so */
}

hid_t h5_array_create(hid_t group, const char *name, const struct h5_array *array)
{
  hsize_t chunk[H5S_MAX_RANK] = {array->chunk_rows}, max_size[H5S_MAX_RANK] = {H5S_UNLIMITED};
  for (int d = 1; d < array->dims; d++)
    chunk[d] = max_size[d] = array->size[d];
  H5_LOCKED;
  H5_CLOSED const hid_t space = H5Screate_simple(array->dims, array->size, array->grows ? max_size : NULL);
  H5_CLOSED const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_fill_time(plist, array->zeros ? H5D_FILL_TIME_IFSET : H5D_FILL_TIME_NEVER);
  if (array->chunk_rows) {
    H5Pset_chunk(plist, array->dims, chunk);
    if (array->grows && H5Tget_size(array->file_type) > 1)
      H5Pset_shuffle(plist);
    if (array->deflate)
      H5Pset_deflate(plist, (unsigned)array->deflate);
    H5Pset_fletcher32(plist);
  }
  return H5Dcreate2(group, name, array->file_type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
}

bool h5_array_write(hid_t group, const char *name, const struct h5_array *array, const void *data)
{
  hsize_t count = 1;
  for (int d = 0; d < array->dims; d++)
    count *= array->size[d];
  H5_LOCKED;
  const hid_t dataset = h5_array_create(group, name, array);
  return dataset >= 0 && (!count || H5Dwrite(dataset, array->memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0) &&
         H5Dclose(dataset) >= 0;
}

/* Writes the rows of the chunk that begins with row `first`, of an array in memory. */
static bool h5_chunk_write(hid_t dataset, const struct h5_array *array, hsize_t first, const void *data)
{
  hsize_t start[H5S_MAX_RANK] = {first}, count[H5S_MAX_RANK] = {array->size[0] - first};
  size_t row_bytes = H5Tget_size(array->memory_type);
  if (array->chunk_rows < count[0])
    count[0] = array->chunk_rows;
  for (int d = 1; d < array->dims; d++) {
    count[d] = array->size[d];
    row_bytes *= (size_t)array->size[d];
  }
  H5_CLOSED const hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(array->dims, count, NULL);
  return space >= 0 && memory >= 0 && H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
         H5Dwrite(dataset, array->memory_type, memory, space, H5P_DEFAULT, (const char *)data + first * row_bytes) >= 0;
}

/* One turn: calls HDF5 for the chunk that begins with row `first`, and before the first and after the last one for the
 * data set. */
static bool h5_turn_write(hid_t group, const char *name, const struct h5_array *array, hsize_t first, const void *data,
                          hid_t *dataset)
{
  if (first == 0)
    *dataset = h5_array_create(group, name, array);
  if (*dataset < 0 || (array->size[0] > 0 && !h5_chunk_write(*dataset, array, first, data)))
    return false;
  return array->size[0] - first > array->chunk_rows || H5Dclose(*dataset) >= 0;
}

int h5_array_write_in_turns(const char *path, hid_t group, const char *folder, const char *name,
                            const struct h5_array *array, const void *data)
{
  hid_t dataset;
  int status = TRM_OK;
  hsize_t first = 0;
  do {
    {
      H5_LOCKED;
      if (!h5_turn_write(group, name, array, first, data, &dataset))
        status = h5_error(path, "%s/%s cannot be written", folder, name);
    }
    trm_ledger_add_answer(); /* a long write is progress */
    h5_yield();
    first += array->chunk_rows;
  } while (status == TRM_OK && first < array->size[0]);
  return status;
}

int h5_row_dims(uint64_t rows, const struct trm_shape *shape, hsize_t size[TRM_MAX_DIMS + 1])
{
  size[0] = rows;
  for (int d = 0; d < shape->dims; d++)
    size[d + 1] = shape->size[d];
  return shape->dims + 1;
}

/* Selects the rows in `space`, that of a data set; returns the space of as many rows in memory. -1: failed. */
static hid_t h5_rows_select(hid_t space, const struct trm_shape *shape, uint64_t first, size_t rows)
{
  hsize_t start[TRM_MAX_DIMS + 1] = {first}, count[TRM_MAX_DIMS + 1];
  const int dims = h5_row_dims(rows, shape, count);
  return H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ? -1
                                                                                  : H5Screate_simple(dims, count, NULL);
}

bool h5_rows_read(hid_t dataset, hid_t type, const struct trm_shape *shape, uint64_t first, size_t rows, void *to)
{
  H5_LOCKED;
  H5_CLOSED const hid_t space = H5Dget_space(dataset), memory = h5_rows_select(space, shape, first, rows);
  return memory >= 0 && H5Dread(dataset, type, memory, space, H5P_DEFAULT, to) >= 0;
}

bool h5_rows_write(hid_t dataset, hid_t type, const struct trm_shape *shape, uint64_t first, size_t rows,
                   const void *from)
{
  H5_LOCKED;
  H5_CLOSED const hid_t space = H5Dget_space(dataset), memory = h5_rows_select(space, shape, first, rows);
  return memory >= 0 && H5Dwrite(dataset, type, memory, space, H5P_DEFAULT, from) >= 0;
}

hid_t h5_array_open(hid_t group, const char *name, int *dims, hsize_t size[H5S_MAX_RANK])
{
  H5_LOCKED;
  const hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT);
  H5_CLOSED const hid_t space = dataset < 0 ? -1 : H5Dget_space(dataset);
  *dims = space < 0 ? -1 : H5Sget_simple_extent_dims(space, size, NULL);
  if (*dims >= 0)
    return dataset;
  h5_close(dataset);
  return -1;
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
  H5_LOCKED;
  H5_CLOSED const hid_t type = h5_text_type(longest);
  const bool compress = count * longest > COMPRESS_BYTES && H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0;
  const hsize_t size = count;
  const struct h5_array array = {
    .dims = 1, .size = &size, .file_type = type, .memory_type = type, .chunk_rows = count,
    .deflate = compress ? 4 : 0, /* padded texts compress well */
  };
  const bool done = h5_array_write(file, name, &array, flat);
  trm_free(flat);
  return done;
}

bool h5_get_texts(hid_t file, const char *name, size_t count, char ***texts)
{
  *texts = NULL;
  if (!h5_exists(file, name))
    return true;
  hsize_t size[H5S_MAX_RANK];
  int dims;
  H5_LOCKED;
  H5_CLOSED const hid_t dataset = h5_array_open(file, name, &dims, size);
  H5_CLOSED const hid_t type = dataset < 0 ? -1 : H5Dget_type(dataset);
  const size_t bytes = type < 0 ? 0 : H5Tget_size(type);
  if (type < 0 || H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0 || dims != 1 || size[0] != count ||
      bytes >= H5_TEXT_BYTES || count >= 1 << 20 || count * bytes >= 1 << 28)
    return false;
  char *flat = trm_alloc(count * bytes, name);
  char **list = trm_alloc(count * (sizeof(char *) + bytes + 1), name);
  char *to = (char *)(list + count);
  const bool done = H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, flat) >= 0;
  for (size_t i = 0; i < count; i++, to += bytes + 1)
    list[i] = memcpy(to, flat + i * bytes, bytes);
  trm_free(flat);
  if (done)
    *texts = list;
  else
    trm_free(list);
  return done;
}
