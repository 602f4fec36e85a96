/* trireme export */
#include <string.h>

#include "cli/loaded.h"
#include "core/log.h"
#include "core/status.h"
#include "core/memory.h"
#include "exchange/exchange.h"
#include "nn/lora.h"

static const char usage[] =
  "usage: trireme export CHECKPOINT.h5|RUN --format=safetensors|onnx --out=FILE\n\n"
  "Writes the model of a checkpoint for other programs:\n"
  "  safetensors   the weights, under the names that PyTorch programs use: of GPT-2 those of\n"
  "                Hugging Face, of ResNet and VGG torchvision's, of all others layerN.weight\n"
  "  onnx          the whole model, from samples (or tokens) to scores, for batches of any\n"
  "                size; operator set 17. Above 2 GB the weights go to FILE.data beside it\n\n"
  "A .safetensors file can replace the checkpoint, here as in eval, predict and train\n"
  "(--model.init): --model=... and --data.file=... then describe its model and samples.\n";

struct export_flags {
  const char *format, *out;
};
#define AT(field) offsetof(struct export_flags, field)
static const struct trm_option flags[] = {{"format", TRM_OPTION_TEXT, AT(format), NULL, NO_RANGE},
                                          {"out", TRM_OPTION_TEXT, AT(out), NULL, NO_RANGE},
                                          END_OF_FLAGS};

static int cmd_export_find_format(const char *name, const struct trm_export **format)
{
  const char *known[16] = {NULL};
  if (!name)
    return trm_error(TRM_USAGE, "export: --format: no format named");
  for (int i = 0; trm_export_table[i].name && i < 15; i++) {
    known[i] = trm_export_table[i].name;
    *format = &trm_export_table[i];
    if (strcmp(known[i], name) == 0)
      return TRM_OK;
  }
  const char *near = trm_nearest_word(name, known);
  return trm_error(TRM_USAGE, "export: --format: there is no format \"%s\"%s%s%s; trireme export --help lists them",
                   name, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static int cmd_export_run(const struct call *call)
{
  const struct export_flags *f = call->values;
  const struct trm_export *format = NULL;
  TRM_CHECK(cmd_export_find_format(f->format, &format));
  if (!f->out)
    return trm_error(TRM_USAGE, "export: --out: no file named");
  struct loaded loaded;
  struct trm_model base = {0}; /* without adapters */
  float *base_w = NULL;
  int status = loaded_open(&loaded, call->job, call->args[0], 1);
  if (status == TRM_OK)
    status = trm_lora_merge(&loaded.model, loaded.checkpoint.state[0], &base, &base_w);
  if (status == TRM_OK)
    status = format->write(f->out, &base, base_w);
  if (status == TRM_OK)
    trm_info("%s: %zu parameters as %s", f->out, trm_model_size(&base), format->name);
  trm_model_free(&base);
  trm_free(base_w);
  loaded_close(&loaded);
  return status;
}

const struct command cmd_export = {
  .name = "export", .help = "write a checkpoint's model as safetensors or ONNX",
  .usage = usage, .flags = flags, .bytes = sizeof(struct export_flags), .max_args = 1,
  .missing = "no checkpoint named",
  .job = SERIAL_JOB, .run = cmd_export_run,
};
