#include "nn/lora.h"

#include <string.h>

#include "core/memory.h"
#include "core/pattern.h"
#include "core/status.h"
#include "nn/layers/layers.h"
#include "nn/param_names.h"

/* Returns the text with `words` behind each item i for which adapts[i]; words NULL: without those of adapters. */
static char *lora_edit(const char *text, const bool *adapts, const char *words)
{
  char *copy = trm_strdup(text), *rest = NULL, *edited = NULL;
  int number = 0;
  for (char *item = strtok_r(copy, "|", &rest); item; item = strtok_r(NULL, "|", &rest), number++) {
    char *state = NULL;
    char *word = strtok_r(item, " ", &state);
    const bool strips = !words && strcmp(word, layer_linear.name) == 0;
    trm_append(&edited, "%s%s", number ? " | " : "", word);
    while ((word = strtok_r(NULL, " ", &state)))
      if (!strips || (strncmp(word, "lora=", 5) != 0 && strncmp(word, "alpha=", 6) != 0))
        trm_append(&edited, " %s", word);
    if (words && adapts[number])
      trm_append(&edited, "%s", words);
  }
  trm_free(copy);
  return edited;
}

/* Marks the items whose weights the pattern matches. adapts (items) */
static int lora_choose(const struct trm_model *model, const struct trm_pattern *pattern, bool *adapts)
{
  struct trm_param_names names;
  char *known = NULL;
  bool any = false;
  trm_param_names_create(&names, model);
  for (int i = 0, p = 0; i < model->layers; p += model->layer[i++].parameters) {
    const struct trm_layer *layer = &model->layer[i];
    if (layer->ops != &layer_linear)
      continue;
    const char *name = names.name[p].text; /* of the weight */
    adapts[layer->number] = trm_pattern_matches(pattern, name);
    any = any || adapts[layer->number];
    if (!known)
      known = trm_strdup(name);
  }
  trm_param_names_free(&names);
  const int status = any ? TRM_OK
                   : known ? trm_error(TRM_USAGE, "model.lora: matches no weight of a linear layer; the first one is "
                                       "called %s", known)
                           : trm_error(TRM_USAGE, "model.lora: the model has no linear layer");
  trm_free(known);
  return status;
}

int trm_lora_add(const struct trm_model *model, const char *pattern, size_t rank, float alpha, char **adapted)
{
  struct trm_pattern *compiled;
  TRM_CHECK(trm_pattern_create(&compiled, "model.lora", pattern));
  bool *adapts = trm_alloc((size_t)(model->layer[model->layers - 1].number + 1) * sizeof *adapts, "adapters");
  const int status = lora_choose(model, compiled, adapts);
  trm_pattern_free(compiled);
  if (status == TRM_OK) {
    char *words = trm_format(" lora=%zu alpha=%.9g", rank, (double)alpha);
    *adapted = lora_edit(model->text, adapts, words);
    trm_free(words);
  }
  trm_free(adapts);
  return status;
}

/* to (N, K) += scale * B (N, R) A (R, K), each element summed in double. */
static void lora_add_product(float *to, const float *b, const float *a, size_t n, size_t k, size_t rank, float scale)
{
  double *row = trm_alloc(k * sizeof *row, "a row");
  for (size_t i = 0; i < n; i++) {
    memset(row, 0, k * sizeof *row);
    for (size_t r = 0; r < rank; r++)
      for (size_t j = 0; j < k; j++)
        row[j] += (double)b[i * rank + r] * (double)a[r * k + j];
    for (size_t j = 0; j < k; j++)
      to[i * k + j] += (float)((double)scale * row[j]);
  }
  trm_free(row);
}

int trm_lora_merge(const struct trm_model *model, const float *w, struct trm_model *base, float **base_w)
{
  char *text = lora_edit(model->text, NULL, NULL);
  const int status = trm_model_create(base, text, model->loss->name, &model->spec);
  trm_free(text);
  TRM_CHECK(status);
  float *to = *base_w = trm_alloc(base->parameters * sizeof *to, "merged weights");
  for (int i = 0, n = 0; i < model->layers; i++) {
    const struct trm_layer *layer = &model->layer[i];
    for (int p = 0; p < layer->parameters; p++)
      if (!layer->parameter[p].adapter)
        memcpy(to + trm_model_parameter(base, n + p)->offset, w + layer->parameter[p].offset,
               layer->parameter[p].count * sizeof *to);
    if (layer->adapted) {
      const struct trm_parameter *weight = &layer->parameter[0];
      const struct trm_parameter *a = &layer[1].parameter[0], *b = &layer[3].parameter[0]; /* nn/model_text.c */
      float scale;
      const size_t rank = trm_layer_adapter(layer, &scale);
      lora_add_product(to + trm_model_parameter(base, n)->offset, w + b->offset, w + a->offset,
                       weight->shape.size[0], weight->shape.size[1], rank, scale);
    }
    n += layer->parameters && layer->parameter[0].adapter ? 0 : layer->parameters;
  }
  return TRM_OK;
}
