/* A library to preload, a profiler of regions as IPM is: prints "region RANK NAME: COUNT" for each region of a rank at
 * MPI_Finalize, and "region RANK misnested NAME" when a region ends that is not the innermost, or does not end. */
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_REGIONS = 32, MAX_DEPTH = 16, NAME_BYTES = 32 };

static struct region {
  char name[NAME_BYTES];
  long count;
} region[MAX_REGIONS];
static int regions, open[MAX_DEPTH], depth;

static int find(const char *name)
{
  for (int i = 0; i < regions; i++)
    if (!strcmp(region[i].name, name))
      return i;
  if (regions == MAX_REGIONS)
    return MAX_REGIONS - 1;
  snprintf(region[regions].name, NAME_BYTES, "%s", name);
  return regions++;
}

static void misnested(const char *name)
{
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  fprintf(stderr, "region %d misnested %s\n", rank, name);
}

int MPI_Pcontrol(const int level, ...)
{
  va_list arguments;
  va_start(arguments, level);
  const char *name = va_arg(arguments, const char *);
  va_end(arguments);
  const int which = find(name);
  if (level == 1 && depth < MAX_DEPTH) {
    open[depth++] = which;
    region[which].count++;
  } else if (level == -1 && depth > 0 && open[depth - 1] == which) {
    depth--;
  } else {
    misnested(name);
  }
  return MPI_SUCCESS;
}

int MPI_Finalize(void)
{
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < regions; i++)
    fprintf(stderr, "region %d %s: %ld\n", rank, region[i].name, region[i].count);
  if (depth > 0)
    misnested(region[open[depth - 1]].name);
  return PMPI_Finalize();
}
