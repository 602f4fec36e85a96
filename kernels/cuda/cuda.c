/* The CUDA device: the module's entry, opening, memory, failures. */
#include "kernels/cuda/cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "core/status.h"

#define GIB 1073741824.0

/* The program's functions: of the process. */
static const struct trm_module_host *cuda_host;

/* A block of alloc. */
struct cuda_block {
  struct cuda_block *next;
  void *memory;
  size_t bytes;
  enum trm_memory_use use;
};

void cuda_fail(const struct trm_device *device, const char *format, ...)
{
  struct cuda_state *state = cuda_state_of(device);
  va_list list;

  if (state->error[0])
    return;
  va_start(list, format);
  vsnprintf(state->error, sizeof state->error, format, list);
  va_end(list);
}

void cuda_check(const struct trm_device *device, int error, const char *what)
{
  if (error != cudaSuccess)
    cuda_fail(device, "GPU %d: %s: %s", cuda_state_of(device)->index, what, cudaGetErrorString((cudaError_t)error));
}

struct CUstream_st *cuda_stream(const struct trm_device *device)
{
  const struct cuda_state *state = cuda_state_of(device);

  cuda_check(device, (int)cudaSetDevice(state->index), "cudaSetDevice");
  return state->stream;
}

/* -- opening */

static int cuda_processors(int *count)
{
  int driver = 0, own = 0;
  const cudaError_t error = cudaGetDeviceCount(count);

  if (error == cudaSuccess && *count > 0)
    return TRM_OK;
  *count = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&own);
  if (driver == 0)
    return cuda_host->error(TRM_FAILED, "device.name=cuda: this node has no NVIDIA driver (no libcuda.so.1)");
  if (error == cudaErrorInsufficientDriver)
    return cuda_host->error(TRM_FAILED, "device.name=cuda: the NVIDIA driver of this node is too old: it supports CUDA "
                            "%d.%d, and this build needs %d.%d", driver / 1000, driver % 1000 / 10, own / 1000,
                            own % 1000 / 10);
  if (error == cudaErrorNoDevice || error == cudaSuccess)
    return cuda_host->error(TRM_FAILED, "device.name=cuda: this node has a driver but no GPU that it may use "
                            "(CUDA_VISIBLE_DEVICES?)");
  return cuda_host->error(TRM_FAILED, "device.name=cuda: %s", cudaGetErrorString(error));
}

static void cuda_close(struct trm_device *device)
{
  struct cuda_state *state = cuda_state_of(device);

  if (!state)
    return;
  cudaSetDevice(state->index);
  if (state->stream)
    cudaStreamSynchronize(state->stream);
  if (state->products)
    cublasDestroy(state->products);
  while (state->blocks) {
    struct cuda_block *block = state->blocks;

    state->blocks = block->next;
    cudaFree(block->memory);
    free(block);
  }
  free(state->runs.host);
  cudaFree(state->scratch);
  cudaFree(state->failure);
  cudaFreeHost(state->failure_read);
  if (state->stream)
    cudaStreamDestroy(state->stream);
  free(state);
  device->impl = NULL;
}

/* Takes the stream, the products, and memory for failures. */
static cudaError_t cuda_start(struct cuda_state *state)
{
  cudaError_t error = cudaSetDevice(state->index);

  if (error == cudaSuccess)
    error = cudaStreamCreateWithFlags(&state->stream, cudaStreamNonBlocking);
  if (error == cudaSuccess)
    error = cudaMalloc((void **)&state->failure, sizeof *state->failure);
  if (error == cudaSuccess)
    error = cudaMallocHost((void **)&state->failure_read, sizeof *state->failure_read);
  if (error == cudaSuccess)
    error = cudaMemsetAsync(state->failure, 0xff, sizeof *state->failure, state->stream);
  return error;
}

static int cuda_open(struct trm_device *device, int index, int threads, const struct trm_blas_ops *blas)
{
  int count = 0;

  TRM_CHECK(cuda_processors(&count));
  struct cuda_state *state = calloc(1, sizeof *state);
  if (!state)
    return cuda_host->error(TRM_FAILED, "device.name=cuda: no memory");
  device->impl = state;
  device->blas = blas;
  device->threads = threads > 0 ? threads : 1;
  device->host_memory = false;
  state->index = index % count;
  cudaError_t error = cuda_start(state);
  cublasStatus_t products = CUBLAS_STATUS_SUCCESS;
  if (error == cudaSuccess)
    products = cublasCreate(&state->products);
  if (products == CUBLAS_STATUS_SUCCESS && error == cudaSuccess)
    products = cublasSetStream(state->products, state->stream);
  size_t memory = 0;
  if (error == cudaSuccess && products == CUBLAS_STATUS_SUCCESS)
    error = cudaMemGetInfo(&device->memory_bytes, &memory);
  if (error == cudaSuccess && products == CUBLAS_STATUS_SUCCESS)
    return TRM_OK;
  const int status = cuda_host->error(TRM_FAILED, "device.name=cuda: GPU %d cannot be used: %s", state->index,
                                      error ? cudaGetErrorString(error) : cublasGetStatusString(products));
  cuda_close(device);
  return status;
}

/* -- memory */

