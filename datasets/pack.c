#include "datasets/pack.h"

#include "core/memory.h"

#define TAG 12

/* What rank 0 tells of a block, and a rank of what it made of it. */
struct pack_head {
  int64_t type, bytes, level;
};
struct packed_head {
  int64_t bytes, mask; /* bytes < 0: failed */
};

static void pack_transfer(struct trm_comm *comm, void *data, size_t bytes, int peer, bool sends)
{
  struct trm_request *request = NULL;
  if (sends)
    comm->ops->send_begin(comm, data, bytes, TRM_BYTE, peer, TAG, &request);
  else
    comm->ops->receive_begin(comm, data, bytes, TRM_BYTE, peer, TAG, &request);
  comm->ops->wait(&request);
}

/* Packs a block in a file in memory; returns the packed bytes, owned by the caller. head->bytes < 0: failed. */
static void *pack_in_memory(const struct pack_head *form, const void *data, struct packed_head *head)
{
  const enum block_type type = (enum block_type)form->type;
  const hsize_t size = (hsize_t)form->bytes / block_type_bytes(type), origin = 0;
  const struct h5_array array = {.dims = 1, .size = &size, .file_type = block_type_file(type), .chunk_rows = size,
                                 .deflate = (int)form->level, .grows = true};
  void *packed = NULL;
  *head = (struct packed_head){.bytes = -1};
  H5_LOCKED;
  H5_CLOSED const hid_t plist = h5_access_plist();
  if (plist < 0 || H5Pset_fapl_core(plist, (size_t)form->bytes, false) < 0)
    return NULL;
  H5_CLOSED const hid_t file = H5Fcreate("packed", H5F_ACC_TRUNC, H5P_DEFAULT, plist);
  H5_CLOSED const hid_t dataset = file < 0 ? -1 : h5_array_create(file, "x", &array);
  hsize_t bytes;
  uint32_t mask;
  if (dataset < 0 || H5Dwrite(dataset, block_type_memory(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0 ||
      H5Dflush(dataset) < 0 || H5Dget_chunk_storage_size(dataset, &origin, &bytes) < 0)
    return NULL;
  packed = trm_alloc((size_t)bytes, "a packed block");
  if (H5Dread_chunk(dataset, H5P_DEFAULT, &origin, &mask, packed) >= 0)
    *head = (struct packed_head){.bytes = (int64_t)bytes, .mask = mask};
  return packed;
}

/* Packs the blocks that rank 0 sends: it gets all of them first, since rank 0 then works on its own. */
static void pack_for_other(struct trm_comm *comm, const struct pack_head *form, size_t count)
{
  void **data = trm_alloc(count * sizeof *data + 1, "blocks to pack");
  for (size_t i = 0; i < count; i++) {
    data[i] = trm_alloc((size_t)form[i].bytes, "a block to pack");
    pack_transfer(comm, data[i], (size_t)form[i].bytes, 0, false);
  }
  struct packed_head *head = trm_alloc(count * sizeof *head + 1, "packed blocks");
  for (size_t i = 0; i < count; i++) {
    void *packed = pack_in_memory(&form[i], data[i], &head[i]);
    trm_free(data[i]);
    data[i] = packed;
  }
  for (size_t i = 0; i < count; i++) {
    pack_transfer(comm, &head[i], sizeof head[i], 0, true);
    if (head[i].bytes > 0)
      pack_transfer(comm, data[i], (size_t)head[i].bytes, 0, true);
    trm_free(data[i]);
  }
  trm_free(head);
  trm_free(data);
}

static bool pack_write(const struct pack_block *block)
{
  return h5_rows_write(block->dataset, block_type_memory(block->type), &block->row, block->first, block->rows,
                       block->data);
}

/* Receives a packed block and stores it; one that could not be packed is stored the usual way. */
static bool pack_store(struct trm_comm *comm, const struct pack_block *block, int from)
{
  struct packed_head head;
  pack_transfer(comm, &head, sizeof head, from, false);
  if (head.bytes <= 0)
    return pack_write(block);
  void *packed = trm_alloc((size_t)head.bytes, "a packed block");
  pack_transfer(comm, packed, (size_t)head.bytes, from, false);
  const hsize_t place[TRM_MAX_DIMS + 1] = {block->first};
  bool done;
  {
    H5_LOCKED;
    done = H5Dwrite_chunk(block->dataset, H5P_DEFAULT, (uint32_t)head.mask, place, (size_t)head.bytes, packed) >= 0;
  }
  trm_free(packed);
  return done;
}

/* Sends every other rank its blocks, stores this one's, then theirs. */
static bool pack_by_all(struct trm_comm *comm, const struct pack_block *blocks, size_t count)
{
  struct trm_request **request = trm_alloc(count * sizeof *request, "blocks on their way");
  size_t low, high;
  bool done = true;
  for (int r = 1; r < comm->size; r++) {
    trm_interval(count, (size_t)comm->size, (size_t)r, &low, &high);
    for (size_t i = low; i < high; i++)
      comm->ops->send_begin(comm, blocks[i].data, blocks[i].bytes, TRM_BYTE, r, TAG, &request[i]);
  }
  for (size_t i = 0; i < count; i++)
    comm->ops->wait(&request[i]);
  trm_interval(count, (size_t)comm->size, 0, &low, &high);
  for (size_t i = low; i < high; i++)
    done = done && pack_write(&blocks[i]);
  for (int r = 1; r < comm->size; r++) {
    trm_interval(count, (size_t)comm->size, (size_t)r, &low, &high);
    for (size_t i = low; i < high; i++)
      done = pack_store(comm, &blocks[i], r) && done;
  }
  trm_free(request);
  return done;
}

bool pack_blocks(struct trm_comm *comm, const struct pack_block *blocks, size_t count, int level)
{
  bool done = true;
  int64_t n = (int64_t)count;
  comm->ops->broadcast(comm, &n, 1, TRM_INT64, 0);
  if (n == 0)
    return true;
  count = (size_t)n;
  struct pack_head *form = trm_alloc(count * sizeof *form, "blocks to pack");
  for (size_t i = 0; comm->rank == 0 && i < count; i++)
    form[i] = (struct pack_head){blocks[i].type, (int64_t)blocks[i].bytes, level};
  comm->ops->broadcast(comm, form, 3 * count, TRM_INT64, 0);
  if (comm->rank == 0) {
    done = pack_by_all(comm, blocks, count);
  } else {
    size_t low, high;
    trm_interval(count, (size_t)comm->size, (size_t)comm->rank, &low, &high);
    pack_for_other(comm, form + low, high - low);
  }
  trm_free(form);
  return done;
}
