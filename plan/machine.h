/* What the machine can do, as far as a step's time depends on it: measured once, or read from a file that another
 * machine has written. */
#ifndef TRM_PLAN_MACHINE_H
#define TRM_PLAN_MACHINE_H

#include "nn/model.h"

/* What a kind of work took. Of layers by name, with their counts for the rows it was measured with; of other work
 * ("sum", "copy", "update", "loss ...", "all sum" and others of machine_messages.c) the bytes alone, and forward_s. */
struct trm_machine_work {
  char name[48];
  double flop, bytes;
  double forward_s, backward_s;
};

struct trm_machine {
  int cores, threads;         /* of a node; of a rank, while it was measured */
  double message_latency_s;           /* between two ranks of a node: latency, */
  double message_bytes_per_s; /* rate */
  bool messages_measured;     /* false: stand-ins, made of the rate of memory */
  double network_latency_s, network_bytes_per_s; /* between nodes; the rate is a node's */
  struct trm_machine_work *work;         /* (works) */
  int works;
};

/* Nothing measured yet; a network of 100 Gbit/s. */
void trm_machine_create(struct trm_machine *machine, int cores, int threads);
void trm_machine_free(struct trm_machine *machine);

/* JSON. TRM_USAGE: what is wrong with the file. */
int trm_machine_read(struct trm_machine *machine, const char *path);
int trm_machine_write(const struct trm_machine *machine, const char *path);

void trm_machine_add(struct trm_machine *machine, const struct trm_machine_work *work);
/* Seconds of work with this name and size: as measured, or in proportion to the most similar in size, and among
 * equals in bytes; 0 where nothing of that name was measured. backward: may be NULL. */
double trm_machine_seconds(const struct trm_machine *machine, const char *name, double flop, double bytes,
                           double *backward);
bool trm_machine_has(const struct trm_machine *machine, const char *name, double flop, double bytes); /* this size */

/* -- measuring (machine_measure.c) */

/* One for each rank that computes at the same time on a node; at least one. */
struct trm_machine_bench {
  struct trm_device *device; /* (devices) open */
  int devices;
  double seconds;            /* to be spent; what is not measured by then stays unknown */
  double spent;
};

/* The name of a layer's work. */
void trm_machine_layer_name(const struct trm_layer *layer, char name[48]);
/* The work of a layer with so many rows. */
struct trm_machine_work trm_machine_layer_work(const struct trm_layer *layer, size_t rows);

/* Adds what is not known yet: layers of the part, the loss. Layers that move values between ranks are messages, and
 * left out. input: at least `rows` rows, real ones. */
int trm_machine_measure_model(struct trm_machine *machine, struct trm_machine_bench *bench,
                              const struct trm_model *model, const struct trm_input *input, size_t rows);
/* Sums, copies, updates of this optimizer. */
int trm_machine_measure_arrays(struct trm_machine *machine, struct trm_machine_bench *bench,
                               const struct trm_optimizer *optimizer);
/* Between ranks 0 and 1 of comm, which are on one node, and known to them: single messages, and "all sum", "all
 * gather", "sum scatter", with the bytes of the whole value; the same of an axis that divides layers ("axis sum", and
 * so on), which shares memory in this domain (TRM_SHARE_NONE: it does not), where the device's memory is the host's.
 * Collective; of one rank nothing happens. */
void trm_machine_measure_messages(struct trm_machine *machine, struct trm_comm *comm, struct trm_device *device,
                                  enum trm_share domain);

#endif
