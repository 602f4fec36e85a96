/* Checkpoints as HDF5 files: each parameter and each optimizer state is whole, by name.
 *
 *   /                     attributes: format = "trireme-checkpoint", version, the fields of struct trm_checkpoint,
 *                         weights_sha256
 *   /record               (1) text: record.json of the run, optional
 *   /class_names          (classes) texts, optional
 *   /merges               of tokens (encoding.h)
 *   /state_names          (states) texts, "weights" first
 *   /weights/PARAMETER    float32, the parameter's shape
 *   /states/STATE/PARAMETER  of a frozen parameter: chunks that are not there, which read as 0; in ema a link to the
 *                         weights
 *   /undone               (parts, 3) uint64: batch, part and parts of struct trm_batch_part; optional
 *   /ranks/RANK           local state of a rank; attribute contents: a line "NAME BYTES" for each item; optional, for
 *                         all ranks (their number is attribute ranks of /) or for none
 *   /ranks/RANK/NAME      bytes
 * Arrays are chunked, so that they can have fletcher32 checksums: every byte of the file has a checksum. */
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/signature.h"
#include "core/status.h"
#include "checkpoint_head.h"
#include "checkpoint_verify.h"
#include "datasets.h"
#include "h5.h"
#include "local_state.h"
#include "train/strategy.h"

/* Bytes of a chunk; each chunk has a checksum. */
#define CHUNK_BYTES ((size_t)1 << 20)

/* Converts a parameter's shape to that in the file, and returns its dimensions; scalars become (1). */
static int checkpoint_shape(const struct trm_shape *shape, hsize_t size[TRM_MAX_DIMS])
{
  size[0] = 1;
  for (int d = 0; d < shape->dims; d++)
    size[d] = shape->size[d];
  return shape->dims ? shape->dims : 1;
}

/* -- writing */

/* Makes an array of zeros, which are not stored. */
static int checkpoint_zeros_write(hid_t group, const char *path, const char *group_name, const char *name,
                                  const struct h5_array *array)
{
  H5_LOCKED;
  const hid_t dataset = h5_array_create(group, name, array);
  return dataset >= 0 && H5Dclose(dataset) >= 0 ? TRM_OK : h5_error(path, "%s/%s cannot be written", group_name, name);
}

/* values NULL: zeros. */
static int checkpoint_tensor_write(hid_t group, const char *path, const char *group_name,
                                   const struct trm_parameter *parameter, const float *values)
{
  hsize_t size[TRM_MAX_DIMS];
  const int dims = checkpoint_shape(&parameter->shape, size);
  const size_t row_bytes = parameter->count / (size_t)size[0] * sizeof *values;
  const hsize_t chunk_rows = row_bytes < CHUNK_BYTES ? CHUNK_BYTES / row_bytes : 1;
  const struct h5_array array = {
    .dims = dims, .size = size, .file_type = H5T_IEEE_F32LE, .memory_type = H5T_NATIVE_FLOAT,
    .chunk_rows = chunk_rows < size[0] ? chunk_rows : size[0],
    .zeros = !values,
  };
  if (!values)
    return checkpoint_zeros_write(group, path, group_name, parameter->name, &array);
  return h5_array_write_in_turns(path, group, group_name, parameter->name, &array, values);
}

/* Returns true if a state is the weights or their average: it has values of statistics (running means of batch norm),
 * too, and those of frozen parameters are the weights'. */
static bool checkpoint_is_weights(const char *state)
{
  return strcmp(state, "weights") == 0 || strcmp(state, "ema") == 0;
}

/* Context of read_tensor for a checkpoint whose states are flat arrays. */
struct flat {
  const struct trm_checkpoint *checkpoint;
  const struct trm_model *model;
};

static int checkpoint_flat_tensor(void *context, int state, int number, const float **values)
{
  const struct flat *flat = context;
  *values = flat->checkpoint->state[state] + trm_model_parameter(flat->model, number)->offset;
  return TRM_OK;
}

