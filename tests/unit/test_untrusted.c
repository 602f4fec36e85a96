/* Files that are sound HDF5 and were made to do harm: to make the program read another file, load a library, or work
 * for longer than their size allows. They are refused, by name, in little time. */
#include <hdf5.h>

#include "dataset_files.h"
#include "datasets/h5.h"
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

/* -- descriptions that are damaged in one place */

enum edit_kind { ATTRIBUTE_GONE, INTEGER, TEXT, SHAPE, GONE, INTEGERS, FLOATS, TEXTS };

/* One change of a file, and the message of its reader. */
struct edit {
  const char *name; /* of an attribute of the file, or of an object */
  enum edit_kind kind;
  const char *message;
  uint64_t value[4]; /* INTEGER: the first; sizes of a shape or an array */
  int count;         /* of these */
  const char *text;
  int32_t fill; /* INTEGERS: each of them */
};

static void edit_array(hid_t file, const struct edit *edit)
{
  const hsize_t size[4] = {edit->value[0], edit->value[1], edit->value[2], edit->value[3]};
  const hid_t text = H5Tcopy(H5T_C_S1);
  H5Tset_size(text, 8);
  const hid_t type = edit->kind == INTEGERS ? H5T_STD_I32LE : edit->kind == FLOATS ? H5T_IEEE_F32LE : text;
  const hid_t space = H5Screate_simple(edit->count, size, NULL);
  if (H5Lexists(file, edit->name, H5P_DEFAULT) > 0)
    H5Ldelete(file, edit->name, H5P_DEFAULT);
  const hid_t array = H5Dcreate2(file, edit->name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  CU_ASSERT(array >= 0);
  if (edit->text)
    CU_ASSERT(H5Dwrite(array, text, H5S_ALL, H5S_ALL, H5P_DEFAULT, edit->text) >= 0);
  if (edit->fill) {
    const size_t n = (size_t)H5Sget_simple_extent_npoints(space);
    int32_t *all = calloc(n, sizeof *all);
    for (size_t i = 0; i < n; i++)
      all[i] = edit->fill;
    CU_ASSERT(H5Dwrite(array, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) >= 0);
    free(all);
  }
  H5Dclose(array);
  H5Sclose(space);
  H5Tclose(text);
}

static void edit_file(const struct edit *edit)
{
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  struct trm_shape shape = {.dims = edit->count};
  for (int d = 0; d < edit->count; d++)
    shape.size[d] = (size_t)edit->value[d];
  CU_ASSERT_FATAL(file >= 0);
  switch (edit->kind) {
  case ATTRIBUTE_GONE:
    CU_ASSERT(H5Adelete(file, edit->name) >= 0);
    break;
  case INTEGER:
    CU_ASSERT(h5_put_integer(file, edit->name, edit->value[0]));
    break;
  case TEXT:
    CU_ASSERT(h5_put_text(file, edit->name, edit->text));
    break;
  case SHAPE:
    CU_ASSERT(h5_put_shape(file, edit->name, &shape));
    break;
  case GONE:
    CU_ASSERT(H5Ldelete(file, edit->name, H5P_DEFAULT) >= 0);
    break;
  default:
    edit_array(file, edit);
  }
  CU_ASSERT(H5Fclose(file) >= 0);
}

static void edit_says(const struct edit *edit)
{
  const bool found = strstr(trm_error_text(), path) && strstr(trm_error_text(), edit->message);
  CU_ASSERT(found);
  if (!found)
    printf("%s\n  expected: %s\n  found: %s\n", edit->name, edit->message, trm_error_text());
}

#define N(...) .value = {__VA_ARGS__}, .count = sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)

static const struct edit images[] = {
  {"kind", ATTRIBUTE_GONE, "attribute kind is missing, which is none that is known", .count = 0},
  {"kind", INTEGER, "attribute kind is missing", N(3)},
  {"kind", TEXT, "attribute kind is film", .text = "film"},
  {"target", TEXT, "attribute target is next, which image data cannot have", .text = "next"},
  {"classes", ATTRIBUTE_GONE, "attribute classes is missing or out of range", .count = 0},
  {"classes", INTEGER, "attribute classes is missing or out of range", N(0)},
  {"classes", INTEGER, "attribute classes is missing or out of range", N(UINT64_C(1) << 40)},
  {"classes", INTEGER, "class_names is damaged or not a list of 8 texts", N(8)},
  {"classes", TEXT, "attribute classes is missing or out of range", .text = "7"},
  {"shape", ATTRIBUTE_GONE, "attribute shape is missing or not a shape", .count = 0},
  {"shape", SHAPE, "attribute shape is missing or not a shape", N(1, 0, 10)},
  {"shape", SHAPE, "attribute shape is missing or not a shape", N(1 << 20, 1 << 20, 1 << 20)},
  {"shape", SHAPE, "rows of train/x have shape (1, 2, 10), but the file says (1, 2, 11)", N(1, 2, 11)},
  {"scale", INTEGER, "attribute scale is damaged or not a float", N(2)},
  {"shift", TEXT, "attribute shift is damaged or not a float", .text = "1"},
  {"version", ATTRIBUTE_GONE, "has no readable version", .count = 0},
  {"version", INTEGER, "is of version 2; this program reads version 1", N(2)},
  {"train/y", GONE, "has no train/y", .count = 0},
  {"train/y", INTEGERS, "train/x has 100 rows, but train/y has 99", N(99)},
  {"train/y", FLOATS, "train/y does not hold integers", N(100)},
  {"train/y", INTEGERS, "rows of train/y have shape (1), but the file says ()", N(100, 1)},
  {"train/x", TEXTS, "train/x does not hold floats or bytes", N(100, 1, 2, 10)},
  {"train/x_sums", INTEGERS, "train/x_sums has 3 checksums for 1 blocks", N(3)},
  {"train/x_sums", INTEGERS, "train/x_sums cannot be read", N(1, 1)},
  {"train/x_sums", TEXTS, "train/x_sums cannot be read", N(1)},
};
static const struct edit sparse[] = {
  {"shape", SHAPE, "attribute shape is missing or not a shape", N(10, 100)},
  {"train/values", FLOATS, "train/columns has 396 entries, but train/values has 395", N(395)},
  {"train/starts", INTEGERS, "train/starts is empty", N(0)},
};
static const struct edit tokens[] = {
  {"vocabulary", INTEGER, "attribute vocabulary is missing or out of range", N(0)},
  {"target", TEXT, "attribute target is class, which tokens data cannot have", .text = "class"},
  {"merges", INTEGERS, "merges is damaged", N(0, 2)},
  {"merges", INTEGERS, "merges is damaged", N(2, 3)},
  {"merges", TEXTS, "merges is damaged", N(1, 2)},
};

/* Values that are out of range: found when they are read. */
static const struct edit image_values[] = {
  {"train/y", INTEGERS, "train row 0 has class 7, but the classes are 0 to 6", N(100), .fill = 7},
  {"train/y", INTEGERS, "train row 0 has class -1, but the classes are 0 to 6", N(100), .fill = -1},
};
static const struct edit sparse_values[] = {
  {"train/starts", INTEGERS, "train/starts row 100 begins at entry 397, after entry 0, of 396", N(101), .fill = 397},
  {"train/starts", INTEGERS, "train/starts row 100 begins at entry -1", N(101), .fill = -1},
  {"train/columns", INTEGERS, "train row 1 has column 1073741824 after -1; columns ascend", N(396), .fill = 1 << 30},
  {"train/columns", INTEGERS, "train row 1 has column -1 after -1; columns ascend", N(396), .fill = -1},
};
static const struct edit token_values[] = {
  {"train/x", INTEGERS, "train token 0 is 70000, outside of the vocabulary of", N(100), .fill = 70000},
  {"train/x", INTEGERS, "train token 0 is -1, outside of the vocabulary of", N(100), .fill = -1},
};

static void edited_values(enum made_kind kind, const struct edit *edits, size_t count)
{
  char sums[64];
  struct trm_options options = {.data = {.memory = 1 << 20, .context = 4}, .parallel = {.share = TRM_SHARE_NONE}};
  struct trm_dataset *data;
  for (size_t i = 0; i < count; i++) {
    CU_ASSERT_EQUAL_FATAL(made_file(path, kind, 20, 100, 0, 0), TRM_OK);
    edit_file(&edits[i]);
    snprintf(sums, sizeof sums, "%s_sums", edits[i].name);
    edit_file(&(struct edit){sums, GONE, NULL, .count = 0}); /* other programs write none */
    CU_ASSERT_EQUAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, trm_comm_self()), TRM_FAILED);
    edit_says(&edits[i]);
    CU_ASSERT_EQUAL(trm_data_info(path, true, false), TRM_FAILED);
  }
}

