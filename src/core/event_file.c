#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "core/event_file.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/private_files.h"
#include "core/status.h"

/* -- frames */

uint32_t trm_crc32c(const void *data, size_t bytes)
{
  const unsigned char *byte = data;
  uint32_t crc = ~UINT32_C(0);
  for (size_t i = 0; i < bytes; i++) {
    crc ^= byte[i];
    for (int bit = 0; bit < 8; bit++)
      crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
  }
  return ~crc;
}

static void event_file_store(unsigned char *to, uint64_t value, int bytes)
{
  for (int i = 0; i < bytes; i++)
    to[i] = (unsigned char)(value >> 8 * i);
}

/* A CRC of data with CRCs in it is weak: the format stores a rotated one plus a constant. */
static void event_file_store_crc(unsigned char to[4], const void *data, size_t bytes)
{
  const uint32_t crc = trm_crc32c(data, bytes);
  event_file_store(to, (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8), 4);
}

int trm_event_frame_write(FILE *stream, const void *data, size_t bytes)
{
  unsigned char head[12], tail[4];
  event_file_store(head, bytes, 8);
  event_file_store_crc(head + 8, head, 8);
  event_file_store_crc(tail, data, bytes);
  fwrite(head, 1, sizeof head, stream);
  fwrite(data, 1, bytes, stream);
  fwrite(tail, 1, sizeof tail, stream);
  return ferror(stream) ? -1 : 0;
}

static const char suffix[] = ".trireme"; /* of our files: others in the folder stay */

void trm_event_file_remove(const char *folder)
{
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) {
    const size_t n = strlen(e->d_name), tail = sizeof suffix - 1;
    if (strncmp(e->d_name, "events.out.tfevents.", 20) == 0 && n > tail && !strcmp(e->d_name + n - tail, suffix)) {
      char *path = trm_format("%s/%s", folder, e->d_name);
      unlink(path);
      trm_free(path);
    }
  }
  if (d)
    closedir(d);
}

#ifdef TRM_ONNX /* protobuf-c is there */

#include "core/event_file.pb-c.h"

static int event_file_failed(const struct trm_event_file *file)
{
  return trm_error(TRM_FAILED, "%s: cannot write: %s", file->path, strerror(errno));
}

static int event_file_add(struct trm_event_file *file, const Tensorboard__Event *event)
{
  const size_t bytes = tensorboard__event__get_packed_size(event);
  uint8_t *data = trm_alloc(bytes, "an event");
  tensorboard__event__pack(event, data);
  const int written = trm_event_frame_write(file->stream, data, bytes);
  trm_free(data);
  return written == 0 ? TRM_OK : event_file_failed(file);
}

