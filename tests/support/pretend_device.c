/* The pretend device. A memory file is mapped twice: callers get addresses at `seen`, mapped without access; the
 * kernels use the same pages at `real`. A block ends at a page boundary (up to alignment) between guard pages; the
 * padding holds a pattern that is checked at release. Released blocks are never reused. */
#define _GNU_SOURCE
#include "support/pretend_device.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "blas/blas.h"
#include "core/memory.h"
#include "core/status.h"
#include "kernels/kernels.h"

#define PAGE ((size_t)4096)
#define SPACE ((size_t)1 << 36) /* address space, bytes, reserved once */
#define PATTERN 0xa5

struct block {
  size_t page, pages; /* pages of the file */
  size_t start, bytes; /* the caller's part: bytes in the file */
  const char *what;
  struct block *next;
};

struct pretend {
  struct trm_device cpu;
  char *seen, *real;
  int file;
  size_t used; /* pages */
  struct block *blocks;
};

_Noreturn static void __attribute__((format(printf, 1, 2))) pretend_fail(const char *format, ...)
{
  va_list list;

  fputs("pretend device: ", stderr);
  va_start(list, format);
  vfprintf(stderr, format, list);
  va_end(list);
  fputc('\n', stderr);
  abort();
}

static struct pretend *pretend_of(const struct trm_device *device)
{
  return device->impl;
}

static bool pretend_within(const char *space, const void *pointer)
{
  return (uintptr_t)pointer >= (uintptr_t)space && (uintptr_t)pointer < (uintptr_t)space + SPACE;
}

/* Translates a device address into the address at `real`; NULL stays NULL. */
static void *pretend_real(const struct trm_device *device, const char *call, const void *pointer, size_t bytes)
{
  const struct pretend *p = pretend_of(device);

  if (!pointer)
    return NULL;
  if (!pretend_within(p->seen, pointer))
    pretend_fail("%s: %p is not a device pointer", call, pointer);
  const size_t offset = (size_t)((const char *)pointer - p->seen);
  for (const struct block *b = p->blocks; b; b = b->next)
    if (offset >= b->start && offset + bytes <= b->start + b->bytes)
      return p->real + offset;
  pretend_fail("%s: the %zu bytes at device pointer %p do not lie in one block of this device", call, bytes, pointer);
}

static const void *pretend_host(const struct trm_device *device, const char *call, const void *pointer)
{
  const struct pretend *p = pretend_of(device);

  if (pretend_within(p->seen, pointer) || pretend_within(p->real, pointer))
    pretend_fail("%s: %p is not a host pointer", call, pointer);
  return pointer;
}

static int pretend_open(struct trm_device *device, int index, int threads, const struct trm_blas_ops *blas)
{
  struct pretend *p = trm_alloc(sizeof(*p), "pretend device");

  TRM_CHECK(trm_device_open(&p->cpu, "cpu", blas->name, blas->matmul, index, threads));
  p->file = memfd_create("pretend device", MFD_CLOEXEC);
  if (p->file < 0 || ftruncate(p->file, SPACE) != 0)
    return trm_error(TRM_FAILED, "pretend device: no memory file");
  p->seen = mmap(NULL, SPACE, PROT_NONE, MAP_SHARED | MAP_NORESERVE, p->file, 0);
  p->real = mmap(NULL, SPACE, PROT_NONE, MAP_SHARED | MAP_NORESERVE, p->file, 0);
  if (p->seen == MAP_FAILED || p->real == MAP_FAILED)
    return trm_error(TRM_FAILED, "pretend device: no addresses");
  p->used = 1;
  device->impl = p;
  device->blas = p->cpu.blas;
  device->threads = p->cpu.threads;
  device->host_memory = false;
  return TRM_OK;
}

