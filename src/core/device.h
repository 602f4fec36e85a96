/* The device contract: memory and arithmetic of one processor.
 *
 * Pointers named or documented "device" may be addresses of another memory: only these functions may dereference them.
 * Layers and optimizers depend on this contract and that of the kernels (core/kernels.h) only.
 *
 * Kernels return nothing: callers must pass valid arguments; a device that fails records the failure and reports it at
 * the next sync. Calls on one device run in order (one stream), possibly after they have returned; sync() waits for
 * them.
 *
 * Copies that upload_begin and download_begin begin run beside the calls that come after them. Such a copy comes after
 * all calls made before it, and ends with its event:
 *   upload_begin    the host memory must not change before the event is done; calls that read or write the target come
 *                   after await
 *   download_begin  the host memory has the values when the event is done, and anything before; calls that write the
 *                   source come after await, or when the event is done
 * Copies that were begun come in any order. An event is done when event_done says so or event_wait returns; await lets
 * all later calls come after it, and does not wait. sync does not wait for events. Neither memory of a copy may be
 * released before its event is done. An event begins as zeros, which is done, may be used again when it is done, and
 * ends with event_free.
 *
 * A device may record calls, to make them again at once (a CUDA graph). Between record_begin and record_end the calls
 * of kernels, copy and fill are recorded in place of being made; no other slot may be called. A recording has the
 * arguments of its calls: replay makes them with the same addresses and numbers, on what the memory holds by then.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/api.h"
#include "core/choices.h"
#include "core/kernels.h"
#include "core/memory.h"

TRM_BEGIN_DECLS

struct trm_device;
struct trm_recording; /* the device's: calls with their arguments */

/* A library of matrix products. */
struct trm_blas_ops {
  const char *name;            /* device.blas */
  enum trm_matmul matmul;      /* type of the factors; sums and C are float32 */
  bool (*supported)(void);     /* whether auto may choose it on this processor; NULL: on any */
  const char *(*detail)(void); /* library and core type, for the log */
  const char *(*core)(void);   /* kernels chosen by the processor, as OPENBLAS_CORETYPE names them; NULL: not known */
  int (*open)(int threads);    /* called once in a process; threads of a product */
  void (*gemm)(const struct trm_gemm *product);
};

/* The end of a copy beside the calls. */
struct trm_event {
  void *impl; /* the device's; NULL: done */
};

/* The slots of a device. */
struct trm_device_ops {
  const char *name; /* as in device.name */
  bool tf32;        /* it can round the factors of products to TF32 (device.matmul) */

  /* Opens the device for rank `index` of the node, on processor index modulo their number, with `threads` host threads
   * (0: the library's choice). blas is never NULL. */
  int (*open)(struct trm_device *device, int index, int threads, const struct trm_blas_ops *blas);
  void (*close)(struct trm_device *device);

  /* -- memory. alloc: zeroed, TRM_ALIGNMENT-aligned. release: NULL is allowed; of memory that calls in progress use, it
   * waits for them. host pointers are marked host. upload: the host memory is free on return, though the copy may come
   * later; download: complete on return. */
  int (*alloc)(struct trm_device *device, size_t bytes, enum trm_memory_use use, void **memory);
  void (*release)(struct trm_device *device, void *memory);
  void (*upload)(struct trm_device *device, void *to, const void *host, size_t bytes);
  void (*download)(struct trm_device *device, void *host, const void *from, size_t bytes);
  void (*copy)(struct trm_device *device, void *to, const void *from, size_t bytes);
  void (*fill)(struct trm_device *device, float *to, float value, size_t n);
  int (*sync)(struct trm_device *device);

