/* Matrix products by oneDNN (dnnl.h), versions 2 and 3, in float32 and with factors in bfloat16. The library uses one
 * thread; product.h divides products among threads. bfloat16 requires native instructions: float32 factors are rounded
 * to nearest, ties to even, into work memory for each product; sums are float32, and C is rounded once. A product is
 * much larger than its factors, so rounding costs little (README.md). The library compiles a primitive per shape. Each
 * thread caches its own primitives and memory objects, without locks. */
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "blas/blas.h"
#include "blas/onednn_versions.h"
#include "blas/product.h"
#include "core/bfloat16.h"
#include "core/comm.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"

enum { CACHE_ENTRIES = 512, CACHE_PROBES = 16 };
/* float32: oneDNN has kernels with and without copies of the factors, and chooses by the size of C. Those for AVX-512
 * add in the same order where k is at most PANEL: longer factors are multiplied by panels, and C is divided by the
 * number of threads. A transposed A is read faster by smaller panels (README.md). Kernels for AVX2 add in other orders:
 * blocks do not depend on the number of threads. The copy of B, of half a panel, takes at most COLUMNS * 1.5 KiB. */
enum { PANEL = 768, PANEL_TRANSPOSED = 176, COLUMNS = 1024 };
static struct product_limits onednn_limits_f32 = {16, 1 << 24, 1, 16, 16};
/* Multiply-adds of a block, about 20 us of work: enough to wake a thread for. */
#define BLOCK_MIN_WORK ((size_t)1 << 21)
/* bfloat16: the order depends on the size of C. 7 % faster where arrays have no gaps between their rows (oneDNN 2.6).
 * A transposed: packing factors for a block costs more beside the faster product. */
static const struct product_limits onednn_limits_bf16 = {16, 1 << 24, 1.07, 16, 16};
static const struct product_limits onednn_limits_packed = {8, 1 << 24, 1, 16, 16};
/* Rows of rounded factors start at cache lines. */
enum { LINE = 64 / sizeof(uint16_t) };
/* Elements below which one thread is faster than several. */
#define PARALLEL_MIN ((size_t)1 << 15)

/* Key of a primitive, compared bytewise: no padding. */
struct shape {
  size_t m, n, k, lda, ldb, ldc;
  float alpha, beta;
  uint32_t transpose_a, transpose_b, type_c, unused;
};

enum { A, B, C, SCRATCH, ARRAYS };
struct entry {
  struct shape shape;
  dnnl_primitive_t primitive; /* NULL: the entry is free */
  dnnl_memory_t memory[ARRAYS];
  size_t scratch_bytes;
};

struct buffer {
  void *data;
  size_t bytes;
};

/* Cache and buffers of a thread, until it ends: several may multiply at the same time, each with a pool of threads. */
struct cache {
  dnnl_stream_t stream;
  struct entry entry[CACHE_ENTRIES];
  struct buffer scratch;
  struct buffer factor[2]; /* A and B, rounded; those of the thread that begins a product are read by all of its pool */
};

static dnnl_engine_t engine;
static int blas_threads = 1;
static _Thread_local struct cache *own_cache;
static pthread_key_t cache_key; /* ends a thread's cache */
static pthread_once_t cache_once = PTHREAD_ONCE_INIT;

static const char *onednn_status_text(dnnl_status_t status)
{
  switch (status) {
  case dnnl_out_of_memory:
    return "out of memory";
  case dnnl_invalid_arguments:
    return "invalid arguments";
  case dnnl_unimplemented:
    return "not supported on this processor";
  default:
    return "failed";
  }
}

