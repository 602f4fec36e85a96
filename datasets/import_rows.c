#include "datasets/import.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/file_reader.h"
#include "datasets/import_ranks.h"

#define MAX_LABELS 65536
#define HELD_BYTES ((size_t)32 << 20) /* of rows that wait for this rank's turn */

/* A class label; the name is the first spelling seen. */
struct label {
  struct trm_label as;
  uint64_t at; /* where in the file it was first seen; 0: known before */
};

struct import {
  const struct trm_import_request *request;
  const struct trm_row_format *format;
  void *impl;
  struct trm_comm *comm;
  enum trm_target_kind target;
  struct label *label; /* (labels) numbers first, ascending, then other texts in order of their bytes */
  size_t labels, label_capacity;
  bool labels_are_known; /* no others may be there */
  struct trm_stratum *stratum; /* (labels) */
  size_t stratum_capacity;
  bool random_split;
  struct trm_stratum all;  /* the only stratum unless the split is random and the target a class */
  struct trm_data_writer *writer;
  size_t row_bytes;        /* of a dense row */
  struct import_held held; /* of several ranks */
  int32_t target_class[TRM_IMPORT_ROWS];
  float *target_value; /* (TRM_IMPORT_ROWS, values) */
  size_t values;       /* of a row, where the target is no class */
};

enum part { PART_ALL, PART_TRAIN, PART_TEST };

/* -- labels */

/* Returns the index of a label, or that at which it is to be inserted. */
static size_t rows_label_find(const struct import *import, const struct trm_label *label, bool *found)
{
  size_t low = 0, high = import->labels;
  *found = false;
  while (low < high && !*found) {
    const size_t middle = low + (high - low) / 2;
    const int order = trm_label_compare(&import->label[middle].as, label);
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
    if (order == 0) {
      *found = true;
      low = middle;
    }
  }
  return low;
}

/* Adds a label, unless it is known. Returns its place. */
static size_t rows_label_insert(struct import *import, const char *name, uint64_t at, bool *found)
{
  struct label label = {.as = trm_label_parse(name), .at = at};
  const size_t place = rows_label_find(import, &label.as, found);
  if (!*found) {
    import->label = trm_grow(import->label, &import->label_capacity, import->labels, import->labels + 1,
                               sizeof label, "labels");
    import->stratum = trm_grow(import->stratum, &import->stratum_capacity, import->labels, import->labels + 1,
                               sizeof *import->stratum, "labels");
    memmove(import->label + place + 1, import->label + place, (import->labels - place) * sizeof label);
    memmove(import->stratum + place + 1, import->stratum + place, (import->labels - place) * sizeof *import->stratum);
    import->stratum[place] = (struct trm_stratum){.rows = 0};
    import->labels++;
    label.as.name = trm_strdup(name);
    import->label[place] = label;
  }
  return place;
}

/* Counts a row of the label. */
static int rows_label_count(struct import *import, const char *name)
{
  bool found;
  const uint64_t at = trm_reader_position(import->format->file(import->impl));
  const size_t place = rows_label_insert(import, name, at, &found);
  import->stratum[place].rows++;
  if (!found && import->labels_are_known)
    return import->format->label_error(import->impl, "is not among the labels of --like");
  return import->labels <= MAX_LABELS ? TRM_OK : import->format->label_error(
    import->impl, "is one label too many; are they values? --target=value");
}

/* A label on its way to the other ranks; its name follows, with a NUL. */
struct label_record {
  uint64_t rows, at;
};

/* Adds a label of another rank. The name is that of the first place. */
static void rows_label_join(struct import *import, const struct label_record *record, const char *name)
{
  bool found;
  const size_t place = rows_label_insert(import, name, record->at, &found);
  struct label *label = &import->label[place];
  import->stratum[place].rows += record->rows;
  if (record->at >= label->at)
    return;
  trm_free(label->as.name);
  label->as.name = trm_strdup(name);
  label->at = record->at;
}

