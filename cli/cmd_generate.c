/* trireme generate */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/loaded.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "nn/sample.h"

static const char usage[] =
  "usage: trireme generate CHECKPOINT.h5|RUN --prompt=TEXT [--tokens=N] [--temperature=T]\n"
  "                        [--top-k=K] [--top-p=P] [--seed=S]\n\n"
  "Continues a text token by token and writes it to standard output. The same seed gives the\n"
  "same text. Runs on one process, without a launcher; parallel.threads sets its threads. The\n"
  "model sees the last tokens, as many as it was trained with.\n\n"
  "  --prompt=TEXT     the beginning of the text, of characters that the vocabulary has\n"
  "  --tokens=N        number of tokens to add (200)\n"
  "  --temperature=T   divides the scores (1); 0: always the likeliest token\n"
  "  --top-k=K         draw from the K likeliest tokens (0: all)\n"
  "  --top-p=P         draw from the likeliest tokens that together have probability P (1: all)\n"
  "  --seed=S          seed of the draws (1)\n"
  "  --data.file=FILE  a data set with the vocabulary, where the checkpoint has none\n";

struct request {
  const char *path, *prompt;
  int64_t tokens;
  struct trm_sampling sampling;
};

/* Refuses a model that is not causal: positions after the text hold any tokens. */
static int cmd_generate_check_model(const struct loaded *loaded, const char *path)
{
  if (!loaded->model.spec.tokens)
    return trm_error(TRM_USAGE, "generate: %s is not a model of tokens: use trireme predict", path);
  for (int i = 0; i < loaded->model.layers; i++) {
    const struct trm_layer *layer = &loaded->model.layer[i];
    if (layer->ops->reads_ahead && layer->ops->reads_ahead(layer))
      return trm_error(TRM_USAGE, "generate: %s: %s is not causal (causal=no)", path, trm_layer_text(layer));
  }
  return TRM_OK;
}

static int cmd_generate_open_tokenizer(struct trm_tokenizer **tokenizer, const struct loaded *loaded,
                                       const struct trm_job *job, const char *path)
{
  const struct trm_checkpoint *c = &loaded->checkpoint;
  if (job->options.data.file[0] && !c->encoding.name)
    return trm_tokenizer_of_data(tokenizer, job->options.data.file, c->spec.classes);
  return trm_tokenizer_open(tokenizer, path, &c->encoding, c->class_names, c->spec.classes);
}

/* Computes the scores (V) of the token that follows `tokens`. */
static int cmd_generate_score_next(struct loaded *loaded, struct trm_job *job, const struct trm_tokens *tokens,
                                   int32_t *window, void *device_window, float *scores)
{
  const struct trm_device_ops *ops = job->device.ops;
  const size_t context = loaded->model.spec.shape.size[0], vocabulary = loaded->model.spec.classes;
  const size_t n = tokens->count < context ? tokens->count : context;
  memcpy(window, tokens->token + tokens->count - n, n * sizeof *window); /* zeros follow */
  ops->upload(&job->device, device_window, window, context * sizeof *window);
  const struct trm_input input = {.rows = 1, .tokens = device_window};
  const struct trm_pass pass = {.device = &job->device, .input = &input};
  trm_model_forward(&loaded->model, &pass);
  ops->download(&job->device, scores, loaded->model.scores + (n - 1) * vocabulary, vocabulary * sizeof *scores);
  return ops->sync(&job->device);
}

static int cmd_generate_write_text(const char *text, size_t bytes)
{
  if (fwrite(text, 1, bytes, stdout) != bytes || fflush(stdout) != 0)
    return trm_error(TRM_FAILED, "generate: standard output cannot be written");
  return TRM_OK;
}

