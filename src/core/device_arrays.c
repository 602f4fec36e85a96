/* The arrays of each kernel, as core/device.h describes its struct. */
#include "core/device_arrays.h"

/* An array of n elements that are all accessed; one of which only `some` are, of `n` that lie from the first to the
 * last. NULL: not accessed. */
#define ARRAY(name, n, access) PART(name, n, n, access)
#define PART(name, n, some, access) PART_OF(name, sizeof(*call->name), n, some, access)
#define PART_OF(name, bytes, n, some, access) \
  {offsetof(__typeof__(*call), name), 0, call->name ? access : 0, (n) * (bytes), (some) * (bytes)}
#define READS(name, n) ARRAY(name, n, TRM_READS)
#define READS_HOST(name, n) ARRAY(name, n, TRM_READS_HOST)
#define WRITES(name, n) ARRAY(name, n, TRM_WRITES)
#define UPDATES(name, n) ARRAY(name, n, TRM_UPDATES)
/* Of values: their type is the call's. */
#define ARRAY_VALUES(name, n, access) PART_VALUES(name, n, n, access)
#define PART_VALUES(name, n, some, access) PART_OF(name, trm_value_bytes(call->type), n, some, access)
#define READS_VALUES(name, n) ARRAY_VALUES(name, n, TRM_READS)
#define WRITES_VALUES(name, n) ARRAY_VALUES(name, n, TRM_WRITES)
#define UPDATES_VALUES(name, n) ARRAY_VALUES(name, n, TRM_UPDATES)
/* beta * old value + ..: beta = 0 does not read it */
#define ADDS(name, n) ARRAY(name, n, call->beta == 0 ? TRM_WRITES : TRM_UPDATES)

/* Defines the function of a struct of arguments. */
#define ARRAYS(type, ...)                                                    \
  size_t type##_arrays(const struct type *call, struct trm_call_array *array) \
  {                                                                          \
    const struct trm_call_array all[] = {__VA_ARGS__};                       \
    size_t arrays = 0;                                                       \
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)                    \
      if (all[i].access)                                                     \
        array[arrays++] = all[i];                                            \
    return arrays;                                                           \
  }

size_t trm_call_bytes(const struct trm_call_array *array, size_t arrays)
{
  size_t bytes = 0;

  for (size_t i = 0; i < arrays; i++)
    if (array[i].access != TRM_READS_HOST)
      bytes += (size_t)(array[i].table ? array[i].table : 1) * array[i].touched *
               (size_t)(array[i].access == TRM_UPDATES ? 2 : 1);
  return bytes;
}

/* -- products */

static size_t arrays_min(size_t a, size_t b)
{
  return a < b ? a : b;
}

/* Elements from the first to the last of a matrix (rows, columns), of one stored transposed. */
static size_t arrays_span(bool transposed, size_t rows, size_t columns, size_t ld)
{
  const size_t high = transposed ? columns : rows, wide = transposed ? rows : columns;

  return high && wide ? (high - 1) * ld + wide : 0;
}

ARRAYS(trm_gemm,
       PART_OF(a, trm_value_bytes(call->type_ab), arrays_span(call->transpose_a, call->m, call->k, call->lda),
               call->m * call->k, TRM_READS),
       PART_OF(b, trm_value_bytes(call->type_ab), arrays_span(call->transpose_b, call->k, call->n, call->ldb),
               call->k * call->n, TRM_READS),
       PART_OF(c, trm_value_bytes(call->type_c), arrays_span(false, call->m, call->n, call->ldc), call->m * call->n,
               call->beta == 0 ? TRM_WRITES : TRM_UPDATES))

#define CSR READS(x.starts, call->x.rows + 1), READS(x.columns, call->x.entries), READS(x.values, call->x.entries)
ARRAYS(trm_csr_forward, CSR,
       PART(w, call->n * call->x.features, call->n * arrays_min(call->x.entries, call->x.features), TRM_READS),
       WRITES_VALUES(y, call->x.rows * call->n))
ARRAYS(trm_csr_backward, CSR, READS_VALUES(dy, call->x.rows * call->n),
       PART(dw, call->n * call->x.features,
            call->n * (call->beta == 0 ? call->x.features : arrays_min(call->x.entries, call->x.features)),
            call->beta == 0 ? TRM_WRITES : TRM_UPDATES))

size_t trm_sparse_sgd_rows_arrays(const struct trm_sparse_sgd_rows *call, struct trm_call_array *array)
{
  (void)call, (void)array; /* host memory */
  return 0;
}

/* -- rows */

