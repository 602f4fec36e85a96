/* Copies of the state in the memory of nodes (train/buddy.h, train/memory_files.h): which rank is the partner and which
 * copy is taken; a copy travels to the partner and, in a restart, to nodes without one; damaged and foreign ones are not
 * read. Each rank stands for a node, with a folder of its own as its memory. For 1 to 4 ranks. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "job_folder.h"
#include "train/buddy.h"
#include "train/memory_files.h"

static struct trm_model model;
static float weights[8 * 128];
static char *memory, *run_folder; /* this node's, of the run */

static void test_partner(void)
{
  CU_ASSERT_EQUAL(trm_buddy_partner((const int[]){0}, 1), -1);
  CU_ASSERT_EQUAL(trm_buddy_partner((const int[]){0, 0, 0, 0}, 4), -1);
  CU_ASSERT_EQUAL(trm_buddy_partner((const int[]){0, 0, 2, 2}, 4), 2);
  CU_ASSERT_EQUAL(trm_buddy_partner((const int[]){0, 1, 2, 3}, 4), 1);
  CU_ASSERT_EQUAL(trm_buddy_partner((const int[]){0, 1, 0, 1}, 4), 1);
}

static void test_choose(void)
{
  CU_ASSERT_EQUAL(trm_buddy_choose((const uint64_t[]){0}, 1), -1);
  CU_ASSERT_EQUAL(trm_buddy_choose((const uint64_t[]){0, 0, 0}, 3), -1);
  CU_ASSERT_EQUAL(trm_buddy_choose((const uint64_t[]){0, 1, 0}, 3), 1); /* of step 0 */
  CU_ASSERT_EQUAL(trm_buddy_choose((const uint64_t[]){5, 7, 6}, 3), 1);
  CU_ASSERT_EQUAL(trm_buddy_choose((const uint64_t[]){7, 5, 7}, 3), 0);
}

/* Writes a checkpoint of a step to this node's memory. */
static int write_copy(uint64_t step)
{
  const struct trm_checkpoint_files files = {.run = run_folder};
  const struct trm_checkpoint c = {
    .updates = step, .model_text = model.text, .loss_name = (char *)model.loss->name, .config = (char *)"",
    .spec = model.spec, .states = 1, .state_name = {"weights"}, .state = {weights}};
  char *path = trm_checkpoint_files_path(&files, step);
  weights[0] = (float)step;
  const int status = trm_checkpoint_hdf5.write(path, &c, &model);
  trm_free(path);
  return status;
}

static bool has_file(const char *folder_name, uint64_t step)
{
  const struct trm_checkpoint_files files = {.run = folder_name};
  char *path = trm_checkpoint_files_path(&files, step);
  const bool there = access(path, F_OK) == 0;
  trm_free(path);
  return there;
}

/* True if this node's memory has an undamaged copy of a step, with its weights. */
static bool has_copy(uint64_t step)
{
  const struct trm_checkpoint_files files = {.run = run_folder};
  char *path = trm_checkpoint_files_path(&files, step);
  struct trm_checkpoint c = {0};
  bool same = access(path, F_OK) == 0 && trm_checkpoint_hdf5.verify(path) == TRM_OK &&
              trm_checkpoint_hdf5.read_head(path, &c) == TRM_OK && c.updates == step &&
              trm_checkpoint_hdf5.read_arrays(path, &c, &model, true) == TRM_OK;
  same = same && c.state[0][0] == (float)step && c.state[0][1] == weights[1];
  trm_checkpoint_free(&c);
  trm_free(path);
  return same;
}

/* Changes a byte in the middle of a copy. */
static void damage(uint64_t step)
{
  const struct trm_checkpoint_files files = {.run = run_folder};
  char *path = trm_checkpoint_files_path(&files, step), byte;
  const int fd = open(path, O_RDWR);
  const off_t at = lseek(fd, 0, SEEK_END) / 2;
  CU_ASSERT_EQUAL(pread(fd, &byte, 1, at), 1);
  byte ^= 1;
  CU_ASSERT_EQUAL(pwrite(fd, &byte, 1, at), 1);
  close(fd);
  trm_free(path);
}

static struct trm_buddy opened(uint64_t keep)
{
  struct trm_buddy buddy;
  CU_ASSERT_EQUAL_FATAL(trm_buddy_open(&buddy, world, world->rank, run_folder, keep, 1000), TRM_OK);
  return buddy;
}

