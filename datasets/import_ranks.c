#include "datasets/import_ranks.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

#define SEGMENT_BYTES ((uint64_t)4 << 20)
#define MIN_SEGMENTS 64 /* of a smaller file: about that many */
#define TAG 11

/* -- relays */

static int ranks_of_segment(const struct import_segments *segments, uint64_t segment)
{
  return (int)(segment % (uint64_t)segments->comm->size);
}

int import_relay_from(const struct import_segments *segments)
{
  return segments->mine ? ranks_of_segment(segments, segments->mine - 1) : 0;
}

int import_relay_to(const struct import_segments *segments)
{
  return segments->mine + 1 < segments->count ? ranks_of_segment(segments, segments->mine + 1) : 0;
}

static void ranks_wait(const struct import_segments *segments, struct trm_request **request)
{
  struct trm_comm *comm = segments->comm;
  while (segments->idle && !comm->ops->test(request)) {
    segments->idle(segments->context);
    comm->ops->progress(comm);
  }
  comm->ops->wait(request);
}

void import_relay_take(struct import_segments *segments, void *data, size_t bytes)
{
  struct trm_comm *comm = segments->comm;
  struct trm_request *request = NULL;
  if (!segments->count || !segments->mine)
    return;
  comm->ops->receive_begin(comm, data, bytes, TRM_BYTE, import_relay_from(segments), TAG, &request);
  ranks_wait(segments, &request);
}

void import_relay_pass(struct import_segments *segments, const void *data, size_t bytes)
{
  struct trm_comm *comm = segments->comm;
  if (segments->mine + 1 >= segments->count)
    return;
  ranks_wait(segments, &segments->request);
  trm_free(segments->sent);
  segments->sent = memcpy(trm_alloc(bytes, "what goes to the next rank"), data, bytes);
  comm->ops->send_begin(comm, segments->sent, bytes, TRM_BYTE, import_relay_to(segments), TAG, &segments->request);
}

void import_relay_share(struct import_segments *segments, void *data, size_t bytes)
{
  struct trm_comm *comm = segments->comm;
  if (segments->count)
    comm->ops->broadcast(comm, data, bytes, TRM_BYTE, ranks_of_segment(segments, segments->count - 1));
}

/* -- segments */

int import_segments_begin(struct import_segments *segments, struct trm_comm *comm, struct trm_reader *file,
                          bool quotes)
{
  const uint64_t size = trm_reader_plain_bytes(file), share = size / MIN_SEGMENTS + 1;
  const uint64_t bytes = size && share < SEGMENT_BYTES ? share : SEGMENT_BYTES;
  *segments = (struct import_segments){.comm = comm, .file = file, .quotes = quotes, .bytes = bytes,
                                       .idle = segments->idle, .context = segments->context};
  trm_reader_limit(file, 0);
  if (comm->size == 1)
    return TRM_OK;
  segments->count = size / bytes + (size % bytes != 0);
  if (!size)
    return trm_error(TRM_USAGE, "%s: is compressed, empty or no regular file, which has no parts to divide among %d "
                     "ranks: decompress it, or import it with one", trm_reader_path(file), comm->size);
  return TRM_OK;
}

/* What the ranks of later segments must know. */
struct place {
  uint64_t feeds, marks; /* line feeds and quotes before the segment */
  uint64_t failed;
};

/* Places the file at the first record that begins in the segment. */
static int ranks_place(struct import_segments *segments, const struct place *before)
{
  const uint64_t low = segments->mine * segments->bytes;
  trm_reader_limit(segments->file, low + segments->bytes);
  TRM_CHECK(trm_reader_align(segments->file, low, segments->quotes, before->marks % 2 == 1, before->feeds));
  segments->start = trm_reader_position(segments->file);
  segments->start_line = trm_reader_line_number(segments->file);
  return TRM_OK;
}

