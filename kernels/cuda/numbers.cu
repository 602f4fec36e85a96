/* The numbers of a step, in double: sums of losses, squared norms, clipping, trust ratios, the constants of an update.
 * They stay in device memory: the host reads none of them during a step. */
#include <stdlib.h>

#include "core/status.h"
#include "kernels/cuda/kernel.cuh"

/* Adds one number of each thread of a block of CUDA_THREADS; thread 0 gets the sum. */
__device__ static double numbers_block_sum(double x)
{
  CUDA_SHARED(double, part, CUDA_THREADS);

  __syncthreads(); /* part has been read by the previous call */
  part[threadIdx.x] = x;
  for (unsigned width = CUDA_THREADS / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width)
      part[threadIdx.x] += part[threadIdx.x + width];
  }
  return part[0];
}

/* -- squared norm */

enum { NUMBERS_PARTS = 512, NUMBERS_PART = 4096 };

__global__ static void numbers_run_squares(const float *x, size_t n, size_t length, double *part)
{
  const size_t first = blockIdx.x * length, end = first + length < n ? first + length : n;
  double sum = 0;

  for (size_t i = first + threadIdx.x; i < end; i += CUDA_THREADS)
    sum += (double)x[i] * (double)x[i];
  sum = numbers_block_sum(sum);
  if (threadIdx.x == 0)
    part[blockIdx.x] = sum;
}

/* *result = (adds: its old value +) the sum of the parts. One block. */
__global__ static void numbers_run_add(const double *part, size_t parts, bool adds, double *result)
{
  double sum = 0;

  for (size_t i = threadIdx.x; i < parts; i += CUDA_THREADS)
    sum += part[i];
  sum = numbers_block_sum(sum);
  if (threadIdx.x == 0)
    *result = adds ? *result + sum : sum;
}

void cuda_norm_squared(struct trm_device *device, const struct trm_norm_squared *call)
{
  const size_t shortest = (call->n + NUMBERS_PARTS - 1) / NUMBERS_PARTS;
  const size_t length = shortest < NUMBERS_PART ? (size_t)NUMBERS_PART : shortest;
  const size_t parts = (call->n + length - 1) / length;
  double *part = (double *)cuda_scratch(device, NUMBERS_PARTS * sizeof *part);

  if (!part)
    return;
  CUDA_LAUNCH(numbers_run_squares, (unsigned)parts, CUDA_THREADS, device, call->x, call->n, length, part);
  CUDA_LAUNCH(numbers_run_add, 1, CUDA_THREADS, device, part, parts, call->adds, call->result);
}

/* -- sums over the rows; what an update needs of the whole gradient */

/* One block. */
__global__ static void numbers_run_losses(const struct trm_sum_losses it)
{
  double loss = 0, correct = 0, rows = 0;

  for (size_t i = threadIdx.x; i < it.rows; i += CUDA_THREADS) {
    loss += (double)it.loss[i];
    correct += it.correct[i] > 0;
    rows += !(it.correct[i] < 0);
  }
  loss = numbers_block_sum(loss);
  correct = numbers_block_sum(correct);
  rows = numbers_block_sum(rows);
  if (threadIdx.x > 0)
    return;
  it.step->loss += loss;
  it.step->correct += correct;
  it.step->rows += rows;
}

void cuda_sum_losses(struct trm_device *device, const struct trm_sum_losses *call)
{
  CUDA_LAUNCH(numbers_run_losses, 1, CUDA_THREADS, device, *call);
}

__global__ static void numbers_run_clip(const struct trm_clip it)
{
  const double norm = sqrt(it.step->norm_squared);

  it.step->scale = it.limit > 0 && norm > it.limit ? (float)(it.limit / norm) : 1;
  it.step->skip = !isfinite(it.step->loss);
}

void cuda_clip(struct trm_device *device, const struct trm_clip *call)
{
  CUDA_LAUNCH(numbers_run_clip, 1, 1, device, *call);
}

__global__ static void numbers_run_ratios(const struct trm_trust_ratios it)
{
  const float scale = it.update.now ? it.update.now->scale : it.update.scale;

  CUDA_ELEMENTS(t, it.tensors) {
    const double w = sqrt(it.norm[2 * t]), g = sqrt(it.norm[2 * t + 1]);

    if (!(w > 0 && g > 0))
      it.ratio[t] = 1;
    else if (it.update.rule == TRM_UPDATE_LAMB)
      it.ratio[t] = (float)(w / g);
    else
      it.ratio[t] = (float)(it.trust * w / ((double)scale * g + (double)it.update.l2 * w));
  }
}

void cuda_trust_ratios(struct trm_device *device, const struct trm_trust_ratios *call)
{
  CUDA_LAUNCH(numbers_run_ratios, cuda_blocks(call->tensors), CUDA_THREADS, device, *call);
}

