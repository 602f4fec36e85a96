/* Data sets and checkpoints whose descriptions and arrays are changed through HDF5, so that its checksums are right.
 * Six bytes of the input are an edit: what, which name, four bytes of values. */
#include <hdf5.h>
#include <string.h>

#include "datasets/h5.h"
#include "fuzz.h"

static const char *const attributes[] = {
  "kind", "target", "classes", "vocabulary", "shape", "scale", "shift", "digest", "version", "tokenizer", "sparse",
  "tokens", "model", "loss", "seed", "epoch", "position", "batch", "weights_only", "weights_sha256", "validation",
  "ranks"};
static const char *const objects[] = {
  "train", "train/x", "train/y", "train/starts", "train/columns", "train/values", "train/x_sums", "train/columns_sums",
  "test", "test/x", "class_names", "merges", "state_names", "undone", "weights", "weights/layer0.weight",
  "weights/layer9.bias", "states/momentum", "states/momentum/layer0.bias", "local", "local/rank0", "local/rank0/0"};
static const char *const words[] = {
  "", "image", "vector", "csr", "tokens", "class", "value", "next", "characters", "bytes", "bpe", "weights", "momentum",
  "mlp 3-4-2 relu", "linear 4000000000", "softmax_cross_entropy", "no such thing"};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Sizes from 0 to 15, at times large. */
static uint64_t edits_size(unsigned char byte)
{
  return byte < 0xf0 ? byte % 16 : UINT64_C(1) << (byte & 15) * 4;
}

static void edits_attribute(hid_t file, unsigned char what, const char *name, const unsigned char *value)
{
  struct trm_shape shape = {.dims = value[0] % (TRM_MAX_DIMS + 1)};
  for (int d = 0; d < shape.dims; d++)
    shape.size[d] = (size_t)edits_size(value[d]);
  if (what % 5 == 0 && H5Aexists(file, name) > 0)
    H5Adelete(file, name);
  else if (what % 5 == 1)
    h5_put_integer(file, name, edits_size(value[0]) * (1 + (uint64_t)value[1]));
  else if (what % 5 == 2)
    h5_put_real(file, name, (value[0] - 128) * 0.5);
  else if (what % 5 == 3)
    h5_put_text(file, name, words[value[0] % COUNT(words)]);
  else if (what % 5 == 4)
    h5_put_shape(file, name, &shape);
}

/* Puts a small array in the place of an object, of one value throughout. */
static void edits_array(hid_t file, unsigned char what, const char *name, const unsigned char *value)
{
  static const char texts[8192] = "weights";
  static int32_t numbers[4096];
  static float reals[4096];
  const int dims = value[0] % 4;
  const hsize_t size[] = {edits_size(value[1] % 0xf0), edits_size(value[2] % 0xf0), 3};
  const hid_t space = dims ? H5Screate_simple(dims, size, NULL) : H5Screate(H5S_SCALAR), text = h5_text_type(8);
  const hid_t type[] = {H5T_NATIVE_INT32, H5T_NATIVE_FLOAT, text, H5T_NATIVE_UINT8, H5T_NATIVE_UINT64};
  const void *const from[] = {numbers, reals, texts, numbers, numbers};
  for (int i = 0; i < 4096; i++) {
    numbers[i] = (int8_t)value[3] * (value[3] & 1 ? 1 : 1 << 20);
    reals[i] = (float)numbers[i];
  }
  const hid_t array = H5Dcreate2(file, name, type[what % 5], space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  if (array >= 0)
    H5Dwrite(array, type[what % 5], H5S_ALL, H5S_ALL, H5P_DEFAULT, from[what % 5]);
  h5_close(array);
  h5_close(text);
  h5_close(space);
}

void fuzz_edit_hdf5(const char *path, struct fuzz_input edits)
{
  H5_LOCKED;
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  const unsigned char *edit = (const unsigned char *)edits.bytes;
  fuzz_require(file >= 0, "the file to edit is sound");
  for (size_t i = 0; i + 6 <= edits.count && i < 120; i += 6, edit += 6) {
    const char *object = objects[edit[1] % COUNT(objects)];
    if (edit[0] < 0x80) {
      edits_attribute(file, edit[0], attributes[edit[1] % COUNT(attributes)], edit + 2);
      continue;
    }
    if (H5Lexists(file, object, H5P_DEFAULT) > 0)
      H5Ldelete(file, object, H5P_DEFAULT);
    if (edit[0] >= 0xa0)
      edits_array(file, edit[0], object, edit + 2);
  }
  H5Fclose(file);
}
