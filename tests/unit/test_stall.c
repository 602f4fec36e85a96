/* The ledger's entries and files, and what is said about ranks that stand still. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/ledger.h"
#include "core/memory.h"
#include "core/status.h"
#include "job/stall.h"
#include "suite.h"
#include "train/run_dir.h"

/* Ranks of a job in which every rank waits in one allreduce of the data axis for 61 s. */
static void stall_ranks(struct trm_ledger_rank *rank, int ranks)
{
  for (int i = 0; i < ranks; i++) {
    rank[i] = (struct trm_ledger_rank){
      .rank = i, .pid = 100 + i, .host = "a", .runs = true, .state = 'S', .since_s = 61, .phase = TRM_LEDGER_STEP,
      .step = 812, .layer = -1,
      .call = {.operation = TRM_LEDGER_ALLREDUCE, .role = TRM_COMM_DATA, .group = 7, .number = 9, .bytes = 4096,
               .peer = -1}};
  }
}

/* Returns true if the text about the ranks is `expected` (NULL: there is none). */
static bool stall_says(const struct trm_ledger_rank *rank, int ranks, int job_ranks, const char *expected)
{
  char *text = trm_stall_describe(rank, ranks, job_ranks, 60);
  const bool same = text && expected ? strcmp(text, expected) == 0 : text == expected;
  if (!same)
    printf("\n  %s\n  expected %s\n", text ? text : "(none)", expected ? expected : "(none)");
  trm_free(text);
  return same;
}

static void test_computes(void)
{
  struct trm_ledger_rank rank[8];
  stall_ranks(rank, 8);
  rank[3].call.operation = TRM_LEDGER_COMPUTE;
  rank[3].layer = 4;
  CU_ASSERT(stall_says(rank, 8, 8, "rank 3 (host a, pid 103) computes forward of layer 4 in step 812, for 61 s; "
                                   "7 ranks wait for it in allreduce #9 of the data axis (4096 bytes)"));
  rank[3].since_s = 59; /* it makes progress */
  CU_ASSERT(stall_says(rank, 8, 8, NULL));
  CU_ASSERT(stall_says(NULL, 0, 0, NULL)); /* a run without a ledger */
}

static void test_stopped(void)
{
  struct trm_ledger_rank rank[4];
  stall_ranks(rank, 4);
  rank[0].runs = false;
  rank[0].state = 'T';
  rank[1].call = (struct trm_ledger_call){.operation = TRM_LEDGER_READ};
  CU_ASSERT(stall_says(rank, 4, 6,
                       "rank 0 (host a, pid 100) is stopped by a signal, for 61 s (it waits in allreduce #9 of the "
                       "data axis (4096 bytes) in step 812), rank 1 (host a, pid 101) reads data in step 812, for 61 "
                       "s; 2 ranks wait for them in allreduce #9 of the data axis (4096 bytes); nothing is known of 2 "
                       "ranks on other nodes"));
}

static void test_mismatch(void)
{
  struct trm_ledger_rank rank[4];
  stall_ranks(rank, 4);
  rank[3].call.operation = TRM_LEDGER_ALLGATHER;
  CU_ASSERT(stall_says(rank, 4, 4, "collectives do not match: rank 3 (host a, pid 103) is in allgather #9 of the data "
                                   "axis (4096 bytes), 3 ranks wait in allreduce #9 of the data axis (4096 bytes), for "
                                   "61 s"));
  rank[3].call.operation = TRM_LEDGER_ALLREDUCE;
  rank[3].call.bytes = 4;
  CU_ASSERT(stall_says(rank, 4, 4, "collectives do not match: rank 3 (host a, pid 103) is in allreduce #9 of the data "
                                   "axis (4 bytes), 3 ranks wait in allreduce #9 of the data axis (4096 bytes), for "
                                   "61 s"));
}

static void test_deadlock(void)
{
  struct trm_ledger_rank rank[3];
  stall_ranks(rank, 3);
  rank[1].call = (struct trm_ledger_call){.operation = TRM_LEDGER_RECEIVE, .role = TRM_COMM_PIPELINE, .peer = 2};
  rank[2].call.group = 8; /* another communicator of that role */
  CU_ASSERT(stall_says(rank, 3, 3, "all ranks wait: 2 ranks wait in allreduce #9 of the data axis (4096 bytes), rank 1 "
                                   "(host a, pid 101) waits for a message of rank 2 of the pipeline axis, for 61 s"));
  rank[2].since_s = 0; /* one of them makes progress: the others wait by right */
  CU_ASSERT(stall_says(rank, 3, 3, NULL));
}

