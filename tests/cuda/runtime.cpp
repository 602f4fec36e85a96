/* Stands in for CUDA's runtime and cuBLAS. A stream is a queue that is worked off when it is waited for, and at no
 * other time; device memory cannot be accessed in between, is NaN when fresh, and is not used twice: host code that
 * forgets to wait, or takes a device pointer for its own, fails. Set by the environment:
 *   TRM_MOCK_GPUS    processors of the node, 2 if unset; 0: none, and none: no driver, old: a driver that is too old
 *   TRM_MOCK_BYTES   memory of a processor, 4 GiB if unset */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "cuda/emulator.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, bytes) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) ((void)0)
#endif

struct CUstream_st {
  std::deque<std::function<void()>> work;
};

struct cublasContext {
  cudaStream_t stream;
};

namespace
{

constexpr size_t ARENA = (size_t)1 << 36, PAGE = 4096;
enum { OWN_VERSION = 12040, OLD_VERSION = 11020 };

struct device_memory {
  char *arena = nullptr; /* address space, taken once */
  size_t used = PAGE, held = 0;
  std::map<char *, size_t> blocks;
  std::set<void *> pinned;
} device;

/* Processors of one process work one after the other. */
std::mutex working;

thread_local cudaError_t last = cudaSuccess;

cudaError_t report(cudaError_t error)
{
  last = error != cudaSuccess ? error : last;
  return error;
}

const char *variable(const char *name, const char *otherwise)
{
  const char *text = getenv(name);

  return text ? text : otherwise;
}

size_t memory_total()
{
  return strtoull(variable("TRM_MOCK_BYTES", "4294967296"), nullptr, 10);
}

bool is_device(const void *memory)
{
  return device.arena && memory >= device.arena && memory < device.arena + ARENA;
}

void drain(cudaStream_t stream)
{
  const std::lock_guard<std::mutex> alone(working);

  if (stream->work.empty())
    return;
  if (device.arena)
    mprotect(device.arena, device.used, PROT_READ | PROT_WRITE);
  while (!stream->work.empty()) {
    const std::function<void()> work = std::move(stream->work.front());

    stream->work.pop_front();
    work();
  }
  if (device.arena)
    mprotect(device.arena, device.used, PROT_NONE);
}

/* One element of a product, in the order of a naive program. */
float element(const void *x, cudaDataType_t type, size_t at)
{
  return type == CUDA_R_16BF ? trm_bf16_value(((const trm_bf16 *)x)[at]) : ((const float *)x)[at];
}

/* A product by rows of floats, in the order of the terms. Column-major, as cuBLAS has it. */
struct product {
  bool transpose_a, transpose_b;
  size_t m, n, k, lda, ldb, ldc;
  float alpha, beta;
  const void *a, *b;
  void *c;
  cudaDataType_t type, type_c;
  bool rounds; /* factors to bfloat16 */

  std::vector<float> unpacked(const void *x, bool transposed, size_t rows, size_t columns, size_t ld) const
  {
    std::vector<float> to(rows * columns);

    for (size_t j = 0; j < columns; j++)
      for (size_t i = 0; i < rows; i++) {
        const float v = element(x, type, transposed ? i * ld + j : j * ld + i);

        to[j * rows + i] = rounds ? trm_bf16_value(trm_bf16_round(v)) : v;
      }
    return to;
  }

  void run() const
  {
    const std::vector<float> left = unpacked(a, transpose_a, m, k, lda), right = unpacked(b, transpose_b, k, n, ldb);
    std::vector<float> sum(m);

    for (size_t j = 0; j < n; j++) {
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (size_t l = 0; l < k; l++)
        for (size_t i = 0; i < m; i++)
          sum[i] += left[l * m + i] * right[j * k + l];
      for (size_t i = 0; i < m; i++) {
        const size_t at = j * ldc + i;
        const float v = alpha * sum[i] + (beta == 0 ? 0 : beta * element(c, type_c, at));

        if (type_c == CUDA_R_16BF)
          ((trm_bf16 *)c)[at] = trm_bf16_round(v);
        else
          ((float *)c)[at] = v;
      }
    }
  }
};

} // namespace

void emulator_queue(cudaStream_t stream, std::function<void()> work)
{
  stream->work.push_back(std::move(work));
}

