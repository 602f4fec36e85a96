/* trireme eval */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/figures.h"
#include "cli/loaded.h"
#include "core/memory.h"
#include "core/printable.h"
#include "core/status.h"

static const char usage[] =
  "usage: trireme eval CHECKPOINT.h5|RUN --data.file=FILE.h5 [--split=test|validation|train] [--json]\n"
  "       mpiexec -n RANKS trireme eval ...\n\n"
  "Evaluates a checkpoint on a split of a data set. Prints the mean loss and the accuracy; of\n"
  "classes also top-5 accuracy (of more than 5), macro and micro F1, AUC (of several classes one\n"
  "against the rest, macro; left out where 4 (classes + 3) bytes a row are more than 256 MiB),\n"
  "expected calibration error (15 bins; Guo et al. 2017), precision, recall, F1 and support (the\n"
  "rows) of each class, and the confusion matrix; of values MAE, RMSE and R^2; of tokens\n"
  "perplexity, bits per token and bits per byte of text.\n"
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
  const int64_t *confusion; /* (C, C) rows of class, columns of prediction; NULL: not counted */
  struct trm_measures measures;
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

/* Prints a line for each class, the longest of whose names has `width` letters, or adds an object. */
static void cmd_eval_print_figures(const struct evaluated *e, int width, struct trm_json *json)
{
  char text[24], format[24];
  snprintf(format, sizeof format, "%%-%d.20s", width);
  for (size_t k = 0; k < e->loaded->dataset->spec.classes; k++) {
    const struct class_figures figures = cmd_eval_class(e, k);
    const struct figure row[] = {
      figure_text("name", format, cmd_eval_class_name(e, k, text)),
      figure_number("precision", "  %8.2f%%", figures.precision, 100),
      figure_number("recall", "  %8.2f%%", figures.recall, 100),
      figure_number("f1", "  %8.2f%%", figures.f1, 100),
      figure_number("support", "  %9.0f\n", (double)figures.support, 1),
    };
    if (json)
      trm_json_object(json, NULL);
    figures_print(json, row, sizeof row / sizeof *row);
    if (json)
      trm_json_end(json);
  }
}

static void cmd_eval_print_classes(const struct evaluated *e)
{
  const size_t classes = e->loaded->dataset->spec.classes;
  char text[24];
  int width = 5, cell = 5;
  for (size_t k = 0; k < classes; k++) {
    const int length = (int)strlen(cmd_eval_class_name(e, k, text));
    width = length > width ? length : width;
    const int digits = snprintf(NULL, 0, "%lld", (long long)cmd_eval_class(e, k).support);
    cell = digits > cell ? digits : cell;
  }
  width = width > 20 ? 20 : width;
  printf("\n%-*s  %9s  %9s  %9s  %9s\n", width, "class", "precision", "recall", "F1", "support");
  cmd_eval_print_figures(e, width, NULL);
  printf("\nconfusion matrix: a row for each class, a column for each prediction\n%*s", width, "");
  for (size_t k = 0; k < classes; k++) {
    char *name = trm_printable(cmd_eval_class_name(e, k, text));
    printf(" %*.*s", cell, cell, name);
    trm_free(name);
  }
  for (size_t k = 0; k < classes; k++) {
    char *name = trm_printable(cmd_eval_class_name(e, k, text));
    printf("\n%-*.20s", width, name);
    trm_free(name);
    for (size_t j = 0; j < classes; j++)
      printf(" %*lld", cell, (long long)e->confusion[k * classes + j]);
  }
  printf("\n");
}

