/* The head of a checkpoint file: the fields, the description of the samples, the names of the states, the parts of
 * batches that are not done (the file's layout: checkpoint.c). */
#include "checkpoint_head.h"

#include <stddef.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "encoding.h"
#include "local_state.h"
#include "train/strategy.h"

#define UNDONE_CHUNK_ROWS ((hsize_t)1 << 16)

/* Valid names of states; state_name of a checkpoint points to them. */
static const char *const state_names[] = {"weights", "momentum", "squares", "first", "second", "last_step", "ema"};
enum { STATE_NAMES = sizeof state_names / sizeof state_names[0] };

/* Fields of struct trm_checkpoint that are attributes of the same name. */
static const struct {
  const char *name;
  size_t offset;
  enum { INTEGER, REAL, TEXT } kind;
  bool optional; /* absent in older files; texts may be NULL */
} fields[] = {
#define FIELD(name, kind, optional) {#name, offsetof(struct trm_checkpoint, name), kind, optional}
  FIELD(seed, INTEGER, false), FIELD(epoch, INTEGER, false), FIELD(position, INTEGER, false),
  FIELD(updates, INTEGER, false), FIELD(samples, INTEGER, false), FIELD(batch, INTEGER, false),
  FIELD(best_updates, INTEGER, false), FIELD(stale_evaluations, INTEGER, false), FIELD(best_loss, REAL, false),
  FIELD(best_accuracy, REAL, false), FIELD(wall_s, REAL, false), FIELD(train_s, REAL, true),
  FIELD(epoch_loss, REAL, true), FIELD(epoch_rows, REAL, true), FIELD(weights_only, INTEGER, true),
  FIELD(plateau_factor, REAL, true), FIELD(plateau_best, REAL, true), FIELD(plateau_waited, INTEGER, true),
  FIELD(config, TEXT, false), FIELD(weights_sha256, TEXT, false), FIELD(validation, TEXT, true),
  FIELD(data_digest, TEXT, true),
#undef FIELD
  {"model", offsetof(struct trm_checkpoint, model_text), TEXT, false},
  {"loss", offsetof(struct trm_checkpoint, loss_name), TEXT, false},
};
#define FIELDS (sizeof fields / sizeof *fields)

/* -- writing */

static bool head_spec_put(hid_t file, const struct trm_input_spec *spec)
{
  return h5_put_shape(file, "shape", &spec->shape) && h5_put_integer(file, "sparse", spec->sparse) &&
         h5_put_integer(file, "tokens", spec->tokens) && h5_put_integer(file, "classes", spec->classes) &&
         h5_put_text(file, "target", spec->target == TRM_TARGET_CLASS ? "class" : "value");
}

static bool head_fields_put(hid_t file, const struct trm_checkpoint *c)
{
  bool done = true;
  for (size_t i = 0; i < FIELDS && done; i++) {
    const void *field = (const char *)c + fields[i].offset;
    const char *text = fields[i].kind == TEXT ? *(char *const *)field : NULL;
    if (fields[i].kind == INTEGER)
      done = h5_put_integer(file, fields[i].name, *(const uint64_t *)field);
    else if (fields[i].kind == REAL)
      done = h5_put_real(file, fields[i].name, *(const double *)field);
    else if (text || !fields[i].optional)
      done = h5_put_text(file, fields[i].name, text ? text : "");
  }
  return done;
}

static int head_undone_write(hid_t file, const char *path, const struct trm_checkpoint *c)
{
  if (c->undones == 0)
    return TRM_OK;
  const hsize_t size[] = {c->undones, 3};
  const struct h5_array array = {
    .dims = 2, .size = size, .file_type = H5T_STD_U64LE, .memory_type = H5T_NATIVE_UINT64,
    .chunk_rows = c->undones < UNDONE_CHUNK_ROWS ? c->undones : UNDONE_CHUNK_ROWS,
  };
  uint64_t(*row)[3] = trm_alloc(c->undones * sizeof *row, "parts of batches");
  for (size_t i = 0; i < c->undones; i++) {
    row[i][0] = c->undone[i].batch;
    row[i][1] = c->undone[i].part;
    row[i][2] = c->undone[i].parts;
  }
  const bool done = h5_array_write(file, "undone", &array, row);
  trm_free(row);
  return done ? TRM_OK : h5_error(path, "undone cannot be written");
}

int checkpoint_head_write(hid_t file, const char *path, const struct trm_checkpoint *c)
{
  const char *record = c->record;
  H5_LOCKED;
  const bool done =
    head_fields_put(file, c) && head_spec_put(file, &c->spec) &&
    (!c->record || strlen(c->record) >= H5_TEXT_BYTES || h5_put_texts(file, "record", &record, 1)) &&
    (!c->class_names || h5_put_texts(file, "class_names", (const char *const *)c->class_names, c->spec.classes)) &&
    encoding_put(file, &c->encoding) && h5_put_texts(file, "state_names", c->state_name, (size_t)c->states);
  return done ? head_undone_write(file, path, c) : h5_error(path, "cannot be written");
}

