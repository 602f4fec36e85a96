/* Files that are sound HDF5 and were made to do harm: to make the program read another file, load a library, or work
 * for longer than their size allows. They are refused, by name, in little time. */
#include <hdf5.h>

#include "dataset_files.h"
#include "suite.h"

static char folder[256], path[300], other[300];

/* Makes the file and opens it; its array "train/x" is gone. */
static hid_t file_without_x(void)
{
  CU_ASSERT_EQUAL_FATAL(made_file(path, MADE_BYTES, 20, 100, 0, 0), TRM_OK);
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  CU_ASSERT_FATAL(file >= 0 && H5Ldelete(file, "train/x", H5P_DEFAULT) >= 0);
  return file;
}

/* Puts an array of bytes of (rows, 1, 2, 10) in the place of train/x. */
static void x_create(hid_t file, hsize_t rows, hid_t plist)
{
  const hsize_t size[] = {rows, 1, 2, 10}, max_size[] = {H5S_UNLIMITED, 1, 2, 10};
  const hid_t space = H5Screate_simple(4, size, H5Pget_layout(plist) == H5D_CHUNKED ? max_size : NULL);
  const hid_t array = H5Dcreate2(file, "train/x", H5T_NATIVE_UINT8, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  CU_ASSERT(array >= 0);
  H5Dclose(array);
  H5Sclose(space);
}

/* Closes the file; reading it must fail with the message. */
static void refused(hid_t file, const char *message)
{
  struct trm_options options = {.data = {.memory = 1 << 20}, .parallel = {.share = TRM_SHARE_NONE}};
  struct trm_dataset *data;
  CU_ASSERT(H5Fclose(file) >= 0);
  const int status = trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, trm_comm_self());
  CU_ASSERT_EQUAL(status, TRM_FAILED);
  const bool found = strstr(trm_error_text(), path) && strstr(trm_error_text(), message);
  CU_ASSERT(found);
  if (!found)
    printf("expected: %s\nfound: %s\n", message, trm_error_text());
  if (status == TRM_OK)
    data->ops->close(data);
  CU_ASSERT_EQUAL(trm_data_info(path, true, true), TRM_FAILED);
}

static void test_external_storage(void)
{
  const hid_t file = file_without_x(), plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_external(plist, "/etc/passwd", 0, 2000);
  x_create(file, 100, plist);
  H5Pclose(plist);
  refused(file, "train/x is in another file");
}

static void test_virtual_dataset(void)
{
  const hsize_t size[] = {100, 1, 2, 10};
  const hid_t file = file_without_x(), plist = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(4, size, NULL);
  H5Pset_virtual(plist, space, other, "/train/x", space);
  x_create(file, 100, plist);
  H5Sclose(space);
  H5Pclose(plist);
  refused(file, "train/x is in another file");
}

static void test_links(void)
{
  CU_ASSERT_EQUAL(made_file(other, MADE_BYTES, 20, 100, 0, 0), TRM_OK);
  hid_t file = file_without_x();
  CU_ASSERT(H5Lcreate_external(other, "/train/x", file, "train/x", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  refused(file, "train/x is a link");
  file = file_without_x();
  CU_ASSERT(H5Lcreate_soft("/train/y", file, "train/x", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  refused(file, "train/x is a link");
}

/* A filter that only a plugin would have; optional, so that the file can be made without it. */
static void test_filter(void)
{
  const hsize_t chunk[] = {10, 1, 2, 10};
  const hid_t file = file_without_x(), plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(plist, 4, chunk);
  CU_ASSERT(H5Pset_filter(plist, 32015, H5Z_FLAG_OPTIONAL, 0, NULL) >= 0);
  x_create(file, 100, plist);
  H5Pclose(plist);
  refused(file, "train/x has the filter 32015");
}

static void test_claims(void)
{
  const hsize_t chunk[] = {10, 1, 2, 10}, huge[] = {UINT64_C(200000000), 1, 2, 10};
  hid_t plist = H5Pcreate(H5P_DATASET_CREATE), file = file_without_x();
  H5Pset_chunk(plist, 4, chunk);
  x_create(file, UINT64_C(1) << 40, plist);
  refused(file, "train/x has more elements than a file of this size can have");
  file = file_without_x(); /* the product of the sizes is beyond 64 bits, signed */
  x_create(file, UINT64_C(1) << 58, plist);
  refused(file, "train/x has more elements than a file of this size can have");
  file = file_without_x();
  H5Pset_chunk(plist, 4, huge);
  x_create(file, 100, plist);
  refused(file, "train/x has more elements than a file of this size can have");
  H5Pclose(plist);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"external storage", test_external_storage},
    {"virtual data sets", test_virtual_dataset},
    {"links", test_links},
    {"filters", test_filter},
    {"claims of many elements", test_claims},
    CU_TEST_INFO_NULL,
  };
  made_folder(folder);
  snprintf(path, sizeof path, "%s/data.h5", folder);
  snprintf(other, sizeof other, "%s/other.h5", folder);
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  const int status = suite_run("untrusted", tests);
  made_folder_remove(folder);
  return status;
}
