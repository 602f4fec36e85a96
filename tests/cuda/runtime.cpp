/* Stands in for CUDA's runtime. A stream is a queue. Work is done when the host waits for it, or for what comes after
 * it, and at no other time: one stream works until that is done, and the others as far as events force them, or, at
 * random, as far as events let them. Device memory cannot be accessed in between, is NaN when fresh, and is not
 * used twice: host code that forgets to wait, or takes a device pointer for its own, fails. Page-locked memory is read
 * when a copy is made, and is NaN until one from the device is; other host memory has been copied when the call
 * returns. Set by the environment:
 *   TRM_MOCK_GPUS    processors of the node, 2 if unset; 0: none, and none: no driver, old: a driver that is too old
 *   TRM_MOCK_BYTES   memory of a processor, 4 GiB if unset
 *   TRM_MOCK_LOCKS   no: host memory cannot be registered
 *   TRM_MOCK_GRAPHS  no: streams cannot be captured
 *   TRM_MOCK_CALLS   a file that gets the numbers of calls that give a stream work, and of launches of graphs among
 *                    them; without copies of the host's memory, whose number depends on where pages begin
 *
 * A stream that is captured stores what it is given, for the launches of a graph. A call that CUDA does not allow in a
 * captured stream, or in a thread that captures one, spoils the capture: its end fails. Other streams work as ever. */
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "core/sanitizers.h"
#include "cuda/emulator.h"

#ifdef TRM_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, bytes) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) ((void)0)
#endif

/* A record of an event, which is done when the work before it is. */
struct event_record {
  cudaStream_t stream;
  bool done = false;
};

/* An item of a stream. */
struct stream_work {
  std::function<void()> run;                       /* empty: none */
  std::shared_ptr<event_record> records = nullptr; /* of an event; NULL: none */
  std::shared_ptr<event_record> waits = nullptr;
  const char *host = nullptr; /* locked memory that it accesses */
  size_t bytes = 0;
};

/* Work that is captured, or was. */
struct captured_work {
  std::vector<std::function<void()>> run;
  bool spoiled = false;
};

struct CUstream_st {
  int processor;
  std::deque<stream_work> work;
  std::shared_ptr<captured_work> capture; /* NULL: it is not captured */
};

struct CUgraph_st {
  std::shared_ptr<captured_work> work;
};

struct CUgraphExec_st {
  std::shared_ptr<captured_work> work;
};

struct CUevent_st {
  int processor;
  std::shared_ptr<event_record> last; /* NULL: never recorded */
  int questions;                      /* whether it is done, since then */
};

namespace
{

constexpr size_t ARENA = (size_t)1 << 36, PAGE = 4096, ALIGNMENT = 256;
enum { OWN_VERSION = 12040, OLD_VERSION = 11020 };

struct device_memory {
  char *arena = nullptr; /* address space, taken once */
  size_t used = PAGE, held = 0;
  std::map<char *, size_t> blocks;
} device;

std::map<const char *, size_t> locked; /* pages of host memory */
std::vector<cudaStream_t> streams;
std::mt19937 order;

/* Of all of the above. Processors of one process work one after the other. */
std::mutex working;
typedef std::lock_guard<std::mutex> alone;

thread_local cudaError_t last = cudaSuccess;
thread_local int processor = 0; /* the current one */
thread_local std::shared_ptr<captured_work> own_capture; /* of this thread */

/* Counts what gives a stream work but copies of the host's memory, and writes the counts when the program ends. */
struct call_counts {
  size_t calls = 0, graphs = 0;

