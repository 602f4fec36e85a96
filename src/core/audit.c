#include "core/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/document.h"
#include "core/memory.h"
#include "core/sha256.h"
#include "core/status.h"

#define AUDIT_ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

static void audit_hash_line(const char *line, size_t bytes, char hash[65])
{
  struct trm_sha256 sha;
  trm_sha256_begin(&sha);
  trm_sha256_add(&sha, line, bytes);
  trm_sha256_end(&sha, hash);
}

/* Reads the lines that are complete: sets hash to that of the last one, *end to where it ends, *wrong to the number of
 * the first line that does not have the hash of the one before it, 0: none. */
static int audit_read(FILE *in, uint64_t *lines, char hash[65], long *end, uint64_t *wrong)
{
  char *line = NULL, field[96];
  size_t capacity = 0;
  ssize_t n;
  strcpy(hash, AUDIT_ZEROS);
  *lines = *wrong = 0;
  *end = 0;
  while ((n = getline(&line, &capacity, in)) > 0 && line[n - 1] == '\n') {
    snprintf(field, sizeof field, "\"before\":\"%s\"}\n", hash);
    const size_t length = strlen(field);
    ++*lines;
    if (!*wrong && ((size_t)n < length || memcmp(line + n - length, field, length) != 0))
      *wrong = *lines;
    audit_hash_line(line, (size_t)n, hash);
    *end += n;
  }
  free(line);
  return ferror(in) ? errno : 0;
}

/* Adds the process: who, where, by which command. */
static void audit_write_process(struct trm_json *json)
{
  char host[128] = "", command[1024] = "", when[32];
  const time_t now = time(NULL);
  struct tm utc;
  const struct passwd *user = getpwuid(geteuid());
  gethostname(host, sizeof host - 1);
  FILE *in = fopen("/proc/self/cmdline", "r");
  size_t n = in ? fread(command, 1, sizeof command - 1, in) : 0;
  if (in)
    fclose(in);
  for (size_t i = 0; n > 0 && i < n - 1; i++) /* arguments end with a NUL */
    command[i] = command[i] ? command[i] : ' ';
  strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  trm_json_text(json, "time", when);
  trm_json_text(json, "user", user ? user->pw_name : NULL);
  trm_json_integer(json, "uid", (int64_t)geteuid());
  trm_json_text(json, "host", host);
  trm_json_integer(json, "process", (int64_t)getpid());
  trm_json_text(json, "job", getenv("SLURM_JOB_ID"));
  trm_json_text(json, "command", command);
}

static void audit_write_line(FILE *out, const struct trm_audit_event *event, const char *before)
{
  const struct {
    const char *key, *text;
  } field[] = {{"file", event->file},     {"data", event->data},
               {"config", event->config}, {"status", event->status},
               {"weights_sha256", event->weights_sha256}};
  struct trm_json json;
  trm_json_open(&json, out);
  trm_json_object(&json, NULL);
  trm_json_text(&json, "event", event->event);
  trm_json_integer(&json, "step", (int64_t)event->step);
  for (size_t i = 0; i < sizeof field / sizeof *field; i++)
    if (field[i].text)
      trm_json_text(&json, field[i].key, field[i].text);
  audit_write_process(&json);
  trm_json_text(&json, "before", before);
  trm_json_end(&json);
}

int trm_audit_append(const char *directory, const struct trm_audit_event *event)
{
  char *path = trm_format("%s/audit.jsonl", directory), hash[65];
  uint64_t lines, wrong;
  long end;
  const int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  FILE *file = fd >= 0 ? fdopen(fd, "r+") : NULL;
  int reason = file ? audit_read(file, &lines, hash, &end, &wrong) : errno;
  if (file && !reason && (fseek(file, end, SEEK_SET) != 0 || ftruncate(fd, end) != 0))
    reason = errno;
  if (file && !reason) {
    audit_write_line(file, event, hash);
    reason = ferror(file) || fflush(file) != 0 || fsync(fd) != 0 ? errno : 0;
  }
  if (file ? fclose(file) != 0 && !reason : fd >= 0 && close(fd) != 0 && !reason)
    reason = errno;
  if (reason)
    trm_error(TRM_FAILED, "%s: cannot be written: %s", path, strerror(reason));
  trm_free(path);
  return reason ? TRM_FAILED : TRM_OK;
}

int trm_audit_verify(const char *directory, uint64_t *lines, char hash[65])
{
  char *path = trm_format("%s/audit.jsonl", directory);
  uint64_t wrong = 0;
  long end;
  FILE *file = fopen(path, "r");
  const int reason = file ? audit_read(file, lines, hash, &end, &wrong) : errno;
  if (file)
    fclose(file);
  if (reason)
    trm_error(TRM_FAILED, "%s: cannot be read: %s", path, strerror(reason));
  else if (wrong)
    trm_error(TRM_FAILED, "%s: line %llu is not the one that was written: it does not follow the line before it%s",
              path, (unsigned long long)wrong, wrong > 1 ? ", or that one was changed" : "");
  trm_free(path);
  return reason || wrong ? TRM_FAILED : TRM_OK;
}