static int checkpoint_group_make(hid_t parent, const char *path, const char *name, hid_t *group)
{
  H5_LOCKED;
  *group = H5Gcreate2(parent, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  return *group < 0 ? h5_error(path, "%s cannot be made", name) : TRM_OK;
}

/* Gives the weights of a parameter a second name, in the group of their average. */
static int checkpoint_weights_link(hid_t group, const char *path, const char *group_name, const char *name)
{
  char weights[128];
  snprintf(weights, sizeof weights, "/weights/%s", name);
  H5_LOCKED;
  return H5Lcreate_hard(group, weights, group, name, H5P_DEFAULT, H5P_DEFAULT) < 0
           ? h5_error(path, "%s/%s cannot be written", group_name, name)
           : TRM_OK;
}

/* Writes all parameters of one state as a group of `parent`. */
static int checkpoint_state_write(hid_t parent, const char *path, const struct trm_checkpoint *c, int state,
                                  const struct trm_model *model)
{
  const char *name = c->state_name[state];
  H5_CLOSED hid_t group = -1;
  TRM_CHECK(checkpoint_group_make(parent, path, name, &group));
  for (int i = 0; i < trm_model_parameter_count(model); i++) {
    const struct trm_parameter *parameter = trm_model_parameter(model, i);
    const bool frozen = state > 0 && c->frozen && c->frozen[i], is_weights = checkpoint_is_weights(name);
    const float *values = NULL;
    if (!is_weights && parameter->statistic)
      continue;
    if (!frozen)
      TRM_CHECK(c->read_tensor(c->read_tensor_context, state, i, &values));
    TRM_CHECK(frozen && is_weights ? checkpoint_weights_link(group, path, name, parameter->name)
                                   : checkpoint_tensor_write(group, path, name, parameter, values));
  }
  return TRM_OK;
}

/* Locks HDF5 for a chunk at a time: the loader reads meanwhile. */
static int checkpoint_file_write(hid_t file, const char *path, const struct trm_checkpoint *c,
                                 const struct trm_model *model)
{
  TRM_CHECK(checkpoint_head_write(file, path, c));
  TRM_CHECK(checkpoint_state_write(file, path, c, 0, model));
  H5_CLOSED hid_t group = -1;
  if (c->states > 1)
    TRM_CHECK(checkpoint_group_make(file, path, "states", &group));
  for (int i = 1; i < c->states; i++)
    TRM_CHECK(checkpoint_state_write(group, path, c, i, model));
  return local_state_write(file, path, c);
}

static int checkpoint_write(const char *path, const struct trm_checkpoint *checkpoint, const struct trm_model *model)
{
  struct flat flat = {checkpoint, model};
  struct trm_checkpoint c = *checkpoint;
  if (!c.read_tensor) {
    c.read_tensor = checkpoint_flat_tensor;
    c.read_tensor_context = &flat;
  }
  char hex[65];
  TRM_CHECK(trm_model_hash_tensors(model, c.read_tensor, c.read_tensor_context, hex));
  c.weights_sha256 = hex;
  struct h5_output output;
  TRM_CHECK(h5_output_open(&output, path, H5_CHECKPOINT, false));
  const int status = checkpoint_file_write(output.file, path, &c, model);
  if (status == TRM_OK)
    return h5_output_commit(&output);
  h5_output_discard(&output);
  return status;
}

/* -- reading */

static int checkpoint_read_head(const char *path, struct trm_checkpoint *checkpoint)
{
  hid_t file;
  memset(checkpoint, 0, sizeof *checkpoint);
  TRM_CHECK(h5_open(path, H5_CHECKPOINT, NULL, &file));
  H5_LOCKED;
  const int status = checkpoint_head_read(file, path, checkpoint);
  h5_close(file);
  if (status != TRM_OK)
    trm_checkpoint_free(checkpoint);
  return status;
}

static int checkpoint_file_verify(const char *path)
{
  struct trm_checkpoint head;
  hid_t file;
  TRM_CHECK(signature_verify(path));
  TRM_CHECK(checkpoint_read_head(path, &head));
  int status = h5_open(path, H5_CHECKPOINT, NULL, &file);
  if (status == TRM_OK) {
    H5_LOCKED;
    status = checkpoint_verify(file, path, &head);
    h5_close(file);
  }
  trm_checkpoint_free(&head);
  return status;
}

/* Selects the slice in the tensor of the file, whose shape is size (dims). */
static bool checkpoint_slice_select(hid_t space, const struct trm_slice *slice, const hsize_t *size, int dims)
{
  hsize_t start[TRM_MAX_DIMS] = {0}, stride[TRM_MAX_DIMS], count[TRM_MAX_DIMS], block[TRM_MAX_DIMS];
  size_t inner = 1; /* elements of the dimensions after `axis`, the sharded one, in steps of `unit` */
  int axis = dims - 1;
  while (axis > 0 && (slice->inner % inner != 0 || size[axis] % (slice->inner / inner * slice->extent) != 0))
    inner *= (size_t)size[axis--];
  const size_t unit = slice->inner / inner;
  for (int d = 0; d < dims; d++) {
    stride[d] = block[d] = size[d];
    count[d] = 1;
  }
  start[axis] = slice->low * unit;
  stride[axis] = slice->extent * unit;
  count[axis] = size[axis] / stride[axis];
  block[axis] = (slice->high - slice->low) * unit;
  return H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, block) >= 0;
}

