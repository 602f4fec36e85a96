#include "datasets/import_ranks.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

#define SEGMENT_BYTES ((uint64_t)1 << 20)
#define MIN_SEGMENTS 64 /* of a smaller file: about that many */
#define BOX_BYTES ((size_t)4 << 20)
#define TAG 11

/* -- segments */

int import_segments_begin(struct import_segments *segments, struct trm_comm *comm, struct trm_reader *file,
                          bool quotes)
{
  const uint64_t size = trm_reader_plain_bytes(file), share = size / MIN_SEGMENTS + 1;
  *segments = (struct import_segments){
    .comm = comm, .file = file, .quotes = quotes, .bytes = size && share < SEGMENT_BYTES ? share : SEGMENT_BYTES};
  trm_reader_limit(file, 0);
  if (comm->size > 1 && !size)
    return trm_error(TRM_USAGE, "%s: is compressed, empty or no regular file, which has no parts to divide among %d "
                     "ranks: decompress it, or import it with one", trm_reader_path(file), comm->size);
  return TRM_OK;
}

/* Places the file at the first record that begins at or after `low`, by the line feeds and quotes before it. */
static int ranks_place(struct import_segments *segments, uint64_t low, uint64_t feeds, uint64_t marks)
{
  TRM_CHECK(trm_reader_align(segments->file, low, segments->quotes, marks % 2 == 1, feeds));
  segments->start = trm_reader_position(segments->file);
  segments->start_line = trm_reader_line_number(segments->file);
  return TRM_OK;
}

int import_segments_next(struct import_segments *segments, bool *more)
{
  struct trm_comm *comm = segments->comm;
  struct trm_reader *file = segments->file;
  if (comm->size == 1) { /* the file is where the next segment begins, or ends before it */
    *more = trm_reader_at_limit(file);
    trm_reader_limit(file, (trm_reader_position(file) / segments->bytes + 1) * segments->bytes);
    return TRM_OK;
  }
  const uint64_t size = trm_reader_plain_bytes(file), count = size / segments->bytes + (size % segments->bytes != 0);
  *more = segments->next < count;
  if (!*more)
    return TRM_OK;
  const uint64_t mine = segments->next + (uint64_t)comm->rank, end = (mine + 1) * segments->bytes;
  const uint64_t low = mine < count ? mine * segments->bytes : size, high = end < size ? end : size;
  uint64_t found[2] = {0};
  int status = trm_reader_count(file, low, high, &found[0], &found[1]);
  uint64_t *all = trm_alloc((size_t)comm->size * sizeof found, "counts of the ranks");
  comm->ops->allgather(comm, found, all, 2, TRM_INT64);
  uint64_t feeds = segments->feeds, marks = segments->marks;
  for (int r = 0; r < comm->size; r++) {
    if (r < comm->rank) {
      feeds += all[2 * r];
      marks += all[2 * r + 1];
    }
    segments->feeds += all[2 * r];
    segments->marks += all[2 * r + 1];
  }
  trm_free(all);
  segments->next += (uint64_t)comm->size;
  trm_reader_limit(file, high);
  if (status == TRM_OK)
    status = ranks_place(segments, low, feeds, marks);
  return trm_agree(comm, status);
}

int import_segment_rewind(struct import_segments *segments)
{
  return trm_reader_seek(segments->file, segments->start, segments->start_line);
}

/* -- what ranks know */

char *import_gather(struct trm_comm *comm, const void *mine, size_t bytes, int64_t *length, size_t *stride)
{
  const int64_t own = (int64_t)bytes;
  comm->ops->allgather(comm, &own, length, 1, TRM_INT64);
  *stride = 1;
  for (int r = 0; r < comm->size; r++)
    if ((size_t)length[r] > *stride)
      *stride = (size_t)length[r];
  char *padded = trm_alloc(*stride, "what a rank has found");
  char *all = trm_alloc(*stride * (size_t)comm->size, "what the ranks have found");
  if (bytes)
    memcpy(padded, mine, bytes);
  comm->ops->allgather(comm, padded, all, *stride, TRM_BYTE);
  trm_free(padded);
  return all;
}

/* -- rows to rank 0 */

static void ranks_box_part_add(struct import_box *box, int part, const void *data, size_t bytes)
{
  if (!bytes)
    return;
  box->part[part] = trm_grow(box->part[part], &box->capacity[part], box->bytes[part], box->bytes[part] + bytes, 1,
                             "rows for rank 0");
  memcpy(box->part[part] + box->bytes[part], data, bytes);
  box->bytes[part] += bytes;
}

