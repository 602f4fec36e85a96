/* What a file may contain. Anybody may have made it: it must not make the program read another file, run code, or work
 * for longer than its size allows. */
#include <sys/stat.h>

#include "core/status.h"
#include "h5.h"

/* Bytes that a byte of deflate stands for, at most (zlib's documentation: 1032). */
#define MAX_RATIO 1032

struct contents {
  const char *path;
  uint64_t bytes; /* that its arrays can have */
  int status;
};

/* Refuses storage elsewhere, and filters that are not ours: HDF5 would load a library for them. */
static int contents_storage_check(const struct contents *contents, const char *name, hid_t plist)
{
  const H5D_layout_t layout = H5Pget_layout(plist);
  if (H5Pget_external_count(plist) != 0 || layout == H5D_VIRTUAL)
    return trm_error(TRM_FAILED, "%s: %s is in another file, which is not read", contents->path, name);
  const int filters = H5Pget_nfilters(plist);
  for (int i = 0; i < filters; i++) {
    size_t parameters = 0;
    const H5Z_filter_t filter = H5Pget_filter2(plist, (unsigned)i, NULL, &parameters, NULL, 0, NULL, NULL);
    if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE && filter != H5Z_FILTER_FLETCHER32)
      return trm_error(TRM_FAILED, "%s: %s has the filter %d, which is not read", contents->path, name, (int)filter);
  }
  return filters < 0 ? h5_error(contents->path, "%s is damaged", name) : TRM_OK;
}

/* Returns true if an array of these dimensions has more bytes than the file can stand for. */
static bool contents_exceed(const struct contents *contents, const hsize_t *size, int dims, size_t element)
{
  uint64_t bytes = element;
  for (int d = 0; d < dims; d++) {
    if (size[d] > 0 && bytes > contents->bytes / size[d])
      return true;
    bytes *= size[d];
  }
  return bytes > contents->bytes;
}

static int contents_array_check(const struct contents *contents, hid_t group, const char *name)
{
  hsize_t size[H5S_MAX_RANK], chunk[H5S_MAX_RANK];
  int dims;
  H5_CLOSED const hid_t array = h5_array_open(group, name, &dims, size);
  H5_CLOSED const hid_t plist = array < 0 ? -1 : H5Dget_create_plist(array);
  H5_CLOSED const hid_t type = plist < 0 ? -1 : H5Dget_type(array);
  const size_t element = type < 0 ? 0 : H5Tget_size(type);
  if (element == 0)
    return h5_error(contents->path, "%s is damaged", name);
  TRM_CHECK(contents_storage_check(contents, name, plist));
  const int chunk_dims = H5Pget_layout(plist) == H5D_CHUNKED ? H5Pget_chunk(plist, H5S_MAX_RANK, chunk) : 0;
  if (contents_exceed(contents, size, dims, element) || contents_exceed(contents, chunk, chunk_dims, element))
    return trm_error(TRM_FAILED, "%s: %s has more elements than a file of this size can have", contents->path, name);
  return TRM_OK;
}

static herr_t contents_visit(hid_t group, const char *name, const H5L_info_t *link, void *context)
{
  struct contents *contents = context;
  H5O_info_t object;
  if (link->type != H5L_TYPE_HARD)
    contents->status = trm_error(TRM_FAILED, "%s: %s is a link to another place, which is not read", contents->path,
                                 name);
  else if (H5Oget_info_by_name(group, name, &object, H5P_DEFAULT) < 0)
    contents->status = h5_error(contents->path, "%s is damaged", name);
  else if (object.type == H5O_TYPE_DATASET)
    contents->status = contents_array_check(contents, group, name);
  else if (object.type != H5O_TYPE_GROUP)
    contents->status = trm_error(TRM_FAILED, "%s: %s is neither a group nor a data set", contents->path, name);
  return contents->status == TRM_OK ? 0 : 1;
}

int h5_contents_check(const char *path, hid_t file)
{
  struct contents contents = {.path = path};
  struct stat info;
  if (stat(path, &info) != 0)
    return trm_error(TRM_FAILED, "%s: cannot be read", path);
  contents.bytes = (uint64_t)info.st_size * MAX_RATIO;
  H5_LOCKED;
  if (H5Lvisit(file, H5_INDEX_NAME, H5_ITER_NATIVE, contents_visit, &contents) < 0)
    return h5_error(path, "its list of arrays is damaged");
  return contents.status;
}
