/* Checkpoints: round trips, refusal of other models and files, complete or absent after a full disk. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <glob.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "core/random.h"
#include "dataset_files.h"
#include "suite.h"
#include "train/strategy.h"

static char folder[256];

static void model_make(struct trm_model *model, const char *text)
{
  const struct trm_input_spec spec = {
    .shape = {.dims = 3, .size = {1, 5, 4}}, .target = TRM_TARGET_CLASS, .classes = 7};
  if (trm_model_create(model, text, "auto", &spec) != TRM_OK) {
    CU_FAIL_FATAL("model");
    printf("%s\n", trm_error_text());
  }
}

static const char *const names[] = {"zero", "one", "two", "three", "four", "five", "s\xc3\xa9ven"};

/* Makes a checkpoint of a model with `states` arrays of distinct values. */
static void checkpoint_make(struct trm_checkpoint *c, const struct trm_model *model, int states, uint32_t stream)
{
  *c = (struct trm_checkpoint){
    .seed = UINT64_MAX, .epoch = 3, .position = 1234567890123, .updates = 17, .samples = 999, .batch = 64,
    .best_loss = NAN, .best_accuracy = 0.1 + 1e-17, .best_updates = 16, .stale_evaluations = 2, .wall_s = 1e-300,
    .plateau_factor = 0.1, .plateau_best = INFINITY, .plateau_waited = 5,
    .model_text = model->text, .loss_name = (char *)model->loss->name,
    .config = (char *)"model: mlp\n# comment: \xc3\xa4\noptim: {lr: 0.1}\n", .data_digest = (char *)"abc",
    .spec = model->spec, .class_names = (char **)names, .states = states,
    .state_name = {"weights", "first", "second"},
  };
  for (int s = 0; s < states; s++) {
    c->state[s] = trm_alloc(model->parameters * sizeof(float), "test");
    for (int p = 0; p < trm_model_parameter_count(model); p++) { /* padding between the tensors stays 0 */
      const struct trm_parameter *parameter = trm_model_parameter(model, p);
      for (size_t i = 0; i < parameter->count; i++)
        c->state[s][parameter->offset + i] =
          trm_random_normal(1, TRM_RANDOM_BENCH, stream + (uint32_t)s, parameter->offset + i);
    }
  }
}

static void checkpoint_drop(struct trm_checkpoint *c)
{
  for (int s = 0; s < c->states; s++)
    trm_free(c->state[s]);
}

static bool same_arrays(const struct trm_checkpoint *a, const struct trm_checkpoint *b, const struct trm_model *model)
{
  bool same = a->states == b->states;
  for (int s = 0; same && s < a->states; s++)
    same = memcmp(a->state[s], b->state[s], model->parameters * sizeof(float)) == 0;
  return same;
}

/* Local state of three ranks: two items; none; an empty item and one of many blocks. */
static char worker[1000], clock_word[8], large[3500001];
static const struct trm_local_state local_of_rank[3][2] = {
  {{"worker", worker, sizeof worker}, {"clock", clock_word, sizeof clock_word}},
  {{"", NULL, 0}},
  {{"nothing", NULL, 0}, {"large", large, sizeof large}},
};
static const int local_count[3] = {2, 0, 2};

static int local_next(void *from, int rank, const struct trm_local_state **local, int *count)
{
  int *calls = from;
  CU_ASSERT_EQUAL(rank, *calls);
  ++*calls;
  *local = local_of_rank[rank];
  *count = local_count[rank];
  return TRM_OK;
}

static int local_fail(void *from, int rank, const struct trm_local_state **local, int *count)
{
  return rank < 2 ? local_next(from, rank, local, count) : trm_error(TRM_FAILED, "rank 2 does not answer");
}

/* Writes a checkpoint with local state. */
static int write_with_local(const char *path, struct trm_checkpoint *c, const struct trm_model *model,
                      int (*next)(void *, int, const struct trm_local_state **, int *))
{
  int calls = 0;
  for (size_t i = 0; i < sizeof worker; i++)
    worker[i] = (char)(i * 37 % 251);
  for (size_t i = 0; i < sizeof large; i++)
    large[i] = (char)(i * 31 % 253);
  memcpy(clock_word, "\x01\x02\0\0\x05\x06\x07\x80", 8);
  c->local_state_ranks = 3;
  c->read_local_states = next;
  c->read_local_states_context = &calls;
  return trm_checkpoint_hdf5.write(path, c, model);
}

