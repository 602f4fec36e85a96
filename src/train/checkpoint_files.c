#include "train/checkpoint_files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/signature.h"
#include "core/status.h"

enum { NAME_BYTES = 64 };

static const char *files_name(uint64_t step, char name[NAME_BYTES])
{
  snprintf(name, NAME_BYTES, "step-%08" PRIu64 ".h5", step);
  return name;
}

char *trm_checkpoint_files_path(const struct trm_checkpoint_files *files, uint64_t step)
{
  char name[NAME_BYTES];
  return trm_format("%s/checkpoints/%s", files->run, files_name(step, name));
}

/* Steps of the checkpoints in a directory. */
struct step_list {
  uint64_t *step; /* (count), ascending; owned */
  size_t count, capacity;
};

static int files_compare_steps(const void *a, const void *b)
{
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Adds the step of a file name, if it is one of a checkpoint. */
static void files_add_name(struct step_list *list, const char *name)
{
  uint64_t step;
  char same[NAME_BYTES];
  if (sscanf(name, "step-%" SCNu64, &step) != 1 || strcmp(files_name(step, same), name) != 0)
    return;
  list->step = trm_grow(list->step, &list->capacity, list->count, list->count + 1, sizeof *list->step, "checkpoints");
  list->step[list->count++] = step;
}

/* Lists the checkpoints. A directory that does not exist has none; any other failure is an error: a file system that
 * does not answer is no empty one. Caller frees list->step. */
static int files_list(const struct trm_checkpoint_files *files, struct step_list *list)
{
  *list = (struct step_list){0};
  char *folder = trm_format("%s/checkpoints", files->run);
  DIR *d = opendir(folder);
  int reason = d ? 0 : errno;
  while (d) {
    errno = 0;
    const struct dirent *entry = readdir(d);
    reason = entry ? 0 : errno;
    if (!entry)
      break;
    files_add_name(list, entry->d_name);
  }
  if (d)
    closedir(d);
  if (list->count > 0)
    qsort(list->step, list->count, sizeof *list->step, files_compare_steps);
  const int status = reason == 0 || (!d && reason == ENOENT)
                       ? TRM_OK : trm_error(TRM_FAILED, "%s: cannot be listed: %s", folder, strerror(reason));
  trm_free(folder);
  return status;
}

int trm_checkpoint_files_newest_step(const struct trm_checkpoint_files *files, uint64_t *step, bool *any)
{
  struct step_list list;
  const int status = files_list(files, &list);
  *any = status == TRM_OK && list.count > 0;
  *step = *any ? list.step[list.count - 1] : 0;
  trm_free(list.step);
  return status;
}

static void files_add_damaged(struct trm_checkpoint_files *files, uint64_t step)
{
  files->damaged = trm_grow(files->damaged, &files->damaged_capacity, files->damaged_count, files->damaged_count + 1,
                            sizeof *files->damaged, "damaged checkpoints");
  files->damaged[files->damaged_count++] = step;
}

static bool files_is_damaged(const struct trm_checkpoint_files *files, uint64_t step)
{
  for (size_t i = 0; i < files->damaged_count; i++)
    if (files->damaged[i] == step)
      return true;
  return false;
}

int trm_checkpoint_files_newest(struct trm_checkpoint_files *files, const struct trm_checkpoint_ops *ops, char **path)
{
  struct step_list list;
  *path = NULL;
  int status = files_list(files, &list);
  for (size_t i = list.count; status == TRM_OK && !*path && i-- > 0;) {
    char *candidate = trm_checkpoint_files_path(files, list.step[i]), name[NAME_BYTES];
    if (ops->verify(candidate) == TRM_OK) {
      *path = candidate;
      continue;
    }
    files_add_damaged(files, list.step[i]);
    if (i > 0)
      trm_warn("run.resume=auto: %s; the checkpoint before it is tried: %s", trm_error_text(),
               files_name(list.step[i - 1], name));
    else
      status = trm_error_context(TRM_FAILED, "run.resume=auto: no checkpoint of %s can be read; to begin anew, choose "
                                 "another run.dir or run.overwrite=yes; the oldest", files->run);
    trm_free(candidate);
  }
  trm_free(list.step);
  return status;
}

/* Links last.h5 to a file, in one step. */
static void files_link_last(const struct trm_checkpoint_files *files, uint64_t step)
{
  char name[NAME_BYTES];
  char *link = trm_format("%s/checkpoints/last.h5", files->run);
  char *temporary = trm_format("%s/checkpoints/last.new", files->run);
  unlink(temporary);
  if (symlink(files_name(step, name), temporary) != 0 || rename(temporary, link) != 0) {
    trm_warn("%s: cannot be linked to %s: %s", link, name, strerror(errno));
    unlink(temporary);
  }
  trm_free(temporary);
  trm_free(link);
}

/* Removes the oldest checkpoints that are not damaged, so that `keep` remain. */
static void files_remove_old(const struct trm_checkpoint_files *files, size_t keep)
{
  struct step_list list;
  size_t good = 0;
  if (files_list(files, &list) != TRM_OK)
    trm_warn("old checkpoints are not removed: %s", trm_error_text());
  for (size_t i = list.count; i-- > 0;) {
    if (files_is_damaged(files, list.step[i]) || ++good <= keep)
      continue;
    char *path = trm_checkpoint_files_path(files, list.step[i]);
    if (unlink(path) != 0)
      trm_warn("%s: cannot be removed: %s", path, strerror(errno));
    signature_remove(path);
    trm_free(path);
  }
  trm_free(list.step);
}

void trm_checkpoint_files_saved(struct trm_checkpoint_files *files, uint64_t step, size_t keep)
{
  for (size_t i = 0; i < files->damaged_count; i++)
    if (files->damaged[i] == step)
      files->damaged[i--] = files->damaged[--files->damaged_count];
  files_link_last(files, step);
  files_remove_old(files, keep);
}

void trm_checkpoint_files_free(struct trm_checkpoint_files *files)
{
  trm_free(files->damaged);
  *files = (struct trm_checkpoint_files){0};
}