  ~call_counts()
  {
    const char *path = getenv("TRM_MOCK_CALLS");
    FILE *file = path ? fopen(path, "w") : nullptr;

    if (file) {
      fprintf(file, "%zu %zu\n", calls, graphs);
      fclose(file);
    }
  }
} counts;

/* What CUDA leaves undefined. */
[[noreturn]] void misused(const char *what)
{
  fprintf(stderr, "mock of CUDA: %s\n", what);
  abort();
}

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

/* Spoils a capture, if there is one, and returns whether there is. */
bool spoils(const std::shared_ptr<captured_work> &capture)
{
  if (capture)
    capture->spoiled = true;
  return capture != nullptr;
}

size_t memory_total()
{
  return strtoull(variable("TRM_MOCK_BYTES", "4294967296"), nullptr, 10);
}

bool is_device(const void *memory)
{
  return device.arena && memory >= device.arena && memory < device.arena + ARENA;
}

/* Does the first item of a stream, which waits for nothing. */
void do_first(cudaStream_t stream)
{
  const stream_work work = std::move(stream->work.front());

  stream->work.pop_front();
  if (work.run)
    work.run();
  if (work.records)
    work.records->done = true;
}

/* Works until the record is done (NULL: until nothing is left), and on other streams as far as this waits for them. */
void do_until(cudaStream_t stream, const event_record *record)
{
  while (!stream->work.empty() && !(record && record->done)) {
    const std::shared_ptr<event_record> waits = stream->work.front().waits;

    if (waits && !waits->done)
      do_until(waits->stream, waits.get());
    do_first(stream);
  }
}

/* Does what waits for nothing. */
void do_all_that_can(cudaStream_t stream)
{
  while (!stream->work.empty() && !(stream->work.front().waits && !stream->work.front().waits->done))
    do_first(stream);
}

/* The host waits. The caller is alone. */
void drain(cudaStream_t stream, const event_record *record = nullptr)
{
  if (stream->work.empty() || (record && record->done))
    return;
  if (device.arena)
    mprotect(device.arena, device.used, PROT_READ | PROT_WRITE);
  for (cudaStream_t other : streams)
    if (other != stream && order() % 2)
      do_all_that_can(other);
  do_until(stream, record);
  if (device.arena)
    mprotect(device.arena, device.used, PROT_NONE);
}

void append(cudaStream_t stream, stream_work work, bool counted = true)
{
  const alone here(working);

  if (std::find(streams.begin(), streams.end(), stream) == streams.end())
    misused("work for a stream that there is not");
  if (!stream->capture) {
    counts.calls += counted;
    stream->work.push_back(std::move(work));
  } else if (work.records || work.waits || work.host) { /* CUDA may allow it, but then it means something else */
    stream->capture->spoiled = true;
  } else {
    stream->capture->run.push_back(std::move(work.run));
  }
}

/* Returns whether all of the memory is locked; mixed: some of it is. The caller is alone. */
bool is_locked(const void *memory, size_t bytes, bool *mixed)
{
  const char *first = (const char *)memory, *end = first + bytes;
  size_t covered = 0;

  for (const auto &range : locked) {
    const char *low = std::max(first, range.first), *high = std::min(end, range.first + range.second);

    covered += low < high ? (size_t)(high - low) : 0;
  }
  *mixed = covered > 0 && covered < bytes;
  return covered == bytes;
}

/* Forgets locked memory, which no copy may need any more. The caller is alone. */
void unlock(const char *memory)
{
  const size_t bytes = locked[memory];

  for (cudaStream_t stream : streams)
    for (const stream_work &work : stream->work)
      if (work.host && work.host < memory + bytes && memory < work.host + work.bytes)
        misused("locked memory of a copy in flight is let go");
  locked.erase(memory);
}

/* Ends the program if memory behind a block has been written. */
void check_unused(const unsigned char *behind, size_t bytes)
{
  ASAN_UNPOISON_MEMORY_REGION(behind, bytes);
  for (size_t i = 0; i < bytes; i++)
    if (behind[i] != 0xff)
      misused("device memory behind the end of a block has been written");
  ASAN_POISON_MEMORY_REGION(behind, bytes);
}

} // namespace

