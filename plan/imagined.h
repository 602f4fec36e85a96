/* Ranks and a device that are not there: with them the code that sets up a run does so without taking memory, and what
 * it asks for is counted. */
#ifndef TRM_TRAIN_IMAGINED_H
#define TRM_TRAIN_IMAGINED_H

#include "core/comm.h"
#include "core/device.h"

/* What an array is for, by the words it is asked for with. */
enum trm_imagined_use {
  TRM_IMAGINED_WEIGHTS,
  TRM_IMAGINED_GRADIENTS,
  TRM_IMAGINED_STATES,
  TRM_IMAGINED_ACTIVATIONS,
  TRM_IMAGINED_BUFFERS, /* all else */
  TRM_IMAGINED_USES
};

/* Bytes of one rank. */
struct trm_imagined_account {
  size_t own[TRM_IMAGINED_USES]; /* alone, or its part of what the ranks of a node share */
  size_t others;                 /* the parts of the other ranks of its node */
};

/* The last rank of `size`, of which `near` at a time are on one node (size is a multiple). Addresses of arrays are no
 * memory: nobody may follow them. Only what strategies call while they are created and destroyed is there: collectives
 * find that all other ranks say the same; of split colours are a rank of the communicator or of its node, or 0. */
struct trm_imagined_comm {
  struct trm_comm face;
  int near;
  struct trm_imagined_account *account;
};
void trm_imagined_comm_open(struct trm_imagined_comm *comm, int size, int near, struct trm_imagined_account *account);

/* Arrays alone; host_memory is the device's that it stands for. */
struct trm_imagined_device {
  struct trm_device face;
  struct trm_imagined_account *account;
};
void trm_imagined_device_open(struct trm_imagined_device *device, const struct trm_device *real,
                              struct trm_imagined_account *account);

#endif
