/* The machine model: the figures that the time of a step depends on, measured here or read from a file that
 * `trireme plan --calibrate` wrote on another machine. */
#pragma once

#include "core/device.h"
#include "nn/model.h"
#include "train/costs.h"
#include "train/device_batch.h"

/* Measured seconds of one kind of work at one size. Layers have the counts of the rows that were measured; other work
 * ("sum", "copy", "update", "loss ...", "batch", "all sum" and others of machine_messages.c) has bytes and forward_s
 * alone. Where the device has memory of its own, these are the host's, and there are "device sum", "device copy",
 * "device update", "upload" and "download". */
struct trm_machine_work {
  char name[48];
  double flop, bytes;
  double forward_s, backward_s;
};

struct trm_machine {
  char device[32];               /* name of the device that layers were measured on */
  double device_bytes;           /* of its own memory; 0: it computes in the host's */
  int cores;                     /* of a node */
  int threads;                   /* of a rank while it was measured */
  double message_latency_s;      /* between two ranks of a node */
  double message_bytes_per_s;    /* likewise */
  bool messages_measured;        /* false: both are estimated from the rate of memory */
  double network_latency_s;      /* between nodes */
  double network_bytes_per_s;    /* of a node */
  struct trm_machine_work *work; /* (works) */
  int works;
  size_t capacity;
};

/* Creates a machine without measurements, its network 100 Gbit/s. */
void trm_machine_create(struct trm_machine *machine, int cores, int threads);
void trm_machine_free(struct trm_machine *machine);
/* Sets the device that will be measured. */
void trm_machine_set_device(struct trm_machine *machine, const struct trm_device *device);

/* Read and write the machine as JSON. Errors name the file; TRM_USAGE: its contents are wrong. */
int trm_machine_read(struct trm_machine *machine, const char *path);
int trm_machine_write(const struct trm_machine *machine, const char *path);

void trm_machine_add(struct trm_machine *machine, const struct trm_machine_work *work);
/* Copies the machine with its work. Release with trm_machine_free. */
void trm_machine_copy(struct trm_machine *to, const struct trm_machine *machine);
/* Merges another measurement of the machine: of work that both have, the shorter times stay, since other processes only
 * add to them. */
void trm_machine_merge(struct trm_machine *machine, const struct trm_machine *other);
/* Seconds of work of this name and size: as measured, or scaled from the measurement of the nearest size (then nearest
 * bytes); 0 if nothing of that name was measured. backward: seconds of the backward pass; may be NULL. */
double trm_machine_seconds(const struct trm_machine *machine, const char *name, double flop, double bytes,
                           double *backward);
/* True if work of this name was measured at any size. */
bool trm_machine_knows(const struct trm_machine *machine, const char *name);
/* True if work of exactly this size was measured. */
bool trm_machine_has(const struct trm_machine *machine, const char *name, double flop, double bytes);

/* Succeeds if the machine has figures of the model's layers, loss and batches. TRM_USAGE: which it lacks; the message
 * begins with the option that named the file. */
int trm_machine_require_model(const struct trm_machine *machine, const struct trm_model *model, const char *option);

/* -- costs of runs with modeled time (machine_costs.c) */

struct trm_machine_costs {
  struct trm_costs costs; /* first */
  const struct trm_machine *machine;
};
/* Sets costs->costs by the machine, which has to outlive them. */
void trm_machine_costs_create(struct trm_machine_costs *costs, const struct trm_machine *machine);

/* -- measuring (machine_measure.c) */

/* The quantile of n values, which are sorted: part 0.5 is their median; NAN if n is 0. */
double trm_quantile(double *values, size_t n, double part);

/* A measurement: one device for each rank that computes at the same time on a node, at least one. */
struct trm_machine_bench {
  struct trm_device *device; /* (devices) open */
  int devices;
  double seconds;            /* limit; what is not measured until then stays unknown */
  double spent;              /* seconds so far */
};

/* False for layers that are messages or sums of arrays. */
bool trm_machine_is_layer_work(const struct trm_layer *layer);
/* Name and counts of a layer's work on `rows` rows; its seconds are 0. */
struct trm_machine_work trm_machine_layer_work(const struct trm_layer *layer, size_t rows);
/* The name of the work of the model's loss. */
void trm_machine_loss_name(const struct trm_model *model, char name[48]);

/* Measures layers and loss of the model that are not known yet. Reshard layers are excluded: they are messages. input:
 * at least `rows` rows of the data set. */
int trm_machine_measure_model(struct trm_machine *machine, struct trm_machine_bench *bench,
                              const struct trm_model *model, const struct trm_input *input, size_t rows);
/* Measures batches of so many rows: reading them from the data set and uploading them. They are read by one rank, with
 * the caches to itself. */
int trm_machine_measure_batches(struct trm_machine *machine, struct trm_machine_bench *bench,
                                struct trm_dataset *dataset, const struct trm_model *model, size_t rows);
/* The bytes of such a batch, as they are counted here. */
double trm_machine_batch_bytes(const struct trm_model *model, size_t rows);
/* Measures sums, copies and updates of this optimizer, on the host and, if it has memory of its own, on the device. */
int trm_machine_measure_arrays(struct trm_machine *machine, struct trm_machine_bench *bench,
                               const struct trm_optimizer *optimizer);
/* Collective over comm. Measures between ranks 0 and 1, which must share a node and are the only ones that get the
 * figures: single messages; "all sum", "all gather" and "sum scatter" by the bytes of the whole value; and the same of
 * a tensor axis ("axis sum", ...), which shares memory in `domain` unless that is TRM_SHARE_NONE or the device has its
 * own memory. With one rank it does nothing. */
void trm_machine_measure_messages(struct trm_machine *machine, struct trm_comm *comm, struct trm_device *device,
                                  enum trm_share domain);
