#include "nn/fusion.h"

#include "nn/layers/layers.h"

int trm_fusion_single_reader(const struct trm_layer *layer, const struct trm_arena_plan *plan, int i)
{
  int reader = -1, reads = 0;
  for (int r = plan->first; r < plan->last; r++)
    for (int k = 0; k < 2; k++)
      if ((k ? layer[r].addend : layer[r].from) == i) {
        reader = r;
        reads++;
      }
  return reads == 1 ? reader : -1;
}

/* A plan, looked at in one phase. */
struct fusion {
  const struct trm_layer *layer;
  struct trm_arena_plan *plan;
  const struct trm_arena_request *request;
  bool recompute;        /* of recomputation; otherwise of forward */
  struct trm_span *span; /* (layers) of the phase */
};

/* An array in the arena. */
struct range {
  size_t offset, bytes;
};

static bool fusion_apart(struct range a, struct range b)
{
  return a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
}

static size_t fusion_index(const struct fusion *it, int i)
{
  return (size_t)(it->recompute ? it->plan->last + i : i);
}

/* The value of layer i, as layer `reader` reads it in this phase. */
static struct range fusion_value(const struct fusion *it, int reader, int i)
{
  const struct trm_arena_plan *plan = it->plan;
  const bool recomputed = it->recompute && plan->segment_end[i] == plan->segment_end[reader];
  const struct trm_layer *layer = &it->layer[i];
  return (struct range){plan->value[recomputed ? plan->last + i : i],
                        layer->output_rows * trm_layer_output_elements(layer) * trm_value_bytes(it->request->values)};
}

/* The workspace of layer i in this phase. */
static struct range fusion_work(const struct fusion *it, int i)
{
  const struct trm_layer *layer = &it->layer[i];
  return (struct range){it->plan->work[fusion_index(it, i)],
                        (layer->workspace_fixed + layer->rows * layer->workspace) * sizeof(float)};
}

/* Returns the end of the layers that have a call of their own: the loss computes the last one where that is chunked. */
static int fusion_end(const struct trm_arena_plan *plan)
{
  return plan->loss_chunk ? plan->last - 1 : plan->last;
}

/* Returns true if layer `reader`, the next one, reads layer i's value, and this phase computes both. */
static bool fusion_follows(const struct fusion *it, int i, int reader)
{
  const struct trm_arena_plan *plan = it->plan;
  if (i < plan->first || reader >= fusion_end(plan) || it->layer[reader].from != i ||
      it->layer[i].from == TRM_FROM_NONE)
    return false;
  return !it->recompute ||
         (plan->recompute[i] && plan->recompute[reader] && plan->segment_end[i] == plan->segment_end[reader]);
}

/* Makes the layers [first, end) part of the call of layer i. */
static void fusion_join(struct fusion *it, int i, int first, int end)
{
  for (int k = first; k < end; k++)
    it->span[k] = (struct trm_span){k, k};
  it->span[i] = (struct trm_span){first, end};
}

/* A linear layer and the activation behind it. */
static void fusion_find_activation(struct fusion *it, int i)
{
  const struct trm_layer *layer = &it->layer[i];
  if (!layer->ops->fuses_activation || layer->sparse_input || !fusion_follows(it, i, i + 1) ||
      !trm_layer_is_activation(&it->layer[i + 1]))
    return;
  const struct range y = fusion_value(it, i, i), z = fusion_value(it, i + 1, i + 1);
  const struct trm_parameter *weight = it->request->copy_weights ? trm_layer_product_weight(layer) : NULL;
  if (z.offset != y.offset) { /* else x and the weight live as long as y */
    if (layer->from >= 0 && !fusion_apart(z, fusion_value(it, i, layer->from)))
      return;
    if (weight && !fusion_apart(z, (struct range){it->plan->copy[fusion_index(it, i)],
                                                  weight->count * trm_value_bytes(it->request->values)}))
      return;
  }
  fusion_join(it, i, i, i + 2);
}

static bool fusion_is_relu(const struct trm_layer *layer)
{
  return trm_layer_is_activation(layer) && layer->ops->variant == TRM_RELU;
}

