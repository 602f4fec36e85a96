/* Predictions of a model as an HDF5 file: /scores (N, C) float32, /class (N) int32, /class_names. */
#include "core/status.h"
#include "datasets/datasets.h"
#include "h5.h"

#define H5_PREDICTIONS "trireme-predictions"

int trm_predictions_write(const char *path, const struct trm_predictions *p)
{
  struct h5_output output;
  TRM_CHECK(h5_output_open(&output, path, H5_PREDICTIONS, true));
  const hsize_t size[2] = {p->rows, p->columns};
  H5_LOCKED;
  const struct h5_array scores = {
    .dims = 2, .size = size, .file_type = H5T_IEEE_F32LE, .memory_type = H5T_NATIVE_FLOAT};
  const struct h5_array classes = {
    .dims = 1, .size = size, .file_type = H5T_STD_I32LE, .memory_type = H5T_NATIVE_INT32};
  if (h5_array_write(output.file, "scores", &scores, p->scores) &&
      (!p->predicted || h5_array_write(output.file, "class", &classes, p->predicted)) &&
      (!p->class_names ||
       h5_put_texts(output.file, "class_names", (const char *const *)p->class_names, p->classes)))
    return h5_output_commit(&output);
  h5_error(path, "the predictions cannot be written");
  h5_output_discard(&output);
  return TRM_FAILED;
}