/* The error of a block that does not fit: what this rank has, by use, and what is free. */
static int cuda_out_of_memory(const struct trm_device *device, size_t bytes, enum trm_memory_use use)
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
               cuda_host->memory_name((enum trm_memory_use)i), (double)held[i] / GIB);
  return cuda_host->error(TRM_FAILED, "GPU %d has no room for %s: %.2f GiB are needed, %.2f of %.2f GiB are free%s%s%s",
                          state->index, cuda_host->memory_name(use), (double)bytes / GIB, (double)free_bytes / GIB,
                          (double)total / GIB, list[0] ? "; this rank has" : "", list, list[0] ? " GiB" : "");
}

static int cuda_alloc(struct trm_device *device, size_t bytes, enum trm_memory_use use, void **memory)
{
  struct cuda_state *state = cuda_state_of(device);
  struct CUstream_st *stream = cuda_stream(device);
  const size_t taken = bytes > 0 ? bytes : TRM_ALIGNMENT;
  struct cuda_block *block = malloc(sizeof *block);

  *memory = NULL;
  if (!block || cudaMalloc(memory, taken) != cudaSuccess) {
    cudaGetLastError(); /* it is reported here, once */
    free(block);
    return cuda_out_of_memory(device, bytes, use);
  }
  *block = (struct cuda_block){.next = state->blocks, .memory = *memory, .bytes = taken, .use = use};
  state->blocks = block;
  cuda_check(device, (int)cudaMemsetAsync(*memory, 0, taken, stream), "alloc");
  return TRM_OK;
}

static void cuda_release(struct trm_device *device, void *memory)
{
  struct cuda_block **link = &cuda_state_of(device)->blocks;

  if (!memory)
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

void *cuda_scratch(struct trm_device *device, size_t bytes)
{
  struct cuda_state *state = cuda_state_of(device);

  if (bytes <= state->scratch_bytes && state->scratch)
    return state->scratch;
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

/* The runtime copies pageable memory before it returns. */
void cuda_upload(struct trm_device *device, void *to, const void *host, size_t bytes)
{
  cuda_check(device, (int)cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, cuda_stream(device)), "upload");
}

static void cuda_download(struct trm_device *device, void *host, const void *from, size_t bytes)
{
  struct CUstream_st *stream = cuda_stream(device);

  cuda_check(device, (int)cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, stream), "download");
  cuda_check(device, (int)cudaStreamSynchronize(stream), "download");
}

static void cuda_copy(struct trm_device *device, void *to, const void *from, size_t bytes)
{
  cuda_check(device, (int)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_stream(device)), "copy");
}

/* -- sync: reports the first failure */

/* Returns whether kernels have found an invalid argument; the first of the order of enum cuda_failure_kind. */
static bool cuda_found_failure(const struct cuda_failure *failure, enum cuda_failure_kind *kind)
{
  for (int k = 0; k < CUDA_FAILURES; k++)
    if (failure->first[k] != ~0ull) {
      *kind = (enum cuda_failure_kind)k;
      return true;
    }
  return false;
}

static int cuda_sync(struct trm_device *device)
{
  struct cuda_state *state = cuda_state_of(device);
  struct CUstream_st *stream = cuda_stream(device);
  struct cuda_failure *read = state->failure_read;
  enum cuda_failure_kind kind;
  char error[sizeof state->error];

  cuda_check(device, (int)cudaMemcpyAsync(read, state->failure, sizeof *read, cudaMemcpyDeviceToHost, stream), "sync");
  cuda_check(device, (int)cudaStreamSynchronize(stream), "sync");
  if (!state->error[0] && cuda_found_failure(read, &kind)) {
    const unsigned long long row = read->first[kind] >> 32, limit = read->limit[kind];
    const int value = (int)(unsigned)read->first[kind];

    if (kind == CUDA_BAD_TOKEN)
      cuda_fail(device, "embedding: token %llu is %d, but the vocabulary has %llu", row, value, limit);
    else
      cuda_fail(device, "softmax_cross_entropy: the target of row %llu is %d, but there are %llu classes", row, value,
                limit);
    cuda_check(device, (int)cudaMemsetAsync(state->failure, 0xff, sizeof *read, stream), "sync");
  }
  if (!state->error[0])
    return TRM_OK;
  memcpy(error, state->error, sizeof error);
  state->error[0] = '\0';
  return cuda_host->error(TRM_FAILED, "%s", error);
}

/* -- the module */

#define CUDA_SLOT(slot, type) .slot = cuda_##slot,
static const struct trm_device_ops cuda_ops = {
  .name = "cuda",
  .open = cuda_open,
  .close = cuda_close,
  .alloc = cuda_alloc,
  .release = cuda_release,
  .upload = cuda_upload,
  .download = cuda_download,
  .copy = cuda_copy,
  .fill = cuda_fill,
  .sync = cuda_sync,
  CUDA_KERNELS(CUDA_SLOT)
};

static const struct trm_module cuda_module = {
  .version = TRM_MODULE_VERSION, .layout = TRM_MODULE_LAYOUT, .ops = &cuda_ops, .processors = cuda_processors};

const struct trm_module *trm_module(const struct trm_module_host *host);
const struct trm_module *trm_module(const struct trm_module_host *host)
{
  cuda_host = host;
  return &cuda_module;
}
