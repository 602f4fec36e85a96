/* Parameter names of convolutional networks in torchvision. */
#include <string.h>

#include "nn/param_names_private.h"

/* conv batch_norm relu conv batch_norm, with the identity or conv batch_norm as shortcut; add relu */
static bool torchvision_name_block(struct trm_name_cursor *n, int stage, int block, bool projects)
{
  if (!trm_name_assign(n, "conv2d", "layer%d.%d.conv1", stage, block) ||
      !trm_name_assign(n, "batch_norm", "layer%d.%d.bn1", stage, block) || !trm_name_skip(n, "relu") ||
      !trm_name_assign(n, "conv2d", "layer%d.%d.conv2", stage, block) ||
      !trm_name_assign(n, "batch_norm", "layer%d.%d.bn2", stage, block))
    return false;
  if (projects && (!trm_name_assign(n, "conv2d", "layer%d.%d.downsample.0", stage, block) ||
                   !trm_name_assign(n, "batch_norm", "layer%d.%d.downsample.1", stage, block)))
    return false;
  return trm_name_skip(n, "add") && trm_name_skip(n, "relu");
}

/* Stages after the first start with a projection shortcut. */
bool trm_param_names_resnet(struct trm_name_cursor *n)
{
  if (!trm_name_assign(n, "conv2d", "conv1") || !trm_name_assign(n, "batch_norm", "bn1") || !trm_name_skip(n, "relu"))
    return false;
  trm_name_skip(n, "max_pool");
  for (int stage = 1, block = 0; !trm_name_is(n, 0, "global_avg_pool"); block++) {
    const bool projects = trm_name_is(n, 5, "conv2d");
    if (projects) {
      stage++;
      block = 0;
    }
    if (!torchvision_name_block(n, stage, block, projects))
      return false;
  }
  return trm_name_skip(n, "global_avg_pool") && trm_name_assign(n, "linear", "fc") && n->layer == n->model->layers;
}

/* A layer named by its index in a list. */
static bool torchvision_name_listed(struct trm_name_cursor *n, const char *list, int index, const char *const *named,
                                    const char *const *unnamed)
{
  for (; *named; named++)
    if (trm_name_assign(n, *named, "%s.%d", list, index))
      return true;
  for (; *unnamed; unnamed++)
    if (trm_name_skip(n, *unnamed))
      return true;
  return false;
}

bool trm_param_names_vgg(struct trm_name_cursor *n)
{
  static const char *const images[] = {"conv2d", "batch_norm", NULL};
  static const char *const pools[] = {"relu", "max_pool", "avg_pool", NULL};
  static const char *const vectors[] = {"linear", NULL}, *const between[] = {"relu", "dropout", NULL};
  if (!trm_name_is(n, 0, "conv2d"))
    return false;
  while (!trm_name_is(n, 0, "flatten"))
    if (!torchvision_name_listed(n, "features", n->layer, images, pools))
      return false;
  trm_name_skip(n, "flatten");
  for (const int first = n->layer; n->layer < n->model->layers;)
    if (!torchvision_name_listed(n, "classifier", n->layer - first, vectors, between))
      return false;
  return true;
}
