/* Messages of compressed sums: every node sends to every other one directly, no more bytes than a ring does, with one
 * latency in place of nodes - 1. Compression is for few nodes. */
#include <string.h>

#include "mpi/compress/compressor_private.h"

static int exchange_tag(const struct compress_part *part)
{
  return part->number * COMPRESS_TAGS + part->round;
}

static void exchange_send(struct compressor *c, struct compress_part *part, const void *from, size_t bytes, int node)
{
  if (bytes == 0)
    return;
  part->nodes->ops->send_begin(part->nodes, from, bytes, TRM_BYTE, node, exchange_tag(part),
                               &part->request[part->requests++]);
  c->strategy->wire.bytes += bytes;
}

static void exchange_receive(struct compress_part *part, void *to, size_t bytes, int node)
{
  if (bytes > 0)
    part->nodes->ops->receive_begin(part->nodes, to, bytes, TRM_BYTE, node, exchange_tag(part),
                                 &part->request[part->requests++]);
}

void compress_scatter_begin(struct compressor *c, struct compress_part *part, const void *all, size_t n, size_t bytes,
                            void *shards)
{
  const int nodes = part->nodes->size, rank = part->nodes->rank;
  size_t low;
  const size_t mine = compress_shard(part, n, &low) * bytes;
  for (int i = 1; i < nodes; i++) {
    const int node = (rank + nodes - i) % nodes;
    exchange_receive(part, (char *)shards + (size_t)node * mine, mine, node);
  }
  for (int i = 1; i < nodes; i++) {
    const int node = (rank + i) % nodes; /* all begin with another one */
    size_t from, to;
    trm_interval(n, (size_t)nodes, (size_t)node, &from, &to);
    exchange_send(c, part, (const char *)all + from * bytes, (to - from) * bytes, node);
  }
  if (mine > 0)
    memcpy((char *)shards + (size_t)rank * mine, (const char *)all + low * bytes, mine);
}

void compress_gather_begin(struct compressor *c, struct compress_part *part, void *all, size_t n, size_t bytes)
{
  const int nodes = part->nodes->size, rank = part->nodes->rank;
  size_t low;
  const size_t mine = compress_shard(part, n, &low) * bytes;
  for (int i = 1; i < nodes; i++) {
    const int node = (rank + nodes - i) % nodes;
    size_t from, to;
    trm_interval(n, (size_t)nodes, (size_t)node, &from, &to);
    exchange_receive(part, (char *)all + from * bytes, (to - from) * bytes, node);
  }
  for (int i = 1; i < nodes; i++)
    exchange_send(c, part, (const char *)all + low * bytes, mine, (rank + i) % nodes);
}

void compress_add_rows(const struct compress_part *part, float *to, const float *rows, size_t n)
{
  if (n > 0)
    memcpy(to, rows, n * sizeof *to);
  for (int node = 1; node < part->nodes->size; node++) {
    const float *const row = rows + (size_t)node * n;
    for (size_t i = 0; i < n; i++)
      to[i] += row[i];
  }
}

void compress_add_gradient(struct compress_part *part)
{
  float *const p = part->state[0];
  const float *const data = part->data;
  for (size_t i = 0; i < part->n; i++)
    p[i] += data[i];
}
