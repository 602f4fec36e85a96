/* A second implementation of the device contract, for tests: device memory is not host memory. It computes with the
 * CPU's kernels, but its addresses cannot be dereferenced by the host: code that does so ends with SIGSEGV, and a wrong
 * pointer given to the device (host for device, device for host, released, too short) ends the test with a message.
 *
 * It is as late as the contract allows: calls are queued, and done at the next sync, download, release or call whose
 * result is in host memory. Copies beside the calls are made when the host waits for their event, or a call that awaits
 * it is done; until then the memory that they write holds NaN, and a call that accesses it ends the test. Code that
 * relies on an earlier end has other results than on the CPU. */
#pragma once

#include "core/device.h"

extern const struct trm_device_ops pretend_device_ops;
extern const struct trm_device_ops pretend_device_few_ops; /* with two kernels: the others have their host form */

/* What was done since the record was taken last. */
struct pretend_device_record {
  size_t calls, waits; /* waits: the host waited for the device */
  size_t beside_uploads, beside_downloads; /* kernels that were called with such a copy in flight, before its await */
  size_t uploads, downloads; /* such copies that were begun, of some bytes */
  uint64_t digest;     /* of the calls in order, with their arguments; of those that are replayed, the recording */
  size_t replays;      /* of recorded calls, each of them one call */
};
struct pretend_device_record pretend_device_record(struct trm_device *device);

/* Opens the device; close it with trm_device_close or pretend_device_close, which reports leaks on stderr. */
int pretend_device_open(struct trm_device *device, int threads);
/* Returns the CPU device that computes. */
struct trm_device *pretend_device_cpu(struct trm_device *device);
/* Returns where this device memory is, for a library that accesses it by itself: at once, whatever calls are queued.
 * Host pointers stay what they are. */
void *pretend_device_memory(struct trm_device *device, const void *pointer, size_t bytes);
/* Returns the bytes that are allocated. */
size_t pretend_device_bytes(const struct trm_device *device);
/* Lets the device refuse to replay what has been recorded, as if memory of its own had been replaced. */
void pretend_device_replace_memory(struct trm_device *device);
void pretend_device_close(struct trm_device *device);
