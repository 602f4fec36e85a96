/* trireme eval */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/loaded.h"
#include "core/document.h"
#include "core/memory.h"
#include "core/status.h"

static const char usage[] =
  "usage: trireme eval CHECKPOINT.h5|RUN --data.file=FILE.h5 [--split=test|validation|train] [--json]\n"
  "       mpiexec -n RANKS trireme eval ...\n\n"
  "Evaluates a checkpoint on a split of a data set. Prints the mean loss and the accuracy; of\n"
  "classes also precision, recall, F1 and support (the rows) of each, and the confusion matrix;\n"
  "of tokens also perplexity, bits per token and bits per byte of text.\n"
  "RUN is a run directory: its best.h5, else its last.h5, and its data.file unless that is given.\n"
  "train.batch sets how many samples a rank works on at once. Of a run with optim.ema the\n"
  "averaged weights are used.\n"
  "--split=validation: the validation rows of the run, or those of data.validation;\n"
  "--split=train: all rows of the train split, without those of data.validation if that is set.\n"
  "A .safetensors file can replace the checkpoint, with --model=...\n";

/* Maximum number of classes for metrics per class on the terminal, and in JSON. */
enum { MAX_PRINTED_CLASSES = 20, MAX_CLASSES = 1000 };

/* The result of an evaluation. */
struct evaluated {
  const struct loaded *loaded;
  struct trm_loss_sums sums;
  int64_t *confusion; /* (C, C) rows of class, columns of prediction; NULL: not counted */
  const char *file, *split;
};

/* Metrics of one class; NAN for division by 0. */
struct class_figures {
  double precision, recall, f1;
  int64_t support;
};

static struct class_figures cmd_eval_class(const struct evaluated *e, size_t k)
{
  const size_t classes = e->loaded->dataset->spec.classes;
  int64_t support = 0, predicted = 0;
  for (size_t i = 0; i < classes; i++) {
    support += e->confusion[k * classes + i];
    predicted += e->confusion[i * classes + k];
  }
  const double right = (double)e->confusion[k * classes + k];
  return (struct class_figures){.precision = predicted ? right / (double)predicted : NAN,
                                .recall = support ? right / (double)support : NAN,
                                .f1 = support + predicted ? 2 * right / (double)(support + predicted) : NAN,
                                .support = support};
}

/* Returns the name of class k, or else its number, written to text. */
static const char *cmd_eval_class_name(const struct evaluated *e, size_t k, char text[24])
{
  char **names = e->loaded->dataset->class_names;
  snprintf(text, 24, "%zu", k);
  return names ? names[k] : text;
}

static void cmd_eval_print_cell(double value)
{
  if (isnan(value))
    printf("  %9s", "-");
  else
    printf("  %8.2f%%", 100 * value);
}

static void cmd_eval_print_classes(const struct evaluated *e)
{
  const size_t classes = e->loaded->dataset->spec.classes;
  char text[24];
  int width = 5, cell = 5;
  for (size_t k = 0; k < classes; k++) {
    const int length = (int)strlen(cmd_eval_class_name(e, k, text));
    width = length > width ? length : width;
  }
  width = width > 20 ? 20 : width;
  printf("\n%-*s  %9s  %9s  %9s  %9s\n", width, "class", "precision", "recall", "F1", "support");
  for (size_t k = 0; k < classes; k++) {
    const struct class_figures figures = cmd_eval_class(e, k);
    printf("%-*.20s", width, cmd_eval_class_name(e, k, text));
    cmd_eval_print_cell(figures.precision);
    cmd_eval_print_cell(figures.recall);
    cmd_eval_print_cell(figures.f1);
    printf("  %9lld\n", (long long)figures.support);
    const int digits = snprintf(NULL, 0, "%lld", (long long)figures.support);
    cell = digits > cell ? digits : cell;
  }
  printf("\nconfusion matrix: a row for each class, a column for each prediction\n%*s", width, "");
  for (size_t k = 0; k < classes; k++)
    printf(" %*.*s", cell, cell, cmd_eval_class_name(e, k, text));
  for (size_t k = 0; k < classes; k++) {
    printf("\n%-*.20s", width, cmd_eval_class_name(e, k, text));
    for (size_t j = 0; j < classes; j++)
      printf(" %*lld", cell, (long long)e->confusion[k * classes + j]);
  }
  printf("\n");
}

