/* trireme eval */
#include <math.h>
#include <stdio.h>

#include "cli/commands.h"
#include "cli/loaded.h"
#include "core/document.h"
#include "core/status.h"

static const char usage[] =
  "usage: trireme eval CHECKPOINT.h5 --data.file=FILE.h5 [--split=test|validation|train] [--json]\n"
  "       mpiexec -n RANKS trireme eval ...\n\n"
  "Evaluates a checkpoint on a split of a data set: mean loss and accuracy, of tokens also\n"
  "perplexity, bits a token and bits a byte of text, on standard output. train.batch sets how\n"
  "many samples are worked on at once by a rank. Of a run with optim.ema the average of the\n"
  "weights is used. --split=validation: the rows that the run used, or those of\n"
  "data.validation; --split=train: all rows of the train split, unless data.validation cuts it.\n"
  "A .safetensors file may stand in place of the checkpoint, with --model=...\n";

static void cmd_eval_print(const struct trm_loss_sums *sums, const struct trm_model *model, double token_bytes,
                           bool json, const char *checkpoint, const char *file, const char *split)
{
  const bool counts = model->loss->counts_correct, tokens = model->spec.tokens;
  const double loss = sums->loss / sums->rows;
  if (!json) {
    printf("%s of %s: %.0f %s, loss %.6f", split, file, sums->rows, tokens ? "tokens" : "samples", loss);
    if (tokens)
      printf(", perplexity %.4f, %.4f bits a token", exp(loss), loss / log(2));
    if (tokens && token_bytes > 0)
      printf(", %.4f bits a byte", loss / log(2) / token_bytes);
    if (counts)
      printf(", accuracy %.2f%%", 100 * sums->correct / sums->rows);
    printf("\n");
    return;
  }
  struct trm_json out;
  trm_json_open(&out, stdout);
  trm_json_object(&out, NULL);
  trm_json_text(&out, "checkpoint", checkpoint);
  trm_json_text(&out, "file", file);
  trm_json_text(&out, "split", split);
  trm_json_integer(&out, tokens ? "tokens" : "samples", (int64_t)sums->rows);
  trm_json_number(&out, "loss", loss);
  if (tokens) {
    trm_json_number(&out, "perplexity", exp(loss));
    trm_json_number(&out, "bits", loss / log(2));
    if (token_bytes > 0)
      trm_json_number(&out, "bits_per_byte", loss / log(2) / token_bytes);
  }
  if (counts)
    trm_json_number(&out, "accuracy", sums->correct / sums->rows);
  trm_json_end(&out);
}

static int cmd_eval_run(struct trm_job *job, const char *path, const char *split, bool json)
{
  struct loaded loaded;
  struct trm_loss_sums sums;
  int status = loaded_open_split(&loaded, job, "eval", path, split);
  const struct trm_pass pass = {.device = loaded.model.device};
  if (status == TRM_OK)
    status = trm_evaluate(&loaded.model, loaded.dataset, job->modules.comm, loaded.model.max_rows, &pass, &sums);
  if (status == TRM_OK && job->modules.comm->rank == 0)
    cmd_eval_print(&sums, &loaded.model, loaded.dataset->token_bytes, json, path, job->options.data.file, split);
  loaded_close(&loaded, job);
  return status;
}

int cmd_eval(int argc, char **argv)
{
  const char *split = "test";
  bool json = false;
  const struct flag flags[] = {
    {.name = "split", .kind = FLAG_TEXT, .value = &split},
    {.name = "json", .kind = FLAG_BOOL, .value = &json},
    {.name = NULL}};
  const struct job_request request = {.command = "eval", .usage = usage, .flags = flags, .nargs = 1};
  struct trm_job job;
  int nargs;
  bool help_shown;
  int status = job_open(&job, &request, argc, argv, &nargs, &help_shown);
  if (status == TRM_OK && !help_shown)
    status = cmd_eval_run(&job, nargs ? argv[0] : NULL, split, json);
  trm_job_close(&job);
  return status;
}
