/* Matrix products by oneDNN (dnnl.h), versions 2 and 3, in float32 and with factors rounded to bfloat16. The library
 * computes with one thread, the threads are ours (product.h).
 *
 * bfloat16 (8 bits of exponent, 8 of mantissa) where the processor multiplies such pairs natively: the factors are
 * rounded, to nearest and ties to even, into work memory for the product at hand; sums and C are float32. A product is
 * many times larger than its factors, so the rounding costs little (README.md).
 *
 * The library compiles a primitive for every shape. Each thread keeps those that it needs, with memory objects of its
 * own: nothing is locked, and nothing is made twice. */
#include <dnnl.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "blas/blas.h"
#include "blas/product.h"
#include "core/clones.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

enum { SHAPES = 512, TRIES = 16 };
/* The library orders the sums of an element by the extents of C: blocks must not depend on the number of threads. */
static const struct product_cut cut = {16, 1 << 24};
/* Rows of rounded factors begin at cache lines. */
enum { LINE = 64 / sizeof(uint16_t) };
/* Below this many elements waking threads costs more than it saves. */
#define PARALLEL_LEAST ((size_t)1 << 15)

/* What a primitive is made for. All bits count: no padding. */
struct shape {
  size_t m, n, k, lda, ldb, ldc;
  float alpha, beta;
  uint32_t transpose_a, transpose_b;
};

enum { A, B, C, SCRATCH, PLACES };
struct entry {
  struct shape shape;
  dnnl_primitive_t primitive; /* NULL: the entry is free */
  dnnl_memory_t memory[PLACES];
  size_t scratch_bytes;
};

struct room {
  void *at;
  size_t bytes;
};

/* What a thread owns. */
struct worker {
  dnnl_stream_t stream;
  struct entry entry[SHAPES];
  struct room scratch;
  struct room factor[2]; /* A and B, rounded; outside of parallel regions those of worker 0 are everybody's */
};

static dnnl_engine_t engine;
static struct worker *worker; /* (workers); kept until the process ends */
static int workers, blas_threads = 1; /* made so far; used */

static const char *words_of(dnnl_status_t status)
{
  switch (status) {
  case dnnl_out_of_memory:
    return "out of memory";
  case dnnl_invalid_arguments:
    return "invalid arguments";
  case dnnl_unimplemented:
    return "not implemented for this processor";
  default:
    return "failed";
  }
}

#define DNNL_CHECK(call)                                                                 \
  do {                                                                                   \
    const dnnl_status_t dnnl_check_status = (call);                                      \
    if (dnnl_check_status != dnnl_success)                                               \
      return trm_error(TRM_FAILED, "oneDNN: %s: %s", #call, words_of(dnnl_check_status)); \
  } while (0)

/* In the middle of a product: nobody could go on. */
static void must(int status)
{
  if (status == TRM_OK)
    return;
  trm_log_error();
  trm_abort(status);
}

/* -- primitives */

/* The two versions describe arrays and primitives in different words. View: what both take for an array. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t view;
typedef dnnl_memory_desc_t description;
#define VIEW(d) (d)

static int describe(description *to, dnnl_data_type_t type, const dnnl_dims_t size, const dnnl_dims_t step)
{
  DNNL_CHECK(dnnl_memory_desc_create_with_strides(to, 2, size, type, step));
  return TRM_OK;
}

static int matmul_describe(dnnl_primitive_desc_t *to, const description *array, const_dnnl_primitive_attr_t how)
{
  DNNL_CHECK(dnnl_matmul_primitive_desc_create(to, engine, array[A], array[B], NULL, array[C], how));
  return TRM_OK;
}

static void forget(description *d)
{
  dnnl_memory_desc_destroy(*d);
}

static size_t view_bytes(view of)
{
  return dnnl_memory_desc_get_size(of);
}

static int scale(dnnl_post_ops_t what, float alpha)
{
  DNNL_CHECK(dnnl_post_ops_append_eltwise(what, dnnl_eltwise_linear, alpha, 0));
  return TRM_OK;
}

static int add_to(dnnl_post_ops_t what, float beta)
{
  DNNL_CHECK(dnnl_post_ops_append_sum(what, beta, 0, dnnl_data_type_undef));
  return TRM_OK;
}
#else
typedef const dnnl_memory_desc_t *view;
typedef dnnl_memory_desc_t description;
#define VIEW(d) (&(d))

static int describe(description *to, dnnl_data_type_t type, const dnnl_dims_t size, const dnnl_dims_t step)
{
  DNNL_CHECK(dnnl_memory_desc_init_by_strides(to, 2, size, type, step));
  return TRM_OK;
}

static int matmul_describe(dnnl_primitive_desc_t *to, const description *array, const_dnnl_primitive_attr_t how)
{
  dnnl_matmul_desc_t product;

  DNNL_CHECK(dnnl_matmul_desc_init(&product, &array[A], &array[B], NULL, &array[C]));
  DNNL_CHECK(dnnl_primitive_desc_create(to, &product, how, engine, NULL));
  return TRM_OK;
}

static void forget(description *d)
{
  (void)d; /* it owns nothing */
}

