/* oneDNN's primitives for convolutions (conv_onednn.h): made once for each shape, kept with the device. */
#include "kernels/cpu/conv_onednn.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "blas/onednn_versions.h"
#include "core/device_arrays.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

enum { DIMS = 4, ALIGNMENT = 64 };

static void conv_check(dnnl_status_t status)
{
  if (status != dnnl_success)
    trm_abort_on_error(trm_error(TRM_FAILED, "oneDNN: a convolution: %s",
                                 status == dnnl_out_of_memory ? "out of memory" : "failed"));
}

static size_t conv_aligned(size_t bytes)
{
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* -- descriptions */

static dnnl_data_type_t conv_user_type(const struct conv_key *key, int array)
{
  const bool gradient = key->pass == CONV_WEIGHTS && array == CONV_KERNEL;
  return key->type == TRM_VALUES_F32 || gradient ? dnnl_f32 : dnnl_bf16;
}

/* Factors of products are rounded where the caller wants that; results have the caller's type. */
static dnnl_data_type_t conv_library_type(const struct conv_key *key, int array)
{
  static const int result[] = {[CONV_FORWARD] = CONV_DST, [CONV_DATA] = CONV_SRC, [CONV_WEIGHTS] = CONV_KERNEL};
  return array == result[key->pass] ? conv_user_type(key, array) : key->bf16 ? dnnl_bf16 : dnnl_f32;
}

/* Returns true if the caller has the array's channels last. */
static bool conv_user_is_last(const struct conv_key *key, int array)
{
  return (array == CONV_SRC && key->conv.x_last) || (array == CONV_DST && key->conv.y_last);
}

/* Returns true if the library has them last: where the caller has those of x or of y so. */
static bool conv_is_last(const struct conv_key *key, int array)
{
  return array != CONV_KERNEL && (key->conv.x_last || key->conv.y_last);
}

/* Sets the sizes of an array. */
static void conv_sizes(const struct conv_key *key, int array, dnnl_dims_t size)
{
  const struct trm_conv2d *conv = &key->conv;
  const struct trm_window2d *o = &conv->window;
  const size_t sizes[][DIMS] = {[CONV_SRC] = {key->images, conv->channels, o->in[0], o->in[1]},
                                [CONV_KERNEL] = {key->units, conv->channels, o->kernel[0], o->kernel[1]},
                                [CONV_DST] = {key->images, key->units, o->out[0], o->out[1]}};

  for (int d = 0; d < DIMS; d++)
    size[d] = (dnnl_dim_t)sizes[array][d];
}

/* Sets the strides of images with so many channels. */
static void conv_strides(const dnnl_dims_t size, dnnl_dim_t channels, bool last, dnnl_dims_t step)
{
  step[0] = channels * size[2] * size[3];
  step[1] = last ? 1 : size[2] * size[3];
  step[2] = last ? size[3] * channels : size[3];
  step[3] = last ? channels : 1;
}

/* Sets the sizes of an array, and the strides as the contract has them (core/kernels.h). */
static void conv_user_layout(const struct conv_key *key, int array, dnnl_dims_t size, dnnl_dims_t step)
{
  conv_sizes(key, array, size);
  conv_strides(size, array == CONV_DST ? (dnnl_dim_t)key->conv.units : size[1], conv_user_is_last(key, array), step);
}

struct conv_descriptions {
  onednn_description array[CONV_ARRAYS];
  dnnl_primitive_attr_t attr;
  dnnl_dims_t stride, dilation, pad;
};

/* Whole blocks of channels are blocked in the library, so that a fused call hands them to the next. */
static bool conv_is_blocked(const struct conv_key *key, int array)
{
  const size_t channels = array == CONV_SRC ? key->conv.channels : key->units;
  return key->fused && array != CONV_KERNEL && channels % TRM_CHANNEL_BLOCK == 0;
}

static bool conv_user_is_blocked(const struct conv_key *key, int array)
{
  return (array == CONV_SRC && (key->fused & CONV_X_BLOCKED)) || (array == CONV_DST && (key->fused & CONV_Z_BLOCKED));
}

/* What the primitive does with the sums. */
static void conv_describe_fused(const struct conv_key *key, dnnl_primitive_attr_t attr)
{
  dnnl_post_ops_t post_ops;

  conv_check(dnnl_post_ops_create(&post_ops));
  if (key->fused & CONV_ADDS)
    conv_check(onednn_append_sum(post_ops, 1));
  if (key->fused & CONV_RELU)
    conv_check(onednn_append_function(post_ops, dnnl_eltwise_relu, 0));
  conv_check(dnnl_primitive_attr_set_post_ops(attr, post_ops));
  dnnl_post_ops_destroy(post_ops);
}

static void conv_describe(const struct conv_key *key, struct conv_descriptions *all)
{
  const dnnl_dims_t units = {(dnnl_dim_t)key->units}, one = {1};

  *all = (struct conv_descriptions){.attr = NULL};
  for (int i = 0; i < CONV_BIAS; i++) {
    const dnnl_data_type_t type = conv_library_type(key, i);
    dnnl_dims_t size, step;

    conv_sizes(key, i, size);
    conv_strides(size, size[1], true, step);
    conv_check(conv_is_blocked(key, i) ? onednn_describe_blocked(&all->array[i], size)
               : conv_is_last(key, i)  ? onednn_describe_strides(&all->array[i], DIMS, size, type, step)
                                       : onednn_describe_any(&all->array[i], DIMS, size, type));
  }
  conv_check(onednn_describe_strides(&all->array[CONV_BIAS], 1, units, dnnl_f32, one));
  conv_check(dnnl_primitive_attr_create(&all->attr));
  conv_check(dnnl_primitive_attr_set_scratchpad_mode(all->attr, dnnl_scratchpad_mode_user));
  conv_describe_fused(key, all->attr);
  for (int d = 0; d < 2; d++) {
    all->stride[d] = (dnnl_dim_t)key->conv.window.stride[d];
    all->pad[d] = (dnnl_dim_t)key->conv.window.pad[d];
  }
}

/* The arrays as the caller has them. */
static void conv_describe_user(struct conv_plan *plan)
{
  for (int i = 0; i < CONV_BIAS; i++) {
    dnnl_dims_t size, step;

    conv_user_layout(&plan->key, i, size, step);
    conv_check(conv_user_is_blocked(&plan->key, i)
                 ? onednn_describe_blocked(&plan->array[i].user, size)
                 : onednn_describe_strides(&plan->array[i].user, DIMS, size, conv_user_type(&plan->key, i), step));
  }
}

static void conv_free_descriptions(struct conv_descriptions *all)
{
  for (int i = 0; i < CONV_ARRAYS; i++)
    onednn_free_description(&all->array[i]);
  dnnl_primitive_attr_destroy(all->attr);
}

/* Describes the primitive of a pass; hint: the description of the forward pass. Not all can be had. */
#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t conv_describe_pass(enum conv_pass pass, dnnl_primitive_desc_t *to, dnnl_engine_t engine,
                                        const struct conv_descriptions *all, bool bias, dnnl_primitive_desc_t hint)
{
  const onednn_description *a = all->array, b = bias ? a[CONV_BIAS] : NULL;

  if (pass == CONV_FORWARD)
    return dnnl_convolution_forward_primitive_desc_create(to, engine, dnnl_forward_training, dnnl_convolution_direct,
                                                          a[CONV_SRC], a[CONV_KERNEL], b, a[CONV_DST], all->stride,
                                                          all->dilation, all->pad, all->pad, all->attr);
  if (pass == CONV_DATA)
    return dnnl_convolution_backward_data_primitive_desc_create(to, engine, dnnl_convolution_direct, a[CONV_SRC],
                                                                a[CONV_KERNEL], a[CONV_DST], all->stride,
                                                                all->dilation, all->pad, all->pad, hint, all->attr);
  return dnnl_convolution_backward_weights_primitive_desc_create(to, engine, dnnl_convolution_direct, a[CONV_SRC],
                                                                 a[CONV_KERNEL], b, a[CONV_DST], all->stride,
                                                                 all->dilation, all->pad, all->pad, hint, all->attr);
}
#else
static dnnl_status_t conv_describe_pass(enum conv_pass pass, dnnl_primitive_desc_t *to, dnnl_engine_t engine,
                                        const struct conv_descriptions *all, bool bias, dnnl_primitive_desc_t hint)
{
  const onednn_description *a = all->array, *b = bias ? &a[CONV_BIAS] : NULL;
  dnnl_convolution_desc_t conv;
  dnnl_status_t status;

  if (pass == CONV_FORWARD)
    status = dnnl_convolution_forward_desc_init(&conv, dnnl_forward_training, dnnl_convolution_direct, &a[CONV_SRC],
                                                &a[CONV_KERNEL], b, &a[CONV_DST], all->stride, all->pad, all->pad);
  else if (pass == CONV_DATA)
    status = dnnl_convolution_backward_data_desc_init(&conv, dnnl_convolution_direct, &a[CONV_SRC], &a[CONV_KERNEL],
                                                      &a[CONV_DST], all->stride, all->pad, all->pad);
  else
    status = dnnl_convolution_backward_weights_desc_init(&conv, dnnl_convolution_direct, &a[CONV_SRC],
                                                         &a[CONV_KERNEL], b, &a[CONV_DST], all->stride, all->pad,
                                                         all->pad);
  return status ? status : dnnl_primitive_desc_create(to, &conv, all->attr, engine, hint);
}
#endif