static int pretend_alloc(struct trm_device *device, size_t bytes, enum trm_memory_use use, void **memory)
{
  struct pretend *p = pretend_of(device);
  const char *what = trm_memory_name(use);
  struct block *b = trm_alloc(sizeof(*b), "pretend device: block");
  const size_t padded = bytes ? (bytes + TRM_ALIGNMENT - 1) / TRM_ALIGNMENT * TRM_ALIGNMENT : TRM_ALIGNMENT;

  b->page = p->used;
  b->pages = (padded + PAGE - 1) / PAGE;
  b->start = (b->page + b->pages) * PAGE - padded;
  b->bytes = bytes;
  b->what = what;
  b->next = p->blocks;
  p->blocks = b;
  p->used += b->pages + 1;
  if (p->used * PAGE > SPACE || mprotect(p->real + b->page * PAGE, b->pages * PAGE, PROT_READ | PROT_WRITE) != 0)
    pretend_fail("alloc: no room for %zu bytes (%s)", bytes, what);
  memset(p->real + b->page * PAGE, PATTERN, b->start - b->page * PAGE);
  memset(p->real + b->start + bytes, PATTERN, padded - bytes);
  *memory = p->seen + b->start;
  return TRM_OK;
}

static void pretend_check_pattern(const struct block *b, const char *real, size_t from, size_t to)
{
  for (size_t i = from; i < to; i++)
    if ((unsigned char)real[i] != PATTERN)
      pretend_fail("release: something was written %s the block of %zu bytes (%s)", i < b->start ? "before" : "behind",
                   b->bytes, b->what);
}

static void pretend_release(struct trm_device *device, void *memory)
{
  struct pretend *p = pretend_of(device);
  const size_t offset = (size_t)((char *)memory - p->seen);

  if (!memory)
    return;
  for (struct block **link = &p->blocks; *link; link = &(*link)->next) {
    struct block *b = *link;

    if (b->start != offset)
      continue;
    pretend_check_pattern(b, p->real, b->page * PAGE, b->start);
    pretend_check_pattern(b, p->real, b->start + b->bytes, (b->page + b->pages) * PAGE);
    mprotect(p->real + b->page * PAGE, b->pages * PAGE, PROT_NONE);
    fallocate(p->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(b->page * PAGE), (off_t)(b->pages * PAGE));
    *link = b->next;
    trm_free(b);
    return;
  }
  pretend_fail("release: %p is not the start of a block of this device", memory);
}

static void pretend_close(struct trm_device *device)
{
  struct pretend *p = pretend_of(device);

  while (p->blocks) {
    fprintf(stderr, "pretend device: close: %zu bytes (%s) were not released\n", p->blocks->bytes, p->blocks->what);
    pretend_release(device, p->seen + p->blocks->start);
  }
  munmap(p->seen, SPACE);
  munmap(p->real, SPACE);
  close(p->file);
  trm_device_close(&p->cpu);
  trm_free(p);
}

/* -- device operations: each checks and translates its device pointers, then calls the CPU's */

#define CPU (&pretend_of(device)->cpu)
#define REAL(pointer, bytes) pretend_real(device, __func__, pointer, bytes)
#define FLOATS(pointer, n) ((float *)REAL(pointer, (n) * sizeof(float)))

static void pretend_upload(struct trm_device *device, void *to, const void *host, size_t bytes)
{
  CPU->ops->upload(CPU, REAL(to, bytes), pretend_host(device, __func__, host), bytes);
}

static void pretend_download(struct trm_device *device, void *host, const void *from, size_t bytes)
{
  pretend_host(device, __func__, host);
  CPU->ops->download(CPU, host, REAL(from, bytes), bytes);
}

static void pretend_copy(struct trm_device *device, void *to, const void *from, size_t bytes)
{
  CPU->ops->copy(CPU, REAL(to, bytes), REAL(from, bytes), bytes);
}

static void pretend_fill(struct trm_device *device, float *to, float value, size_t n)
{
  CPU->ops->fill(CPU, FLOATS(to, n), value, n);
}

static int pretend_sync(struct trm_device *device)
{
  return CPU->ops->sync(CPU);
}

