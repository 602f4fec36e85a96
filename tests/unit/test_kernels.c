/* The operator suite: every operation of the device contract against double precision, on every device, with equal bits
 * for every number of threads. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "blas/blas.h"
#include "core/status.h"
#include "kernels.h"
#include "kernels/kernels.h"
#include "suite.h"
#include "support/pretend_device.h"

static void test_names(void)
{
  struct trm_device device;

  CU_ASSERT_EQUAL(trm_device_open(&device, "abacus", "auto", TRM_MATMUL_F32, 0, 1), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "abacus"));
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "cpu"));
  CU_ASSERT_EQUAL(trm_device_open(&device, "cpu", "slowblas", TRM_MATMUL_F32, 0, 1), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "slowblas"));
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), trm_blas_table[0]->name));
  CU_ASSERT_EQUAL(trm_device_open(&device, "cpu", "auto", TRM_MATMUL_F32, 0, -1), TRM_USAGE);
  const char *other = on_other_device();
  CU_ASSERT_EQUAL(trm_device_open(&device, "auto", "auto", TRM_MATMUL_F32, 3, 0), TRM_OK);
  CU_ASSERT_STRING_EQUAL(device.ops->name, other ? other : "cpu");
  CU_ASSERT(device.threads >= 1);
  CU_ASSERT_EQUAL(device.host_memory, !other);
  CU_ASSERT(device.blas->matmul == TRM_MATMUL_F32 && (!device.blas->supported || device.blas->supported()));
  CU_ASSERT(strlen(device.blas->detail()) > 0);
  trm_device_close(&device);
  CU_ASSERT_EQUAL(trm_device_open(&device, "cpu", trm_blas_table[0]->name, TRM_MATMUL_BF16, 0, 1), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "onednn"));
}

/* Runs `thing` on a pretend device in a child process; returns the signal that ended it, 0 if none. */
static int signal_of(void (*thing)(struct trm_device *device, float *block))
{
  const struct rlimit none = {0, 0};
  int status = 0;
  const pid_t child = fork();

  if (child == 0) {
    struct trm_device device;
    void *block;

    setrlimit(RLIMIT_CORE, &none);
    signal(SIGSEGV, SIG_DFL); /* a sanitizer would report it */
    signal(SIGABRT, SIG_DFL);
    if (!freopen("/dev/null", "w", stderr) || pretend_device_open(&device, 1) != TRM_OK ||
        device.ops->alloc(&device, 100 * sizeof(float), TRM_MEMORY_BUFFERS, &block) != TRM_OK)
      _exit(1);
    thing(&device, block);
    _exit(0);
  }
  CU_ASSERT_FATAL(child > 0 && waitpid(child, &status, 0) == child);
  CU_ASSERT(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static float host_block[100];

static void do_right(struct trm_device *device, float *block)
{
  device->ops->upload(device, block, host_block, sizeof(host_block));
  device->ops->fill(device, block, 1, 100);
  device->ops->download(device, host_block, block, sizeof(host_block));
  device->ops->release(device, block);
}

static void do_read(struct trm_device *device, float *block)
{
  (void)device;
  host_block[0] = *(volatile float *)block;
}

static void do_write(struct trm_device *device, float *block)
{
  (void)device;
  *(volatile float *)block = 1;
}

static void do_memcpy_upload(struct trm_device *device, float *block)
{
  device->ops->upload(device, host_block, block, sizeof(host_block));
}

static void do_host_argument(struct trm_device *device, float *block)
{
  device->ops->bias_add(device, &(struct trm_bias_add){.y = block, .bias = host_block, .b = 1, .n = 100});
}

static void do_overrun(struct trm_device *device, float *block)
{
  device->ops->fill(device, block, 1, 101);
}

static void do_released(struct trm_device *device, float *block)
{
  device->ops->release(device, block);
  device->ops->fill(device, block, 1, 100);
}

/* Copies beside the calls. Each of these does what the contract forbids. */

static struct trm_event event;

static void do_copies_right(struct trm_device *device, float *block)
{
  device->ops->upload_begin(device, block, host_block, sizeof host_block, &event);
  device->ops->await(device, &event);
  device->ops->fill(device, block, 1, 50);
  device->ops->event_wait(device, &event);
  device->ops->download_begin(device, host_block, block, sizeof host_block, &event);
  device->ops->await(device, &event);
  device->ops->fill(device, block, 2, 100);
  while (!device->ops->event_done(device, &event))
    ;
  device->ops->event_free(device, &event);
  device->ops->release(device, block);
}

static void do_read_early(struct trm_device *device, float *block)
{
  device->ops->upload_begin(device, block, host_block, sizeof host_block, &event);
  device->ops->bias_add(device, &(struct trm_bias_add){.y = block, .bias = block, .b = 1, .n = 10});
}

static void do_write_early(struct trm_device *device, float *block)
{
  device->ops->download_begin(device, host_block, block, sizeof host_block, &event);
  device->ops->fill(device, block + 10, 1, 1);
}

static void do_release_early(struct trm_device *device, float *block)
{
  device->ops->download_begin(device, host_block, block, sizeof host_block, &event);
  device->ops->release(device, block);
}

static void do_begin_twice(struct trm_device *device, float *block)
{
  device->ops->download_begin(device, host_block, block, sizeof host_block, &event);
  device->ops->download_begin(device, host_block, block, sizeof host_block, &event);
}

static void test_pretend(void)
{
  CU_ASSERT_EQUAL(signal_of(do_copies_right), 0);
  CU_ASSERT_EQUAL(signal_of(do_read_early), SIGABRT);
  CU_ASSERT_EQUAL(signal_of(do_write_early), SIGABRT);
  CU_ASSERT_EQUAL(signal_of(do_release_early), SIGABRT);
  CU_ASSERT_EQUAL(signal_of(do_begin_twice), SIGABRT);
  CU_ASSERT_EQUAL(signal_of(do_right), 0);
  CU_ASSERT_EQUAL(signal_of(do_read), SIGSEGV);
  CU_ASSERT_EQUAL(signal_of(do_write), SIGSEGV);
  CU_ASSERT_EQUAL(signal_of(do_memcpy_upload), SIGABRT);
  CU_ASSERT_EQUAL(signal_of(do_host_argument), SIGABRT);
  CU_ASSERT_EQUAL(signal_of(do_overrun), SIGABRT);
  CU_ASSERT_EQUAL(signal_of(do_released), SIGABRT);
}

#define ON_DEVICES(name)         \
  static void test_##name(void)  \
  {                              \
    on_devices(name);            \
  }

ON_DEVICES(gemm_reference)
ON_DEVICES(gemm_empty)
ON_DEVICES(csr_reference)
ON_DEVICES(sparse_sgd_reference)
ON_DEVICES(sparse_sgd_extremes)
ON_DEVICES(memory_moves)
ON_DEVICES(copies_beside_calls)
ON_DEVICES(uploads)
ON_DEVICES(batch_norm_gradient)
ON_DEVICES(bias_reference)
ON_DEVICES(dropout_definition)
ON_DEVICES(dropout_split)
ON_DEVICES(dropout_parts)
ON_DEVICES(activation_reference)
ON_DEVICES(activation_extremes)
ON_DEVICES(activation_position)
ON_DEVICES(activation_tables)
ON_DEVICES(conv2d_reference)
ON_DEVICES(pool_reference)
ON_DEVICES(pool_extremes)
ON_DEVICES(batch_norm_reference)
ON_DEVICES(batch_norm_large_mean)
ON_DEVICES(softmax_reference)
ON_DEVICES(softmax_extremes)
ON_DEVICES(softmax_bad_target)
ON_DEVICES(softmax_parts)
ON_DEVICES(softmax_part_bad_target)
ON_DEVICES(squares_reference)
ON_DEVICES(losses_padded)
ON_DEVICES(margins_reference)
ON_DEVICES(row_norm_reference)
ON_DEVICES(fused_linear_reference)
ON_DEVICES(fused_add_norm_reference)
ON_DEVICES(embedding_reference)
ON_DEVICES(embedding_bad_token)
ON_DEVICES(embedding_parts)
ON_DEVICES(attention_reference)
ON_DEVICES(attention_causal)
ON_DEVICES(rotary_reference)
ON_DEVICES(swiglu_reference)
ON_DEVICES(sum_tree)
ON_DEVICES(norm_reference)
ON_DEVICES(update_reference)
ON_DEVICES(step_loss_sums)
ON_DEVICES(step_clip)
ON_DEVICES(step_ratios)
ON_DEVICES(step_update)
ON_DEVICES(step_uses)
ON_DEVICES(step_mask)
ON_DEVICES(recorded_calls)
ON_DEVICES(update_feedback)
ON_DEVICES(update_feedback_identities)
ON_DEVICES(update_slices)
ON_DEVICES(fused_add_norm)
ON_DEVICES(large_calls)
ON_DEVICES(values_rows)
ON_DEVICES(values_fused)
ON_DEVICES(values_losses)
ON_DEVICES(values_sequences)
ON_DEVICES(values_images)
ON_DEVICES(values_batch_norm)
ON_DEVICES(values_products)
ON_DEVICES(values_sparse)
ON_DEVICES(values_rounding)

/* Runs a test with other product libraries that support this processor. Another device has one of its own for float32. */
static void other_products(enum trm_matmul matmul, void (*test)(struct trm_device *device))
{
  const bool own = on_other_device() && matmul == TRM_MATMUL_F32;
  const struct trm_blas_ops *tested = matmul == TRM_MATMUL_F32 ? trm_blas_find("auto", matmul) : NULL;

  for (int i = 0; trm_blas_table[i] && !own; i++)
    if (trm_blas_table[i] != tested && trm_blas_table[i]->matmul == matmul && trm_blas_table[i]->open(1) == TRM_OK)
      on_devices_with(test, trm_blas_table[i]);
}

static void test_other_gemm(void)
{
  other_products(TRM_MATMUL_F32, gemm_reference);
  other_products(TRM_MATMUL_F32, gemm_empty);
  other_products(TRM_MATMUL_F32, attention_reference);
  other_products(TRM_MATMUL_F32, values_products);
}

static void test_large_gemm(void)
{
  if (!on_other_device())
    on_devices(gemm_large);
  other_products(TRM_MATMUL_F32, gemm_large);
}

static void test_bf16_gemm(void)
{
  other_products(TRM_MATMUL_BF16, gemm_reference);
  other_products(TRM_MATMUL_BF16, gemm_empty);
  other_products(TRM_MATMUL_BF16, gemm_bfloat16_rounding);
  other_products(TRM_MATMUL_BF16, values_products);
  other_products(TRM_MATMUL_BF16, values_sequences);
  other_products(TRM_MATMUL_BF16, conv2d_reference);
  other_products(TRM_MATMUL_BF16, values_images);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"pretend device: invalid accesses", test_pretend}, /* first: fork must precede threads */
    {"devices and products by name", test_names},
    {"memory: zeroed, moved whole, filled", test_memory_moves},
    {"copies beside the calls", test_copies_beside_calls},
    {"uploads", test_uploads},
    {"batch norm's gradients from its sums", test_batch_norm_gradient},
    {"gemm against double", test_gemm_reference},
    {"gemm without rows, columns or terms", test_gemm_empty},
    {"gemm of other libraries", test_other_gemm},
    {"gemm of large matrices", test_large_gemm},
    {"gemm of factors in bfloat16", test_bf16_gemm},
    {"gemm of several threads at once", gemm_at_once},
    {"gemm under signals", gemm_under_signals},
    {"sparse products against double", test_csr_reference},
    {"stochastic updates of sparse rows against double", test_sparse_sgd_reference},
    {"stochastic updates: no rows, no entries, NaN", test_sparse_sgd_extremes},
    {"stochastic updates by two threads", sparse_sgd_races},
    {"bias against double", test_bias_reference},
    {"dropout against its definition", test_dropout_definition},
    {"dropout of halves equals the whole", test_dropout_split},
    {"dropout sharded by feature", test_dropout_parts},
    {"activations against double", test_activation_reference},
    {"activations: NaN, infinities, huge numbers", test_activation_extremes},
    {"activations do not depend on the position", test_activation_position},
    {"activations read from tables", test_activation_tables},
    {"exp, tanh, sigmoid, Phi: stated errors hold", math_accuracy},
    {"convolution against double", test_conv2d_reference},
    {"convolution by every instruction set", conv2d_every_processor},
    {"images with their channels last", conv2d_transposed},
    {"convolutions with the channels last", last_convolutions},
    {"pooling with the channels last", last_pools},
    {"pooling against double", test_pool_reference},
    {"pooling: ties, NaN, infinities", test_pool_extremes},
    {"batch normalization against double", test_batch_norm_reference},
    {"batch normalization of large means", test_batch_norm_large_mean},
    {"softmax against double", test_softmax_reference},
    {"softmax: extremes, ties, NaN", test_softmax_extremes},
    {"softmax: target out of range", test_softmax_bad_target},
    {"softmax sharded by class", test_softmax_parts},
    {"softmax sharded by class: target out of range", test_softmax_part_bad_target},
    {"squared error against double", test_squares_reference},
    {"losses of rows that lie apart", test_losses_padded},
    {"logistic and hinge against double", test_margins_reference},
    {"layer norm and RMS norm against double", test_row_norm_reference},
    {"fused: linear layers against double", test_fused_linear_reference},
    {"fused: sums with norms against double", test_fused_add_norm_reference},
    {"embedding against double", test_embedding_reference},
    {"embedding: token out of range", test_embedding_bad_token},
    {"embedding sharded by vocabulary", test_embedding_parts},
    {"attention against double", test_attention_reference},
    {"attention is causal", test_attention_causal},
    {"attention by every instruction set", attention_every_processor},
    {"rotary positions against double", test_rotary_reference},
    {"swiglu against double", test_swiglu_reference},
    {"sums in the fixed tree", test_sum_tree},
    {"norm against double", test_norm_reference},
    {"updates against double", test_update_reference},
    {"a step's sums of losses", test_step_loss_sums},
    {"a step's clipping and flag", test_step_clip},
    {"trust ratios", test_step_ratios},
    {"updates by the step in device memory", test_step_update},
    {"what an update takes from a step", test_step_uses},
    {"masks by the step in device memory", test_step_mask},
    {"recorded calls", test_recorded_calls},
    {"error feedback of updates against double", test_update_feedback},
    {"error feedback of updates: equal gradients, sums of steps", test_update_feedback_identities},
    {"updates of slices equal the whole", test_update_slices},
    {"sum and norm in one call", test_fused_add_norm},
    {"many rows: the bits of a few", test_large_calls},
    {"bfloat16 values: rows", test_values_rows},
    {"bfloat16 values: fused kernels", test_values_fused},
    {"bfloat16 values: losses", test_values_losses},
    {"bfloat16 values: sequences", test_values_sequences},
    {"bfloat16 values: images", test_values_images},
    {"bfloat16 values: batch normalization", test_values_batch_norm},
    {"bfloat16 values: products", test_values_products},
    {"bfloat16 values: sparse rows", test_values_sparse},
    {"bfloat16 values: conversion, rounded weights", test_values_rounding},
    CU_TEST_INFO_NULL,
  };
  if (!on_other_device())
    setenv("TRIREME_MODULES", "/nonexistent", 1); /* an installed module for GPUs is not tested */
  return suite_run("kernels", tests);
}
