/* trireme export */
#include <string.h>

#include "cli/commands.h"
#include "cli/loaded.h"
#include "core/log.h"
#include "core/status.h"
#include "exchange/exchange.h"

static const char usage[] =
  "usage: trireme export CHECKPOINT.h5|RUN --format=safetensors|onnx --out=FILE\n\n"
  "Writes the model of a checkpoint for other programs:\n"
  "  safetensors   the weights, under the names that PyTorch programs use: of GPT-2 those of\n"
  "                Hugging Face, of ResNet and VGG torchvision's, of all others layerN.weight\n"
  "  onnx          the whole model, from samples (or tokens) to scores, for batches of any\n"
  "                size; operator set 17. Above 2 GB the weights go to FILE.data beside it\n\n"
  "A .safetensors file can replace the checkpoint, here as in eval, predict and train\n"
  "(--model.init): --model=... and --data.file=... then describe its model and samples.\n";

static int cmd_export_find_format(const char *name, const struct trm_export **format)
{
  const char *known[16] = {NULL};
  if (!name)
    return trm_error(TRM_USAGE, "export: --format: no format named");
  for (int i = 0; trm_export_table[i].name && i < 15; i++) {
    known[i] = trm_export_table[i].name;
    if (strcmp(known[i], name) == 0) {
      *format = &trm_export_table[i];
      return TRM_OK;
    }
  }
  const char *near = trm_nearest_word(name, known);
  return trm_error(TRM_USAGE, "export: --format: there is no format \"%s\"%s%s%s; trireme export --help lists them",
                   name, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static int cmd_export_run(struct trm_job *job, const char *path, const char *format_name, const char *out)
{
  const struct trm_export *format = NULL;
  if (!path)
    return trm_error(TRM_USAGE, "export: no checkpoint named; trireme export --help shows the usage");
  TRM_CHECK(cmd_export_find_format(format_name, &format));
  if (!out)
    return trm_error(TRM_USAGE, "export: --out: no file named");
  struct loaded loaded;
  int status = loaded_open(&loaded, job, path, 1);
  if (status == TRM_OK)
    status = format->write(out, &loaded.model, loaded.checkpoint.state[0]);
  if (status == TRM_OK)
    trm_info("%s: %zu parameters as %s", out, trm_model_size(&loaded.model), format->name);
  loaded_close(&loaded, job);
  return status;
}

int cmd_export(int argc, char **argv)
{
  const char *format = NULL, *out = NULL;
  const struct flag flags[] = {{.name = "format", .kind = FLAG_TEXT, .value = &format},
                               {.name = "out", .kind = FLAG_TEXT, .value = &out},
                               {.name = NULL}};
  const struct job_request request = {.command = "export", .usage = usage, .flags = flags, .nargs = 1, .serial = true};
  struct trm_job job;
  int nargs;
  bool help_shown;
  int status = job_open(&job, &request, argc, argv, &nargs, &help_shown);
  if (status == TRM_OK && !help_shown)
    status = cmd_export_run(&job, nargs ? argv[0] : NULL, format, out);
  trm_job_close(&job);
  return status;
}
