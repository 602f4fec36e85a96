#include "nn/param_load.h"

#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

void trm_param_load_create(struct trm_param_load *load, const char *path, const struct trm_model *model,
                           const struct trm_pattern *skip)
{
  const size_t count = (size_t)trm_model_parameter_count(model);
  *load = (struct trm_param_load){.path = path,
                                  .model = model,
                                  .skip = skip,
                                  .found = trm_alloc(count * sizeof *load->found, "names"),
                                  .loaded = trm_alloc(count * sizeof *load->loaded, "names")};
  trm_param_names_create(&load->names, model);
}

void trm_param_load_free(struct trm_param_load *load)
{
  if (load->model)
    trm_param_names_free(&load->names);
  trm_free(load->found);
  trm_free(load->loaded);
  trm_free(load->skipped);
  *load = (struct trm_param_load){0};
}

static void param_load_skip(struct trm_param_load *load, const char *name, const char *reason)
{
  trm_append(&load->skipped, "%s%s (%s)", load->skipped ? ", " : "", name, reason);
}

/* Returns a hint if the tensor is a bias that the model omits: its layer has the weight of the same name. */
static const char *param_load_bias_hint(const struct trm_param_load *load, const char *tensor)
{
  const size_t stem = strlen(tensor) - (strlen(tensor) > 5 ? 5 : 0);
  if (strcmp(tensor + stem, ".bias") != 0)
    return "";
  char *weight = trm_format("%.*s.weight", (int)stem, tensor);
  const int number = trm_param_names_find(&load->names, load->model, weight);
  trm_free(weight);
  return number >= 0 ? trm_model_bias_hint(load->model, trm_model_parameter(load->model, number)->name) : "";
}

int trm_param_load_find(struct trm_param_load *load, const char *tensor, int *number)
{
  const struct trm_param_names *names = &load->names;
  const int found = trm_param_names_find(names, load->model, tensor);
  *number = -1;
  if (found == -1 && trm_pattern_matches(load->skip, tensor))
    param_load_skip(load, tensor, "not in the model");
  else if (found == -1)
    return trm_error(TRM_USAGE, "%s: the model has no place for tensor %.100s (its first parameter is called %s)%s",
                     load->path, tensor, names->name[0].text, param_load_bias_hint(load, tensor));
  if (found < 0)
    return TRM_OK;
  if (load->found[found])
    return trm_error(TRM_USAGE, "%s: tensor %s is there twice, with and without %s", load->path,
                     names->name[found].text, names->prefix);
  load->found[found] = true;
  *number = found;
  return TRM_OK;
}

int trm_param_load_take(struct trm_param_load *load, int number, const char *tensor, bool same, const char *stored,
                        const char *here, bool *reads)
{
  const char *name = load->names.name[number].text;
  *reads = !trm_pattern_matches(load->skip, name);
  if (!*reads) {
    char *reason = same ? trm_strdup("of the same shape") : trm_format("%s in the file, %s here", stored, here);
    param_load_skip(load, name, reason);
    trm_free(reason);
  } else if (!same) {
    return trm_error(TRM_USAGE, "%s: tensor %s has shape %s, but the model's has %s", load->path, tensor, stored, here);
  }
  load->loaded[number] = *reads;
  return TRM_OK;
}

int trm_param_load_end(struct trm_param_load *load)
{
  for (int p = 0; p < trm_model_parameter_count(load->model); p++) {
    const char *name = load->names.name[p].text;
    if (load->found[p] || trm_model_parameter(load->model, p)->adapter)
      continue;
    if (!trm_pattern_matches(load->skip, name))
      return trm_error(TRM_USAGE, "%s: there is no tensor %s, which the model has (its %s)", load->path, name,
                       trm_model_parameter(load->model, p)->name);
    param_load_skip(load, name, "not in the file");
  }
  if (load->skip && !load->skipped)
    return trm_error(TRM_USAGE, "model.skip: matches no parameter; the first one is called %s, the last one %s",
                     load->names.name[0].text, load->names.name[trm_model_parameter_count(load->model) - 1].text);
  return TRM_OK;
}

void trm_param_load_log(const struct trm_param_load *load)
{
  int loaded = 0;
  const int count = trm_model_parameter_count(load->model);
  for (int p = 0; p < count; p++)
    loaded += load->loaded[p];
  trm_info("weights of %s: %d of %d parameters loaded%s%s", load->path, loaded, count,
           load->skipped ? "; skipped: " : "", load->skipped ? load->skipped : "");
}
