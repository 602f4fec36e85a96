/* Validation rows cut from a training split by data.validation: for every kind of rows, the same ones for any number of
 * ranks, in memory and streamed, and none of them in training. Validation rows of a split of the file, or of another
 * file. For 1 or more ranks. */
#include <math.h>

#include "job_folder.h"

enum { WIDTH = 30, CONTEXT = 10 };

struct cut {
  const char *path;
  enum made_kind kind;
  uint64_t rows; /* in the file; tokens: tokens */
  int64_t stride, seed;
};

static bool is_tokens(enum made_kind kind)
{
  return kind == MADE_TOKENS || kind == MADE_WIDE_TOKENS;
}

static struct trm_options options_of(const struct cut *cut, int64_t memory, bool shuffle)
{
  return (struct trm_options){
    .data = {.shuffle = shuffle, .memory = memory, .threads = 1, .context = CONTEXT, .stride = cut->stride,
             .validation = (char *)"0.1"},
    .train = {.batch = 64}, .parallel = {.share = TRM_SHARE_NODE}, .run = {.seed = cut->seed},
  };
}

static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
  for (size_t i = 0; i < bytes; i++)
    hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
  return hash;
}

/* Hashes the contents of row i of a batch. */
static uint64_t row_hash(const struct trm_dataset *data, const struct trm_host_batch *batch, size_t i)
{
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  if (data->spec.tokens) {
    hash = mix(hash, batch->tokens + i * CONTEXT, CONTEXT * sizeof(int32_t));
    return mix(hash, batch->target_class + i * CONTEXT, CONTEXT * sizeof(int32_t));
  }
  if (data->spec.sparse) {
    const size_t start = (size_t)batch->starts[i], entries = (size_t)batch->starts[i + 1] - start;
    hash = mix(hash, batch->columns + start, entries * sizeof(int32_t));
    hash = mix(hash, batch->values + start, entries * sizeof(float));
  } else {
    hash = mix(hash, batch->dense + i * WIDTH, WIDTH * sizeof(float));
  }
  if (data->spec.target == TRM_TARGET_VALUE)
    return mix(hash, batch->target_value + 2 * i, 2 * sizeof(float));
  return mix(hash, batch->target_class + i, sizeof(int32_t));
}

/* Reads a split in file order and returns its number of rows. first[n]: the row's number in the file, of tokens its
 * first token. *sum: the upper 40 bits of the rows' hashes, added. */
static size_t find_rows(const struct cut *cut, enum trm_split split, struct trm_comm *comm, int64_t memory,
                        uint64_t *first, uint64_t *sum)
{
  const struct trm_options options = options_of(cut, memory, false);
  struct trm_dataset *data;
  struct trm_host_batch batch = {0};
  const bool strided = split == TRM_SPLIT_TRAIN && cut->stride;
  const size_t step = !is_tokens(cut->kind) ? 1 : strided ? (size_t)cut->stride : CONTEXT;
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&data, cut->path, split, &options, comm), TRM_OK);
  size_t missing = 0;
  uint64_t row = 0;
  *sum = 0;
  for (size_t low = 0, high; low < data->rows; low = high) {
    high = low + 77 < data->rows ? low + 77 : data->rows;
    CU_ASSERT_EQUAL_FATAL(data->ops->fetch(data, 0, low, high, &batch), TRM_OK);
    for (size_t i = 0; i < high - low; i++, row++) {
      while (row * step < cut->rows && !made_is_row_strided(cut->kind, WIDTH, CONTEXT, step, &batch, i, row))
        row++;
      missing += row * step >= cut->rows;
      first[low + i] = row * step;
      *sum += row_hash(data, &batch, i) >> 24;
    }
  }
  CU_ASSERT_EQUAL(missing, 0);
  const size_t rows = data->rows;
  trm_host_batch_free(&batch);
  data->ops->close(data);
  return rows;
}

