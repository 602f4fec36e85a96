#include "core/recordings.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

static void recordings_drop(const struct trm_recordings *r, struct trm_recorded_calls *calls)
{
  if (calls->recording)
    r->device->ops->recording_free(r->device, calls->recording);
  calls->recording = NULL;
}

void trm_recordings_free(struct trm_recordings *recordings)
{
  for (int i = 0; recordings->calls && i < TRM_RECORDINGS; i++)
    recordings_drop(recordings, &recordings->calls[i]);
  trm_free(recordings->calls);
  *recordings = (struct trm_recordings){.device = NULL};
}

/* Returns the place of the key; NULL: it is new, and has now got the place that was not used for the longest time. */
static struct trm_recorded_calls *recordings_find(struct trm_recordings *r, const void *key, size_t bytes)
{
  struct trm_recorded_calls *oldest = r->calls;
  for (struct trm_recorded_calls *calls = r->calls; calls < r->calls + TRM_RECORDINGS; calls++) {
    if (calls->bytes == bytes && memcmp(calls->key, key, bytes) == 0) {
      calls->used = ++r->counter;
      return calls;
    }
    if (calls->used < oldest->used)
      oldest = calls;
  }
  recordings_drop(r, oldest);
  *oldest = (struct trm_recorded_calls){.bytes = bytes, .used = ++r->counter};
  memcpy(oldest->key, key, bytes);
  return NULL;
}

/* Records the calls. Returns make's failure. */
static int recordings_record(const struct trm_recordings *r, struct trm_recorded_calls *calls,
                             int (*make)(void *context), void *context)
{
  if (!r->device->ops->record_begin(r->device))
    return TRM_OK;
  const int status = make(context);
  calls->recording = r->device->ops->record_end(r->device);
  calls->refused = !calls->recording;
  if (status != TRM_OK)
    recordings_drop(r, calls);
  return status;
}

int trm_recordings_run(struct trm_recordings *recordings, struct trm_device *device, const void *key, size_t bytes,
                       int (*make)(void *context), void *context)
{
  if (!device->graphs || !device->ops->record_begin)
    return make(context);
  if (recordings->device != device) {
    trm_recordings_free(recordings);
    recordings->device = device;
    recordings->calls = trm_alloc(TRM_RECORDINGS * sizeof *recordings->calls, "recorded calls");
  }
  struct trm_recorded_calls *calls = recordings_find(recordings, key, bytes);
  if (!calls || calls->refused)
    return make(context);
  if (!calls->recording)
    TRM_CHECK(recordings_record(recordings, calls, make, context));
  if (calls->recording && device->ops->replay(device, calls->recording))
    return TRM_OK;
  recordings_drop(recordings, calls); /* the device's own memory has been replaced: the next time anew */
  return make(context);
}
