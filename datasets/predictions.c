/* The answers of a model to a data set, as an HDF5 file: /scores (N, C) float32, /class (N) int32, /class_names. */
#include <stdio.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "h5.h"

#define H5_PREDICTIONS "trireme-predictions"

static bool put_array(hid_t file, const char *name, int dims, const hsize_t *size, hid_t stored, hid_t given,
                      const void *data)
{
  const hid_t space = H5Screate_simple(dims, size, NULL);
  const hid_t set = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const bool good = set >= 0 && H5Dwrite(set, given, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
  const bool closed = set >= 0 && H5Dclose(set) >= 0;
  H5Sclose(space);
  return good && closed;
}

static int write_predictions(const char *path, const char *aside, const float *scores, const int32_t *answers, size_t n,
                             size_t c, char *const *class_names, size_t classes)
{
  hid_t file;
  TRM_CHECK(h5_create(aside, H5_PREDICTIONS, &file));
  const hsize_t size[2] = {n, c};
  bool good = put_array(file, "scores", 2, size, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, scores);
  if (answers)
    good = good && put_array(file, "class", 1, size, H5T_STD_I32LE, H5T_NATIVE_INT32, answers);
  if (class_names)
    good = good && h5_put_texts(file, "class_names", (const char *const *)class_names, classes);
  if (!good) {
    h5_error(path, "cannot write the answers");
    h5_discard(&file, aside);
    return TRM_FAILED;
  }
  return h5_commit(&file, aside, path);
}

int trm_predictions_write(const char *path, const float *scores, const int32_t *answers, size_t n, size_t c,
                          char *const *class_names, size_t classes)
{
  char *aside = trm_format("%s.new", path);
  h5_enter();
  const int status = write_predictions(path, aside, scores, answers, n, c, class_names, classes);
  h5_leave();
  trm_free(aside);
  return status;
}