extern "C" {

cudaError_t cudaGetDeviceCount(int *count)
{
  const char *text = variable("TRM_MOCK_GPUS", "2");

  *count = atoi(text);
  if (!strcmp(text, "none") || !strcmp(text, "old"))
    return cudaErrorInsufficientDriver;
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaDriverGetVersion(int *version)
{
  const char *text = variable("TRM_MOCK_GPUS", "2");

  *version = !strcmp(text, "none") ? 0 : !strcmp(text, "old") ? OLD_VERSION : OWN_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
  *version = OWN_VERSION;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int number)
{
  int count = 0;

  cudaGetDeviceCount(&count);
  return number >= 0 && number < count ? cudaSuccess : report(cudaErrorInvalidValue);
}

cudaError_t cudaGetLastError(void)
{
  const cudaError_t error = last;

  last = cudaSuccess;
  return error;
}

const char *cudaGetErrorString(cudaError_t error)
{
  return error == cudaErrorMemoryAllocation ? "out of memory" : error == cudaSuccess ? "no error" : "invalid argument";
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
  drain(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
  drain(stream);
  return cudaSuccess;
}

/* A block ends at the end of its pages, up to alignment, before a page that is never used. */
cudaError_t cudaMalloc(void **memory, size_t bytes)
{
  const std::lock_guard<std::mutex> alone(working);
  const size_t padded = (bytes + 255) / 256 * 256, pages = (padded + PAGE - 1) / PAGE * PAGE;

  *memory = nullptr;
  if (device.held + bytes > memory_total())
    return report(cudaErrorMemoryAllocation);
  if (!device.arena)
    device.arena = (char *)mmap(nullptr, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (device.arena == MAP_FAILED || device.used + pages + PAGE > ARENA)
    abort();
  char *block = device.arena + device.used + pages - padded;
  mprotect(device.arena + device.used, pages, PROT_READ | PROT_WRITE);
  memset(block, 0xff, padded);
  mprotect(device.arena + device.used, pages, PROT_NONE);
  ASAN_POISON_MEMORY_REGION(device.arena + device.used, pages + PAGE);
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
  device.used += pages + PAGE;
  device.held += bytes;
  device.blocks[block] = bytes;
  *memory = block;
  return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
  const std::lock_guard<std::mutex> alone(working);

  if (!memory)
    return cudaSuccess;
  const auto block = device.blocks.find((char *)memory);
  if (block == device.blocks.end())
    return report(cudaErrorInvalidValue);
  device.held -= block->second;
  char *first = (char *)((uintptr_t)memory / PAGE * PAGE);
  madvise(first, ((size_t)((char *)memory - first) + block->second + PAGE - 1) / PAGE * PAGE, MADV_DONTNEED);
  ASAN_POISON_MEMORY_REGION(memory, block->second);
  device.blocks.erase(block);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
  const std::lock_guard<std::mutex> alone(working);

  *memory = malloc(bytes);
  device.pinned.insert(*memory);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
  const std::lock_guard<std::mutex> alone(working);

  device.pinned.erase(memory);
  free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
  *total = memory_total();
  *free_bytes = *total - device.held;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
  if (bytes == 0)
    return cudaSuccess;
  if (is_device(to) != (kind != cudaMemcpyDeviceToHost) || is_device(from) != (kind != cudaMemcpyHostToDevice))
    return report(cudaErrorInvalidValue);
  if (kind != cudaMemcpyHostToDevice) {
    stream->work.push_back([=] { memcpy(to, from, bytes); });
    return cudaSuccess;
  }
  /* pageable memory is copied before the call returns */
  const auto copy = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
  stream->work.push_back([=] { memcpy(to, copy->data(), bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
  if (!is_device(memory))
    return report(cudaErrorInvalidValue);
  stream->work.push_back([=] { memset(memory, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemset2DAsync(void *memory, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)
{
  stream->work.push_back([=] {
    for (size_t i = 0; i < height; i++)
      memset((char *)memory + i * pitch, value, width);
  });
  return cudaSuccess;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
  *handle = new cublasContext{nullptr};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
  return status == CUBLAS_STATUS_SUCCESS ? "no error" : "invalid argument";
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                            const void *alpha, const void *a, cudaDataType_t type_a, int lda, const void *b,
                            cudaDataType_t type_b, int ldb, const void *beta, void *c, cudaDataType_t type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t)
{
  const product it = {op_a == CUBLAS_OP_T, op_b == CUBLAS_OP_T, (size_t)m, (size_t)n, (size_t)k, (size_t)lda,
                      (size_t)ldb, (size_t)ldc, *(const float *)alpha, *(const float *)beta, a, b, c, type_a, type_c,
                      compute == CUBLAS_COMPUTE_32F_FAST_16BF};
  const int rows_a = op_a == CUBLAS_OP_T ? k : m, rows_b = op_b == CUBLAS_OP_T ? n : k;

  if (type_a != type_b || lda < (rows_a > 1 ? rows_a : 1) || ldb < (rows_b > 1 ? rows_b : 1) || ldc < (m > 1 ? m : 1))
    return CUBLAS_STATUS_INVALID_VALUE;
  handle->stream->work.push_back([=] { it.run(); });
  return CUBLAS_STATUS_SUCCESS;
}
}
