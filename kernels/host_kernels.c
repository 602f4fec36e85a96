/* The CPU beside a device, and forms of what the device does not have. Of kernels the host form: copies of the arrays
 * that a kernel reads, the CPU's kernel, copies of those that it writes; of fused kernels the composed form; copies
 * beside the calls are made at once. So a device can begin with few kernels. */
#include "kernels/host_kernels.h"

#include "core/device_arrays.h"
#include "core/memory.h"
#include "core/status.h"
#include "kernels/composed_kernels.h"
#include "kernels/kernels.h"

struct host_kernels {
  struct trm_device cpu;            /* first: device->host is its address */
  const struct trm_device_ops *own; /* the device's table */
  struct trm_device_ops ops;        /* the same, with host forms */
  char *staging;
  size_t bytes;   /* of staging */
  bool recording; /* calls are being recorded, which host forms cannot be */
  bool refused;   /* one of them was called */
};

static struct host_kernels *host_of(const struct trm_device *device)
{
  return (struct host_kernels *)device->host;
}

static size_t host_padded(size_t bytes)
{
  return (bytes + TRM_ALIGNMENT - 1) / TRM_ALIGNMENT * TRM_ALIGNMENT;
}

static size_t host_staging_bytes(const struct trm_call_array *array, size_t arrays)
{
  size_t bytes = 0;

  for (size_t i = 0; i < arrays; i++)
    bytes += array[i].access == TRM_READS_HOST ? 0
             : array[i].table ? host_padded((size_t)array[i].table * sizeof(void *)) +
                                (size_t)array[i].table * host_padded(array[i].bytes)
                            : host_padded(array[i].bytes);
  return bytes;
}

/* Copies what is read of an array at `from`, and what must not change between the elements that are written. */
static void host_download(struct trm_device *device, char *to, const void *from, const struct trm_call_array *array)
{
  if (array->bytes > 0 && (array->access != TRM_WRITES || array->touched < array->bytes))
    host_of(device)->own->download(device, to, from, array->bytes);
}

/* Replaces the addresses in a copy of the arguments by those of host memory, which has what the call reads. */
static void host_stage(struct trm_device *device, void *call, const struct trm_call_array *array, size_t arrays)
{
  struct host_kernels *host = host_of(device);
  const size_t bytes = host_staging_bytes(array, arrays);

  if (bytes > host->bytes) {
    trm_free(host->staging);
    host->staging = trm_alloc(bytes, "arrays of kernels that the device does not have");
    host->bytes = bytes;
  }
  char *to = host->staging;
  for (size_t i = 0; i < arrays; i++) {
    const void *const *from = trm_call_pointer(call, &array[i]);

    if (array[i].access == TRM_READS_HOST)
      continue;
    trm_call_set_pointer(call, &array[i], to);
    if (!array[i].table) {
      host_download(device, to, from, &array[i]);
      to += host_padded(array[i].bytes);
      continue;
    }
    const void **table = (const void **)to;
    to += host_padded((size_t)array[i].table * sizeof *table);
    for (int t = 0; t < array[i].table; t++, to += host_padded(array[i].bytes)) {
      host_download(device, to, from[t], &array[i]);
      table[t] = to;
    }
  }
}

/* Copies the arrays that were written to the device. */
static void host_unstage(struct trm_device *device, const void *call, const void *staged,
                         const struct trm_call_array *array, size_t arrays)
{
  for (size_t i = 0; i < arrays; i++)
    if ((array[i].access & TRM_WRITES) && array[i].bytes > 0)
      host_of(device)->own->upload(device, trm_call_pointer(call, &array[i]), trm_call_pointer(staged, &array[i]),
                                array[i].bytes);
}

#define HOST_KERNEL(slot, type)                                              \
  static void host_##slot(struct trm_device *device, const struct type *call) \
  {                                                                          \
    struct trm_device *cpu = device->host;                                   \
    struct trm_call_array array[TRM_CALL_ARRAYS];                            \
    const size_t arrays = type##_arrays(call, array);                        \
    struct type staged = *call;                                              \
    if (host_of(device)->recording) {                                        \
      host_of(device)->refused = true;                                       \
      return;                                                                \
    }                                                                        \
    host_stage(device, &staged, array, arrays);                              \
    cpu->ops->slot(cpu, &staged);                                            \
    host_unstage(device, call, &staged, array, arrays);                      \
  }