bool import_segments_next(struct import_segments *segments, int *status)
{
  struct trm_reader *file = segments->file;
  if (segments->comm->size == 1) { /* the file is where the next segment begins, or ends before it */
    const bool more = *status == TRM_OK && trm_reader_at_limit(file);
    trm_reader_limit(file, (trm_reader_position(file) / segments->bytes + 1) * segments->bytes);
    return more;
  }
  const uint64_t rank = (uint64_t)segments->comm->rank;
  segments->mine = segments->begun ? segments->mine + (uint64_t)segments->comm->size : rank;
  segments->begun = true;
  if (segments->mine >= segments->count)
    return false;
  if (*status == TRM_OK)
    segments->reached = segments->mine;
  const uint64_t size = trm_reader_plain_bytes(file), low = segments->mine * segments->bytes;
  const uint64_t high = size - low < segments->bytes ? size : low + segments->bytes;
  uint64_t feeds = 0, marks = 0;
  if (*status == TRM_OK && !segments->failed)
    *status = trm_reader_load(file, low, high, &feeds, &marks);
  struct place before = {0};
  import_relay_take(segments, &before, sizeof before);
  segments->failed = before.failed || *status != TRM_OK;
  const struct place after = {before.feeds + feeds, before.marks + marks, segments->failed};
  import_relay_pass(segments, &after, sizeof after);
  if (!segments->failed)
    *status = ranks_place(segments, &before);
  return true;
}

int import_segments_end(struct import_segments *segments, int status)
{
  struct trm_comm *comm = segments->comm;
  const uint64_t reached = status == TRM_OK ? UINT64_MAX : segments->reached;
  uint64_t *all = trm_alloc((size_t)comm->size * sizeof *all, "what the ranks have reached");
  ranks_wait(segments, &segments->request);
  comm->ops->allgather(comm, &reached, all, 1, TRM_INT64);
  bool first = true;
  for (int r = 0; r < comm->size; r++)
    first &= all[r] >= reached;
  trm_free(all);
  trm_free(segments->sent);
  segments->sent = NULL;
  return trm_agree(comm, first ? status : TRM_OK);
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

/* -- rows that wait */

static void ranks_held_part_add(struct import_held *held, int part, const void *data, size_t bytes)
{
  if (!bytes)
    return;
  held->part[part] = trm_grow(held->part[part], &held->capacity[part], held->bytes[part], held->bytes[part] + bytes, 1,
                              "rows to write");
  memcpy(held->part[part] + held->bytes[part], data, bytes);
  held->bytes[part] += bytes;
}

static void ranks_held_starts_add(struct import_held *held, const struct trm_data_rows *rows)
{
  const int64_t before = (int64_t)(held->bytes[1] / sizeof *rows->columns), zero = 0;
  const size_t entries = (size_t)rows->starts[rows->rows];
  if (!held->rows.rows)
    ranks_held_part_add(held, 0, &zero, sizeof zero);
  for (size_t i = 0; i < rows->rows; i++) {
    const int64_t end = before + rows->starts[i + 1];
    ranks_held_part_add(held, 0, &end, sizeof end);
  }
  ranks_held_part_add(held, 1, rows->columns, entries * sizeof *rows->columns);
  ranks_held_part_add(held, 2, rows->values, entries * sizeof *rows->values);
}

size_t import_held_add(struct import_held *held, const struct trm_data_rows *rows, size_t row_bytes,
                       size_t target_bytes)
{
  const bool classes = rows->target_class != NULL;
  if (rows->starts)
    ranks_held_starts_add(held, rows);
  else
    ranks_held_part_add(held, 0, rows->floats, rows->rows * row_bytes);
  ranks_held_part_add(held, 3, classes ? (const void *)rows->target_class : rows->target_value,
                      rows->rows * target_bytes);
  const void *const *part = (const void *const *)held->part;
  held->rows = (struct trm_data_rows){
    .rows = held->rows.rows + rows->rows, .floats = rows->starts ? NULL : part[0],
    .starts = rows->starts ? part[0] : NULL, .columns = part[1], .values = part[2],
    .target_class = classes ? part[3] : NULL, .target_value = classes ? NULL : part[3]};
  return held->bytes[0] + held->bytes[1] + held->bytes[2] + held->bytes[3];
}

void import_held_clear(struct import_held *held)
{
  held->rows.rows = 0;
  memset(held->bytes, 0, sizeof held->bytes);
}

void import_held_free(struct import_held *held)
{
  for (int i = 0; i < HELD_PARTS; i++)
    trm_free(held->part[i]);
}
