#include "plan/machine.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/document.h"
#include "core/memory.h"
#include "core/status.h"

void trm_machine_create(struct trm_machine *machine, int cores, int threads)
{
  *machine = (struct trm_machine){.device = "cpu",
                                  .cores = cores,
                                  .threads = threads,
                                  .message_latency_s = 2e-6,
                                  .network_latency_s = 3e-6,
                                  .network_bytes_per_s = 1e10};
}

void trm_machine_set_device(struct trm_machine *machine, const struct trm_device *device)
{
  snprintf(machine->device, sizeof machine->device, "%s", device->ops->name);
  machine->device_bytes = (double)device->memory_bytes;
}

void trm_machine_free(struct trm_machine *machine)
{
  trm_free(machine->work);
  *machine = (struct trm_machine){0};
}

void trm_machine_add(struct trm_machine *machine, const struct trm_machine_work *work)
{
  const size_t used = (size_t)machine->works++;
  machine->work = trm_grow(machine->work, &machine->capacity, used, used + 1, sizeof *work, "figures of the machine");
  machine->work[used] = *work;
}

void trm_machine_copy(struct trm_machine *to, const struct trm_machine *machine)
{
  *to = *machine;
  to->work = NULL;
  to->works = 0;
  to->capacity = 0;
  for (int i = 0; i < machine->works; i++)
    trm_machine_add(to, &machine->work[i]);
}

static struct trm_machine_work *machine_find_work(const struct trm_machine *machine, const char *name, double flop,
                                                  double bytes)
{
  for (int i = 0; i < machine->works; i++) {
    struct trm_machine_work *work = &machine->work[i];
    if (strcmp(work->name, name) == 0 && work->flop == flop && work->bytes == bytes)
      return work;
  }
  return NULL;
}

void trm_machine_merge(struct trm_machine *machine, const struct trm_machine *other)
{
  for (int i = 0; i < other->works; i++) {
    const struct trm_machine_work *from = &other->work[i];
    struct trm_machine_work *to = machine_find_work(machine, from->name, from->flop, from->bytes);
    if (to) {
      to->forward_s = fmin(to->forward_s, from->forward_s);
      to->backward_s = fmin(to->backward_s, from->backward_s);
    } else {
      trm_machine_add(machine, from);
    }
  }
  machine->message_bytes_per_s = fmax(machine->message_bytes_per_s, other->message_bytes_per_s);
}

static int machine_compare_values(const void *a, const void *b)
{
  const double one = *(const double *)a, two = *(const double *)b;
  return (one > two) - (one < two);
}

double trm_quantile(double *values, size_t n, double part)
{
  if (n == 0)
    return NAN;
  qsort(values, n, sizeof *values, machine_compare_values);
  const double at = part * (double)(n - 1);
  const size_t low = (size_t)at, high = low + 1 < n ? low + 1 : low;
  return values[low] + (at - (double)low) * (values[high] - values[low]);
}

/* The size of work, to compare it with other work of its name. */
static double machine_work_size(double flop, double bytes)
{
  return flop > 0 ? flop : bytes;
}

static double machine_log_distance(double a, double b)
{
  return a > 0 && b > 0 ? fabs(log(a / b)) : 0;
}

/* Orders by size, then by bytes: of two layers with as many operations, the narrow one with many rows is slower. */
static const struct trm_machine_work *machine_nearest_work(const struct trm_machine *machine, const char *name,
                                                           double flop, double bytes)
{
  const struct trm_machine_work *best = NULL;
  double nearest[2] = {INFINITY, INFINITY};
  for (int i = 0; i < machine->works; i++) {
    const struct trm_machine_work *work = &machine->work[i];
    const double distance[2] = {
      machine_log_distance(machine_work_size(flop, bytes), machine_work_size(work->flop, work->bytes)),
      machine_log_distance(bytes, work->bytes)};
    if (strcmp(work->name, name) != 0 || distance[0] > nearest[0] ||
        (distance[0] == nearest[0] && distance[1] >= nearest[1]))
      continue;
    best = work;
    memcpy(nearest, distance, sizeof nearest);
  }
  return best;
}

double trm_machine_seconds(const struct trm_machine *machine, const char *name, double flop, double bytes,
                           double *backward)
{
  const double size = machine_work_size(flop, bytes);
  const struct trm_machine_work *work = size > 0 ? machine_nearest_work(machine, name, flop, bytes) : NULL;
  const double ratio = work ? size / machine_work_size(work->flop, work->bytes) : 0;
  if (backward)
    *backward = work ? ratio * work->backward_s : 0;
  return work ? ratio * work->forward_s : 0;
}

bool trm_machine_knows(const struct trm_machine *machine, const char *name)
{
  return machine_nearest_work(machine, name, 1, 1) != NULL;
}

bool trm_machine_has(const struct trm_machine *machine, const char *name, double flop, double bytes)
{
  return machine_find_work(machine, name, flop, bytes) != NULL;
}

/* -- the file */