TRM_KERNELS(HOST_KERNEL)

/* -- copies beside the calls */

void host_upload_begin(struct trm_device *device, void *to, const void *host, size_t bytes, struct trm_event *event)
{
  (void)event;
  device->ops->upload(device, to, host, bytes);
}

void host_download_begin(struct trm_device *device, void *host, const void *from, size_t bytes,
                         struct trm_event *event)
{
  (void)event;
  device->ops->download(device, host, from, bytes);
}

void host_await(struct trm_device *device, struct trm_event *event)
{
  (void)device, (void)event;
}

bool host_event_done(struct trm_device *device, struct trm_event *event)
{
  (void)device, (void)event;
  return true;
}

void host_event_wait(struct trm_device *device, struct trm_event *event)
{
  (void)device, (void)event;
}

void host_event_free(struct trm_device *device, struct trm_event *event)
{
  (void)device, (void)event;
}

void host_pin(struct trm_device *device, void *host, size_t bytes)
{
  (void)device, (void)host, (void)bytes;
}

void host_unpin(struct trm_device *device, void *host)
{
  (void)device, (void)host;
}

/* Fills the slots of copies of a table that has none of them. */
static void host_fill_copies(struct trm_device_ops *ops)
{
  static const struct trm_device_ops copies = {HOST_COPIES};

  if (ops->upload_begin)
    return;
  ops->upload_begin = copies.upload_begin;
  ops->download_begin = copies.download_begin;
  ops->await = copies.await;
  ops->event_done = copies.event_done;
  ops->event_wait = copies.event_wait;
  ops->event_free = copies.event_free;
  ops->pin = copies.pin;
  ops->unpin = copies.unpin;
}

/* -- recorded calls: those of the device */

static bool host_record_begin(struct trm_device *device)
{
  struct host_kernels *host = host_of(device);

  host->recording = host->own->record_begin(device);
  host->refused = false;
  return host->recording;
}

static struct trm_recording *host_record_end(struct trm_device *device)
{
  struct host_kernels *host = host_of(device);
  struct trm_recording *recording = host->own->record_end(device);

  host->recording = false;
  if (!host->refused || !recording)
    return recording;
  host->own->recording_free(device, recording);
  return NULL;
}

static int host_sync(struct trm_device *device)
{
  const int own = host_of(device)->own->sync(device), cpu = device->host->ops->sync(device->host);

  return own != TRM_OK ? own : cpu;
}

int host_kernels_add(struct trm_device *device, int index, int threads)
{
  struct trm_device_ops ops = *device->ops;
  int missing = 0;

#define HOST_FILL(slot, type)   \
  if (!ops.slot) {              \
    ops.slot = host_##slot;     \
    missing++;                  \
  }
#define HOST_FILL_COMPOSED(slot, type) \
  if (!ops.slot) {                     \
    ops.slot = composed_##slot;        \
    missing++;                         \
  }
  TRM_KERNELS(HOST_FILL)
  TRM_FUSED_KERNELS(HOST_FILL_COMPOSED)
  host_fill_copies(&ops);
  if (missing == 0 && ops.upload_begin == device->ops->upload_begin && device->host_memory)
    return TRM_OK;
  ops.sync = host_sync;
  if (ops.record_begin) {
    ops.record_begin = host_record_begin;
    ops.record_end = host_record_end;
  }
  struct host_kernels *host = trm_alloc(sizeof *host, "kernels on the host");
  *host = (struct host_kernels){.cpu = {.ops = &trm_device_cpu}, .own = device->ops, .ops = ops};
  device->ops = &host->ops;
  device->host = &host->cpu;
  return trm_device_cpu.open(&host->cpu, index, threads, device->blas);
}

void host_kernels_remove(struct trm_device *device)
{
  struct host_kernels *host = host_of(device);

  if (!host)
    return;
  device->ops = host->own;
  device->host = NULL;
  if (host->cpu.impl)
    trm_device_cpu.close(&host->cpu);
  trm_free(host->staging);
  trm_free(host);
}