#define DNNL_CHECK(call)                                                                 \
  do {                                                                                   \
    const dnnl_status_t dnnl_check_status = (call);                                      \
    if (dnnl_check_status != dnnl_success)                                               \
      return trm_error(TRM_FAILED, "oneDNN: %s: %s", #call, onednn_status_text(dnnl_check_status)); \
  } while (0)

/* -- primitives */

static int onednn_describe(onednn_description *to, dnnl_data_type_t type, const dnnl_dims_t size,
                           const dnnl_dims_t step)
{
  DNNL_CHECK(onednn_describe_strides(to, 2, size, type, step));
  return TRM_OK;
}

/* Versions 2 and 3 make primitives from different descriptions, too. */
#if DNNL_VERSION_MAJOR >= 3
static int onednn_describe_matmul(dnnl_primitive_desc_t *to, const onednn_description *array,
                                  const_dnnl_primitive_attr_t attr)
{
  DNNL_CHECK(dnnl_matmul_primitive_desc_create(to, engine, array[A], array[B], NULL, array[C], attr));
  return TRM_OK;
}
#else
static int onednn_describe_matmul(dnnl_primitive_desc_t *to, const onednn_description *array,
                                  const_dnnl_primitive_attr_t attr)
{
  dnnl_matmul_desc_t product;

  DNNL_CHECK(dnnl_matmul_desc_init(&product, &array[A], &array[B], NULL, &array[C]));
  DNNL_CHECK(dnnl_primitive_desc_create(to, &product, attr, engine, NULL));
  return TRM_OK;
}
#endif

/* Releases an entry, which may be incomplete. */
static void onednn_close_entry(struct entry *entry)
{
  for (int i = 0; i < ARRAYS; i++)
    if (entry->memory[i])
      dnnl_memory_destroy(entry->memory[i]);
  if (entry->primitive)
    dnnl_primitive_destroy(entry->primitive);
  *entry = (struct entry){.primitive = NULL};
}

static int onednn_make_attributes(dnnl_primitive_attr_t attr, dnnl_post_ops_t post_ops, const struct shape *s)
{
  DNNL_CHECK(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
  if (s->alpha != 1)
    DNNL_CHECK(onednn_append_function(post_ops, dnnl_eltwise_linear, s->alpha));
  if (s->beta != 0)
    DNNL_CHECK(onednn_append_sum(post_ops, s->beta));
  DNNL_CHECK(dnnl_primitive_attr_set_post_ops(attr, post_ops));
  return TRM_OK;
}

static int onednn_make_primitive(struct entry *entry, const onednn_description *array, dnnl_primitive_desc_t descriptor)
{
  const onednn_view scratch = dnnl_primitive_desc_query_md(descriptor, dnnl_query_scratchpad_md, 0);

  entry->scratch_bytes = dnnl_memory_desc_get_size(scratch);
  for (int i = A; i <= C; i++)
    DNNL_CHECK(dnnl_memory_create(&entry->memory[i], ONEDNN_VIEW(array[i]), engine, DNNL_MEMORY_NONE));
  DNNL_CHECK(dnnl_memory_create(&entry->memory[SCRATCH], scratch, engine, DNNL_MEMORY_NONE));
  DNNL_CHECK(dnnl_primitive_create(&entry->primitive, descriptor));
  return TRM_OK;
}

static int onednn_make_entry(struct entry *entry, const struct shape *s)
{
  const dnnl_dim_t m = (dnnl_dim_t)s->m, n = (dnnl_dim_t)s->n, k = (dnnl_dim_t)s->k;
  const dnnl_dim_t lda = (dnnl_dim_t)s->lda, ldb = (dnnl_dim_t)s->ldb, ldc = (dnnl_dim_t)s->ldc;
  const dnnl_dims_t size[] = {{m, k}, {k, n}, {m, n}};
  const dnnl_dims_t step[] = {{s->transpose_a ? 1 : lda, s->transpose_a ? lda : 1},
                              {s->transpose_b ? 1 : ldb, s->transpose_b ? ldb : 1},
                              {ldc, 1}};
  onednn_description array[3];
  dnnl_primitive_attr_t attr = NULL;
  dnnl_post_ops_t post_ops = NULL;
  dnnl_primitive_desc_t descriptor = NULL;
  int described = 0, status = TRM_OK;

  for (; described < 3 && status == TRM_OK; described += status == TRM_OK)
    status = onednn_describe(&array[described],
                             described == C && s->type_c == TRM_VALUES_F32 ? dnnl_f32 : dnnl_bf16, size[described],
                             step[described]);
  if (status == TRM_OK && (dnnl_primitive_attr_create(&attr) || dnnl_post_ops_create(&post_ops)))
    status = trm_error(TRM_FAILED, "oneDNN: out of memory");
  if (status == TRM_OK)
    status = onednn_make_attributes(attr, post_ops, s);
  if (status == TRM_OK)
    status = onednn_describe_matmul(&descriptor, array, attr);
  if (status == TRM_OK)
    status = onednn_make_primitive(entry, array, descriptor);
  entry->shape = *s;
  if (status != TRM_OK)
    onednn_close_entry(entry);
  if (descriptor)
    dnnl_primitive_desc_destroy(descriptor);
  if (post_ops)
    dnnl_post_ops_destroy(post_ops);
  if (attr)
    dnnl_primitive_attr_destroy(attr);
  while (described > 0)
    onednn_free_description(&array[--described]);
  return status;
}

static void onednn_free_cache(void *memory)
{
  struct cache *cache = memory;

  for (int i = 0; i < CACHE_ENTRIES; i++)
    onednn_close_entry(&cache->entry[i]);
  dnnl_stream_destroy(cache->stream);
  trm_free(cache->scratch.data);
  trm_free(cache->factor[A].data);
  trm_free(cache->factor[B].data);
  trm_free(cache);
}

static void onednn_make_cache_key(void)
{
  if (pthread_key_create(&cache_key, onednn_free_cache))
    trm_abort_on_error(trm_error(TRM_FAILED, "oneDNN: too many keys of threads"));
}

/* Returns the calling thread's cache. */
static struct cache *onednn_cache(void)
{
  if (!own_cache) {
    pthread_once(&cache_once, onednn_make_cache_key);
    own_cache = trm_alloc(sizeof *own_cache, "oneDNN");
    pthread_setspecific(cache_key, own_cache);
    if (dnnl_stream_create(&own_cache->stream, engine, dnnl_stream_default_flags) != dnnl_success)
      trm_abort_on_error(trm_error(TRM_FAILED, "oneDNN: no stream"));
  }
  return own_cache;
}

/* Returns the cache's entry for the shape; creates it if needed. */
static struct entry *onednn_find_entry(struct cache *self, const struct shape *s)
{
  size_t hash = 0;
  const size_t part[] = {s->m, s->n, s->k, s->lda, s->ldb, s->ldc, s->transpose_a,
                         s->transpose_b, s->beta != 0, s->type_c};

  for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++)
    hash = (hash ^ part[i]) * 0x9e3779b97f4a7c15u;
  hash >>= 32;
  struct entry *entry = &self->entry[hash % CACHE_ENTRIES];
  for (size_t i = 0; i < CACHE_PROBES; i++) {
    entry = &self->entry[(hash + i) % CACHE_ENTRIES];
    if (!entry->primitive)
      break;
    if (!memcmp(&entry->shape, s, sizeof(*s)))
      return entry;
  }
  onednn_close_entry(entry); /* an unused entry, or evicts the last one probed */
  trm_abort_on_error(onednn_make_entry(entry, s));
  return entry;
}

/* -- products */

static void *onednn_reserve(struct buffer *buffer, size_t bytes, const char *what)
{
  if (buffer->bytes < bytes) {
    trm_free(buffer->data);
    buffer->data = trm_alloc(bytes, what);
    buffer->bytes = bytes;
  }
  return buffer->data;
}

/* oneDNN takes the number of threads from OpenMP. */
static int onednn_set_one_thread(void)
{
  const int before = omp_get_max_threads();

  omp_set_num_threads(1);
  return before;
}

/* Computes a block of a product, panel by panel of k. */
static dnnl_status_t onednn_multiply_panels(const struct trm_gemm *p, const struct block *block)
{
  const size_t panel = p->transpose_a ? PANEL_TRANSPOSED : PANEL, panels = (p->k + panel - 1) / panel;
  const float *a = block_a(p, block), *b = block_b(p, block);
  dnnl_status_t status = dnnl_success;

  for (size_t i = 0; i < panels && status == dnnl_success; i++) {
    size_t low, high;

    trm_interval(p->k, panels, i, &low, &high);
    status = dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N',
                        (dnnl_dim_t)(block->bottom - block->top), (dnnl_dim_t)(block->right - block->left),
                        (dnnl_dim_t)(high - low), p->alpha, a + (p->transpose_a ? low * p->lda : low),
                        (dnnl_dim_t)p->lda, b + (p->transpose_b ? low : low * p->ldb), (dnnl_dim_t)p->ldb,
                        i ? 1 : p->beta, block_c(p, block), (dnnl_dim_t)p->ldc);
  }
  return status;
}

