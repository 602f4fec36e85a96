/* Every call of HDF5 fails once, while data sets and checkpoints are written and read: a message that names the file,
 * an older file that is whole, nothing left; or, where the call was not needed, the right values. The program's
 * definitions of these functions take the place of the library's. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <hdf5.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "dataset_files.h"
#include "datasets/datasets.h"
#include "suite.h"
#include "train/strategy.h"

static int calls, fail_at; /* calls so far; the one that fails, 0: none */

static bool fault_is_due(void)
{
  return ++calls == fail_at;
}

/* A function that fails when it is its turn. closes: it does its work then, too, as a close whose last write fails. */
#define FAULT(type, name, parameters, arguments, closes) \
  type name parameters \
  { \
    static type(*real) parameters; \
    if (!real) \
      *(void **)&real = dlsym(RTLD_NEXT, #name); \
    const bool fails = fault_is_due(); \
    if (fails && (closes)) \
      real arguments; \
    return fails ? (type)-1 : real arguments; \
  }

FAULT(hid_t, H5Fopen, (const char *file, unsigned flags, hid_t access), (file, flags, access), false)
FAULT(hid_t, H5Fcreate, (const char *file, unsigned flags, hid_t create, hid_t access), (file, flags, create, access),
      false)
FAULT(herr_t, H5Fflush, (hid_t file, H5F_scope_t scope), (file, scope), false)
FAULT(herr_t, H5Fclose, (hid_t file), (file), true)
FAULT(herr_t, H5Fget_vfd_handle, (hid_t file, hid_t access, void **handle), (file, access, handle), false)
FAULT(hid_t, H5Gopen2, (hid_t place, const char *name, hid_t access), (place, name, access), false)
FAULT(hid_t, H5Gcreate2, (hid_t place, const char *name, hid_t link, hid_t create, hid_t access),
      (place, name, link, create, access), false)
FAULT(htri_t, H5Lexists, (hid_t place, const char *name, hid_t access), (place, name, access), false)
FAULT(hid_t, H5Dopen2, (hid_t place, const char *name, hid_t access), (place, name, access), false)
FAULT(hid_t, H5Dcreate2,
      (hid_t place, const char *name, hid_t type, hid_t space, hid_t link, hid_t create, hid_t access),
      (place, name, type, space, link, create, access), false)
FAULT(herr_t, H5Dread, (hid_t array, hid_t type, hid_t memory, hid_t space, hid_t transfer, void *to),
      (array, type, memory, space, transfer, to), false)
FAULT(herr_t, H5Dwrite, (hid_t array, hid_t type, hid_t memory, hid_t space, hid_t transfer, const void *from),
      (array, type, memory, space, transfer, from), false)
FAULT(herr_t, H5Dset_extent, (hid_t array, const hsize_t size[]), (array, size), false)
FAULT(herr_t, H5Dclose, (hid_t array), (array), true)
FAULT(hid_t, H5Dget_space, (hid_t array), (array), false)
FAULT(hid_t, H5Dget_type, (hid_t array), (array), false)
FAULT(hid_t, H5Dget_create_plist, (hid_t array), (array), false)
FAULT(hid_t, H5Screate, (H5S_class_t class), (class), false)
FAULT(hid_t, H5Screate_simple, (int dims, const hsize_t size[], const hsize_t max[]), (dims, size, max), false)
FAULT(int, H5Sget_simple_extent_dims, (hid_t space, hsize_t size[], hsize_t max[]), (space, size, max), false)
FAULT(hssize_t, H5Sget_simple_extent_npoints, (hid_t space), (space), false)
FAULT(hid_t, H5Tcopy, (hid_t type), (type), false)
FAULT(hid_t, H5Aopen, (hid_t object, const char *name, hid_t access), (object, name, access), false)
FAULT(hid_t, H5Aget_type, (hid_t attribute), (attribute), false)
FAULT(hid_t, H5Aget_space, (hid_t attribute), (attribute), false)
FAULT(herr_t, H5Aread, (hid_t attribute, hid_t type, void *to), (attribute, type, to), false)
FAULT(herr_t, H5Awrite, (hid_t attribute, hid_t type, const void *from), (attribute, type, from), false)
FAULT(hid_t, H5Pcreate, (hid_t class), (class), false)
FAULT(herr_t, H5Pset_chunk, (hid_t plist, int dims, const hsize_t size[]), (plist, dims, size), false)

static char folder[256], path[300];
static struct trm_model model;
static float *weights;
static enum made_kind kind;
static int compress;

static int write_dataset(void)
{
  return made_file(path, kind, 20, 200, 0, compress);
}

/* True if all rows are the right ones. */
static bool rows_are_right(struct trm_dataset *data, int *status)
{
  struct trm_host_batch batch = {0};
  bool same = true;
  *status = data->ops->fetch(data, 0, 0, data->rows, &batch);
  for (size_t row = 0; row < data->rows && same && *status == TRM_OK; row++)
    same = made_is_row(kind, 20, 4, &batch, row, row);
  trm_host_batch_free(&batch);
  return same;
}

static int read_dataset(void)
{
  struct trm_options options = {.data = {.memory = 1 << 20, .context = 4}, .parallel = {.share = TRM_SHARE_NONE}};
  struct trm_dataset *data;
  int status = TRM_OK;
  TRM_CHECK(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, trm_comm_self()));
  CU_ASSERT(rows_are_right(data, &status));
  data->ops->close(data);
  return status;
}

