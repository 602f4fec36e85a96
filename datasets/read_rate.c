/* Measurement of the rate of reading a data set, for `trireme bench io`. */
#include <string.h>

#include "core/context.h"
#include "core/memory.h"
#include "core/status.h"
#include "datasets.h"
#include "data_reader.h"

/* Times reading this rank's blocks of the array. Collective. */
static int read_rate_array(struct data_array *array, struct trm_comm *comm, double *seconds)
{
  size_t low, high;
  trm_interval((array->rows + array->block_rows - 1) / array->block_rows, (size_t)comm->size, (size_t)comm->rank, &low,
               &high);
  const uint64_t first = low * array->block_rows < array->rows ? low * array->block_rows : array->rows;
  const uint64_t end = high * array->block_rows < array->rows ? high * array->block_rows : array->rows;
  const size_t rows = (size_t)(end - first);
  void *to = trm_alloc(rows * array->row_bytes, "a part of the data set");
  memset(to, 1, rows * array->row_bytes);
  comm->ops->barrier(comm);
  const double begin = comm->ops->clock(comm);
  const int status = data_array_read(array, first, rows, to);
  comm->ops->barrier(comm);
  *seconds = comm->ops->clock(comm) - begin;
  trm_free(to);
  return trm_agree(comm, status);
}

int trm_data_read_rate(const char *path, struct trm_comm *comm, double *seconds, uint64_t *bytes)
{
  struct data_head head = {0};
  struct data_split split = {0};
  hid_t file;
  TRM_CHECK(trm_agree(comm, h5_open(path, H5_DATASET, NULL, &file)));
  h5_close(file);
  TRM_CHECK(h5_open_parallel(path, comm, trm_rank_current()->threads, &file)); /* as the loader reads it */
  int status = data_head_read(&head, file, path);
  if (status == TRM_OK)
    status = data_split_open(&split, &head, file, path, "train");
  status = trm_agree(comm, status);
  if (status == TRM_OK) {
    struct data_array *array = head.kind == TRM_DATA_CSR ? &split.values : &split.x;
    *bytes = array->rows * array->row_bytes;
    status = read_rate_array(array, comm, seconds);
  }
  data_split_close(&split);
  data_head_free(&head);
  h5_close(file);
  return status;
}
