/* The files of a run: what report, status and a resumed run read; and the record of an asynchronous run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/report.h"
#include "core/memory.h"
#include "core/status.h"
#include "fuzz.h"
#include "mpi/async/call_order.h"
#include "train/run_dir.h"

static void fuzz_report(char *folder)
{
  struct report report = {.target = NAN, .window = {NAN, NAN}};
  if (report_read(&report, 1, &folder) == TRM_OK) {
    report_make_groups(&report);
    report_html(fuzz_path("report.html"), "fuzz", &report);
  }
  report_free(&report);
}

static void fuzz_status(char *folder)
{
  bool set[] = {true, true}; /* every flag */
  char *args[] = {folder, NULL};
  cmd_status.run(&(struct call){.command = &cmd_status, .values = set, .args = args, .nargs = 1});
}

static void fuzz_resume(const char *folder)
{
  struct trm_options options;
  struct trm_run_dir dir = {0};
  uint64_t steps;
  bool early;
  trm_options_default(&options);
  trm_run_dir_is_finished(folder, &steps, &early);
  const struct trm_run_options run = {.dir = (char *)folder, .group = ""};
  if (trm_run_dir_take(&dir, &run, -1) == TRM_OK)
    trm_run_dir_open(&dir, &options, 3);
  trm_run_dir_close(&dir);
  trm_options_free(&options);
}

/* The files, one after the other; fewer leave the last ones out. */
static void fuzz_folder(struct fuzz_input input)
{
  static const char *const names[] = {"config.yaml", "metrics.jsonl",  "summary.json",
                                      "staleness.json", "trace.json", "ledger/node-0.jsonl", "lease"};
  mkdir(fuzz_path("ledger"), 0777);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (input.count)
      fuzz_file(names[i], fuzz_part(&input));
    else
      unlink(fuzz_path(names[i]));
  char *folder = trm_strdup(fuzz_path("."));
  fuzz_report(folder);
  fuzz_status(folder);
  fuzz_resume(folder);
  trm_free(folder);
}

static void fuzz_replay(struct fuzz_input input)
{
  struct call_order *order;
  fuzz_file("rank-0.txt", input);
  char *folder = trm_strdup(fuzz_path("."));
  if (call_order_create(&order, &(struct call_order_plan){.comm = trm_comm_self(), .replay = folder, .run = "run 1",
                                                          .replicas = 2, .chunks = 3}) == TRM_OK)
    call_order_free(order);
  trm_free(folder);
}

/* A run's folder ('f'), or the record of an asynchronous run. */
void fuzz_run(struct fuzz_input input)
{
  if (fuzz_variant(&input) == 'f')
    fuzz_folder(input);
  else
    fuzz_replay(input);
}
