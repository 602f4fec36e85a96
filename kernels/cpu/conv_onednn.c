/* Convolutions by oneDNN (conv_onednn.h): which ones, and a call's images divided among the threads. A primitive runs
 * in one thread, on images that fit the core's cache. In the forward pass and that to the data the results of an image
 * are those of the primitive for one image: they do not depend on the batch or on the number of threads. */
#include "kernels/cpu/conv_onednn.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "core/device_arrays.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "kernels/cpu/conv.h"

/* The library's layouts have blocks of so many channels; what a block has too much is computed in vain. */
enum { BLOCK = 16 };
/* Tasks of the gradient of the weights: independent of the number of threads, because they fix the order of additions.
 * A task has at least so many units, so that images are not reordered too often. */
enum { TASKS = 16, TASK_UNITS = 64 };
/* Largest size of the partial sums, and of the images that one primitive takes in the gradient of the weights. */
#define SUMS ((size_t)1 << 22)
#define IMAGE_FLOATS ((size_t)1 << 18)

/* -- which */

/* True if the library is faster than our kernels. They fill vectors with positions of a row, the library with
 * channels; measured with kernels of 1 to 7 and images of 2 to 56, its rate over ours is 9 : 7 in float32, and 16 : 7
 * in bfloat16, at full vectors (kernels/README.md). */
static bool conv_pays(const struct trm_conv2d *conv, bool bf16)
{
  const size_t columns = conv->window.out[1], half = BLOCK / 2;
  const double channels = (double)conv->channels / (double)(conv_ceil_div(conv->channels, BLOCK) * BLOCK),
               units = (double)conv->units / (double)(conv_ceil_div(conv->units, BLOCK) * BLOCK),
               positions = columns <= half ? (double)columns / (double)half
                                           : (double)columns / (double)(conv_ceil_div(columns, BLOCK) * BLOCK);

  return conv->groups == 1 && conv->channels >= BLOCK && (bf16 ? 16 : 9) * channels * units > 7 * positions;
}

static bool conv_has_bf16(void)
{
  const dnnl_cpu_isa_t isa = dnnl_cpu_isa_avx512_core_bf16;
  return ((unsigned)dnnl_get_effective_cpu_isa() & (unsigned)isa) == (unsigned)isa;
}