static unsigned char own[300];
static struct trm_local_state local = {"worker", own, sizeof own};

static int local_states(void *context, int rank, const struct trm_local_state **states, int *count)
{
  (void)context, (void)rank;
  *states = &local;
  *count = 1;
  return TRM_OK;
}

static struct trm_batch_part undone[2] = {{3, 0, 2}, {4, 1, 2}};

static int write_checkpoint(void)
{
  static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g"};
  const struct trm_checkpoint c = {
    .updates = 17, .model_text = model.text, .loss_name = (char *)model.loss->name, .config = (char *)"a: b\n",
    .record = (char *)"{}\n", .data_digest = (char *)"0123", .validation = (char *)"none",
    .class_names = (char **)names, .undone = undone, .undones = 2, .spec = model.spec,
    .states = 2, .state_name = {"weights", "momentum"}, .state = {weights, weights},
    .local_state_ranks = 2, .read_local_states = local_states};
  return trm_checkpoint_hdf5.write(path, &c, &model);
}

static int read_checkpoint(void)
{
  struct trm_checkpoint c;
  bool fits = false;
  TRM_CHECK(trm_checkpoint_hdf5.read_head(path, &c));
  int status = trm_checkpoint_hdf5.read_arrays(path, &c, &model, true);
  CU_ASSERT(c.updates == 17 && c.undones == 2 && c.local_state_ranks == 2);
  if (status == TRM_OK)
    CU_ASSERT(memcmp(c.state[0], weights, model.parameters * sizeof *weights) == 0);
  trm_checkpoint_free(&c);
  TRM_CHECK(status);
  memset(own, 1, sizeof own);
  TRM_CHECK(trm_checkpoint_hdf5.local_states_match(path, 1, &local, 1, &fits));
  CU_ASSERT(fits);
  TRM_CHECK(trm_checkpoint_hdf5.local_states_read(path, 1, &local, 1));
  CU_ASSERT(own[0] == 0 && own[sizeof own - 1] == 0);
  return TRM_OK;
}

static int verify_checkpoint(void)
{
  return trm_checkpoint_hdf5.verify(path);
}

static int files_count(void)
{
  int count = 0;
  DIR *d = opendir(folder);
  for (const struct dirent *e; d && (e = readdir(d));)
    count += e->d_name[0] != '.';
  if (d)
    closedir(d);
  return count;
}

/* Calls `function` with a fault at each of its calls. is_sound: of the file that a successful write leaves; NULL: it
 * reads. At least so many faults must be errors. */
static void faults(int (*function)(void), int (*is_sound)(void), int least)
{
  int failures = 0, count;
  struct stat info;
  if (is_sound)
    unlink(path);
  calls = fail_at = 0;
  CU_ASSERT_EQUAL_FATAL(function(), TRM_OK);
  count = calls;
  for (int at = 1; at <= count; at++) {
    FILE *older = is_sound ? fopen(path, "w") : NULL;
    CU_ASSERT(!is_sound || (older && fputc('x', older) == 'x' && fclose(older) == 0));
    calls = 0;
    fail_at = at;
    const int status = function();
    fail_at = 0;
    failures += status != TRM_OK;
    CU_ASSERT(status == TRM_OK || strstr(trm_error_text(), path));
    if (status != TRM_OK && !strstr(trm_error_text(), path))
      printf("call %d of %d: %s\n", at, count, trm_error_text());
    if (is_sound && status != TRM_OK)
      CU_ASSERT(stat(path, &info) == 0 && info.st_size == 1);
    if (is_sound && status == TRM_OK)
      CU_ASSERT_EQUAL(is_sound(), TRM_OK);
    CU_ASSERT_EQUAL(files_count(), 1);
  }
  CU_ASSERT(failures >= least);
  if (failures < least)
    printf("%d of %d calls are errors\n", failures, count);
  CU_ASSERT_EQUAL(function(), TRM_OK);
}

static void test_datasets(void)
{
  static const enum made_kind kinds[] = {MADE_BYTES, MADE_FLOATS, MADE_CSR, MADE_TOKENS, MADE_VALUES};
  for (size_t i = 0; i < 2 * sizeof kinds / sizeof *kinds; i++) {
    kind = kinds[i / 2];
    compress = i % 2;
    faults(write_dataset, read_dataset, 30);
    faults(read_dataset, NULL, 15);
  }
}

static void test_checkpoints(void)
{
  const struct trm_input_spec spec = {.shape = {.dims = 1, .size = {3}}, .target = TRM_TARGET_CLASS, .classes = 7};
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "mlp 3-4-7 relu", "auto", &spec), TRM_OK);
  weights = trm_alloc(model.parameters * sizeof *weights, "test");
  trm_model_init(&model, 1, weights);
  faults(write_checkpoint, verify_checkpoint, 50);
  faults(read_checkpoint, NULL, 50);
  faults(verify_checkpoint, NULL, 30);
  trm_free(weights);
  trm_model_free(&model);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"data sets", test_datasets},
    {"checkpoints", test_checkpoints},
    CU_TEST_INFO_NULL,
  };
  trm_hdf5_init();
  made_folder(folder);
  if (!folder[0])
    return 99;
  snprintf(path, sizeof path, "%s/file.h5", folder);
  const int status = suite_run("faults of HDF5", tests);
  made_folder_remove(folder);
  return status;
}
