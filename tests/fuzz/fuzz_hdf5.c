/* Data sets and checkpoints in HDF5 files, and safetensors files. */
#include <stdlib.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "exchange/exchange.h"
#include "fuzz.h"
#include "fuzz_files.h"
#include "tests/unit/dataset_files.h"

enum { BATCH_ROWS = 64 };

static void fuzz_open_split(const char *path, enum trm_split split)
{
  const struct trm_options options = {
    .data = {.shuffle = true, .memory = 1 << 14, .context = 8, .stride = 5, .validation = "0.25"},
    .train = {.batch = 16}, .parallel = {.share = TRM_SHARE_NONE}};
  struct trm_dataset *data;
  struct trm_host_batch batch = {0};
  if (trm_dataset_hdf5.open(&data, path, split, &options, trm_comm_self()) != TRM_OK)
    return;
  int status = TRM_OK;
  for (size_t at = 0; at < data->rows && at < 16 * BATCH_ROWS && status == TRM_OK; at += batch.rows)
    status = data->ops->fetch(data, 0, at, at + BATCH_ROWS < data->rows ? at + BATCH_ROWS : data->rows, &batch);
  trm_host_batch_free(&batch);
  data->ops->close(data);
}

/* The file of the input, or, if that is no HDF5 file, the sound file of this number with the input's edits. */
static const char *fuzz_hdf5_file(struct fuzz_input input, int (*make)(const char *path, unsigned number))
{
  static struct fuzz_input sound[16];
  if (input.count == 0 || input.bytes[0] == '\x89')
    return fuzz_file("raw.h5", input);
  const unsigned number = (unsigned char)fuzz_variant(&input) % 16;
  if (sound[number].count == 0) {
    fuzz_require(make(fuzz_path("sound.h5"), number) == TRM_OK, "a sound file can be made");
    sound[number] = fuzz_content("sound.h5");
  }
  const char *path = fuzz_file("edited.h5", sound[number]);
  fuzz_edit_hdf5(path, input);
  return path;
}

static int fuzz_make_dataset(const char *path, unsigned number)
{
  return made_file(path, (enum made_kind)(number % MADE_KINDS), 4, 60, 20, number > 7);
}

void fuzz_dataset(struct fuzz_input input)
{
  const char *path = fuzz_hdf5_file(input, fuzz_make_dataset);
  struct trm_tokenizer *tokenizer;
  fuzz_open_split(path, TRM_SPLIT_TRAIN);
  fuzz_open_split(path, TRM_SPLIT_VALIDATION);
  trm_data_info(path, true, true);
  if (trm_tokenizer_of_data(&tokenizer, path, 300) == TRM_OK)
    trm_tokenizer_close(tokenizer);
}

static void fuzz_local_states(const char *path, int ranks)
{
  char one[100], two[8];
  const struct trm_local_state states[] = {{"test: one", one, sizeof one}, {"test: two", two, sizeof two}};
  for (int rank = 0; rank < ranks && rank < 3; rank++) {
    bool fits;
    if (trm_checkpoint_hdf5.local_states_match(path, rank, states, 2, &fits) == TRM_OK && fits)
      trm_checkpoint_hdf5.local_states_read(path, rank, states, 2);
  }
}

void fuzz_checkpoint(struct fuzz_input input)
{
  const char *path = fuzz_hdf5_file(input, fuzz_make_checkpoint);
  struct trm_checkpoint c;
  struct trm_model model;
  trm_data_info(path, false, false);
  if (trm_checkpoint_hdf5.read_head(path, &c) != TRM_OK)
    return;
  if (trm_model_create(&model, c.model_text, c.loss_name, &c.spec) == TRM_OK) {
    trm_checkpoint_hdf5.read_arrays(path, &c, &model, input.count % 2);
    trm_model_free(&model);
  }
  fuzz_local_states(path, c.local_state_ranks);
  trm_checkpoint_free(&c);
  trm_checkpoint_hdf5.verify(path);
}

/* Weights in a safetensors file. */
void fuzz_safetensors(struct fuzz_input input)
{
  const char *path = fuzz_file("model.safetensors", input);
  struct trm_model model;
  float *weights = fuzz_make_model(&model);
  trm_safetensors_read(path, &model, weights);
  trm_free(weights);
  trm_model_free(&model);
  trm_weights_check_format(path);
}