static void test_values(void)
{
  edited_values(MADE_BYTES, image_values, sizeof image_values / sizeof *image_values);
  edited_values(MADE_CSR, sparse_values, sizeof sparse_values / sizeof *sparse_values);
  edited_values(MADE_TOKENS, token_values, sizeof token_values / sizeof *token_values);
}

/* Found by a check of the whole file alone. */
static const struct edit checks[] = {
  {"digest", TEXT, "is damaged: its digest is not the one that was written", .text = "0123"},
  {"train", GONE, "has no train, validation or test split", .count = 0},
};

static void test_checks(void)
{
  for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
    CU_ASSERT_EQUAL_FATAL(made_file(path, MADE_BYTES, 20, 100, 0, 0), TRM_OK);
    edit_file(&checks[i]);
    CU_ASSERT_EQUAL(trm_data_info(path, true, false), TRM_FAILED);
    edit_says(&checks[i]);
  }
}

/* Texts of variable length, as other programs write them. */
static void test_variable_text(void)
{
  const char *texts[] = {"image", "another program"}, *const names[] = {"kind", "source"};
  struct trm_options options = {.data = {.memory = 1 << 20}, .parallel = {.share = TRM_SHARE_NONE}};
  struct trm_dataset *data;
  CU_ASSERT_EQUAL_FATAL(made_file(path, MADE_BYTES, 20, 100, 0, 0), TRM_OK);
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), type = H5Tcopy(H5T_C_S1), one = H5Screate(H5S_SCALAR);
  H5Tset_size(type, H5T_VARIABLE);
  for (int i = 0; i < 2; i++) {
    CU_ASSERT(H5Adelete(file, names[i]) >= 0);
    const hid_t attribute = H5Acreate2(file, names[i], type, one, H5P_DEFAULT, H5P_DEFAULT);
    CU_ASSERT(H5Awrite(attribute, type, &texts[i]) >= 0);
    H5Aclose(attribute);
  }
  H5Sclose(one);
  H5Tclose(type);
  CU_ASSERT(H5Fclose(file) >= 0);
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, trm_comm_self()), TRM_OK);
  CU_ASSERT_EQUAL(data->rows, 100);
  data->ops->close(data);
  CU_ASSERT_EQUAL(trm_data_info(path, true, true), TRM_OK);
}