static size_t view_bytes(view of)
{
  return dnnl_memory_desc_get_size(of);
}

static int scale(dnnl_post_ops_t what, float alpha)
{
  DNNL_CHECK(dnnl_post_ops_append_eltwise(what, 1, dnnl_eltwise_linear, alpha, 0));
  return TRM_OK;
}

static int add_to(dnnl_post_ops_t what, float beta)
{
  DNNL_CHECK(dnnl_post_ops_append_sum(what, beta));
  return TRM_OK;
}
#endif

/* Frees what an entry owns; it may be half made. */
static void entry_close(struct entry *entry)
{
  for (int i = 0; i < PLACES; i++)
    if (entry->memory[i])
      dnnl_memory_destroy(entry->memory[i]);
  if (entry->primitive)
    dnnl_primitive_destroy(entry->primitive);
  *entry = (struct entry){.primitive = NULL};
}

static int attributes_make(dnnl_primitive_attr_t how, dnnl_post_ops_t after, const struct shape *s)
{
  DNNL_CHECK(dnnl_primitive_attr_set_scratchpad_mode(how, dnnl_scratchpad_mode_user));
  if (s->alpha != 1)
    TRM_CHECK(scale(after, s->alpha));
  if (s->beta != 0)
    TRM_CHECK(add_to(after, s->beta));
  DNNL_CHECK(dnnl_primitive_attr_set_post_ops(how, after));
  return TRM_OK;
}

static int primitive_make(struct entry *entry, const description *array, dnnl_primitive_desc_t made)
{
  const view scratch = dnnl_primitive_desc_query_md(made, dnnl_query_scratchpad_md, 0);

  entry->scratch_bytes = view_bytes(scratch);
  for (int i = A; i <= C; i++)
    DNNL_CHECK(dnnl_memory_create(&entry->memory[i], VIEW(array[i]), engine, DNNL_MEMORY_NONE));
  DNNL_CHECK(dnnl_memory_create(&entry->memory[SCRATCH], scratch, engine, DNNL_MEMORY_NONE));
  DNNL_CHECK(dnnl_primitive_create(&entry->primitive, made));
  return TRM_OK;
}

static int entry_make(struct entry *entry, const struct shape *s)
{
  const dnnl_dim_t m = (dnnl_dim_t)s->m, n = (dnnl_dim_t)s->n, k = (dnnl_dim_t)s->k;
  const dnnl_dim_t lda = (dnnl_dim_t)s->lda, ldb = (dnnl_dim_t)s->ldb, ldc = (dnnl_dim_t)s->ldc;
  const dnnl_dims_t size[] = {{m, k}, {k, n}, {m, n}};
  const dnnl_dims_t step[] = {{s->transpose_a ? 1 : lda, s->transpose_a ? lda : 1},
                              {s->transpose_b ? 1 : ldb, s->transpose_b ? ldb : 1},
                              {ldc, 1}};
  description array[3];
  dnnl_primitive_attr_t how = NULL;
  dnnl_post_ops_t after = NULL;
  dnnl_primitive_desc_t made = NULL;
  int described = 0, status = TRM_OK;

  for (; described < 3 && status == TRM_OK; described += status == TRM_OK)
    status = describe(&array[described], described == C ? dnnl_f32 : dnnl_bf16, size[described], step[described]);
  if (status == TRM_OK && (dnnl_primitive_attr_create(&how) || dnnl_post_ops_create(&after)))
    status = trm_error(TRM_FAILED, "oneDNN: out of memory");
  if (status == TRM_OK)
    status = attributes_make(how, after, s);
  if (status == TRM_OK)
    status = matmul_describe(&made, array, how);
  if (status == TRM_OK)
    status = primitive_make(entry, array, made);
  entry->shape = *s;
  if (status != TRM_OK)
    entry_close(entry);
  if (made)
    dnnl_primitive_desc_destroy(made);
  if (after)
    dnnl_post_ops_destroy(after);
  if (how)
    dnnl_primitive_attr_destroy(how);
  while (described > 0)
    forget(&array[--described]);
  return status;
}