static double event_file_now(void)
{
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int event_file_add_value(struct trm_event_file *file, Tensorboard__Summary__Value *value, int64_t step,
                                double time)
{
  Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
  summary.n_value = 1;
  summary.value = &value;
  Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
  event.wall_time = isnan(time) ? event_file_now() : time;
  event.step = step;
  event.what_case = TENSORBOARD__EVENT__WHAT_SUMMARY;
  event.summary = &summary;
  return event_file_add(file, &event);
}

static int event_file_add_scalar(struct trm_event_file *file, const char *group, const char *name, int64_t step,
                                 double time, double number)
{
  char *tag = trm_format("%s/%s", group, name);
  Tensorboard__Summary__Value value = TENSORBOARD__SUMMARY__VALUE__INIT;
  value.tag = tag;
  value.value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
  value.simple_value = (float)number;
  const int status = event_file_add_value(file, &value, step, time);
  trm_free(tag);
  return status;
}

/* -- the file */

static int event_file_begin(struct trm_event_file *file, int64_t first_step)
{
  Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
  event.wall_time = event_file_now();
  event.what_case = TENSORBOARD__EVENT__WHAT_FILE_VERSION;
  event.file_version = (char *)"brain.Event:2";
  TRM_CHECK(event_file_add(file, &event));
  if (first_step < 0)
    return TRM_OK;
  Tensorboard__SessionLog session = TENSORBOARD__SESSION_LOG__INIT;
  session.status = TENSORBOARD__SESSION_LOG__SESSION_STATUS__START;
  event.step = first_step;
  event.what_case = TENSORBOARD__EVENT__WHAT_SESSION_LOG;
  event.session_log = &session;
  return event_file_add(file, &event);
}

int trm_event_file_open(struct trm_event_file *file, const char *folder, int64_t first_step)
{
  char host[128] = "";
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  gethostname(host, sizeof host - 1);
  *file = (struct trm_event_file){.samples = NAN, .seconds = NAN};
  TRM_CHECK(trm_make_directories(folder));
  if (first_step < 0)
    trm_event_file_remove(folder);
  /* readers take the files of a folder in the order of their names */
  file->path = trm_format("%s/events.out.tfevents.%010lld.%09ld.%s.%ld%s", folder, (long long)now.tv_sec, now.tv_nsec,
                          host, (long)getpid(), suffix);
  file->stream = fopen(file->path, "wb");
  int status = file->stream ? event_file_begin(file, first_step) : event_file_failed(file);
  if (status == TRM_OK)
    status = trm_event_file_flush(file);
  if (status != TRM_OK)
    trm_event_file_close(file);
  return status;
}

static bool event_file_is_place(const char *key)
{
  static const char *const places[] = {"step", "samples", "wall_s", "train_s", "virtual_s"};
  bool listed = false;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    listed |= strcmp(key, places[i]) == 0;
  return listed;
}

static int event_file_add_speed(struct trm_event_file *file, const struct trm_node *line, int64_t step, double time)
{
  const double samples = trm_node_number(trm_node_get(line, "samples"), NAN);
  const double train = trm_node_number(trm_node_get(line, "train_s"), NAN);
  const double seconds = trm_node_number(trm_node_get(line, "virtual_s"), train);
  const double speed = (samples - file->samples) / (seconds - file->seconds);
  const bool known = seconds > file->seconds && isfinite(speed);
  file->samples = samples;
  file->seconds = seconds;
  return known ? event_file_add_scalar(file, "train", "samples_per_s", step, time, speed) : TRM_OK;
}

int trm_event_file_add_line(struct trm_event_file *file, const struct trm_node *line, double time)
{
  static const char *const groups[] = {"validation", "test", "staleness"};
  const int64_t step = (int64_t)trm_node_number(trm_node_get(line, "step"), 0);
  const bool trains = trm_node_get(line, "loss") != NULL;
  for (const struct trm_node *entry = line->first; entry; entry = entry->next) {
    const char *group = "train", *name = entry->key ? entry->key : "";
    const double number = trm_node_number(entry, NAN);
    if (entry->kind != TRM_NODE_SCALAR || isnan(number) || event_file_is_place(name) ||
        (!trains && strcmp(name, "epoch") == 0))
      continue;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
      const size_t n = strlen(groups[i]);
      if (strncmp(name, groups[i], n) == 0 && name[n] == '_') {
        group = groups[i];
        name += n + 1;
        break;
      }
    }
    TRM_CHECK(event_file_add_scalar(file, group, name, step, time, number));
  }
  return trains ? event_file_add_speed(file, line, step, time) : TRM_OK;
}

/* histogram: complete but for its buckets; limit, bucket (n). */
static int event_file_add_buckets(struct trm_event_file *file, const char *tag, int64_t step, double time,
                                  Tensorboard__HistogramProto *histogram, double *limit, double *bucket, size_t n)
{
  Tensorboard__Summary__Value value = TENSORBOARD__SUMMARY__VALUE__INIT;
  histogram->n_bucket_limit = histogram->n_bucket = n;
  histogram->bucket_limit = limit;
  histogram->bucket = bucket;
  value.tag = (char *)tag;
  value.value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_HISTO;
  value.histo = histogram;
  return event_file_add_value(file, &value, step, time);
}

