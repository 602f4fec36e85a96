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
  h5_enter();
  const hid_t space = H5Screate_simple(2, size, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(plist, 2, size); /* one chunk, with its checksum */
  H5Pset_fletcher32(plist);
  const hid_t dataset = H5Dcreate2(file, "merges", H5T_STD_I32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  const bool done = dataset >= 0 &&
                    H5Dwrite(dataset, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, encoding->merge) >= 0 &&
                    H5Dclose(dataset) >= 0;
  H5Pclose(plist);
  H5Sclose(space);
  h5_leave();
  return done;
}

static bool encoding_merges_get(hid_t file, struct trm_encoding *encoding)
{
  const hid_t dataset = H5Dopen2(file, "merges", H5P_DEFAULT);
  const hid_t space = dataset < 0 ? -1 : H5Dget_space(dataset);
  hsize_t size[H5S_MAX_RANK] = {0};
  bool done = space >= 0 && H5Sget_simple_extent_ndims(space) == 2 &&
              H5Sget_simple_extent_dims(space, size, NULL) == 2 && size[0] > 0 && size[0] < MAX_MERGES && size[1] == 2;
  if (done) {
    encoding->merges = (size_t)size[0];
    encoding->merge = trm_alloc(encoding->merges * sizeof *encoding->merge, "merges");
    done = H5Dread(dataset, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, encoding->merge) >= 0;
  }
  if (space >= 0)
    H5Sclose(space);
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