/* The worker's entry for the shape, made if there is none. */
static struct entry *entry_find(struct worker *own, const struct shape *s)
{
  size_t hash = 0;
  const size_t part[] = {s->m, s->n, s->k, s->lda, s->ldb, s->ldc, s->transpose_a, s->transpose_b, s->beta != 0};

  for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++)
    hash = (hash ^ part[i]) * 0x9e3779b97f4a7c15u;
  hash >>= 32;
  struct entry *entry = &own->entry[hash % SHAPES];
  for (size_t i = 0; i < TRIES; i++) {
    entry = &own->entry[(hash + i) % SHAPES];
    if (!entry->primitive)
      break;
    if (!memcmp(&entry->shape, s, sizeof(*s)))
      return entry;
  }
  entry_close(entry); /* free already, or the last that was tried */
  must(entry_make(entry, s));
  return entry;
}

/* -- products */

static void *room_for(struct room *room, size_t bytes, const char *what)
{
  if (room->bytes < bytes) {
    trm_free(room->at);
    room->at = trm_alloc(bytes, what);
    room->bytes = bytes;
  }
  return room->at;
}

/* The library asks OpenMP how many threads it may use. */
static int threads_one(void)
{
  const int before = omp_get_max_threads();

  omp_set_num_threads(1);
  return before;
}

static void multiply_f32(const struct product *p, const struct block *block, int thread)
{
  const int before = threads_one();
  const dnnl_status_t status =
    dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', (dnnl_dim_t)(block->bottom - block->top),
               (dnnl_dim_t)(block->right - block->left), (dnnl_dim_t)p->k, p->alpha,
               (const float *)p->a + block_a(p, block), (dnnl_dim_t)p->lda, (const float *)p->b + block_b(p, block),
               (dnnl_dim_t)p->ldb, p->beta, p->c + block->top * p->ldc + block->left, (dnnl_dim_t)p->ldc);

  (void)thread;
  omp_set_num_threads(before);
  if (status != dnnl_success)
    must(trm_error(TRM_FAILED, "oneDNN: a product (%zu, %zu) x (%zu, %zu): %s", p->m, p->k, p->k, p->n,
                   words_of(status)));
}

static int execute(const struct product *p, const struct block *block, struct worker *own)
{
  struct shape s;

  memset(&s, 0, sizeof(s));
  s.m = block->bottom - block->top;
  s.n = block->right - block->left;
  s.k = p->k;
  s.lda = p->lda;
  s.ldb = p->ldb;
  s.ldc = p->ldc;
  s.alpha = p->alpha;
  s.beta = p->beta;
  s.transpose_a = p->transpose_a;
  s.transpose_b = p->transpose_b;
  const struct entry *entry = entry_find(own, &s);
  void *at[PLACES] = {(uint16_t *)p->a + block_a(p, block), (uint16_t *)p->b + block_b(p, block),
                      p->c + block->top * p->ldc + block->left,
                      room_for(&own->scratch, entry->scratch_bytes, "oneDNN's work memory")};
  for (int i = 0; i < PLACES; i++)
    DNNL_CHECK(dnnl_memory_set_data_handle(entry->memory[i], at[i]));
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, entry->memory[A]},
                                       {DNNL_ARG_WEIGHTS, entry->memory[B]},
                                       {DNNL_ARG_DST, entry->memory[C]},
                                       {DNNL_ARG_SCRATCHPAD, entry->memory[SCRATCH]}};
  DNNL_CHECK(dnnl_primitive_execute(entry->primitive, own->stream, PLACES, arguments));
  DNNL_CHECK(dnnl_stream_wait(own->stream));
  return TRM_OK;
}

static void multiply_bf16(const struct product *p, const struct block *block, int thread)
{
  const int before = threads_one();

  must(execute(p, block, &worker[thread]));
  omp_set_num_threads(before);
}

