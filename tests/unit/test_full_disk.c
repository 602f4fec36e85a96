/* Files that cannot grow beyond a limit, as on a full disk: writing fails with a message that names the file, at
 * whatever byte the limit is; an older file is untouched, and nothing is left. */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "dataset_files.h"
#include "datasets/datasets.h"
#include "suite.h"

static char folder[256], path[300];
static struct trm_model model;
static float *weights;

static void limit_set(rlim_t bytes)
{
  struct rlimit limit;
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
  CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &limit), 0);
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

static int write_images(void)
{
  return made_file(path, MADE_BYTES, 3000, 300, 20, 0);
}

static int write_compressed(void)
{
  return made_file(path, MADE_FLOATS, 300, 300, 20, 1);
}

static int write_sparse(void)
{
  return made_file(path, MADE_CSR, 20, 9000, 300, 0);
}

static int write_tokens(void)
{
  return made_file(path, MADE_WIDE_TOKENS, 20, 60000, 600, 0);
}

static int write_checkpoint(void)
{
  const struct trm_checkpoint c = {
    .updates = 17, .model_text = model.text, .loss_name = (char *)model.loss->name, .config = (char *)"a: b\n",
    .spec = model.spec, .states = 3, .state_name = {"weights", "first", "second"},
    .state = {weights, weights, weights}};
  return trm_checkpoint_hdf5.write(path, &c, &model);
}

static int write_predictions(void)
{
  static float scores[60000];
  static int32_t predicted[6000];
  return trm_predictions_write(
    path, &(struct trm_predictions){.scores = scores, .predicted = predicted, .rows = 6000, .columns = 10});
}

/* Writes under ever larger limits. An older file has one byte. */
static void test_of(int (*write_file)(void))
{
  struct stat info;
  unlink(path);
  CU_ASSERT_EQUAL_FATAL(write_file(), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(stat(path, &info), 0);
  const rlim_t whole = (rlim_t)info.st_size;
  int failures = 0;
  for (rlim_t bytes = 1; bytes < whole; bytes += whole / 40) {
    unlink(path);
    FILE *older = fopen(path, "w");
    CU_ASSERT(older && fputc('x', older) == 'x' && fclose(older) == 0);
    limit_set(bytes);
    const int status = write_file();
    limit_set(RLIM_INFINITY);
    CU_ASSERT_EQUAL(status, TRM_FAILED);
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), path));
    CU_ASSERT(stat(path, &info) == 0 && info.st_size == 1);
    CU_ASSERT_EQUAL(files_count(), 1);
    failures += status == TRM_FAILED;
  }
  CU_ASSERT(failures >= 40);
  CU_ASSERT_EQUAL(write_file(), TRM_OK);
}

static void test_datasets(void)
{
  test_of(write_images);
  test_of(write_compressed);
  test_of(write_sparse);
  test_of(write_tokens);
}

static void test_checkpoints(void)
{
  const struct trm_input_spec spec = {.shape = {.dims = 1, .size = {300}}, .target = TRM_TARGET_CLASS, .classes = 7};
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "mlp 300-500-7 relu", "auto", &spec), TRM_OK);
  weights = trm_alloc(model.parameters * sizeof *weights, "test");
  trm_model_init(&model, 1, weights);
  test_of(write_checkpoint);
  trm_free(weights);
  trm_model_free(&model);
}

static void test_predictions(void)
{
  test_of(write_predictions);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"data sets", test_datasets},
    {"checkpoints", test_checkpoints},
    {"predictions", test_predictions},
    CU_TEST_INFO_NULL,
  };
  signal(SIGXFSZ, SIG_IGN); /* writing fails with EFBIG */
  trm_hdf5_init();
  made_folder(folder);
  if (!folder[0])
    return 99;
  snprintf(path, sizeof path, "%s/file.h5", folder);
  const int status = suite_run("full disk", tests);
  made_folder_remove(folder);
  return status;
}
