/* Optimizer updates in one pass over the arrays; nn/optimizer.h defines the rules. */
#include "kernels/cuda/kernel.cuh"

struct update {
  struct trm_update opt;
  float *w, *g, *first, *second; /* (n) */
  float *last_step;              /* (n) or NULL: no error feedback */
  trm_bf16 *rounded;             /* (n) or NULL */
  size_t n;
  const struct cuda_update_constants *run; /* (runs), the last one ends at n */
  size_t runs;
};

/* Returns the constants of element i. */
__device__ static struct cuda_update_constants update_of_element(const struct update *it, size_t i)
{
  size_t low = 0, high = it->runs - 1;

  while (low < high) {
    const size_t middle = (low + high) / 2;

    if (i < it->run[middle].end)
      high = middle;
    else
      low = middle + 1;
  }
  return it->run[low];
}

/* Moves the moments of adam, nadamw and lamb, and returns the direction. */
__device__ static float update_direction(const struct update *it, const struct cuda_update_constants *now, size_t i,
                                         float gradient)
{
  const struct trm_update *opt = &it->opt;
  const float m = it->first[i] = opt->beta1 * it->first[i] + (1 - opt->beta1) * gradient;
  const float v = it->second[i] = opt->beta2 * it->second[i] + (1 - opt->beta2) * gradient * gradient;

  return (now->step * m + now->gradient * gradient) / (sqrtf(v) * now->root + opt->epsilon);
}

__device__ static float update_weight(const struct update *it, const struct cuda_update_constants *now, size_t i,
                                      float gradient)
{
  const float rate = now->rate, momentum = it->opt.momentum, w = it->w[i];
  float *m = it->first;

  switch (it->opt.rule) {
  case TRM_UPDATE_MOMENTUM:
    m[i] = momentum * m[i] + gradient;
    return w - rate * m[i];
  case TRM_UPDATE_NESTEROV:
    m[i] = momentum * m[i] + gradient;
    return w - rate * (gradient + momentum * m[i]);
  case TRM_UPDATE_LARS: /* m includes the learning rate, which may change between steps (You et al. 2017) */
    m[i] = momentum * m[i] + rate * gradient;
    return w - m[i];
  case TRM_UPDATE_ADAGRAD: /* m: the sum of squares */
    m[i] += gradient * gradient;
    return w - rate * gradient / (sqrtf(m[i]) + it->opt.epsilon);
  case TRM_UPDATE_ADAM:
    return w - update_direction(it, now, i, gradient);
  case TRM_UPDATE_ADAMW: /* these decay the weights first */
  case TRM_UPDATE_NADAMW:
    return (1 - rate * now->decay) * w - update_direction(it, now, i, gradient);
  default: /* sgd */
    return w - rate * gradient;
  }
}

__global__ static void update_run(const struct update it)
{
  if (it.opt.now && it.opt.now->skip)
    return;
  const bool rate = it.opt.use == TRM_STEP_RULE || it.opt.use == TRM_STEP_RATE;
  const bool plain = (it.opt.now && rate ? it.opt.now->number : it.opt.step) == 1;
  CUDA_ELEMENTS(i, it.n) {
    const struct cuda_update_constants now = update_of_element(&it, i);
    float w = update_weight(&it, &now, i, now.scale * it.g[i] + now.l2 * it.w[i]);

    if (it.last_step) {
      const float step = it.w[i] - w;

      w -= plain ? 0 : step - it.last_step[i];
      it.last_step[i] = step;
    }
    it.w[i] = w;
    if (it.rounded)
      cuda_store((cuda_bf16 *)it.rounded + i, w);
  }
}

__global__ static void update_run_lamb(const struct update it)
{
  if (it.opt.now && it.opt.now->skip)
    return;
  CUDA_ELEMENTS(i, it.n) {
    const struct cuda_update_constants now = update_of_element(&it, i);

    it.g[i] = update_direction(&it, &now, i, now.scale * it.g[i] + now.l2 * it.w[i]) + now.decay * it.w[i];
  }
}

void cuda_update(struct trm_device *device, const struct trm_update_arrays *call)
{
  struct update it = {
    call->update, call->w, (float *)call->g, call->first, call->second, call->last_step, call->rounded, call->n, NULL, 0};
  struct cuda_update_constants *constants = NULL;

  it.runs =
    cuda_update_constants(device, &call->update, call->run, call->runs, call->ratio, call->n, false, &constants);
  it.run = constants;
  if (it.runs > 0)
    CUDA_LAUNCH(update_run, cuda_blocks(call->n), CUDA_THREADS, device, it);
}

void cuda_lamb_direction(struct trm_device *device, const struct trm_lamb_direction *call)
{
  struct update it = {
    call->update, (float *)call->w, call->g, call->first, call->second, NULL, NULL, call->n, NULL, 0};
  struct cuda_update_constants *constants = NULL;

  it.runs = cuda_update_constants(device, &call->update, call->run, call->runs, NULL, call->n, true, &constants);
  it.run = constants;
  if (it.runs > 0)
    CUDA_LAUNCH(update_run_lamb, cuda_blocks(call->n), CUDA_THREADS, device, it);
}
