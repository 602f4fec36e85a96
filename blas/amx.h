/* BLAS_AMX: the compiler knows the instructions of AMX, and those of AVX-512 for bfloat16. Private to blas and
 * kernels/cpu. */
#pragma once

#if defined(__x86_64__) && defined(__linux__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define BLAS_AMX 1
#endif
