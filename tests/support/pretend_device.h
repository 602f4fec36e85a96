/* A second implementation of the device contract, for tests: device memory is not host memory. It computes with the
 * CPU's kernels, but its addresses cannot be dereferenced by the host: code that does so ends with SIGSEGV, and a wrong
 * pointer given to the device (host for device, device for host, released, too short) ends the test with a message.
 *
 * It is as late as the contract allows: calls are queued, and done at the next sync, download, release or call whose
 * result is in host memory. Code that relies on an earlier end has other results than on the CPU. */
#pragma once

#include "core/device.h"

extern const struct trm_device_ops pretend_device_ops;
extern const struct trm_device_ops pretend_device_few_ops; /* with two kernels: the others have their host form */

/* Opens the device; close it with trm_device_close or pretend_device_close, which reports leaks on stderr. */
int pretend_device_open(struct trm_device *device, int threads);
/* Returns the CPU device that computes. */
struct trm_device *pretend_device_cpu(struct trm_device *device);
/* Returns the bytes that are allocated. */
size_t pretend_device_bytes(const struct trm_device *device);
void pretend_device_close(struct trm_device *device);
