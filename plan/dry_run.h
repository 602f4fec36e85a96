/* Ranks and a device that are not there: with them the code that sets up a run does so without taking memory, and what
 * it asks for is counted. */
#ifndef TRM_PLAN_DRY_RUN_H
#define TRM_PLAN_DRY_RUN_H

#include "core/comm.h"
#include "core/device.h"

/* Bytes of one rank. */
struct trm_dry_run_account {
  size_t bytes[TRM_MEMORY_USES]; /* alone, or its part of what the ranks of a node share */
  size_t peer_bytes;                 /* the parts of the other ranks of its node */
};

/* The last rank of `size`, of which node_ranks at a time share a node (size is a multiple). Addresses of arrays are no
 * memory: nobody may follow them. It has the slots that strategies call while they are created and destroyed; its
 * collectives find the same values on all other ranks. */
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