/* Returns the sum of the upper 40 bits of the hashes over a shuffled epoch of all ranks of comm. */
static uint64_t shuffled_sum(const struct cut *cut, struct trm_comm *comm, int64_t memory)
{
  const struct trm_options options = options_of(cut, memory, true);
  struct trm_dataset *data;
  struct trm_host_batch batch = {0};
  int64_t sum = 0;
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&data, cut->path, TRM_SPLIT_TRAIN, &options, comm), TRM_OK);
  for (size_t at = 0, end, low, high; at < data->rows; at = end) {
    end = at + 64 < data->rows ? at + 64 : data->rows;
    trm_interval(end - at, (size_t)comm->size, (size_t)comm->rank, &low, &high);
    CU_ASSERT_EQUAL_FATAL(data->ops->fetch(data, 3, at + low, at + high, &batch), TRM_OK);
    for (size_t i = 0; i < high - low; i++)
      sum += (int64_t)(row_hash(data, &batch, i) >> 24);
  }
  comm->ops->allreduce(comm, &sum, 1, TRM_INT64, TRM_SUM);
  trm_host_batch_free(&batch);
  data->ops->close(data);
  return (uint64_t)sum;
}

/* Counts targets of the file in more than one validation row, or in rows of both splits. Empty rows of csr are omitted:
 * find_rows cannot tell them apart. */
static size_t count_overlaps(const struct cut *cut, const uint64_t *train, size_t trains, const uint64_t *validation,
                             size_t validations)
{
  const size_t targets = is_tokens(cut->kind) ? CONTEXT : 1;
  unsigned char *seen = calloc(cut->rows + CONTEXT, 1);
  size_t overlaps = 0;
  for (size_t n = 0; n < validations; n++)
    for (size_t i = 0; i < targets && (cut->kind != MADE_CSR || made_entries(validation[n]) > 0); i++)
      overlaps += seen[validation[n] + i]++;
  for (size_t n = 0; n < trains; n++)
    for (size_t i = 0; i < targets; i++)
      overlaps += seen[train[n] + i];
  free(seen);
  return overlaps;
}

static void check_cut(enum made_kind kind, int64_t stride, int compress)
{
  const struct cut cut = {trm_format("%s/cut.h5", folder), kind, is_tokens(kind) ? 60007 : 6017, stride, 5};
  CU_ASSERT_EQUAL_FATAL(
    trm_agree(world, world->rank ? TRM_OK : made_file(cut.path, kind, WIDTH, cut.rows, 0, compress)), TRM_OK);
  uint64_t *train = calloc(cut.rows, sizeof *train), *other = calloc(cut.rows, sizeof *train);
  uint64_t *validation = calloc(cut.rows, sizeof *validation), sum, validation_sum, other_sum;
  const size_t trains = find_rows(&cut, TRM_SPLIT_TRAIN, trm_comm_self(), 1 << 30, train, &sum);
  const size_t validations =
    find_rows(&cut, TRM_SPLIT_VALIDATION, trm_comm_self(), 1 << 30, validation, &validation_sum);
  const uint64_t windows = is_tokens(kind) ? (cut.rows - 1) / CONTEXT : cut.rows;
  CU_ASSERT_EQUAL(validations, (size_t)lround(0.1 * (double)windows));
  CU_ASSERT_EQUAL(count_overlaps(&cut, train, trains, validation, validations), 0);
  CU_ASSERT(trains == windows - validations || (stride && trains > windows));
  double mean = 0; /* validation rows are spread over the split */
  for (size_t n = 0; n < validations; n++)
    mean += (double)validation[n] / (double)validations / (double)cut.rows;
  CU_ASSERT(fabs(mean - 0.5) < 0.05);
  const int64_t memories[] = {1 << 30, 100000, 2000};
  for (int m = 0; m < 3; m++) {
    CU_ASSERT_EQUAL(find_rows(&cut, TRM_SPLIT_TRAIN, world, memories[m], other, &other_sum), trains);
    CU_ASSERT(other_sum == sum && memcmp(train, other, trains * sizeof *train) == 0);
    CU_ASSERT_EQUAL(find_rows(&cut, TRM_SPLIT_VALIDATION, world, memories[m], other, &other_sum), validations);
    CU_ASSERT(other_sum == validation_sum && memcmp(validation, other, validations * sizeof *train) == 0);
    CU_ASSERT_EQUAL(shuffled_sum(&cut, world, memories[m]), sum);
  }
  free(train);
  free(other);
  free(validation);
  trm_free((char *)cut.path);
}

static void test_cuts(void)
{
  for (int kind = 0; kind < MADE_KINDS; kind++)
    check_cut((enum made_kind)kind, 0, 0);
  check_cut(MADE_TOKENS, 3, 0);
  check_cut(MADE_WIDE_TOKENS, 7, 0);
  check_cut(MADE_CSR, 0, 4);
}

