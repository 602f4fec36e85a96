/* Copies between the host's memory and the CUDA device's: in the order of the calls, and beside them on two streams of
 * their own, one for each direction, whose copies end with events of CUDA. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "core/status.h"
#include "kernels/cuda/cuda.h"

/* Host memory that this device has registered: the whole pages of what pin got. CUDA locks pages, and refuses copies of
 * memory that is locked in part, so that pages which have other memory, too, are left as they are. */
struct cuda_pinned {
  struct cuda_pinned *next;
  const void *host;
  char *low, *high; /* [low, high) */
};

/* -- uploads in the order of the calls: through page-locked memory in parts, which are used in turn. Copies of the last
 * part have been made when its event is done. */

enum { CUDA_PARTS = 4, CUDA_PART = 1 << 20 };

struct cuda_staging {
  char *memory; /* (CUDA_PARTS, CUDA_PART) page-locked */
  struct CUevent_st *copied[CUDA_PARTS];
  size_t part, used; /* the part in use, and what of it, in bytes */
};

static int copies_event(struct CUevent_st **event)
{
  return (int)cudaEventCreateWithFlags(event, cudaEventDisableTiming);
}

int cuda_copies_open(struct cuda_state *state)
{
  struct cuda_staging *staging = state->staging = calloc(1, sizeof *staging);
  int error = staging ? (int)cudaMallocHost((void **)&staging->memory, CUDA_PARTS * (size_t)CUDA_PART)
                      : (int)cudaErrorMemoryAllocation;

  for (int i = 0; i < CUDA_PARTS && error == cudaSuccess; i++)
    error = copies_event(&staging->copied[i]);
  if (error == cudaSuccess)
    error = copies_event(&state->calls);
  if (error == cudaSuccess)
    error = (int)cudaStreamCreateWithFlags(&state->in, cudaStreamNonBlocking);
  if (error == cudaSuccess)
    error = (int)cudaStreamCreateWithFlags(&state->out, cudaStreamNonBlocking);
  return error;
}

void cuda_copies_close(struct cuda_state *state)
{
  struct cuda_staging *staging = state->staging;

  if (state->in)
    cudaStreamDestroy(state->in);
  if (state->out)
    cudaStreamDestroy(state->out);
  if (state->calls)
    cudaEventDestroy(state->calls);
  for (int i = 0; staging && i < CUDA_PARTS; i++)
    if (staging->copied[i])
      cudaEventDestroy(staging->copied[i]);
  if (staging)
    cudaFreeHost(staging->memory);
  free(staging);
  while (state->pinned) {
    struct cuda_pinned *pinned = state->pinned;

    state->pinned = pinned->next;
    cudaHostUnregister(pinned->low);
    free(pinned);
  }
}

/* Returns how many of the bytes at host, from the first one on, are locked, or not locked, with it. */
static size_t copies_alike(const struct cuda_state *state, const char *host, size_t bytes, bool *locked)
{
  *locked = false;
  for (const struct cuda_pinned *p = state->pinned; p; p = p->next) {
    if (host >= p->low && host < p->high) {
      *locked = true;
      return bytes < (size_t)(p->high - host) ? bytes : (size_t)(p->high - host);
    }
    if (host < p->low && bytes > (size_t)(p->low - host))
      bytes = (size_t)(p->low - host);
  }
  return bytes;
}

/* Copies between the host's memory and the device's on a stream. Returns an error of the runtime. */
static int copies_run(const struct cuda_state *state, void *to, const void *from, size_t bytes,
                      enum cudaMemcpyKind kind, struct CUstream_st *stream)
{
  int error = cudaSuccess;

  for (size_t done = 0, part; done < bytes && error == cudaSuccess; done += part) {
    const void *host = kind == cudaMemcpyHostToDevice ? from : to;
    bool locked;

    part = copies_alike(state, (const char *)host + done, bytes - done, &locked);
    error = (int)cudaMemcpyAsync((char *)to + done, (const char *)from + done, part, kind, stream);
  }
  return error;
}

/* Returns staging memory for at most *bytes, which becomes what fits. */
static char *copies_staging(struct trm_device *device, size_t *bytes)
{
  struct cuda_state *state = cuda_state_of(device);
  struct cuda_staging *staging = state->staging;

  if (staging->used >= CUDA_PART) {
    cuda_check(device, (int)cudaEventRecord(staging->copied[staging->part], state->stream), "upload");
    staging->part = (staging->part + 1) % CUDA_PARTS;
    staging->used = 0;
    cuda_check(device, (int)cudaEventSynchronize(staging->copied[staging->part]), "upload");
  }
  char *memory = staging->memory + staging->part * CUDA_PART + staging->used;
  if (*bytes > CUDA_PART - staging->used)
    *bytes = CUDA_PART - staging->used;
  staging->used += (*bytes + TRM_ALIGNMENT - 1) / TRM_ALIGNMENT * TRM_ALIGNMENT;
  return memory;
}

static void copies_upload(struct trm_device *device, char *to, const char *host, size_t bytes)
{
  struct CUstream_st *stream = cuda_stream(device);

  while (bytes > 0) {
    size_t part = bytes;
    char *from = copies_staging(device, &part);

    memcpy(from, host, part);
    cuda_check(device, (int)cudaMemcpyAsync(to, from, part, cudaMemcpyHostToDevice, stream), "upload");
    to += part;
    host += part;
    bytes -= part;
  }
}

/* Much memory that is locked is copied from where it is, which takes as long as the copy; all other memory by way of
 * staging. */