static void edited_datasets(enum made_kind kind, const struct edit *edits, size_t count)
{
  struct trm_options options = {.data = {.memory = 1 << 20, .context = 4}, .parallel = {.share = TRM_SHARE_NONE}};
  struct trm_dataset *data;
  for (size_t i = 0; i < count; i++) {
    CU_ASSERT_EQUAL_FATAL(made_file(path, kind, 20, 100, 0, 0), TRM_OK);
    edit_file(&edits[i]);
    CU_ASSERT_EQUAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, trm_comm_self()), TRM_FAILED);
    edit_says(&edits[i]);
    CU_ASSERT_EQUAL(trm_data_info(path, true, true), TRM_FAILED);
    edit_says(&edits[i]);
  }
}

static void test_datasets(void)
{
  edited_datasets(MADE_BYTES, images, sizeof images / sizeof *images);
  edited_datasets(MADE_CSR, sparse, sizeof sparse / sizeof *sparse);
  edited_datasets(MADE_TOKENS, tokens, sizeof tokens / sizeof *tokens);
}

/* Found when the head is read. */
static const struct edit heads[] = {
  {"seed", ATTRIBUTE_GONE, "attribute seed is missing or damaged", .count = 0},
  {"updates", TEXT, "attribute updates is missing or damaged", .text = "17"},
  {"best_loss", INTEGER, "attribute best_loss is missing or damaged", N(1)},
  {"model", ATTRIBUTE_GONE, "attribute model is missing or damaged", .count = 0},
  {"model", SHAPE, "attribute model is missing or damaged", N(1, 2)},
  {"weights_sha256", INTEGER, "attribute weights_sha256 is missing or damaged", N(1)},
  {"target", TEXT, "the description of the samples is missing or damaged", .text = "next"},
  {"shape", ATTRIBUTE_GONE, "the description of the samples is missing or damaged", .count = 0},
  {"sparse", ATTRIBUTE_GONE, "the description of the samples is missing or damaged", .count = 0},
  {"classes", TEXT, "the description of the samples is missing or damaged", .text = "2"},
  {"class_names", TEXTS, "class_names is damaged", N(5)},
  {"state_names", GONE, "state_names is missing or damaged", .count = 0},
  {"state_names", TEXTS, "state_names is missing or damaged", N(1), .text = "momentum"},
  {"state_names", TEXTS, "state_names is missing or damaged", N(2), .text = "weights\0weights"},
  {"state_names", TEXTS, "state_names is missing or damaged", N(2), .text = "weights\0second-x"},
  {"state_names", TEXTS, "state_names is missing or damaged", N(9)},
  {"undone", INTEGERS, "undone is damaged", N(2)},
  {"undone", INTEGERS, "undone is damaged", N(2, 2)},
  {"undone", INTEGERS, "undone is damaged", N(2, 3)}, /* part 0 of 0 */
  {"undone", TEXTS, "undone is damaged", N(2, 3)},
  {"merges", INTEGERS, "merges is damaged", N(1)},
};
/* Found when the arrays are read. */
static const struct edit arrays[] = {
  {"weights", GONE, "weights is missing or damaged", .count = 0},
  {"states/momentum", GONE, "states/momentum is missing or damaged", .count = 0},
  {"weights/layer0.weight", GONE, "has no weights/layer0.weight, which the model has", .count = 0},
  {"weights/layer0.weight", FLOATS, "weights/layer0.weight has shape (4, 2), but the model's has (4, 3)", N(4, 2)},
  {"weights/layer0.weight", FLOATS, "SHA-256 of the weights is not the one that was written", N(4, 3)},
  {"weights/layer0.weight", TEXTS, "weights/layer0.weight is damaged or cannot be read", N(4, 3)},
  {"weights/layer7.weight", FLOATS, "has weights/layer7.weight, which the model does not have", N(4, 3)},
  {"weights_sha256", TEXT, "SHA-256 of the weights is not the one that was written", .text = "0123"},
};