/* -- plans */

/* The library's layout of an array. */
static onednn_view conv_view(const struct conv_plan *plan, int array)
{
  static const dnnl_query_t what[][CONV_ARRAYS] = {
    [CONV_FORWARD] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md, dnnl_query_weights_md},
    [CONV_DATA] = {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md},
    [CONV_WEIGHTS] = {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md,
                      dnnl_query_diff_weights_md}};
  const_dnnl_primitive_desc_t description;

  conv_check(dnnl_primitive_get_primitive_desc(plan->primitive, &description));
  return dnnl_primitive_desc_query_md(description, what[plan->key.pass][array], array == CONV_BIAS);
}

static onednn_view conv_scratch_view(const_dnnl_primitive_desc_t description)
{
  return dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
}

static bool conv_is_output(const struct conv_key *key, int array)
{
  return key->pass == CONV_FORWARD ? array == CONV_DST
         : key->pass == CONV_DATA  ? array == CONV_SRC
                                   : array == CONV_KERNEL || array == CONV_BIAS;
}

static bool conv_in_work(const struct conv_plan *plan, int array)
{
  return plan->array[array].reorder && (array != CONV_KERNEL || plan->key.pass == CONV_WEIGHTS);
}

static size_t conv_scratch_bytes(dnnl_primitive_t primitive)
{
  const_dnnl_primitive_desc_t description;

  conv_check(dnnl_primitive_get_primitive_desc(primitive, &description));
  return dnnl_memory_desc_get_size(conv_scratch_view(description));
}

