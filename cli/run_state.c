#include "cli/run_state.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/document.h"
#include "core/memory.h"
#include "core/status.h"

static const struct run_state states[] = {
  {"done", TRM_OK, "finished"},
  {"early-stop", TRM_OK, "finished: stopped early"},
  {"stopped", TRM_STOPPED, "stopped by a signal after a checkpoint; run.resume=auto resumes it"},
  {"failed", TRM_FAILED, "failed"},
  {"stalled", TRM_STALLED, "stalled: no rank made progress, and the job was ended; run.resume=auto resumes it"},
  {NULL, RUN_NOT_ENDED, "not ended: it is running, or was killed"},
};

int run_state_read(const char *run, const struct run_state **state)
{
  char *path = trm_format("%s/summary.json", run);
  struct trm_node *summary = NULL;
  const char *text = NULL;
  int status = TRM_OK;
  if (access(path, F_OK) == 0) {
    status = trm_document_read(path, &summary);
    const struct trm_node *node = status == TRM_OK ? trm_node_get(summary, "status") : NULL;
    text = node && node->text ? node->text : "failed";
  }
  for (*state = states; (*state)->status && (!text || strcmp(text, (*state)->status) != 0);)
    ++*state;
  trm_node_free(summary);
  trm_free(path);
  return status;
}

static struct run_file run_state_look(const char *run, const char *name)
{
  struct stat info;
  char *path = trm_format("%s/%s", run, name);
  const bool there = stat(path, &info) == 0;
  trm_free(path);
  return there ? (struct run_file){info.st_ino, info.st_mtim} : (struct run_file){0};
}

void run_files_look(const char *run, struct run_files *files)
{
  *files = (struct run_files){.config = run_state_look(run, "config.yaml"),
                              .summary = run_state_look(run, "summary.json"),
                              .lease = run_state_look(run, "lease")};
  char *path = trm_format("%s/checkpoints/last.h5", run);
  if (readlink(path, files->newest, sizeof files->newest - 1) < 0)
    files->newest[0] = '\0';
  trm_free(path);
}

bool run_file_differs(const struct run_file *a, const struct run_file *b)
{
  return a->number != b->number || a->written.tv_sec != b->written.tv_sec || a->written.tv_nsec != b->written.tv_nsec;
}