/* A batch norm and the relu behind it, or the add behind it and the relu behind that: its own value is not written. */
static void fusion_find_relu(struct fusion *it, int i)
{
  const struct trm_layer *norm = &it->layer[i];
  const int end = i + 1 < fusion_end(it->plan) && norm[1].ops == &layer_add ? i + 3 : i + 2;
  if (!it->request->training || !norm->ops->fuses_relu || end > fusion_end(it->plan) ||
      !fusion_is_relu(&it->layer[end - 1]))
    return;
  for (int k = i; k + 1 < end; k++)
    if (!fusion_follows(it, k, k + 1) || trm_fusion_single_reader(it->layer, it->plan, k) != k + 1)
      return;
  const struct range z = fusion_value(it, end - 1, end - 1), work = fusion_work(it, i);
  if (!fusion_apart(z, work) || (norm->from >= 0 && !fusion_apart(z, fusion_value(it, i, norm->from))))
    return;
  if (end == i + 3) {
    const struct range addend = fusion_value(it, i + 1, norm[1].addend);
    if (z.offset != addend.offset && !fusion_apart(z, addend))
      return;
  }
  fusion_join(it, i, i, end);
}

/* Returns true if the norm may read the operands a and b of the sum s while it writes its own arrays. */
static bool fusion_norm_fits(const struct fusion *it, int i, struct range a, struct range b)
{
  const struct range y = fusion_value(it, i, i), work = fusion_work(it, i);
  return fusion_apart(y, a) && fusion_apart(y, b) && fusion_apart(work, a) && fusion_apart(work, b);
}

/* An add with the dropout before it and the norm behind it. */
static void fusion_find_sum(struct fusion *it, int i)
{
  const struct trm_layer *add = &it->layer[i], *before = &it->layer[add->from];
  const struct range s = fusion_value(it, i, i), a = fusion_value(it, i, add->addend);
  /* in the masked value's place: so nothing else reads that */
  const bool masked = fusion_follows(it, i - 1, i) && before->ops == &layer_dropout && before->from >= 0 &&
                      fusion_value(it, i, i - 1).offset == s.offset;
  const struct range b = masked ? fusion_value(it, i - 1, before->from) : fusion_value(it, i, add->from);
  const bool fits = !masked || (fusion_apart(s, a) && (s.offset == b.offset || fusion_apart(s, b)));
  const int first = masked && fits ? i - 1 : i;
  const bool normed = fusion_follows(it, i, i + 1) && it->layer[i + 1].ops->fuses_sum &&
                      fusion_norm_fits(it, i + 1, a, first < i ? b : fusion_value(it, i, add->from));
  fusion_join(it, normed ? i + 1 : i, first, normed ? i + 2 : i + 1);
}

/* Returns true if backward of the linear layer i + 1 may compute that of the activation i, which it reads. */
static bool fusion_joins_backward(const struct trm_layer *layer, const struct trm_arena_plan *plan, int i)
{
  const struct trm_layer *linear = &layer[i + 1];
  const struct trm_gradient_flow *flow = &plan->flow[2 * (i + 1)]; /* of a value without other readers, in place */
  return linear->ops->fuses_activation && linear->from == i && trm_layer_is_activation(&layer[i]) &&
         layer[i].needs_dx && linear->needs_dx && !linear->grad_input_partial &&
         (!layer[i].ops->keeps_input || plan->segment_end[i] == plan->segment_end[i + 1]) && !flow->accumulates &&
         flow->write == plan->flow[2 * i].write;
}

/* Returns true if backward of the batch norm i - 1 may compute that of the relu i, which reads it. */
static bool fusion_joins_norm(const struct trm_layer *layer, const struct trm_arena_plan *plan, int i)
{
  const struct trm_gradient_flow *flow = &plan->flow[2 * i];
  return i > plan->first && layer[i - 1].ops->fuses_relu && fusion_is_relu(&layer[i]) && layer[i].from == i - 1 &&
         layer[i].needs_dx && trm_fusion_single_reader(layer, plan, i - 1) == i && !flow->accumulates &&
         flow->write == plan->gradient[i];
}

void trm_fusion_plan(const struct trm_layer *layer, struct trm_arena_plan *plan,
                     const struct trm_arena_request *request)
{
  for (int phase = 0; phase < 2; phase++) {
    struct fusion it = {layer, plan, request, phase, plan->span + phase * plan->last};
    for (int i = plan->first; i < plan->last; i++)
      it.span[i] = (struct trm_span){i, i + 1};
    for (int i = plan->first; i < plan->last; i++) {
      if (it.span[i].first == it.span[i].end)
        continue;
      fusion_find_activation(&it, i);
      fusion_find_relu(&it, i);
      if (layer[i].addend >= 0 && layer[i].from >= 0 && (!it.recompute || plan->recompute[i]))
        fusion_find_sum(&it, i);
    }
  }
  for (int i = plan->first; i < plan->last; i++)
    plan->backward_in[i] = i;
  for (int i = plan->first; request->training && i < fusion_end(plan); i++)
    if (fusion_joins_norm(layer, plan, i))
      plan->backward_in[i] = i - 1;
    else if (i + 1 < fusion_end(plan) && fusion_joins_backward(layer, plan, i))
      plan->backward_in[i] = i + 1;
}
