/* Public interface of the matrix products: the table that `device.blas` and `device.matmul` choose from. */
#pragma once

#include "blas/amx.h"
#include "core/device.h"

extern const struct trm_blas_ops trm_blas_openblas;
extern const struct trm_blas_ops trm_blas_onednn, trm_blas_onednn_bf16, trm_blas_by_size; /* only if HAVE_ONEDNN */
extern const struct trm_blas_ops trm_blas_amx;                               /* only if BLAS_AMX */
extern const struct trm_blas_ops *const trm_blas_table[]; /* host products, ends with NULL */

/* Returns the library `name` ("auto": the first that this processor supports) that computes with `matmul`. NULL: error
 * recorded, which names the libraries available, or what configure lacked. */
const struct trm_blas_ops *trm_blas_find(const char *name, enum trm_matmul matmul);

/* The newest vector instructions of OpenBLAS' kernels for a core ("Haswell": AVX2). */
enum trm_vectors { TRM_VECTORS_OLD, TRM_VECTORS_AVX2, TRM_VECTORS_AVX512, TRM_VECTORS_UNKNOWN };
enum trm_vectors trm_blas_core_vectors(const char *core);
