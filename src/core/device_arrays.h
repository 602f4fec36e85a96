/* The arrays of a kernel's call: where each stands in the struct of arguments, its size, and whether the kernel reads
 * or writes it. What wraps any kernel of a device follows from this: counting bytes, checking or translating addresses,
 * copies to another memory. */
#pragma once

#include <string.h>

#include "core/device.h"

enum {
  TRM_READS = 1,
  TRM_WRITES = 2,
  TRM_UPDATES = TRM_READS | TRM_WRITES,
  TRM_READS_HOST = 4 /* host memory, which is free when the call returns */
};

/* Arrays that a call does not access (NULL, or read only where beta is not 0) are not listed. */
struct trm_call_array {
  size_t field;   /* offset of the pointer in the struct of arguments */
  int table;      /* 0: the pointer is the array's; else it is that of a table in host memory of so many arrays */
  int access;     /* TRM_READS, ... */
  size_t bytes;   /* from its first byte to its last one */
  size_t touched; /* bytes of these that the call reads or writes; the others must not change */
};

enum { TRM_CALL_ARRAYS = 10 }; /* of any kernel, at most */

/* TYPE_arrays(call, array) lists the arrays of a call in array (TRM_CALL_ARRAYS) and returns their number. */
#define TRM_ARRAYS_DECLARE(slot, type) size_t type##_arrays(const struct type *call, struct trm_call_array *array);
TRM_KERNELS(TRM_ARRAYS_DECLARE)
TRM_FUSED_KERNELS(TRM_ARRAYS_DECLARE)
#undef TRM_ARRAYS_DECLARE

/* Returns the bytes that a call moves: each one that is read or written once, ignoring caches. */
size_t trm_call_bytes(const struct trm_call_array *array, size_t arrays);

/* Reads and sets the pointer of an array (a table's: of the table) in the struct of arguments. */
static inline void *trm_call_pointer(const void *call, const struct trm_call_array *array)
{
  void *pointer;

  memcpy(&pointer, (const char *)call + array->field, sizeof pointer);
  return pointer;
}

static inline void trm_call_set_pointer(void *call, const struct trm_call_array *array, const void *pointer)
{
  memcpy((char *)call + array->field, &pointer, sizeof pointer);
}

/* Returns the elements of a convolution's weights. */
static inline size_t trm_conv2d_weights(const struct trm_conv2d *conv)
{
  return conv->units * (conv->channels / conv->groups) * conv->window.kernel[0] * conv->window.kernel[1];
}
