/* Memory of the CUDA device: blocks, and scratch memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "core/status.h"
#include "kernels/cuda/cuda.h"

#define GIB 1073741824.0

/* A block of alloc. */
struct cuda_block {
  struct cuda_block *next;
  void *memory;
  size_t bytes;
  enum trm_memory_use use;
};

/* The error of a block that does not fit: what this rank has, by use, and what is free. */
static int memory_out(const struct trm_device *device, size_t bytes, enum trm_memory_use use)
{
  const struct cuda_state *state = cuda_state_of(device);
  size_t free_bytes = 0, total = 0, held[TRM_MEMORY_USES] = {0};
  char list[512] = "";

  cudaMemGetInfo(&free_bytes, &total);
  for (const struct cuda_block *block = state->blocks; block; block = block->next)
    held[block->use] += block->bytes;
  for (int i = 0; i < TRM_MEMORY_USES; i++)
    if (held[i] > 0)
      snprintf(list + strlen(list), sizeof list - strlen(list), "%s %s %.2f", list[0] ? "," : "",
               state->program->memory_name((enum trm_memory_use)i), (double)held[i] / GIB);
  return state->program->error(TRM_FAILED,
                               "GPU %d has no room for %s: %.2f GiB are needed, %.2f of %.2f GiB are free%s%s%s",
                               state->index, state->program->memory_name(use), (double)bytes / GIB,
                               (double)free_bytes / GIB, (double)total / GIB, list[0] ? "; this rank has" : "", list,
                               list[0] ? " GiB" : "");
}

int cuda_alloc(struct trm_device *device, size_t bytes, enum trm_memory_use use, void **memory)
{
  struct cuda_state *state = cuda_state_of(device);
  struct CUstream_st *stream = cuda_stream(device);
  const size_t taken = bytes > 0 ? bytes : TRM_ALIGNMENT;

  *memory = NULL;
  if (cuda_refuses(device))
    return TRM_FAILED;
  struct cuda_block *block = malloc(sizeof *block);
  if (!block || cudaMalloc(memory, taken) != cudaSuccess) {
    cudaGetLastError(); /* it is reported here, once */
    free(block);
    return memory_out(device, bytes, use);
  }
  *block = (struct cuda_block){.next = state->blocks, .memory = *memory, .bytes = taken, .use = use};
  state->blocks = block;
  cuda_check(device, (int)cudaMemsetAsync(*memory, 0, taken, stream), "alloc");
  return TRM_OK;
}

void cuda_release(struct trm_device *device, void *memory)
{
  struct cuda_block **link = &cuda_state_of(device)->blocks;

  if (!memory || cuda_refuses(device))
    return;
  while (*link && (*link)->memory != memory)
    link = &(*link)->next;
  if (!*link) {
    cuda_fail(device, "release: %p is no memory of this device", memory);
    return;
  }
  struct cuda_block *block = *link;
  *link = block->next;
  cuda_check(device, (int)cudaStreamSynchronize(cuda_stream(device)), "release");
  cuda_check(device, (int)cudaFree(memory), "release");
  free(block);
}

void cuda_release_all(struct cuda_state *state)
{
  while (state->blocks) {
    struct cuda_block *block = state->blocks;

    state->blocks = block->next;
    cudaFree(block->memory);
    free(block);
  }
  cudaFree(state->scratch);
  cudaFree(state->workspace);
}

void *cuda_scratch(struct trm_device *device, size_t bytes)
{
  struct cuda_state *state = cuda_state_of(device);

  if (bytes <= state->scratch_bytes && state->scratch)
    return state->scratch;
  if (cuda_refuses(device))
    return NULL;
  state->replaced++;
  cuda_check(device, (int)cudaStreamSynchronize(cuda_stream(device)), "scratch memory");
  cudaFree(state->scratch);
  state->scratch = NULL;
  state->scratch_bytes = bytes > 0 ? bytes : TRM_ALIGNMENT;
  if (cudaMalloc(&state->scratch, state->scratch_bytes) == cudaSuccess)
    return state->scratch;
  cudaGetLastError();
  state->scratch = NULL;
  state->scratch_bytes = 0;
  cuda_fail(device, "GPU %d has no room for %.2f GiB of scratch memory", state->index, (double)bytes / GIB);
  return NULL;
}
