/* Damaged data sets and checkpoints: after any changed byte or truncation, reading either returns unchanged data or
 * fails with an error that names the file. Never a crash, never other data. */
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>

#include "core/random.h"
#include "dataset_files.h"
#include "datasets/blocks.h"
#include "suite.h"
#include "train/strategy.h"

static char folder[256];

static unsigned char *bytes_read(const char *path, size_t *bytes)
{
  FILE *file = fopen(path, "rb");
  struct stat about;
  fstat(fileno(file), &about);
  *bytes = (size_t)about.st_size;
  unsigned char *data = malloc(*bytes);
  if (fread(data, 1, *bytes, file) != *bytes)
    *bytes = 0;
  fclose(file);
  return data;
}

static void bytes_write(const char *path, const unsigned char *data, size_t bytes)
{
  FILE *file = fopen(path, "wb");
  fwrite(data, 1, bytes, file);
  fclose(file);
}

/* A file under test; reads everything that a run reads and compares it with what was written. */
struct subject {
  enum made_kind kind;
  size_t width;
  uint64_t rows;
  int64_t memory;
  const struct trm_model *model; /* checkpoints */
  const float *weights;
  bool local; /* the checkpoint has local state of two ranks */
};

static const char local_bytes[3][20000] = {{1, 2, 3}, {4, 5, 6}, {7}};
static const struct trm_local_state local_items[2][2] = {
  {{"worker", (void *)local_bytes[0], 20000}, {"clock", (void *)local_bytes[1], 8}},
  {{"worker", (void *)local_bytes[2], 20000}, {"clock", (void *)local_bytes[1], 8}},
};

static int local_of_rank(void *from, int rank, const struct trm_local_state **local, int *count)
{
  (void)from;
  *local = local_items[rank];
  *count = 2;
  return TRM_OK;
}

enum outcome { SAME, REFUSED, WRONG };

static enum outcome refused(const char *path)
{
  const bool named = strstr(trm_error_text(), path) != NULL;
  if (!named)
    printf("no file in the message: %s\n", trm_error_text());
  return named ? REFUSED : WRONG;
}

static enum outcome dataset_judge(const char *path, const struct subject *subject)
{
  struct trm_options options = {
    .data = {.shuffle = false, .memory = subject->memory, .threads = 0, .context = 10},
    .train = {.batch = 16}, .parallel = {.share = TRM_SHARE_NONE}};
  struct trm_dataset *data;
  if (trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, trm_comm_self()) != TRM_OK)
    return refused(path);
  struct trm_host_batch batch = {0};
  enum outcome outcome = data->rows == subject->rows ? SAME : WRONG;
  if (subject->kind == MADE_BYTES &&
      (data->spec.classes != MADE_CLASSES || !data->class_names || strcmp(data->class_names[5], "five")))
    outcome = WRONG;
  for (size_t at = 0; at < data->rows && outcome == SAME; at += batch.rows) {
    const size_t end = at + 500 < data->rows ? at + 500 : data->rows;
    if (data->ops->fetch(data, 0, at, end, &batch) != TRM_OK) {
      outcome = refused(path);
      break;
    }
    for (size_t i = 0; i < batch.rows && outcome == SAME; i++)
      outcome = made_is_row(subject->kind, subject->width, 10, &batch, i, at + i) ? SAME : WRONG;
  }
  trm_host_batch_free(&batch);
  data->ops->close(data);
  return outcome;
}

static enum outcome local_judge(const char *path, int rank)
{
  char worker[20000], clock[8];
  const struct trm_local_state local[2] = {{"worker", worker, sizeof worker}, {"clock", clock, sizeof clock}};
  bool fits = false;
  if (trm_checkpoint_hdf5.local_states_match(path, rank, local, 2, &fits) != TRM_OK)
    return refused(path);
  if (!fits)
    return WRONG;
  if (trm_checkpoint_hdf5.local_states_read(path, rank, local, 2) != TRM_OK)
    return refused(path);
  for (int i = 0; i < 2; i++)
    if (memcmp(local[i].data, local_items[rank][i].data, local[i].bytes))
      return WRONG;
  return SAME;
}