/* Appends request->tokens tokens and writes each at once. */
static int cmd_generate_extend(struct loaded *loaded, struct trm_job *job, const struct request *request,
                               const struct trm_tokenizer *tokenizer, struct trm_tokens *tokens)
{
  const size_t context = loaded->model.spec.shape.size[0], vocabulary = loaded->model.spec.classes;
  int32_t *window = trm_alloc(context * sizeof *window, "tokens");
  float *scores = trm_alloc(vocabulary * sizeof *scores, "scores");
  void *device_window;
  int status = job->device.ops->alloc(&job->device, context * sizeof *window, TRM_MEMORY_BUFFERS, &device_window);
  const size_t prompt = tokens->count;
  const double began = job->modules.comm->ops->clock(job->modules.comm);
  for (int64_t i = 0; i < request->tokens && status == TRM_OK; i++) {
    status = cmd_generate_score_next(loaded, job, tokens, window, device_window, scores);
    if (status != TRM_OK)
      break;
    const int32_t next = trm_sample(&request->sampling, scores, vocabulary, (uint64_t)i);
    if (next < 0) {
      status = trm_error(TRM_FAILED, "generate: %s: the scores after token %zu are not finite", request->path,
                         tokens->count);
      break;
    }
    trm_tokens_add(tokens, next);
    size_t bytes;
    const char *text = trm_tokenizer_text(tokenizer, next, &bytes);
    status = cmd_generate_write_text(text, bytes);
  }
  if (status == TRM_OK)
    status = cmd_generate_write_text("\n", 1);
  if (status == TRM_OK)
    trm_info("%zu tokens after %zu, %.1f a second", tokens->count - prompt, prompt,
             (double)(tokens->count - prompt) / (job->modules.comm->ops->clock(job->modules.comm) - began));
  job->device.ops->release(&job->device, device_window);
  trm_free(window);
  trm_free(scores);
  return status;
}

static int cmd_generate_run(struct loaded *loaded, struct trm_job *job, const struct request *request)
{
  struct trm_tokenizer *tokenizer;
  struct trm_tokens tokens = {0};
  TRM_CHECK(cmd_generate_check_model(loaded, request->path));
  TRM_CHECK(cmd_generate_open_tokenizer(&tokenizer, loaded, job, request->path));
  int status = trm_tokenizer_encode(tokenizer, request->prompt, strlen(request->prompt), &tokens);
  if (status != TRM_OK)
    trm_error_context(status, "generate: --prompt");
  if (status == TRM_OK)
    status = cmd_generate_write_text(request->prompt, strlen(request->prompt));
  if (status == TRM_OK)
    status = cmd_generate_extend(loaded, job, request, tokenizer, &tokens);
  trm_free(tokens.token);
  trm_tokenizer_close(tokenizer);
  return status;
}

static int cmd_generate_open_and_run(struct trm_job *job, const struct request *request)
{
  if (!request->path)
    return trm_error(TRM_USAGE, "generate: no checkpoint named; trireme generate --help shows the usage");
  if (!request->prompt)
    return trm_error(TRM_USAGE, "generate: --prompt: no text given");
  struct loaded loaded;
  int status = loaded_open(&loaded, job, request->path, 1);
  if (status == TRM_OK)
    status = cmd_generate_run(&loaded, job, request);
  loaded_close(&loaded, job);
  return status;
}

int cmd_generate(int argc, char **argv)
{
  struct request request = {.tokens = 200, .sampling = {.temperature = 1, .top_p = 1}};
  int64_t top_k = 0, seed = 1;
  const struct flag flags[] = {
    {.name = "prompt", .kind = FLAG_TEXT, .value = &request.prompt},
    {.name = "tokens", .kind = FLAG_INTEGER, .value = &request.tokens, .low = 1, .high = INT32_MAX},
    {.name = "temperature", .kind = FLAG_REAL, .value = &request.sampling.temperature, .high = 1000},
    {.name = "top-k", .kind = FLAG_INTEGER, .value = &top_k, .high = INT32_MAX},
    {.name = "top-p", .kind = FLAG_REAL, .value = &request.sampling.top_p, .high = 1},
    {.name = "seed", .kind = FLAG_INTEGER, .value = &seed, .high = INT64_MAX},
    {.name = NULL}};
  const struct job_request spec = {.command = "generate", .usage = usage, .flags = flags, .nargs = 1, .serial = true};
  struct trm_job job;
  int nargs;
  bool help_shown;
  int status = job_open(&job, &spec, argc, argv, &nargs, &help_shown);
  request.path = nargs ? argv[0] : NULL;
  request.sampling.top_k = (size_t)top_k;
  request.sampling.seed = (uint64_t)seed;
  if (status == TRM_OK && !help_shown)
    status = cmd_generate_open_and_run(&job, &request);
  trm_job_close(&job);
  return status;
}