const char *conv_onednn_name(void)
{
  static char text[48];
  const dnnl_version_t *version = dnnl_version();

  snprintf(text, sizeof(text), "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
  return text;
}

/* Returns the library of the device, or NULL: it cannot be used. */
static struct conv_library *conv_library_of(struct trm_device *device)
{
  struct cpu_state *state = device->impl;
  const unsigned runtime = dnnl_version()->cpu_runtime;

  if (state->library || (runtime != DNNL_RUNTIME_OMP && runtime != DNNL_RUNTIME_SEQ))
    return state->library;
  struct conv_library *library = trm_alloc(sizeof *library, "oneDNN");
  library->threads = device->threads;
  library->stream = trm_alloc((size_t)device->threads * sizeof *library->stream, "oneDNN");
  bool good = !dnnl_engine_create(&library->engine, dnnl_cpu, 0);
  for (int i = 0; good && i < device->threads; i++)
    good = !dnnl_stream_create(&library->stream[i], library->engine, dnnl_stream_default_flags);
  if (!good)
    trm_abort_on_error(trm_error(TRM_FAILED, "oneDNN: out of memory"));
  return state->library = library;
}

/* Fills in the key; returns the library, NULL: the convolution is not for it. */
static struct conv_library *conv_choose(struct trm_device *device, const struct trm_conv2d *conv,
                                        enum trm_value_type type, enum conv_pass pass, bool bias,
                                        struct conv_key *key)
{
  const bool bf16 = type == TRM_VALUES_BF16 || device->blas->matmul == TRM_MATMUL_BF16;
  const bool last = conv->x_last || conv->y_last;

  if (!(last ? conv->groups == 1 : conv_pays(conv, bf16)) || (bf16 && !conv_has_bf16()))
    return NULL;
  *key = (struct conv_key){.conv = *conv, .images = 1, .units = conv->units, .pass = pass, .type = type,
                           .bf16 = bf16, .bias = bias};
  return conv_library_of(device);
}

/* Tries a common convolution in all three passes. */
bool conv_onednn_last(struct trm_device *device, enum trm_value_type type)
{
  const struct trm_conv2d conv = {.window = {{3, 3}, {1, 1}, {1, 1}, {8, 8}, {8, 8}}, .channels = BLOCK, .units = BLOCK,
                                  .groups = 1, .x_last = true, .y_last = true};
  bool all = true;

  for (int pass = CONV_FORWARD; pass <= CONV_WEIGHTS && all; pass++) {
    struct conv_key key;
    const struct conv_library *library = conv_choose(device, &conv, type, (enum conv_pass)pass, false, &key);

    all = library && conv_plan_exists(library, &key);
  }
  return all;
}

/* -- images: forward, and backward to the data */

struct images {
  struct conv_library *library;
  struct conv_plan *plan;       /* of one image */
  const struct conv_plan *many; /* of several with the same results; NULL: none */
  const void *array[CONV_CALL]; /* of the whole batch */
  size_t bytes[CONV_CALL];      /* of an image; 0: all have the same */
  char *work;                   /* (threads, work_bytes) */
  size_t work_bytes;
};

static void conv_images_body(const void *arguments, size_t low, size_t high)
{
  const struct images *it = arguments;
  const int thread = cpu_thread(), threads = omp_get_max_threads();

  omp_set_num_threads(1);
  for (size_t image = low; image < high;) {
    const struct conv_plan *plan = it->many && high - image >= it->many->key.images ? it->many : it->plan;
    const void *data[CONV_CALL];

    for (int i = 0; i < CONV_CALL; i++)
      data[i] = it->bytes[i] ? (const char *)it->array[i] + image * it->bytes[i] : it->array[i];
    conv_plan_run(plan, thread, it->library->stream[thread], it->work + (size_t)thread * it->work_bytes, data,
                  false);
    image += plan->key.images;
  }
  omp_set_num_threads(threads);
}

static double conv_work(const struct trm_conv2d *conv, size_t units)
{
  const struct trm_window2d *o = &conv->window;
  return (double)(o->kernel[0] * o->kernel[1] * o->out[0] * o->out[1]) * (double)(conv->channels * units) / BLOCK;
}

static char *conv_align(void *memory)
{
  return (char *)(((uintptr_t)memory + 63) / 64 * 64);
}

/* Sets the plans of a call with so many images; returns false if the library has no fast primitive. */
static bool conv_choose_plans(const struct trm_device *device, const struct conv_key *key, size_t images,
                              struct images *it)
{
  const struct trm_conv2d *conv = &key->conv;
  const struct trm_window2d *o = &conv->window;
  const size_t floats = conv->channels * o->in[0] * o->in[1] + conv->units * o->out[0] * o->out[1];
  struct conv_key many = *key;

  it->plan = conv_plan_of(it->library, key);
  while (2 * many.images * (size_t)device->threads <= images && 2 * many.images * floats <= IMAGE_FLOATS)
    many.images *= 2;
  it->many = it->plan && many.images > 1 ? conv_plan_of_many(it->library, it->plan, &many) : NULL;
  it->work_bytes = it->plan ? it->plan->work_bytes : 0;
  if (it->many && it->many->work_bytes > it->work_bytes)
    it->work_bytes = it->many->work_bytes;
  return it->plan != NULL;
}

/* Runs the plans on all images; array, plans and work are set. */
static void conv_run_plan(struct trm_device *device, struct images *it, size_t images)
{
  const struct conv_key *key = &it->plan->key;
  const struct trm_window2d *o = &key->conv.window;
  const size_t bytes = trm_value_bytes((enum trm_value_type)key->type);

  it->bytes[CONV_SRC] = key->conv.channels * o->in[0] * o->in[1] * bytes;
  it->bytes[CONV_DST] = it->bytes[CONV_ADDEND] = key->conv.units * o->out[0] * o->out[1] * bytes;
  cpu_for(device, images, 1, conv_work(&key->conv, key->units), conv_images_body, it);
}

/* Returns false if the library has no fast primitive. */
static bool conv_run_images(struct trm_device *device, struct conv_library *library, const struct conv_key *key,
                            const void *const array[CONV_ARRAYS], bool weights_kept, size_t images)
{
  struct images it = {.library = library};

  if (!conv_choose_plans(device, key, images, &it))
    return false;
  memcpy(it.array, array, CONV_ARRAYS * sizeof *array);
  char *memory = conv_align(cpu_scratch(device, 64 + it.plan->array[CONV_KERNEL].bytes +
                                                  (size_t)device->threads * it.work_bytes));
  it.work = memory + it.plan->array[CONV_KERNEL].bytes;
  it.array[CONV_KERNEL] = conv_prepare_kernel(library, it.plan, array[CONV_KERNEL], weights_kept, memory);
  conv_run_plan(device, &it, images);
  return true;
}

bool conv_onednn_forward(struct trm_device *device, const struct trm_conv2d_forward *call)
{
  struct conv_key key;
  struct conv_library *library = conv_choose(device, &call->conv, call->type, CONV_FORWARD, call->bias, &key);
  const void *const array[CONV_ARRAYS] = {
    [CONV_SRC] = call->x, [CONV_KERNEL] = call->w, [CONV_DST] = call->y, [CONV_BIAS] = call->bias};

  return library && conv_run_images(device, library, &key, array, call->weights_kept, call->b);
}

bool conv_onednn_backward_data(struct trm_device *device, const struct trm_conv2d_backward *call)
{
  struct conv_key key;
  struct conv_library *library = conv_choose(device, &call->conv, call->type, CONV_DATA, false, &key);
  const void *const array[CONV_ARRAYS] = {
    [CONV_SRC] = call->dx, [CONV_KERNEL] = call->w, [CONV_DST] = call->dy};

  return library && conv_run_images(device, library, &key, array, false, call->b);
}

/* -- fused calls, at inference */

static struct conv_key conv_fused_key(const struct trm_conv2d *conv, uint32_t fused)
{
  return (struct conv_key){.conv = *conv, .images = 1, .units = conv->units, .pass = CONV_FORWARD,
                           .type = TRM_VALUES_F32, .bias = true, .fused = CONV_FUSED | fused};
}

/* Whole blocks of channels, but for images of one or three, which the library has kernels for. */
bool conv_onednn_fuses(struct trm_device *device, const struct trm_conv2d *conv, enum trm_value_type type)
{
  const struct conv_key key = conv_fused_key(conv, 0);
  const bool whole = conv->groups == 1 && conv->units % TRM_CHANNEL_BLOCK == 0 &&
                     (conv->channels % TRM_CHANNEL_BLOCK == 0 || conv->channels <= 3);
  const struct conv_library *library =
    whole && type == TRM_VALUES_F32 && device->blas->matmul == TRM_MATMUL_F32 ? conv_library_of(device) : NULL;

  return library && conv_plan_exists(library, &key);
}

void conv_onednn_fused(struct trm_device *device, const struct trm_conv2d_fused *call)
{
  const struct conv_key key = conv_fused_key(
    &call->conv.conv, (call->x_blocked ? CONV_X_BLOCKED : 0) | (call->z_blocked ? CONV_Z_BLOCKED : 0) |
                        (call->addend ? CONV_ADDS : 0) | (call->relu ? CONV_RELU : 0));
  struct images it = {.library = conv_library_of(device),
                      .array = {[CONV_SRC] = call->conv.x, [CONV_DST] = call->conv.y, [CONV_ADDEND] = call->addend}};

  if (!conv_choose_plans(device, &key, call->conv.b, &it))
    trm_abort_on_error(trm_error(TRM_FAILED, "oneDNN: a fused convolution: not supported on this processor"));
  const size_t folded = conv_folded_bytes(it.plan);
  char *memory = conv_align(cpu_scratch(device, 64 + folded + (size_t)device->threads * it.work_bytes));
  const char *kernel = conv_prepare_folded(it.library, it.plan, call, memory);

  it.work = memory + folded;
  it.array[CONV_KERNEL] = kernel;
  it.array[CONV_BIAS] = kernel + it.plan->array[CONV_KERNEL].bytes;
  conv_run_plan(device, &it, call->conv.b);
}

/* -- the gradient of the weights */

/* A task computes that of `units` units over `chunk` images, `images` at a time; and with dx the gradient of the data
 * of these images, which takes the same dy, reordered once. */
struct gradient {
  struct conv_library *library;
  struct conv_key key; /* of `units` units */
  const char *x, *dy;
  const void *w; /* of the gradient of the data, as conv_prepare_kernel returns it */
  char *dx;      /* NULL: not computed */
  size_t x_bytes, dy_bytes, set_bytes; /* of an image; of the dy of a set of units */
  size_t b, chunks, sets, chunk, images;
  size_t pairs, elements; /* weights of a unit; floats of a chunk's sums: all weights, then biases */
  float *partial;         /* (chunks, elements) */
  char *work;             /* (threads, thread_bytes): sums of a task, then of the plans of both gradients */
  size_t thread_bytes, sums_bytes, weights_bytes, data_bytes;
};

/* The key of the gradient of the data of so many images. */
static struct conv_key conv_data_key(const struct gradient *it, size_t images)
{
  struct conv_key key = it->key;
  key.pass = CONV_DATA;
  key.bias = false;
  key.images = images;
  return key;
}

/* Computes the images [first, last) of a set; writes weights (units, pairs), then biases to sums. */
static void conv_gradient_part(const struct gradient *it, size_t set, size_t first, size_t last, float *weights,
                               float *bias, char *work)
{
  struct conv_key key = it->key;
  const int thread = cpu_thread();
  const void *const data[CONV_CALL] = {[CONV_SRC] = it->x + first * it->x_bytes,
                                         [CONV_KERNEL] = weights,
                                         [CONV_DST] = it->dy + first * it->dy_bytes + set * it->set_bytes,
                                         [CONV_BIAS] = bias};
  key.images = last - first;
  const struct conv_plan *plan = conv_plan_find(it->library, &key);
  conv_plan_run(plan, thread, it->library->stream[thread], work, data, false);
  if (!it->dx)
    return;
  const struct conv_key data_key = conv_data_key(it, last - first);
  const struct conv_plan *to = conv_plan_find(it->library, &data_key);
  const void *const data_arrays[CONV_CALL] = {[CONV_SRC] = it->dx + first * it->x_bytes,
                                              [CONV_KERNEL] = it->w,
                                              [CONV_DST] = conv_reordered_dst(plan, work)};
  conv_plan_run(to, thread, it->library->stream[thread], work + it->weights_bytes, data_arrays, true);
}

CPU_CLONES static void conv_add_part(float *to, const float *from, size_t n)
{
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    to[i] += from[i];
}

/* Work item: (chunk, set). */
static void conv_gradient_body(const void *arguments, size_t low, size_t high)
{
  const struct gradient *it = arguments;
  const int threads = omp_get_max_threads();
  const size_t units = it->key.units, floats = units * it->pairs;
  char *memory = it->work + (size_t)cpu_thread() * it->thread_bytes;
  float *part = (float *)memory;

  omp_set_num_threads(1);
  for (size_t item = low; item < high; item++) {
    const size_t chunk = item / it->sets, set = item % it->sets;
    const size_t begin = chunk * it->chunk, end = conv_min(begin + it->chunk, it->b);
    float *weights = it->partial + chunk * it->elements + set * floats;
    float *bias = it->partial + chunk * it->elements + it->sets * floats + set * units;

    for (size_t image = begin; image < end; image += it->images) {
      const size_t last = conv_min(image + it->images, end);
      const bool first = image == begin;

      conv_gradient_part(it, set, image, last, first ? weights : part, first ? bias : part + floats,
                         memory + it->sums_bytes);
      if (!first) {
        conv_add_part(weights, part, floats);
        conv_add_part(bias, part + floats, units);
      }
    }
  }
  omp_set_num_threads(threads);
}

/* Makes the plan of the gradient of the data of so many images; returns false if there is none with the results of one
 * image and the layout that the other gradient's has of dy. */
static bool conv_gradient_data_plan(struct gradient *it, const struct conv_plan *weights, size_t images)
{
  const struct conv_key key = conv_data_key(it, images), one_key = conv_data_key(it, 1);
  const struct conv_plan *one = conv_plan_of(it->library, &one_key);
  const struct conv_plan *plan = one && images > 1 ? conv_plan_of_many(it->library, one, &key) : one;

  if (!plan || !conv_reorders_dst_for(weights, plan))
    return false;
  if (plan->work_bytes > it->data_bytes)
    it->data_bytes = plan->work_bytes;
  return true;
}

/* Makes the plans of all numbers of images that a task takes at a time; returns false if there is none. */
static bool conv_gradient_plans(struct gradient *it)
{
  const size_t last = it->b - (it->chunks - 1) * it->chunk;
  const size_t images[] = {it->images, it->chunk % it->images, conv_min(last, it->images), last % it->images};

  for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
    if (images[i] == 0)
      continue;
    it->key.images = images[i];
    const struct conv_plan *plan = conv_plan_of(it->library, &it->key);
    if (!plan || (it->dx && !conv_gradient_data_plan(it, plan, images[i])))
      return false;
    if (plan->work_bytes > it->weights_bytes)
      it->weights_bytes = plan->work_bytes;
  }
  return true;
}