/* Floats spanned by a matrix with a leading dimension. */
static size_t pretend_extent(size_t rows, size_t columns, size_t ld)
{
  return rows && columns ? (rows - 1) * ld + columns : 0;
}

static void pretend_gemm(struct trm_device *device, bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k,
                         float alpha, const float *a, size_t lda, const float *b, size_t ldb, float beta, float *c,
                         size_t ldc)
{
  CPU->ops->gemm(CPU, transpose_a, transpose_b, m, n, k, alpha,
                 FLOATS(a, transpose_a ? pretend_extent(k, m, lda) : pretend_extent(m, k, lda)), lda,
                 FLOATS(b, transpose_b ? pretend_extent(n, k, ldb) : pretend_extent(k, n, ldb)), ldb, beta,
                 FLOATS(c, pretend_extent(m, n, ldc)), ldc);
}

static struct trm_csr pretend_csr(struct trm_device *device, const char *call, const struct trm_csr *x)
{
  struct trm_csr real = *x;

  real.starts = pretend_real(device, call, x->starts, (x->rows + 1) * sizeof(*x->starts));
  const size_t entries = (size_t)(real.starts[x->rows] - real.starts[0]);
  real.columns = pretend_real(device, call, x->columns, entries * sizeof(*x->columns));
  real.values = pretend_real(device, call, x->values, entries * sizeof(*x->values));
  return real;
}

static void pretend_csr_forward(struct trm_device *device, const struct trm_csr *x, const float *w, float *y, size_t n)
{
  const struct trm_csr real = pretend_csr(device, __func__, x);

  CPU->ops->csr_forward(CPU, &real, FLOATS(w, n * x->features), FLOATS(y, x->rows * n), n);
}

static void pretend_csr_backward(struct trm_device *device, const struct trm_csr *x, const float *dy, float beta,
                                 float *dw, size_t n)
{
  const struct trm_csr real = pretend_csr(device, __func__, x);

  CPU->ops->csr_backward(CPU, &real, FLOATS(dy, x->rows * n), beta, FLOATS(dw, n * x->features), n);
}

static void pretend_bias_add(struct trm_device *device, float *y, const float *bias, size_t b, size_t n)
{
  CPU->ops->bias_add(CPU, FLOATS(y, b * n), FLOATS(bias, n), b, n);
}

static void pretend_bias_backward(struct trm_device *device, const float *dy, float beta, float *db, size_t b, size_t n)
{
  CPU->ops->bias_backward(CPU, FLOATS(dy, b * n), beta, FLOATS(db, n), b, n);
}

static void pretend_activation_forward(struct trm_device *device, enum trm_activation kind, const float *x, float *y,
                                       size_t n)
{
  CPU->ops->activation_forward(CPU, kind, FLOATS(x, n), FLOATS(y, n), n);
}

static void pretend_activation_backward(struct trm_device *device, enum trm_activation kind, const float *x,
                                        const float *y, const float *dy, float *dx, size_t n)
{
  CPU->ops->activation_backward(CPU, kind, FLOATS(x, n), FLOATS(y, n), FLOATS(dy, n), FLOATS(dx, n), n);
}

static void pretend_dropout(struct trm_device *device, const struct trm_mask *mask, const float *x, float *y, size_t b,
                            size_t f)
{
  CPU->ops->dropout(CPU, mask, FLOATS(x, b * f), FLOATS(y, b * f), b, f);
}

static void pretend_norm_forward(struct trm_device *device, const float *x, const float *gain, const float *bias,
                                 float epsilon, float *y, float *mean, float *scale, size_t r, size_t d)
{
  CPU->ops->norm_forward(CPU, FLOATS(x, r * d), FLOATS(gain, d), FLOATS(bias, d), epsilon, FLOATS(y, r * d),
                         FLOATS(mean, r), FLOATS(scale, r), r, d);
}

