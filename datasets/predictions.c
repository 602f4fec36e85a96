/* Predictions of a model as an HDF5 file: /scores (N, C) float32, /class (N) int32, /class_names. */
#include <stdio.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "h5.h"

#define H5_PREDICTIONS "trireme-predictions"

static bool predictions_array_put(hid_t file, const char *name, int dims, const hsize_t *size, hid_t file_type,
                                  hid_t memory_type, const void *data)
{
  const hid_t space = H5Screate_simple(dims, size, NULL);
  const hid_t dataset = H5Dcreate2(file, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const bool good = dataset >= 0 && H5Dwrite(dataset, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
  const bool closed = dataset >= 0 && H5Dclose(dataset) >= 0;
  H5Sclose(space);
  return good && closed;
}

int trm_predictions_write(const char *path, const struct trm_predictions *p)
{
  struct h5_output output;
  TRM_CHECK(h5_output_open(&output, path, H5_PREDICTIONS, true));
  const hsize_t size[2] = {p->rows, p->columns};
  h5_enter();
  bool good = predictions_array_put(output.file, "scores", 2, size, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, p->scores);
  if (p->predicted)
    good = good && predictions_array_put(output.file, "class", 1, size, H5T_STD_I32LE, H5T_NATIVE_INT32, p->predicted);
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
