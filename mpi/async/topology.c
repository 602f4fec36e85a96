#include "mpi/async/topology.h"

#include <math.h>

#include "core/options.h"
#include "core/status.h"

static int topology_wrap(int i, int n)
{
  return (i % n + n) % n;
}

/* Adds the offset, unless it leads to the rank itself or to a neighbor that there is. */
static void topology_add(struct topology *t, int row, int column)
{
  row = topology_wrap(row, t->rows);
  column = topology_wrap(column, t->columns);
  bool is_new = row != 0 || column != 0;
  for (int i = 0; i < t->offsets; i++)
    is_new &= row != t->offset[i].row || column != t->offset[i].column;
  if (is_new)
    t->offset[t->offsets++] = (struct topology_offset){row, column};
}

static void topology_set_torus(struct topology *t)
{
  for (int rows = 2; rows * rows <= t->ranks; rows += 2)
    if (t->ranks % rows == 0 && t->ranks / rows % 2 == 0)
      t->rows = rows;
  t->columns = t->ranks / t->rows;
  for (int sign = 1; sign >= -1; sign -= 2) {
    topology_add(t, 0, sign);
    topology_add(t, sign, 0);
  }
}

static void topology_set_exponential(struct topology *t)
{
  for (int power = 1; power < t->ranks; power *= 2) {
    const int distance = power == 1 ? 1 : 1 + power;
    topology_add(t, 0, distance);
    topology_add(t, 0, -distance);
  }
}

int topology_create(struct topology *t, enum trm_peer_graph graph, int ranks)
{
  const int multiple = graph == TRM_GRAPH_TORUS && ranks > 2 ? 4 : 2;
  *t = (struct topology){.graph = graph, .ranks = ranks, .rows = 1, .columns = ranks};
  if (graph != TRM_GRAPH_COMPLETE && ranks > 1 && ranks % multiple != 0)
    return trm_error(TRM_USAGE, "strategy.graph=%s: needs a number of workers that is a multiple of %d (of %d it would "
                     "have edges between two active ones, which could wait for each other)",
                     trm_choice_text("strategy.graph", graph), multiple, ranks);
  if (graph == TRM_GRAPH_RING) {
    topology_add(t, 0, 1);
    topology_add(t, 0, -1);
  } else if (graph == TRM_GRAPH_TORUS) {
    topology_set_torus(t);
  } else if (graph == TRM_GRAPH_EXPONENTIAL) {
    topology_set_exponential(t);
  }
  return TRM_OK;
}

bool topology_is_active(const struct topology *t, int rank)
{
  return (rank / t->columns + rank % t->columns) % 2 == 0;
}

int topology_neighbors(const struct topology *t, int rank)
{
  if (t->graph != TRM_GRAPH_COMPLETE)
    return t->offsets;
  return topology_is_active(t, rank) ? t->ranks / 2 : (t->ranks + 1) / 2;
}

int topology_neighbor(const struct topology *t, int rank, int number)
{
  if (t->graph == TRM_GRAPH_COMPLETE)
    return 2 * number + (topology_is_active(t, rank) ? 1 : 0);
  const struct topology_offset *offset = &t->offset[number];
  return topology_wrap(rank / t->columns + offset->row, t->rows) * t->columns +
         topology_wrap(rank % t->columns + offset->column, t->columns);
}

/* K_(m, n), m active and n passive ranks, with edges of rate r: the eigenvalues are 0, r n (m - 1 times), r m (n - 1
 * times) and r (m + n); the resistances of the edges are equal, and the sum of rate * resistance over the edges is
 * ranks - 1 (Foster 1949). */
static struct topology_times topology_times_complete(const struct topology *t, double rate)
{
  const double n = t->ranks / 2, m = t->ranks - n, r = rate / n; /* m is n or n + 1 */
  return (struct topology_times){.chi1 = 1 / (r * (m > 1 ? n : m + n)), .chi2 = (m + n - 1) / (2 * r * m * n)};
}

/* 1 - cos of the angle between a rank and its neighbor at the offset, in Fourier mode (k, l). */
static double topology_tension(const struct topology *t, const struct topology_offset *offset, int k, int l)
{
  const double turns = (double)(k * offset->row) / t->rows + (double)l * offset->column / t->columns;
  return 1 - cos(6.283185307179586 * turns);
}

/* The other graphs look the same from every rank, and all their edges have the rate r = rate / neighbors. So the
 * eigenvectors of L are the Fourier modes (k, l) of the grid, with the eigenvalues r * sum over the offsets of
 * 1 - cos, and an edge at an offset has the resistance sum over the modes of 2 (1 - cos) / (ranks * eigenvalue). */
static struct topology_times topology_times_fourier(const struct topology *t, double rate)
{
  double smallest = INFINITY, resistance[TOPOLOGY_MAX_OFFSETS] = {0}, largest = 0;
  for (int k = 0; k < t->rows; k++)
    for (int l = k == 0; l < t->columns; l++) {
      double eigenvalue = 0;
      for (int i = 0; i < t->offsets; i++)
        eigenvalue += topology_tension(t, &t->offset[i], k, l) * rate / t->offsets;
      smallest = fmin(smallest, eigenvalue);
      for (int i = 0; i < t->offsets; i++)
        resistance[i] += 2 * topology_tension(t, &t->offset[i], k, l) / (t->ranks * eigenvalue);
    }
  for (int i = 0; i < t->offsets; i++)
    largest = fmax(largest, resistance[i]);
  return (struct topology_times){.chi1 = 1 / smallest, .chi2 = largest / 2};
}

struct topology_times topology_times(const struct topology *t, double rate)
{
  return t->graph == TRM_GRAPH_COMPLETE ? topology_times_complete(t, rate) : topology_times_fourier(t, rate);
}