/* -- the constants of an update */

/* The momentum of nadamw in update t. */
__device__ static double numbers_nadam_momentum(double beta1, double t)
{
  return beta1 * (1 - 0.5 * pow(0.96, 0.004 * t));
}

/* Sets the factors of nadamw's step in update t, as kernels/cpu/update.c does. */
__device__ static void numbers_nadam(double beta1, double t, double rate, struct cuda_update_constants *constants)
{
  const double now = numbers_nadam_momentum(beta1, t), next = numbers_nadam_momentum(beta1, t + 1);
  double product = 1;

  for (double i = 1; i <= t && product > 0x1p-60; i++)
    product *= numbers_nadam_momentum(beta1, i);
  constants->step = (float)(rate * next / (1 - product * next));
  constants->gradient = (float)(rate * (1 - now) / (1 - product));
}

__global__ static void numbers_run_constants(const struct trm_update opt, const struct trm_update_run *run, size_t runs,
                                             const float *ratio, bool lamb, struct cuda_update_constants *constants)
{
  const struct trm_step *now = opt.now;
  const bool rule = now && opt.use == TRM_STEP_RULE;
  const double t = (double)(rule ? now->number : opt.step);

  CUDA_ELEMENTS(i, runs) {
    float rate = run[i].rate;

    if (ratio)
      rate *= ratio[run[i].ratio];
    if (rule || (now && opt.use == TRM_STEP_RATE))
      rate *= now->rate;
    if (now && opt.use == TRM_STEP_AVERAGE)
      rate = now->average;
    constants[i].end = run[i].end;
    constants[i].rate = rate;
    constants[i].scale = rule || (now && opt.use == TRM_STEP_SCALE) ? now->scale : opt.scale;
    constants[i].l2 = run[i].l2;
    constants[i].decay = run[i].decay;
    constants[i].step = (float)((lamb ? 1.0 : (double)rate) / (1 - pow((double)opt.beta1, t)));
    constants[i].root = (float)(1 / sqrt(1 - pow((double)opt.beta2, t)));
    constants[i].gradient = 0;
    if (opt.rule == TRM_UPDATE_NADAMW)
      numbers_nadam(opt.beta1, t, rate, &constants[i]);
  }
}

/* Copies runs to the device in place of others. Returns them there, NULL: there is no memory. */
static const struct trm_update_run *numbers_replace_runs(struct trm_device *device, struct cuda_runs *kept,
                                                         const struct trm_update_run *run, size_t runs)
{
  const size_t bytes = runs * sizeof *run;
  void *memory;

  if (kept->runs != runs) {
    device->ops->release(device, kept->device);
    free(kept->host);
    *kept = {(struct trm_update_run *)calloc(runs, sizeof *run), NULL, 0};
    if (!kept->host || device->ops->alloc(device, bytes, TRM_MEMORY_BUFFERS, &memory) != TRM_OK) {
      cuda_fail(device, "no memory for %zu runs of an update", runs);
      return NULL;
    }
    kept->device = (struct trm_update_run *)memory;
    kept->runs = runs;
  }
  memcpy(kept->host, run, bytes);
  cuda_upload(device, kept->device, run, bytes);
  return kept->device;
}

/* Returns the runs in device memory, NULL: none. They are copied if they are none of those before. */
static const struct trm_update_run *numbers_runs(struct trm_device *device, const struct trm_update_run *run,
                                                 size_t runs)
{
  struct cuda_state *state = cuda_state_of(device);

  for (int i = 0; i < CUDA_RUNS; i++)
    if (state->runs[i].runs == runs && memcmp(state->runs[i].host, run, runs * sizeof *run) == 0)
      return state->runs[i].device;
  if (cuda_refuses(device))
    return NULL;
  struct cuda_runs *oldest = &state->runs[state->runs_next];
  state->replaced += oldest->runs > 0;
  state->runs_next = (state->runs_next + 1) % CUDA_RUNS;
  return numbers_replace_runs(device, oldest, run, runs);
}

size_t cuda_update_constants(struct trm_device *device, const struct trm_update *update,
                             const struct trm_update_run *run, size_t runs, const float *ratio, size_t n, bool lamb,
                             struct cuda_update_constants **constants)
{
  const struct trm_update_run whole = {n, update->rate, update->l2, update->decay, 0};
  const size_t count = run ? runs : 1;

  if (count == 0 || n == 0)
    return 0;
  const struct trm_update_run *on_device = numbers_runs(device, run ? run : &whole, count);
  *constants = (struct cuda_update_constants *)cuda_scratch(device, count * sizeof **constants);
  if (!on_device || !*constants)
    return 0;
  CUDA_LAUNCH(numbers_run_constants, cuda_blocks(count), CUDA_THREADS, device, *update, on_device, count,
              run ? ratio : NULL, lamb, *constants);
  return count;
}
