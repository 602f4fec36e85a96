/* The answers of a model to a data set, as an HDF5 file: /scores (N, C) float32, /class (N) int32, /class_names. */
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

static int predictions_file_write(const char *path, const char *temporary, const float *scores,
                                  const int32_t *predicted, size_t n, size_t c, char *const *class_names,
                                  size_t classes)
{
  hid_t file;
  TRM_CHECK(h5_create(temporary, H5_PREDICTIONS, &file));
  const hsize_t size[2] = {n, c};
  bool good = predictions_array_put(file, "scores", 2, size, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, scores);
  if (predicted)
    good = good && predictions_array_put(file, "class", 1, size, H5T_STD_I32LE, H5T_NATIVE_INT32, predicted);
  if (class_names)
    good = good && h5_put_texts(file, "class_names", (const char *const *)class_names, classes);
  if (!good) {
    h5_error(path, "cannot write the answers");
    h5_discard(&file, temporary);
    return TRM_FAILED;
  }
  return h5_commit(&file, temporary, path);
}

int trm_predictions_write(const char *path, const float *scores, const int32_t *predicted, size_t n, size_t c,
                          char *const *class_names, size_t classes)
{
  char *temporary = trm_format("%s.new", path);
  h5_enter();
  const int status = predictions_file_write(path, temporary, scores, predicted, n, c, class_names, classes);
  h5_leave();
  trm_free(temporary);
  return status;
}