static void pretend_norm_backward(struct trm_device *device, const float *x, const float *gain, const float *mean,
                                  const float *scale, const float *dy, float *dx, float beta, float *dgain,
                                  float *dbias, size_t r, size_t d)
{
  CPU->ops->norm_backward(CPU, FLOATS(x, r * d), FLOATS(gain, d), FLOATS(mean, r), FLOATS(scale, r), FLOATS(dy, r * d),
                          FLOATS(dx, r * d), beta, FLOATS(dgain, d), FLOATS(dbias, d), r, d);
}

static void pretend_embedding_forward(struct trm_device *device, const int32_t *token, const float *w, float *y,
                                      size_t r, size_t d, const struct trm_vocab_shard *v)
{
  pretend_host(device, __func__, v);
  CPU->ops->embedding_forward(CPU, REAL(token, r * sizeof(*token)), FLOATS(w, (v->high - v->low) * d), FLOATS(y, r * d),
                              r, d, v);
}

static void pretend_embedding_backward(struct trm_device *device, const int32_t *token, const float *dy, float beta,
                                       float *dw, size_t r, size_t d, const struct trm_vocab_shard *v)
{
  pretend_host(device, __func__, v);
  CPU->ops->embedding_backward(CPU, REAL(token, r * sizeof(*token)), FLOATS(dy, r * d), beta,
                               FLOATS(dw, (v->high - v->low) * d), r, d, v);
}

static void pretend_attention_forward(struct trm_device *device, const struct trm_attention *shape, const float *qkv,
                                      float *y, float *row)
{
  const size_t n = shape->b * shape->t * shape->heads;

  pretend_host(device, __func__, shape);
  CPU->ops->attention_forward(CPU, shape, FLOATS(qkv, 3 * n * shape->head_dim), FLOATS(y, n * shape->head_dim),
                              FLOATS(row, 2 * n));
}

static void pretend_attention_backward(struct trm_device *device, const struct trm_attention *shape, const float *qkv,
                                       const float *row, const float *dy, float *dqkv)
{
  const size_t n = shape->b * shape->t * shape->heads;

  pretend_host(device, __func__, shape);
  CPU->ops->attention_backward(CPU, shape, FLOATS(qkv, 3 * n * shape->head_dim), FLOATS(row, 2 * n),
                               FLOATS(dy, n * shape->head_dim), FLOATS(dqkv, 3 * n * shape->head_dim));
}

static void pretend_rotary(struct trm_device *device, const struct trm_attention *shape, float base, bool back,
                           float *x)
{
  pretend_host(device, __func__, shape);
  CPU->ops->rotary(CPU, shape, base, back, FLOATS(x, 3 * shape->b * shape->t * shape->heads * shape->head_dim));
}

static void pretend_swiglu_forward(struct trm_device *device, const float *x, float *y, size_t r, size_t f)
{
  CPU->ops->swiglu_forward(CPU, FLOATS(x, 2 * r * f), FLOATS(y, r * f), r, f);
}

static void pretend_swiglu_backward(struct trm_device *device, const float *x, const float *dy, float *dx, size_t r,
                                    size_t f)
{
  CPU->ops->swiglu_backward(CPU, FLOATS(x, 2 * r * f), FLOATS(dy, r * f), FLOATS(dx, 2 * r * f), r, f);
}

/* Floats of a batch of images at the input and the output of a window operation. */
static size_t pretend_in(const struct trm_window2d *window, size_t planes)
{
  return planes * window->in[0] * window->in[1];
}

static size_t pretend_out(const struct trm_window2d *window, size_t planes)
{
  return planes * window->out[0] * window->out[1];
}

static size_t pretend_weights(const struct trm_conv2d *conv)
{
  return conv->units * (conv->channels / conv->groups) * conv->window.kernel[0] * conv->window.kernel[1];
}

