/* Communication graphs of peers: neighbors; time constants against the eigenvalues and the pseudo-inverse of the dense
 * Laplacian, and against textbook forms. */
#include <math.h>
#include <string.h>

#include "core/status.h"
#include "mpi/async/topology.h"
#include "suite.h"

enum { MAX_RANKS = 36 };
#define PI 3.14159265358979323846

static struct topology graph_of(enum trm_peer_graph graph, int ranks)
{
  struct topology t;
  CU_ASSERT_EQUAL_FATAL(topology_create(&t, graph, ranks), TRM_OK);
  return t;
}

static bool is_neighbor(const struct topology *t, int rank, int other)
{
  for (int i = 0; i < topology_neighbors(t, rank); i++)
    if (topology_neighbor(t, rank, i) == other)
      return true;
  return false;
}

/* -- the dense Laplacian */

static double laplacian[MAX_RANKS][MAX_RANKS], vector[MAX_RANKS][MAX_RANKS]; /* after solve: diagonal; (element, k) */

static void set_laplacian(const struct topology *t, double rate)
{
  memset(laplacian, 0, sizeof laplacian);
  for (int i = 0; i < t->ranks; i++)
    for (int n = 0; topology_is_active(t, i) && n < topology_neighbors(t, i); n++) {
      const int j = topology_neighbor(t, i, n);
      const double r = rate / topology_neighbors(t, i);
      laplacian[i][i] += r;
      laplacian[j][j] += r;
      laplacian[i][j] -= r;
      laplacian[j][i] -= r;
    }
}

/* Jacobi's eigenvalue algorithm: rotations in the planes (p, q) that set element (p, q) to 0. */
static void solve(int n)
{
  memset(vector, 0, sizeof vector);
  for (int i = 0; i < n; i++)
    vector[i][i] = 1;
  for (int sweep = 0; sweep < 20; sweep++)
    for (int p = 0; p < n; p++)
      for (int q = p + 1; q < n; q++) {
        const double angle = 0.5 * atan2(2 * laplacian[p][q], laplacian[q][q] - laplacian[p][p]);
        const double c = cos(angle), s = sin(angle);
        for (int k = 0; k < n; k++) {
          const double x = laplacian[k][p], y = laplacian[k][q], u = vector[k][p], v = vector[k][q];
          laplacian[k][p] = c * x - s * y;
          laplacian[k][q] = s * x + c * y;
          vector[k][p] = c * u - s * v;
          vector[k][q] = s * u + c * v;
        }
        for (int k = 0; k < n; k++) {
          const double x = laplacian[p][k], y = laplacian[q][k];
          laplacian[p][k] = c * x - s * y;
          laplacian[q][k] = s * x + c * y;
        }
      }
}

static struct topology_times times_of_laplacian(const struct topology *t, double rate)
{
  struct topology_times times = {0};
  set_laplacian(t, rate);
  solve(t->ranks);
  int zeros = 0;
  for (int k = 0; k < t->ranks; k++) {
    zeros += laplacian[k][k] < 1e-9;
    if (laplacian[k][k] >= 1e-9)
      times.chi1 = fmax(times.chi1, 1 / laplacian[k][k]);
  }
  CU_ASSERT_EQUAL(zeros, 1); /* the graph is connected */
  for (int i = 0; i < t->ranks; i++)
    for (int n = 0; n < topology_neighbors(t, i); n++) {
      const int j = topology_neighbor(t, i, n);
      double resistance = 0;
      for (int k = 0; k < t->ranks; k++)
        if (laplacian[k][k] >= 1e-9)
          resistance += pow(vector[i][k] - vector[j][k], 2) / laplacian[k][k];
      times.chi2 = fmax(times.chi2, resistance / 2);
    }
  return times;
}

/* -- tests */

static const struct {
  enum trm_peer_graph graph;
  int ranks;
} cases[] = {
  {TRM_GRAPH_COMPLETE, 2}, {TRM_GRAPH_COMPLETE, 3}, {TRM_GRAPH_COMPLETE, 5}, {TRM_GRAPH_COMPLETE, 8},
  {TRM_GRAPH_RING, 2}, {TRM_GRAPH_RING, 4}, {TRM_GRAPH_RING, 6}, {TRM_GRAPH_RING, 16},
  {TRM_GRAPH_TORUS, 2}, {TRM_GRAPH_TORUS, 4}, {TRM_GRAPH_TORUS, 8}, {TRM_GRAPH_TORUS, 16}, {TRM_GRAPH_TORUS, 24},
  {TRM_GRAPH_TORUS, 36}, {TRM_GRAPH_EXPONENTIAL, 2}, {TRM_GRAPH_EXPONENTIAL, 6}, {TRM_GRAPH_EXPONENTIAL, 32},
};
enum { CASES = sizeof cases / sizeof *cases };

/* Neighbors are different ranks, each other's neighbors, and of the other kind. */
static void test_neighbors(void)
{
  for (int c = 0; c < CASES; c++) {
    const struct topology t = graph_of(cases[c].graph, cases[c].ranks);
    for (int i = 0; i < t.ranks; i++)
      for (int n = 0; n < topology_neighbors(&t, i); n++) {
        const int j = topology_neighbor(&t, i, n);
        CU_ASSERT_FATAL(j >= 0 && j < t.ranks);
        CU_ASSERT(topology_is_active(&t, i) != topology_is_active(&t, j));
        CU_ASSERT(is_neighbor(&t, j, i));
        for (int m = 0; m < n; m++)
          CU_ASSERT(topology_neighbor(&t, i, m) != j);
      }
  }
}