/* True if the library takes whole images in bfloat16 with the channels last, which the caller has first. */
static bool conv_is_transposed(const struct conv_plan *plan, int array)
{
  const struct conv_key *key = &plan->key;
  dnnl_dims_t size, step;
  onednn_description last;

  if (array == CONV_KERNEL || key->type != TRM_VALUES_BF16 || key->units != key->conv.units ||
      conv_user_is_last(key, array))
    return false;
  conv_sizes(key, array, size);
  conv_strides(size, size[1], true, step);
  conv_check(onednn_describe_strides(&last, DIMS, size, dnnl_bf16, step));
  const bool equal = dnnl_memory_desc_equal(ONEDNN_VIEW(last), conv_view(plan, array));
  onednn_free_description(&last);
  return equal;
}

static void conv_plan_layout(struct conv_plan *plan, int array, dnnl_engine_t engine, dnnl_primitive_attr_t attr)
{
  const onednn_view user = ONEDNN_VIEW(plan->array[array].user), library = conv_view(plan, array);
  const bool output = conv_is_output(&plan->key, array);
  dnnl_primitive_desc_t reorder;

  plan->array[array].bytes = conv_aligned(dnnl_memory_desc_get_size(library));
  if (dnnl_memory_desc_equal(user, library))
    return;
  plan->array[array].transposed = conv_is_transposed(plan, array);
  conv_check(dnnl_reorder_primitive_desc_create(&reorder, output ? library : user, engine, output ? user : library,
                                                engine, attr));
  conv_check(dnnl_primitive_create(&plan->array[array].reorder, reorder));
  conv_check(dnnl_primitive_desc_destroy(reorder));
  const size_t scratch = conv_scratch_bytes(plan->array[array].reorder);
  plan->scratch_bytes = scratch > plan->scratch_bytes ? scratch : plan->scratch_bytes;
  if (conv_in_work(plan, array))
    plan->work_bytes += plan->array[array].bytes;
}