static enum outcome checkpoint_judge(const char *path, const struct subject *subject)
{
  struct trm_checkpoint back;
  if (trm_checkpoint_hdf5.read_head(path, &back) != TRM_OK)
    return refused(path);
  enum outcome outcome = SAME;
  if (back.updates != 17 || back.states != 2 || strcmp(back.model_text, subject->model->text) || back.wall_s != 2.5)
    outcome = WRONG;
  else if (trm_checkpoint_hdf5.read_arrays(path, &back, subject->model, true) != TRM_OK)
    outcome = refused(path);
  else
    for (int s = 0; s < 2; s++)
      if (memcmp(back.state[s], subject->weights, subject->model->parameters * sizeof(float)))
        outcome = WRONG;
  if (outcome == SAME && back.local_state_ranks != (subject->local ? 2 : 0))
    outcome = WRONG;
  for (int rank = 0; rank < back.local_state_ranks && outcome == SAME; rank++)
    outcome = local_judge(path, rank);
  trm_checkpoint_free(&back);
  return outcome;
}

static enum outcome judge(const char *path, const struct subject *subject)
{
  return subject->model ? checkpoint_judge(path, subject) : dataset_judge(path, subject);
}

/* `trireme data info --check` must not crash, nor accept wrong data. */
static int info_check(const char *path)
{
  fflush(stdout);
  const int screen = dup(1), nowhere = open("/dev/null", O_WRONLY);
  dup2(nowhere, 1);
  close(nowhere);
  const int status = trm_data_info(path, true, true);
  fflush(stdout);
  dup2(screen, 1);
  close(screen);
  return status;
}

static void damage(const char *path, const struct subject *subject, size_t flips)
{
  size_t bytes, counts[3] = {0}, refused_by_info = 0;
  unsigned char *data = bytes_read(path, &bytes);
  CU_ASSERT_EQUAL(judge(path, subject), SAME);
  CU_ASSERT_EQUAL(info_check(path), TRM_OK);
  /* every one of the first bytes, then bytes all over the file */
  for (size_t i = 0; i < flips; i++) {
    const size_t at = i < flips / 4 ? i * 3 % bytes : (size_t)((double)bytes * (double)i / (double)flips);
    const unsigned char old = data[at];
    data[at] ^= (unsigned char)(i % 3 ? 1 << i % 8 : 0xff);
    bytes_write(path, data, bytes);
    data[at] = old;
    const enum outcome outcome = judge(path, subject);
    const bool sound = info_check(path) == TRM_OK;
    if (outcome == WRONG || (outcome == REFUSED && sound))
      printf("byte %zu of %zu changed: %s, info %s\n", at, bytes, outcome == WRONG ? "other data" : trm_error_text(),
             sound ? "sound" : "damaged");
    counts[outcome]++;
    refused_by_info += !sound;
  }
  CU_ASSERT_EQUAL(counts[WRONG], 0);
  CU_ASSERT(counts[REFUSED] > flips / 2); /* the others: unused bytes, or those of the other split */
  CU_ASSERT(refused_by_info >= counts[REFUSED]);
  for (size_t i = 0; i < 60; i++) {
    const size_t cut = i < 20 ? bytes - 1 - i : (size_t)((double)bytes * (double)(i - 20) / 40);
    bytes_write(path, data, cut);
    CU_ASSERT_EQUAL(judge(path, subject), REFUSED);
    CU_ASSERT_NOT_EQUAL(info_check(path), TRM_OK);
  }
  bytes_write(path, data, bytes);
  free(data);
}

