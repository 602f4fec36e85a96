/* The parts of test_kernels: one function per test, each for on_devices (tests/support/on_devices.h). */
#pragma once

#include "support/on_devices.h"

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* kernels_products.c */
void gemm_reference(struct trm_device *device);
void gemm_empty(struct trm_device *device);
void gemm_large(struct trm_device *device);
void gemm_at_once(void);
void gemm_under_signals(void);
void gemm_bfloat16_rounding(struct trm_device *device); /* rounding of factors to bfloat16 */
void csr_reference(struct trm_device *device);

/* kernels_sparse.c */
void sparse_sgd_reference(struct trm_device *device);
void sparse_sgd_extremes(struct trm_device *device);
void sparse_sgd_races(void); /* two threads on one model */

/* kernels_rows.c */
void memory_moves(struct trm_device *device);
void copies_beside_calls(struct trm_device *device);
void uploads(struct trm_device *device);
void batch_norm_gradient(struct trm_device *device);
void bias_reference(struct trm_device *device);
void dropout_definition(struct trm_device *device);
void dropout_split(struct trm_device *device);
void dropout_parts(struct trm_device *device);

/* kernels_activations.c */
void activation_reference(struct trm_device *device);
void activation_extremes(struct trm_device *device);
void activation_position(struct trm_device *device);
void activation_tables(struct trm_device *device);
void math_accuracy(void); /* host functions */
double activation_value(enum trm_activation kind, double x);
double activation_slope(enum trm_activation kind, double x);

/* kernels_images.c */
void conv2d_reference(struct trm_device *device);
void conv2d_transposed(void); /* images in bfloat16, channels last */
void conv2d_every_processor(void); /* the CPU's micro-kernels for all instruction sets of this processor */
void pool_reference(struct trm_device *device);
void pool_extremes(struct trm_device *device);
void batch_norm_reference(struct trm_device *device);
void batch_norm_large_mean(struct trm_device *device);

/* kernels_last.c */
void last_convolutions(void);
void last_pools(void);

/* kernels_losses.c */
void softmax_reference(struct trm_device *device);
void softmax_extremes(struct trm_device *device);
void softmax_bad_target(struct trm_device *device);
void softmax_parts(struct trm_device *device);
void softmax_part_bad_target(struct trm_device *device);
void squares_reference(struct trm_device *device);
void losses_padded(struct trm_device *device); /* rows that lie apart */
void margins_reference(struct trm_device *device);

/* kernels_fused_reference.c */
void fused_linear_reference(struct trm_device *device);
void fused_add_norm_reference(struct trm_device *device);

/* kernels_sequences.c */
/* A norm's values (R, D), mean and scale (R), and gradients, in double; dgain and dbias (D) are added to. */
struct norm_want {
  double *y, *mean, *scale, *dx, *dgain, *dbias;
};
void norm_want(const float *x, const float *gain, const float *bias, const float *dy, double epsilon, bool centred,
               size_t r, size_t d, struct norm_want w);
void row_norm_reference(struct trm_device *device);
void embedding_reference(struct trm_device *device);
void embedding_bad_token(struct trm_device *device);
void embedding_parts(struct trm_device *device);
void attention_reference(struct trm_device *device);
void attention_causal(struct trm_device *device);
void attention_every_processor(void); /* the same of the CPU's micro-kernels, and without them */
void rotary_reference(struct trm_device *device);
void swiglu_reference(struct trm_device *device);

/* kernels_fused.c */
void fused_add_norm(struct trm_device *device);

/* kernels_large.c */
void large_calls(struct trm_device *device);

/* kernels_recorded.c */
void recorded_calls(struct trm_device *device);

/* kernels_values.c: bfloat16 values */
void values_rows(struct trm_device *device);
void values_fused(struct trm_device *device);
void values_losses(struct trm_device *device);
void values_sequences(struct trm_device *device);
void values_images(struct trm_device *device);
void values_batch_norm(struct trm_device *device);
void values_products(struct trm_device *device);
void values_sparse(struct trm_device *device);
void values_rounding(struct trm_device *device);

/* kernels_flat.c */
void sum_tree(struct trm_device *device);
void norm_reference(struct trm_device *device);
void update_reference(struct trm_device *device);
void step_loss_sums(struct trm_device *device);
void step_clip(struct trm_device *device);
void step_ratios(struct trm_device *device);
void step_update(struct trm_device *device);
void step_uses(struct trm_device *device);
void step_mask(struct trm_device *device);
void update_feedback(struct trm_device *device);
void update_feedback_identities(struct trm_device *device);
void update_slices(struct trm_device *device);
