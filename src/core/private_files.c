#include "core/private_files.h"

#include <errno.h>
#include <grp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"

unsigned trm_private_files_begin(bool group)
{
  const mode_t before = umask(077);
  umask(before | (group ? 027 : 077));
  return (unsigned)before;
}

void trm_private_files_end(unsigned before)
{
  umask((mode_t)before);
}

int trm_private_files_share(const char *folder, const char *group)
{
  struct stat about;
  if (group[0] == '\0')
    return TRM_OK;
  const struct group *entry = getgrnam(group);
  if (!entry)
    return trm_error(TRM_USAGE, "run.group: there is no group \"%s\"", group);
  if (stat(folder, &about) != 0)
    return trm_error(TRM_FAILED, "%s: cannot be examined: %s", folder, strerror(errno));
  /* the bit S_ISGID: what is created in the folder gets its group */
  const bool changes = about.st_gid != entry->gr_gid;
  if ((changes && chown(folder, (uid_t)-1, entry->gr_gid) != 0) || chmod(folder, about.st_mode | S_ISGID) != 0)
    return trm_error(TRM_FAILED, "run.group: %s cannot be given to the group %s: %s", folder, group, strerror(errno));
  return TRM_OK;
}

int trm_make_directories(const char *path)
{
  char *copy = trm_strdup(path);
  int failed = 0;
  for (char *p = copy + 1; !failed; p++) {
    const char end = *p;
    if (end != '/' && end != '\0')
      continue;
    *p = '\0';
    if (mkdir(copy, 0777) != 0 && errno != EEXIST)
      failed = errno;
    *p = end;
    if (end == '\0')
      break;
  }
  trm_free(copy);
  return failed ? trm_error(TRM_FAILED, "%s: cannot make the directory: %s", path, strerror(failed)) : TRM_OK;
}
