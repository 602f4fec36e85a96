/* Parameter groups (optim.groups): factors of the learning rate and of the weight decay, by names. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/pattern.h"
#include "core/status.h"
#include "nn/model.h"
#include "nn/param_names.h"

struct group {
  struct trm_pattern *pattern;
  float rate, decay;
};

/* Cuts spaces from both ends of a text. */
static char *groups_trim(char *text)
{
  text += strspn(text, " \t\n");
  size_t length = strlen(text);
  while (length && strchr(" \t\n", text[length - 1]))
    text[--length] = '\0';
  return text;
}

/* Reads "rate=F" or "decay=F". */
static int groups_read_factor(struct group *group, const char *word)
{
  const bool is_rate = strncmp(word, "rate=", 5) == 0, is_decay = strncmp(word, "decay=", 6) == 0;
  float *const to = is_rate ? &group->rate : is_decay ? &group->decay : NULL;
  char *end = NULL;
  const char *number = strchr(word, '=');
  const float value = to ? strtof(number + 1, &end) : -1;
  if (!to || end == number + 1 || *end != '\0' || !(value >= 0 && value < INFINITY))
    return trm_error(TRM_USAGE, "optim.groups: '%s' is not rate=F or decay=F with a factor F of at least 0", word);
  *to = value;
  return TRM_OK;
}

/* Reads "PATTERN: rate=F decay=F". */
static int groups_read(struct group *group, char *text)
{
  char *colon = strrchr(text, ':'), *rest = NULL;
  *group = (struct group){.rate = 1, .decay = 1};
  if (!colon)
    return trm_error(TRM_USAGE, "optim.groups: '%s' is not PATTERN: rate=F decay=F", text);
  *colon = '\0';
  int factors = 0;
  for (char *word = strtok_r(colon + 1, " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest), factors++)
    TRM_CHECK(groups_read_factor(group, word));
  const char *pattern = groups_trim(text);
  if (!factors || *pattern == '\0')
    return trm_error(TRM_USAGE, "optim.groups: '%s' has no %s", text, factors ? "pattern" : "rate=F or decay=F");
  return trm_pattern_create(&group->pattern, "optim.groups", pattern);
}

/* Returns the trained tensor of a parameter; NULL: it is frozen, or a statistic. */
static struct trm_tensor *groups_find_tensor(const struct trm_model *model, const struct trm_parameter *parameter)
{
  for (int t = 0; t < model->tensors && !parameter->frozen; t++)
    if ((t ? model->tensor[t - 1].end : 0) == parameter->offset)
      return &model->tensor[t];
  return NULL;
}

/* Sets the factors of the parameters whose first group this is. taken (parameters of the whole model) */
static int groups_apply(struct trm_model *model, const struct trm_model *full, const struct trm_param_names *names,
                        const struct group *group, bool *taken, const char *text)
{
  const int count = trm_model_parameter_count(full);
  int matched = 0;
  bool *mine = trm_alloc((size_t)count * sizeof *mine, "a group");
  for (int n = 0; n < count; n++) {
    mine[n] = !taken[n] && trm_pattern_matches(group->pattern, names->name[n].text);
    taken[n] |= mine[n];
    matched += mine[n];
  }
  for (int i = 0; i < trm_model_parameter_count(model); i++) {
    const struct trm_parameter *parameter = trm_model_parameter(model, i);
    struct trm_tensor *tensor = mine[parameter->number] ? groups_find_tensor(model, parameter) : NULL;
    if (!tensor)
      continue;
    tensor->grouped = true;
    tensor->rate = group->rate;
    tensor->decay = group->decay;
  }
  trm_free(mine);
  if (matched)
    return TRM_OK;
  return trm_error(TRM_USAGE, "optim.groups: '%s' matches no parameter that no earlier group has; the first parameter "
                   "is called %s, the last one %s", text, names->name[0].text, names->name[count - 1].text);
}

int trm_model_set_groups(struct trm_model *model, const struct trm_model *full, const char *text)
{
  struct trm_param_names names;
  char *copy = trm_strdup(text), *rest = NULL;
  bool *taken = trm_alloc((size_t)trm_model_parameter_count(full) * sizeof *taken, "groups");
  int status = TRM_OK;
  trm_param_names_create(&names, full);
  for (char *item = strtok_r(copy, ";", &rest); item && status == TRM_OK; item = strtok_r(NULL, ";", &rest)) {
    struct group group;
    item = groups_trim(item);
    status = groups_read(&group, item);
    if (status == TRM_OK)
      status = groups_apply(model, full, &names, &group, taken, item);
    trm_pattern_free(group.pattern);
  }
  trm_param_names_free(&names);
  trm_free(taken);
  trm_free(copy);
  return status;
}
