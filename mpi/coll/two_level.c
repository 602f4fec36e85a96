#include "mpi/coll/two_level.h"

#include "core/memory.h"

/* The ranks by their nodes. */
struct two_level {
  int rank, size;
  const int *node;   /* (size) of each rank: the lowest rank of its node; NULL: the rank itself */
  int *member;       /* (size) the ranks, node after node, ascending in each */
  int *first, *count; /* (size) by the lowest rank of a node: where its members begin, how many there are */
};

static int two_level_node(const struct two_level *t, int rank)
{
  return t->node ? t->node[rank] : rank;
}

static struct two_level two_level_create(const struct coll_schedule *s)
{
  const struct trm_comm *comm = coll_schedule_comm(s);
  struct two_level t = {.rank = comm->rank, .size = comm->size, .node = coll_schedule_nodes(s)};
  t.member = trm_alloc(3 * (size_t)t.size * sizeof *t.member, "a collective"); /* zeros */
  t.first = t.member + t.size;
  t.count = t.first + t.size;
  for (int rank = 0; rank < t.size; rank++)
    t.count[two_level_node(&t, rank)]++;
  for (int node = 0, at = 0; node < t.size; at += t.count[node++])
    t.first[node] = at;
  for (int rank = 0; rank < t.size; rank++)
    t.count[two_level_node(&t, rank)] = 0;
  for (int rank = 0; rank < t.size; rank++) {
    const int node = two_level_node(&t, rank);
    t.member[t.first[node] + t.count[node]++] = rank;
  }
  return t;
}

/* The rank of a node that has another node's block in its share. */
static int two_level_keeper(const struct two_level *t, int block, int node)
{
  return t->member[t->first[node] + block % t->count[node]];
}

/* Member number i of this rank's node. */
static int two_level_peer(const struct two_level *t, int i)
{
  return t->member[t->first[two_level_node(t, t->rank)] + i];
}

/* Adds the exchange of a block inside the node, between the rank that has it, or its sum, and all others. */
static void two_level_broadcast(struct coll_schedule *s, const struct two_level *t, const struct coll_blocks *b, int block,
                                int owner)
{
  if (owner != t->rank) {
    coll_receive(s, coll_block(s, b, block), b->count[block], owner);
    return;
  }
  for (int i = 0; i < t->count[two_level_node(t, t->rank)]; i++)
    if (two_level_peer(t, i) != t->rank)
      coll_send(s, coll_block(s, b, block), b->count[block], two_level_peer(t, i));
}

/* to: where the last sum goes */
static void two_level_reduce(struct coll_schedule *s, const struct two_level *t, const struct coll_blocks *b, int block,
                             int owner, void *to)
{
  void *const sum = coll_block(s, b, block);
  const int peers = t->count[two_level_node(t, t->rank)];
  if (owner != t->rank) {
    coll_send(s, sum, b->count[block], owner);
    return;
  }
  const int last = two_level_peer(t, peers - 1) == t->rank ? peers - 2 : peers - 1;
  for (int i = 0; i < peers; i++)
    if (two_level_peer(t, i) != t->rank)
      coll_receive_reduce(s, i == last ? to : sum, sum, b->count[block], two_level_peer(t, i));
}

void coll_two_level_allgather(struct coll_schedule *s, const struct coll_blocks *b)
{
  struct two_level t = two_level_create(s);
  const int mine = two_level_node(&t, t.rank);
  for (int node = 0; node < t.size; node++) /* between the nodes, and this node's own blocks */
    if (node != mine && t.count[node] > 0)
      coll_send(s, coll_block(s, b, t.rank), b->count[t.rank], two_level_keeper(&t, t.rank, node));
  for (int block = 0; block < t.size; block++)
    if (two_level_node(&t, block) == mine)
      two_level_broadcast(s, &t, b, block, block);
    else if (two_level_keeper(&t, block, mine) == t.rank)
      coll_receive(s, coll_block(s, b, block), b->count[block], block);
  coll_round(s);
  for (int block = 0; block < t.size; block++)
    if (two_level_node(&t, block) != mine)
      two_level_broadcast(s, &t, b, block, two_level_keeper(&t, block, mine));
  coll_round(s);
  trm_free(t.member);
}

void coll_two_level_reduce_scatter(struct coll_schedule *s, const struct coll_blocks *b, void *mine)
{
  struct two_level t = two_level_create(s);
  const int own = two_level_node(&t, t.rank);
  void *const sum = coll_block(s, b, t.rank);
  int last = -1; /* the last node that sends its sum */
  for (int node = 0; node < t.size; node++)
    if (node != own && t.count[node] > 0)
      last = node;
  for (int block = 0; block < t.size; block++) { /* inside the node */
    const bool local = two_level_node(&t, block) == own;
    two_level_reduce(s, &t, b, block, local ? block : two_level_keeper(&t, block, own),
                     local && last < 0 ? mine : coll_block(s, b, block));
  }
  coll_round(s);
  for (int block = 0; block < t.size; block++)
    if (two_level_node(&t, block) != own && two_level_keeper(&t, block, own) == t.rank)
      coll_send(s, coll_block(s, b, block), b->count[block], block);
  for (int node = 0; node < t.size; node++)
    if (node != own && t.count[node] > 0)
      coll_receive_reduce(s, node == last ? mine : sum, sum, b->count[t.rank], two_level_keeper(&t, t.rank, node));
  coll_round(s);
  trm_free(t.member);
}
