/* Shared by the tests of importers: files in a temporary folder, running an importer on them, reading the rows back. */
#pragma once

#include <glob.h>

#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

#include "core/comm.h"
#include "core/log.h"
#include "dataset_files.h"
#include "suite.h"

static char folder[256];

static inline char *file_name(const char *name)
{
  return trm_format("%s/%s", folder, name);
}

static inline void file_write(const char *name, const void *bytes, size_t count)
{
  char *path = file_name(name);
  FILE *file = fopen(path, "wb");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  CU_ASSERT_EQUAL(fwrite(bytes, 1, count, file), count);
  CU_ASSERT_EQUAL(fclose(file), 0);
  trm_free(path);
}

/* Returns true if a file name starts with `name`: out.h5, or a temporary file of it. */
static inline bool file_exists(const char *name)
{
  char *path = file_name(name), *pattern = trm_format("%s*", path);
  glob_t found;
  const bool exists = glob(pattern, 0, NULL, &found) == 0;
  globfree(&found);
  trm_free(path);
  trm_free(pattern);
  return exists;
}

#ifdef HAVE_ZLIB
static inline void file_gzip(const char *name, const void *bytes, size_t count)
{
  char *path = file_name(name);
  gzFile file = gzopen(path, "wb");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  CU_ASSERT_EQUAL(gzwrite(file, bytes, (unsigned)count), (int)count);
  CU_ASSERT_EQUAL(gzclose(file), Z_OK);
  trm_free(path);
}

/* Truncates a file. */
static inline void file_truncate(const char *name, long bytes)
{
  char *path = file_name(name);
  CU_ASSERT_EQUAL(truncate(path, bytes), 0);
  trm_free(path);
}
#endif

/* Runs an importer on files of the folder ("a b": two files); the output is out.h5 there. */
static inline int import_run(const char *format, const char *names, struct trm_import_request request)
{
  char *paths[8], *list = trm_strdup(names), *rest = list, *out = file_name("out.h5");
  for (char *name; request.count < 8 && (name = strsep(&rest, " ")) != NULL;)
    paths[request.count++] = name[0] == '/' ? trm_strdup(name) : file_name(name);
  request.paths = (const char *const *)paths;
  request.out = out;
  const struct trm_importer *importer = trm_importer_table;
  while (importer->name && strcmp(importer->name, format) != 0)
    importer++;
  CU_ASSERT_PTR_NOT_NULL_FATAL(importer->name);
  const int status = importer->run(&request);
  if (status != TRM_OK)
    CU_ASSERT_NOT_EQUAL(trm_error_text()[0], '\0');
  for (int i = 0; i < request.count; i++)
    trm_free(paths[i]);
  trm_free(list);
  trm_free(out);
  return status;
}

/* Checks that the import fails, with `what` in its message, and leaves no file. */
static inline void import_fails(const char *format, const char *names, const struct trm_import_request *request,
                                const char *what)
{
  const int status = import_run(format, names, *request);
  CU_ASSERT_NOT_EQUAL(status, TRM_OK);
  if (status == TRM_OK || !strstr(trm_error_text(), what)) {
    printf("\n%s %s: \"%s\", which should say \"%s\"\n", format, names, status == TRM_OK ? "" : trm_error_text(), what);
    CU_FAIL("message");
  }
  CU_ASSERT(!file_exists("out.h5"));
}

static const struct trm_import_request plain = {.test_part = -1, .target = "class"};

/* The rows of one split of out.h5 in file order. */
struct split {
  struct trm_dataset *dataset;
  struct trm_host_batch batch;
};

static inline void split_read(struct split *split, enum trm_split which, int64_t context)
{
  const struct trm_options options = {
    .data = {.shuffle = false, .memory = 1 << 28, .context = context},
    .train = {.batch = 10}, .parallel = {.share = TRM_SHARE_NONE},
  };
  char *path = file_name("out.h5");
  *split = (struct split){.dataset = NULL};
  int status = trm_dataset_hdf5.open(&split->dataset, path, which, &options, trm_comm_self());
  if (status == TRM_OK)
    status = trm_dataset_hdf5.fetch(split->dataset, 0, 0, split->dataset->rows, &split->batch);
  if (status != TRM_OK)
    printf("\n%s\n", trm_error_text());
  CU_ASSERT_EQUAL_FATAL(status, TRM_OK);
  trm_free(path);
}

static inline void split_free(struct split *split)
{
  trm_dataset_hdf5.close(split->dataset);
  trm_host_batch_free(&split->batch);
}

static inline void out_remove(void)
{
  char *path = file_name("out.h5");
  CU_ASSERT_EQUAL(unlink(path), 0);
  trm_free(path);
}

/* Runs a table of tests in a temporary folder. */
static inline int import_suite(const char *name, CU_TestInfo *tests)
{
  trm_log_set_quiet(true);
  made_folder(folder);
  if (!folder[0])
    return 99;
  const int failed = suite_run(name, tests);
  made_folder_remove(folder);
  return failed;
}
