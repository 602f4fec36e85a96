/* A library to preload: a BLAS that adds the terms of some of the last rows and columns of a product in another order
 * than those of the rest, so that a part of a product has other bits than the whole. Row-major, without alpha and beta
 * other than those that `trireme doctor` uses: 1 and 0. */
#include <stdbool.h>

enum { NO_TRANSPOSE = 111 }; /* of cblas.h, whose other types differ between libraries */

void cblas_sgemm(int layout, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a,
                 int lda, const float *b, int ldb, float beta, float *c, int ldc);
void cblas_sgemm(int layout, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a,
                 int lda, const float *b, int ldb, float beta, float *c, int ldc)
{
  (void)layout, (void)alpha, (void)beta;
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      const bool backward = (m - i) % 7 == 0 || (n - j) % 7 == 0;
      float sum = 0;
      for (int h = 0; h < k; h++) {
        const int at = backward ? k - 1 - h : h;
        sum += (transpose_a == NO_TRANSPOSE ? a[i * lda + at] : a[at * lda + i]) *
               (transpose_b == NO_TRANSPOSE ? b[at * ldb + j] : b[j * ldb + at]);
      }
      c[i * ldc + j] = sum;
    }
}
