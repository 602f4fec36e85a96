#include "checkpoint_verify.h"

#include <string.h>

#include "core/memory.h"
#include "core/sha256.h"
#include "core/status.h"
#include "local_state.h"

/* A group of tensors. */
struct tensors {
  const char *path, *name; /* of the file; of the group */
  struct trm_sha256 *hash; /* of the values so far; NULL: not computed */
  int status;
};

/* Reads a tensor. HDF5 compares the checksums of its chunks. */
static int verify_tensor(struct tensors *tensors, hid_t group, const char *name)
{
  hsize_t size[H5S_MAX_RANK];
  int dims;
  size_t count = 1;
  H5_CLOSED const hid_t dataset = h5_array_open(group, name, &dims, size);
  if (dataset < 0)
    return h5_error(tensors->path, "%s/%s cannot be opened", tensors->name, name);
  for (int d = 0; d < dims; d++)
    count *= (size_t)size[d];
  float *values = trm_alloc(count * sizeof *values, name);
  const bool read = H5Dread(dataset, H5T_IEEE_F32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
  const int status =
    read ? TRM_OK : h5_error(tensors->path, "%s/%s is damaged or cannot be read", tensors->name, name);
  if (tensors->hash)
    trm_sha256_add(tensors->hash, values, count * sizeof *values);
  trm_free(values);
  return status;
}

static herr_t verify_visit(hid_t group, const char *name, const H5L_info_t *link, void *context)
{
  struct tensors *tensors = context;
  (void)link;
  tensors->status = verify_tensor(tensors, group, name);
  return tensors->status != TRM_OK;
}

/* Reads the tensors of a group in the order of their names. */
static int verify_group(hid_t file, const char *path, const char *name, struct trm_sha256 *hash)
{
  struct tensors tensors = {.path = path, .name = name, .hash = hash};
  H5_CLOSED const hid_t group = H5Gopen2(file, name, H5P_DEFAULT);
  if (group < 0)
    return h5_error(path, "%s is missing or damaged", name);
  if (H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, verify_visit, &tensors) < 0)
    tensors.status = h5_error(path, "%s is damaged", name);
  return tensors.status;
}

int checkpoint_verify(hid_t file, const char *path, const struct trm_checkpoint *head)
{
  struct trm_sha256 hash;
  char hex[65];
  trm_sha256_begin(&hash);
  TRM_CHECK(verify_group(file, path, "weights", &hash));
  trm_sha256_end(&hash, hex);
  if (strcmp(hex, head->weights_sha256) != 0)
    return trm_error(TRM_FAILED, "%s: is damaged: the SHA-256 of the weights is not the one that was written", path);
  for (int i = 1; i < head->states; i++) {
    char *name = trm_format("states/%s", head->state_name[i]);
    const int status = verify_group(file, path, name, NULL);
    trm_free(name);
    TRM_CHECK(status);
  }
  return local_state_verify(file, path, head->local_state_ranks);
}