/* Makes a copy as a run does. fails: rank 0 cannot write it. Collective. */
static void copy(struct trm_buddy *buddy, uint64_t step, bool fails)
{
  buddy->step = step;
  weights[0] = (float)step;
  if (buddy->writes)
    buddy->written = !fails && write_copy(step) == TRM_OK;
  if (buddy->writes || buddy->receives)
    trm_buddy_exchange(buddy);
  world->ops->barrier(world);
}

static void test_exchange(void)
{
  struct trm_buddy buddy = opened(UINT64_MAX);
  const bool copies = world->rank <= 1;
  CU_ASSERT_EQUAL(buddy.writes, world->rank == 0);
  CU_ASSERT_EQUAL(buddy.receives, world->rank == 1);
  CU_ASSERT_EQUAL(buddy.pair != NULL, copies && world->size > 1);
  copy(&buddy, 10, false);
  CU_ASSERT_EQUAL(has_copy(10), copies);
  copy(&buddy, 20, false);
  CU_ASSERT_EQUAL(has_copy(20), copies);
  CU_ASSERT(!has_copy(10)); /* both have the new one */
  copy(&buddy, 30, true);
  weights[0] = 20;
  CU_ASSERT_EQUAL(has_copy(20), copies); /* stays, without a new one */
  CU_ASSERT(!has_copy(30));
  trm_buddy_close(&buddy);
}

/* The partner has no place for the file: rank 0 keeps the copy that the partner has, too. */
static void test_partner_fails(void)
{
  struct trm_buddy buddy = opened(20);
  char *blocked = trm_format("%s/checkpoints/step-00000040.h5", run_folder);
  CU_ASSERT(!buddy.writes || has_file(run_folder, 20)); /* of before */
  if (buddy.receives) { /* a folder with that name, which no file replaces */
    CU_ASSERT_EQUAL(mkdir(blocked, 0700), 0);
    trm_free(blocked);
    blocked = trm_format("%s/checkpoints/step-00000040.h5/x", run_folder);
    CU_ASSERT_EQUAL(mkdir(blocked, 0700), 0);
  }
  copy(&buddy, 40, false);
  if (world->rank == 0) {
    CU_ASSERT(has_copy(40));
    CU_ASSERT_EQUAL(has_file(run_folder, 20), world->size > 1);
  }
  if (buddy.receives) {
    weights[0] = 20;
    CU_ASSERT(has_copy(20));
    CU_ASSERT_EQUAL(rmdir(blocked), 0);
    *strrchr(blocked, '/') = '\0';
    CU_ASSERT_EQUAL(rmdir(blocked), 0);
  }
  trm_free(blocked);
  trm_buddy_close(&buddy);
}

static void test_find(void)
{
  uint64_t step = 0;
  const int last = world->size - 1;
  trm_memory_files_remove(run_folder, false);
  CU_ASSERT(!trm_buddy_find(world, world->rank, &trm_checkpoint_hdf5, run_folder, 0, &step));
  CU_ASSERT_EQUAL(trm_memory_files_make(run_folder, UINT64_MAX), TRM_OK);
  /* the last node has a newer one than the others */
  CU_ASSERT_EQUAL(write_copy(world->rank == last ? 60 : 50), TRM_OK);
  CU_ASSERT(!trm_buddy_find(world, world->rank, &trm_checkpoint_hdf5, run_folder, 61, &step)); /* a file is newer */
  CU_ASSERT(trm_buddy_find(world, world->rank, &trm_checkpoint_hdf5, run_folder, 60, &step));
  CU_ASSERT_EQUAL(step, 60);
  weights[0] = 60;
  CU_ASSERT(has_copy(60));
  /* it is damaged there: that of another node, or the one before */
  CU_ASSERT_EQUAL(trm_memory_files_make(run_folder, UINT64_MAX), TRM_OK);
  CU_ASSERT_EQUAL(write_copy(70), TRM_OK);
  if (world->rank == last) {
    CU_ASSERT_EQUAL(write_copy(80), TRM_OK);
    damage(80);
  }
  CU_ASSERT(trm_buddy_find(world, world->rank, &trm_checkpoint_hdf5, run_folder, 0, &step));
  CU_ASSERT_EQUAL(step, 70);
  CU_ASSERT(!has_file(run_folder, 80));
}