/* To the nearest of the numbers with 8 bits of mantissa, of two equally near ones the even; NaN stays one. */
CPU_CLONES static void bf16_round_row(const float *from, uint16_t *to, size_t n)
{
#pragma omp simd
  for (size_t i = 0; i < n; i++) {
    uint32_t word;

    memcpy(&word, from + i, sizeof(word));
    const uint32_t rounded = (word + 0x7fff + (word >> 16 & 1)) >> 16, quiet = word >> 16 | 0x40;
    to[i] = (uint16_t)((word & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
  }
}

/* rows x columns of a factor, rounded to rows of *ld; memory of the room. */
static const uint16_t *factor_round(struct room *room, const float *from, size_t rows, size_t columns, size_t *ld)
{
  const size_t wide = (columns + LINE - 1) / LINE * LINE, was = *ld;
  uint16_t *to = room_for(room, rows * wide * sizeof(*to), "a factor in bfloat16");

#pragma omp parallel for schedule(static) num_threads(blas_threads) \
  if (!omp_in_parallel() && rows * columns >= PARALLEL_LEAST)
  for (size_t i = 0; i < rows; i++)
    bf16_round_row(from + i * was, to + i * wide, columns);
  *ld = wide;
  return to;
}

static void gemm_f32(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha, const float *a,
                     size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
  const struct product p = {transpose_a, transpose_b, m, n, k, alpha, beta, a, b, c, lda, ldb, ldc};

  product_run(&p, &cut, blas_threads, multiply_f32);
}

static void gemm_bf16(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha, const float *a,
                      size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
  struct product p = {transpose_a, transpose_b, m, n, k, alpha, beta, NULL, NULL, c, lda, ldb, ldc};
  struct worker *own = &worker[product_thread()];

  if (m > 0 && n > 0 && k > 0) {
    p.a = factor_round(&own->factor[A], a, transpose_a ? k : m, transpose_a ? m : k, &p.lda);
    p.b = factor_round(&own->factor[B], b, transpose_b ? n : k, transpose_b ? k : n, &p.ldb);
  }
  product_run(&p, &cut, blas_threads, multiply_bf16);
}

/* -- opening */

static const char *instructions(void)
{
  static const struct {
    dnnl_cpu_isa_t isa;
    const char *name;
  } table[] = {{dnnl_cpu_isa_avx512_core_amx, "AMX"},
               {dnnl_cpu_isa_avx512_core_bf16, "AVX-512 with bfloat16"},
               {dnnl_cpu_isa_avx512_core, "AVX-512"},
               {dnnl_cpu_isa_avx2, "AVX2"}};
  const unsigned has = dnnl_get_effective_cpu_isa();

  for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
    if ((has & table[i].isa) == (unsigned)table[i].isa)
      return table[i].name;
  return "instructions without a name here";
}

static const char *detail(const char *numbers)
{
  static char text[96];
  const dnnl_version_t *version = dnnl_version();

  snprintf(text, sizeof(text), "oneDNN %d.%d.%d, %s, %s", version->major, version->minor, version->patch,
           instructions(), numbers);
  return text;
}

static const char *detail_f32(void)
{
  return detail("float32");
}

static const char *detail_bf16(void)
{
  return detail("factors in bfloat16");
}

static int open_f32(int threads)
{
  const unsigned runtime = dnnl_version()->cpu_runtime;

  if (threads < 1)
    return trm_error(TRM_USAGE, "onednn: %d threads make no sense", threads);
  if (runtime != DNNL_RUNTIME_OMP && runtime != DNNL_RUNTIME_SEQ)
    return trm_error(TRM_FAILED, "device.blas=onednn: this oneDNN was built neither for OpenMP nor for one thread");
  if (!engine)
    DNNL_CHECK(dnnl_engine_create(&engine, dnnl_cpu, 0));
  blas_threads = threads;
  if (threads <= workers)
    return TRM_OK;
  struct worker *more = trm_alloc((size_t)threads * sizeof(*more), "oneDNN");
  if (workers > 0)
    memcpy(more, worker, (size_t)workers * sizeof(*more));
  trm_free(worker);
  worker = more;
  for (; workers < threads; workers++)
    DNNL_CHECK(dnnl_stream_create(&worker[workers].stream, engine, dnnl_stream_default_flags));
  return TRM_OK;
}

static int open_bf16(int threads)
{
  const struct shape trial = {16, 16, 16, LINE, LINE, 16, 1, 0, false, false};
  struct entry entry = {.primitive = NULL};

  TRM_CHECK(open_f32(threads));
  if (entry_make(&entry, &trial) != TRM_OK)
    return trm_error_context(TRM_FAILED, "device.matmul=bf16");
  entry_close(&entry);
  if ((dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) != dnnl_cpu_isa_avx512_core_bf16)
    trm_warn("device.matmul=bf16: this processor (%s) has no instructions for bfloat16: slower than float32",
             instructions());
  return TRM_OK;
}

const struct trm_blas_ops trm_blas_onednn = {
  .name = "onednn",
  .matmul = "f32",
  .detail = detail_f32,
  .open = open_f32,
  .gemm = gemm_f32,
};

const struct trm_blas_ops trm_blas_onednn_bf16 = {
  .name = "onednn",
  .matmul = "bf16",
  .detail = detail_bf16,
  .open = open_bf16,
  .gemm = gemm_bf16,
};