/* Computes dw and db, and with `data` dx; returns false, and computes nothing, where that is not for the library, or,
 * with `data`, where the tasks cannot be divided evenly among the threads. */
static bool conv_gradients(struct trm_device *device, const struct trm_conv2d_backward *call, bool data)
{
  const struct trm_conv2d *conv = &call->conv;
  const struct trm_window2d *o = &conv->window;
  const size_t in = conv->channels * o->in[0] * o->in[1], out = conv->units * o->out[0] * o->out[1];
  const size_t bytes = trm_value_bytes(call->type);
  struct gradient it = {.x = call->x, .dy = call->dy, .dx = data ? call->dx : NULL, .x_bytes = in * bytes,
                        .dy_bytes = out * bytes, .b = call->b};

  it.library = conv_choose(device, conv, call->type, CONV_WEIGHTS, call->db != NULL, &it.key);
  if (!it.library || (data && conv->y_last)) /* dy is not reordered */
    return false;
  it.pairs = trm_conv2d_weights(conv) / conv->units;
  it.elements = conv->units * (it.pairs + 1);
  it.chunks = conv_min(conv_min(call->b, TASKS), conv_ceil_div(SUMS, it.elements));
  it.chunk = conv_ceil_div(call->b, it.chunks);
  it.chunks = conv_ceil_div(call->b, it.chunk);
  it.sets = 1;
  while (it.chunks * it.sets < TASKS && it.key.units % (2 * TASK_UNITS) == 0) {
    it.key.units /= 2;
    it.sets *= 2;
  }
  it.set_bytes = it.key.units * (conv->y_last ? 1 : o->out[0] * o->out[1]) * bytes;
  it.images = conv_min(it.chunk, 1 + IMAGE_FLOATS / (in + out));
  if ((data && (it.sets > 1 || it.chunks % (size_t)device->threads != 0)) || !conv_gradient_plans(&it))
    return false;
  const struct conv_key one_key = conv_data_key(&it, 1);
  struct conv_plan *one = data ? conv_plan_of(it.library, &one_key) : NULL;
  const size_t kernel_bytes = data ? one->array[CONV_KERNEL].bytes : 0;
  it.sums_bytes = conv_ceil_div(it.key.units * (it.pairs + 1) * sizeof(float), 64) * 64;
  it.thread_bytes = it.sums_bytes + it.weights_bytes + it.data_bytes;
  char *memory = conv_align(cpu_scratch(device, 64 + kernel_bytes + (size_t)device->threads * it.thread_bytes +
                                                  it.chunks * it.elements * sizeof(float)));
  it.work = memory + kernel_bytes;
  it.partial = (float *)(it.work + (size_t)device->threads * it.thread_bytes);
  if (data)
    it.w = conv_prepare_kernel(it.library, one, call->w, false, memory);
  cpu_for(device, it.chunks * it.sets, 1, (double)it.chunk * conv_work(conv, it.key.units), conv_gradient_body, &it);
  const struct conv_chunks sums = {it.partial, it.chunks, it.elements};
  conv_add_chunks(device, &sums, 0, call->beta, call->dw, conv->units * it.pairs);
  if (call->db)
    conv_add_chunks(device, &sums, conv->units * it.pairs, call->beta, call->db, conv->units);
  return true;
}

bool conv_onednn_backward_weights(struct trm_device *device, const struct trm_conv2d_backward *call)
{
  return conv_gradients(device, call, false);
}

bool conv_onednn_backward(struct trm_device *device, const struct trm_conv2d_backward *call)
{
  return conv_gradients(device, call, true);
}