/* -- reading */

static bool head_spec_get(hid_t file, struct trm_input_spec *spec)
{
  uint64_t sparse, tokens, classes;
  char *target = h5_get_text(file, "target");
  const bool values = target && !strcmp(target, "value"), known = values || (target && !strcmp(target, "class"));
  trm_free(target);
  if (!known || !h5_get_shape(file, "shape", &spec->shape) || !h5_get_integer(file, "sparse", &sparse) ||
      !h5_get_integer(file, "tokens", &tokens) || !h5_get_integer(file, "classes", &classes))
    return false;
  spec->sparse = sparse != 0;
  spec->tokens = tokens != 0;
  spec->classes = classes;
  spec->target = values ? TRM_TARGET_VALUE : TRM_TARGET_CLASS;
  return true;
}

/* Reads the names of the states; "weights" must be first. */
static bool head_states_get(hid_t file, struct trm_checkpoint *c)
{
  char **names = NULL;
  hsize_t size[H5S_MAX_RANK];
  int dims;
  const hid_t dataset = h5_array_open(file, "state_names", &dims, size);
  const int count = dims == 1 && size[0] <= TRM_MAX_STATES ? (int)size[0] : 0;
  h5_close(dataset);
  if (count < 1 || !h5_get_texts(file, "state_names", (size_t)count, &names) || !names)
    return false;
  for (c->states = 0; c->states < count; c->states++) {
    int known = 0;
    while (known < STATE_NAMES && strcmp(names[c->states], state_names[known]))
      known++;
    if (known == STATE_NAMES || (known == 0) != (c->states == 0))
      break;
    c->state_name[c->states] = state_names[known];
  }
  trm_free(names);
  return c->states == count;
}

static int head_fields_get(hid_t file, const char *path, struct trm_checkpoint *c)
{
  for (size_t i = 0; i < FIELDS; i++) {
    void *field = (char *)c + fields[i].offset;
    bool found;
    if (fields[i].kind == INTEGER)
      found = h5_get_integer(file, fields[i].name, field);
    else if (fields[i].kind == REAL)
      found = h5_get_real(file, fields[i].name, field);
    else
      found = (*(char **)field = h5_get_text(file, fields[i].name)) != NULL;
    if (!found && !fields[i].optional)
      return h5_error(path, "attribute %s is missing or damaged", fields[i].name);
  }
  return TRM_OK;
}

static int head_undone_read(hid_t file, const char *path, struct trm_checkpoint *c)
{
  hsize_t size[H5S_MAX_RANK];
  int dims;
  if (!h5_exists(file, "undone"))
    return TRM_OK;
  H5_CLOSED const hid_t dataset = h5_array_open(file, "undone", &dims, size);
  if (dataset < 0 || dims != 2 || size[1] != 3)
    return h5_error(path, "undone is damaged");
  const size_t count = (size_t)size[0];
  uint64_t(*row)[3] = trm_alloc(count * sizeof *row, "parts of batches");
  bool valid = H5Dread(dataset, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, row) >= 0;
  c->undone = trm_alloc(count * sizeof *c->undone, "parts of batches");
  for (size_t i = 0; i < count && valid; i++) {
    valid = row[i][2] > 0 && row[i][2] <= UINT32_MAX && row[i][1] < row[i][2];
    c->undone[c->undones++] =
      (struct trm_batch_part){.batch = row[i][0], .part = (uint32_t)row[i][1], .parts = (uint32_t)row[i][2]};
  }
  trm_free(row);
  return valid ? TRM_OK : h5_error(path, "undone is damaged");
}

static int head_record_read(hid_t file, const char *path, struct trm_checkpoint *c)
{
  char **texts;
  if (!h5_get_texts(file, "record", 1, &texts))
    return h5_error(path, "record is damaged");
  c->record = texts ? trm_strdup(texts[0]) : NULL;
  trm_free(texts);
  return TRM_OK;
}

int checkpoint_head_read(hid_t file, const char *path, struct trm_checkpoint *c)
{
  TRM_CHECK(head_fields_get(file, path, c));
  if (!head_spec_get(file, &c->spec))
    return h5_error(path, "the description of the samples is missing or damaged");
  if (!h5_get_texts(file, "class_names", c->spec.classes, &c->class_names))
    return h5_error(path, "class_names is damaged");
  TRM_CHECK(encoding_get(file, path, c->spec.tokens ? c->class_names : NULL, &c->encoding));
  if (!head_states_get(file, c))
    return h5_error(path, "state_names is missing or damaged");
  TRM_CHECK(head_undone_read(file, path, c));
  TRM_CHECK(head_record_read(file, path, c));
  return local_state_ranks_read(file, path, &c->local_state_ranks);
}