/* 1.5 of 15 rows are rounded to 2; another seed cuts others. */
static void test_seeds(void)
{
  struct cut cut = {trm_format("%s/seeds.h5", folder), MADE_FLOATS, 15, 0, 5};
  CU_ASSERT_EQUAL_FATAL(
    trm_agree(world, world->rank ? TRM_OK : made_file(cut.path, cut.kind, WIDTH, cut.rows, 0, 0)), TRM_OK);
  uint64_t rows[2][15], sum;
  int others = 0;
  for (cut.seed = 5; cut.seed < 10; cut.seed++) {
    CU_ASSERT_EQUAL(find_rows(&cut, TRM_SPLIT_VALIDATION, trm_comm_self(), 1 << 30, rows[cut.seed > 5], &sum), 2);
    others += memcmp(rows[0], rows[cut.seed > 5], 2 * sizeof **rows) != 0;
  }
  CU_ASSERT(others >= 3); /* of 4 */
  trm_free((char *)cut.path);
}

/* Cuts with too few rows, fractions out of range. */
static void test_refused(void)
{
  const struct cut cut = {trm_format("%s/small.h5", folder), MADE_FLOATS, 1, 0, 5};
  CU_ASSERT_EQUAL_FATAL(
    trm_agree(world, world->rank ? TRM_OK : made_file(cut.path, cut.kind, WIDTH, cut.rows, 0, 0)), TRM_OK);
  struct trm_options options = options_of(&cut, 1 << 30, true);
  struct trm_dataset *data;
  CU_ASSERT_EQUAL(trm_dataset_hdf5.open(&data, cut.path, TRM_SPLIT_TRAIN, &options, world), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "data.validation: the train split"));
  options.data.validation = (char *)"1.5";
  CU_ASSERT_EQUAL(trm_dataset_hdf5.open(&data, cut.path, TRM_SPLIT_TRAIN, &options, world), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "data.validation: 1.5 is not a fraction"));
  options.data.validation = (char *)"0";
  CU_ASSERT_EQUAL(trm_dataset_hdf5.open(&data, cut.path, TRM_SPLIT_TRAIN, &options, world), TRM_OK);
  data->ops->close(data);
  trm_free((char *)cut.path);
}

/* -- rows of a file's own validation split, and of another file */

enum { TRAINS = 200, VALIDATIONS = 50, TESTS = 30 };

/* Writes a file whose rows are numbered through: train, then validation, then test; 0: without that split. */
static int make_splits(const char *path, enum made_kind kind, uint64_t validations, uint64_t tests, int compress)
{
  const uint64_t rows[] = {TRAINS, validations, tests};
  struct trm_data_spec spec;
  struct trm_data_writer *writer;
  made_spec(kind, WIDTH, compress, &spec);
  TRM_CHECK(trm_data_writer_open(&writer, path, &spec));
  uint64_t first = 0;
  for (int split = 0; split < 3; first += rows[split++])
    if (rows[split]) {
      CU_ASSERT_EQUAL(trm_data_writer_split(writer, trm_split_name((enum trm_split)split)), TRM_OK);
      CU_ASSERT_EQUAL(made_append(writer, kind, WIDTH, first, rows[split]), TRM_OK);
    }
  return trm_data_writer_finish(writer, 0);
}

/* The split has `rows` rows, from row `first` of its file on, in the file's order; rows 0: there is no such split. */
static void check_split(const struct trm_dataset *data, enum made_kind kind, uint64_t first, uint64_t rows)
{
  struct trm_host_batch batch = {0};
  CU_ASSERT_EQUAL_FATAL(data ? data->rows : 0, rows);
  if (!rows)
    return;
  CU_ASSERT_EQUAL_FATAL(data->ops->fetch((struct trm_dataset *)data, 0, 0, rows, &batch), TRM_OK);
  size_t wrong = 0;
  for (uint64_t i = 0; i < rows; i++)
    wrong += !made_is_row(kind, WIDTH, CONTEXT, &batch, i, first + i);
  CU_ASSERT_EQUAL(wrong, 0);
  trm_host_batch_free(&batch);
}