/* Joins the labels of all ranks, and their rows. */
static int rows_labels_join(struct import *import, const char *path)
{
  struct trm_comm *comm = import->comm;
  size_t bytes = 0, capacity = 0, stride;
  char *mine = NULL;
  for (size_t i = 0; i < import->labels; i++) {
    const struct label_record record = {.rows = import->stratum[i].rows, .at = import->label[i].at};
    const size_t length = strlen(import->label[i].as.name) + 1;
    mine = trm_grow(mine, &capacity, bytes, bytes + sizeof record + length, 1, "labels");
    memcpy(mine + bytes, &record, sizeof record);
    memcpy(mine + bytes + sizeof record, import->label[i].as.name, length);
    bytes += sizeof record + length;
  }
  int64_t *length = trm_alloc((size_t)comm->size * sizeof *length, "labels");
  char *all = import_gather(comm, mine, bytes, length, &stride);
  for (int r = 0; r < comm->size; r++) {
    const char *from = all + (size_t)r * stride, *end = from + length[r];
    while (r != comm->rank && from < end) {
      struct label_record record;
      memcpy(&record, from, sizeof record);
      rows_label_join(import, &record, from + sizeof record);
      from += sizeof record + strlen(from + sizeof record) + 1;
    }
  }
  for (size_t i = 0; i < import->labels; i++)
    import->label[i].at = 0;
  trm_free(mine);
  trm_free(length);
  trm_free(all);
  return import->labels <= MAX_LABELS ? TRM_OK : trm_error(
    TRM_FAILED, "%s: has more than %d labels; are they values? --target=value", path, MAX_LABELS);
}

static const char **rows_label_names(const struct import *import)
{
  const char **names = trm_alloc((import->labels + 1) * sizeof *names, "label names");
  for (size_t i = 0; i < import->labels; i++)
    names[i] = import->label[i].as.name;
  return names;
}

/* -- the split of a single file */

static int rows_split_plan(struct import *import)
{
  uint64_t train_rows;
  const double part = import->request->test_part < 0 ? 0 : import->request->test_part;
  TRM_CHECK(trm_import_train_rows(import->request, 0, import->all.rows, &train_rows));
  import->all.test_rows = import->all.rows - train_rows;
  trm_strata_plan(import->stratum, import->labels, part);
  return TRM_OK;
}

static bool rows_are_stratified(const struct import *import)
{
  return import->random_split && import->target == TRM_TARGET_CLASS;
}

/* Returns true if the next row of a class is a test row; called in file order. */
static bool rows_is_test(struct import *import, size_t class)
{
  return trm_stratum_next(rows_are_stratified(import) ? &import->stratum[class] : &import->all, import->random_split,
                          import->request->seed, (uint32_t)class);
}

/* -- passes over a file: all are collective */

/* Takes over the labels that rows may have. */
static void rows_labels_know(struct import *import)
{
  size_t count = 0;
  const struct trm_row_format *format = import->format;
  const char *const *labels = format->labels && import->target == TRM_TARGET_CLASS
                                ? format->labels(import->impl, &count) : NULL;
  import->labels_are_known = count > 0;
  for (size_t i = 0; i < count; i++) {
    bool found;
    rows_label_insert(import, labels[i], 0, &found);
  }
}

/* Sets the class of the current row. */
static int rows_class_find(struct import *import, const char *label, size_t *class)
{
  *class = 0;
  if (import->target != TRM_TARGET_CLASS)
    return TRM_OK;
  bool found;
  const struct trm_label parsed = trm_label_parse(label);
  *class = rows_label_find(import, &parsed, &found);
  return found ? TRM_OK
               : import->format->label_error(import->impl, "was not there in the first pass: the file changes");
}

/* Sets the rows of each stratum that come before this rank's segment, of which those in it are counted. */
static int rows_strata_seek(struct import *import, struct import_segments *segments, int status)
{
  const bool stratified = rows_are_stratified(import);
  struct trm_stratum *stratum = stratified ? import->stratum : &import->all;
  const size_t n = stratified ? import->labels : 1;
  uint64_t *seen = trm_alloc(n * sizeof *seen, "rows of the classes");
  uint64_t *count = trm_alloc(n * sizeof *count, "rows of the classes");
  const bool sound = status == TRM_OK && !segments->failed;
  const char *label;
  while (sound && status == TRM_OK && (status = import->format->next(import->impl, &label)) == TRM_OK && label) {
    size_t class;
    status = rows_class_find(import, label, &class);
    count[stratified ? class : 0]++;
  }
  import_relay_take(segments, seen, n * sizeof *seen);
  for (size_t i = 0; i < n; i++) {
    stratum[i].seen = seen[i];
    seen[i] += count[i];
  }
  import_relay_pass(segments, seen, n * sizeof *seen);
  trm_free(seen);
  trm_free(count);
  return sound && status == TRM_OK ? import_segment_rewind(segments) : status;
}

