/* The state of the method a2cid2, whose constants tests set. */
#pragma once

#include "mpi/async/peers.h"
#include "mpi/async/topology.h"

struct a2cid2 {
  struct peers peers;
  struct topology topology;
  double h, a;              /* of the graph; h = 0 and a = 1/2 is AD-PSGD */
  struct trm_update update; /* of this rank's latest gradient */
};
