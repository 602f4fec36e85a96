/* Preloaded into a job, reads and changes what its ranks hand to MPI as messages:
 *
 *   WIRE_SEEK=FILE    prints "wire: found" once to the standard error output when a message has the bytes of the file
 *   WIRE_FLIP=N       flips a bit of the N-th message of rank 1 that has 1,000 bytes or more, counted from 1
 *   WIRE_REPEAT=N     sends the N-th of them again, in place of the next one of the same length and tag */
#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_BYTES = 1000, MAX_SOUGHT = 4096 };

static atomic_int messages;
static void *kept;
static int kept_bytes, kept_tag;
static bool repeated;

static void wire_seek(const void *data, size_t bytes)
{
  static atomic_int found;
  static char sought[MAX_SOUGHT];
  static size_t sought_bytes;
  const char *path = getenv("WIRE_SEEK");
  if (path && !sought_bytes) {
    FILE *file = fopen(path, "rb");
    sought_bytes = file ? fread(sought, 1, sizeof sought, file) : 0;
    if (file)
      fclose(file);
  }
  if (path && sought_bytes && bytes >= sought_bytes && memmem(data, bytes, sought, sought_bytes) &&
      !atomic_fetch_add(&found, 1))
    fprintf(stderr, "wire: found\n");
}

/* Returns the message to send in place of data: a copy, never freed since MPI reads it for a while, or data. */
static const void *wire_change(const void *data, int bytes, int tag)
{
  int rank;
  const char *flip = getenv("WIRE_FLIP"), *repeat = getenv("WIRE_REPEAT");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 1 || bytes < MIN_BYTES || (!flip && !repeat))
    return data;
  const int number = 1 + atomic_fetch_add(&messages, 1);
  char *changed = malloc((size_t)bytes);
  memcpy(changed, data, (size_t)bytes);
  if (flip && number == atoi(flip))
    changed[bytes / 2] ^= 1;
  if (repeat && number > atoi(repeat) && kept_bytes == bytes && kept_tag == tag && !repeated) {
    memcpy(changed, kept, (size_t)bytes);
    repeated = true;
  }
  if (repeat && number == atoi(repeat)) {
    kept = changed;
    kept_bytes = bytes;
    kept_tag = tag;
  }
  return changed;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
  int size;
  MPI_Type_size(type, &size);
  wire_seek(data, (size_t)count * (size_t)size);
  return PMPI_Isend(wire_change(data, count * size, tag), count, type, to, tag, comm, request);
}