/* Kernels of dnnl_sgemm move the stack pointer to work memory of theirs, which a signal's handler would overwrite, and
 * what lies below it: signals wait until the product is done. */
static void onednn_multiply_f32(const struct trm_gemm *p, const struct block *block)
{
  const int before = onednn_set_one_thread();
  const size_t columns = block->right - block->left, parts = (columns + COLUMNS - 1) / COLUMNS;
  dnnl_status_t status = dnnl_success;
  sigset_t all, mask;

  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  for (size_t i = 0; i < parts && status == dnnl_success; i++) {
    struct block part = *block;

    trm_interval(columns, parts, i, &part.left, &part.right);
    part.left += block->left;
    part.right += block->left;
    status = onednn_multiply_panels(p, &part);
  }
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  omp_set_num_threads(before);
  if (status != dnnl_success)
    trm_abort_on_error(trm_error(TRM_FAILED, "oneDNN: a product (%zu, %zu) x (%zu, %zu): %s", p->m, p->k, p->k,
                                      p->n, onednn_status_text(status)));
}

static int onednn_execute(const struct trm_gemm *p, const struct block *block)
{
  struct cache *const self = onednn_cache();
  const struct shape s = {block->bottom - block->top, block->right - block->left, p->k, p->lda, p->ldb, p->ldc,
                          p->alpha, p->beta, p->transpose_a, p->transpose_b, p->type_c, 0};
  const struct entry *entry = onednn_find_entry(self, &s);
  void *data[ARRAYS] = {(void *)block_a(p, block), (void *)block_b(p, block), block_c(p, block),
                        onednn_reserve(&self->scratch, entry->scratch_bytes, "oneDNN's work memory")};
  for (int i = 0; i < ARRAYS; i++)
    DNNL_CHECK(dnnl_memory_set_data_handle(entry->memory[i], data[i]));
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, entry->memory[A]},
                                       {DNNL_ARG_WEIGHTS, entry->memory[B]},
                                       {DNNL_ARG_DST, entry->memory[C]},
                                       {DNNL_ARG_SCRATCHPAD, entry->memory[SCRATCH]}};
  DNNL_CHECK(dnnl_primitive_execute(entry->primitive, self->stream, ARRAYS, arguments));
  DNNL_CHECK(dnnl_stream_wait(self->stream));
  return TRM_OK;
}