static int checkpoint_values_read(hid_t dataset, const struct trm_parameter *shard, const hsize_t *size, int dims,
                                  float *values)
{
  const struct trm_slice *slice = &shard->slice;
  if (slice->low == 0 && slice->high == slice->extent)
    return H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
  const hsize_t count = shard->count;
  H5_CLOSED const hid_t memory = H5Screate_simple(1, &count, NULL), space = H5Dget_space(dataset);
  return memory >= 0 && space >= 0 && checkpoint_slice_select(space, slice, size, dims)
           ? H5Dread(dataset, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, values) : -1;
}

/* Checks the shape of a tensor, and reads the part of it that the shard holds; shard NULL: only checks. */
static int checkpoint_tensor_read(hid_t group, const char *path, const char *group_name,
                                  const struct trm_parameter *parameter, const struct trm_parameter *shard,
                                  float *values)
{
  if (!h5_exists(group, parameter->name))
    return trm_error(TRM_USAGE, "%s: has no %s/%s, which the model has", path, group_name, parameter->name);
  hsize_t size[TRM_MAX_DIMS], found[H5S_MAX_RANK];
  const int dims = checkpoint_shape(&parameter->shape, size);
  int found_dims;
  H5_CLOSED const hid_t dataset = h5_array_open(group, parameter->name, &found_dims, found);
  if (dataset < 0)
    return h5_error(path, "%s/%s cannot be opened", group_name, parameter->name);
  if (found_dims != dims || memcmp(found, size, (size_t)dims * sizeof *size) != 0) {
    struct trm_shape other = {.dims = found_dims > TRM_MAX_DIMS ? 0 : found_dims};
    for (int d = 0; d < other.dims; d++)
      other.size[d] = (size_t)found[d];
    return trm_error(TRM_USAGE, "%s: %s/%s has shape %s, but the model's has %s", path, group_name, parameter->name,
                     trm_shape_text(&other), trm_shape_text(&parameter->shape));
  }
  if (shard && checkpoint_values_read(dataset, shard, size, dims, values) < 0)
    return h5_error(path, "%s/%s is damaged or cannot be read", group_name, parameter->name);
  return TRM_OK;
}

/* Destination of tensors. shard NULL: none, they are only checked. */
struct shard_sink {
  const struct trm_model *model, *shard;
  int (*store)(void *context, int state, const struct trm_parameter *parameter, const float *values);
  void *context;
};

/* Reads each part of parameter `number` that the shard holds: two if tied layers have a copy each. */
static int checkpoint_shards_read(hid_t group, const char *path, const char *group_name, int state, int number,
                                  const struct shard_sink *sink)
{
  const struct trm_parameter *parameter = trm_model_parameter(sink->model, number);
  bool any = false;
  for (int i = 0; sink->shard && i < trm_model_parameter_count(sink->shard); i++) {
    const struct trm_parameter *shard = trm_model_parameter(sink->shard, i);
    if (shard->number != number)
      continue;
    any = true;
    float *values = trm_alloc(shard->count * sizeof *values, "a tensor of a checkpoint");
    int status = checkpoint_tensor_read(group, path, group_name, parameter, shard, values);
    if (status == TRM_OK)
      status = sink->store(sink->context, state, shard, values);
    trm_free(values);
    TRM_CHECK(status);
  }
  return any ? TRM_OK : checkpoint_tensor_read(group, path, group_name, parameter, NULL, NULL);
}

struct extra {
  const struct trm_model *model;
  const char *path, *group_name;
  int status;
};

/* Finds a tensor that is not in the model. */
static herr_t checkpoint_extra_find(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
  struct extra *extra = context;
  (void)group, (void)info;
  for (int i = 0; i < trm_model_parameter_count(extra->model); i++)
    if (!strcmp(trm_model_parameter(extra->model, i)->name, name))
      return 0;
  const char *hint = strstr(name, ".bias") ? trm_model_bias_hint(extra->model, name) : "";
  extra->status = trm_error(TRM_USAGE, "%s: has %s/%s, which the model does not have%s", extra->path, extra->group_name,
                            name, hint);
  return 1;
}