/* A processor without the library's own kernels runs reference loops. */
static bool conv_is_fast(const_dnnl_primitive_desc_t description)
{
  const char *name = NULL;

  return !dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name) && name &&
         (!strncmp(name, "jit", 3) || !strncmp(name, "brg", 3));
}

/* Describes the forward pass with the factors of the key's: backward passes want it. Its result has a type of its own. */
static dnnl_primitive_desc_t conv_describe_forward(const struct conv_key *key, dnnl_engine_t engine)
{
  struct conv_key forward_key = *key;
  struct conv_descriptions all;
  dnnl_primitive_desc_t forward = NULL;

  forward_key.pass = CONV_FORWARD;
  conv_describe(&forward_key, &all);
  const dnnl_status_t status = conv_describe_pass(CONV_FORWARD, &forward, engine, &all, key->bias, NULL);
  conv_free_descriptions(&all);
  return status == dnnl_success ? forward : NULL;
}

/* Describes the key's primitive; returns NULL if the library has no fast one. */
static dnnl_primitive_desc_t conv_describe_fast(const struct conv_key *key, dnnl_engine_t engine)
{
  const dnnl_primitive_desc_t forward = conv_describe_forward(key, engine);
  dnnl_primitive_desc_t description = NULL;
  struct conv_descriptions all;

  conv_describe(key, &all);
  if (forward && conv_describe_pass((enum conv_pass)key->pass, &description, engine, &all, key->bias, forward))
    description = NULL;
  conv_free_descriptions(&all);
  if (forward)
    dnnl_primitive_desc_destroy(forward);
  if (description && !conv_is_fast(description)) {
    dnnl_primitive_desc_destroy(description);
    description = NULL;
  }
  return description;
}

bool conv_plan_exists(const struct conv_library *library, const struct conv_key *key)
{
  const dnnl_primitive_desc_t description = conv_describe_fast(key, library->engine);

  if (description)
    dnnl_primitive_desc_destroy(description);
  return description != NULL;
}

static void conv_plan_make(struct conv_plan *plan, dnnl_engine_t engine)
{
  const dnnl_primitive_desc_t description = conv_describe_fast(&plan->key, engine);
  dnnl_primitive_attr_t reorder_attr;

  conv_describe_user(plan);
  if (!description)
    return;
  conv_check(dnnl_primitive_attr_create(&reorder_attr));
  conv_check(dnnl_primitive_attr_set_scratchpad_mode(reorder_attr, dnnl_scratchpad_mode_user));
  conv_check(dnnl_primitive_create(&plan->primitive, description));
  plan->scratch_bytes = conv_scratch_bytes(plan->primitive);
  for (int i = 0; i < CONV_BIAS; i++)
    conv_plan_layout(plan, i, engine, reorder_attr);
  plan->work_bytes += conv_aligned(plan->scratch_bytes);
  dnnl_primitive_attr_destroy(reorder_attr);
  dnnl_primitive_desc_destroy(description);
}

static dnnl_memory_t conv_memory_of(const struct conv_library *library, onednn_view view)
{
  dnnl_memory_t memory;

  conv_check(dnnl_memory_create(&memory, view, library->engine, DNNL_MEMORY_NONE));
  return memory;
}