ARRAYS(trm_bias_add, UPDATES_VALUES(y, call->b * call->n), READS(bias, call->n))
ARRAYS(trm_bias_backward, READS_VALUES(dy, call->b * call->n), ADDS(db, call->n))
ARRAYS(trm_activation_forward, READS_VALUES(x, call->n), WRITES_VALUES(y, call->n))

static bool arrays_reads_input(enum trm_activation kind)
{
  return kind == TRM_GELU || kind == TRM_GELU_TANH || kind == TRM_SILU;
}

ARRAYS(trm_activation_backward, ARRAY_VALUES(x, call->n, arrays_reads_input(call->kind) ? TRM_READS : 0),
       ARRAY_VALUES(y, call->n, arrays_reads_input(call->kind) ? 0 : TRM_READS), READS_VALUES(dy, call->n),
       WRITES_VALUES(dx, call->n))
ARRAYS(trm_dropout, READS(mask.step, 1), READS_VALUES(x, call->b * call->f), WRITES_VALUES(y, call->b * call->f))
ARRAYS(trm_norm_forward, READS_VALUES(x, call->r * call->d), READS(gain, call->d), READS(bias, call->d),
       WRITES_VALUES(y, call->r * call->d), WRITES(mean, call->r), WRITES(scale, call->r))
ARRAYS(trm_norm_backward, READS_VALUES(x, call->r * call->d), READS(gain, call->d), READS(mean, call->r),
       READS(scale, call->r), READS_VALUES(dy, call->r * call->d), WRITES_VALUES(dx, call->r * call->d),
       ADDS(dgain, call->d),
       ADDS(dbias, call->d))

/* -- sequences */

static size_t arrays_tokens(const struct trm_vocab_shard *v)
{
  return v->high - v->low;
}

ARRAYS(trm_embedding_forward, READS(token, call->r),
       PART(w, arrays_tokens(&call->v) * call->d, arrays_min(call->r, arrays_tokens(&call->v)) * call->d, TRM_READS),
       WRITES_VALUES(y, call->r * call->d))
ARRAYS(trm_embedding_backward, READS(token, call->r), READS_VALUES(dy, call->r * call->d),
       PART(dw, arrays_tokens(&call->v) * call->d,
            (call->beta == 1 ? arrays_min(call->r, arrays_tokens(&call->v)) : arrays_tokens(&call->v)) * call->d,
            call->beta == 0 ? TRM_WRITES : TRM_UPDATES))

/* Rows of all heads, of the positions that are computed; values of one of queries, keys and values. */
static size_t arrays_heads(const struct trm_attention *shape)
{
  return shape->b * (shape->t - shape->first) * shape->heads;
}

static size_t arrays_values(const struct trm_attention *shape)
{
  return arrays_heads(shape) * shape->head_dim;
}

ARRAYS(trm_attention_forward,
       READS_VALUES(qkv, 3 * call->shape.b * call->shape.t * call->shape.heads * call->shape.head_dim),
       WRITES_VALUES(y, arrays_values(&call->shape)),
       WRITES(row, 2 * arrays_heads(&call->shape)))
ARRAYS(trm_attention_backward, READS_VALUES(qkv, 3 * arrays_values(&call->shape)),
       READS_VALUES(y, arrays_values(&call->shape)),
       READS(row, 2 * arrays_heads(&call->shape)),
       READS_VALUES(dy, arrays_values(&call->shape)), WRITES_VALUES(dqkv, 3 * arrays_values(&call->shape)))
ARRAYS(trm_rotary, PART_VALUES(x, 3 * arrays_values(&call->shape), 2 * arrays_values(&call->shape), TRM_UPDATES))
ARRAYS(trm_swiglu_forward, READS_VALUES(x, 2 * call->r * call->f), WRITES_VALUES(y, call->r * call->f))
ARRAYS(trm_swiglu_backward, READS_VALUES(x, 2 * call->r * call->f), READS_VALUES(dy, call->r * call->f),
       WRITES_VALUES(dx, 2 * call->r * call->f))

/* -- images */

/* Elements of `planes` planes at the input and at the output of a window operation. */
static size_t arrays_in(const struct trm_window2d *window, size_t planes)
{
  return planes * window->in[0] * window->in[1];
}

static size_t arrays_out(const struct trm_window2d *window, size_t planes)
{
  return planes * window->out[0] * window->out[1];
}

#define IMAGES_IN arrays_in(&call->conv.window, call->b * call->conv.channels)
#define IMAGES_OUT arrays_out(&call->conv.window, call->b * call->conv.units)
#define CONV_WEIGHTS trm_conv2d_weights(&call->conv)
ARRAYS(trm_conv2d_forward, READS_VALUES(x, IMAGES_IN), READS_VALUES(w, CONV_WEIGHTS), READS(bias, call->conv.units),
       WRITES_VALUES(y, IMAGES_OUT))
