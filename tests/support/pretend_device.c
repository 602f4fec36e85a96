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

/* A copy beside the calls, at addresses of the host. An event, and each call that awaits it, hold it. */
struct flight {
  struct flight *next;
  bool upload, awaited, copied, done; /* done: the host knows */
  const char *seen; /* the device's memory, as callers see it */
  char *to;
  const char *from;
  size_t bytes;
  uint64_t after;   /* calls that come before it */
  int holders, questions;
};

struct trm_recording {
  struct task *first, *last; /* in the order of the calls, owned */
  uint64_t replaced;         /* the device's, when it was recorded */
};

struct pretend {
  struct trm_device cpu;
  struct trm_recording *recording; /* NULL: calls are made */
  bool refused;                    /* one of its calls cannot be recorded */
  uint64_t replaced;               /* recordings of other numbers are refused */
  struct task *first, *last; /* in the order of the calls */
  struct flight *flights;
  uint64_t begun, ended; /* calls */
  struct pretend_device_record record;
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

/* Fails if a call accesses memory that a copy in flight writes, or writes what it reads. */
static void pretend_check_flights(const struct pretend *p, const char *call, const char *pointer, size_t bytes,
                                  int access)
{
  for (const struct flight *f = p->flights; f; f = f->next)
    if (!f->awaited && !f->done && (f->upload || access & TRM_WRITES) && pointer < f->seen + f->bytes &&
        f->seen < pointer + bytes)
      pretend_fail("%s: %s memory of %s in flight", call, access & TRM_WRITES ? "writes" : "reads",
                   f->upload ? "an upload" : "a download");
}

/* Translates a device address, which the call accesses, into the address at `real`; NULL stays NULL. */
static void *pretend_real(const struct trm_device *device, const char *call, const void *pointer, size_t bytes,
                          int access)
{
  const struct pretend *p = pretend_of(device);

  if (!pointer)
    return NULL;
  pretend_check_flights(p, call, pointer, bytes, access);
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

/* Returns true while calls are recorded; the recording then fails. */
static bool pretend_refuses(const struct trm_device *device)
{
  struct pretend *p = pretend_of(device);

  p->refused |= p->recording != NULL;
  return p->recording != NULL;
}

/* Appends to the calls that are recorded. */
static void pretend_record_task(struct trm_recording *recording, struct task *task)
{
  *(recording->first ? &recording->last->next : &recording->first) = task;
  recording->last = task;
}

/* Queues or records a call with a copy of its arguments. */
static void pretend_begin(struct trm_device *device, void (*run)(struct trm_device *cpu, void *arguments),
                          const void *arguments, size_t bytes, void *copy)
{
  struct pretend *p = pretend_of(device);
  struct task *task = trm_alloc(sizeof(*task) + bytes, "pretend device: call");

  task->next = NULL;
  task->run = run;
  task->copy = copy;
  memcpy(task->arguments, arguments, bytes);
  if (p->recording) {
    pretend_record_task(p->recording, task);
    return;
  }
  *(p->first ? &p->last->next : &p->first) = task;
  p->last = task;
  p->begun++;
}

/* Does the first `calls` calls that were made on the device. */
static void pretend_finish_calls(struct pretend *p, uint64_t calls)
{
  while (p->ended < calls) {
    struct task *task = p->first;

    p->first = task->next;
    p->ended++;
    task->run(&p->cpu, task->arguments);
    trm_free(task->copy);
    trm_free(task);
  }
}

/* Does all calls that are queued. */
static void pretend_finish(struct trm_device *device)
{
  pretend_finish_calls(pretend_of(device), pretend_of(device)->begun);
}

/* Adds a call to the record: its name and the bytes of its arguments. */
static void pretend_record(struct trm_device *device, const char *name, const void *arguments, size_t bytes)
{
  struct pretend_device_record *record = &pretend_of(device)->record;
  const unsigned char *part[2] = {(const unsigned char *)name, arguments};
  const size_t size[2] = {strlen(name), bytes};

  if (pretend_of(device)->recording)
    return;
  record->calls++;
  for (int k = 0; k < 2; k++)
    for (size_t i = 0; i < size[k]; i++)
      record->digest = (record->digest ^ part[k][i]) * UINT64_C(1099511628211); /* FNV-1a */
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
  if (pretend_refuses(device))
    return TRM_FAILED;
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

  if (!memory || pretend_refuses(device))
    return;
  pretend_finish(device);
  pretend_of(device)->record.waits++;
  for (struct block **link = &p->blocks; *link; link = &(*link)->next) {
    struct block *b = *link;

    if (b->start != offset)
      continue;
    for (const struct flight *f = p->flights; f; f = f->next)
      if (!f->done && f->seen >= p->seen + offset && f->seen < p->seen + offset + b->bytes)
        pretend_fail("release: a copy of %zu bytes (%s) is in flight", f->bytes, b->what);
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
#define READ(pointer, bytes) pretend_real(device, __func__, pointer, bytes, TRM_READS)
#define WRITTEN(pointer, bytes) pretend_real(device, __func__, pointer, bytes, TRM_WRITES)

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
  if (pretend_refuses(device))
    return;
  void *copy = memcpy(trm_alloc(bytes ? bytes : 1, "pretend device: upload"),
                      pretend_host(device, __func__, host), bytes);

  pretend_record(device, "upload", &to, sizeof to);
  pretend_begin(device, pretend_do_copy, &(struct bytes_copied){WRITTEN(to, bytes), copy, bytes},
                sizeof(struct bytes_copied), copy);
}

static void pretend_download(struct trm_device *device, void *host, const void *from, size_t bytes)
{
  pretend_host(device, __func__, host);
  if (pretend_refuses(device)) {
    memset(host, 0, bytes);
    return;
  }
  pretend_record(device, "download", &from, sizeof from);
  pretend_of(device)->record.waits++;
  pretend_finish(device);
  CPU->ops->download(CPU, host, READ(from, bytes), bytes);
}

static void pretend_copy(struct trm_device *device, void *to, const void *from, size_t bytes)
{
  pretend_record(device, "copy", &(struct bytes_copied){to, from, bytes}, sizeof(struct bytes_copied));
  pretend_begin(device, pretend_do_copy, &(struct bytes_copied){WRITTEN(to, bytes), READ(from, bytes), bytes},
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
  pretend_record(device, "fill", &(struct bytes_copied){to, NULL, n}, sizeof(struct bytes_copied));
  pretend_begin(device, pretend_do_fill, &(struct elements_filled){WRITTEN(to, n * sizeof *to), value, n},
                sizeof(struct elements_filled), NULL);
}

static int pretend_sync(struct trm_device *device)
{
  if (pretend_refuses(device))
    return TRM_OK;
  pretend_of(device)->record.waits += pretend_of(device)->first != NULL;
  pretend_finish(device);
  return CPU->ops->sync(CPU);
}

/* -- copies beside the calls: made when the host, or a call that comes after them, needs them, and no sooner. Until
 * then the memory that they write holds NaN. */

static void pretend_do_poison(struct trm_device *cpu, void *arguments)
{
  const struct bytes_copied *it = arguments;

  (void)cpu;
  memset(it->to, 0xff, it->bytes);
}

static struct flight *pretend_fly(struct trm_device *device, bool upload, const void *seen, void *to, const void *from,
                                  size_t bytes, struct trm_event *event)
{
  struct pretend *p = pretend_of(device);
  struct flight *f = trm_alloc(sizeof *f, "pretend device: copy");

  if (event->impl)
    pretend_fail("a copy begins with the event of one in flight");
  if (p->recording)
    pretend_fail("a copy begins while calls are recorded");
  *f = (struct flight){.next = p->flights, .upload = upload, .seen = seen, .to = to, .from = from, .bytes = bytes,
                       .after = p->begun, .holders = 1};
  p->flights = f;
  event->impl = f;
  return f;
}

static void pretend_upload_begin(struct trm_device *device, void *to, const void *host, size_t bytes,
                                 struct trm_event *event)
{
  char *real = WRITTEN(to, bytes);

  pretend_host(device, __func__, host);
  pretend_record(device, "upload_begin", &(struct bytes_copied){to, host, bytes}, sizeof(struct bytes_copied));
  pretend_begin(device, pretend_do_poison, &(struct bytes_copied){real, NULL, bytes}, sizeof(struct bytes_copied),
                NULL);
  pretend_fly(device, true, to, real, host, bytes, event);
  pretend_of(device)->record.uploads += bytes > 0;
}

static void pretend_download_begin(struct trm_device *device, void *host, const void *from, size_t bytes,
                                   struct trm_event *event)
{
  const char *real = READ(from, bytes);

  pretend_host(device, __func__, host);
  pretend_record(device, "download_begin", &(struct bytes_copied){host, from, bytes}, sizeof(struct bytes_copied));
  memset(host, 0xff, bytes);
  pretend_fly(device, false, from, host, real, bytes, event);
  pretend_of(device)->record.downloads += bytes > 0;
}

static void pretend_make_copy(struct pretend *p, struct flight *f)
{
  pretend_finish_calls(p, f->after);
  if (!f->copied && f->bytes)
    memcpy(f->to, f->from, f->bytes);
  f->copied = true;
}

static void pretend_let_go(struct pretend *p, struct flight *f)
{
  struct flight **link = &p->flights;

  if (--f->holders > 0)
    return;
  while (*link != f)
    link = &(*link)->next;
  *link = f->next;
  trm_free(f);
}

struct awaited {
  struct pretend *p;
  struct flight *flight;
};

static void pretend_do_await(struct trm_device *cpu, void *arguments)
{
  const struct awaited *it = arguments;

  (void)cpu;
  pretend_make_copy(it->p, it->flight);
  pretend_let_go(it->p, it->flight);
}

static void pretend_await(struct trm_device *device, struct trm_event *event)
{
  struct flight *f = event->impl;

  if (!f)
    return;
  if (pretend_refuses(device))
    return;
  f->awaited = true;
  f->holders++;
  pretend_record(device, "await", &event, sizeof event);
  pretend_begin(device, pretend_do_await, &(struct awaited){pretend_of(device), f}, sizeof(struct awaited), NULL);
}

static void pretend_event_wait(struct trm_device *device, struct trm_event *event)
{
  struct flight *f = event->impl;

  if (!f)
    return;
  pretend_of(device)->record.waits += !f->copied;
  pretend_make_copy(pretend_of(device), f);
  f->done = true;
  event->impl = NULL;
  pretend_let_go(pretend_of(device), f);
}

static bool pretend_event_done(struct trm_device *device, struct trm_event *event)
{
  struct flight *f = event->impl;

  if (f && ++f->questions < 4)
    return false;
  pretend_event_wait(device, event);
  return true;
}

static void pretend_event_free(struct trm_device *device, struct trm_event *event)
{
  if (event->impl)
    pretend_fail("event_free: a copy is in flight");
  (void)device;
}

static void pretend_pin(struct trm_device *device, void *host, size_t bytes)
{
  (void)bytes;
  pretend_host(device, __func__, host);
}

static void pretend_unpin(struct trm_device *device, void *host)
{
  pretend_host(device, __func__, host);
}

/* Adds a kernel to the record's that run beside copies. */
static void pretend_record_beside(struct trm_device *device)
{
  struct pretend *p = pretend_of(device);
  bool upload = false, download = false;

  if (p->recording)
    return;
  for (const struct flight *f = p->flights; f; f = f->next)
    if (!f->awaited && !f->done)
      *(f->upload ? &upload : &download) = true;
  p->record.beside_uploads += upload;
  p->record.beside_downloads += download;
}

/* Translates a host table of device addresses; trm_free. */
static void *pretend_table(const struct trm_device *device, const char *call, const void *const *table,
                                  const struct trm_call_array *array)
{
  const void **real = trm_alloc((size_t)array->table * sizeof(*real), "pretend device: table");

  pretend_host(device, call, table);
  for (int i = 0; i < array->table; i++)
    real[i] = pretend_real(device, call, table[i], array->bytes, array->access);
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
      pointer = pretend_real(device, name, pointer, array[i].bytes, array[i].access);
    trm_call_set_pointer(call, &array[i], pointer);
  }
  return table;
}

/* Results in host memory are complete on return. */
static bool pretend_returns_results(const char *slot)
{
  return strcmp(slot, "sparse_sgd") == 0;
}

/* -- recorded calls */

static bool pretend_record_begin(struct trm_device *device)
{
  struct pretend *p = pretend_of(device);

  p->recording = trm_alloc(sizeof *p->recording, "pretend device: recording");
  p->recording->replaced = p->replaced;
  p->refused = false;
  return true;
}

/* Waits for the calls, which may be of replays. */
static void pretend_recording_free(struct trm_device *device, struct trm_recording *recording)
{
  pretend_finish(device);
  while (recording->first) {
    struct task *task = recording->first;

    recording->first = task->next;
    trm_free(task->copy);
    trm_free(task);
  }
  trm_free(recording);
}

static struct trm_recording *pretend_record_end(struct trm_device *device)
{
  struct pretend *p = pretend_of(device);
  struct trm_recording *recording = p->recording;

  p->recording = NULL;
  if (!p->refused)
    return recording;
  pretend_recording_free(device, recording);
  return NULL;
}

static void pretend_do_replay(struct trm_device *cpu, void *arguments)
{
  struct trm_recording *const *recording = arguments;

  for (struct task *task = (*recording)->first; task; task = task->next)
    task->run(cpu, task->arguments);
}

static bool pretend_replay(struct trm_device *device, struct trm_recording *recording)
{
  struct pretend *p = pretend_of(device);

  if (p->recording)
    pretend_fail("replay: calls are being recorded");
  if (recording->replaced != p->replaced)
    return false;
  p->record.replays++;
  pretend_record(device, "replay", &recording, sizeof recording);
  pretend_record_beside(device);
  pretend_begin(device, pretend_do_replay, &recording, sizeof recording, NULL);
  return true;
}

void pretend_device_replace_memory(struct trm_device *device)
{
  pretend_of(device)->replaced++;
}

#if defined(__GNUC__) && !defined(__clang__)
#define PRETEND_CLEAR_PADDING(call) __builtin_clear_padding(call)
#define PRETEND_RECORDED(call) sizeof *(call)
#else /* padding may differ: names alone */
#define PRETEND_CLEAR_PADDING(call)
#define PRETEND_RECORDED(call) 0
#endif

/* The arguments as they are, but for tables in host memory: what these hold. */
static void pretend_record_call(struct trm_device *device, const char *name, void *call, size_t bytes,
                                const struct trm_call_array *array, size_t arrays)
{
  for (size_t i = 0; i < arrays; i++) {
    if (!array[i].table && array[i].access != TRM_READS_HOST)
      continue;
    pretend_record(device, name, trm_call_pointer(call, &array[i]),
                   array[i].table ? (size_t)array[i].table * sizeof(void *) : array[i].bytes);
    trm_call_set_pointer(call, &array[i], NULL);
  }
  pretend_record(device, name, call, bytes);
}

#define PRETEND_KERNEL(slot, type)                                                                         \
  static void pretend_do_##slot(struct trm_device *cpu, void *arguments)                                   \
  {                                                                                                        \
    cpu->ops->slot(cpu, arguments);                                                                        \
  }                                                                                                        \
  static void pretend_##slot(struct trm_device *device, const struct type *call)                           \
  {                                                                                                        \
    struct trm_call_array array[TRM_CALL_ARRAYS];                                                          \
    const size_t arrays = type##_arrays(call, array);                                                      \
    if (pretend_returns_results(#slot) && pretend_refuses(device))                                         \
      return;                                                                                              \
    struct type real = *call, recorded = *call;                                                            \
    PRETEND_CLEAR_PADDING(&recorded);                                                                      \
    pretend_record_call(device, #slot, &recorded, PRETEND_RECORDED(call), array, arrays);                  \
    void *table = pretend_translate(device, #slot, &real, array, arrays);                                  \
    pretend_record_beside(device);                                                                         \
    pretend_begin(device, pretend_do_##slot, &real, sizeof real, table);                                   \
    if (pretend_returns_results(#slot))                                                                    \
      pretend_finish(device);                                                                              \
  }
TRM_KERNELS(PRETEND_KERNEL)
TRM_FUSED_KERNELS(PRETEND_KERNEL)

/* Images have the layout of the CPU, which computes. */
static bool pretend_channels_last(struct trm_device *device, enum trm_value_type type)
{
  return CPU->ops->channels_last && CPU->ops->channels_last(CPU, type);
}

#define PRETEND_SLOT(slot, type) .slot = pretend_##slot,
#define PRETEND_NO_KERNELS                                                                                            \
  .name = "pretend", .open = pretend_open, .close = pretend_close, .alloc = pretend_alloc, .release = pretend_release, \
  .upload = pretend_upload, .download = pretend_download, .copy = pretend_copy, .fill = pretend_fill,                 \
  .sync = pretend_sync, .channels_last = pretend_channels_last
#define PRETEND_COPIES                                                                                       \
  .upload_begin = pretend_upload_begin, .download_begin = pretend_download_begin, .await = pretend_await,    \
  .event_done = pretend_event_done, .event_wait = pretend_event_wait, .event_free = pretend_event_free,      \
  .pin = pretend_pin, .unpin = pretend_unpin
#define PRETEND_RECORDS                                                                                      \
  .record_begin = pretend_record_begin, .record_end = pretend_record_end, .replay = pretend_replay,          \
  .recording_free = pretend_recording_free
const struct trm_device_ops pretend_device_ops = {PRETEND_NO_KERNELS, PRETEND_COPIES, PRETEND_RECORDS, TRM_KERNELS(PRETEND_SLOT)
                                                  TRM_FUSED_KERNELS(PRETEND_SLOT)};
const struct trm_device_ops pretend_device_few_ops = {PRETEND_NO_KERNELS, PRETEND_RECORDS, .bias_add = pretend_bias_add,
                                                      .update = pretend_update};

int pretend_device_open(struct trm_device *device, int threads)
{
  return trm_device_open_ops(device, &pretend_device_ops, trm_blas_find("auto", TRM_MATMUL_F32), 0, threads);
}

struct trm_device *pretend_device_cpu(struct trm_device *device)
{
  return &pretend_of(device)->cpu;
}

void *pretend_device_memory(struct trm_device *device, const void *pointer, size_t bytes)
{
  return pretend_within(pretend_of(device)->seen, pointer)
           ? pretend_real(device, __func__, pointer, bytes, TRM_READS | TRM_WRITES)
           : (void *)pointer;
}

size_t pretend_device_bytes(const struct trm_device *device)
{
  size_t bytes = 0;

  for (const struct block *b = pretend_of(device)->blocks; b; b = b->next)
    bytes += b->bytes;
  return bytes;
}

void pretend_device_close(struct trm_device *device)
{
  trm_device_close(device);
}

struct pretend_device_record pretend_device_record(struct trm_device *device)
{
  const struct pretend_device_record record = pretend_of(device)->record;

  pretend_of(device)->record = (struct pretend_device_record){0};
  return record;
}