/* Makes the memory objects of all threads. */
static void conv_plan_open(const struct conv_library *library, struct conv_plan *plan)
{
  const_dnnl_primitive_desc_t description;

  conv_check(dnnl_primitive_get_primitive_desc(plan->primitive, &description));
  plan->memory = trm_alloc((size_t)library->threads * sizeof *plan->memory, "oneDNN: a convolution");
  for (int t = 0; t < library->threads; t++) {
    struct conv_memory *memory = &plan->memory[t];

    for (int i = 0; i < CONV_ARRAYS; i++) {
      if (i == CONV_BIAS && !plan->key.bias)
        continue;
      memory->library[i] = conv_memory_of(library, conv_view(plan, i));
      if (plan->array[i].reorder)
        memory->user[i] = conv_memory_of(library, ONEDNN_VIEW(plan->array[i].user));
    }
    memory->scratch = conv_memory_of(library, conv_scratch_view(description));
  }
}

static void conv_free_memory(const struct conv_library *library, struct conv_plan *plan)
{
  for (int t = 0; plan->memory && t < library->threads; t++) {
    for (int i = 0; i < CONV_ARRAYS; i++) {
      if (plan->memory[t].user[i])
        dnnl_memory_destroy(plan->memory[t].user[i]);
      if (plan->memory[t].library[i])
        dnnl_memory_destroy(plan->memory[t].library[i]);
    }
    dnnl_memory_destroy(plan->memory[t].scratch);
  }
  trm_free(plan->memory);
  plan->memory = NULL;
}

bool conv_weights_match(const struct conv_plan *a, const struct conv_plan *b)
{
  return dnnl_memory_desc_equal(conv_view(a, CONV_KERNEL), conv_view(b, CONV_KERNEL));
}

void conv_plan_discard(const struct conv_library *library, struct conv_plan *plan)
{
  conv_free_memory(library, plan);
  dnnl_primitive_destroy(plan->primitive);
  plan->primitive = NULL;
}

/* The weights' place among those that are kept; NULL: they are not. */
static struct conv_kept **conv_find_kept(struct conv_plan *plan, const void *w)
{
  for (struct conv_kept **at = &plan->kept; *at; at = &(*at)->next)
    if ((*at)->w == w)
      return at;
  return NULL;
}

static void conv_forget(struct conv_kept **at)
{
  struct conv_kept *it = *at;

  *at = it->next;
  trm_free(it->prepared);
  trm_free(it);
}

struct conv_plan *conv_plan_look(const struct conv_library *library, const struct conv_key *key)
{
  struct conv_plan *plan = library->plans;

  while (plan && memcmp(&plan->key, key, sizeof *key) != 0)
    plan = plan->next;
  return plan;
}

const struct conv_plan *conv_plan_find(const struct conv_library *library, const struct conv_key *key)
{
  const struct conv_plan *plan = conv_plan_look(library, key);

  return plan && plan->primitive ? plan : NULL;
}

struct conv_plan *conv_plan_of(struct conv_library *library, const struct conv_key *key)
{
  struct conv_plan *plan = conv_plan_look(library, key);

  if (!plan) {
    plan = trm_alloc(sizeof *plan, "oneDNN: a convolution");
    const int threads = omp_get_max_threads();

    omp_set_num_threads(1); /* a primitive is made for the threads that OpenMP has then */
    plan->key = *key;
    conv_plan_make(plan, library->engine);
    if (plan->primitive)
      conv_plan_open(library, plan);
    omp_set_num_threads(threads);
    plan->next = library->plans;
    library->plans = plan;
  }
  return plan->primitive ? plan : NULL;
}

void conv_onednn_close(struct conv_library *library)
{
  if (!library)
    return;
  for (struct conv_plan *plan = library->plans, *next; plan; plan = next) {
    next = plan->next;
    conv_free_memory(library, plan);
    while (plan->kept)
      conv_forget(&plan->kept);
    for (int i = 0; i < CONV_ARRAYS; i++)
      if (plan->array[i].reorder)
        dnnl_primitive_destroy(plan->array[i].reorder);
    for (int i = 0; i < CONV_BIAS; i++)
      onednn_free_description(&plan->array[i].user);
    if (plan->primitive)
      dnnl_primitive_destroy(plan->primitive);
    trm_free(plan);
  }
  for (int i = 0; i < library->threads; i++)
    if (library->stream[i])
      dnnl_stream_destroy(library->stream[i]);
  if (library->engine)
    dnnl_engine_destroy(library->engine);
  trm_free(library->stream);
  trm_free(library);
}

