/* Calls of a device that repeat with the same arguments, such as those of a pass whose numbers are in device memory: they
 * are recorded and then replayed, which takes the host and the device less time than single calls (core/device.h).
 *
 * A key, the bytes of all that the calls and their arguments depend on, names them. The first time the calls are made,
 * by which the device's own memory gets its size; the second time they are recorded and replayed, then replayed. Calls
 * that cannot be recorded are made every time. The newest TRM_RECORDINGS keys are kept. */
#pragma once

#include "core/device.h"

enum { TRM_RECORDINGS = 32, TRM_RECORDING_KEY = 192 };

/* The recording of one sequence of calls, found by its key. */
struct trm_recorded_calls {
  char key[TRM_RECORDING_KEY];
  size_t bytes;                    /* of key; 0: a free place */
  uint64_t used;                   /* of the counter */
  bool refused;                    /* the calls cannot be recorded */
  struct trm_recording *recording; /* NULL: not yet */
};

/* Begins as zeros; trm_recordings_free before the memory of the calls is released. */
struct trm_recordings {
  struct trm_device *device;         /* of the recordings; NULL: none */
  struct trm_recorded_calls *calls; /* (TRM_RECORDINGS), owned; NULL: none */
  uint64_t counter;                  /* of calls of trm_recordings_run */
};

/* Makes the calls of function `make` on the device, or replays them if device->graphs. bytes: at most TRM_RECORDING_KEY.
 * What make does on the host besides is done when the calls are made or recorded, which may be twice, and not when they
 * are replayed. Returns make's failure; it must be the same for the same key. */
int trm_recordings_run(struct trm_recordings *recordings, struct trm_device *device, const void *key, size_t bytes,
                       int (*make)(void *context), void *context);
void trm_recordings_free(struct trm_recordings *recordings);