  /* -- copies beside the calls. NULL, all of them: opening the device puts forms there that copy at once. pin: a hint
   * that copies will use this host memory, of any kind, until unpin; a device may then copy it faster. */
  void (*upload_begin)(struct trm_device *device, void *to, const void *host, size_t bytes, struct trm_event *event);
  void (*download_begin)(struct trm_device *device, void *host, const void *from, size_t bytes,
                         struct trm_event *event);
  void (*await)(struct trm_device *device, struct trm_event *event);
  bool (*event_done)(struct trm_device *device, struct trm_event *event);
  void (*event_wait)(struct trm_device *device, struct trm_event *event);
  void (*event_free)(struct trm_device *device, struct trm_event *event);
  void (*pin)(struct trm_device *device, void *host, size_t bytes);
  void (*unpin)(struct trm_device *device, void *host);

  /* -- recorded calls. NULL, all of them: the device records nothing. record_begin returns false if it cannot.
   * record_end returns the recording, which the caller frees; NULL: one of the calls, or another slot that was called,
   * cannot be recorded. Nothing has been made. replay makes the calls, in order; false: it made none, because memory of
   * the device's own, which the recording uses, has been replaced. recording_free waits for the calls of replays. */
  bool (*record_begin)(struct trm_device *device);
  struct trm_recording *(*record_end)(struct trm_device *device);
  bool (*replay)(struct trm_device *device, struct trm_recording *recording);
  void (*recording_free)(struct trm_device *device, struct trm_recording *recording);

  /* -- inference (nn/conv_chain.h). NULL, both: convolutions and what follows them are calls of their own.
   * conv2d_fuses: the device makes calls of conv2d_fused for this convolution. */
  bool (*conv2d_fuses)(struct trm_device *device, const struct trm_conv2d *conv, enum trm_value_type type);
  void (*conv2d_fused)(struct trm_device *device, const struct trm_conv2d_fused *call);

  /* Training: true if convolutions of whole blocks of TRM_CHANNEL_BLOCK channels are fastest with the channels last
   * (nn/channels_last.h). NULL: calls have no images in that layout. */
  bool (*channels_last)(struct trm_device *device, enum trm_value_type type);

  /* -- kernels (core/kernels.h). NULL: opening the device puts the host form there, which copies the arrays that the
   * call reads to host memory, runs the CPU's kernel, and copies those back that it writes; in a fused kernel's place,
   * the composed form, which calls the device's kernels. */
#define TRM_KERNEL_SLOT(slot, type) void (*slot)(struct trm_device *device, const struct type *call);
  TRM_KERNELS(TRM_KERNEL_SLOT)
  TRM_FUSED_KERNELS(TRM_KERNEL_SLOT)
#undef TRM_KERNEL_SLOT
};

/* An open device of one rank. */
struct trm_device {
  const struct trm_device_ops *ops;
  const struct trm_blas_ops *blas; /* the host's products */
  enum trm_matmul matmul;          /* type of the factors of products; tf32: those of the host are float32 */
  int threads;
  bool host_memory; /* device pointers are host pointers of this process: arrays may live in node-shared memory */
  void *impl;        /* the implementation's */
  struct trm_device *host; /* the CPU beside a device that has memory of its own or lacks kernels; else NULL */
  double *number;          /* device, one: a result on its way to the host; NULL with host_memory */
  size_t memory_bytes;     /* of its own memory, free after opening took its own; 0 with host_memory */
  bool graphs;             /* calls that repeat are recorded, if it can (core/recordings.h); false after open */
};

/* Returns the device whose memory is the host's: the device itself, or the CPU beside it. */
static inline struct trm_device *trm_device_host(struct trm_device *device)
{
  return device->host_memory ? device : device->host;
}

/* Returns the sum of x^2 over n elements: waits for it. */
static inline double trm_device_norm_squared(struct trm_device *device, const float *x, size_t n)
{
  double result;
  const struct trm_norm_squared call = {x, n, false, device->host_memory ? &result : device->number};

  device->ops->norm_squared(device, &call);
  if (!device->host_memory)
    device->ops->download(device, &result, device->number, sizeof result);
  return result;
}

TRM_END_DECLS