static void cmd_eval_print(const struct evaluated *e)
{
  const struct trm_model *model = &e->loaded->model;
  const bool tokens = model->spec.tokens;
  const double loss = e->sums.loss / e->sums.rows, token_bytes = e->loaded->dataset->token_bytes;
  printf("%s of %s: %.0f %s, loss %.6f", e->split, e->file, e->sums.rows, tokens ? "tokens" : "samples", loss);
  if (tokens)
    printf(", perplexity %.4f, %.4f bits per token", exp(loss), loss / log(2));
  if (tokens && token_bytes > 0)
    printf(", %.4f bits per byte", loss / log(2) / token_bytes);
  if (model->loss->counts_correct)
    printf(", accuracy %.2f%%", 100 * e->sums.correct / e->sums.rows);
  printf("\n");
  if (e->confusion && model->spec.classes <= MAX_PRINTED_CLASSES)
    cmd_eval_print_classes(e);
  else if (e->confusion)
    printf("figures of each class: --json\n");
}

static void cmd_eval_json_classes(struct trm_json *out, const struct evaluated *e)
{
  const size_t classes = e->loaded->dataset->spec.classes;
  char text[24];
  trm_json_list(out, "classes");
  for (size_t k = 0; k < classes; k++) {
    const struct class_figures figures = cmd_eval_class(e, k);
    trm_json_object(out, NULL);
    trm_json_text(out, "name", cmd_eval_class_name(e, k, text));
    trm_json_number(out, "precision", figures.precision);
    trm_json_number(out, "recall", figures.recall);
    trm_json_number(out, "f1", figures.f1);
    trm_json_integer(out, "support", figures.support);
    trm_json_end(out);
  }
  trm_json_end(out);
  trm_json_list(out, "confusion");
  for (size_t k = 0; k < classes; k++) {
    trm_json_list(out, NULL);
    for (size_t j = 0; j < classes; j++)
      trm_json_integer(out, NULL, e->confusion[k * classes + j]);
    trm_json_end(out);
  }
  trm_json_end(out);
}

static void cmd_eval_json(const struct evaluated *e)
{
  const struct trm_model *model = &e->loaded->model;
  const bool tokens = model->spec.tokens;
  const double loss = e->sums.loss / e->sums.rows, token_bytes = e->loaded->dataset->token_bytes;
  struct trm_json out;
  trm_json_open(&out, stdout);
  trm_json_object(&out, NULL);
  trm_json_text(&out, "checkpoint", e->loaded->path);
  trm_json_text(&out, "file", e->file);
  trm_json_text(&out, "split", e->split);
  trm_json_integer(&out, tokens ? "tokens" : "samples", (int64_t)e->sums.rows);
  trm_json_number(&out, "loss", loss);
  if (tokens) {
    trm_json_number(&out, "perplexity", exp(loss));
    trm_json_number(&out, "bits", loss / log(2));
    if (token_bytes > 0)
      trm_json_number(&out, "bits_per_byte", loss / log(2) / token_bytes);
  }
  if (model->loss->counts_correct)
    trm_json_number(&out, "accuracy", e->sums.correct / e->sums.rows);
  if (e->confusion)
    cmd_eval_json_classes(&out, e);
  trm_json_end(&out);
}

static int cmd_eval_run(struct trm_job *job, const char *path, const char *split, bool json)
{
  struct loaded loaded;
  struct evaluated e = {.loaded = &loaded, .split = split};
  int status = loaded_open_split(&loaded, job, "eval", path, split);
  const struct trm_input_spec *spec = &loaded.model.spec;
  const struct trm_pass pass = {.device = loaded.model.device};
  e.file = job->options.data.file;
  if (status == TRM_OK && loaded.model.loss->counts_correct && !spec->tokens && spec->classes <= MAX_CLASSES)
    e.confusion = trm_alloc(spec->classes * spec->classes * sizeof *e.confusion, "the confusion matrix");
  if (status == TRM_OK)
    status = trm_evaluate(&loaded.model, loaded.dataset, job->modules.comm, loaded.model.max_rows, &pass, &e.sums,
                          e.confusion);
  if (status == TRM_OK && job->modules.comm->rank == 0)
    (json ? cmd_eval_json : cmd_eval_print)(&e);
  trm_free(e.confusion);
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