static void test_ranks(void)
{
  const struct topology complete = graph_of(TRM_GRAPH_COMPLETE, 5), ring = graph_of(TRM_GRAPH_RING, 6);
  const struct topology torus = graph_of(TRM_GRAPH_TORUS, 24), few = graph_of(TRM_GRAPH_EXPONENTIAL, 32);
  CU_ASSERT(topology_neighbors(&complete, 4) == 2 && topology_neighbor(&complete, 4, 1) == 3);
  CU_ASSERT(topology_neighbors(&complete, 1) == 3 && topology_neighbor(&complete, 1, 2) == 4);
  CU_ASSERT(topology_neighbors(&ring, 0) == 2 && is_neighbor(&ring, 0, 1) && is_neighbor(&ring, 0, 5));
  CU_ASSERT(torus.rows == 4 && torus.columns == 6 && topology_neighbors(&torus, 7) == 4);
  CU_ASSERT(is_neighbor(&torus, 0, 1) && is_neighbor(&torus, 0, 5) && is_neighbor(&torus, 0, 6));
  CU_ASSERT(is_neighbor(&torus, 0, 18) && topology_is_active(&torus, 7) && !topology_is_active(&torus, 6));
  static const int distance[] = {1, 3, 5, 9, 17};
  CU_ASSERT_EQUAL(topology_neighbors(&few, 2), 10);
  for (int i = 0; i < 5; i++)
    CU_ASSERT(is_neighbor(&few, 2, (2 + distance[i]) % 32) && is_neighbor(&few, 2, (34 - distance[i]) % 32));
  const struct topology one = graph_of(TRM_GRAPH_RING, 1), alone = graph_of(TRM_GRAPH_COMPLETE, 1);
  CU_ASSERT(topology_neighbors(&one, 0) == 0 && topology_neighbors(&alone, 0) == 0);
}

static void test_laplacian(void)
{
  for (int c = 0; c < CASES; c++) {
    const struct topology t = graph_of(cases[c].graph, cases[c].ranks);
    const struct topology_times expected = times_of_laplacian(&t, 0.25), times = topology_times(&t, 0.25);
    CU_ASSERT_DOUBLE_EQUAL(times.chi1, expected.chi1, 1e-9 * expected.chi1);
    CU_ASSERT_DOUBLE_EQUAL(times.chi2, expected.chi2, 1e-9 * expected.chi2);
    CU_ASSERT(times.chi2 <= times.chi1 * (1 + 1e-12));
  }
}

/* One meeting of each rank a unit of time. Of graphs whose edges are alike the resistance is (ranks - 1) / sum of the
 * rates, which is ranks / 2. */
static void test_textbook(void)
{
  const struct topology ring = graph_of(TRM_GRAPH_RING, 16), torus = graph_of(TRM_GRAPH_TORUS, 36);
  const struct topology complete = graph_of(TRM_GRAPH_COMPLETE, 64), pair = graph_of(TRM_GRAPH_COMPLETE, 2);
  CU_ASSERT_DOUBLE_EQUAL(topology_times(&ring, 1).chi1, 1 / (1 - cos(2 * PI / 16)), 1e-9);
  CU_ASSERT_DOUBLE_EQUAL(topology_times(&ring, 1).chi2, 15.0 / 16, 1e-9);
  CU_ASSERT_DOUBLE_EQUAL(topology_times(&torus, 1).chi1, 2 / (1 - cos(2 * PI / 6)), 1e-9);
  CU_ASSERT_DOUBLE_EQUAL(topology_times(&torus, 1).chi2, 35.0 / 36, 1e-9);
  CU_ASSERT_DOUBLE_EQUAL(topology_times(&complete, 1).chi1, 1, 1e-9);
  CU_ASSERT_DOUBLE_EQUAL(topology_times(&complete, 1).chi2, 63.0 / 64, 1e-9);
  CU_ASSERT_DOUBLE_EQUAL(topology_times(&pair, 1).chi1, 0.5, 1e-12);
  CU_ASSERT_DOUBLE_EQUAL(topology_times(&ring, 0.5).chi1, 2 * topology_times(&ring, 1).chi1, 1e-9);
}

static void test_refused(void)
{
  static const int ranks[][2] = {{TRM_GRAPH_RING, 5}, {TRM_GRAPH_TORUS, 6}, {TRM_GRAPH_EXPONENTIAL, 3}};
  for (int i = 0; i < 3; i++) {
    struct topology t;
    CU_ASSERT_EQUAL(topology_create(&t, (enum trm_peer_graph)ranks[i][0], ranks[i][1]), TRM_USAGE);
    CU_ASSERT(strstr(trm_error_text(), "strategy.graph=") != NULL);
  }
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"neighbors", test_neighbors},
    {"ranks of neighbors", test_ranks},
    {"time constants of the dense Laplacian", test_laplacian},
    {"textbook forms", test_textbook},
    {"refused numbers of ranks", test_refused},
    CU_TEST_INFO_NULL,
  };
  return suite_run("graphs of peers", tests);
}
