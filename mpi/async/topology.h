/* Communication graphs of peers (strategy.graph). Every edge is between an active and a passive rank, so that active
 * ranks may wait for passive ones without deadlock (Lian, Zhang, Zhang & Liu 2018).
 *
 *   complete     every active rank is a neighbor of every passive one
 *   ring         rank +- 1
 *   torus        the four neighbors on a grid of rows x columns, both even, as near to a square as possible
 *   exponential  rank +- 1, 3, 5, 9, 17, .. : distances 1 + 2^k, which are odd (Assran et al. 2019)
 *
 * Ranks are numbered along the rows. Those whose row and column add up to an even number are active: without rows, the
 * even ranks. */
#pragma once

#include <stdbool.h>

#include "core/choices.h"

enum { TOPOLOGY_MAX_OFFSETS = 64 };

struct topology {
  enum trm_peer_graph graph;
  int ranks, rows, columns;
  /* (offsets) Of the neighbors, the same for every rank; complete: not listed. */
  struct topology_offset {
    int row, column;
  } offset[TOPOLOGY_MAX_OFFSETS];
  int offsets;
};

/* TRM_USAGE: the graph of so many ranks has edges between active ranks. */
int topology_create(struct topology *topology, enum trm_peer_graph graph, int ranks);
bool topology_is_active(const struct topology *topology, int rank);
int topology_neighbors(const struct topology *topology, int rank); /* how many there are */
int topology_neighbor(const struct topology *topology, int rank, int number);

/* Time constants of averaging over the graph, where each active rank meets one of its neighbors, drawn at random,
 * `rate` times a unit of time: an edge has the rate r of its meetings, and L = sum over the edges (i, j) of
 * r (e_i - e_j) (e_i - e_j)' is the Laplacian (Nabli, Belilovsky & Oyallon 2023, definitions 3.1 and 3.2). */
struct topology_times {
  double chi1; /* 1 / the smallest positive eigenvalue of L */
  double chi2; /* half the largest effective resistance of an edge, (e_i - e_j)' L^+ (e_i - e_j) / 2 */
};
struct topology_times topology_times(const struct topology *topology, double rate); /* 2 ranks or more */