int trm_event_file_add_values(struct trm_event_file *file, const char *tag, int64_t step, double time,
                              const float *values, size_t n)
{
  enum { BUCKETS = 64 };
  Tensorboard__HistogramProto histogram = TENSORBOARD__HISTOGRAM_PROTO__INIT;
  double limit[BUCKETS], bucket[BUCKETS] = {0};
  histogram.min = INFINITY;
  histogram.max = -INFINITY;
  for (size_t i = 0; i < n; i++)
    if (isfinite(values[i])) {
      histogram.min = fmin(histogram.min, values[i]);
      histogram.max = fmax(histogram.max, values[i]);
    }
  if (histogram.min > histogram.max)
    return TRM_OK;
  const double width = (histogram.max - histogram.min) / BUCKETS;
  for (int i = 0; i < BUCKETS; i++)
    limit[i] = i < BUCKETS - 1 ? histogram.min + (i + 1) * width : histogram.max;
  for (size_t i = 0; i < n; i++) {
    const double x = values[i];
    if (!isfinite(x))
      continue;
    const int number = width > 0 ? (int)((x - histogram.min) / width) : 0;
    bucket[number < BUCKETS ? number : BUCKETS - 1]++;
    histogram.num++;
    histogram.sum += x;
    histogram.sum_squares += x * x;
  }
  const size_t used = width > 0 ? BUCKETS : 1; /* all values are the same */
  return event_file_add_buckets(file, tag, step, time, &histogram, limit, bucket, used);
}

int trm_event_file_add_histogram(struct trm_event_file *file, const char *tag, int64_t step, double time,
                                 const uint64_t *count, size_t n)
{
  Tensorboard__HistogramProto histogram = TENSORBOARD__HISTOGRAM_PROTO__INIT;
  while (n > 0 && count[n - 1] == 0)
    n--;
  if (n == 0)
    return TRM_OK;
  double *limit = trm_alloc(2 * n * sizeof *limit, "a histogram"), *bucket = limit + n;
  histogram.min = -1;
  histogram.max = (double)(n - 1);
  for (size_t i = 0; i < n; i++) {
    const double value = (double)i, number = (double)count[i];
    limit[i] = value + 0.5;
    bucket[i] = number;
    histogram.min = histogram.min < 0 && count[i] > 0 ? value : histogram.min;
    histogram.num += number;
    histogram.sum += number * value;
    histogram.sum_squares += number * value * value;
  }
  const int status = event_file_add_buckets(file, tag, step, time, &histogram, limit, bucket, n);
  trm_free(limit);
  return status;
}

int trm_event_file_flush(struct trm_event_file *file)
{
  return fflush(file->stream) == 0 ? TRM_OK : event_file_failed(file);
}

int trm_event_file_close(struct trm_event_file *file)
{
  const int status = file->stream && fclose(file->stream) != 0 ? event_file_failed(file) : TRM_OK;
  trm_free(file->path);
  *file = (struct trm_event_file){0};
  return status;
}

#else

int trm_event_file_open(struct trm_event_file *file, const char *folder, int64_t first_step)
{
  (void)first_step;
  *file = (struct trm_event_file){0};
  return trm_error(TRM_USAGE, "%s: this build cannot write TensorBoard's event files (it has no protobuf-c)", folder);
}

int trm_event_file_add_line(struct trm_event_file *file, const struct trm_node *line, double time)
{
  (void)file, (void)line, (void)time;
  return TRM_OK;
}

int trm_event_file_add_histogram(struct trm_event_file *file, const char *tag, int64_t step, double time,
                                 const uint64_t *count, size_t n)
{
  (void)file, (void)tag, (void)step, (void)time, (void)count, (void)n;
  return TRM_OK;
}

int trm_event_file_add_values(struct trm_event_file *file, const char *tag, int64_t step, double time,
                              const float *values, size_t n)
{
  (void)file, (void)tag, (void)step, (void)time, (void)values, (void)n;
  return TRM_OK;
}

int trm_event_file_flush(struct trm_event_file *file)
{
  (void)file;
  return TRM_OK;
}

int trm_event_file_close(struct trm_event_file *file)
{
  (void)file;
  return TRM_OK;
}

#endif
