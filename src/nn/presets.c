/* The table of presets, and the perceptron. */
#include "nn/presets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/options.h"
#include "core/status.h"

/* mlp INPUTS-UNITS-...-UNITS [ACTIVATION] */
static int presets_expand_mlp(const struct trm_item *item, const struct trm_input_spec *spec, FILE *to)
{
  static const char usage[] = "usage: mlp INPUTS-UNITS-...-UNITS [ACTIVATION], such as mlp 784-512-256-10 relu";
  static const char *const activations[] = {"relu", "gelu", "gelu_tanh", "tanh", "sigmoid", NULL};
  if (item->words < 2)
    return trm_error(TRM_USAGE, "layer %d (mlp): the sizes are missing; %s", item->number, usage);
  int known = item->words < 3 ? 0 : -1;
  for (int i = 0; known < 0 && activations[i]; i++)
    if (strcmp(activations[i], item->word[2]) == 0)
      known = i;
  if (known < 0) {
    const char *near = trm_nearest_word(item->word[2], activations);
    return trm_error(TRM_USAGE, "layer %d (mlp): there is no activation '%s'%s%s%s; %s", item->number, item->word[2],
                     near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "", usage);
  }

  const char *at = item->word[1];
  for (int position = 0;; position++) {
    char *end;
    errno = 0;
    const long long size = strtoll(at, &end, 10);
    if (end == at || *at < '0' || *at > '9' || errno || size < 1 || size > INT32_MAX || (*end && *end != '-') ||
        (!*end && !position))
      return trm_error(TRM_USAGE, "layer %d (mlp): '%s' is no list of two or more sizes from 1 to %d; %s", item->number,
                       item->word[1], INT32_MAX, usage);
    if (position == 0 && (size_t)size != trm_shape_count(&spec->shape))
      return trm_error(TRM_USAGE, "layer %d (mlp): the model expects samples of %lld values, the data set has samples "
                       "of shape %s", item->number, size, trm_shape_text(&spec->shape));
    if (position > 0)
      fprintf(to, "%slinear %lld", position > 1 ? " | " : "", size);
    if (!*end)
      return TRM_OK;
    if (position > 0) {
      fprintf(to, " | %s", item->words < 3 ? "relu" : item->word[2]);
      for (int i = 3; i < item->words; i++)
        fprintf(to, " %s", item->word[i]);
    }
    at = end + 1;
  }
}

const struct trm_preset trm_preset_table[] = {
  {"mlp", presets_expand_mlp, NULL},
  {"lenet5", trm_preset_lenet5, NULL},
  {"resnet20", trm_preset_resnet, NULL},
  {"resnet32", trm_preset_resnet, NULL},
  {"resnet44", trm_preset_resnet, NULL},
  {"resnet56", trm_preset_resnet, NULL},
  {"resnet110", trm_preset_resnet, NULL},
  {"resnet18", trm_preset_resnet18, NULL},
  {"vgg11", trm_preset_vgg11, NULL},
  {"gpt", trm_preset_gpt, trm_preset_gpt_context},
  {"gpt2-124m", trm_preset_gpt, trm_preset_gpt_context},
  {"gpt2-355m", trm_preset_gpt, trm_preset_gpt_context},
  {"gpt2-774m", trm_preset_gpt, trm_preset_gpt_context},
  {"gpt2-1558m", trm_preset_gpt, trm_preset_gpt_context},
  {NULL, NULL, NULL},
};
