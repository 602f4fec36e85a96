/* Groups of the virtual network: communicators, splits, and memory that the ranks of a node share. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/virtual_private.h"

struct virtual_group *virtual_group_create(struct virtual_net *net, int size)
{
  struct virtual_group *group = trm_alloc(sizeof *group, "a communicator");
  group->net = net;
  group->size = size;
  group->member = trm_alloc((size_t)size * sizeof *group->member, "a communicator");
  return group;
}

/* Members of a node need not be neighbors in the group. */
void virtual_group_count_nodes(struct virtual_group *group)
{
  group->nodes = 0;
  for (int i = 0; i < group->size; i++) {
    struct virtual_node *node = &group->net->node[virtual_rank_at(group, i)->node];
    group->nodes += node->counted != group->member;
    node->counted = group->member;
  }
  for (int i = 0; i < group->size; i++) /* a later group may have the same address */
    group->net->node[virtual_rank_at(group, i)->node].counted = NULL;
}

struct trm_comm *virtual_comm_create(struct virtual_group *group, int rank)
{
  struct virtual_comm *comm = trm_alloc(sizeof *comm, "a communicator");
  comm->group = group;
  comm->base = (struct trm_comm){.ops = &virtual_ops, .rank = rank, .size = group->size, .impl = comm};
  group->references++;
  return &comm->base;
}

void virtual_release(struct trm_comm *comm)
{
  if (!comm)
    return;
  struct virtual_group *group = virtual_of(comm)->group;
  trm_free(virtual_of(comm));
  if (--group->references > 0)
    return;
  for (struct virtual_collective *collective = group->unused, *next; collective; collective = next) {
    next = collective->next;
    trm_free(collective);
  }
  trm_free(group->member);
  trm_free(group);
}

/* -- splits */

struct split_part {
  int color, key, rank;
  bool shares_memory, process;
  struct trm_comm *made;
};

static int group_compare_parts(const void *left, const void *right)
{
  const struct split_part *a = *(struct split_part *const *)left, *b = *(struct split_part *const *)right;
  if (a->color != b->color)
    return a->color < b->color ? -1 : 1;
  if (a->key != b->key)
    return a->key < b->key ? -1 : 1;
  return a->rank - b->rank;
}

/* Makes a communicator of the parts [0, size), which have one color. */
static void group_make(const struct virtual_group *parent, struct split_part **part, int size)
{
  struct virtual_group *group = virtual_group_create(parent->net, size);
  for (int i = 0; i < size; i++)
    group->member[i] = parent->member[part[i]->rank];
  virtual_group_count_nodes(group);
  group->shares_memory = part[0]->shares_memory;
  group->process = part[0]->process;
  for (int i = 0; i < size; i++)
    part[i]->made = virtual_comm_create(group, i);
}

static void group_split_all(struct virtual_collective *collective)
{
  const struct virtual_group *group = collective->group;
  struct split_part **part = trm_alloc((size_t)group->size * sizeof *part, "a split");
  for (int i = 0; i < group->size; i++)
    part[i] = collective->part[i].data;
  qsort(part, (size_t)group->size, sizeof *part, group_compare_parts);
  for (int i = 0, end; i < group->size; i = end) {
    for (end = i + 1; end < group->size && part[end]->color == part[i]->color;)
      end++;
    if (part[i]->color >= 0)
      group_make(group, part + i, end - i);
  }
  trm_free(part);
}

static struct trm_comm *group_split(struct trm_comm *comm, struct split_part part)
{
  const struct virtual_shape shape = {.kind = VIRTUAL_INTERNAL, .work = group_split_all, .name = "split"};
  part.rank = comm->rank;
  virtual_collective_run(comm, &shape, (struct virtual_part){.data = &part});
  return part.made;
}

struct trm_comm *virtual_split(struct trm_comm *comm, int color, int key)
{
  const struct virtual_group *group = virtual_of(comm)->group;
  return group_split(comm, (struct split_part){.color = color, .key = key, .shares_memory = group->shares_memory,
                                               .process = group->process});
}

struct trm_comm *virtual_split_node(struct trm_comm *comm, enum trm_share domain)
{
  const bool process = domain == TRM_SHARE_PROCESS;
  return group_split(comm, (struct split_part){.color = process ? 0 : virtual_rank_of(comm)->node,
                                               .shares_memory = true, .process = process});
}

/* -- shared memory: one block for all ranks, and one list of their addresses */

struct group_block {
  size_t bytes;
  void *memory;
  void **base; /* (size) */
};

struct share_part {
  size_t bytes;
  struct group_block *block; /* NULL: there is no memory */
};

static size_t group_whole_pages(size_t bytes)
{
  const size_t page = 4096;
  return bytes > 0 ? (bytes + page - 1) / page * page : 0;
}

static void group_share_all(struct virtual_collective *collective)
{
  const int size = collective->group->size;
  size_t bytes = 0;
  for (int i = 0; i < size; i++)
    bytes += group_whole_pages(((struct share_part *)collective->part[i].data)->bytes);
  char *memory = mmap(NULL, bytes > 0 ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                      -1, 0);
  if (memory == MAP_FAILED)
    return;
  trm_memory_account(bytes, 0);
  struct group_block *block = trm_alloc(sizeof *block, "shared memory");
  *block = (struct group_block){bytes, memory, trm_alloc((size_t)size * sizeof(void *), "shared memory")};
  for (int i = 0; i < size; i++) {
    struct share_part *part = collective->part[i].data;
    block->base[i] = memory;
    part->block = block;
    memory += group_whole_pages(part->bytes);
  }
}

int virtual_share(struct trm_comm *comm, size_t bytes, enum trm_memory_use use, struct trm_shared *shared)
{
  const struct virtual_shape shape = {.kind = VIRTUAL_INTERNAL, .work = group_share_all, .name = "share"};
  const char *what = trm_memory_name(use);
  struct share_part part = {.bytes = bytes};
  *shared = (struct trm_shared){.bytes = bytes};
  if (!virtual_of(comm)->group->shares_memory && comm->size > 1)
    return trm_error(TRM_FAILED, "%s: the ranks are on different nodes", what);
  virtual_collective_run(comm, &shape, (struct virtual_part){.data = &part});
  if (!part.block)
    return trm_error(TRM_FAILED, "out of memory: %.1f MiB for %s", (double)bytes / 1048576.0, what);
  shared->base = part.block->base;
  shared->local = shared->base[comm->rank];
  shared->handle = part.block;
  return TRM_OK;
}

static void group_unshare_all(struct virtual_collective *collective)
{
  struct group_block *block = collective->part[0].data;
  munmap(block->memory, block->bytes > 0 ? block->bytes : 1);
  trm_memory_account(0, block->bytes);
  trm_free(block->base);
  trm_free(block);
}

void virtual_unshare(struct trm_comm *comm, struct trm_shared *shared)
{
  const struct virtual_shape shape = {.kind = VIRTUAL_INTERNAL, .work = group_unshare_all, .name = "unshare"};
  if (shared->handle)
    virtual_collective_run(comm, &shape, (struct virtual_part){.data = shared->handle});
  *shared = (struct trm_shared){0};
}
