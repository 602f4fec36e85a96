/* trireme generate */
#include <stdio.h>
#include <string.h>

#include "cli/loaded.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/printable.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "nn/decoder.h"
#include "nn/sample.h"

static const char usage[] =
  "usage: trireme generate CHECKPOINT.h5|RUN --prompt=TEXT [--tokens=N] [--temperature=T]\n"
  "                        [--top-k=K] [--top-p=P] [--seed=S]\n\n"
  "Continues a text token by token and writes it to standard output. The same seed gives the\n"
  "same text. Runs on one process, without a launcher; parallel.threads sets its threads. The\n"
  "model sees the last tokens, as many as it was trained with: up to these a token costs one\n"
  "position (a key-value cache), and beyond a pass over all of them.\n\n"
  "  --prompt=TEXT     the beginning of the text, of characters that the vocabulary has\n"
  "  --tokens=N        number of tokens to add (200)\n"
  "  --temperature=T   divides the scores (1); 0: always the likeliest token\n"
  "  --top-k=K         draw from the K likeliest tokens (0: all)\n"
  "  --top-p=P         draw from the likeliest tokens that together have probability P (1: all)\n"
  "  --seed=S          seed of the draws (1)\n"
  "  --data.file=FILE  a data set with the vocabulary, where the checkpoint has none\n";

struct generate_flags {
  const char *prompt;
  int64_t tokens;
  struct trm_sampling sampling;
};
#define AT(field) offsetof(struct generate_flags, field)
static const struct trm_option flags[] = {
  {"prompt", TRM_OPTION_TEXT, AT(prompt), NULL, NO_RANGE},
  {"tokens", TRM_OPTION_INT, AT(tokens), "200", RANGE(1, INT32_MAX)},
  {"temperature", TRM_OPTION_REAL, AT(sampling.temperature), "1", RANGE(0, 1000)},
  {"top-k", TRM_OPTION_INT, AT(sampling.top_k), "0", RANGE(0, INT32_MAX)},
  {"top-p", TRM_OPTION_REAL, AT(sampling.top_p), "1", RANGE(0, 1)},
  {"seed", TRM_OPTION_INT, AT(sampling.seed), "1", RANGE(0, 9e18)},
  END_OF_FLAGS};

/* Refuses a model that is not causal: positions after the text hold any tokens. */
static int cmd_generate_check_model(const struct loaded *loaded)
{
  if (!loaded->model.spec.tokens)
    return trm_error(TRM_USAGE, "generate: %s is not a model of tokens: use trireme predict", loaded->path);
  for (int i = 0; i < loaded->model.layers; i++) {
    const struct trm_layer *layer = &loaded->model.layer[i];
    if (layer->ops->reads_ahead && layer->ops->reads_ahead(layer))
      return trm_error(TRM_USAGE, "generate: %s: %s is not causal (causal=no)", loaded->path,
                       trm_layer_text(layer));
  }
  return TRM_OK;
}

/* Writes the next part of the text; control characters but line feeds and tabs are escaped. *lead: a byte 0xc2, which
 * begins some of them in UTF-8, waits for the byte after it, which may be in the next part. */
static int cmd_generate_write_text(const char *text, size_t bytes, bool *lead)
{
  const size_t capacity = 4 * (bytes + 1) + 1;
  char *part = trm_alloc(bytes + 1, "a text to print"), *shown = trm_alloc(capacity, "a text to print");
  size_t length = 0;
  if (*lead)
    part[length++] = '\xc2';
  memcpy(part + length, text, bytes);
  length += bytes;
  *lead = length > 0 && part[length - 1] == '\xc2';
  const size_t written = trm_printable_copy(shown, capacity, part, length - *lead, "\n\t");
  const bool done = fwrite(shown, 1, written, stdout) == written && fflush(stdout) == 0;
  trm_free(part);
  trm_free(shown);
  return done ? TRM_OK : trm_error(TRM_FAILED, "generate: standard output cannot be written");
}

/* Appends f->tokens tokens and writes each at once. */
static int cmd_generate_extend(struct loaded *loaded, struct trm_job *job, const struct generate_flags *f,
                               const struct trm_tokenizer *tokenizer, struct trm_tokens *tokens)
{
  const size_t vocabulary = loaded->model.spec.classes;
  float *scores = trm_alloc(vocabulary * sizeof *scores, "scores");
  struct trm_decoder decoder;
  int status = trm_decoder_open(&decoder, &loaded->model);
  const size_t prompt = tokens->count;
  bool lead = false;
  const double began = job->modules.comm->ops->clock(job->modules.comm);
  for (int64_t i = 0; i < f->tokens && status == TRM_OK; i++) {
    status = trm_decoder_score_next(&decoder, tokens->token, tokens->count, scores);
    if (status != TRM_OK)
      break;
    const int32_t next = trm_sample(&f->sampling, scores, vocabulary, (uint64_t)i);
    if (next < 0) {
      status = trm_error(TRM_FAILED, "generate: %s: the scores after token %zu are not finite", loaded->path,
                         tokens->count);
      break;
    }
    trm_tokens_add(tokens, next);
    size_t bytes;
    const char *text = trm_tokenizer_text(tokenizer, next, &bytes);
    status = cmd_generate_write_text(text, bytes, &lead);
  }
  if (status == TRM_OK)
    status = cmd_generate_write_text("\n", 1, &lead);
  if (status == TRM_OK)
    trm_info("%zu tokens after %zu, %.1f a second", tokens->count - prompt, prompt,
             (double)(tokens->count - prompt) / (job->modules.comm->ops->clock(job->modules.comm) - began));
  trm_decoder_close(&decoder);
  trm_free(scores);
  return status;
}

static int cmd_generate_continue(struct loaded *loaded, struct trm_job *job, const struct generate_flags *f)
{
  const struct trm_checkpoint *c = &loaded->checkpoint;
  struct trm_tokenizer *tokenizer;
  struct trm_tokens tokens = {0};
  TRM_CHECK(cmd_generate_check_model(loaded));
  TRM_CHECK(job->options.data.file[0] && !c->encoding.name
              ? trm_tokenizer_of_data(&tokenizer, job->options.data.file, c->spec.classes)
              : trm_tokenizer_open(&tokenizer, loaded->path, &c->encoding, c->class_names, c->spec.classes));
  int status = trm_tokenizer_encode(tokenizer, f->prompt, strlen(f->prompt), &tokens);
  if (status != TRM_OK)
    trm_error_context(status, "generate: --prompt");
  bool lead = false; /* the prompt is whole characters */
  if (status == TRM_OK)
    status = cmd_generate_write_text(f->prompt, strlen(f->prompt), &lead);
  if (status == TRM_OK)
    status = cmd_generate_extend(loaded, job, f, tokenizer, &tokens);
  trm_free(tokens.token);
  trm_tokenizer_close(tokenizer);
  return status;
}

static int cmd_generate_run(const struct call *call)
{
  const struct generate_flags *f = call->values;
  if (!f->prompt)
    return trm_error(TRM_USAGE, "generate: --prompt: no text given");
  struct loaded loaded;
  int status = loaded_open(&loaded, call->job, call->args[0], 1);
  if (status == TRM_OK)
    status = cmd_generate_continue(&loaded, call->job, f);
  loaded_close(&loaded);
  return status;
}

const struct command cmd_generate = {
  .name = "generate", .help = "continue a text with a language model",
  .usage = usage, .flags = flags, .bytes = sizeof(struct generate_flags), .max_args = 1,
  .missing = "no checkpoint named",
  .job = SERIAL_JOB, .run = cmd_generate_run,
};