static void test_round_trip(void)
{
  char *path = trm_format("%s/round.h5", folder);
  const char *const texts[] = {"linear 7", "mlp 20-300-7 relu", "mlp 20-16-16-7 tanh"};
  for (int t = 0; t < 3; t++)
    for (int states = 1; states <= 3; states++) {
      struct trm_model model;
      struct trm_checkpoint c, back = {0};
      model_make(&model, texts[t]);
      checkpoint_make(&c, &model, states, 0);
      struct trm_batch_part undone[] = {{3, 0, 1}, {UINT64_C(1) << 40, 4, 5}, {UINT64_C(1) << 41, 6, UINT32_MAX}};
      c.record = t == 1 ? (char *)"{\"command\": [\"s\xc3\xa9ven \\\"\"]}\n" : NULL;
      c.undone = undone;
      c.undones = t == 1 ? 3 : 0;
      CU_ASSERT_EQUAL(trm_checkpoint_hdf5.write(path, &c, &model), TRM_OK);
      CU_ASSERT_EQUAL_FATAL(trm_checkpoint_hdf5.read_head(path, &back), TRM_OK);
      CU_ASSERT(back.undones == c.undones && (back.undone != NULL) == (t == 1));
      for (size_t i = 0; i < back.undones; i++)
        CU_ASSERT(back.undone[i].batch == undone[i].batch && back.undone[i].part == undone[i].part &&
                  back.undone[i].parts == undone[i].parts);
      CU_ASSERT(back.seed == c.seed && back.epoch == c.epoch && back.position == c.position);
      CU_ASSERT(back.updates == c.updates && back.samples == c.samples && back.batch == c.batch);
      CU_ASSERT(isnan(back.best_loss) && back.best_accuracy == c.best_accuracy && back.wall_s == c.wall_s);
      CU_ASSERT(back.plateau_factor == 0.1 && isinf(back.plateau_best) && back.plateau_waited == 5);
      CU_ASSERT(back.best_updates == c.best_updates && back.stale_evaluations == c.stale_evaluations);
      CU_ASSERT_STRING_EQUAL(back.model_text, c.model_text);
      CU_ASSERT_STRING_EQUAL(back.loss_name, c.loss_name);
      CU_ASSERT_STRING_EQUAL(back.config, c.config);
      CU_ASSERT_STRING_EQUAL(back.data_digest, c.data_digest);
      CU_ASSERT(t == 1 ? back.record && strcmp(back.record, c.record) == 0 : !back.record);
      CU_ASSERT(back.spec.shape.dims == 3 && back.spec.shape.size[1] == 5 && back.spec.classes == 7);
      CU_ASSERT(!back.spec.sparse && !back.spec.tokens && back.spec.target == TRM_TARGET_CLASS);
      for (int i = 0; i < 7; i++)
        CU_ASSERT_STRING_EQUAL(back.class_names[i], names[i]);
      CU_ASSERT_EQUAL(back.states, states);
      for (int s = 0; s < states; s++)
        CU_ASSERT_STRING_EQUAL(back.state_name[s], c.state_name[s]);
      CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_arrays(path, &back, &model, true), TRM_OK);
      CU_ASSERT(same_arrays(&c, &back, &model));
      trm_checkpoint_free(&back);
      /* weights only */
      CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_head(path, &back), TRM_OK);
      CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_arrays(path, &back, &model, false), TRM_OK);
      CU_ASSERT(back.states == 1 && memcmp(back.state[0], c.state[0], model.parameters * sizeof(float)) == 0);
      trm_checkpoint_free(&back);
      checkpoint_drop(&c);
      trm_model_free(&model);
    }
  trm_free(path);
}

