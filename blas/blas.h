/* Public face of the matrix products: the table `device.blas` chooses from. */
#ifndef TRM_BLAS_BLAS_H
#define TRM_BLAS_BLAS_H

#include "core/device.h"

extern const struct trm_blas_ops trm_blas_openblas;
extern const struct trm_blas_ops *const trm_blas_table[]; /* host products, ends with NULL */

const struct trm_blas_ops *trm_blas_find(const char *name); /* "auto": the first; NULL: error recorded */

#endif
