/* Runs a test on every device and number of threads, and requires bit-identical results. */
#pragma once

#include "core/device.h"

/* Runs the test on the CPU with 1, 2 and 3 threads and on the pretend device with 1 and 2, and with 2 where it has
 * few kernels; with TRM_TEST_DEVICE=NAME in the environment, twice on that device instead. The results that the runs
 * read with read_floats must be bit-identical. */
void on_devices(void (*test)(struct trm_device *device));
void on_devices_with(void (*test)(struct trm_device *device), const struct trm_blas_ops *blas); /* these products */

/* Returns TRM_TEST_DEVICE, NULL if it is not set. */
const char *on_other_device(void);

/* All arrays below live until the run on this device ends. */
float *host_floats(size_t n);                     /* zeros */
float *host_random(size_t n, uint32_t stream);    /* in [-1, 1), a function of stream and index */
void *device_bytes(struct trm_device *device, const void *host, size_t bytes); /* a copy on the device */
float *device_floats(struct trm_device *device, const float *host, size_t n);
float *device_nan(struct trm_device *device, size_t n); /* NaN: the kernel must overwrite all */
float *read_floats(struct trm_device *device, const float *from, size_t n);

/* Checks |got - want| <= absolute + relative * |want| for all n; NaN and infinities must agree. Prints the first
 * difference. */
void check_close(const char *what, const float *got, const double *want, size_t n, double absolute, double relative);
/* The same where the bounds hold on every device; those of check_close are larger on that of TRM_TEST_DEVICE. */
void check_within(const char *what, const float *got, const double *want, size_t n, double absolute, double relative);
void check_same(const char *what, const float *got, const float *want, size_t n); /* bit for bit */