static void cmd_eval_json_classes(const struct evaluated *e, struct trm_json *out)
{
  const size_t classes = e->loaded->dataset->spec.classes;
  trm_json_list(out, "classes");
  cmd_eval_print_figures(e, 0, out);
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

static void cmd_eval_print_measures(const struct evaluated *e, struct trm_json *json)
{
  for (int i = 0; i < TRM_MEASURES && json; i++)
    if (e->measures.applies[i])
      trm_json_number(json, trm_measure_texts[i].key, e->measures.value[i]);
  char text[256];
  if (!json && trm_measures_text(&e->measures, text, sizeof text)[0])
    printf("\n%s", text);
}

static void cmd_eval_print(const struct evaluated *e, bool as_json)
{
  const struct trm_model *model = &e->loaded->model;
  const bool tokens = model->spec.tokens, correct = model->loss->counts_correct;
  const double loss = e->sums.loss / e->sums.rows, bytes = tokens ? e->loaded->dataset->token_bytes : 0;
  const struct figure row[] = {
    figure_text("checkpoint", NULL, e->loaded->path),
    figure_text("split", "%s of ", e->split),
    figure_text("file", "%s: ", e->file),
    figure_number(tokens ? "tokens" : "samples", tokens ? "%.0f tokens" : "%.0f samples", e->sums.rows, 1),
    figure_number("loss", ", loss %.6f", loss, 1),
    figure_number(tokens ? "perplexity" : NULL, tokens ? ", perplexity %.4f" : NULL, exp(loss), 1),
    figure_number(tokens ? "bits" : NULL, tokens ? ", %.4f bits per token" : NULL, loss / log(2), 1),
    figure_number(bytes > 0 ? "bits_per_byte" : NULL, bytes > 0 ? ", %.4f bits per byte" : NULL, loss / log(2) / bytes,
                  1),
    figure_number(correct ? "accuracy" : NULL, correct ? ", accuracy %.2f%%" : NULL, e->sums.correct / e->sums.rows,
                  100),
  };
  struct trm_json out, *json = as_json ? &out : NULL;
  trm_json_open(&out, stdout);
  if (json)
    trm_json_object(json, NULL);
  figures_print(json, row, sizeof row / sizeof *row);
  cmd_eval_print_measures(e, json);
  if (json && e->confusion)
    cmd_eval_json_classes(e, json);
  if (json)
    trm_json_end(json);
  else
    printf("\n");
  if (!json && e->confusion && model->spec.classes <= MAX_PRINTED_CLASSES)
    cmd_eval_print_classes(e);
  else if (!json && e->confusion)
    printf("figures of each class: --json\n");
}

struct eval_flags {
  enum trm_split split;
  bool json;
};
#define AT(field) offsetof(struct eval_flags, field)
static const struct trm_option flags[] = {{"split", TRM_OPTION_CHOICE, AT(split), "test", SPLITS},
                                          {"json", TRM_OPTION_BOOL, AT(json), NULL, NO_RANGE},
                                          END_OF_FLAGS};

/* Collective. */
static int cmd_eval_measure(struct evaluated *e, struct loaded *loaded, struct trm_job *job,
                            struct trm_measurement *measurement)
{
  struct trm_comm *comm = job->modules.comm;
  const struct trm_pass pass = {.device = loaded->model.device,
                                .scored = measurement ? trm_measurement_add_pass : NULL,
                                .scored_context = measurement};
  TRM_CHECK(trm_evaluate(&loaded->model, loaded->dataset, comm, loaded->model.max_rows, &pass, &e->sums));
  if (!measurement)
    return TRM_OK;
  trm_measurement_end(measurement, comm, &e->measures);
  e->confusion = trm_measurement_confusion(measurement);
  return TRM_OK;
}

static int cmd_eval_run(const struct call *call)
{
  const struct eval_flags *f = call->values;
  struct trm_job *job = call->job;
  struct loaded loaded;
  struct evaluated e = {.loaded = &loaded, .split = trm_split_name(f->split)};
  struct trm_measurement *measurement = NULL;
  int status = loaded_open_split(&loaded, call, f->split);
  const struct trm_input_spec *spec = &loaded.model.spec;
  e.file = job->options.data.file;
  if (status == TRM_OK)
    measurement = trm_measurement_create(loaded.model.loss, spec, loaded.dataset->rows,
                                         spec->target == TRM_TARGET_CLASS && spec->classes <= MAX_CLASSES);
  if (status == TRM_OK)
    status = cmd_eval_measure(&e, &loaded, job, measurement);
  if (status == TRM_OK && job->modules.comm->rank == 0)
    cmd_eval_print(&e, f->json);
  trm_measurement_free(measurement);
  loaded_close(&loaded);
  return status;
}

const struct command cmd_eval = {
  .name = "eval", .help = "evaluate a checkpoint on a data set",
  .usage = usage, .flags = flags, .bytes = sizeof(struct eval_flags), .max_args = 1, .missing = "no checkpoint named",
  .job = JOB_OF_RANKS, .run = cmd_eval_run,
};