static void test_datasets(void)
{
  char *path = trm_format("%s/damage.h5", folder);
  for (int kind = 0; kind < MADE_KINDS; kind++)
    for (int compress = 0; compress <= 4; compress += 4) {
      const bool tokens = kind == MADE_TOKENS || kind == MADE_WIDE_TOKENS;
      const struct subject subject = {.kind = (enum made_kind)kind, .width = 20, .rows = tokens ? 299 : 600,
                                      .memory = 1 << 20};
      CU_ASSERT_EQUAL(made_file(path, subject.kind, 20, tokens ? 3000 : 600, 0, compress), TRM_OK);
      damage(path, &subject, 240);
    }
  trm_free(path);
}

/* If one part is damaged, the others are readable. */
static void test_out_of_memory(void)
{
  char *path = trm_format("%s/direct.h5", folder);
  const struct subject subject = {.kind = MADE_BYTES, .width = 3000, .rows = 300, .memory = 1};
  for (int compress = 0; compress <= 1; compress++) {
    CU_ASSERT_EQUAL(made_file(path, MADE_BYTES, 3000, 300, 0, compress), TRM_OK);
    damage(path, &subject, 60);
  }
  trm_free(path);
}

static void test_checkpoints(void)
{
  char *path = trm_format("%s/damage-checkpoint.h5", folder);
  const struct trm_input_spec spec = {.shape = {.dims = 1, .size = {30}}, .target = TRM_TARGET_CLASS, .classes = 7};
  struct trm_model model;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "mlp 30-50-7 relu", "auto", &spec), TRM_OK);
  float *weights = trm_alloc(model.parameters * sizeof *weights, "test");
  trm_model_init(&model, 1, weights);
  struct trm_checkpoint c = {
    .updates = 17, .wall_s = 2.5, .model_text = model.text, .loss_name = (char *)model.loss->name,
    .config = (char *)"a: b\n", .record = (char *)"{}\n", .spec = spec, .states = 2,
    .state_name = {"weights", "momentum"}, .state = {weights, weights}};
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.write(path, &c, &model), TRM_OK);
  struct subject subject = {.model = &model, .weights = weights};
  damage(path, &subject, 800);
  c.local_state_ranks = 2;
  c.read_local_states = local_of_rank;
  subject.local = true;
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.write(path, &c, &model), TRM_OK);
  damage(path, &subject, 800);
  trm_free(weights);
  trm_model_free(&model);
  trm_free(path);
}

/* Invalid values with valid checksums are refused. */
static void patched(enum made_kind kind, const void *old, const void *new, size_t bytes, const char *message)
{
  char *path = trm_format("%s/patched.h5", folder);
  const struct subject subject = {.kind = kind, .width = 20, .rows = 100, .memory = 1 << 20};
  size_t length;
  CU_ASSERT_EQUAL(made_file(path, kind, 20, 100, 0, 0), TRM_OK);
  unsigned char *data = bytes_read(path, &length), *at = data;
  /* the written bytes are part of an array with a checksum: find it by trying all its possible starts and lengths */
  const size_t row = kind == MADE_CSR ? 4 : bytes == 4 && kind == MADE_FLOATS && !strstr(message, "class") ? 80 : 4;
  const size_t rows = kind == MADE_CSR ? 396 : 100;
  bool found = false;
  for (; at + rows * row <= data + length && !found; at++) {
    const uint64_t sum = block_checksum(at, rows * row);
    unsigned char *table = memmem(data, length, &sum, sizeof sum), *cell = memmem(at, rows * row, old, bytes);
    if (!table || !cell)
      continue;
    memcpy(cell, new, bytes);
    const uint64_t again = block_checksum(at, rows * row);
    memcpy(table, &again, sizeof again);
    found = true;
  }
  CU_ASSERT(found);
  bytes_write(path, data, length);
  CU_ASSERT_EQUAL(judge(path, &subject), REFUSED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), message));
  if (!strstr(trm_error_text(), message))
    printf("expected: %s\nfound: %s\n", message, trm_error_text());
  free(data);
  trm_free(path);
}

