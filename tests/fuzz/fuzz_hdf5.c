/* Data sets and checkpoints in HDF5 files, and safetensors files. */
#include <stdlib.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "exchange/exchange.h"
#include "fuzz.h"
#include "train/strategy.h"

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

void fuzz_dataset(struct fuzz_input input)
{
  const char *path = fuzz_file("data.h5", input);
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
  const char *path = fuzz_file("checkpoint.h5", input);
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

void fuzz_safetensors(struct fuzz_input input)
{
  const struct trm_input_spec spec = {.shape = {.dims = 1, .size = {3}}, .target = TRM_TARGET_CLASS, .classes = 2};
  const char *path = fuzz_file("model.safetensors", input);
  struct trm_model model;
  fuzz_require(trm_model_create(&model, "mlp 3-4-2 relu", "auto", &spec) == TRM_OK, "the model is sound");
  float *weights = trm_alloc(model.parameters * sizeof *weights, "weights");
  trm_safetensors_read(path, &model, weights);
  trm_free(weights);
  trm_model_free(&model);
  trm_weights_check_format(path);
}
