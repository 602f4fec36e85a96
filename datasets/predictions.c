/* Predictions of a model as an HDF5 file: /scores (N, C) float32, /class (N) int32, /class_names. */
#include <stdio.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "h5.h"

#define H5_PREDICTIONS "trireme-predictions"

int trm_predictions_write(const char *path, const struct trm_predictions *p)
{
  struct h5_output output;
  TRM_CHECK(h5_output_open(&output, path, H5_PREDICTIONS, true));
  const hsize_t size[2] = {p->rows, p->columns};
  h5_enter();
  const struct h5_array scores = {
    .dims = 2, .size = size, .file_type = H5T_IEEE_F32LE, .memory_type = H5T_NATIVE_FLOAT};
  const struct h5_array classes = {
    .dims = 1, .size = size, .file_type = H5T_STD_I32LE, .memory_type = H5T_NATIVE_INT32};
  bool good = h5_array_write(output.file, "scores", &scores, p->scores);
  if (p->predicted)
    good = good && h5_array_write(output.file, "class", &classes, p->predicted);
  if (p->class_names)
    good = good && h5_put_texts(output.file, "class_names", (const char *const *)p->class_names, p->classes);
  int status = TRM_FAILED;
  if (good) {
    status = h5_output_commit(&output);
  } else {
    h5_error(path, "the predictions cannot be written");
    h5_output_discard(&output);
  }
  h5_leave();
  return status;
}
