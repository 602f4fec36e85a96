/* Convolutions by oneDNN: one primitive for each shape, between reorders to and from the library's layouts. Private to
 * kernels/cpu. conv_onednn_plan.c makes them, conv_onednn_many.c those of several images, and conv_onednn.c divides a
 * call's images among the threads. */
#pragma once

#include "core/kernels.h"
#include "kernels/cpu/cpu.h"

#ifdef HAVE_ONEDNN
#include <dnnl.h>

enum conv_pass { CONV_FORWARD, CONV_DATA, CONV_WEIGHTS };
enum conv_array { CONV_SRC, CONV_KERNEL, CONV_DST, CONV_BIAS, CONV_ARRAYS, CONV_ADDEND = CONV_ARRAYS, CONV_CALL };
/* Of calls of conv2d_fused. */
enum conv_fused { CONV_FUSED = 1, CONV_X_BLOCKED = 2, CONV_Z_BLOCKED = 4, CONV_ADDS = 8, CONV_RELU = 16 };

/* Key of a primitive. Keys are compared as bytes, so there is no padding. */
struct conv_key {
  struct trm_conv2d conv;
  size_t images;
  size_t units;  /* of conv.units the first ones: a part of the gradient of the weights */
  uint32_t pass; /* conv_pass */
  uint32_t type; /* trm_value_type of the arrays */
  uint32_t bf16; /* products of factors in bfloat16 */
  uint32_t bias;
  uint32_t fused, unused; /* conv_fused; 0: none */
};

/* An array as the caller has it, and as the library wants it. */
struct conv_layout {
  dnnl_memory_desc_t user; /* not of the bias */
  dnnl_primitive_t reorder; /* between the two; NULL: they are equal */
  bool transposed;          /* the library's has channels last, in bfloat16: conv_transpose_bf16 reorders it */
  size_t bytes;             /* of the library's */
};

/* Memory objects of one thread. They have the layouts from the beginning, and get the addresses with each call. */
struct conv_memory {
  dnnl_memory_t user[CONV_ARRAYS]; /* of arrays that are reordered */
  dnnl_memory_t library[CONV_ARRAYS], scratch;
};

/* Weights in the library's layout, of fused calls with the bias behind them, which are kept from call to call. */
struct conv_kept {
  struct conv_kept *next;
  const void *w;
  void *prepared;
};

struct conv_plan {
  struct conv_plan *next;
  struct conv_key key;
  dnnl_primitive_t primitive; /* NULL: the library has no fast one */
  struct conv_layout array[CONV_ARRAYS];
  size_t scratch_bytes, work_bytes; /* work: layouts that are reordered, but for CONV_KERNEL as an input, and scratch */
  struct conv_memory *memory;       /* (threads) */
  struct conv_kept *kept;
};

/* The plans of a device, and a stream for each of its threads. */
struct conv_library {
  dnnl_engine_t engine;
  dnnl_stream_t *stream; /* (threads) */
  int threads;
  struct conv_plan *plans;
};

/* Returns the plan, which it makes if it is new; NULL: the library has no fast primitive for it. Outside of parallel
 * regions. */
struct conv_plan *conv_plan_of(struct conv_library *library, const struct conv_key *key);
/* Returns the plan of key, which is that of `one` but for the number of images; NULL: there is none, or its results of
 * an image are not those of `one`, to the bit. Their weights have the same layout. Outside of parallel regions. */
const struct conv_plan *conv_plan_of_many(struct conv_library *library, const struct conv_plan *one,
                                          const struct conv_key *key);
/* Returns the plan if it has been made, with or without a primitive; NULL: it has not. */
struct conv_plan *conv_plan_look(const struct conv_library *library, const struct conv_key *key);
/* The weights of both have the same layout. */
bool conv_weights_match(const struct conv_plan *a, const struct conv_plan *b);
/* Frees the plan's primitive, as if the library had none. */
void conv_plan_discard(const struct conv_library *library, struct conv_plan *plan);
/* A plan that exists, with its primitive, as conv_plan_of returns it; in any thread. */
const struct conv_plan *conv_plan_find(const struct conv_library *library, const struct conv_key *key);

/* Returns the weights of the forward pass or of that to the data in the library's layout: w itself where nothing is to
 * be reordered; `to` (array[CONV_KERNEL].bytes); or, kept: memory of the plan, which later calls with the same w find
 * there, until one is not kept. In the calling thread, thread 0. */
const void *conv_prepare_kernel(struct conv_library *library, struct conv_plan *plan, const void *w, bool kept,
                                void *to);
/* The same of fused calls, with the norm folded in, and the bias behind it; `to` is followed by a copy of the weights:
 * conv_folded_bytes in all. */
const char *conv_prepare_folded(struct conv_library *library, struct conv_plan *plan,
                                const struct trm_conv2d_fused *call, char *to);
size_t conv_folded_bytes(const struct conv_plan *plan);
/* Returns true if the library has a fast primitive for the key; makes none. */
bool conv_plan_exists(const struct conv_library *library, const struct conv_key *key);
/* Runs the primitive on the arrays, CONV_KERNEL as conv_prepare_kernel returns it, dst_ready: CONV_DST as
 * conv_reordered_dst returns it; in the calling thread, with its number, and a stream that no other one uses.
 * work: (plan->work_bytes), 64-byte aligned. */
void conv_plan_run(const struct conv_plan *plan, int thread, dnnl_stream_t stream, char *work,
                   const void *const data[CONV_CALL], bool dst_ready);
/* True if a run of the plan reorders CONV_DST into the layout that a run of plan `to` takes; where in work that is. */
bool conv_reorders_dst_for(const struct conv_plan *plan, const struct conv_plan *to);
const void *conv_reordered_dst(const struct conv_plan *plan, const char *work);

/* to (images, columns, rows) = from (images, rows, columns). */
void conv_transpose_bf16(trm_bf16 *to, const trm_bf16 *from, size_t images, size_t rows, size_t columns);

/* The calls of the contract: false if the library has no primitive that is faster than our kernels; with the channels
 * last, which those do not read: if it has none. */
bool conv_onednn_forward(struct trm_device *device, const struct trm_conv2d_forward *call);
bool conv_onednn_backward_data(struct trm_device *device, const struct trm_conv2d_backward *call);
bool conv_onednn_backward_weights(struct trm_device *device, const struct trm_conv2d_backward *call);
/* Both gradients at once, for which dy is reordered once. */
bool conv_onednn_backward(struct trm_device *device, const struct trm_conv2d_backward *call);
bool conv_onednn_fuses(struct trm_device *device, const struct trm_conv2d *conv, enum trm_value_type type);
void conv_onednn_fused(struct trm_device *device, const struct trm_conv2d_fused *call);
bool conv_onednn_last(struct trm_device *device, enum trm_value_type type);
void conv_onednn_close(struct conv_library *library); /* NULL is allowed */
const char *conv_onednn_name(void); /* with the version */

#else

#define conv_onednn_forward(device, call) false
#define conv_onednn_fuses NULL
#define conv_onednn_fused NULL
#define conv_onednn_last NULL
#define conv_onednn_backward_data(device, call) false
#define conv_onednn_backward_weights(device, call) false
#define conv_onednn_backward(device, call) false
#define conv_onednn_close(library) ((void)(library))
#define conv_onednn_name() NULL
#endif
