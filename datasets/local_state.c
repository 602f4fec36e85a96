#include "local_state.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "train/strategy.h"

/* Bytes of a chunk; each chunk has a checksum. */
#define CHUNK_BYTES ((hsize_t)1 << 20)

/* Returns a line "NAME BYTES" for each item. Two lists match if their texts are equal. The caller frees it: free(). */
static char *local_state_contents(const struct trm_local_state *item, int count)
{
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  if (!stream)
    return NULL;
  for (int i = 0; i < count; i++)
    fprintf(stream, "%s %zu\n", item[i].name, item[i].bytes);
  fclose(stream);
  return text;
}

/* -- writing */

static int local_state_item_write(hid_t group, const char *path, int rank, const struct trm_local_state *item)
{
  const hsize_t size = item->bytes;
  const struct h5_array array = {
    .dims = 1, .size = &size, .file_type = H5T_STD_U8LE, .memory_type = H5T_NATIVE_UINT8,
    .chunk_rows = size < CHUNK_BYTES ? size : CHUNK_BYTES,
  };
  char folder[32];
  snprintf(folder, sizeof folder, "ranks/%d", rank);
  return h5_array_write_in_turns(path, group, folder, item->name, &array, item->data);
}

/* Makes the group of a rank, which is the caller's. */
static int local_state_group_make(hid_t ranks, const char *path, int rank, const struct trm_local_state *item,
                                  int count, hid_t *group)
{
  char name[16];
  snprintf(name, sizeof name, "%d", rank);
  char *contents = local_state_contents(item, count);
  H5_LOCKED;
  *group = H5Gcreate2(ranks, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const bool done = *group >= 0 && contents && h5_put_text(*group, "contents", contents);
  free(contents);
  return done ? TRM_OK : h5_error(path, "ranks/%d cannot be made", rank);
}

static int local_state_ranks_make(hid_t file, const char *path, int count, hid_t *ranks)
{
  H5_LOCKED;
  *ranks = H5Gcreate2(file, "ranks", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  return *ranks >= 0 && h5_put_integer(file, "ranks", (uint64_t)count) ? TRM_OK
                                                                       : h5_error(path, "ranks cannot be made");
}

int local_state_write(hid_t file, const char *path, const struct trm_checkpoint *c)
{
  if (c->local_state_ranks == 0)
    return TRM_OK;
  H5_CLOSED hid_t ranks = -1;
  TRM_CHECK(local_state_ranks_make(file, path, c->local_state_ranks, &ranks));
  for (int rank = 0; rank < c->local_state_ranks; rank++) {
    const struct trm_local_state *item;
    int count;
    H5_CLOSED hid_t group = -1;
    TRM_CHECK(c->read_local_states(c->read_local_states_context, rank, &item, &count));
    TRM_CHECK(local_state_group_make(ranks, path, rank, item, count, &group));
    for (int i = 0; i < count; i++)
      TRM_CHECK(local_state_item_write(group, path, rank, &item[i]));
  }
  return TRM_OK;
}

/* -- reading */

int local_state_ranks_read(hid_t file, const char *path, int *ranks)
{
  uint64_t value = 0;
  *ranks = 0;
  const htri_t there = H5Aexists(file, "ranks");
  if (there < 0 || (there > 0 && (!h5_get_integer(file, "ranks", &value) || value > INT_MAX)))
    return h5_error(path, "attribute ranks is damaged");
  *ranks = (int)value;
  return TRM_OK;
}

/* Opens the group of a rank and reads its list of items, owned by the caller: trm_free. The group is the
 * caller's even after an error. */
static int local_state_rank_open(hid_t file, const char *path, int rank, hid_t *group, char **contents)
{
  char name[32];
  snprintf(name, sizeof name, "ranks/%d", rank);
  *contents = NULL;
  *group = H5Gopen2(file, name, H5P_DEFAULT);
  if (*group < 0)
    return h5_error(path, "%s is missing or damaged", name);
  *contents = h5_get_text(*group, "contents");
  return *contents ? TRM_OK : h5_error(path, "%s: attribute contents is missing or damaged", name);
}

static int local_state_item_read(hid_t group, const char *path, int rank, const struct trm_local_state *item)
{
  hsize_t size[H5S_MAX_RANK];
  int dims;
  H5_CLOSED const hid_t dataset = h5_array_open(group, item->name, &dims, size);
  if (dataset < 0)
    return h5_error(path, "ranks/%d/%s is missing or damaged", rank, item->name);
  if (dims != 1 || size[0] != item->bytes)
    return h5_error(path, "ranks/%d/%s is damaged: not of %zu bytes", rank, item->name, item->bytes);
  if (size[0] > 0 && H5Dread(dataset, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, item->data) < 0)
    return h5_error(path, "ranks/%d/%s is damaged or cannot be read", rank, item->name);
  return TRM_OK;
}

int local_state_fits(const char *path, int rank, const struct trm_local_state *item, int count, bool *fits)
{
  H5_LOCKED;
  H5_CLOSED hid_t file = -1, group = -1;
  char *found;
  *fits = false;
  TRM_CHECK(h5_open(path, H5_CHECKPOINT, NULL, &file));
  TRM_CHECK(local_state_rank_open(file, path, rank, &group, &found));
  char *expected = local_state_contents(item, count);
  *fits = expected && strcmp(expected, found) == 0;
  free(expected);
  trm_free(found);
  return TRM_OK;
}

int local_state_read(const char *path, int rank, const struct trm_local_state *item, int count)
{
  H5_LOCKED;
  H5_CLOSED hid_t file = -1, group = -1;
  char *found;
  TRM_CHECK(h5_open(path, H5_CHECKPOINT, NULL, &file));
  TRM_CHECK(local_state_rank_open(file, path, rank, &group, &found));
  trm_free(found);
  for (int i = 0; i < count; i++)
    TRM_CHECK(local_state_item_read(group, path, rank, &item[i]));
  return TRM_OK;
}

/* Reads the item that one line of a list describes. */
static int local_state_line_verify(hid_t group, const char *path, int rank, const char *line)
{
  const char *space = strrchr(line, ' ');
  if (!space || space - line >= TRM_LOCAL_STATE_NAME)
    return trm_error(TRM_FAILED, "%s: ranks/%d: attribute contents is damaged", path, rank);
  struct trm_local_state item = {.bytes = (size_t)strtoull(space + 1, NULL, 10)};
  memcpy(item.name, line, (size_t)(space - line));
  item.data = trm_alloc(item.bytes, "local state of a rank");
  const int status = local_state_item_read(group, path, rank, &item);
  trm_free(item.data);
  return status;
}

int local_state_verify(hid_t file, const char *path, int ranks)
{
  int status = TRM_OK;
  for (int rank = 0; rank < ranks && status == TRM_OK; rank++) {
    H5_CLOSED hid_t group = -1;
    char *contents, *rest = NULL;
    TRM_CHECK(local_state_rank_open(file, path, rank, &group, &contents));
    for (char *line = strtok_r(contents, "\n", &rest); line && status == TRM_OK; line = strtok_r(NULL, "\n", &rest))
      status = local_state_line_verify(group, path, rank, line);
    trm_free(contents);
  }
  return status;
}