/* Frozen parameters: no optimizer states in the file, which read as 0; their average is the weights. */
static void test_frozen(void)
{
  char *path = trm_format("%s/frozen.h5", folder);
  struct trm_model model;
  struct trm_checkpoint c, back = {0};
  struct stat all, trained;
  size_t frozen_bytes = 0;
  model_make(&model, "mlp 20-3000-7 relu");
  checkpoint_make(&c, &model, 3, 0);
  c.state_name[2] = "ema";
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.write(path, &c, &model), TRM_OK);
  CU_ASSERT_EQUAL(stat(path, &all), 0);
  const bool frozen[] = {true, false, false, true};
  CU_ASSERT_EQUAL_FATAL(trm_model_parameter_count(&model), 4);
  c.frozen = frozen;
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.write(path, &c, &model), TRM_OK);
  CU_ASSERT_EQUAL(stat(path, &trained), 0);
  for (int p = 0; p < 4; p++) {
    const struct trm_parameter *parameter = trm_model_parameter(&model, p);
    const size_t bytes = parameter->count * sizeof(float);
    if (!frozen[p])
      continue;
    frozen_bytes += bytes;
    memset(c.state[1] + parameter->offset, 0, bytes);
    memcpy(c.state[2] + parameter->offset, c.state[0] + parameter->offset, bytes);
  }
  CU_ASSERT(all.st_size - trained.st_size >= (off_t)(2 * frozen_bytes));
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.verify(path), TRM_OK);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_head(path, &back), TRM_OK);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_arrays(path, &back, &model, true), TRM_OK);
  CU_ASSERT(same_arrays(&c, &back, &model));
  trm_checkpoint_free(&back);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_head(path, &back), TRM_OK);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_arrays(path, &back, &model, false), TRM_OK);
  CU_ASSERT(memcmp(back.state[0], c.state[2], model.parameters * sizeof(float)) == 0);
  trm_checkpoint_free(&back);
  checkpoint_drop(&c);
  trm_model_free(&model);
  trm_free(path);
}

/* Reads the arrays into another model; returns the status. */
static int read_into(const char *path, const char *text)
{
  struct trm_model model;
  struct trm_checkpoint back = {0};
  model_make(&model, text);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_head(path, &back), TRM_OK);
  const int status = trm_checkpoint_hdf5.read_arrays(path, &back, &model, true);
  trm_checkpoint_free(&back);
  trm_model_free(&model);
  return status;
}

static bool error_has(const char *a, const char *b)
{
  const bool has = strstr(trm_error_text(), a) && strstr(trm_error_text(), b);
  if (!has)
    printf("error: %s\n", trm_error_text());
  return has;
}

/* A checkpoint from before biases in front of a batch norm were omitted. */
static void test_omitted_bias(void)
{
  char *path = trm_format("%s/biased.h5", folder);
  struct trm_model model;
  struct trm_checkpoint c;
  model_make(&model, "linear 9 bias=yes | batch_norm | relu | linear 7");
  checkpoint_make(&c, &model, 2, 0);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.write(path, &c, &model), TRM_OK);
  CU_ASSERT_EQUAL(read_into(path, "linear 9 bias=yes | batch_norm | relu | linear 7"), TRM_OK);
  CU_ASSERT_EQUAL(read_into(path, "linear 9 | batch_norm | relu | linear 7"), TRM_USAGE);
  CU_ASSERT(error_has("has weights/layer0.bias", "; write bias=yes on layer 0 (linear): "));
  CU_ASSERT_EQUAL(read_into(path, "linear 9 bias=no | batch_norm | relu | linear 7"), TRM_USAGE);
  CU_ASSERT_PTR_NULL(strstr(trm_error_text(), "bias=yes"));
  checkpoint_drop(&c);
  trm_model_free(&model);
  trm_free(path);
}

static void test_other_models(void)
{
  char *path = trm_format("%s/other.h5", folder);
  struct trm_model model;
  struct trm_checkpoint c;
  model_make(&model, "linear 9 | relu | linear 7");
  checkpoint_make(&c, &model, 2, 0);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.write(path, &c, &model), TRM_OK);
  CU_ASSERT_EQUAL(read_into(path, "linear 9 | tanh | linear 7"), TRM_OK);
  CU_ASSERT_EQUAL(read_into(path, "linear 8 | relu | linear 7"), TRM_USAGE);
  CU_ASSERT(error_has("other.h5: weights/layer", "has shape (9, 20), but the model's has (8, 20)"));
  CU_ASSERT_EQUAL(read_into(path, "linear 9 | relu | linear 9 | relu | linear 7"), TRM_USAGE);
  CU_ASSERT(error_has("other.h5: ", "layer"));
  CU_ASSERT_EQUAL(read_into(path, "linear 9 bias=no | relu | linear 7"), TRM_USAGE);
  CU_ASSERT(error_has("other.h5: has weights/layer0.bias", "which the model does not have"));
  CU_ASSERT_EQUAL(read_into(path, "relu | linear 9 | linear 7"), TRM_USAGE);
  CU_ASSERT(error_has("other.h5: has no weights/layer1.weight", "which the model has"));
  checkpoint_drop(&c);
  trm_model_free(&model);
  trm_free(path);
}

