#include "cli/script.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/atomic_file.h"
#include "core/memory.h"
#include "core/status.h"

void script_add_word(char **text, const char *word)
{
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,=@%+-";
  if (*word && strspn(word, plain) == strlen(word)) {
    trm_append(text, "%s", word);
    return;
  }
  trm_append(text, "'");
  for (; *word; word++)
    trm_append(text, *word == '\'' ? "'\\''" : "%c", *word);
  trm_append(text, "'");
}

char *script_program(void)
{
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  path[length > 0 ? length : 0] = '\0';
  return trm_strdup(length > 0 ? path : "trireme");
}

int script_write(const char *path, const char *text)
{
  struct atomic_file file;
  TRM_CHECK(atomic_file_open(&file, path));
  fputs(text, file.stream);
  return atomic_file_close(&file, !ferror(file.stream));
}