static void pretend_conv2d_forward(struct trm_device *device, const struct trm_conv2d *conv, const float *x,
                                   const float *w, const float *bias, float *y, size_t b)
{
  pretend_host(device, __func__, conv);
  CPU->ops->conv2d_forward(CPU, conv, FLOATS(x, pretend_in(&conv->window, b * conv->channels)),
                           FLOATS(w, pretend_weights(conv)), FLOATS(bias, conv->units),
                           FLOATS(y, pretend_out(&conv->window, b * conv->units)), b);
}

static void pretend_conv2d_backward_data(struct trm_device *device, const struct trm_conv2d *conv, const float *dy,
                                         const float *w, float *dx, size_t b)
{
  pretend_host(device, __func__, conv);
  CPU->ops->conv2d_backward_data(CPU, conv, FLOATS(dy, pretend_out(&conv->window, b * conv->units)),
                                 FLOATS(w, pretend_weights(conv)),
                                 FLOATS(dx, pretend_in(&conv->window, b * conv->channels)), b);
}

static void pretend_conv2d_backward_weights(struct trm_device *device, const struct trm_conv2d *conv, const float *x,
                                            const float *dy, float beta, float *dw, float *db, size_t b)
{
  pretend_host(device, __func__, conv);
  CPU->ops->conv2d_backward_weights(CPU, conv, FLOATS(x, pretend_in(&conv->window, b * conv->channels)),
                                    FLOATS(dy, pretend_out(&conv->window, b * conv->units)), beta,
                                    FLOATS(dw, pretend_weights(conv)), FLOATS(db, conv->units), b);
}

static void pretend_max_pool_forward(struct trm_device *device, const struct trm_window2d *pool, const float *x,
                                     float *y, int32_t *at, size_t planes)
{
  pretend_host(device, __func__, pool);
  CPU->ops->max_pool_forward(CPU, pool, FLOATS(x, pretend_in(pool, planes)), FLOATS(y, pretend_out(pool, planes)),
                             REAL(at, pretend_out(pool, planes) * sizeof(*at)), planes);
}

static void pretend_max_pool_backward(struct trm_device *device, const struct trm_window2d *pool, const float *dy,
                                      const int32_t *at, float *dx, size_t planes)
{
  pretend_host(device, __func__, pool);
  CPU->ops->max_pool_backward(CPU, pool, FLOATS(dy, pretend_out(pool, planes)),
                              REAL(at, pretend_out(pool, planes) * sizeof(*at)), FLOATS(dx, pretend_in(pool, planes)),
                              planes);
}

static void pretend_avg_pool_forward(struct trm_device *device, const struct trm_window2d *pool, const float *x,
                                     float *y, size_t planes)
{
  pretend_host(device, __func__, pool);
  CPU->ops->avg_pool_forward(CPU, pool, FLOATS(x, pretend_in(pool, planes)), FLOATS(y, pretend_out(pool, planes)),
                             planes);
}

static void pretend_avg_pool_backward(struct trm_device *device, const struct trm_window2d *pool, const float *dy,
                                      float *dx, size_t planes)
{
  pretend_host(device, __func__, pool);
  CPU->ops->avg_pool_backward(CPU, pool, FLOATS(dy, pretend_out(pool, planes)), FLOATS(dx, pretend_in(pool, planes)),
                              planes);
}

static void pretend_batch_norm_moments(struct trm_device *device, const struct trm_batch_norm *bn, const float *x,
                                       float *moments, size_t b)
{
  pretend_host(device, __func__, bn);
  CPU->ops->batch_norm_moments(CPU, bn, FLOATS(x, b * bn->channels * bn->size), FLOATS(moments, 2 * bn->channels), b);
}

static void pretend_batch_norm_forward(struct trm_device *device, const struct trm_batch_norm *bn, const float *x,
                                       const float *mean, const float *square, const float *w, const float *bias,
                                       float *y, size_t b)
{
  const size_t c = bn->channels, n = b * c * bn->size;

  pretend_host(device, __func__, bn);
  CPU->ops->batch_norm_forward(CPU, bn, FLOATS(x, n), FLOATS(mean, c), FLOATS(square, c), FLOATS(w, c), FLOATS(bias, c),
                               FLOATS(y, n), b);
}

