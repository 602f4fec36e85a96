/* Public interface of the devices: the table that `device.name` chooses from. */
#pragma once

#include "core/device.h"

extern const struct trm_device_ops trm_device_cpu;
extern const struct trm_device_ops *const trm_device_table[]; /* built in; ends with NULL */

/* Opens the device `name` (of the table; cuda: of the module; auto: cuda if it can be loaded and there is a processor,
 * else the first of the table) with the product library `blas` ("auto": the first that works) for `matmul`
 * (blas/blas.h). Errors name what is missing. Release with trm_device_close. */
int trm_device_open(struct trm_device *device, const char *name, const char *blas, enum trm_matmul matmul, int index,
                    int threads);
/* The same for a given table. Kernels that it does not have get their host form. */
int trm_device_open_ops(struct trm_device *device, const struct trm_device_ops *ops,
                        const struct trm_blas_ops *products, int index, int threads);
void trm_device_close(struct trm_device *device);

/* Name and version of the library that computes some of the CPU's convolutions, in static memory; NULL: none. */
const char *trm_convolution_library(void);