static void onednn_multiply_bf16(const struct trm_gemm *p, const struct block *block)
{
  const int before = onednn_set_one_thread();

  trm_abort_on_error(onednn_execute(p, block));
  omp_set_num_threads(before);
}

struct rounding {
  const float *from;
  uint16_t *to;
  size_t columns, ld, wide;
};

static void onednn_round_body(const void *context, size_t low, size_t high)
{
  const struct rounding *it = context;

  for (size_t i = low; i < high; i++)
    trm_bf16_narrow(it->to + i * it->wide, it->from + i * it->ld, it->columns);
}

/* Returns a factor (rows, columns) rounded to bfloat16, with leading dimension *ld, in the buffer. */
static const uint16_t *onednn_round_factor(struct buffer *buffer, const float *from, size_t rows, size_t columns,
                                           size_t *ld)
{
  const size_t wide = (columns + LINE - 1) / LINE * LINE;
  uint16_t *to = onednn_reserve(buffer, rows * wide * sizeof(*to), "a factor in bfloat16");
  const struct rounding it = {from, to, columns, *ld, wide};

  trm_parallel_for(rows * columns >= PARALLEL_MIN ? blas_threads : 1, rows, onednn_round_body, &it);
  *ld = wide;
  return to;
}

static void onednn_gemm_f32(const struct trm_gemm *p)
{
  product_run_widened(p, &onednn_limits_f32, blas_threads, onednn_multiply_f32);
}

