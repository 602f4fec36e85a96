/* Optimizer updates in one pass over the arrays; nn/optimizer.h defines the rules. */
#include "kernels/cuda/kernel.cuh"

/* step, root: of adam and lamb: learning rate (lamb: 1) / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
struct update {
  struct trm_update opt;
  float *w, *g, *first, *second; /* (n) */
  trm_bf16 *rounded;             /* (n) or NULL */
  size_t n;
  float step, root;
};

/* Moves the moments of adam and lamb, and returns the direction. */
__device__ static float update_direction(const struct update *it, size_t i, float gradient)
{
  const struct trm_update *opt = &it->opt;
  const float m = it->first[i] = opt->beta1 * it->first[i] + (1 - opt->beta1) * gradient;
  const float v = it->second[i] = opt->beta2 * it->second[i] + (1 - opt->beta2) * gradient * gradient;

  return it->step * m / (sqrtf(v) * it->root + opt->epsilon);
}

__device__ static float update_weight(const struct update *it, size_t i, float gradient)
{
  const struct trm_update *opt = &it->opt;
  const float rate = opt->rate, w = it->w[i];
  float *m = it->first;

  switch (opt->rule) {
  case TRM_UPDATE_MOMENTUM:
    m[i] = opt->momentum * m[i] + gradient;
    return w - rate * m[i];
  case TRM_UPDATE_NESTEROV:
    m[i] = opt->momentum * m[i] + gradient;
    return w - rate * (gradient + opt->momentum * m[i]);
  case TRM_UPDATE_LARS: /* m includes the learning rate, which may change between steps (You et al. 2017) */
    m[i] = opt->momentum * m[i] + rate * gradient;
    return w - m[i];
  case TRM_UPDATE_ADAGRAD: /* m: the sum of squares */
    m[i] += gradient * gradient;
    return w - rate * gradient / (sqrtf(m[i]) + opt->epsilon);
  case TRM_UPDATE_ADAM:
    return w - update_direction(it, i, gradient);
  case TRM_UPDATE_ADAMW: /* decays the weights first */
    return (1 - rate * opt->decay) * w - update_direction(it, i, gradient);
  default: /* sgd */
    return w - rate * gradient;
  }
}

__global__ static void update_run(const struct update it)
{
  CUDA_ELEMENTS(i, it.n) {
    const float w = update_weight(&it, i, it.opt.scale * it.g[i] + it.opt.l2 * it.w[i]);

    it.w[i] = w;
    if (it.rounded)
      cuda_store((cuda_bf16 *)it.rounded + i, w);
  }
}

__global__ static void update_run_lamb(const struct update it)
{
  CUDA_ELEMENTS(i, it.n)
    it.g[i] = update_direction(&it, i, it.opt.scale * it.g[i] + it.opt.l2 * it.w[i]) + it.opt.decay * it.w[i];
}

/* Sets the factors of the bias correction. */
static void update_correct_bias(struct update *it, float rate)
{
  const double t = (double)it->opt.step;

  it->step = (float)(rate / (1 - pow((double)it->opt.beta1, t)));
  it->root = (float)(1 / sqrt(1 - pow((double)it->opt.beta2, t)));
}

void cuda_update(struct trm_device *device, const struct trm_update_arrays *call)
{
  struct update it = {call->update, call->w, (float *)call->g, call->first, call->second, call->rounded, call->n, 0, 0};

  if (it.opt.rule == TRM_UPDATE_ADAM || it.opt.rule == TRM_UPDATE_ADAMW)
    update_correct_bias(&it, it.opt.rate);
  CUDA_LAUNCH(update_run, cuda_blocks(call->n), CUDA_THREADS, device, it);
}

void cuda_lamb_direction(struct trm_device *device, const struct trm_lamb_direction *call)
{
  struct update it = {call->update, (float *)call->w, call->g, call->first, call->second, NULL, call->n, 0, 0};

  update_correct_bias(&it, 1);
  CUDA_LAUNCH(update_run_lamb, cuda_blocks(call->n), CUDA_THREADS, device, it);
}