static void test_other_files(void)
{
  struct trm_checkpoint back;
  struct trm_dataset *data;
  struct trm_options options = {.data = {.shuffle = false, .memory = 1 << 20},
                                .parallel = {.share = TRM_SHARE_NONE}};
  char *path = trm_format("%s/x.h5", folder), *gone = trm_format("%s/nowhere/x.h5", folder);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_head(gone, &back), TRM_FAILED);
  CU_ASSERT(error_has("nowhere/x.h5: ", "No such file"));
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_head(folder, &back), TRM_FAILED);
  CU_ASSERT(error_has(folder, "not a regular file"));
  CU_ASSERT_EQUAL(made_file(path, MADE_FLOATS, 5, 10, 0, 0), TRM_OK);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_head(path, &back), TRM_FAILED);
  CU_ASSERT(error_has("x.h5: is a data set", "checkpoint is needed"));
  struct trm_model model;
  struct trm_checkpoint c;
  model_make(&model, "linear 7");
  checkpoint_make(&c, &model, 1, 0);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.write(path, &c, &model), TRM_OK); /* replaces the data set */
  CU_ASSERT_EQUAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, trm_comm_self()), TRM_FAILED);
  CU_ASSERT(error_has("x.h5: is a checkpoint", "data set is needed"));
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.write(gone, &c, &model), TRM_FAILED);
  CU_ASSERT(error_has("nowhere/x.h5", "No such file"));
  checkpoint_drop(&c);
  trm_model_free(&model);
  trm_free(path);
  trm_free(gone);
}

/* Reads the items of a rank into other memory and compares them with the ones written. */
static void local_check(const char *path, int rank)
{
  struct trm_local_state back[2] = {{.data = NULL}};
  bool fits = false;
  for (int i = 0; i < local_count[rank]; i++) {
    back[i] = local_of_rank[rank][i];
    back[i].data = trm_alloc(back[i].bytes, "test");
  }
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.local_states_match(path, rank, back, local_count[rank], &fits), TRM_OK);
  CU_ASSERT(fits);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.local_states_read(path, rank, back, local_count[rank]), TRM_OK);
  for (int i = 0; i < local_count[rank]; i++) {
    if (back[i].bytes > 0)
      CU_ASSERT_EQUAL(memcmp(back[i].data, local_of_rank[rank][i].data, back[i].bytes), 0);
    trm_free(back[i].data);
  }
}

static bool local_matches(const char *path, int rank, const struct trm_local_state *local, int count)
{
  bool fits = true;
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.local_states_match(path, rank, local, count, &fits), TRM_OK);
  return fits;
}

static void test_local_state(void)
{
  char *path = trm_format("%s/local.h5", folder);
  struct trm_model model;
  struct trm_checkpoint c, back = {0};
  model_make(&model, "linear 7");
  checkpoint_make(&c, &model, 2, 0);
  CU_ASSERT_EQUAL(write_with_local(path, &c, &model, local_next), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_checkpoint_hdf5.read_head(path, &back), TRM_OK);
  CU_ASSERT_EQUAL(back.local_state_ranks, 3);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_arrays(path, &back, &model, true), TRM_OK);
  CU_ASSERT(same_arrays(&c, &back, &model));
  trm_checkpoint_free(&back);
  for (int rank = 0; rank < 3; rank++)
    local_check(path, rank);
  /* wrong names, sizes, counts and order */
  const struct trm_local_state other[2] = {{"worker", worker, 1000}, {"clocks", clock_word, 8}};
  const struct trm_local_state shorter[2] = {{"worker", worker, 999}, {"clock", clock_word, 8}};
  const struct trm_local_state turned[2] = {{"clock", clock_word, 8}, {"worker", worker, 1000}};
  CU_ASSERT(!local_matches(path, 0, other, 2) && !local_matches(path, 0, shorter, 2));
  CU_ASSERT(!local_matches(path, 0, turned, 2) && !local_matches(path, 0, local_of_rank[0], 1));
  CU_ASSERT(!local_matches(path, 0, NULL, 0) && !local_matches(path, 1, other, 1));
  /* no such rank */
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.local_states_read(path, 0, other, 2), TRM_FAILED);
  CU_ASSERT(error_has("local.h5: ", "ranks/0/clocks is missing or damaged"));
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.local_states_read(path, 3, other, 2), TRM_FAILED);
  CU_ASSERT(error_has("local.h5: ", "ranks/3 is missing or damaged"));
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.local_states_read(path, 0, shorter, 2), TRM_FAILED);
  CU_ASSERT(error_has("local.h5: ", "ranks/0/worker is damaged: not of 999 bytes"));
  /* a rank fails: the old file stays */
  CU_ASSERT_EQUAL(write_with_local(path, &c, &model, local_fail), TRM_FAILED);
  CU_ASSERT(error_has("rank 2 does not answer", ""));
  local_check(path, 2);
  /* no local state */
  c.local_state_ranks = 0;
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.write(path, &c, &model), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_checkpoint_hdf5.read_head(path, &back), TRM_OK);
  CU_ASSERT_EQUAL(back.local_state_ranks, 0);
  trm_checkpoint_free(&back);
  checkpoint_drop(&c);
  trm_model_free(&model);
  trm_free(path);
}

