/* Writing of one data set by several ranks, in turns. The state of writing (hashes, blocks begun) goes from the rank of
 * one turn to that of the next. The blocks that became full in a turn are compressed after it by its rank, at the same
 * time as those of other turns, by HDF5's own filters in a file in memory: so the bytes are those that rank 0 would
 * store. Rank 0 alone has the file, and stores them. (Parallel HDF5 stores compressed chunks in collective calls alone,
 * and encrypted files not at all.) */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "writer.h"

enum { TAG_DELIVERY = 12, TAG_HANDOVER }; /* rank 0 takes a delivery before the handover that was sent first */
#define MEMORY_FILE_STEP ((size_t)1 << 20) /* bytes by which it grows */

/* -- messages */

static void turns_send(struct trm_comm *comm, const void *data, size_t bytes, int to, int tag,
                       struct trm_request **request)
{
  if (bytes)
    comm->ops->send_begin(comm, data, bytes, TRM_BYTE, to, tag, request);
}

static void turns_receive(struct trm_comm *comm, void *data, size_t bytes, int from, int tag)
{
  struct trm_request *request = NULL;
  if (!bytes)
    return;
  comm->ops->receive_begin(comm, data, bytes, TRM_BYTE, from, tag, &request);
  comm->ops->wait(&request);
}

/* -- the writer of a rank */

bool writer_is_helper(const struct trm_data_writer *writer)
{
  return writer->spec.comm && writer->spec.comm->rank > 0;
}

int writer_turns_open(struct trm_data_writer *writer)
{
  struct trm_comm *comm = writer->spec.comm;
  if (!comm || comm->size == 1)
    return TRM_OK;
  writer->handover.head = trm_alloc(sizeof *writer->handover.head, "the state of writing");
  if (comm->rank > 0 || writer->spec.compress)
    writer->queue = trm_alloc(WRITER_QUEUE * sizeof *writer->queue, "full blocks");
  if (comm->rank == 0 || !writer->spec.compress)
    return TRM_OK;
  H5_LOCKED;
  H5_CLOSED const hid_t plist = h5_access_plist();
  if (plist >= 0 && H5Pset_fapl_core(plist, MEMORY_FILE_STEP, false) >= 0)
    writer->file = H5Fcreate("blocks", H5F_ACC_TRUNC, H5P_DEFAULT, plist);
  return writer->file < 0 ? h5_error(writer->path, "no blocks can be compressed") : TRM_OK;
}

void writer_turns_free(struct trm_data_writer *writer)
{
  struct trm_comm *comm = writer->spec.comm;
  for (int i = 0; comm && i < 2; i++)
    comm->ops->wait(&writer->handover.request[i]);
  for (int i = 0; comm && i < 3; i++)
    comm->ops->wait(&writer->delivery.request[i]);
  for (size_t i = 0; i < writer->queued; i++)
    trm_free(writer->queue[i].data);
  trm_free(writer->queue);
  trm_free(writer->handover.head);
  trm_free(writer->handover.rest);
  trm_free(writer->delivery.block);
  trm_free(writer->delivery.data);
  if (writer_is_helper(writer))
    h5_close(writer->file);
}

/* -- full blocks */

/* Appends the stored form of a block to the delivery. */
static int turns_block_pack(struct trm_data_writer *writer, const struct full_block *full)
{
  struct delivery *delivery = &writer->delivery;
  struct output *out = full->out;
  const size_t at = (size_t)delivery->head[1], raw_bytes = out->block_rows * out->row_bytes;
  const hsize_t origin[TRM_MAX_DIMS + 1] = {0};
  hsize_t bytes = raw_bytes;
  uint32_t mask = 0;
  H5_LOCKED;
  if (out->dataset >= 0 &&
      (!h5_rows_write(out->dataset, block_type_memory(out->type), &out->row, 0, out->block_rows, full->data) ||
       H5Dflush(out->dataset) < 0 || H5Dget_chunk_storage_size(out->dataset, origin, &bytes) < 0))
    return h5_error(writer->path, "%s/%s cannot be compressed", writer->split, out->name);
  delivery->data = trm_grow(delivery->data, &delivery->data_capacity, at, at + (size_t)bytes, 1, "blocks for rank 0");
  if (out->dataset < 0)
    memcpy(delivery->data + at, full->data, raw_bytes);
  else if (H5Dread_chunk(out->dataset, H5P_DEFAULT, origin, &mask, delivery->data + at) < 0)
    return h5_error(writer->path, "%s/%s cannot be compressed", writer->split, out->name);
  delivery->block[delivery->head[0]++] = (struct delivered){
    .output = out - writer->output, .first = (int64_t)full->first, .bytes = (int64_t)bytes, .mask = mask};
  delivery->head[1] += (int64_t)bytes;
  return TRM_OK;
}