void cuda_upload(struct trm_device *device, void *to, const void *host, size_t bytes)
{
  struct CUstream_st *stream = cuda_stream(device);
  char *at = to;

  if (cuda_refuses(device))
    return;
  for (size_t done = 0, part; done < bytes; done += part) {
    const char *from = (const char *)host + done;
    bool locked;

    part = copies_alike(cuda_state_of(device), from, bytes - done, &locked);
    if (!locked || part <= CUDA_PART) {
      copies_upload(device, at + done, from, part);
      continue;
    }
    cuda_check(device, (int)cudaMemcpyAsync(at + done, from, part, cudaMemcpyHostToDevice, stream), "upload");
    cuda_check(device, (int)cudaStreamSynchronize(stream), "upload");
  }
}

void cuda_download(struct trm_device *device, void *host, const void *from, size_t bytes)
{
  struct CUstream_st *stream = cuda_stream(device);

  if (cuda_refuses(device)) {
    memset(host, 0, bytes);
    return;
  }
  cuda_check(device, copies_run(cuda_state_of(device), host, from, bytes, cudaMemcpyDeviceToHost, stream), "download");
  cuda_check(device, (int)cudaStreamSynchronize(stream), "download");
}

void cuda_copy(struct trm_device *device, void *to, const void *from, size_t bytes)
{
  cuda_check(device, (int)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_stream(device)), "copy");
}

/* -- copies beside the calls. CUDA's event of a trm_event is made with its first copy and destroyed by event_free. */

/* Copies on a stream beside the calls, after those that have been made. Of no bytes: the event ends with these calls,
 * and other copies are not waited for. */
static void copies_begin(struct trm_device *device, struct CUstream_st *beside, void *to, const void *from,
                         size_t bytes, enum cudaMemcpyKind kind, struct trm_event *event)
{
  struct cuda_state *state = cuda_state_of(device);
  struct CUstream_st *stream = cuda_stream(device);
  struct CUevent_st *end = event->impl;
  int error = end ? cudaSuccess : copies_event(&end);

  event->impl = end;
  if (cuda_refuses(device))
    return;
  if (bytes == 0)
    beside = stream;
  if (error == cudaSuccess)
    error = (int)cudaEventRecord(state->calls, stream);
  if (error == cudaSuccess)
    error = (int)cudaStreamWaitEvent(beside, state->calls, 0);
  if (error == cudaSuccess)
    error = copies_run(state, to, from, bytes, kind, beside);
  if (error == cudaSuccess)
    error = (int)cudaEventRecord(end, beside);
  cuda_check(device, error, kind == cudaMemcpyHostToDevice ? "upload_begin" : "download_begin");
}

void cuda_upload_begin(struct trm_device *device, void *to, const void *host, size_t bytes, struct trm_event *event)
{
  copies_begin(device, cuda_state_of(device)->in, to, host, bytes, cudaMemcpyHostToDevice, event);
}

/* Waits for the copy if the host's memory is not pinned: CUDA copies to such memory in its own time only. */
void cuda_download_begin(struct trm_device *device, void *host, const void *from, size_t bytes,
                         struct trm_event *event)
{
  copies_begin(device, cuda_state_of(device)->out, host, from, bytes, cudaMemcpyDeviceToHost, event);
}

void cuda_await(struct trm_device *device, struct trm_event *event)
{
  if (event->impl && !cuda_refuses(device))
    cuda_check(device, (int)cudaStreamWaitEvent(cuda_stream(device), event->impl, 0), "await");
}

bool cuda_event_done(struct trm_device *device, struct trm_event *event)
{
  cuda_stream(device);
  const cudaError_t error = event->impl ? cudaEventQuery(event->impl) : cudaSuccess;
  if (error == cudaErrorNotReady) {
    cudaGetLastError(); /* an answer, not a failure */
    return false;
  }
  cuda_check(device, (int)error, "event_done");
  return true;
}

void cuda_event_wait(struct trm_device *device, struct trm_event *event)
{
  cuda_stream(device);
  if (event->impl)
    cuda_check(device, (int)cudaEventSynchronize(event->impl), "event_wait");
}

void cuda_event_free(struct trm_device *device, struct trm_event *event)
{
  cuda_stream(device);
  if (event->impl)
    cuda_check(device, (int)cudaEventDestroy(event->impl), "event_free");
  event->impl = NULL;
}

/* -- page-locked memory. What CUDA does not lock stays as it is. */

void cuda_pin(struct trm_device *device, void *host, size_t bytes)
{
  struct cuda_state *state = cuda_state_of(device);
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const uintptr_t low = ((uintptr_t)host + page - 1) / page * page, high = ((uintptr_t)host + bytes) / page * page;
  struct cuda_pinned *pinned = low < high ? malloc(sizeof *pinned) : NULL;

  cuda_stream(device);
  if (pinned && cudaHostRegister((void *)low, high - low, cudaHostRegisterDefault) == cudaSuccess) {
    *pinned = (struct cuda_pinned){.next = state->pinned, .host = host, .low = (char *)low, .high = (char *)high};
    state->pinned = pinned;
    return;
  }
  cudaGetLastError();
  free(pinned);
}

void cuda_unpin(struct trm_device *device, void *host)
{
  struct cuda_pinned **link = &cuda_state_of(device)->pinned;

  while (*link && (*link)->host != host)
    link = &(*link)->next;
  if (!*link)
    return;
  struct cuda_pinned *pinned = *link;
  *link = pinned->next;
  cuda_stream(device);
  cuda_check(device, (int)cudaHostUnregister(pinned->low), "unpin");
  free(pinned);
}