/* The marks of a thread with an entry, and none of one without. */
static void test_entry(void)
{
  struct trm_ledger_entry *entry = trm_alloc(trm_ledger_entry_bytes(), "a test");
  struct trm_ledger_rank rank;
  char text[256];
  trm_ledger_set_phase(TRM_LEDGER_STEP, 5); /* without an entry */
  trm_ledger_open(entry, 3);
  trm_ledger_read(entry, &rank);
  const uint64_t progress = rank.progress;
  CU_ASSERT_STRING_EQUAL(trm_ledger_text(&rank, text), "computes in the set-up");
  trm_ledger_set_phase(TRM_LEDGER_STEP, 6);
  trm_ledger_set_layer(2, TRM_LEDGER_BACKWARD);
  trm_ledger_read(entry, &rank);
  CU_ASSERT_STRING_EQUAL(trm_ledger_text(&rank, text), "computes backward of layer 2 in step 6");
  const enum trm_ledger_operation outer =
    trm_ledger_enter(&(struct trm_ledger_call){.operation = TRM_LEDGER_WRITE});
  const enum trm_ledger_operation inner = trm_ledger_enter(
    &(struct trm_ledger_call){.operation = TRM_LEDGER_BARRIER, .role = TRM_COMM_NODE, .number = 4, .peer = -1});
  trm_ledger_read(entry, &rank);
  CU_ASSERT_STRING_EQUAL(trm_ledger_text(&rank, text), "waits in barrier #4 of the node in step 6");
  trm_ledger_leave(inner);
  trm_ledger_read(entry, &rank);
  CU_ASSERT_STRING_EQUAL(trm_ledger_text(&rank, text), "writes a file in step 6");
  trm_ledger_leave(outer);
  trm_ledger_add_answer();
  trm_ledger_read(entry, &rank);
  CU_ASSERT_STRING_EQUAL(trm_ledger_text(&rank, text), "computes backward of layer 2 in step 6");
  CU_ASSERT_EQUAL(rank.progress, progress + 7); /* six marks and an answer */
  CU_ASSERT_EQUAL(rank.rank, 3);
  CU_ASSERT_EQUAL(rank.pid, getpid());
  trm_ledger_open(NULL, 3);
  trm_ledger_add_progress();
  trm_ledger_read(entry, &rank);
  CU_ASSERT_EQUAL(rank.progress, progress + 7);
  trm_free(entry);
}

/* Files are read as they were written; other files and damaged lines are not ranks. */
static void test_files(void)
{
  struct trm_ledger_rank rank[300], *read, one[1];
  char folder[] = "/tmp/ledgerXXXXXX", path[64];
  double age, written;
  uint64_t beat;
  CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
  CU_ASSERT_EQUAL(trm_ledger_folder_read(folder, &read, &age), 0);
  CU_ASSERT(age < 0);
  trm_free(read);
  snprintf(path, sizeof path, "%s/ledger", folder);
  stall_ranks(rank, 300);
  CU_ASSERT_EQUAL(trm_ledger_file_write(path, 1, rank + 1, 299, 41), 0);
  CU_ASSERT_EQUAL(trm_ledger_file_write(path, 0, rank, 1, 42), 0);
  CU_ASSERT_EQUAL(trm_ledger_folder_read(folder, &read, &age), 300);
  CU_ASSERT(age >= 0 && age < 60);
  for (int i = 0; i < 300; i++) {
    CU_ASSERT(read[i].rank == i && read[i].pid == rank[i].pid && read[i].runs && read[i].state == 'S');
    CU_ASSERT_EQUAL(read[i].since_s, 61);
  }
  CU_ASSERT(stall_says(read, 300, 300, "all ranks wait: 300 ranks wait in allreduce #9 of the data axis (4096 bytes), "
                                       "for 61 s"));
  trm_free(read);
  snprintf(path, sizeof path, "%s/ledger/node-0.jsonl", folder);
  CU_ASSERT_EQUAL(trm_ledger_file_read(path, one, 1, &beat, &written), 1);
  CU_ASSERT_EQUAL(beat, 42);
  FILE *file = fopen(path, "w");
  fputs("{\"rank\":0,\"host\":\"a\"}\n", file);
  fclose(file);
  CU_ASSERT_EQUAL(trm_ledger_file_read(path, one, 1, &beat, &written), 0);
  unlink(path);
  snprintf(path, sizeof path, "%s/ledger/node-1.jsonl", folder);
  unlink(path);
  snprintf(path, sizeof path, "%s/ledger", folder);
  CU_ASSERT_EQUAL(rmdir(path), 0); /* nothing else was left */
  rmdir(folder);
}

/* The summary of a run that was ended, and the error where it cannot be written. */
static void test_summary(void)
{
  char folder[] = "/tmp/stalledXXXXXX", path[64], text[1000] = "";
  CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
  CU_ASSERT_EQUAL(trm_run_dir_write_stalled(folder, "rank 2 is in allreduce", 3, 7), TRM_OK);
  snprintf(path, sizeof path, "%s/summary.json", folder);
  FILE *file = fopen(path, "r");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  CU_ASSERT_PTR_NOT_NULL(strstr(text, "\"status\":\"stalled\",\"reason\":\"rank 2 is in allreduce\",\"ranks\":3,"
                                      "\"steps\":7}"));
  unlink(path);
  snprintf(path, sizeof path, "%s/audit.jsonl", folder);
  CU_ASSERT_EQUAL(unlink(path), 0);
  CU_ASSERT_EQUAL(rmdir(folder), 0);
  CU_ASSERT_EQUAL(trm_run_dir_write_stalled(folder, "none", 3, 7), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "/summary.json"));
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"a rank that computes", test_computes},
    {"a stopped rank", test_stopped},
    {"collectives that do not match", test_mismatch},
    {"all ranks wait", test_deadlock},
    {"entries", test_entry},
    {"files", test_files},
    {"summary", test_summary},
    CU_TEST_INFO_NULL,
  };
  return suite_run("stall", tests);
}
