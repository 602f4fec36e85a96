#include "encoding.h"

#include "core/memory.h"

#define MAX_MERGES ((hsize_t)1 << 24)

bool encoding_put(hid_t file, const struct trm_encoding *encoding)
{
  if (!encoding->name)
    return true;
  if (!h5_put_text(file, "tokenizer", encoding->name))
    return false;
  if (!encoding->merges)
    return true;
  const hsize_t size[2] = {encoding->merges, 2};
  const struct h5_array array = {
    .dims = 2, .size = size, .file_type = H5T_STD_I32LE, .memory_type = H5T_NATIVE_INT32, .chunk_rows = size[0]};
  return h5_array_write(file, "merges", &array, encoding->merge);
}

static bool encoding_merges_get(hid_t file, struct trm_encoding *encoding)
{
  hsize_t size[H5S_MAX_RANK];
  int dims;
  const hid_t dataset = h5_array_open(file, "merges", &dims, size);
  bool done = dims == 2 && size[0] > 0 && size[0] < MAX_MERGES && size[1] == 2;
  if (done) {
    encoding->merges = (size_t)size[0];
    encoding->merge = trm_alloc(encoding->merges * sizeof *encoding->merge, "merges");
    done = H5Dread(dataset, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, encoding->merge) >= 0;
  }
  if (dataset >= 0)
    H5Dclose(dataset);
  return done;
}

bool encoding_get(hid_t file, struct trm_encoding *encoding)
{
  *encoding = (struct trm_encoding){0};
  h5_enter();
  encoding->name = h5_get_text(file, "tokenizer");
  const bool done = !h5_exists(file, "merges") || encoding_merges_get(file, encoding);
  h5_leave();
  if (!done)
    trm_encoding_free(encoding);
  return done;
}
