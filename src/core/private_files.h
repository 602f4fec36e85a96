/* Files that only their user may read. What a process creates between begin and end has mode 0600, folders 0700; of a
 * group 0640 and 0750. A stricter umask is kept. One mask of the process, not a mode in each call: it holds for what
 * libraries write, too. */
#pragma once

#include <stdbool.h>

#include "core/api.h"

TRM_BEGIN_DECLS

/* Returns what end takes. Not while other threads create files. */
unsigned trm_private_files_begin(bool group);
void trm_private_files_end(unsigned before);

/* Lets a folder, and what is created in it from now on, belong to a group. "" does nothing. Errors name the folder and
 * the group. Not collective. */
int trm_private_files_share(const char *folder, const char *group);

/* Makes a folder and those above it that are missing (mkdir -p). TRM_FAILED names the folder and the reason. */
int trm_make_directories(const char *path);

TRM_END_DECLS
