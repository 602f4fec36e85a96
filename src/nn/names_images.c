/* Convolutional networks as torchvision calls their parts. */
#include <string.h>

#include "nn/names_private.h"

/* conv batch_norm relu conv batch_norm, beside them the identity or conv batch_norm; add relu */
static bool block_take(struct trm_naming *n, int stage, int block, bool projects)
{
  if (!trm_naming_take(n, "conv2d", "layer%d.%d.conv1", stage, block) ||
      !trm_naming_take(n, "batch_norm", "layer%d.%d.bn1", stage, block) || !trm_naming_pass(n, "relu") ||
      !trm_naming_take(n, "conv2d", "layer%d.%d.conv2", stage, block) ||
      !trm_naming_take(n, "batch_norm", "layer%d.%d.bn2", stage, block))
    return false;
  if (projects && (!trm_naming_take(n, "conv2d", "layer%d.%d.downsample.0", stage, block) ||
                   !trm_naming_take(n, "batch_norm", "layer%d.%d.downsample.1", stage, block)))
    return false;
  return trm_naming_pass(n, "add") && trm_naming_pass(n, "relu");
}

/* A stage after the first begins where a block has a projection. */
bool trm_names_resnet(struct trm_naming *n)
{
  if (!trm_naming_take(n, "conv2d", "conv1") || !trm_naming_take(n, "batch_norm", "bn1") || !trm_naming_pass(n, "relu"))
    return false;
  trm_naming_pass(n, "max_pool");
  for (int stage = 1, block = 0; !trm_naming_is(n, 0, "global_avg_pool"); block++) {
    const bool projects = trm_naming_is(n, 5, "conv2d");
    if (projects) {
      stage++;
      block = 0;
    }
    if (!block_take(n, stage, block, projects))
      return false;
  }
  return trm_naming_pass(n, "global_avg_pool") && trm_naming_take(n, "linear", "fc") && n->layer == n->model->layers;
}

/* One layer of a list, with its place in it as its name. */
static bool listed_take(struct trm_naming *n, const char *list, int place, const char *const *with,
                        const char *const *without)
{
  for (; *with; with++)
    if (trm_naming_take(n, *with, "%s.%d", list, place))
      return true;
  for (; *without; without++)
    if (trm_naming_pass(n, *without))
      return true;
  return false;
}

bool trm_names_vgg(struct trm_naming *n)
{
  static const char *const images[] = {"conv2d", "batch_norm", NULL};
  static const char *const pools[] = {"relu", "max_pool", "avg_pool", NULL};
  static const char *const vectors[] = {"linear", NULL}, *const between[] = {"relu", "dropout", NULL};
  if (!trm_naming_is(n, 0, "conv2d"))
    return false;
  while (!trm_naming_is(n, 0, "flatten"))
    if (!listed_take(n, "features", n->layer, images, pools))
      return false;
  trm_naming_pass(n, "flatten");
  for (const int first = n->layer; n->layer < n->model->layers;)
    if (!listed_take(n, "classifier", n->layer - first, vectors, between))
      return false;
  return true;
}