/* Sends the queue to rank 0. last: nothing follows in this turn. */
static int turns_deliver(struct trm_data_writer *writer, bool last)
{
  struct trm_comm *comm = writer->spec.comm;
  struct delivery *delivery = &writer->delivery;
  int status = TRM_OK;
  for (int i = 0; i < 3; i++)
    comm->ops->wait(&delivery->request[i]);
  memset(delivery->head, 0, sizeof delivery->head);
  delivery->head[2] = last;
  delivery->block = trm_grow(delivery->block, &delivery->block_capacity, 0, WRITER_QUEUE, sizeof *delivery->block,
                             "blocks for rank 0");
  for (size_t i = 0; i < writer->queued && status == TRM_OK; i++)
    status = turns_block_pack(writer, &writer->queue[i]);
  turns_send(comm, delivery->head, sizeof delivery->head, 0, TAG_DELIVERY, &delivery->request[0]);
  turns_send(comm, delivery->block, (size_t)delivery->head[0] * sizeof *delivery->block, 0, TAG_DELIVERY,
             &delivery->request[1]);
  turns_send(comm, delivery->data, (size_t)delivery->head[1], 0, TAG_DELIVERY, &delivery->request[2]);
  return status;
}

/* Stores the queue, or sends it to rank 0. */
static int turns_queue_store(struct trm_data_writer *writer, bool last)
{
  int status = writer_is_helper(writer) ? turns_deliver(writer, last) : writer->delivery.status;
  for (size_t i = 0; i < writer->queued; i++) {
    struct full_block *full = &writer->queue[i];
    if (status == TRM_OK && !writer_is_helper(writer))
      status = writer_rows_store(writer, full->out, full->first, full->out->block_rows, full->data);
    trm_free(full->data);
  }
  writer->queued = 0;
  writer->delivery.status = status;
  return status;
}

int writer_queue_add(struct trm_data_writer *writer, struct output *out, uint64_t first)
{
  writer->queue[writer->queued++] = (struct full_block){.out = out, .first = first, .data = out->block};
  out->block = trm_alloc(out->block_rows * out->row_bytes, "a block of rows to write");
  return writer->queued == WRITER_QUEUE ? turns_queue_store(writer, false) : TRM_OK;
}

/* Stores a block of another rank. */
static int turns_block_store(struct trm_data_writer *writer, const struct delivered *block, const void *data)
{
  struct output *out = &writer->output[block->output];
  const hsize_t place[TRM_MAX_DIMS + 1] = {(hsize_t)block->first};
  if (out->spool)
    return writer_rows_store(writer, out, (uint64_t)block->first, out->block_rows, data);
  TRM_CHECK(writer_rows_reserve(writer, out, (uint64_t)block->first + out->block_rows));
  H5_LOCKED;
  return H5Dwrite_chunk(out->dataset, H5P_DEFAULT, (uint32_t)block->mask, place, (size_t)block->bytes, data) < 0
           ? h5_error(writer->path, "%s/%s cannot be written", writer->split, out->name) : TRM_OK;
}

/* Receives the rest of a delivery, and stores its blocks. */
static void turns_delivery_store(struct trm_data_writer *writer)
{
  struct trm_comm *comm = writer->spec.comm;
  struct delivery *delivery = &writer->delivery;
  const size_t blocks = (size_t)delivery->head[0], bytes = (size_t)delivery->head[1];
  delivery->block = trm_grow(delivery->block, &delivery->block_capacity, 0, blocks, sizeof *delivery->block,
                             "blocks of a rank");
  delivery->data = trm_grow(delivery->data, &delivery->data_capacity, 0, bytes, 1, "blocks of a rank");
  turns_receive(comm, delivery->block, blocks * sizeof *delivery->block, delivery->from, TAG_DELIVERY);
  turns_receive(comm, delivery->data, bytes, delivery->from, TAG_DELIVERY);
  const unsigned char *data = delivery->data;
  for (size_t i = 0; i < blocks && delivery->status == TRM_OK; data += delivery->block[i++].bytes)
    delivery->status = turns_block_store(writer, &delivery->block[i], data);
}

/* Stores what other ranks have sent. all: waits for all that is due. After an error the rest is received. */
static void turns_collect(struct trm_data_writer *writer, bool all)
{
  struct trm_comm *comm = writer->spec.comm;
  struct delivery *delivery = &writer->delivery;
  while (delivery->due) {
    if (!delivery->begun)
      comm->ops->receive_begin(comm, delivery->head, sizeof delivery->head, TRM_BYTE, delivery->from, TAG_DELIVERY,
                               &delivery->request[0]);
    delivery->begun = true;
    if (all)
      comm->ops->wait(&delivery->request[0]);
    else if (!comm->ops->test(&delivery->request[0]))
      break;
    turns_delivery_store(writer);
    delivery->begun = false;
    if (delivery->head[2]) {
      delivery->due--;
      delivery->from = delivery->from + 1 < comm->size ? delivery->from + 1 : 1;
    }
  }
}

