/* A library to preload: a processor that computes a wrong value. On some rank of an MPI job it flips one bit in the
 * result of matrix products (cblas_sgemm). Environment:
 *   FLIP_RANK  the rank
 *   FLIP       numbers of the products, from 1, with a comma after each ("7,12,"); N+: N and all after it
 *   FLIP_COUNT a file to which the rank writes the number of its products at its end */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void sgemm_function(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                            const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
sgemm_function cblas_sgemm;

static long products;

static bool flip_is_here(void)
{
  const char *rank = getenv("PMI_RANK") ? getenv("PMI_RANK") : getenv("OMPI_COMM_WORLD_RANK");
  return rank && getenv("FLIP_RANK") && strcmp(rank, getenv("FLIP_RANK")) == 0;
}

static bool flip_now(void)
{
  const char *at = getenv("FLIP");
  for (char *end; at && *at; at = end + 1) {
    const long number = strtol(at, &end, 10);
    if (products == number || (*end == '+' && products > number))
      return true;
    if (*end != ',')
      return false;
  }
  return false;
}

void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc)
{
  static sgemm_function *sgemm;
  uint32_t bits;
  if (!sgemm)
    *(void **)&sgemm = dlsym(RTLD_NEXT, "cblas_sgemm");
  sgemm(order, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  products++;
  if (!flip_is_here() || !flip_now())
    return;
  memcpy(&bits, c, sizeof bits);
  bits ^= 1u << 20; /* of the mantissa */
  memcpy(c, &bits, sizeof bits);
}

__attribute__((destructor)) static void flip_count(void)
{
  const char *path = getenv("FLIP_COUNT");
  FILE *file = path && flip_is_here() ? fopen(path, "w") : NULL;
  if (file)
    fprintf(file, "%ld\n", products);
  if (file)
    fclose(file);
}