static void pretend_batch_norm_sums(struct trm_device *device, const struct trm_batch_norm *bn, const float *x,
                                    const float *mean, const float *square, const float *dy, float *sums, size_t b)
{
  const size_t c = bn->channels, n = b * c * bn->size;

  pretend_host(device, __func__, bn);
  CPU->ops->batch_norm_sums(CPU, bn, FLOATS(x, n), FLOATS(mean, c), FLOATS(square, c), FLOATS(dy, n),
                            FLOATS(sums, 2 * c), b);
}

static void pretend_batch_norm_backward(struct trm_device *device, const struct trm_batch_norm *bn, const float *x,
                                        const float *mean, const float *square, const float *w, const float *dy,
                                        const float *sums, float *dx, size_t b)
{
  const size_t c = bn->channels, n = b * c * bn->size;

  pretend_host(device, __func__, bn);
  CPU->ops->batch_norm_backward(CPU, bn, FLOATS(x, n), FLOATS(mean, c), FLOATS(square, c), FLOATS(w, c), FLOATS(dy, n),
                                FLOATS(sums, 2 * c), FLOATS(dx, n), b);
}

static void pretend_softmax_cross_entropy(struct trm_device *device, const float *z, const int32_t *target, float scale,
                                          float smoothing, float *loss, float *correct, float *dz, size_t b, size_t c)
{
  CPU->ops->softmax_cross_entropy(CPU, FLOATS(z, b * c), REAL(target, b * sizeof(*target)), scale, smoothing,
                                  FLOATS(loss, b), FLOATS(correct, b), FLOATS(dz, b * c), b, c);
}

static void pretend_softmax_part(struct trm_device *device, const float *z, const int32_t *target,
                                 const struct trm_vocab_shard *v, float *part, size_t b)
{
  pretend_host(device, __func__, v);
  CPU->ops->softmax_shard_stats(CPU, FLOATS(z, b * (v->high - v->low)), REAL(target, b * sizeof(*target)), v,
                                FLOATS(part, b * TRM_SCORES_FIELDS), b);
}

static void pretend_softmax_part_gradient(struct trm_device *device, const float *z, const int32_t *target,
                                          const struct trm_vocab_shard *v, const float *max, const float *sum,
                                          float scale, float smoothing, float *dz, size_t b)
{
  const size_t c = v->high - v->low;

  pretend_host(device, __func__, v);
  CPU->ops->softmax_shard_gradient(CPU, FLOATS(z, b * c), REAL(target, b * sizeof(*target)), v, FLOATS(max, b),
                                   FLOATS(sum, b), scale, smoothing, FLOATS(dz, b * c), b);
}

static void pretend_mean_squared_error(struct trm_device *device, const float *z, const float *target, float scale,
                                       float *loss, float *correct, float *dz, size_t b, size_t f)
{
  CPU->ops->mean_squared_error(CPU, FLOATS(z, b * f), FLOATS(target, b * f), scale, FLOATS(loss, b), FLOATS(correct, b),
                               FLOATS(dz, b * f), b, f);
}

static void pretend_logistic(struct trm_device *device, const float *z, const float *target, float scale, float *loss,
                             float *correct, float *dz, size_t b)
{
  CPU->ops->logistic(CPU, FLOATS(z, b), FLOATS(target, b), scale, FLOATS(loss, b), FLOATS(correct, b), FLOATS(dz, b),
                     b);
}

static void pretend_hinge(struct trm_device *device, const float *z, const float *target, float scale, float *loss,
                          float *correct, float *dz, size_t b)
{
  CPU->ops->hinge(CPU, FLOATS(z, b), FLOATS(target, b), scale, FLOATS(loss, b), FLOATS(correct, b), FLOATS(dz, b), b);
}

