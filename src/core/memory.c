/* Aligned, zeroed host memory. Large blocks come from mmap: their pages are zero already and belong to the NUMA domain
 * of the thread that touches them first. */
#include "core/memory.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/log.h"
#include "core/status.h"

#define HUGE_PAGE ((size_t)2 << 20)

/* In the TRM_ALIGNMENT bytes before each block. */
struct header {
  void *base;    /* for free or munmap */
  size_t mapped; /* bytes of the mapping, 0: from malloc */
  size_t bytes;  /* requested */
};
_Static_assert(sizeof(struct header) <= TRM_ALIGNMENT, "the header stands in front of an aligned block");

static _Atomic size_t allocated_bytes;

static struct header *memory_header(void *memory)
{
  return (struct header *)((char *)memory - TRM_ALIGNMENT);
}

/* Returns NULL if out of memory. */
static void *memory_map_block(size_t bytes)
{
  const size_t capacity = bytes + 2 * HUGE_PAGE;
  void *base = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED)
    return NULL;
  const uintptr_t first = (uintptr_t)base + TRM_ALIGNMENT;
  void *memory = (char *)base + ((first + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE - (uintptr_t)base);
  *memory_header(memory) = (struct header){base, capacity, bytes};
  trm_advise_huge(memory, bytes);
  return memory;
}

static void *memory_malloc_block(size_t bytes)
{
  void *base = NULL;
  if (posix_memalign(&base, TRM_ALIGNMENT, bytes + TRM_ALIGNMENT) != 0)
    return NULL;
  memset(base, 0, bytes + TRM_ALIGNMENT);
  void *memory = (char *)base + TRM_ALIGNMENT;
  *memory_header(memory) = (struct header){base, 0, bytes};
  return memory;
}

const char *trm_memory_name(enum trm_memory_use use)
{
  static const char *const name[TRM_MEMORY_USES] = {
    "weights", "gradients", "optimizer states", "activations", "buffers of sharded layers", "the data set", "buffers"};
  return name[use];
}

void *trm_alloc(size_t bytes, const char *what)
{
  void *memory = NULL;
  if (bytes < PTRDIFF_MAX - 2 * HUGE_PAGE)
    memory = bytes >= HUGE_PAGE ? memory_map_block(bytes) : memory_malloc_block(bytes);
  if (!memory)
    trm_abort_on_error(trm_error(TRM_FAILED, "out of memory: %.1f MiB for %s", (double)bytes / 1048576.0, what));
  trm_memory_account(bytes, 0);
  return memory;
}

void trm_free(void *memory)
{
  if (!memory)
    return;
  const struct header header = *memory_header(memory);
  trm_memory_account(0, header.bytes);
  if (header.mapped)
    munmap(header.base, header.mapped);
  else
    free(header.base);
}

char *trm_strdup(const char *text)
{
  const size_t bytes = strlen(text) + 1;
  return memcpy(trm_alloc(bytes, "text"), text, bytes);
}

static void memory_append(char **text, const char *format, va_list arguments)
{
  va_list copy;
  va_copy(copy, arguments);
  const int length = vsnprintf(NULL, 0, format, copy);
  va_end(copy);
  const size_t used = *text ? strlen(*text) : 0, added = length > 0 ? (size_t)length + 1 : 1;
  char *longer = trm_alloc(used + added, "text");
  if (used)
    memcpy(longer, *text, used);
  vsnprintf(longer + used, added, format, arguments);
  trm_free(*text); /* last: the arguments may quote it */
  *text = longer;
}

void trm_append(char **text, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  memory_append(text, format, arguments);
  va_end(arguments);
}

char *trm_format(const char *format, ...)
{
  char *text = NULL;
  va_list arguments;
  va_start(arguments, format);
  memory_append(&text, format, arguments);
  va_end(arguments);
  return text;
}

void trm_advise_huge(void *memory, size_t bytes)
{
#ifdef MADV_HUGEPAGE
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t skipped = (page - (uintptr_t)memory % page) % page;
  if (bytes >= skipped + HUGE_PAGE)
    madvise((char *)memory + skipped, bytes - skipped, MADV_HUGEPAGE);
#else
  (void)memory;
  (void)bytes;
#endif
}

void *trm_grow(void *array, size_t *capacity, size_t used, size_t needed, size_t element, const char *what)
{
  if (needed <= *capacity)
    return array;
  const size_t larger_capacity = needed + needed / 2 + 16;
  void *larger = trm_alloc(larger_capacity * element, what);
  if (used)
    memcpy(larger, array, used * element);
  trm_free(array);
  *capacity = larger_capacity;
  return larger;
}

size_t trm_memory_allocated(void)
{
  return atomic_load(&allocated_bytes);
}

void trm_memory_account(size_t added, size_t removed)
{
  atomic_fetch_add(&allocated_bytes, added - removed);
}

size_t trm_memory_resident(void)
{
  unsigned long long pages = 0, resident = 0;
  FILE *stream = fopen("/proc/self/statm", "r");
  if (!stream)
    return 0;
  const int read = fscanf(stream, "%llu %llu", &pages, &resident);
  fclose(stream);
  return read == 2 ? (size_t)resident * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

size_t trm_memory_peak(void)
{
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? (size_t)usage.ru_maxrss * 1024 : 0;
}