void emulator_queue(cudaStream_t stream, std::function<void()> work)
{
  if (stream->processor != processor)
    misused("a kernel for another processor than the current one");
  if (last != cudaSuccess)
    misused("a kernel after an error that was not reported");
  append(stream, {std::move(work)});
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
  if (number < 0 || number >= count)
    return report(cudaErrorInvalidValue);
  processor = number;
  return cudaSuccess;
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
  const alone here(working);

  *stream = new CUstream_st{processor, {}, nullptr};
  streams.push_back(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
  const alone here(working);

  drain(stream);
  streams.erase(std::find(streams.begin(), streams.end(), stream));
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
  const alone here(working);

  if (spoils(stream->capture))
    return report(cudaErrorStreamCaptureUnsupported);
  drain(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
  const alone here(working);

  if (!strcmp(variable("TRM_MOCK_GRAPHS", "yes"), "no"))
    return report(cudaErrorNotSupported);
  if (stream->capture || own_capture || mode != cudaStreamCaptureModeThreadLocal)
    return report(cudaErrorInvalidValue);
  own_capture = stream->capture = std::make_shared<captured_work>();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
  const alone here(working);

  *graph = nullptr;
  if (!stream->capture || stream->capture != own_capture)
    return report(cudaErrorInvalidValue);
  const std::shared_ptr<captured_work> work = std::move(stream->capture);
  own_capture = nullptr;
  if (work->spoiled)
    return report(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{work};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
  *exec = new CUgraphExec_st{std::make_shared<captured_work>(*graph->work)};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
  if (stream->capture)
    misused("a graph in a stream that is captured");
  const std::shared_ptr<captured_work> work = exec->work;
  append(stream, {[=] {
           for (const auto &run : work->run)
             run();
         }});
  counts.graphs++;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
  const alone here(working);

  if (exec->work.use_count() > 1)
    misused("a graph is destroyed before its launches are done");
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
  *event = new CUevent_st{processor, nullptr, 0};
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
  if (event->processor != stream->processor)
    return report(cudaErrorInvalidResourceHandle);
  event->last = std::make_shared<event_record>();
  event->last->stream = stream;
  event->questions = 0;
  append(stream, {{}, event->last});
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
  if (event->last)
    append(stream, {{}, nullptr, event->last});
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
  const alone here(working);

  if (spoils(own_capture))
    return report(cudaErrorStreamCaptureUnsupported);
  if (event->last && !event->last->done)
    drain(event->last->stream, event->last.get());
  return cudaSuccess;
}

/* The fourth question is as good as waiting. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
  if (spoils(own_capture))
    return report(cudaErrorStreamCaptureUnsupported);
  if (event->last && !event->last->done && ++event->questions < 4)
    return report(cudaErrorNotReady);
  return cudaEventSynchronize(event);
}

/* A block ends at the end of its pages, up to alignment, before a page that is never used. What is behind the block is
 * NaN, too, and still is when it is freed. */
cudaError_t cudaMalloc(void **memory, size_t bytes)
{
  const alone here(working);
  const size_t padded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, pages = (padded + PAGE - 1) / PAGE * PAGE;

  *memory = nullptr;
  if (spoils(own_capture))
    return report(cudaErrorStreamCaptureUnsupported);
  if (device.held + bytes > memory_total())
    return report(cudaErrorMemoryAllocation);
  if (!device.arena)
    device.arena = (char *)mmap(nullptr, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (device.arena == MAP_FAILED || device.used + pages + PAGE > ARENA)
    abort();
  char *block = device.arena + device.used + pages - padded;
  mprotect(device.arena + device.used, pages + PAGE, PROT_READ | PROT_WRITE);
  memset(block, 0xff, padded + ALIGNMENT);
  mprotect(device.arena + device.used, pages + PAGE, PROT_NONE);
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
  const alone here(working);

  if (!memory)
    return cudaSuccess;
  if (spoils(own_capture))
    return report(cudaErrorStreamCaptureUnsupported);
  const auto block = device.blocks.find((char *)memory);
  if (block == device.blocks.end())
    return report(cudaErrorInvalidValue);
  device.held -= block->second;
  char *first = (char *)((uintptr_t)memory / PAGE * PAGE);
  const size_t padded = (block->second + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  const size_t pages = (size_t)((char *)memory - first) + padded + PAGE;
  mprotect(first, pages, PROT_READ | PROT_WRITE);
  check_unused((const unsigned char *)memory + block->second, padded - block->second + ALIGNMENT);
  mprotect(first, pages, PROT_NONE);
  madvise(first, pages, MADV_DONTNEED);
  ASAN_POISON_MEMORY_REGION(memory, block->second);
  device.blocks.erase(block);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
  const alone here(working);
  const size_t pages = (bytes + PAGE - 1) / PAGE * PAGE;

  if (spoils(own_capture))
    return report(cudaErrorStreamCaptureUnsupported);
  *memory = aligned_alloc(PAGE, pages);
  locked[(const char *)*memory] = pages;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
  const alone here(working);

  if (!memory)
    return cudaSuccess;
  if (spoils(own_capture))
    return report(cudaErrorStreamCaptureUnsupported);
  if (!locked.count((const char *)memory))
    return report(cudaErrorInvalidValue);
  unlock((const char *)memory);
  free(memory);
  return cudaSuccess;
}

/* Locks all pages that the memory touches. */
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned)
{
  const alone here(working);
  char *first = (char *)((uintptr_t)memory / PAGE * PAGE), *end = (char *)memory + bytes;
  const size_t pages = ((size_t)(end - first) + PAGE - 1) / PAGE * PAGE;
  bool mixed;

  if (!strcmp(variable("TRM_MOCK_LOCKS", "yes"), "no"))
    return report(cudaErrorNotSupported);
  if (bytes == 0 || is_device(memory))
    return report(cudaErrorInvalidValue);
  if (is_locked(first, pages, &mixed) || mixed)
    return report(cudaErrorHostMemoryAlreadyRegistered);
  locked[first] = pages;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
  const alone here(working);
  const char *first = (const char *)((uintptr_t)memory / PAGE * PAGE);

  if (!locked.count(first))
    return report(cudaErrorHostMemoryNotRegistered);
  unlock(first);
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
  const std::function<void()> copy = [=] { memcpy(to, from, bytes); };
  const char *host = (const char *)(kind == cudaMemcpyHostToDevice ? from : to);
  bool mixed = false, is_all_locked;

  if (bytes == 0)
    return cudaSuccess;
  if (is_device(to) != (kind != cudaMemcpyDeviceToHost) || is_device(from) != (kind != cudaMemcpyHostToDevice))
    return report(cudaErrorInvalidValue);
  if (kind == cudaMemcpyDeviceToDevice) {
    append(stream, {copy});
    return cudaSuccess;
  }
  {
    const alone here(working);
    is_all_locked = is_locked(host, bytes, &mixed);
  }
  if (mixed)
    return report(cudaErrorInvalidValue);
  if (is_all_locked) {
    if (kind == cudaMemcpyDeviceToHost)
      memset(to, 0xff, bytes);
    append(stream, {copy, nullptr, nullptr, host, bytes}, false);
    return cudaSuccess;
  }
  if (spoils(stream->capture)) /* it waits for the stream, or for the host's memory */
    return report(cudaErrorStreamCaptureUnsupported);
  if (kind == cudaMemcpyDeviceToHost) {
    append(stream, {copy}, false);
    return cudaStreamSynchronize(stream);
  }
  const auto now = std::make_shared<std::vector<char>>(host, host + bytes);
  append(stream, {[=] { memcpy(to, now->data(), bytes); }}, false);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
  if (!is_device(memory))
    return report(cudaErrorInvalidValue);
  append(stream, {[=] { memset(memory, value, bytes); }});
  return cudaSuccess;
}

cudaError_t cudaMemset2DAsync(void *memory, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)
{
  append(stream, {[=] {
           for (size_t i = 0; i < height; i++)
             memset((char *)memory + i * pitch, value, width);
         }});
  return cudaSuccess;
}
}
