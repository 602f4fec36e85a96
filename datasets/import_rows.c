#include "datasets/import.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/file_reader.h"
#include "datasets/import_ranks.h"

#define MAX_LABELS 65536

/* A class label. Labels that are numbers are equal if their values are; the name is the first spelling seen. */
struct label {
  char *name;
  bool is_number;
  double number;
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
  uint64_t *seen;          /* (strata) rows of the rounds so far; of several ranks */
  struct trm_data_writer *writer; /* of rank 0 */
  struct import_box box;   /* of the others; of rank 0 what it receives */
  int32_t target_class[TRM_IMPORT_ROWS];
  float target_value[TRM_IMPORT_ROWS];
};

enum part { PART_ALL, PART_TRAIN, PART_TEST };

/* -- labels */

static int rows_label_compare(const struct label *a, const struct label *b)
{
  if (a->is_number != b->is_number)
    return a->is_number ? -1 : 1;
  return a->is_number ? (a->number > b->number) - (a->number < b->number) : strcmp(a->name, b->name);
}

/* Returns the index of a label, or that at which it is to be inserted. */
static size_t rows_label_find(const struct import *import, const struct label *label, bool *found)
{
  size_t low = 0, high = import->labels;
  *found = false;
  while (low < high && !*found) {
    const size_t middle = low + (high - low) / 2;
    const int order = rows_label_compare(&import->label[middle], label);
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

static struct label rows_label_parse(const char *name)
{
  struct label label = {.name = (char *)name};
  label.is_number = trm_parse_number(name, &label.number);
  return label;
}

/* Adds a label, unless it is known. Returns its place. */
static size_t rows_label_insert(struct import *import, const char *name, uint64_t at, bool *found)
{
  struct label label = rows_label_parse(name);
  label.at = at;
  const size_t place = rows_label_find(import, &label, found);
  if (!*found) {
    import->label = trm_grow(import->label, &import->label_capacity, import->labels, import->labels + 1,
                               sizeof label, "labels");
    import->stratum = trm_grow(import->stratum, &import->stratum_capacity, import->labels, import->labels + 1,
                               sizeof *import->stratum, "labels");
    memmove(import->label + place + 1, import->label + place, (import->labels - place) * sizeof label);
    memmove(import->stratum + place + 1, import->stratum + place, (import->labels - place) * sizeof *import->stratum);
    import->stratum[place] = (struct trm_stratum){.rows = 0};
    import->labels++;
    label.name = trm_strdup(name);
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
  trm_free(label->name);
  label->name = trm_strdup(name);
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
    const size_t length = strlen(import->label[i].name) + 1;
    mine = trm_grow(mine, &capacity, bytes, bytes + sizeof record + length, 1, "labels");
    memcpy(mine + bytes, &record, sizeof record);
    memcpy(mine + bytes + sizeof record, import->label[i].name, length);
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
    names[i] = import->label[i].name;
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
  const struct label parsed = rows_label_parse(label);
  *class = rows_label_find(import, &parsed, &found);
  return found ? TRM_OK
               : import->format->label_error(import->impl, "was not there in the first pass: the file changes");
}

/* Sets the rows of each stratum that come before this rank's segment: the ranks count those of theirs. Collective. */
static int rows_strata_seek(struct import *import, struct import_segments *segments)
{
  struct trm_comm *comm = import->comm;
  const bool stratified = rows_are_stratified(import);
  struct trm_stratum *stratum = stratified ? import->stratum : &import->all;
  const size_t n = stratified ? import->labels : 1;
  uint64_t *count = trm_alloc(n * sizeof *count, "rows of the classes");
  uint64_t *all = trm_alloc(n * (size_t)comm->size * sizeof *all, "rows of the classes");
  const char *label;
  int status = TRM_OK;
  while (status == TRM_OK && (status = import->format->next(import->impl, &label)) == TRM_OK && label) {
    size_t class;
    status = rows_class_find(import, label, &class);
    count[stratified ? class : 0]++;
  }
  comm->ops->allgather(comm, count, all, n, TRM_INT64);
  for (size_t i = 0; i < n; i++) {
    stratum[i].seen = import->seen[i];
    for (int r = 0; r < comm->size; r++) {
      stratum[i].seen += r < comm->rank ? all[(size_t)r * n + i] : 0;
      import->seen[i] += all[(size_t)r * n + i];
    }
  }
  trm_free(count);
  trm_free(all);
  if (status == TRM_OK)
    status = import_segment_rewind(segments);
  return trm_agree(comm, status);
}

/* A pass over a file. */
struct pass {
  const char *path;
  enum part part;
  bool learns;  /* a scan of the file that determines the columns */
  uint64_t rows; /* that this rank has seen */
  int (*row)(struct import *import, struct pass *pass, const char *label);
  int (*end)(struct import *import, struct pass *pass, int status); /* of a round. Collective; NULL: nothing to do */
  struct trm_data_rows gathered;
};

/* Reads this rank's segments. Collective. */
static int rows_read(struct import *import, struct pass *pass)
{
  const struct trm_row_format *format = import->format;
  struct trm_comm *comm = import->comm;
  struct import_segments segments;
  const char *label;
  bool more = true;
  int status = format->open(import->impl, pass->path);
  if (status == TRM_OK)
    status = import_segments_begin(&segments, comm, format->file(import->impl), format->quotes);
  status = trm_agree(comm, status);
  while (status == TRM_OK && (status = import_segments_next(&segments, &more)) == TRM_OK && more) {
    if (pass->part != PART_ALL && comm->size > 1)
      status = rows_strata_seek(import, &segments);
    while (status == TRM_OK && (status = format->next(import->impl, &label)) == TRM_OK && label) {
      pass->rows++;
      status = pass->row(import, pass, label);
    }
    if (pass->end)
      status = pass->end(import, pass, status);
    status = trm_agree(comm, status);
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

/* Appends the rows gathered, or sends them to rank 0. */
static int rows_flush(struct import *import, struct trm_data_rows *rows)
{
  int status = TRM_OK;
  if (rows->rows && import->comm->rank == 0)
    status = trm_data_writer_append(import->writer, rows);
  else if (rows->rows)
    import_box_add(&import->box, import->comm, rows, import->target == TRM_TARGET_CLASS);
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
  import->target_class[rows->rows] = (int32_t)class;
  const char *wrong =
    import->target == TRM_TARGET_CLASS ? NULL : trm_parse_float(label, &import->target_value[rows->rows]);
  if (wrong)
    return import->format->label_error(import->impl, wrong);
  TRM_CHECK(import->format->add(import->impl, rows, &full));
  return ++rows->rows == TRM_IMPORT_ROWS || full ? rows_flush(import, rows) : TRM_OK;
}

/* Brings the rows of all ranks to the writer. */
static int rows_copy_end(struct import *import, struct pass *pass, int status)
{
  struct trm_comm *comm = import->comm;
  if (status == TRM_OK)
    status = rows_flush(import, &pass->gathered);
  if (comm->rank > 0)
    import_box_end(&import->box, comm);
  else if (comm->size > 1)
    status = import_box_receive(&import->box, comm, import->writer, import->target == TRM_TARGET_CLASS, status);
  TRM_CHECK(trm_agree(comm, status));
  return comm->size > 1 ? trm_data_writer_pack(import->writer, comm, false) : TRM_OK;
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
  (void)pass;
  TRM_CHECK(trm_agree(import->comm, status));
  import->format->add_up(import->impl, import->comm);
  return TRM_OK;
}

/* Begins to count the rows of the strata. */
static void rows_strata_reset(struct import *import)
{
  import->all.seen = 0;
  for (size_t i = 0; i < import->labels; i++)
    import->stratum[i].seen = 0;
  trm_free(import->seen);
  import->seen = trm_alloc((import->labels + 1) * sizeof *import->seen, "rows of the classes");
}

/* Measures the training rows. */
static int rows_measure(struct import *import, const char *path, enum part part)
{
  struct pass pass = {.path = path, .part = part, .row = rows_measure_row, .end = rows_measure_end};
  rows_strata_reset(import);
  return rows_read(import, &pass);
}

/* Copies a file, or a part of it, as one split. */
static int rows_copy(struct import *import, const char *path, const char *split, enum part part)
{
  struct trm_comm *comm = import->comm;
  struct pass pass = {
    .path = path, .part = part, .row = rows_copy_row, .end = rows_copy_end,
    .gathered = {.target_class = import->target_class, .target_value = import->target_value}};
  rows_strata_reset(import);
  TRM_CHECK(trm_agree(comm, comm->rank == 0 ? trm_data_writer_split(import->writer, split) : TRM_OK));
  TRM_CHECK(rows_read(import, &pass));
  return comm->size > 1 ? trm_data_writer_pack(import->writer, comm, true) : TRM_OK;
}

/* -- the import */

static int rows_writer_open(struct import *import)
{
  const struct trm_import_request *request = import->request;
  const bool classes = import->target == TRM_TARGET_CLASS;
  const char **names = rows_label_names(import);
  char *source = trm_format("%s file %s", import->format->name, request->paths[0]);
  struct trm_data_spec spec = {
    .target = import->target,
    .classes = classes ? import->labels : 1,
    .class_names = classes ? names : NULL,
    .source = source,
    .split = !import->all.test_rows ? NULL : import->random_split ? "random" : "last",
    .split_seed = request->seed,
  };
  int status = import->format->describe(import->impl, &spec, import->comm);
  import->box.row_bytes = spec.kind == TRM_DATA_CSR ? 0 : trm_shape_count(&spec.shape) * sizeof(float);
  spec.ranks = import->comm->size;
  if (status == TRM_OK && import->comm->rank == 0)
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
    trm_free(import->label[i].name);
  trm_free(import->label);
  trm_free(import->stratum);
  trm_free(import->seen);
  import_box_free(&import->box);
  trm_free(import);
  return status;
}
