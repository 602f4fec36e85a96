/* TensorBoard's event files: TFRecord frames (length, data, each with a masked CRC-32C) of protobuf messages. Written
 * by rank 0 while a run trains (log.tensorboard), and from metrics.jsonl of a finished one (trireme report). */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/document.h"

struct trm_event_file {
  FILE *stream; /* NULL: not open */
  char *path;   /* owned */
  double samples, seconds; /* of the training line before, for samples per second; NAN: none */
};

/* Makes folder and a new event file in it. first_step: events of other files of the folder from this step on are
 * superseded (a run that is resumed); -1: the event files that this program left in the folder are removed. The file
 * belongs to the caller: trm_event_file_close. TRM_USAGE: this build has no protobuf-c. Not collective. */
int trm_event_file_open(struct trm_event_file *file, const char *folder, int64_t first_step);
/* Removes the event files that this program left in a folder; others stay. */
void trm_event_file_remove(const char *folder);
/* Adds the numbers of a line of metrics.jsonl: train/loss, train/lr, validation/accuracy, staleness/mean, ..., and
 * train/samples_per_s from two training lines. Null values are omitted. time: seconds since 1970;
 * NAN: now. */
int trm_event_file_add_line(struct trm_event_file *file, const struct trm_node *line, double time);
/* Adds a histogram of whole numbers: count (n) of the values 0, 1, ... Nothing if all are 0. time: as above. */
int trm_event_file_add_histogram(struct trm_event_file *file, const char *tag, int64_t step, double time,
                                 const uint64_t *count, size_t n);
/* Adds a histogram of values (n) in intervals of the same width from the lowest to the highest; those that are not
 * finite are omitted, and if none is left nothing is added. time: as above. */
int trm_event_file_add_values(struct trm_event_file *file, const char *tag, int64_t step, double time,
                              const float *values, size_t n);
/* Passes on what was added to the system, so that readers see it. */
int trm_event_file_flush(struct trm_event_file *file);
/* Returns the first error of writing. */
int trm_event_file_close(struct trm_event_file *file);

/* Writes one frame. Returns 0, or -1 if the stream failed. */
int trm_event_frame_write(FILE *stream, const void *data, size_t bytes);
/* The CRC-32C (Castagnoli; RFC 3720, B.4) of some bytes. */
uint32_t trm_crc32c(const void *data, size_t bytes);
