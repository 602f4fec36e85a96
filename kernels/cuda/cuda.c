/* The CUDA device: the module's entry, opening, failures. */
#include "kernels/cuda/cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "core/status.h"

/* The program's functions: of the process. */
static const struct trm_module_host *cuda_host;

void cuda_fail(const struct trm_device *device, const char *format, ...)
{
  struct cuda_state *state = cuda_state_of(device);
  va_list list;

  if (cuda_refuses(device) || state->error[0])
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
  cuda_linear_close(state);
  cuda_copies_close(state);
  cuda_release_all(state);
  for (int i = 0; i < CUDA_RUNS; i++)
    free(state->runs[i].host);
  cudaFree(state->failure);
  cudaFreeHost(state->failure_read);
  if (state->stream)
    cudaStreamDestroy(state->stream);
  free(state);
  device->impl = NULL;
}

/* Takes the streams, and memory for failures. */
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
  if (error == cudaSuccess)
    error = (cudaError_t)cuda_copies_open(state);
  return error;
}

/* Opens cuBLAS with memory of its own, so that its calls can be recorded; without, if there is none. Setting the stream
 * takes memory back: it comes first. Products in parts have float32 sums: cuBLAS would round them to C's bfloat16
 * where that is faster. */
static cublasStatus_t cuda_open_products(struct cuda_state *state)
{
  cublasStatus_t status = cublasCreate(&state->products);

  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasSetStream(state->products, state->stream);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasSetMathMode(state->products, CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
  if (status != CUBLAS_STATUS_SUCCESS || cudaMalloc(&state->workspace, CUDA_WORKSPACE) == cudaSuccess)
    return state->workspace ? cublasSetWorkspace(state->products, state->workspace, CUDA_WORKSPACE) : status;
  cudaGetLastError();
  state->workspace = NULL;
  return status;
}

static int cuda_open(struct trm_device *device, int index, int threads, const struct trm_blas_ops *blas)
{
  int count = 0;

  TRM_CHECK(cuda_processors(&count));
  struct cuda_state *state = calloc(1, sizeof *state);
  if (!state)
    return cuda_host->error(TRM_FAILED, "device.name=cuda: no memory");
  state->program = cuda_host;
  device->impl = state;
  device->blas = blas;
  device->threads = threads > 0 ? threads : 1;
  device->host_memory = false;
  state->index = index % count;
  cudaError_t error = cuda_start(state);
  cublasStatus_t products = CUBLAS_STATUS_SUCCESS;
  if (error == cudaSuccess)
    products = cuda_open_products(state);
  if (products == CUBLAS_STATUS_SUCCESS && error == cudaSuccess)
    products = (cublasStatus_t)cuda_linear_open(state);
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

  if (cuda_refuses(device))
    return TRM_OK;
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

/* A slot without a kernel of this device has the host's form: the rows, weights and sums of sparse_sgd are in the
 * host's memory. */
#define cuda_sparse_sgd NULL
#define CUDA_SLOT(slot, type) .slot = cuda_##slot,
static const struct trm_device_ops cuda_ops = {
  .name = "cuda",
  .tf32 = true,
  .open = cuda_open,
  .close = cuda_close,
  .alloc = cuda_alloc,
  .release = cuda_release,
  .upload = cuda_upload,
  .download = cuda_download,
  .copy = cuda_copy,
  .fill = cuda_fill,
  .sync = cuda_sync,
  .upload_begin = cuda_upload_begin,
  .download_begin = cuda_download_begin,
  .await = cuda_await,
  .event_done = cuda_event_done,
  .event_wait = cuda_event_wait,
  .event_free = cuda_event_free,
  .pin = cuda_pin,
  .unpin = cuda_unpin,
  .record_begin = cuda_record_begin,
  .record_end = cuda_record_end,
  .replay = cuda_replay,
  .recording_free = cuda_recording_free,
  TRM_KERNELS(CUDA_SLOT)
  TRM_FUSED_KERNELS(CUDA_SLOT)
};

static const struct trm_module cuda_module = {
  .version = TRM_MODULE_VERSION, .layout = TRM_MODULE_LAYOUT, .ops = &cuda_ops, .processors = cuda_processors};

const struct trm_module *trm_module(const struct trm_module_host *host);
const struct trm_module *trm_module(const struct trm_module_host *host)
{
  cuda_host = host;
  return &cuda_module;
}