static void pretend_sum(struct trm_device *device, float *to, const float *const *from, int count, size_t n)
{
  const float **real = trm_alloc((size_t)(count > 0 ? count : 0) * sizeof(*real), "pretend device: sum");

  pretend_host(device, __func__, from);
  for (int i = 0; i < count; i++)
    real[i] = FLOATS(from[i], n);
  CPU->ops->sum(CPU, FLOATS(to, n), real, count, n);
  trm_free(real);
}

static double pretend_norm_squared(struct trm_device *device, const float *x, size_t n)
{
  return CPU->ops->norm_squared(CPU, FLOATS(x, n), n);
}

static void pretend_update(struct trm_device *device, const struct trm_update *update, float *w, const float *g,
                           float *first, float *second, size_t n)
{
  CPU->ops->update(CPU, update, FLOATS(w, n), FLOATS(g, n), FLOATS(first, n), FLOATS(second, n), n);
}

static void pretend_direction(struct trm_device *device, const struct trm_update *update, const float *w, float *g,
                              float *first, float *second, size_t n)
{
  CPU->ops->lamb_direction(CPU, update, FLOATS(w, n), FLOATS(g, n), FLOATS(first, n), FLOATS(second, n), n);
}

const struct trm_device_ops pretend_device_ops = {
  .name = "pretend",
  .open = pretend_open,
  .close = pretend_close,
  .alloc = pretend_alloc,
  .release = pretend_release,
  .upload = pretend_upload,
  .download = pretend_download,
  .copy = pretend_copy,
  .fill = pretend_fill,
  .sync = pretend_sync,
  .gemm = pretend_gemm,
  .csr_forward = pretend_csr_forward,
  .csr_backward = pretend_csr_backward,
  .bias_add = pretend_bias_add,
  .bias_backward = pretend_bias_backward,
  .activation_forward = pretend_activation_forward,
  .activation_backward = pretend_activation_backward,
  .dropout = pretend_dropout,
  .norm_forward = pretend_norm_forward,
  .norm_backward = pretend_norm_backward,
  .embedding_forward = pretend_embedding_forward,
  .embedding_backward = pretend_embedding_backward,
  .attention_forward = pretend_attention_forward,
  .attention_backward = pretend_attention_backward,
  .rotary = pretend_rotary,
  .swiglu_forward = pretend_swiglu_forward,
  .swiglu_backward = pretend_swiglu_backward,
  .conv2d_forward = pretend_conv2d_forward,
  .conv2d_backward_data = pretend_conv2d_backward_data,
  .conv2d_backward_weights = pretend_conv2d_backward_weights,
  .max_pool_forward = pretend_max_pool_forward,
  .max_pool_backward = pretend_max_pool_backward,
  .avg_pool_forward = pretend_avg_pool_forward,
  .avg_pool_backward = pretend_avg_pool_backward,
  .batch_norm_moments = pretend_batch_norm_moments,
  .batch_norm_forward = pretend_batch_norm_forward,
  .batch_norm_sums = pretend_batch_norm_sums,
  .batch_norm_backward = pretend_batch_norm_backward,
  .softmax_cross_entropy = pretend_softmax_cross_entropy,
  .softmax_shard_stats = pretend_softmax_part,
  .softmax_shard_gradient = pretend_softmax_part_gradient,
  .mean_squared_error = pretend_mean_squared_error,
  .logistic = pretend_logistic,
  .hinge = pretend_hinge,
  .sum = pretend_sum,
  .norm_squared = pretend_norm_squared,
  .update = pretend_update,
  .lamb_direction = pretend_direction,
};

int pretend_device_open(struct trm_device *device, int threads)
{
  *device = (struct trm_device){.ops = &pretend_device_ops};
  return device->ops->open(device, 0, threads, trm_blas_table[0]);
}

struct trm_device *pretend_device_cpu(struct trm_device *device)
{
  return &pretend_of(device)->cpu;
}

void pretend_device_close(struct trm_device *device)
{
  trm_device_close(device);
}
