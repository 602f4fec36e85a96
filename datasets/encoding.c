#include "encoding.h"

#include "core/memory.h"
#include "core/status.h"

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

static int encoding_merges_get(hid_t file, const char *path, struct trm_encoding *encoding)
{
  hsize_t size[H5S_MAX_RANK];
  int dims;
  H5_LOCKED;
  H5_CLOSED const hid_t dataset = h5_array_open(file, "merges", &dims, size);
  if (dims != 2 || size[0] == 0 || size[0] >= MAX_MERGES || size[1] != 2)
    return h5_error(path, "merges is damaged");
  encoding->merges = (size_t)size[0];
  encoding->merge = trm_alloc(encoding->merges * sizeof *encoding->merge, "merges");
  if (H5Dread(dataset, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, encoding->merge) < 0)
    return h5_error(path, "merges is damaged");
  return TRM_OK;
}

int encoding_get(hid_t file, const char *path, char *const *class_names, struct trm_encoding *encoding)
{
  *encoding = (struct trm_encoding){.name = h5_get_text(file, "tokenizer")};
  if (!encoding->name && class_names) /* files without encoding are of characters */
    encoding->name = trm_strdup("characters");
  return h5_exists(file, "merges") ? encoding_merges_get(file, path, encoding) : TRM_OK;
}