int trm_machine_write(const struct trm_machine *machine, const char *path)
{
  FILE *stream = fopen(path, "w");
  if (!stream)
    return trm_error(TRM_FAILED, "%s: %s", path, strerror(errno));
  struct trm_json json;
  trm_json_open(&json, stream);
  trm_json_object(&json, NULL);
  trm_json_text(&json, "device", machine->device);
  trm_json_number(&json, "device_bytes", machine->device_bytes);
  trm_json_integer(&json, "cores", machine->cores);
  trm_json_integer(&json, "threads", machine->threads);
  trm_json_number(&json, "message_s", machine->message_latency_s);
  trm_json_number(&json, "message_bytes_per_s", machine->message_bytes_per_s);
  trm_json_bool(&json, "messages_measured", machine->messages_measured);
  trm_json_number(&json, "network_s", machine->network_latency_s);
  trm_json_number(&json, "network_bytes_per_s", machine->network_bytes_per_s);
  trm_json_list(&json, "work");
  for (int i = 0; i < machine->works; i++) {
    const struct trm_machine_work *work = &machine->work[i];
    trm_json_object(&json, NULL);
    trm_json_text(&json, "name", work->name);
    trm_json_number(&json, "flop", work->flop);
    trm_json_number(&json, "bytes", work->bytes);
    trm_json_number(&json, "forward_s", work->forward_s);
    trm_json_number(&json, "backward_s", work->backward_s);
    trm_json_end(&json);
  }
  trm_json_end(&json);
  trm_json_end(&json);
  const bool written = !ferror(stream);
  if (fclose(stream) != 0 || !written)
    return trm_error(TRM_FAILED, "%s: cannot be written", path);
  return TRM_OK;
}

/* Reads a number that must be above 0. */
static int machine_read_number(const struct trm_node *map, const char *path, const char *key, double *value)
{
  *value = trm_node_number(trm_node_get(map, key), NAN);
  if (!(*value > 0) || !isfinite(*value))
    return trm_error(TRM_USAGE,
                     "%s: %s is missing or not above 0 (trireme plan --calibrate=FILE writes such a file)", path,
                     key);
  return TRM_OK;
}

static int machine_read_work(struct trm_machine *machine, const struct trm_node *node, const char *path)
{
  const struct trm_node *name = trm_node_get(node, "name");
  struct trm_machine_work work = {.flop = trm_node_number(trm_node_get(node, "flop"), 0),
                                  .bytes = trm_node_number(trm_node_get(node, "bytes"), 0),
                                  .backward_s = trm_node_number(trm_node_get(node, "backward_s"), 0)};
  if (!name || !name->text || strlen(name->text) >= sizeof work.name)
    return trm_error(TRM_USAGE, "%s:%zu: work without a name", path, node->line);
  memcpy(work.name, name->text, strlen(name->text) + 1);
  TRM_CHECK(machine_read_number(node, path, "forward_s", &work.forward_s));
  if (!(machine_work_size(work.flop, work.bytes) > 0) || !(work.backward_s >= 0))
    return trm_error(TRM_USAGE, "%s:%zu: %s has neither flop nor bytes, or a backward_s below 0", path, node->line,
                     work.name);
  trm_machine_add(machine, &work);
  return TRM_OK;
}

static int machine_read_document(struct trm_machine *machine, const struct trm_node *root, const char *path)
{
  double cores, threads;
  const struct trm_node *device = trm_node_get(root, "device");
  if (device && device->text)
    snprintf(machine->device, sizeof machine->device, "%.31s", device->text);
  machine->device_bytes = trm_node_number(trm_node_get(root, "device_bytes"), 0);
  if (!(machine->device_bytes >= 0))
    return trm_error(TRM_USAGE, "%s: device_bytes is below 0", path);
  TRM_CHECK(machine_read_number(root, path, "cores", &cores));
  TRM_CHECK(machine_read_number(root, path, "threads", &threads));
  if (cores >= 1e6 || threads >= 1e6)
    return trm_error(TRM_USAGE, "%s: cores or threads: too many", path);
  machine->cores = (int)cores;
  machine->threads = (int)threads;
  TRM_CHECK(machine_read_number(root, path, "message_s", &machine->message_latency_s));
  TRM_CHECK(machine_read_number(root, path, "message_bytes_per_s", &machine->message_bytes_per_s));
  TRM_CHECK(machine_read_number(root, path, "network_s", &machine->network_latency_s));
  TRM_CHECK(machine_read_number(root, path, "network_bytes_per_s", &machine->network_bytes_per_s));
  const struct trm_node *measured = trm_node_get(root, "messages_measured"), *list = trm_node_get(root, "work");
  machine->messages_measured = measured && measured->text && strcmp(measured->text, "true") == 0;
  if (!list || list->kind != TRM_NODE_LIST || !list->first)
    return trm_error(TRM_USAGE, "%s: work: no list", path);
  for (const struct trm_node *node = list->first; node; node = node->next)
    TRM_CHECK(machine_read_work(machine, node, path));
  return TRM_OK;
}

int trm_machine_read(struct trm_machine *machine, const char *path)
{
  struct trm_node *root;
  trm_machine_create(machine, 1, 1);
  TRM_CHECK(trm_document_read(path, &root));
  const int status = machine_read_document(machine, root, path);
  trm_node_free(root);
  if (status != TRM_OK)
    trm_machine_free(machine);
  return status;
}
