#include "nn/conv_chain.h"

#include "nn/fusion.h"
#include "nn/layers/layers.h"

/* Returns true if layer `next` alone reads the one before it, has the kind, and has a call of its own so far. */
static bool chain_goes_on(const struct trm_layer *layer, const struct trm_arena_plan *plan, int next,
                          const struct trm_layer_ops *kind)
{
  return next < plan->last && layer[next].ops == kind && layer[next].from == next - 1 &&
         trm_fusion_single_reader(layer, plan, next - 1) == next && plan->span[next].first == next &&
         plan->span[next].end == next + 1;
}

/* Returns the end of the chain of convolution i, with an add only if the other addend is a blocked array. */
static int chain_find_end(const struct trm_layer *layer, const struct trm_arena_plan *plan, int i)
{
  int end = i + 1;
  if (chain_goes_on(layer, plan, end, &layer_batch_norm))
    end++;
  if (chain_goes_on(layer, plan, end, &layer_add) && layer[end].addend >= 0 && plan->blocked[layer[end].addend])
    end++;
  if (chain_goes_on(layer, plan, end, &layer_relu))
    end++;
  return end;
}

/* Returns true if the array of value a does not begin before the end of b, or inversely. */
static bool chain_apart(const struct trm_layer *layer, const struct trm_arena_plan *plan, int a, int b)
{
  const size_t at[2] = {plan->value[a], plan->value[b]};
  const int first = at[0] < at[1] ? a : b;
  return at[0] != at[1] &&
         plan->value[first] + layer[first].output_rows * trm_shape_count(&layer[first].out) * sizeof(float) <=
           plan->value[first == a ? b : a];
}

/* The call writes the last value when the plan has the first: its place must be no part of what the call reads. */
static bool chain_fits(const struct trm_layer *layer, const struct trm_arena_plan *plan, int i, int end)
{
  if (layer[i].from >= 0 && !chain_apart(layer, plan, end - 1, layer[i].from))
    return false;
  for (int k = i + 1; k < end; k++)
    if (layer[k].addend >= 0 && plan->value[end - 1] != plan->value[layer[k].addend] &&
        !chain_apart(layer, plan, end - 1, layer[k].addend))
      return false;
  return true;
}

/* Finds all chains, under the assumption that the values are blocked that plan->blocked says. */
static void chain_find_all(const struct trm_layer *layer, struct trm_arena_plan *plan, struct trm_device *device)
{
  for (int i = plan->first; i < plan->last; i++) {
    plan->chain[i] = 0;
    if (layer[i].ops != &layer_conv2d || layer[i].output_partial || layer[i].from == TRM_FROM_NONE)
      continue;
    const struct trm_conv2d conv = trm_layer_conv2d(&layer[i]);
    const int end = chain_find_end(layer, plan, i);
    if (device->ops->conv2d_fuses(device, &conv, layer[i].values) && chain_fits(layer, plan, i, end))
      plan->chain[i] = end;
  }
}

/* Returns true if a chain computes layer i behind its convolution. */
static bool chain_includes(const struct trm_arena_plan *plan, int i)
{
  int c = i - 1;
  while (c >= plan->first && !plan->chain[c])
    c--;
  return c >= plan->first && plan->chain[c] > i;
}

/* Returns true if a chain has layer i's value as its result, and chains alone read it. */
static bool chain_may_block(const struct trm_layer *layer, const struct trm_arena_plan *plan, int i)
{
  bool result = false, read = false;
  for (int c = plan->first; c < plan->last; c++)
    result = result || plan->chain[c] == i + 1;
  for (int r = plan->first; r < plan->last; r++) {
    if ((layer[r].from == i && !plan->chain[r]) || (layer[r].addend == i && !chain_includes(plan, r)))
      return false;
    read = read || layer[r].from == i || layer[r].addend == i;
  }
  return result && read && layer[i].out.size[0] % TRM_CHANNEL_BLOCK == 0;
}

/* Begins with all values that could be blocked; each one that cannot be may end chains that add it. */
void trm_conv_chain_plan(const struct trm_layer *layer, struct trm_arena_plan *plan,
                         const struct trm_arena_request *request)
{
  for (int i = plan->first; i < plan->last; i++)
    plan->blocked[i] = true;
  for (bool changed = true; changed;) {
    changed = false;
    chain_find_all(layer, plan, request->infers);
    for (int i = plan->first; i < plan->last; i++)
      if (plan->blocked[i] && !chain_may_block(layer, plan, i)) {
        plan->blocked[i] = false;
        changed = true;
      }
  }
  for (int i = plan->first; i < plan->last; i++)
    for (int k = i; k < plan->chain[i]; k++)
      plan->span[k] = k == i ? (struct trm_span){i, plan->chain[i]} : (struct trm_span){k, k};
}
