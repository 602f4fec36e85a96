/* The emulator and the mock find what they are made for: small kernels with one planted bug each. Every kernel runs
 * often, in other orders of its threads, in a process of its own; its correct form must have one result. */
#include <cuda_runtime_api.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/tensor_core.cuh"

enum { N = 64 /* threads of a block, elements of an array: 256 bytes */, LAUNCHES = 20 };

static cudaStream_t stream;

struct CUstream_st *cuda_stream(const struct trm_device *)
{
  return stream;
}

/* -- kernels: y (N) from x (N) */

template <bool wrong> static void barrier(const float *x, float *y)
{
  CUDA_SHARED(float, a, N);

  a[threadIdx.x] = x[threadIdx.x];
  if (!wrong)
    __syncthreads();
  y[threadIdx.x] = a[(threadIdx.x + 1) % N];
}

template <bool wrong> static void race(const float *x, float *y)
{
  y[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  const float next = y[(threadIdx.x + 1) % N];
  if (!wrong)
    __syncthreads();
  y[threadIdx.x] = next;
}

template <bool wrong> static void shared_write(const float *x, float *y)
{
  CUDA_SHARED(float, a, N);

  a[threadIdx.x + wrong] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = threadIdx.x < 1 ? 0 : a[threadIdx.x];
}

template <bool wrong> static void shared_read(const float *x, float *y)
{
  CUDA_SHARED(float, a, N);

  a[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = a[threadIdx.x + wrong];
}

template <bool wrong> static void shared_unwritten(const float *x, float *y)
{
  CUDA_SHARED(float, a, N);

  if (!wrong || threadIdx.x > 0)
    a[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = a[threadIdx.x];
}

template <bool wrong> static void shared_size(const float *x, float *y)
{
  CUDA_SHARED(float, a, wrong ? (48 << 10) / 4 + 1 : (int)N);

  a[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = a[threadIdx.x];
}

template <bool wrong> static void global_write(const float *x, float *y)
{
  y[threadIdx.x] = 0;
  __syncthreads();
  y[threadIdx.x + wrong] = x[threadIdx.x];
}

template <bool wrong> static void global_read(const float *x, float *y)
{
  y[threadIdx.x] = x[threadIdx.x + wrong];
}

template <bool wrong> static void divergent_barrier(const float *x, float *y)
{
  if (!wrong || threadIdx.x < N / 2)
    __syncthreads();
  y[threadIdx.x] = x[threadIdx.x];
}

template <bool wrong> static void divergent_shuffle(const float *x, float *y)
{
  float sum = x[threadIdx.x];

  if (!wrong || threadIdx.x > 0)
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  y[threadIdx.x] = sum;
}

/* Not a word of the emulator, since no kernel may use it. */
static void atomic_add(float *to, float x)
{
  *to += x;
}

template <bool wrong> static void sum(const float *x, float *y)
{
  CUDA_SHARED(float, total, 1);

  if (threadIdx.x == 0)
    *total = 0;
  __syncthreads();
  if (wrong)
    atomic_add(total, x[threadIdx.x]);
  else if (threadIdx.x == 0)
    for (int i = 0; i < N; i++)
      *total += x[i];
  __syncthreads();
  y[threadIdx.x] = *total;
}

/* A copy is waited for. */
template <bool wrong> static void copy(const float *x, float *y)
{
  CUDA_SHARED(float, a, N);

  if (threadIdx.x % 4 == 0)
    tensor_copy(a + threadIdx.x, x + threadIdx.x, true);
  tensor_copies_end();
  if (wrong) {
    tensor_copies_wait<1>();
    __syncthreads();
    y[threadIdx.x] = a[threadIdx.x];
  }
  tensor_copies_wait<0>();
  __syncthreads();
  if (!wrong)
    y[threadIdx.x] = a[threadIdx.x];
}

/* A copy begins when the memory has been read. */
template <bool wrong> static void copy_over(const float *x, float *y)
{
  CUDA_SHARED(float, a, N);

  a[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = a[N - 1 - threadIdx.x];
  if (!wrong)
    __syncthreads();
  if (threadIdx.x % 4 == 0)
    tensor_copy(a + threadIdx.x, x + (N - 4 - threadIdx.x), true);
  tensor_copies_end();
  tensor_copies_wait<0>();
  __syncthreads();
  y[threadIdx.x] += a[threadIdx.x];
}

static void element(const float *x, float *y)
{
  CUDA_ELEMENTS(i, N)
    y[i] = x[i];
}

/* -- launches */

#define PLANTED(kernel)                                                   \
  template <bool wrong> static void launch_##kernel(const float *x, float *y) \
  {                                                                       \
    CUDA_LAUNCH(kernel<wrong>, 1, N, nullptr, x, y);                      \
  }
PLANTED(barrier)
PLANTED(race)
PLANTED(shared_write)
PLANTED(shared_read)
PLANTED(shared_unwritten)
PLANTED(shared_size)
PLANTED(global_write)
PLANTED(global_read)
PLANTED(divergent_barrier)
PLANTED(divergent_shuffle)
PLANTED(sum)
PLANTED(copy)
PLANTED(copy_over)

/* Threads for a part of the elements only. */
template <bool wrong> static void launch_grid(const float *x, float *y)
{
  auto grid = [](const float *from, float *to, unsigned blocks) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

    if (blocks > 0 && i < N)
      to[i] = from[i];
  };
  const unsigned blocks = wrong ? N / 48 : (N + 47) / 48;

  CUDA_LAUNCH(grid, blocks, 48, nullptr, x, y, blocks);
}

/* A thread reads memory of the host: the kernel's argument is one. */
template <bool wrong> static void launch_host_memory(const float *x, float *y)
{
  CUDA_LAUNCH(element, 1, N, nullptr, x, y);
  if (wrong)
    *(volatile float *)y = 1;
}

/* A launch in a graph. */
enum illegal { ALLOCATION = 1, RELEASE, WAIT, QUESTION, HOST_COPY };

/* Calls what may not be called while the stream is captured; 0: nothing. */
static void call_illegal(int illegal, float *y)
{
  static cudaEvent_t event;
  void *memory;

  if (illegal == ALLOCATION)
    cudaMalloc(&memory, N);
  else if (illegal == RELEASE)
    cudaFree(y);
  else if (illegal == WAIT)
    cudaStreamSynchronize(stream);
  else if (illegal == HOST_COPY)
    cudaMemcpyAsync(&memory, y, sizeof memory, cudaMemcpyDeviceToHost, stream);
  else if (illegal == QUESTION && cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess)
    cudaEventQuery(event);
  cudaGetLastError();
}

template <int illegal> static void launch_graph(const float *x, float *y)
{
  cudaGraph_t graph;
  cudaGraphExec_t exec;

  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  CUDA_LAUNCH(element, 1, N, nullptr, x, y);
  call_illegal(illegal, y);
  if (cudaStreamEndCapture(stream, &graph) != cudaSuccess) {
    cudaGetLastError();
    return;
  }
  cudaGraphInstantiateWithFlags(&exec, graph, 0);
  cudaGraphDestroy(graph);
  cudaGraphLaunch(exec, stream);
  cudaStreamSynchronize(stream);
  cudaGraphExecDestroy(exec);
}

/* -- the child and its parent */

enum finding { CLEAN = 16, DIFFERS = 32, NOT_A_NUMBER = 64, ENDS = 128 }; /* statuses of no other kind of exit */

/* Returns what all launches together show. */
static int child_run(void (*launch)(const float *x, float *y))
{
  float host[N], first[N];
  void *x = nullptr, *y = nullptr;
  int found = CLEAN;

  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  for (int i = 0; i < N; i++)
    host[i] = 1 / (float)(i + 1);
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&y, sizeof host);
  cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, stream);
  for (int n = 0; n < LAUNCHES; n++) {
    cudaMemsetAsync(y, 0xff, sizeof host, stream);
    launch((const float *)x, (float *)y);
    cudaMemcpyAsync(host, y, sizeof host, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    if (n == 0)
      memcpy(first, host, sizeof host);
    if (memcmp(first, host, sizeof host) != 0)
      return DIFFERS;
    for (int i = 0; i < N; i++)
      found = isnan(host[i]) ? (int)NOT_A_NUMBER : found;
  }
  cudaFree(x);
  cudaFree(y);
  return found;
}

static const char *finding_word(int found)
{
  return found == CLEAN ? "not found" : found == DIFFERS ? "other bits" : found == NOT_A_NUMBER ? "NaN" :
    "the program ends";
}

/* Runs it in a child, and returns what is found. */
static int planted_run(void (*launch)(const float *x, float *y))
{
  const struct rlimit none = {0, 0};
  int status = 0;
  const pid_t child = fork();

  if (child == 0) {
    setrlimit(RLIMIT_CORE, &none);
    if (!freopen("/dev/null", "w", stderr))
      _exit(0);
    _exit(child_run(launch));
  }
  if (child < 0 || waitpid(child, &status, 0) != child)
    return 0;
  const int end = WIFEXITED(status) ? WEXITSTATUS(status) : (int)ENDS;
  return end == CLEAN || end == DIFFERS || end == NOT_A_NUMBER ? end : (int)ENDS;
}

int main()
{
  static const struct {
    const char *bug;
    int want; /* of these findings, one */
    void (*wrong)(const float *x, float *y), (*right)(const float *x, float *y);
  } planted[] = {
    {"a missing barrier", DIFFERS, launch_barrier<true>, launch_barrier<false>},
    {"a race of two threads", DIFFERS, launch_race<true>, launch_race<false>},
    {"a write behind a shared array", ENDS, launch_shared_write<true>, launch_shared_write<false>},
    {"a read behind a shared array", NOT_A_NUMBER | ENDS, launch_shared_read<true>, launch_shared_read<false>},
    {"unwritten shared memory", NOT_A_NUMBER, launch_shared_unwritten<true>, launch_shared_unwritten<false>},
    {"too much shared memory", ENDS, launch_shared_size<true>, launch_shared_size<false>},
    {"a write behind an array", ENDS, launch_global_write<true>, launch_global_write<false>},
    {"a read behind an array", NOT_A_NUMBER | ENDS, launch_global_read<true>, launch_global_read<false>},
    {"a barrier that half of the threads reach", ENDS, launch_divergent_barrier<true>, launch_divergent_barrier<false>},
    {"a shuffle without one lane", ENDS, launch_divergent_shuffle<true>, launch_divergent_shuffle<false>},
    {"a sum in the order of the threads", DIFFERS, launch_sum<true>, launch_sum<false>},
    {"a copy that is read too early", DIFFERS | NOT_A_NUMBER, launch_copy<true>, launch_copy<false>},
    {"a copy that is begun too early", DIFFERS, launch_copy_over<true>, launch_copy_over<false>},
    {"a grid that is too small", NOT_A_NUMBER, launch_grid<true>, launch_grid<false>},
    {"device memory used by the host", ENDS, launch_host_memory<true>, launch_host_memory<false>},
    {"an allocation in a graph", NOT_A_NUMBER, launch_graph<ALLOCATION>, launch_graph<0>},
    {"a release in a graph", NOT_A_NUMBER, launch_graph<RELEASE>, launch_graph<0>},
    {"a wait in a graph", NOT_A_NUMBER, launch_graph<WAIT>, launch_graph<0>},
    {"a question in a graph", NOT_A_NUMBER, launch_graph<QUESTION>, launch_graph<0>},
    {"a copy to the host in a graph", NOT_A_NUMBER, launch_graph<HOST_COPY>, launch_graph<0>},
  };
  int failed = 0;

  for (const auto &it : planted) {
    const int found = planted_run(it.wrong), control = planted_run(it.right);
    const bool passed = (found & it.want) && control == CLEAN;

    printf("%s: %s: %s%s\n", passed ? "passed" : "FAILED", it.bug, finding_word(found),
           control == CLEAN ? "" : ", and the correct form is not clean");
    failed += !passed;
  }
  return failed > 0;
}