static void test_values(void)
{
  const float nan = NAN, inf = -INFINITY, x = made_float(42, 3), v = made_float(77, 1);
  const int32_t class[4] = {made_class(9), made_class(10), made_class(11), made_class(12)};
  int32_t bad[4] = {class[0], class[1], MADE_CLASSES, class[3]};
  patched(MADE_FLOATS, &x, &nan, 4, "train row 42 of x has a value that is not finite");
  patched(MADE_FLOATS, &x, &inf, 4, "train row 42 of x has a value that is not finite");
  patched(MADE_FLOATS, class, bad, 16, "train row 11 has class 7, but the classes are 0 to 6");
  bad[2] = -1;
  patched(MADE_FLOATS, class, bad, 16, "train row 11 has class -1, but the classes are 0 to 6");
  patched(MADE_CSR, &v, &nan, 4, "train row 77 of values has a value that is not finite");
  const int32_t column = made_column(78, 2), far = MADE_FEATURES;
  patched(MADE_CSR, &column, &far, 4, "has column 1000 after");
}

static void test_not_ours(void)
{
  char *path = trm_format("%s/other.h5", folder);
  const struct subject subject = {.kind = MADE_BYTES, .width = 20, .rows = 100, .memory = 1 << 20};
  bytes_write(path, (const unsigned char *)"", 0);
  CU_ASSERT(judge(path, &subject) == REFUSED && strstr(trm_error_text(), "it is empty"));
  bytes_write(path, (const unsigned char *)"label,1,2\n", 10);
  CU_ASSERT(judge(path, &subject) == REFUSED && strstr(trm_error_text(), "is not an HDF5 file"));
  const int32_t answers[2] = {1, 2};
  const float scores[4] = {0};
  const struct trm_predictions predictions = {.scores = scores, .predicted = answers, .rows = 2, .columns = 2};
  CU_ASSERT_EQUAL(trm_predictions_write(path, &predictions), TRM_OK);
  CU_ASSERT(judge(path, &subject) == REFUSED && strstr(trm_error_text(), "neither a data set nor a checkpoint"));
  unlink(path);
  CU_ASSERT(judge(path, &subject) == REFUSED && strstr(trm_error_text(), "No such file"));
  /* a missing split; one without rows */
  struct trm_options options = {.data = {.shuffle = false, .memory = 1 << 20, .context = 10},
                                .parallel = {.share = TRM_SHARE_NONE}};
  struct trm_dataset *data;
  bool has = true;
  CU_ASSERT_EQUAL(made_file(path, MADE_BYTES, 20, 100, 0, 0), TRM_OK);
  CU_ASSERT(trm_dataset_hdf5.has_split(path, TRM_SPLIT_TEST, &has) == TRM_OK && !has);
  CU_ASSERT_EQUAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TEST, &options, trm_comm_self()), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "other.h5: has no test split"));
  for (int kind = 0; kind < MADE_KINDS; kind++)
    for (int compress = 0; compress < 2; compress++) {
      CU_ASSERT_EQUAL(made_file(path, (enum made_kind)kind, 20, 0, 0, compress), TRM_OK);
      CU_ASSERT_NOT_EQUAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, trm_comm_self()), TRM_OK);
      CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), kind < MADE_TOKENS ? "has no rows" : "has 0 tokens"));
      CU_ASSERT_EQUAL(info_check(path), TRM_OK);
    }
  trm_free(path);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"data sets", test_datasets},
    {"data sets larger than memory", test_out_of_memory},
    {"checkpoints", test_checkpoints},
    {"values out of range", test_values},
    {"other files", test_not_ours},
    CU_TEST_INFO_NULL,
  };
  made_folder(folder);
  const int failed = suite_run("damage", tests);
  made_folder_remove(folder);
  return failed;
}
