/* The CPU device: open, memory, and dividing loops among threads. */
#include "kernels/cpu/cpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/comm.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "kernels/composed_kernels.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/conv.h"
#include "kernels/cpu/conv_onednn.h"
#include "kernels/host_kernels.h"
#include "kernels/kernels.h"

#define FLOAT_BYTES sizeof(float)

static int cpu_open(struct trm_device *device, int index, int threads, const struct trm_blas_ops *blas)
{
  (void)index; /* all processors of a node are one device; ranks divide its threads */
  device->threads = threads > 0 ? threads : trm_parallel_default();
  TRM_CHECK(blas->open(device->threads));
  device->blas = blas;
  device->host_memory = true;
  struct cpu_state *state = device->impl = trm_alloc(sizeof(struct cpu_state), "the cpu device");
  const struct conv_kernels *const *conv = conv_kernels_table;
  while (!(*conv)->supported())
    conv++;
  state->conv = *conv;
  const struct attention_kernels *const *attention = attention_kernels_table;
  while (*attention && !(*attention)->supported())
    attention++;
  state->attention = *attention;
  const struct attention_blocks *const *blocks = attention_blocks_table;
  while (*blocks && !(*blocks)->supported())
    blocks++;
  state->attention_blocks = *blocks;
  return TRM_OK;
}

static void cpu_close(struct trm_device *device)
{
  struct cpu_state *state = device->impl;

  if (state) {
    conv_onednn_close(state->library);
    for (int kind = 0; kind <= TRM_SCALE; kind++)
      trm_free(state->activation[kind]);
    trm_free(state->scratch);
  }
  trm_free(state);
  device->impl = NULL;
}

static int cpu_alloc(struct trm_device *device, size_t bytes, enum trm_memory_use use, void **memory)
{
  (void)device;
  *memory = trm_alloc(bytes, trm_memory_name(use));
  return TRM_OK;
}

static void cpu_release(struct trm_device *device, void *memory)
{
  (void)device;
  trm_free(memory);
}

struct copy {
  char *to;
  const char *from;
};

static void cpu_copy_body(const void *arguments, size_t low, size_t high)
{
  const struct copy *it = arguments;

  memcpy(it->to + low, it->from + low, high - low);
}

static void cpu_copy(struct trm_device *device, void *to, const void *from, size_t bytes)
{
  const struct copy it = {to, from};

  cpu_for(device, bytes, CPU_GRANULE * FLOAT_BYTES, 1.0 / FLOAT_BYTES, cpu_copy_body, &it);
}

static int cpu_sync(struct trm_device *device)
{
  struct cpu_state *state = device->impl;

  if (!state->failed)
    return TRM_OK;
  state->failed = false;
  return trm_error(TRM_FAILED, "%s", state->failure);
}

void *cpu_scratch(struct trm_device *device, size_t bytes)
{
  struct cpu_state *state = device->impl;

  if (bytes > state->scratch_bytes) {
    trm_free(state->scratch);
    state->scratch = trm_alloc(bytes, "scratch memory of the cpu device");
    state->scratch_bytes = bytes;
  }
  return state->scratch;
}

float *cpu_buffers(struct trm_device *device, enum trm_value_type type, size_t n)
{
  if (type == TRM_VALUES_F32)
    return NULL;
  return cpu_scratch(device, (size_t)device->threads * cpu_buffer_stride(n) * sizeof(float));
}

void cpu_fail(struct trm_device *device, const char *format, ...)
{
  struct cpu_state *state = device->impl;
  va_list list;

  if (state->failed)
    return;
  state->failed = true;
  va_start(list, format);
  vsnprintf(state->failure, sizeof(state->failure), format, list);
  va_end(list);
}

int cpu_thread(void)
{
  return trm_parallel_thread();
}

/* A loop in granules. */
struct granules {
  cpu_body *body;
  const void *arguments;
  size_t n, granule;
};

static void cpu_granules_body(const void *context, size_t low, size_t high)
{
  const struct granules *it = context;

  low *= it->granule;
  high = high * it->granule < it->n ? high * it->granule : it->n;
  if (low < high)
    it->body(it->arguments, low, high);
}

void cpu_for(const struct trm_device *device, size_t n, size_t granule, double work, cpu_body *body,
             const void *arguments)
{
  const struct granules it = {body, arguments, n, granule};

  if ((double)n * work < CPU_PARALLEL_WORK)
    trm_parallel_for(1, n, body, arguments);
  else
    trm_parallel_for(device->threads, (n + granule - 1) / granule, cpu_granules_body, &it);
}

#define CPU_SLOT(slot, type) .slot = cpu_##slot,
#define CPU_COMPOSED(slot, type) .slot = composed_##slot,
const struct trm_device_ops trm_device_cpu = {
  .name = "cpu",
  .open = cpu_open,
  .close = cpu_close,
  .alloc = cpu_alloc,
  .release = cpu_release,
  .upload = cpu_copy,
  .download = cpu_copy,
  .copy = cpu_copy,
  .fill = cpu_fill,
  .sync = cpu_sync,
  HOST_COPIES,
  .conv2d_fuses = conv_onednn_fuses,
  .conv2d_fused = conv_onednn_fused,
  .channels_last = conv_onednn_last,
  TRM_KERNELS(CPU_SLOT)
  TRM_FUSED_KERNELS(CPU_COMPOSED)
};