/* A pass over a file. */
struct pass {
  const char *path;
  enum part part;
  bool learns;  /* a scan of the file that determines the columns */
  uint64_t rows; /* that this rank has seen */
  int (*row)(struct import *import, struct pass *pass, const char *label);
  int (*end)(struct import *import, struct pass *pass, int status); /* of a segment; NULL: nothing to do */
  int (*finish)(struct import *import, struct pass *pass);          /* after the last one; NULL: nothing to do */
  struct import_segments segments;
  bool writes;  /* it is this rank's turn */
  struct trm_data_rows gathered;
};

/* Reads this rank's segments. Collective. */
static int rows_read(struct import *import, struct pass *pass)
{
  const struct trm_row_format *format = import->format;
  struct trm_comm *comm = import->comm;
  struct import_segments *segments = &pass->segments;
  const char *label;
  int status = format->open(import->impl, pass->path);
  if (status == TRM_OK)
    status = import_segments_begin(segments, comm, format->file(import->impl), format->quotes);
  status = trm_agree(comm, status);
  if (status == TRM_OK) {
    while (import_segments_next(segments, &status)) {
      if (pass->part != PART_ALL && comm->size > 1)
        status = rows_strata_seek(import, segments, status);
      const bool sound = status == TRM_OK && !segments->failed;
      while (sound && status == TRM_OK && (status = format->next(import->impl, &label)) == TRM_OK && label) {
        pass->rows++;
        status = pass->row(import, pass, label);
      }
      if (pass->end)
        status = pass->end(import, pass, status);
    }
    const int finished = pass->finish ? pass->finish(import, pass) : TRM_OK;
    status = import_segments_end(segments, status == TRM_OK ? finished : status);
  }
  format->close(import->impl);
  return status;
}

static int rows_scan_row(struct import *import, struct pass *pass, const char *label)
{
  if (import->target == TRM_TARGET_CLASS)
    TRM_CHECK(rows_label_count(import, label));
  return pass->learns && import->format->learn ? import->format->learn(import->impl) : TRM_OK;
}

/* Counts rows and collects labels. learns: of the file that determines the columns. */
static int rows_scan(struct import *import, const char *path, bool learns, uint64_t *rows)
{
  struct trm_comm *comm = import->comm;
  struct pass pass = {.path = path, .part = PART_ALL, .learns = learns, .row = rows_scan_row};
  TRM_CHECK(rows_read(import, &pass));
  *rows = pass.rows;
  comm->ops->allreduce(comm, rows, 1, TRM_INT64, TRM_SUM);
  if (!*rows)
    return trm_error(TRM_FAILED, "%s: holds no rows", path);
  if (comm->size > 1 && import->target == TRM_TARGET_CLASS)
    TRM_CHECK(rows_labels_join(import, path));
  return comm->size > 1 && learns && import->format->join ? import->format->join(import->impl, comm) : TRM_OK;
}

/* Sets the class of the current row, and *chosen if the row belongs to the part. */
static int rows_choose(struct import *import, const char *label, enum part part, size_t *class, bool *chosen)
{
  TRM_CHECK(rows_class_find(import, label, class));
  *chosen = part == PART_ALL || rows_is_test(import, *class) == (part == PART_TEST);
  return TRM_OK;
}

/* Begins this rank's turn to write, with the rows that wait for it. */
static int rows_turn_begin(struct import *import, struct pass *pass)
{
  if (pass->segments.mine)
    trm_data_writer_turn(import->writer, import_relay_from(&pass->segments));
  pass->writes = true;
  const int status = trm_data_writer_append(import->writer, &import->held.rows);
  import_held_clear(&import->held);
  return status;
}

