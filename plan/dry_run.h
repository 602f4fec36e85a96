/* The dry run: a communicator and a device that count the bytes which set-up code requests, without allocating. */
#pragma once

#include "core/comm.h"
#include "core/device.h"

/* Bytes of one rank. */
struct trm_dry_run_account {
  size_t bytes[TRM_MEMORY_USES]; /* its own arrays, and its shards of node-shared arrays */
  size_t peer_bytes;             /* shards of its node's other ranks that it reads or writes */
};

/* The communicator of the last of `size` ranks, node_ranks on each node (size is a multiple of it). It has the slots
 * that strategies call in create and destroy. Its collectives find equal values on all ranks: they are no sums. split
 * takes colors for those of groups of equal size, numbered from 0, of which the last rank has the last. Addresses of
 * its shared arrays must not be followed. */
struct trm_dry_run_comm {
  struct trm_comm base;
  struct trm_comm_ops ops;
  int node_ranks;
  struct trm_dry_run_account *account;
};
void trm_dry_run_comm_open(struct trm_dry_run_comm *comm, int size, int node_ranks,
                           struct trm_dry_run_account *account);

/* A device that counts arrays and computes nothing; host_memory as of the real one. Its addresses must not be
 * dereferenced. */
struct trm_dry_run_device {
  struct trm_device base;
  struct trm_dry_run_account *account;
};
void trm_dry_run_device_open(struct trm_dry_run_device *device, const struct trm_device *real,
                             struct trm_dry_run_account *account);
