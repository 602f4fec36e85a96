/* trireme status: the state of a run, read from the files in its directory. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/run_state.h"
#include "cli/status_ledger.h"
#include "core/audit.h"
#include "core/document.h"
#include "core/memory.h"
#include "core/status.h"

static const char usage[] =
  "usage: trireme status RUN [--exit-code] [--audit]\n"
  "\n"
  "Prints the state of a run, from the files in its directory: finished, stopped, failed, stalled\n"
  "or not ended; the latest losses, with step and epoch; and what each rank of a run that goes on\n"
  "or has stalled does, as of some seconds ago.\n"
  "\n"
  "  --exit-code  the exit status is the run's, for batch scripts: 0 finished; 3 stopped by a\n"
  "               signal after a checkpoint, to be resumed; 1 failed; 4 stalled, to be resumed;\n"
  "               5 not ended: running, or killed. Without this flag 0. In any case 2: there is no run.\n"
  "  --audit      verifies the audit log and prints the SHA-256 of its last line, to be kept\n"
  "               elsewhere; exit status 1: a line was changed, removed or inserted.\n";

struct status_flags {
  bool exit_code, audit;
};
static const struct trm_option flags[] = {
  {"exit-code", TRM_OPTION_BOOL, offsetof(struct status_flags, exit_code), NULL, NO_RANGE},
  {"audit", TRM_OPTION_BOOL, offsetof(struct status_flags, audit), NULL, NO_RANGE}, END_OF_FLAGS};

/* The latest line of each kind in metrics.jsonl. */
enum line_kind { LINE_TRAIN, LINE_VALIDATION, LINE_TEST, LINE_KINDS };
static const struct {
  const char *name, *loss, *accuracy;
} kinds[LINE_KINDS] = {{"train", "loss", "accuracy"},
                       {"validation", "validation_loss", "validation_accuracy"},
                       {"test", "test_loss", "test_accuracy"}};

static bool status_is_of_kind(const char *line, enum line_kind kind)
{
  char key[64];
  snprintf(key, sizeof key, "\"%s\":", kinds[kind].loss);
  return strstr(line, key) != NULL;
}

/* Keeps the latest complete line of each kind, NULL: none; free. */
static void status_read_lines(FILE *in, char *latest[LINE_KINDS])
{
  char *line = NULL;
  size_t capacity = 0;
  for (ssize_t length; (length = getline(&line, &capacity, in)) > 0;)
    for (int kind = 0; kind < LINE_KINDS && line[length - 1] == '\n'; kind++)
      if (status_is_of_kind(line, (enum line_kind)kind)) {
        free(latest[kind]);
        latest[kind] = line;
        line = NULL;
        capacity = 0;
        break;
      }
  free(line);
}

static void status_print_line(enum line_kind kind, const struct trm_node *line)
{
  const double loss = trm_node_number(trm_node_get(line, kinds[kind].loss), NAN);
  const double accuracy = trm_node_number(trm_node_get(line, kinds[kind].accuracy), NAN);
  printf("%-10s  step %.0f, epoch %.0f: loss ", kinds[kind].name, trm_node_number(trm_node_get(line, "step"), NAN),
         trm_node_number(trm_node_get(line, "epoch"), NAN));
  printf(isnan(loss) ? "-" : "%.4g", loss);
  if (!isnan(accuracy))
    printf(", accuracy %.2f%%", 100 * accuracy);
  printf("\n");
}

static int status_print_metrics(const char *path)
{
  char *latest[LINE_KINDS] = {NULL};
  struct stat about;
  int status = TRM_OK;
  FILE *in = fopen(path, "r");
  if (!in)
    return TRM_OK; /* the run has not begun to train */
  status_read_lines(in, latest);
  for (int kind = 0; kind < LINE_KINDS; kind++) {
    struct trm_node *line = NULL;
    if (latest[kind] && status == TRM_OK)
      status = trm_document_parse(latest[kind], strlen(latest[kind]), path, &line);
    if (line)
      status_print_line((enum line_kind)kind, line);
    trm_node_free(line);
    free(latest[kind]);
  }
  if (fstat(fileno(in), &about) == 0)
    printf("%-10s  %.0f s ago\n", "last line", difftime(time(NULL), about.st_mtime));
  fclose(in);
  return status;
}

static int status_verify_audit(const char *run)
{
  char hash[65];
  uint64_t lines;
  TRM_CHECK(trm_audit_verify(run, &lines, hash));
  printf("%-10s  %llu lines verified, last line %s\n", "audit", (unsigned long long)lines, hash);
  return TRM_OK;
}

static int cmd_status_run(const struct call *call)
{
  const struct status_flags *f = call->values;
  const char *run = call->args[0];
  const struct run_state *state;
  char *config = trm_format("%s/config.yaml", run), *metrics = trm_format("%s/metrics.jsonl", run);
  int status = access(config, F_OK) == 0
                 ? TRM_OK : trm_error(TRM_USAGE, "%s: there is no run: %s: %s", run, config, strerror(errno));
  if (status == TRM_OK)
    status = run_state_read(run, &state);
  if (status == TRM_OK) {
    printf("%-10s  %s\n%-10s  %s\n", "run", run, "state", state->text);
    status = status_print_metrics(metrics);
    status_print_ledger(run);
  }
  if (status == TRM_OK && f->audit)
    status = status_verify_audit(run);
  trm_free(config);
  trm_free(metrics);
  if (status != TRM_OK || !f->exit_code || state->code == TRM_OK)
    return status;
  return trm_error(state->code, "%s: %s", run, state->text);
}

const struct command cmd_status = {
  .name = "status", .help = "print the state of a run",
  .usage = usage, .flags = flags, .bytes = sizeof(struct status_flags), .max_args = 1,
  .missing = "no run named",
  .run = cmd_status_run,
};