/* Appends the rows gathered; several ranks hold them until their turns. */
static int rows_flush(struct import *import, struct pass *pass)
{
  struct trm_data_rows *rows = &pass->gathered;
  const size_t target_bytes = import->values * sizeof *import->target_value;
  int status = TRM_OK;
  if (import->comm->size == 1 || pass->writes)
    status = trm_data_writer_append(import->writer, rows);
  else if (rows->rows && import_held_add(&import->held, rows, import->row_bytes, target_bytes) > HELD_BYTES)
    status = rows_turn_begin(import, pass);
  rows->rows = 0;
  return status;
}

/* Appends the current row if it belongs to the part. */
static int rows_copy_row(struct import *import, struct pass *pass, const char *label)
{
  struct trm_data_rows *rows = &pass->gathered;
  size_t class;
  bool chosen, full = false;
  TRM_CHECK(rows_choose(import, label, pass->part, &class, &chosen));
  if (!chosen)
    return TRM_OK;
  if (import->target == TRM_TARGET_CLASS)
    import->target_class[rows->rows] = (int32_t)class;
  else
    TRM_CHECK(import->format->values_parse(import->impl, import->target_value + rows->rows * import->values));
  TRM_CHECK(import->format->add(import->impl, rows, &full));
  return ++rows->rows == TRM_IMPORT_ROWS || full ? rows_flush(import, pass) : TRM_OK;
}

/* Ends this rank's turn, which after an error brings no rows. */
static int rows_copy_end(struct import *import, struct pass *pass, int status)
{
  const struct import_segments *segments = &pass->segments;
  if (status == TRM_OK)
    status = rows_flush(import, pass);
  if (import->comm->size == 1)
    return status;
  const uint64_t left = segments->count - 1 - segments->mine, all = (uint64_t)import->comm->size - 1;
  const int begun = pass->writes ? TRM_OK : rows_turn_begin(import, pass);
  const int ended = trm_data_writer_turn_end(import->writer, import_relay_to(segments), (int)(left < all ? left : all));
  pass->writes = false;
  return status != TRM_OK ? status : begun != TRM_OK ? begun : ended;
}

static int rows_copy_finish(struct import *import, struct pass *pass)
{
  return import->comm->size == 1 ? TRM_OK : trm_data_writer_turns_end(
    import->writer, (int)((pass->segments.count - 1) % (uint64_t)import->comm->size));
}

static void rows_copy_idle(void *context)
{
  struct import *import = context;
  trm_data_writer_collect(import->writer);
}

static int rows_measure_row(struct import *import, struct pass *pass, const char *label)
{
  size_t class;
  bool chosen;
  TRM_CHECK(rows_choose(import, label, pass->part, &class, &chosen));
  return chosen ? import->format->measure(import->impl) : TRM_OK;
}

static int rows_measure_end(struct import *import, struct pass *pass, int status)
{
  size_t bytes;
  void *sums = import->format->sums(import->impl, &bytes);
  import_relay_take(&pass->segments, sums, bytes);
  import->format->add_up(import->impl);
  import_relay_pass(&pass->segments, sums, bytes);
  return status;
}

/* Begins to count the rows of the strata. */
static void rows_strata_reset(struct import *import)
{
  import->all.seen = 0;
  for (size_t i = 0; i < import->labels; i++)
    import->stratum[i].seen = 0;
}

/* Measures the training rows. */
static int rows_measure(struct import *import, const char *path, enum part part)
{
  struct pass pass = {.path = path, .part = part, .row = rows_measure_row, .end = rows_measure_end};
  size_t bytes;
  rows_strata_reset(import);
  TRM_CHECK(rows_read(import, &pass));
  void *sums = import->format->sums(import->impl, &bytes);
  import_relay_share(&pass.segments, sums, bytes);
  return TRM_OK;
}