/* Changes one byte in the first occurrence of these bytes in the file; false: no occurrence. */
static bool byte_change(const char *path, const void *what, size_t bytes, size_t at)
{
  FILE *file = fopen(path, "r+b");
  char *all = malloc(8 << 20);
  const size_t length = fread(all, 1, 8 << 20, file);
  const char *place = memmem(all, length, what, bytes);
  if (place) {
    fseek(file, place - all + (long)at, SEEK_SET);
    fputc(place[at] ^ 4, file);
  }
  fclose(file);
  free(all);
  return place != NULL;
}

static void test_local_state_damaged(void)
{
  char *path = trm_format("%s/local-damaged.h5", folder);
  struct trm_model model;
  struct trm_checkpoint c, back = {0};
  bool fits;
  model_make(&model, "linear 7");
  checkpoint_make(&c, &model, 1, 0);
  CU_ASSERT_EQUAL(write_with_local(path, &c, &model, local_next), TRM_OK);
  CU_ASSERT_FATAL(byte_change(path, large + (2 << 20), 1 << 20, 12345)); /* the third block */
  char *room = trm_alloc(sizeof large, "test");
  const struct trm_local_state local[2] = {{"nothing", NULL, 0}, {"large", room, sizeof large}};
  CU_ASSERT(local_matches(path, 2, local, 2));
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.local_states_read(path, 2, local, 2), TRM_FAILED);
  CU_ASSERT(error_has("local-damaged.h5: ", "ranks/2/large is damaged or cannot be read"));
  local_check(path, 0);
  /* the rest of the file is readable */
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_head(path, &back), TRM_OK);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_arrays(path, &back, &model, true), TRM_OK);
  CU_ASSERT(same_arrays(&c, &back, &model));
  trm_checkpoint_free(&back);
  /* the table of a rank */
  CU_ASSERT_EQUAL(write_with_local(path, &c, &model, local_next), TRM_OK);
  CU_ASSERT_FATAL(byte_change(path, "worker 1000\nclock 8\n", 20, 3));
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.local_states_match(path, 0, local, 2, &fits), TRM_FAILED);
  CU_ASSERT(error_has("local-damaged.h5: ", "ranks/0"));
  trm_free(room);
  checkpoint_drop(&c);
  trm_model_free(&model);
  trm_free(path);
}

/* Gives the tensors of a checkpoint, and another value of the first one after their SHA-256 was computed. */
struct changed {
  const struct trm_checkpoint *checkpoint;
  const struct trm_model *model;
  int calls;
};

static int changed_tensor(void *context, int state, int number, const float **values)
{
  struct changed *changed = context;
  float *tensor = changed->checkpoint->state[state] + trm_model_parameter(changed->model, number)->offset;
  if (changed->calls++ == trm_model_parameter_count(changed->model))
    tensor[0] += 1;
  *values = tensor;
  return TRM_OK;
}

