#include "kept.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "train/strategy.h"

/* Bytes of a chunk: what one checksum guards. */
#define CHUNK_BYTES ((hsize_t)1 << 20)

/* "NAME BYTES\n" for each item. Two lists fit if they are the same text. Caller frees with free(). */
static char *contents_text(const struct trm_kept *kept, int count)
{
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  if (!stream)
    return NULL;
  for (int i = 0; i < count; i++)
    fprintf(stream, "%s %zu\n", kept[i].name, kept[i].bytes);
  fclose(stream);
  return text;
}

/* -- writing */

static int item_write(hid_t group, const char *path, int rank, const struct trm_kept *kept)
{
  const hsize_t size = kept->bytes, chunk = size < CHUNK_BYTES ? size : CHUNK_BYTES;
  const hid_t space = H5Screate_simple(1, &size, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
  if (size > 0) {
    H5Pset_chunk(plist, 1, &chunk);
    H5Pset_fletcher32(plist);
    H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER);
  }
  const hid_t dataset = H5Dcreate2(group, kept->name, H5T_STD_U8LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  int status = TRM_OK;
  if (dataset < 0 || (size > 0 && H5Dwrite(dataset, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, kept->data) < 0) ||
      H5Dclose(dataset) < 0)
    status = h5_error(path, "ranks/%d/%s cannot be written", rank, kept->name);
  H5Pclose(plist);
  H5Sclose(space);
  return status;
}

static int rank_write(hid_t ranks, const char *path, int rank, const struct trm_kept *kept, int count)
{
  char name[16];
  snprintf(name, sizeof name, "%d", rank);
  char *contents = contents_text(kept, count);
  const hid_t group = H5Gcreate2(ranks, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  int status = TRM_OK;
  if (group < 0 || !contents || !h5_put_text(group, "contents", contents))
    status = h5_error(path, "ranks/%d cannot be made", rank);
  for (int i = 0; i < count && status == TRM_OK; i++)
    status = item_write(group, path, rank, &kept[i]);
  if (group >= 0)
    H5Gclose(group);
  free(contents);
  return status;
}

int kept_write(hid_t file, const char *path, const struct trm_checkpoint *c)
{
  if (c->kept_ranks == 0)
    return TRM_OK;
  const hid_t ranks = H5Gcreate2(file, "ranks", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  if (ranks < 0 || !h5_put_integer(file, "ranks", (uint64_t)c->kept_ranks))
    return h5_error(path, "ranks cannot be made");
  int status = TRM_OK;
  for (int rank = 0; rank < c->kept_ranks && status == TRM_OK; rank++) {
    const struct trm_kept *kept;
    int count;
    status = c->kept_of(c->kept_from, rank, &kept, &count);
    if (status == TRM_OK)
      status = rank_write(ranks, path, rank, kept, count);
  }
  H5Gclose(ranks);
  return status;
}

/* -- reading */

int kept_ranks_read(hid_t file, const char *path, int *ranks)
{
  uint64_t value = 0;
  *ranks = 0;
  const htri_t there = H5Aexists(file, "ranks");
  if (there < 0 || (there > 0 && (!h5_get_integer(file, "ranks", &value) || value > INT_MAX)))
    return h5_error(path, "attribute ranks is damaged");
  *ranks = (int)value;
  return TRM_OK;
}

/* Opens a rank's group, and gets its list: owned by the caller, trm_free. */
static int rank_open(hid_t file, const char *path, int rank, hid_t *group, char **contents)
{
  char name[32];
  snprintf(name, sizeof name, "ranks/%d", rank);
  *contents = NULL;
  *group = H5Gopen2(file, name, H5P_DEFAULT);
  if (*group < 0)
    return h5_error(path, "%s is missing or damaged", name);
  *contents = h5_get_text(*group, "contents");
  if (*contents)
    return TRM_OK;
  H5Gclose(*group);
  return h5_error(path, "%s: attribute contents is missing or damaged", name);
}

static int item_read(hid_t group, const char *path, int rank, const struct trm_kept *kept)
{
  const hid_t dataset = H5Dopen2(group, kept->name, H5P_DEFAULT);
  if (dataset < 0)
    return h5_error(path, "ranks/%d/%s is missing or damaged", rank, kept->name);
  const hid_t space = H5Dget_space(dataset);
  const hssize_t size = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
  if (space >= 0)
    H5Sclose(space);
  int status = TRM_OK;
  if (size < 0 || (uint64_t)size != kept->bytes)
    status = h5_error(path, "ranks/%d/%s is damaged: not of %zu bytes", rank, kept->name, kept->bytes);
  else if (size > 0 && H5Dread(dataset, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, kept->data) < 0)
    status = h5_error(path, "ranks/%d/%s is damaged or cannot be read", rank, kept->name);
  H5Dclose(dataset);
  return status;
}

int kept_fits(const char *path, int rank, const struct trm_kept *kept, int count, bool *fits)
{
  hid_t file, group;
  char *found;
  *fits = false;
  TRM_CHECK(h5_open(path, H5_CHECKPOINT, NULL, &file));
  h5_enter();
  const int status = rank_open(file, path, rank, &group, &found);
  if (status == TRM_OK) {
    char *wanted = contents_text(kept, count);
    *fits = wanted && strcmp(wanted, found) == 0;
    free(wanted);
    trm_free(found);
    H5Gclose(group);
  }
  H5Fclose(file);
  h5_leave();
  return status;
}

int kept_read(const char *path, int rank, const struct trm_kept *kept, int count)
{
  hid_t file, group;
  char *found;
  TRM_CHECK(h5_open(path, H5_CHECKPOINT, NULL, &file));
  h5_enter();
  int status = rank_open(file, path, rank, &group, &found);
  if (status == TRM_OK) {
    for (int i = 0; i < count && status == TRM_OK; i++)
      status = item_read(group, path, rank, &kept[i]);
    trm_free(found);
    H5Gclose(group);
  }
  H5Fclose(file);
  h5_leave();
  return status;
}

/* Reads the item of one line of a list. */
static int line_verify(hid_t group, const char *path, int rank, const char *line)
{
  const char *space = strrchr(line, ' ');
  if (!space)
    return trm_error(TRM_FAILED, "%s: ranks/%d: attribute contents is damaged", path, rank);
  char *name = trm_format("%.*s", (int)(space - line), line);
  struct trm_kept kept = {.name = name, .bytes = (size_t)strtoull(space + 1, NULL, 10)};
  kept.data = trm_alloc(kept.bytes, "what a rank keeps");
  const int status = item_read(group, path, rank, &kept);
  trm_free(kept.data);
  trm_free(name);
  return status;
}

int kept_verify(hid_t file, const char *path, int ranks)
{
  int status = TRM_OK;
  for (int rank = 0; rank < ranks && status == TRM_OK; rank++) {
    hid_t group;
    char *contents, *rest = NULL;
    TRM_CHECK(rank_open(file, path, rank, &group, &contents));
    for (char *line = strtok_r(contents, "\n", &rest); line && status == TRM_OK; line = strtok_r(NULL, "\n", &rest))
      status = line_verify(group, path, rank, line);
    trm_free(contents);
    H5Gclose(group);
  }
  return status;
}