/* Reads the weights or another state. */
static int checkpoint_state_read(hid_t file, const char *path, const char *name, int state,
                                 const struct shard_sink *sink)
{
  const struct trm_model *model = sink->model;
  char group_name[64];
  snprintf(group_name, sizeof group_name, "%s%s", strcmp(name, "weights") ? "states/" : "", name);
  H5_CLOSED const hid_t group = H5Gopen2(file, group_name, H5P_DEFAULT);
  if (group < 0)
    return h5_error(path, "%s is missing or damaged", group_name);
  for (int i = 0; i < trm_model_parameter_count(model); i++)
    if (checkpoint_is_weights(name) || !trm_model_parameter(model, i)->statistic)
      TRM_CHECK(checkpoint_shards_read(group, path, group_name, state, i, sink));
  struct extra extra = {.model = model, .path = path, .group_name = group_name};
  if (H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, checkpoint_extra_find, &extra) < 0)
    return h5_error(path, "%s is damaged", group_name);
  return extra.status;
}

static int checkpoint_read_shards(const char *path, const struct trm_checkpoint *checkpoint,
                                  const struct trm_model *model, const struct trm_model *shard,
                                  int (*store)(void *context, int state, const struct trm_parameter *parameter,
                                               const float *values),
                                  void *context)
{
  const struct shard_sink sink = {model, shard, store, context};
  hid_t file;
  TRM_CHECK(h5_open(path, H5_CHECKPOINT, NULL, &file));
  H5_LOCKED;
  int status = TRM_OK;
  for (int i = 0; i < checkpoint->states && status == TRM_OK; i++)
    status = checkpoint_state_read(file, path, checkpoint->state_name[i], i, &sink);
  h5_close(file);
  return status;
}

/* Copies a tensor to the arrays of the checkpoint. */
static int checkpoint_array_store(void *context, int state, const struct trm_parameter *parameter, const float *values)
{
  struct trm_checkpoint *checkpoint = context;
  memcpy(checkpoint->state[state] + parameter->offset, values, parameter->count * sizeof *values);
  return TRM_OK;
}

/* Compares the weights that were read with their SHA-256. */
static int checkpoint_weights_verify(const char *path, const struct trm_checkpoint *c, const struct trm_model *model)
{
  char hex[65];
  trm_model_hash(model, c->state[0], hex);
  if (strcmp(hex, c->weights_sha256) == 0)
    return TRM_OK;
  return trm_error(TRM_FAILED, "%s: is damaged: the SHA-256 of the weights is not the one that was written", path);
}

static int checkpoint_read_arrays(const char *path, struct trm_checkpoint *checkpoint, const struct trm_model *model,
                                  bool want_states)
{
  const int last = checkpoint->states - 1;
  if (!want_states) {
    if (strcmp(checkpoint->state_name[last], "ema") == 0)
      checkpoint->state_name[0] = checkpoint->state_name[last];
    checkpoint->states = 1;
  }
  /* before memory is taken: the file may claim a model of any size */
  TRM_CHECK(checkpoint_read_shards(path, checkpoint, model, NULL, NULL, NULL));
  checkpoint->owns_states = true;
  for (int i = 0; i < checkpoint->states; i++)
    checkpoint->state[i] = trm_alloc(model->parameters * sizeof *checkpoint->state[i], checkpoint->state_name[i]);
  int status = checkpoint_read_shards(path, checkpoint, model, model, checkpoint_array_store, checkpoint);
  if (status == TRM_OK && strcmp(checkpoint->state_name[0], "weights") == 0) /* averages have no SHA-256 */
    status = checkpoint_weights_verify(path, checkpoint, model);
  checkpoint->state_name[0] = "weights";
  return status;
}

const struct trm_checkpoint_ops trm_checkpoint_hdf5 = {
  .name = "hdf5",
  .write = checkpoint_write,
  .read_head = checkpoint_read_head,
  .verify = checkpoint_file_verify,
  .read_arrays = checkpoint_read_arrays,
  .read_model_part = checkpoint_read_shards,
  .local_states_match = local_state_fits,
  .local_states_read = local_state_read,
};