static void edited_checkpoint(const struct edit *edit, const struct trm_model *model, float *weights)
{
  struct trm_checkpoint c = {
    .updates = 17, .model_text = model->text, .loss_name = (char *)model->loss->name, .config = (char *)"a: b\n",
    .spec = model->spec, .states = 2, .state_name = {"weights", "momentum"}, .state = {weights, weights}};
  CU_ASSERT_EQUAL_FATAL(trm_checkpoint_hdf5.write(path, &c, model), TRM_OK);
  edit_file(edit);
  int status = trm_checkpoint_hdf5.read_head(path, &c);
  if (status == TRM_OK) {
    status = trm_checkpoint_hdf5.read_arrays(path, &c, model, true);
    trm_checkpoint_free(&c);
    CU_ASSERT(edit >= arrays && edit < arrays + sizeof arrays / sizeof *arrays);
  }
  CU_ASSERT_NOT_EQUAL(status, TRM_OK);
  edit_says(edit);
  CU_ASSERT_NOT_EQUAL(trm_checkpoint_hdf5.verify(path), TRM_OK);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), path));
  for (int json = 0; json < 2; json++) {
    CU_ASSERT_NOT_EQUAL(trm_data_info(path, true, json), TRM_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), path));
  }
}

static void test_checkpoints(void)
{
  const struct trm_input_spec spec = {.shape = {.dims = 1, .size = {3}}, .target = TRM_TARGET_CLASS, .classes = 2};
  struct trm_model model;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "mlp 3-4-2 relu", "auto", &spec), TRM_OK);
  float *weights = trm_alloc(model.parameters * sizeof *weights, "test");
  trm_model_init(&model, 1, weights);
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    edited_checkpoint(&heads[i], &model, weights);
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
    edited_checkpoint(&arrays[i], &model, weights);
  trm_free(weights);
  trm_model_free(&model);
}

/* A checkpoint that says that its model has 800 TB. */
static void test_claimed_model(void)
{
  const struct trm_input_spec spec = {.shape = {.dims = 1, .size = {3}}, .target = TRM_TARGET_CLASS, .classes = 2};
  struct trm_model model;
  struct trm_checkpoint c;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "mlp 3-4-2 relu", "auto", &spec), TRM_OK);
  float *weights = trm_alloc(model.parameters * sizeof *weights, "test");
  c = (struct trm_checkpoint){.model_text = (char *)"mlp 3-2000000000-100000-2", .loss_name = (char *)model.loss->name,
                              .config = (char *)"a: b\n", .spec = model.spec, .states = 1, .state_name = {"weights"},
                              .state = {weights}};
  CU_ASSERT_EQUAL_FATAL(trm_checkpoint_hdf5.write(path, &c, &model), TRM_OK);
  trm_free(weights);
  trm_model_free(&model);
  CU_ASSERT_EQUAL_FATAL(trm_checkpoint_hdf5.read_head(path, &c), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, c.model_text, c.loss_name, &c.spec), TRM_OK);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_arrays(path, &c, &model, true), TRM_USAGE);
  CU_ASSERT(strstr(trm_error_text(), path) && strstr(trm_error_text(), "layer0.weight has shape (4, 3), but the "
                                                                       "model's has (2000000000, 3)"));
  trm_checkpoint_free(&c);
  trm_model_free(&model);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"damaged descriptions of data sets", test_datasets},
    {"values out of range", test_values},
    {"checks of the whole file", test_checks},
    {"texts of variable length", test_variable_text},
    {"damaged checkpoints", test_checkpoints},
    {"external storage", test_external_storage},
    {"virtual data sets", test_virtual_dataset},
    {"links", test_links},
    {"filters", test_filter},
    {"claims of many elements", test_claims},
    {"the claim of a large model", test_claimed_model},
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