/* -- running */

/* Reorders images between the caller's layout and the library's; their memory objects have the addresses. */
static void conv_reorder(const struct conv_plan *plan, int array, const struct conv_memory *memory,
                         dnnl_stream_t stream)
{
  const bool output = conv_is_output(&plan->key, array);
  const dnnl_memory_t from = output ? memory->library[array] : memory->user[array],
                      to = output ? memory->user[array] : memory->library[array];
  const dnnl_exec_arg_t arguments[] = {
    {DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, memory->scratch}};
  void *source, *target;
  dnnl_dims_t size;

  if (plan->array[array].transposed) {
    conv_sizes(&plan->key, array, size);
    conv_check(dnnl_memory_get_data_handle(from, &source));
    conv_check(dnnl_memory_get_data_handle(to, &target));
    const size_t channels = (size_t)size[1], positions = (size_t)(size[2] * size[3]);
    conv_transpose_bf16(target, source, plan->key.images, output ? positions : channels, output ? channels : positions);
    return;
  }
  conv_check(dnnl_primitive_execute(plan->array[array].reorder, stream, 3, arguments));
  conv_check(dnnl_stream_wait(stream));
}

/* Reorders weights; in the calling thread, thread 0. */
static void conv_reorder_kernel(const struct conv_library *library, const struct conv_plan *plan, const void *w,
                                void *to)
{
  const struct conv_memory *memory = &plan->memory[0];
  const int threads = omp_get_max_threads();

  omp_set_num_threads(1); /* OpenMP's threads would compete with ours */
  conv_check(dnnl_memory_set_data_handle(memory->user[CONV_KERNEL], (void *)w));
  conv_check(dnnl_memory_set_data_handle(memory->library[CONV_KERNEL], to));
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, memory->user[CONV_KERNEL]},
                                       {DNNL_ARG_TO, memory->library[CONV_KERNEL]}};
  conv_check(dnnl_primitive_execute(plan->array[CONV_KERNEL].reorder, library->stream[0], 2, arguments));
  conv_check(dnnl_stream_wait(library->stream[0]));
  omp_set_num_threads(threads);
}

const void *conv_prepare_kernel(struct conv_library *library, struct conv_plan *plan, const void *w, bool kept,
                                void *to)
{
  const struct conv_layout *array = &plan->array[CONV_KERNEL];

  if (!array->reorder)
    return w;
  struct conv_kept **at = conv_find_kept(plan, w);
  if (at && kept)
    return (*at)->prepared;
  if (at)
    conv_forget(at);
  if (kept) {
    struct conv_kept *it = trm_alloc(sizeof *it, "oneDNN: weights");

    *it = (struct conv_kept){plan->kept, w, trm_alloc(array->bytes, "oneDNN: weights")};
    plan->kept = it;
    to = it->prepared;
  }
  conv_reorder_kernel(library, plan, w, to);
  return to;
}

static size_t conv_prepared_bytes(const struct conv_plan *plan)
{
  return plan->array[CONV_KERNEL].bytes + conv_aligned(plan->key.units * sizeof(float));
}

size_t conv_folded_bytes(const struct conv_plan *plan)
{
  return conv_prepared_bytes(plan) + conv_aligned(trm_conv2d_weights(&plan->key.conv) * sizeof(float));
}

/* w (N, ...) and bias (N) of the convolution and the norm in one. */
static void conv_fold(const struct trm_conv2d_fused *call, float *w, float *bias)
{
  const struct trm_batch_norm_forward *norm = &call->norm;
  const size_t units = call->conv.conv.units, pairs = trm_conv2d_weights(&call->conv.conv) / units;

  for (size_t n = 0; n < units; n++) {
    const double before = call->conv.bias ? (double)call->conv.bias[n] : 0;
    double factor = 1, shift = before;

    if (norm->mean) {
      factor = (double)norm->w[n] / sqrt((double)norm->square[n] / norm->bn.count + (double)norm->bn.epsilon);
      shift = (before - (double)norm->mean[n]) * factor + (double)norm->bias[n];
    }
    for (size_t i = n * pairs; i < (n + 1) * pairs; i++)
      w[i] = (float)((double)((const float *)call->conv.w)[i] * factor);
    bias[n] = (float)shift;
  }
}

