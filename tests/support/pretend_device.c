/* The pretend device. A memory file is mapped twice: callers get addresses at `seen`, mapped without access; the
 * kernels use the same pages at `real`. A block ends at a page boundary (up to alignment) between guard pages; the
 * padding holds a pattern that is checked at release. Released blocks are never reused. */
#define _GNU_SOURCE
#include "support/pretend_device.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "blas/blas.h"
#include "core/device_arrays.h"
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

/* A call that has not been done. */
struct task {
  struct task *next;
  void (*run)(struct trm_device *cpu, void *arguments);
  void *copy; /* of host memory that the arguments point to; owned, may be NULL */
  _Alignas(max_align_t) char arguments[];
};

struct pretend {
  struct trm_device cpu;
  struct task *first, *last; /* in the order of the calls */
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

/* Queues a call with a copy of its arguments. */
static void pretend_begin(struct trm_device *device, void (*run)(struct trm_device *cpu, void *arguments),
                          const void *arguments, size_t bytes, void *copy)
{
  struct pretend *p = pretend_of(device);
  struct task *task = trm_alloc(sizeof(*task) + bytes, "pretend device: call");

  task->next = NULL;
  task->run = run;
  task->copy = copy;
  memcpy(task->arguments, arguments, bytes);
  *(p->first ? &p->last->next : &p->first) = task;
  p->last = task;
}

/* Does all calls that are queued. */
static void pretend_finish(struct trm_device *device)
{
  struct pretend *p = pretend_of(device);

  while (p->first) {
    struct task *task = p->first;

    p->first = task->next;
    task->run(&p->cpu, task->arguments);
    trm_free(task->copy);
    trm_free(task);
  }
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
  device->memory_bytes = (size_t)1 << 30;
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
  pretend_finish(device);
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

  pretend_finish(device);
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

/* -- device operations: each checks and translates its device pointers; the CPU's does it later */

#define CPU (&pretend_of(device)->cpu)
#define REAL(pointer, bytes) pretend_real(device, __func__, pointer, bytes)

struct bytes_copied {
  void *to;
  const void *from;
  size_t bytes;
};

static void pretend_do_copy(struct trm_device *cpu, void *arguments)
{
  const struct bytes_copied *it = arguments;

  cpu->ops->copy(cpu, it->to, it->from, it->bytes);
}

static void pretend_upload(struct trm_device *device, void *to, const void *host, size_t bytes)
{
  void *copy = memcpy(trm_alloc(bytes ? bytes : 1, "pretend device: upload"),
                      pretend_host(device, __func__, host), bytes);

  pretend_begin(device, pretend_do_copy, &(struct bytes_copied){REAL(to, bytes), copy, bytes},
                sizeof(struct bytes_copied), copy);
}

static void pretend_download(struct trm_device *device, void *host, const void *from, size_t bytes)
{
  pretend_host(device, __func__, host);
  pretend_finish(device);
  CPU->ops->download(CPU, host, REAL(from, bytes), bytes);
}

static void pretend_copy(struct trm_device *device, void *to, const void *from, size_t bytes)
{
  pretend_begin(device, pretend_do_copy, &(struct bytes_copied){REAL(to, bytes), REAL(from, bytes), bytes},
                sizeof(struct bytes_copied), NULL);
}

struct elements_filled {
  float *to, value;
  size_t n;
};

static void pretend_do_fill(struct trm_device *cpu, void *arguments)
{
  const struct elements_filled *it = arguments;

  cpu->ops->fill(cpu, it->to, it->value, it->n);
}

static void pretend_fill(struct trm_device *device, float *to, float value, size_t n)
{
  pretend_begin(device, pretend_do_fill, &(struct elements_filled){REAL(to, n * sizeof *to), value, n},
                sizeof(struct elements_filled), NULL);
}

static int pretend_sync(struct trm_device *device)
{
  pretend_finish(device);
  return CPU->ops->sync(CPU);
}

/* Translates a host table of device addresses; trm_free. */
static void *pretend_table(const struct trm_device *device, const char *call, const void *const *table,
                                  const struct trm_call_array *array)
{
  const void **real = trm_alloc((size_t)array->table * sizeof(*real), "pretend device: table");

  pretend_host(device, call, table);
  for (int i = 0; i < array->table; i++)
    real[i] = pretend_real(device, call, table[i], array->bytes);
  return real;
}

/* Translates the arrays that the call accesses, in a copy of its arguments; the others keep addresses that a kernel
 * cannot read. Returns the copy of host memory, if it reads any; trm_free. */
static void *pretend_translate(const struct trm_device *device, const char *name, void *call,
                                      const struct trm_call_array *array, size_t arrays)
{
  void *table = NULL;

  for (size_t i = 0; i < arrays; i++) {
    void *pointer = trm_call_pointer(call, &array[i]);

    if (array[i].access == TRM_READS_HOST)
      pointer = table = memcpy(trm_alloc(array[i].bytes, "pretend device: host memory"),
                               pretend_host(device, name, pointer), array[i].bytes);
    else if (array[i].table)
      pointer = table = pretend_table(device, name, pointer, &array[i]);
    else
      pointer = pretend_real(device, name, pointer, array[i].bytes);
    trm_call_set_pointer(call, &array[i], pointer);
  }
  return table;
}

/* Results in host memory are complete on return. */
static bool pretend_returns_results(const char *slot)
{
  return strcmp(slot, "sparse_sgd") == 0;
}

#define PRETEND_KERNEL(slot, type)                                                                         \
  static void pretend_do_##slot(struct trm_device *cpu, void *arguments)                                   \
  {                                                                                                        \
    cpu->ops->slot(cpu, arguments);                                                                        \
  }                                                                                                        \
  static void pretend_##slot(struct trm_device *device, const struct type *call)                           \
  {                                                                                                        \
    struct trm_call_array array[TRM_CALL_ARRAYS];                                                          \
    struct type real = *call;                                                                              \
    void *table = pretend_translate(device, #slot, &real, array, type##_arrays(call, array));       \
    pretend_begin(device, pretend_do_##slot, &real, sizeof real, table);                                   \
    if (pretend_returns_results(#slot))                                                                    \
      pretend_finish(device);                                                                              \
  }
TRM_KERNELS(PRETEND_KERNEL)

#define PRETEND_SLOT(slot, type) .slot = pretend_##slot,
#define PRETEND_NO_KERNELS                                                                                            \
  .name = "pretend", .open = pretend_open, .close = pretend_close, .alloc = pretend_alloc, .release = pretend_release, \
  .upload = pretend_upload, .download = pretend_download, .copy = pretend_copy, .fill = pretend_fill,                 \
  .sync = pretend_sync
const struct trm_device_ops pretend_device_ops = {PRETEND_NO_KERNELS, TRM_KERNELS(PRETEND_SLOT)};
const struct trm_device_ops pretend_device_few_ops = {PRETEND_NO_KERNELS, .bias_add = pretend_bias_add,
                                                      .update = pretend_update};

int pretend_device_open(struct trm_device *device, int threads)
{
  return trm_device_open_ops(device, &pretend_device_ops, trm_blas_table[0], 0, threads);
}

struct trm_device *pretend_device_cpu(struct trm_device *device)
{
  return &pretend_of(device)->cpu;
}

void pretend_device_close(struct trm_device *device)
{
  trm_device_close(device);
}
