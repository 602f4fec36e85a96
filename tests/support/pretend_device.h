/* A second implementation of the device contract for tests: a device whose memory is not the host's.
 *
 * It computes with the CPU's kernels, but the addresses it hands out cannot be followed: code that looks into device
 * memory on its own dies of SIGSEGV, and a wrong pointer handed to the device (host for device, device for host,
 * released, too short) ends the test with a message. */
#pragma once

#include "core/device.h"

extern const struct trm_device_ops pretend_device_ops;

/* Opens one; close with trm_device_close or pretend_device_close. What a caller has not released is told on stderr. */
int pretend_device_open(struct trm_device *device, int threads);
/* The CPU device that does its work. */
struct trm_device *pretend_device_cpu(struct trm_device *device);
void pretend_device_close(struct trm_device *device);