ARRAYS(trm_conv2d_backward, READS_VALUES(x, IMAGES_IN), READS_VALUES(w, CONV_WEIGHTS), READS_VALUES(dy, IMAGES_OUT),
       ADDS(dw, CONV_WEIGHTS), ADDS(db, call->conv.units), WRITES_VALUES(dx, IMAGES_IN))

#define PLANES_IN arrays_in(&call->window, call->planes)
#define PLANES_OUT arrays_out(&call->window, call->planes)
ARRAYS(trm_max_pool_forward, READS_VALUES(x, PLANES_IN), WRITES_VALUES(y, PLANES_OUT), WRITES(argmax, PLANES_OUT))
ARRAYS(trm_max_pool_backward, READS_VALUES(dy, PLANES_OUT), READS(argmax, PLANES_OUT), WRITES_VALUES(dx, PLANES_IN))
ARRAYS(trm_avg_pool_forward, READS_VALUES(x, PLANES_IN), WRITES_VALUES(y, PLANES_OUT))
ARRAYS(trm_avg_pool_backward, READS_VALUES(dy, PLANES_OUT), WRITES_VALUES(dx, PLANES_IN))

/* -- batch normalization */

#define SAMPLES (call->b * call->bn.channels * call->bn.size)
#define CHANNELS call->bn.channels
ARRAYS(trm_batch_norm_moments, READS_VALUES(x, SAMPLES), WRITES(moments, 2 * CHANNELS))
ARRAYS(trm_batch_norm_forward, READS(bn.counted, 1),
       READS_VALUES(x, SAMPLES), READS(mean, CHANNELS), READS(square, CHANNELS),
       READS(w, CHANNELS), READS(bias, CHANNELS), READS_VALUES(addend, SAMPLES), WRITES_VALUES(y, SAMPLES))
ARRAYS(trm_batch_norm_sums, READS(bn.counted, 1),
       READS_VALUES(x, SAMPLES), READS(mean, CHANNELS), READS(square, CHANNELS),
       READS(w, CHANNELS), READS(bias, CHANNELS), READS_VALUES(dy, SAMPLES), WRITES(sums, 2 * CHANNELS))
ARRAYS(trm_batch_norm_gradients, READS(bn.counted, 1), READS(sums, 2 * CHANNELS), READS(moments, 2 * CHANNELS),
       ADDS(dw, CHANNELS), ADDS(db, CHANNELS), ADDS(dmean, CHANNELS), ADDS(dvariance, CHANNELS))
ARRAYS(trm_batch_norm_backward, READS(bn.counted, 1),
       READS_VALUES(x, SAMPLES), READS(mean, CHANNELS), READS(square, CHANNELS),
       READS(w, CHANNELS), READS(bias, CHANNELS), READS_VALUES(dy, SAMPLES), READS(sums, 2 * CHANNELS),
       WRITES_VALUES(dx, SAMPLES))

/* -- losses */

/* Rows of c scores, ld apart. */
#define SCORES(name, c, access) PART_VALUES(name, arrays_span(false, call->b, c, call->ld), call->b * (c), access)
ARRAYS(trm_softmax_cross_entropy, SCORES(z, call->c, TRM_READS), READS(target, call->b), READS(weight, call->b),
       READS(class_weight, call->c), WRITES(loss, call->b), WRITES(correct, call->b), SCORES(dz, call->c, TRM_WRITES))
#define SHARD arrays_tokens(&call->v)
ARRAYS(trm_softmax_shard_stats, SCORES(z, SHARD, TRM_READS), READS(target, call->b),
       READS(class_weight, call->v.total), WRITES(stats, call->b * TRM_SCORES_FIELDS))
ARRAYS(trm_softmax_shard_join, READS(stats, call->ranks * call->b * TRM_SCORES_FIELDS), READS(target, call->b),
       READS(weight, call->b), READS(class_weight, call->v.total), WRITES(loss, call->b),
       WRITES(correct, call->b), WRITES(max, call->b), WRITES(sum, call->b))
ARRAYS(trm_softmax_shard_gradient, SCORES(z, SHARD, TRM_READS), READS(target, call->b), READS(weight, call->b),
       READS(class_weight, call->v.total), READS(max, call->b), READS(sum, call->b), SCORES(dz, SHARD, TRM_WRITES))
ARRAYS(trm_value_loss, SCORES(z, call->f, TRM_READS), READS(target, call->b * call->f),
       WRITES(loss, call->b), WRITES(correct, call->b), SCORES(dz, call->f, TRM_WRITES))