const char *conv_prepare_folded(struct conv_library *library, struct conv_plan *plan,
                                const struct trm_conv2d_fused *call, char *to)
{
  float *folded = (float *)(to + conv_prepared_bytes(plan));
  struct conv_kept **at = conv_find_kept(plan, call->conv.w);

  if (at && call->conv.weights_kept)
    return (*at)->prepared;
  if (at)
    conv_forget(at);
  if (call->conv.weights_kept) {
    struct conv_kept *it = trm_alloc(sizeof *it, "oneDNN: weights");

    *it = (struct conv_kept){plan->kept, call->conv.w, trm_alloc(conv_prepared_bytes(plan), "oneDNN: weights")};
    plan->kept = it;
    to = it->prepared;
  }
  conv_fold(call, folded, (float *)(to + plan->array[CONV_KERNEL].bytes));
  if (plan->array[CONV_KERNEL].reorder)
    conv_reorder_kernel(library, plan, folded, to);
  else
    memcpy(to, folded, plan->array[CONV_KERNEL].bytes);
  return to;
}

bool conv_reorders_dst_for(const struct conv_plan *plan, const struct conv_plan *to)
{
  return conv_in_work(plan, CONV_DST) && dnnl_memory_desc_equal(conv_view(plan, CONV_DST), conv_view(to, CONV_DST));
}

const void *conv_reordered_dst(const struct conv_plan *plan, const char *work)
{
  for (int i = 0; i < CONV_DST; i++)
    if (conv_in_work(plan, i))
      work += plan->array[i].bytes;
  return work;
}

void conv_plan_run(const struct conv_plan *plan, int thread, dnnl_stream_t stream, char *work,
                   const void *const data[CONV_CALL], bool dst_ready)
{
  static const int names[][CONV_ARRAYS] = {
    [CONV_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
    [CONV_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
    [CONV_WEIGHTS] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_BIAS}};
  const struct conv_memory *memory = &plan->memory[thread];
  dnnl_exec_arg_t arguments[CONV_ARRAYS + 1] = {{DNNL_ARG_SCRATCHPAD, memory->scratch}};
  int count = 1;

  for (int i = 0; i < CONV_ARRAYS; i++) {
    if (!memory->library[i])
      continue;
    const bool in_work = conv_in_work(plan, i) && !(i == CONV_DST && dst_ready);
    void *at = in_work ? work : (void *)data[i];

    if (i == CONV_DST && (plan->key.fused & CONV_ADDS) && at != data[CONV_ADDEND])
      memcpy(at, data[CONV_ADDEND], plan->array[i].bytes); /* to which the primitive adds */
    conv_check(dnnl_memory_set_data_handle(in_work ? memory->user[i] : memory->library[i], (void *)data[i]));
    if (in_work) {
      conv_check(dnnl_memory_set_data_handle(memory->library[i], work));
      work += plan->array[i].bytes;
    }
    arguments[count++] = (dnnl_exec_arg_t){names[plan->key.pass][i], memory->library[i]};
  }
  conv_check(dnnl_memory_set_data_handle(memory->scratch, work));
  for (int i = 0; i < CONV_ARRAYS; i++)
    if (conv_in_work(plan, i) && !conv_is_output(&plan->key, i) && !(i == CONV_DST && dst_ready))
      conv_reorder(plan, i, memory, stream);
  conv_check(dnnl_primitive_execute(plan->primitive, stream, count, arguments));
  conv_check(dnnl_stream_wait(stream));
  for (int i = 0; i < CONV_ARRAYS; i++)
    if (conv_in_work(plan, i) && conv_is_output(&plan->key, i))
      conv_reorder(plan, i, memory, stream);
}
