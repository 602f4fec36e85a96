/* Host memory: aligned, checked. Device memory comes from the device (core/device.h), memory shared by the ranks of a
 * node from the communicator (core/comm.h). */
#pragma once

#include <stddef.h>

#include "core/api.h"

TRM_BEGIN_DECLS

#define TRM_ALIGNMENT 64 /* bytes: a cache line, an AVX-512 register */

/* Zeroed memory, aligned to TRM_ALIGNMENT (large blocks: to 2 MiB, and advised for huge pages). Never returns NULL for
 * want of memory: prints an error that names `what` and the size, and calls trm_abort (core/status.h). bytes = 0 gives
 * a valid pointer. Release with trm_free. */
void *trm_alloc(size_t bytes, const char *what);
void trm_free(void *memory); /* NULL is allowed */

/* The use of an array, given where it is allocated: for messages and the planner's account. */
enum trm_memory_use {
  TRM_MEMORY_WEIGHTS,
  TRM_MEMORY_GRADIENTS,
  TRM_MEMORY_STATES, /* the optimizer's, and averaged weights */
  TRM_MEMORY_ACTIVATIONS,
  TRM_MEMORY_UNITS, /* full parameters or gradients of the layers at work, where these are sharded */
  TRM_MEMORY_DATA,
  TRM_MEMORY_BUFFERS, /* everything else */
  TRM_MEMORY_USES
};
const char *trm_memory_name(enum trm_memory_use use); /* "optimizer states" */

/* Returns the array (of trm_alloc, or NULL) if *capacity >= needed elements; else a larger block with the first `used`
 * elements copied and the rest zero, and frees the array. element: bytes of one. */
void *trm_grow(void *array, size_t *capacity, size_t used, size_t needed, size_t element, const char *what);

char *trm_strdup(const char *text);
char *trm_format(const char *format, ...) __attribute__((format(printf, 1, 2))); /* owned by the caller: trm_free */
/* Appends to *text, which is the caller's (of trm_format, or NULL for none yet) and moves. */
void trm_append(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Bytes that this process holds: blocks of trm_alloc, and shared memory (core/comm.h) with all ranks' parts, untouched
 * pages included. Thread-safe, as all functions here. */
size_t trm_memory_allocated(void);
/* Adds memory that is not from trm_alloc to that count, and removes it. */
void trm_memory_account(size_t added, size_t removed);

/* Resident bytes of the process, with program, libraries and shared memory: now, and the maximum so far. 0: unknown.
 * Source: /proc/self/statm, getrusage. */
size_t trm_memory_resident(void);
size_t trm_memory_peak(void);

/* Advises huge pages for a large range. Harmless where unsupported. */
void trm_advise_huge(void *memory, size_t bytes);

TRM_END_DECLS