ARRAYS(trm_margin_loss, READS_VALUES(z, call->b), READS(target, call->b), WRITES(loss, call->b),
       WRITES(correct, call->b),
       WRITES_VALUES(dz, call->b))

/* -- flat arrays */

ARRAYS(trm_sum, {offsetof(struct trm_sum, from), call->count, call->count > 0 ? TRM_READS : 0,
                 call->n * sizeof(float), call->n * sizeof(float)}, WRITES(to, call->n))
ARRAYS(trm_add, READS_VALUES(a, call->n), READS_VALUES(b, call->n), WRITES_VALUES(y, call->n))
ARRAYS(trm_convert, PART_OF(from, trm_value_bytes(call->type_from), call->n, call->n, TRM_READS),
       PART_OF(to, trm_value_bytes(call->type_to), call->n, call->n, TRM_WRITES))
ARRAYS(trm_norm_squared, READS(x, call->n), ARRAY(result, 1, call->adds ? TRM_UPDATES : TRM_WRITES))
ARRAYS(trm_sum_losses, READS(loss, call->rows), READS(correct, call->rows), UPDATES(step, 1))
ARRAYS(trm_clip, UPDATES(step, 1))
ARRAYS(trm_trust_ratios, READS(update.now, 1), READS(norm, 2 * call->tensors), WRITES(ratio, call->tensors))
static size_t arrays_ratios(const struct trm_update_arrays *call)
{
  size_t ratios = 0;

  for (size_t i = 0; i < call->runs; i++)
    if ((size_t)call->run[i].ratio >= ratios)
      ratios = (size_t)call->run[i].ratio + 1;
  return ratios;
}

ARRAYS(trm_update_arrays, READS_HOST(run, call->runs), READS(update.now, 1), READS(ratio, arrays_ratios(call)),
       UPDATES(w, call->n), READS(g, call->n), UPDATES(first, call->n), UPDATES(second, call->n),
       UPDATES(last_step, call->n),
       ARRAY(rounded, call->n, call->update.now ? TRM_UPDATES : TRM_WRITES)) /* unless skipped */
ARRAYS(trm_lamb_direction, READS_HOST(run, call->runs), READS(update.now, 1), READS(w, call->n), UPDATES(g, call->n),
       UPDATES(first, call->n), UPDATES(second, call->n))

/* -- fused kernels */

ARRAYS(trm_linear_forward, READS_VALUES(x, call->b * call->k), READS_VALUES(w, call->n * call->k),
       READS(bias, call->n),
       PART_VALUES(y, arrays_span(false, call->b, call->n, call->ld), call->b * call->n, TRM_WRITES),
       WRITES_VALUES(z, call->b * call->n))
ARRAYS(trm_linear_backward, READS_VALUES(x, call->b * call->k), READS_VALUES(w, call->n * call->k),
       PART_VALUES(dy, arrays_span(false, call->b, call->n, call->ld), call->b * call->n, TRM_READS),
       ADDS(dw, call->n * call->k), ADDS(db, call->n),
       WRITES_VALUES(dx, call->b * call->k),
       ARRAY_VALUES(u, call->b * call->k, call->through && arrays_reads_input(call->kind) ? TRM_READS : 0))

/* Of the nested norm: values (R, D), and its other arrays. */
#define NORM_VALUES(name, access) \
  PART_OF(name, trm_value_bytes(call->norm.type), call->norm.r * call->norm.d, call->norm.r * call->norm.d, access)
#define NORM_ADDS(name) ARRAY(name, call->norm.d, call->norm.beta == 0 ? TRM_WRITES : TRM_UPDATES)
ARRAYS(trm_add_norm_forward, NORM_VALUES(a, TRM_READS), NORM_VALUES(b, TRM_READS), READS(mask.step, 1),
       NORM_VALUES(s, TRM_WRITES), READS(norm.gain, call->norm.d), READS(norm.bias, call->norm.d),
       NORM_VALUES(norm.y, TRM_WRITES), WRITES(norm.mean, call->norm.r), WRITES(norm.scale, call->norm.r))
ARRAYS(trm_add_norm_backward, NORM_VALUES(norm.x, TRM_READS), NORM_VALUES(norm.dy, TRM_READS),
       READS(norm.gain, call->norm.d), READS(norm.mean, call->norm.r), READS(norm.scale, call->norm.r),
       NORM_VALUES(norm.dx, TRM_WRITES), NORM_ADDS(norm.dgain), NORM_ADDS(norm.dbias), NORM_VALUES(other, TRM_READS),
       NORM_VALUES(sum, TRM_WRITES))