/* Nothing is read from a folder that others can write in, or written to it. */
static void test_private(void)
{
  uint64_t step;
  CU_ASSERT_EQUAL(trm_memory_files_make(run_folder, UINT64_MAX), TRM_OK);
  CU_ASSERT_EQUAL(write_copy(90), TRM_OK);
  CU_ASSERT(trm_memory_files_newest(run_folder, &trm_checkpoint_hdf5, 0, &step));
  CU_ASSERT_EQUAL(chmod(run_folder, 0770), 0);
  CU_ASSERT(!trm_memory_files_newest(run_folder, &trm_checkpoint_hdf5, 0, &step));
  CU_ASSERT_EQUAL(trm_memory_files_make(run_folder, UINT64_MAX), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "not a folder of this user alone"));
  trm_memory_files_remove(run_folder, false);
  CU_ASSERT(has_file(run_folder, 90));
  CU_ASSERT_EQUAL(chmod(run_folder, 0700), 0);
}

static void test_space(void)
{
  CU_ASSERT_EQUAL(trm_memory_files_make(run_folder, UINT64_MAX), TRM_OK);
  CU_ASSERT_EQUAL(trm_memory_files_check_space(run_folder, 1000), TRM_OK);
  CU_ASSERT_EQUAL(trm_memory_files_check_space(run_folder, 1e18), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "run.buddy: two copies of the state take 1000000000000.0 MB"));
  CU_ASSERT_EQUAL(trm_memory_files_check_space("/nowhere/at/all", 1), TRM_FAILED);
  CU_ASSERT_EQUAL(trm_memory_files_make("/nowhere/at/all", UINT64_MAX), TRM_FAILED);
}

static void write_log(const char *line)
{
  char *path = trm_format("%s/audit.jsonl", memory);
  FILE *log = fopen(path, "w");
  fprintf(log, "%s\nmore\n", line);
  fclose(log);
  trm_free(path);
}

/* The folder's name is that of the run, by its directory and the beginning of its log. */
static void test_names(void)
{
  CU_ASSERT_PTR_NULL(trm_memory_files_folder(memory, memory)); /* no log */
  write_log("one");
  char *one = trm_memory_files_folder(memory, memory);
  write_log("two");
  char *two = trm_memory_files_folder(memory, memory);
  CU_ASSERT_STRING_NOT_EQUAL(one, two);
  CU_ASSERT_EQUAL(strncmp(one, two, strlen(one) - 16), 0);
  CU_ASSERT_EQUAL(trm_memory_files_make(one, UINT64_MAX), TRM_OK);
  CU_ASSERT_EQUAL(trm_memory_files_make(two, UINT64_MAX), TRM_OK);
  trm_memory_files_remove(two, true); /* those of earlier runs */
  CU_ASSERT(access(one, F_OK) != 0);
  CU_ASSERT(access(two, F_OK) == 0);
  trm_memory_files_remove(two, false);
  CU_ASSERT(access(two, F_OK) != 0);
  CU_ASSERT(access(run_folder, F_OK) == 0); /* of another run directory */
  trm_free(one);
  trm_free(two);
}

static void test_folder(void)
{
  const struct trm_input_spec spec = {.shape = {.dims = 1, .size = {127}}, .target = TRM_TARGET_CLASS, .classes = 7};
  job_folder();
  memory = trm_format("%s/%d", folder, world->rank);
  run_folder = trm_format("%s/trireme-0123456789abcdef-0123456789abcdef", memory);
  CU_ASSERT_EQUAL_FATAL(mkdir(memory, 0700), 0);
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "linear 7", "auto", &spec), TRM_OK);
  for (size_t i = 0; i < model.parameters; i++)
    weights[i] = (float)i;
}

static void test_removed(void)
{
  trm_memory_files_remove(run_folder, false);
  CU_ASSERT(access(run_folder, F_OK) != 0);
  trm_free(run_folder);
  trm_free(memory);
  trm_model_free(&model);
  job_folder_remove();
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"partner", test_partner},
    {"newest copy", test_choose},
    {"a folder", test_folder},
    {"exchange", test_exchange},
    {"the partner fails", test_partner_fails},
    {"restart", test_find},
    {"private", test_private},
    {"space", test_space},
    {"names", test_names},
    {"the folder is removed", test_removed},
    CU_TEST_INFO_NULL,
  };
  return ranks_run(argc, argv, "copies in memory", tests);
}