static void onednn_gemm_bf16(const struct trm_gemm *it)
{
  struct trm_gemm p = *it;
  struct cache *self = onednn_cache();

  if (p.type_ab == TRM_VALUES_F32 && p.m > 0 && p.n > 0 && p.k > 0) {
    p.a = onednn_round_factor(&self->factor[A], it->a, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, &p.lda);
    p.b = onednn_round_factor(&self->factor[B], it->b, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, &p.ldb);
    p.type_ab = TRM_VALUES_BF16;
  }
  product_run(&p, p.transpose_a ? &onednn_limits_packed : &onednn_limits_bf16, blas_threads, onednn_multiply_bf16);
}

/* -- opening */

static const char *onednn_instructions(void)
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

static const char *onednn_detail(const char *numbers)
{
  static char text[96];
  const dnnl_version_t *version = dnnl_version();

  snprintf(text, sizeof(text), "oneDNN %d.%d.%d, %s, %s", version->major, version->minor, version->patch,
           onednn_instructions(), numbers);
  return text;
}

static const char *onednn_detail_f32(void)
{
  return onednn_detail("float32");
}

static const char *onednn_detail_bf16(void)
{
  return onednn_detail("factors in bfloat16");
}

static bool onednn_has_avx512(void)
{
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

static int onednn_open_f32(int threads)
{
  const unsigned runtime = dnnl_version()->cpu_runtime;

  if (threads < 1)
    return trm_error(TRM_USAGE, "device.blas=onednn: threads must be at least 1, not %d", threads);
  if (runtime != DNNL_RUNTIME_OMP && runtime != DNNL_RUNTIME_SEQ)
    return trm_error(TRM_FAILED, "device.blas=onednn: this oneDNN was built neither for OpenMP nor for one thread");
  if (!engine)
    DNNL_CHECK(dnnl_engine_create(&engine, dnnl_cpu, 0));
  blas_threads = threads;
  if (onednn_has_avx512())
    onednn_limits_f32 = (struct product_limits){(size_t)threads, BLOCK_MIN_WORK, 1, 16, 16};
  return TRM_OK;
}

static int onednn_open_bf16(int threads)
{
  const struct shape trial = {16, 16, 16, LINE, LINE, 16, 1, 0, false, false, TRM_VALUES_F32, 0};
  struct entry entry = {.primitive = NULL};

  TRM_CHECK(onednn_open_f32(threads));
  if (onednn_make_entry(&entry, &trial) != TRM_OK)
    return trm_error_context(TRM_FAILED, "device.matmul=bf16");
  onednn_close_entry(&entry);
  if ((dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) != dnnl_cpu_isa_avx512_core_bf16)
    trm_warn("device.matmul=bf16: this processor (%s) has no instructions for bfloat16: slower than float32",
             onednn_instructions());
  return TRM_OK;
}

const struct trm_blas_ops trm_blas_onednn = {
  .name = "onednn",
  .matmul = TRM_MATMUL_F32,
  .supported = onednn_has_avx512,
  .detail = onednn_detail_f32,
  .open = onednn_open_f32,
  .gemm = onednn_gemm_f32,
};

const struct trm_blas_ops trm_blas_onednn_bf16 = {
  .name = "onednn",
  .matmul = TRM_MATMUL_BF16,
  .detail = onednn_detail_bf16,
  .open = onednn_open_bf16,
  .gemm = onednn_gemm_bf16,
};