void trm_data_writer_collect(struct trm_data_writer *writer)
{
  turns_collect(writer, false);
}

/* Waits for a message of a handover; rank 0 stores meanwhile what other ranks send, who may have to wait for that. */
static void turns_wait(struct trm_data_writer *writer, struct trm_request **request)
{
  struct trm_comm *comm = writer->spec.comm;
  while (comm->rank == 0 && !comm->ops->test(request)) {
    turns_collect(writer, false);
    comm->ops->progress(comm);
  }
  comm->ops->wait(request);
}

/* -- turns */

static size_t turns_class_bytes(const struct trm_data_writer *writer)
{
  return writer->class_present ? writer->spec.classes * sizeof *writer->class_present : 0;
}

/* Bytes beside the head: the classes that are present, and the blocks begun. */
static size_t turns_rest_bytes(const struct trm_data_writer *writer)
{
  size_t bytes = turns_class_bytes(writer);
  for (int i = 0; i < writer->outputs; i++)
    bytes += writer->handover.head->output[i].filled * writer->output[i].row_bytes;
  return bytes;
}

static void turns_handover_end(struct trm_data_writer *writer)
{
  struct handover *handover = &writer->handover;
  turns_wait(writer, &handover->request[0]);
  turns_wait(writer, &handover->request[1]);
  trm_free(handover->rest);
  handover->rest = NULL;
}

void trm_data_writer_turn(struct trm_data_writer *writer, int from)
{
  struct trm_comm *comm = writer->spec.comm;
  struct handover *handover = &writer->handover;
  turns_handover_end(writer);
  comm->ops->receive_begin(comm, handover->head, sizeof *handover->head, TRM_BYTE, from, TAG_HANDOVER,
                           &handover->request[0]);
  turns_wait(writer, &handover->request[0]);
  handover->rest = trm_alloc(turns_rest_bytes(writer), "the state of writing");
  turns_receive(comm, handover->rest, turns_rest_bytes(writer), from, TAG_HANDOVER);
  writer->rows = handover->head->rows;
  writer->entries = handover->head->entries;
  writer->text_bytes = handover->head->text_bytes;
  writer->largest_column = handover->head->largest_column;
  const unsigned char *at = handover->rest;
  if (writer->class_present)
    memcpy(writer->class_present, at, turns_class_bytes(writer));
  at += turns_class_bytes(writer);
  for (int i = 0; i < writer->outputs; i++) {
    struct output *out = &writer->output[i];
    const bool is_native = out->hash.is_native; /* of this processor */
    out->rows = handover->head->output[i].rows;
    out->filled = handover->head->output[i].filled;
    out->hash = handover->head->output[i].hash;
    out->hash.is_native = is_native;
    memcpy(out->block, at, out->filled * out->row_bytes);
    at += out->filled * out->row_bytes;
  }
  if (comm->rank == 0 && !writer->spec.compress) /* blocks are spooled in order */
    turns_collect(writer, true);
}

static void turns_handover(struct trm_data_writer *writer, int to)
{
  struct trm_comm *comm = writer->spec.comm;
  struct handover *handover = &writer->handover;
  turns_handover_end(writer);
  *handover->head = (struct handover_head){
    .rows = writer->rows, .entries = writer->entries, .text_bytes = writer->text_bytes,
    .largest_column = writer->largest_column};
  for (int i = 0; i < writer->outputs; i++) {
    handover->head->output[i].rows = writer->output[i].rows;
    handover->head->output[i].filled = writer->output[i].filled;
    handover->head->output[i].hash = writer->output[i].hash;
  }
  unsigned char *at = handover->rest = trm_alloc(turns_rest_bytes(writer), "the state of writing");
  if (writer->class_present)
    memcpy(at, writer->class_present, turns_class_bytes(writer));
  at += turns_class_bytes(writer);
  for (int i = 0; i < writer->outputs; i++) {
    const size_t bytes = writer->output[i].filled * writer->output[i].row_bytes;
    memcpy(at, writer->output[i].block, bytes);
    at += bytes;
  }
  turns_send(comm, handover->head, sizeof *handover->head, to, TAG_HANDOVER, &handover->request[0]);
  turns_send(comm, handover->rest, turns_rest_bytes(writer), to, TAG_HANDOVER, &handover->request[1]);
}

int trm_data_writer_turn_end(struct trm_data_writer *writer, int to, int others)
{
  if (to != writer->spec.comm->rank)
    turns_handover(writer, to);
  if (!writer->delivery.due)
    writer->delivery.from = 1;
  writer->delivery.due += writer_is_helper(writer) ? 0 : others;
  return turns_queue_store(writer, true);
}

int trm_data_writer_turns_end(struct trm_data_writer *writer, int last)
{
  if (writer_is_helper(writer))
    return TRM_OK;
  turns_collect(writer, true);
  if (last)
    trm_data_writer_turn(writer, last);
  return writer->delivery.status;
}
