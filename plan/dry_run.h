/* Ranks and a device that are not there: with them the code that sets up a run does so without taking memory, and what
 * it asks for is counted. */
#ifndef TRM_PLAN_DRY_RUN_H
#define TRM_PLAN_DRY_RUN_H

#include "core/comm.h"
#include "core/device.h"

/* What an array is for, by the words it is asked for with. */
enum trm_dry_run_use {
  TRM_DRY_RUN_WEIGHTS,
  TRM_DRY_RUN_GRADIENTS,
  TRM_DRY_RUN_STATES,
  TRM_DRY_RUN_ACTIVATIONS,
  TRM_DRY_RUN_BUFFERS, /* all else */
  TRM_DRY_RUN_USES
};

/* Bytes of one rank. */
struct trm_dry_run_account {
  size_t bytes[TRM_DRY_RUN_USES]; /* alone, or its part of what the ranks of a node share */
  size_t peer_bytes;                 /* the parts of the other ranks of its node */
};

/* The last rank of `size`, of which `near` at a time are on one node (size is a multiple). Addresses of arrays are no
 * memory: nobody may follow them. Only what strategies call while they are created and destroyed is there: collectives
 * find that all other ranks say the same; of split colors are a rank of the communicator or of its node, or 0. */
struct trm_dry_run_comm {
  struct trm_comm base;
  int node_ranks;
  struct trm_dry_run_account *account;
};
void trm_dry_run_comm_open(struct trm_dry_run_comm *comm, int size, int node_ranks,
                           struct trm_dry_run_account *account);

/* Arrays alone; host_memory is the device's that it stands for. */
struct trm_dry_run_device {
  struct trm_device base;
  struct trm_dry_run_account *account;
};
void trm_dry_run_device_open(struct trm_dry_run_device *device, const struct trm_device *real,
                             struct trm_dry_run_account *account);

#endif