/* Weights that are not those of the SHA-256, in a file whose checksums are all valid. */
static void test_changed_weight(void)
{
  char *path = trm_format("%s/changed.h5", folder);
  struct trm_model model;
  struct trm_checkpoint c, back = {0};
  model_make(&model, "mlp 20-8-7 relu");
  checkpoint_make(&c, &model, 2, 0);
  CU_ASSERT_EQUAL(write_with_local(path, &c, &model, local_next), TRM_OK);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.verify(path), TRM_OK);
  struct changed changed = {&c, &model, 0};
  c.local_state_ranks = 0;
  c.read_tensor = changed_tensor;
  c.read_tensor_context = &changed;
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.write(path, &c, &model), TRM_OK);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.verify(path), TRM_FAILED);
  CU_ASSERT(error_has("changed.h5: ", "SHA-256 of the weights"));
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_head(path, &back), TRM_OK);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_arrays(path, &back, &model, false), TRM_FAILED);
  CU_ASSERT(error_has("changed.h5: ", "SHA-256 of the weights"));
  trm_checkpoint_free(&back);
  checkpoint_drop(&c);
  trm_model_free(&model);
  trm_free(path);
}

/* Returns true if a file's path starts with `path`, temporary ones included. */
static bool file_there(const char *path, const char *suffix)
{
  char *pattern = trm_format("%s%s*", path, suffix);
  glob_t found;
  const bool there = glob(pattern, 0, NULL, &found) == 0;
  globfree(&found);
  trm_free(pattern);
  return there;
}

static void file_limit(rlim_t bytes)
{
  struct rlimit limit;
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes;
  setrlimit(RLIMIT_FSIZE, &limit);
}

/* For any size of the disk: an error, the old file unchanged, no temporary file left, HDF5 still usable. */
static void test_disk_full(void)
{
  char *path = trm_format("%s/full.h5", folder), *set = trm_format("%s/full-set.h5", folder);
  struct trm_model model;
  struct trm_checkpoint old, new, back = {0};
  struct stat about;
  model_make(&model, "mlp 20-3000-7 relu");
  checkpoint_make(&old, &model, 2, 0);
  checkpoint_make(&new, &model, 2, 10);
  CU_ASSERT_EQUAL(write_with_local(path, &old, &model, local_next), TRM_OK);
  stat(path, &about);
  signal(SIGXFSZ, SIG_IGN);
  for (int i = 0; i < 40; i++) {
    file_limit((rlim_t)((double)about.st_size * i / 40));
    CU_ASSERT_EQUAL(write_with_local(path, &new, &model, local_next), TRM_FAILED);
    file_limit(RLIM_INFINITY);
    CU_ASSERT(error_has("full.h5", "File too large"));
    CU_ASSERT_FALSE(file_there(path, "."));
    CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_head(path, &back), TRM_OK);
    CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_arrays(path, &back, &model, true), TRM_OK);
    CU_ASSERT(same_arrays(&old, &back, &model));
    trm_checkpoint_free(&back);
  }
  CU_ASSERT_EQUAL(write_with_local(path, &new, &model, local_next), TRM_OK);
  local_check(path, 2);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_head(path, &back), TRM_OK);
  CU_ASSERT_EQUAL(trm_checkpoint_hdf5.read_arrays(path, &back, &model, true), TRM_OK);
  CU_ASSERT(same_arrays(&new, &back, &model));
  trm_checkpoint_free(&back);
  /* data sets */
  for (int compress = 0; compress <= 1; compress++) {
    CU_ASSERT_EQUAL(made_file(set, MADE_FLOATS, 40, 5000, 10, compress), TRM_OK);
    stat(set, &about);
    unlink(set);
    for (int i = 0; i < 20; i++) {
      file_limit((rlim_t)((double)about.st_size * i / 20));
      CU_ASSERT_EQUAL(made_file(set, MADE_FLOATS, 40, 5000, 10, compress), TRM_FAILED);
      file_limit(RLIM_INFINITY);
      CU_ASSERT(error_has("full-set.h5", "File too large"));
      CU_ASSERT(!file_there(set, ""));
    }
  }
  signal(SIGXFSZ, SIG_DFL);
  checkpoint_drop(&old);
  checkpoint_drop(&new);
  trm_model_free(&model);
  trm_free(path);
  trm_free(set);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"round trip", test_round_trip},
    {"of frozen parameters", test_frozen},
    {"into other models", test_other_models},
    {"of a bias that is omitted", test_omitted_bias},
    {"other files", test_other_files},
    {"local state of ranks", test_local_state},
    {"local state of ranks, damaged", test_local_state_damaged},
    {"a changed weight", test_changed_weight},
    {"disk full", test_disk_full},
    CU_TEST_INFO_NULL,
  };
  made_folder(folder);
  const int failed = suite_run("checkpoint", tests);
  made_folder_remove(folder);
  return failed;
}