/* Copies a file, or a part of it, as one split. */
static int rows_copy(struct import *import, const char *path, const char *split, enum part part)
{
  const bool classes = import->target == TRM_TARGET_CLASS;
  const bool stores = import->comm->rank == 0 && import->comm->size > 1;
  struct pass pass = {
    .path = path, .part = part, .row = rows_copy_row, .end = rows_copy_end, .finish = rows_copy_finish,
    .segments = {.idle = stores ? rows_copy_idle : NULL, .context = import},
    .gathered = {.target_class = classes ? import->target_class : NULL,
                 .target_value = classes ? NULL : import->target_value}};
  rows_strata_reset(import);
  TRM_CHECK(trm_agree(import->comm, trm_data_writer_split(import->writer, split)));
  return rows_read(import, &pass);
}

/* -- the import */

static int rows_writer_open(struct import *import)
{
  const struct trm_import_request *request = import->request;
  const bool classes = import->target == TRM_TARGET_CLASS;
  const char **names = rows_label_names(import);
  import->values = classes ? 1 : import->format->values(import->impl);
  import->target_value = trm_alloc(TRM_IMPORT_ROWS * import->values * sizeof *import->target_value, "values of rows");
  char *source = trm_format("%s file %s", import->format->name, request->paths[0]);
  struct trm_data_spec spec = {
    .target = import->target,
    .classes = classes ? import->labels : import->values,
    .class_names = classes ? names : NULL,
    .source = source,
    .split = !import->all.test_rows ? NULL : import->random_split ? "random" : "last",
    .split_seed = request->seed,
  };
  int status = import->format->describe(import->impl, &spec, import->comm);
  import->row_bytes = spec.kind == TRM_DATA_CSR ? 0 : trm_shape_count(&spec.shape) * sizeof(float);
  spec.comm = import->comm;
  if (status == TRM_OK)
    status = trm_import_begin(request, spec, &import->writer);
  trm_free(names);
  trm_free(source);
  return trm_agree(import->comm, status);
}

/* Finishes the output on rank 0. Collective. */
static int rows_end(struct import *import, int status)
{
  struct trm_comm *comm = import->comm;
  int64_t features = import->format->features ? (int64_t)import->format->features(import->impl) : 0;
  comm->ops->allreduce(comm, &features, 1, TRM_INT64, TRM_MAX);
  if (status == TRM_OK && import->format->features && !features)
    status = trm_error(TRM_FAILED, "%s: no row has an entry", import->request->paths[0]);
  if (comm->rank == 0)
    status = trm_import_end(import->writer, status, (size_t)features);
  else
    trm_data_writer_abandon(import->writer);
  return trm_agree(comm, status);
}

static int rows_files_import(struct import *import)
{
  const struct trm_import_request *request = import->request;
  const char *train = request->paths[0], *test = request->count == 2 ? request->paths[1] : NULL;
  uint64_t test_rows;
  TRM_CHECK(trm_import_check(request, &import->target, &import->random_split));
  rows_labels_know(import);
  TRM_CHECK(rows_scan(import, train, true, &import->all.rows));
  TRM_CHECK(test ? rows_scan(import, test, false, &test_rows) : rows_split_plan(import));
  const bool cut = import->all.test_rows > 0;
  if (import->format->is_measured && import->format->is_measured(import->impl))
    TRM_CHECK(rows_measure(import, train, cut ? PART_TRAIN : PART_ALL));
  TRM_CHECK(rows_writer_open(import));
  int status = rows_copy(import, train, "train", cut ? PART_TRAIN : PART_ALL);
  if (status == TRM_OK && (test || cut))
    status = rows_copy(import, cut ? train : test, "test", cut ? PART_TEST : PART_ALL);
  return rows_end(import, status);
}

int trm_import_rows(const struct trm_import_request *request, const struct trm_row_format *format, void *impl)
{
  struct import *import = trm_alloc(sizeof *import, "rows to import");
  *import = (struct import){.request = request, .format = format, .impl = impl,
                            .comm = request->comm ? request->comm : trm_comm_self()};
  const int status = rows_files_import(import);
  for (size_t i = 0; i < import->labels; i++)
    trm_free(import->label[i].as.name);
  trm_free(import->label);
  trm_free(import->stratum);
  trm_free(import->target_value);
  import_held_free(&import->held);
  trm_free(import);
  return status;
}