static void ranks_box_transfer(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int peer,
                               bool sends)
{
  struct trm_request *request = NULL;
  if (count == 0)
    return;
  if (sends)
    comm->ops->send_begin(comm, data, count, type, peer, TAG, &request);
  else
    comm->ops->receive_begin(comm, data, count, type, peer, TAG, &request);
  comm->ops->wait(&request);
}

static void ranks_box_send(struct import_box *box, struct trm_comm *comm, bool last)
{
  int64_t head[2 + BOX_PARTS] = {box->rows, last};
  for (int i = 0; i < BOX_PARTS; i++)
    head[2 + i] = (int64_t)box->bytes[i];
  ranks_box_transfer(comm, head, 2 + BOX_PARTS, TRM_INT64, 0, true);
  for (int i = 0; i < BOX_PARTS; i++) {
    ranks_box_transfer(comm, box->part[i], box->bytes[i], TRM_BYTE, 0, true);
    box->bytes[i] = 0;
  }
  box->rows = 0;
}

void import_box_add(struct import_box *box, struct trm_comm *comm, const struct trm_data_rows *rows, bool classes)
{
  if (rows->starts) {
    const int64_t before = (int64_t)(box->bytes[1] / sizeof *rows->columns), zero = 0;
    const size_t entries = (size_t)rows->starts[rows->rows];
    if (box->rows == 0)
      ranks_box_part_add(box, 0, &zero, sizeof zero);
    for (size_t i = 0; i < rows->rows; i++) {
      const int64_t end = before + rows->starts[i + 1];
      ranks_box_part_add(box, 0, &end, sizeof end);
    }
    ranks_box_part_add(box, 1, rows->columns, entries * sizeof *rows->columns);
    ranks_box_part_add(box, 2, rows->values, entries * sizeof *rows->values);
  } else {
    ranks_box_part_add(box, 0, rows->floats, rows->rows * box->row_bytes);
  }
  if (classes)
    ranks_box_part_add(box, 3, rows->target_class, rows->rows * sizeof *rows->target_class);
  else
    ranks_box_part_add(box, 3, rows->target_value, rows->rows * sizeof *rows->target_value);
  box->rows += (int64_t)rows->rows;
  if (box->bytes[0] + box->bytes[1] + box->bytes[2] >= BOX_BYTES)
    ranks_box_send(box, comm, false);
}

void import_box_end(struct import_box *box, struct trm_comm *comm)
{
  ranks_box_send(box, comm, true);
}

/* Receives one box; returns true if it is the rank's last one of the round. */
static bool ranks_box_receive(struct import_box *box, struct trm_comm *comm, int from)
{
  int64_t head[2 + BOX_PARTS];
  ranks_box_transfer(comm, head, 2 + BOX_PARTS, TRM_INT64, from, false);
  box->rows = head[0];
  for (int i = 0; i < BOX_PARTS; i++) {
    const size_t bytes = (size_t)head[2 + i];
    box->part[i] = trm_grow(box->part[i], &box->capacity[i], 0, bytes + 1, 1, "rows of a rank");
    ranks_box_transfer(comm, box->part[i], bytes, TRM_BYTE, from, false);
    box->bytes[i] = bytes;
  }
  return head[1] != 0;
}

int import_box_receive(struct import_box *box, struct trm_comm *comm, struct trm_data_writer *writer, bool classes,
                       int status)
{
  for (int from = 1; from < comm->size; from++)
    for (bool last = false; !last;) {
      last = ranks_box_receive(box, comm, from);
      const bool sparse = box->row_bytes == 0;
      struct trm_data_rows rows = {.rows = (size_t)box->rows};
      if (sparse) {
        rows.starts = (const int64_t *)(const void *)box->part[0];
        rows.columns = (const int32_t *)(const void *)box->part[1];
        rows.values = (const float *)(const void *)box->part[2];
      } else {
        rows.floats = (const float *)(const void *)box->part[0];
      }
      if (classes)
        rows.target_class = (const int32_t *)(const void *)box->part[3];
      else
        rows.target_value = (const float *)(const void *)box->part[3];
      if (status == TRM_OK && rows.rows)
        status = trm_data_writer_append(writer, &rows);
    }
  return status;
}

void import_box_free(struct import_box *box)
{
  for (int i = 0; i < BOX_PARTS; i++)
    trm_free(box->part[i]);
}