static void test_files(void)
{
  const struct cut cut = {trm_format("%s/own.h5", folder), MADE_CSR, TRAINS, 0, 5};
  char *plain = trm_format("%s/plain.h5", folder), *wide = trm_format("%s/wide.h5", folder);
  const int64_t memories[] = {1 << 30, 2000};
  /* data.file and data.validation: own and plain; the rows that follow */
  const struct {
    const char *file, *validation;
    uint64_t first, rows;
    int status;
  } cases[] = {
    {cut.path, "", TRAINS, VALIDATIONS, TRM_OK},
    {cut.path, plain, TRAINS, TESTS, TRM_OK}, /* the test split of another file */
    {cut.path, cut.path, TRAINS, VALIDATIONS, TRM_OK},
    {plain, "", 0, 0, TRM_OK},
    {plain, cut.path, TRAINS, VALIDATIONS, TRM_OK},
    {plain, plain, 0, 0, TRM_USAGE}, /* its test split is kept for the end */
    {plain, wide, 0, 0, TRM_USAGE},
  };
  if (world->rank == 0) {
    CU_ASSERT_EQUAL(make_splits(cut.path, cut.kind, VALIDATIONS, TESTS, 0), TRM_OK);
    CU_ASSERT_EQUAL(make_splits(plain, cut.kind, 0, TESTS, 3), TRM_OK);
    CU_ASSERT_EQUAL(make_splits(wide, MADE_FLOATS, VALIDATIONS, 0, 0), TRM_OK);
  }
  world->ops->barrier(world);
  for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
    const bool shuffle = i / 2 % 2 == 0; /* rows of evaluations stay in order */
    struct trm_options options = options_of(&cut, memories[i % 2], shuffle);
    struct trm_splits splits;
    options.data.file = (char *)cases[i / 2].file;
    options.data.validation = (char *)cases[i / 2].validation;
    options.data.test = (char *)"";
    CU_ASSERT_EQUAL(trm_splits_open(&splits, &trm_dataset_hdf5, &options, world), cases[i / 2].status);
    if (cases[i / 2].status == TRM_OK) {
      if (!shuffle)
        check_split(splits.train, cut.kind, 0, TRAINS); /* whole */
      check_split(splits.validation, cut.kind, cases[i / 2].first, cases[i / 2].rows);
      check_split(splits.test, cut.kind, cases[i / 2].file == plain ? TRAINS : TRAINS + VALIDATIONS, TESTS);
    } else {
      CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "data.validation: "));
    }
    trm_splits_close(&splits);
  }
  trm_free((char *)cut.path);
  trm_free(plain);
  trm_free(wide);
}

/* What trm_data_info prints, as text; to be freed. */
static char *info_text(const char *path, int *status)
{
  char *text = calloc(1 << 14, 1), *printed = trm_format("%s/info.txt", folder);
  fflush(stdout);
  const int out = dup(STDOUT_FILENO);
  CU_ASSERT_PTR_NOT_NULL_FATAL(freopen(printed, "w+", stdout));
  *status = trm_data_info(path, true, false);
  fflush(stdout);
  rewind(stdout);
  CU_ASSERT(fread(text, 1, (1 << 14) - 1, stdout) > 0);
  dup2(out, STDOUT_FILENO);
  close(out);
  clearerr(stdout);
  trm_free(printed);
  return text;
}

/* `trireme data info --check` describes a validation split, and the digest covers it. */
static void test_info(void)
{
  if (world->rank > 0)
    return;
  char *path = trm_format("%s/own.h5", folder), *digests[2];
  int status;
  for (int compress = 0; compress < 2; compress++) {
    CU_ASSERT_EQUAL(make_splits(path, MADE_CSR, VALIDATIONS, TESTS, compress), TRM_OK);
    char *text = info_text(path, &status);
    CU_ASSERT_EQUAL(status, TRM_OK);
    const char *train = strstr(text, "\ntrain          200 rows\n"), *test = strstr(text, "\ntest           30 rows\n");
    const char *validation = strstr(text, "\nvalidation     50 rows\n");
    CU_ASSERT_FATAL(train && validation && test && train < validation && validation < test);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "every block and the digest are as they were written"));
    digests[compress] = strndup(strstr(text, "\ndigest") + 1, 80);
    free(text);
  }
  CU_ASSERT_STRING_EQUAL(digests[0], digests[1]);
  free(digests[0]);
  free(digests[1]);
  trm_free(path);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"folder", job_folder},
    {"rows of every kind", test_cuts},
    {"seeds and rounding", test_seeds},
    {"refused", test_refused},
    {"split of the file, other files", test_files},
    {"split of the file, described", test_info},
    {"folder, removed", job_folder_remove},
    CU_TEST_INFO_NULL,
  };
  return ranks_run(argc, argv, "validation", tests);
}
