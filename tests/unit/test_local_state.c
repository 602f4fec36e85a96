/* Local state of ranks: round trips through a checkpoint; if any rank's local state does not match, no rank restores
 * it; a full disk or a damaged file is an error on all ranks. For 1 to 4 ranks. */
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "job_folder.h"
#include "train/local_state.h"

static struct trm_model model;
static float weights[8 * 128];

/* Rank r has r + 1 items and a clock; the last of several ranks, like a parameter server, has none. */
#define ITEM_BYTES 300000
static unsigned char items[TRM_MAX_LOCAL_STATES][ITEM_BYTES];
static uint64_t clock_word;
static const char *const names[] = {"worker", "momentum", "backup", "seen"};

static int local_make(struct trm_local_state local[TRM_MAX_LOCAL_STATES])
{
  if (world->size > 1 && world->rank == world->size - 1)
    return 0;
  local[0] = (struct trm_local_state){"clock", &clock_word, sizeof clock_word};
  for (int i = 0; i <= world->rank; i++) {
    local[1 + i] = (struct trm_local_state){"", items[i], ITEM_BYTES - (size_t)(1000 * world->rank + i)};
    strcpy(local[1 + i].name, names[i]);
  }
  return 2 + world->rank;
}

static void fill(unsigned mark)
{
  clock_word = mark + (unsigned)world->rank;
  for (int i = 0; i < TRM_MAX_LOCAL_STATES; i++)
    for (size_t j = 0; j < ITEM_BYTES; j++)
      items[i][j] = (unsigned char)(j * 7 + mark + (unsigned)(world->rank * 31 + i));
}

/* Returns true if all items equal fill(mark), or there are none. */
static bool is_filled(unsigned mark, const struct trm_local_state *local, int count)
{
  bool same = count == 0 || clock_word == mark + (unsigned)world->rank;
  for (int i = 0; i < count - 1; i++)
    for (size_t j = 0; same && j < local[1 + i].bytes; j++)
      same = items[i][j] == (unsigned char)(j * 7 + mark + (unsigned)(world->rank * 31 + i));
  return same;
}

/* Writes a checkpoint with the local states, as a run does. Collective. */
static int save(const char *path, const struct trm_local_state *local, int count)
{
  struct trm_local_state_gather gather;
  trm_local_state_gather_begin(&gather, world, local, count);
  int status = TRM_OK;
  if (world->rank == 0) {
    const struct trm_checkpoint c = {
      .updates = 17, .model_text = model.text, .loss_name = (char *)model.loss->name, .config = (char *)"",
      .spec = model.spec, .states = 1, .state_name = {"weights"}, .state = {weights}, .local_state_ranks = gather.ranks,
      .read_local_states = trm_local_state_gather_next, .read_local_states_context = &gather};
    status = trm_checkpoint_hdf5.write(path, &c, &model);
  }
  trm_local_state_gather_end(&gather);
  return trm_agree(world, status);
}

static int ranks_of(const char *path)
{
  struct trm_checkpoint c;
  CU_ASSERT_EQUAL_FATAL(trm_checkpoint_hdf5.read_head(path, &c), TRM_OK);
  const int ranks = c.local_state_ranks;
  trm_checkpoint_free(&c);
  return ranks;
}

static void test_round_trip(void)
{
  char *path = trm_format("%s/round.h5", folder);
  struct trm_local_state local[TRM_MAX_LOCAL_STATES];
  const int count = local_make(local);
  bool given = false;
  for (unsigned mark = 1; mark < 4; mark++) {
    fill(mark);
    CU_ASSERT_EQUAL(save(path, local, count), TRM_OK);
    CU_ASSERT(is_filled(mark, local, count));
    CU_ASSERT_EQUAL(ranks_of(path), world->size);
    fill(99);
    CU_ASSERT_EQUAL(trm_local_state_restore(world, &trm_checkpoint_hdf5, path, ranks_of(path), local, count, &given),
                    TRM_OK);
    CU_ASSERT(given);
    CU_ASSERT(is_filled(mark, local, count));
  }
  trm_free(path);
}

static void test_left_out(void)
{
  char *path = trm_format("%s/left.h5", folder);
  struct trm_local_state local[TRM_MAX_LOCAL_STATES];
  const int count = local_make(local);
  bool given = true;
  fill(1);
  CU_ASSERT_EQUAL(save(path, local, count), TRM_OK);
  fill(2);
  /* another number of ranks */
  CU_ASSERT_EQUAL(trm_local_state_restore(world, &trm_checkpoint_hdf5, path, world->size + 1, local, count, &given),
                  TRM_OK);
  CU_ASSERT(!given && is_filled(2, local, count));
  /* a wrong size on one rank: no rank restores */
  const size_t bytes = local[0].bytes;
  if (world->rank == 0)
    local[0].bytes = 4;
  given = true;
  CU_ASSERT_EQUAL(trm_local_state_restore(world, &trm_checkpoint_hdf5, path, world->size, local, count, &given),
                  TRM_OK);
  CU_ASSERT(!given);
  local[0].bytes = bytes;
  CU_ASSERT(is_filled(2, local, count));
  /* a strategy without local state */
  given = true;
  CU_ASSERT_EQUAL(trm_local_state_restore(world, &trm_checkpoint_hdf5, path, world->size, NULL, 0, &given), TRM_OK);
  CU_ASSERT(!given);
  CU_ASSERT_EQUAL(save(path, NULL, 0), TRM_OK);
  CU_ASSERT_EQUAL(ranks_of(path), 0);
  CU_ASSERT_EQUAL(trm_local_state_restore(world, &trm_checkpoint_hdf5, path, 0, local, count, &given), TRM_OK);
  CU_ASSERT(!given && is_filled(2, local, count));
  trm_free(path);
}

/* A disk that is full at any size: all ranks return an error, none hangs. */
static void test_disk_full(void)
{
  char *path = trm_format("%s/full.h5", folder);
  struct trm_local_state local[TRM_MAX_LOCAL_STATES];
  const int count = local_make(local);
  struct rlimit limit;
  struct stat about;
  bool given = false;
  fill(5);
  CU_ASSERT_EQUAL(save(path, local, count), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(stat(path, &about), 0);
  fill(6);
  signal(SIGXFSZ, SIG_IGN);
  getrlimit(RLIMIT_FSIZE, &limit);
  for (int i = 1; i < 10; i++) {
    const rlim_t bytes = (rlim_t)about.st_size * (rlim_t)i / 10;
    limit.rlim_cur = world->rank == 0 ? bytes : RLIM_INFINITY;
    setrlimit(RLIMIT_FSIZE, &limit);
    CU_ASSERT_EQUAL(save(path, local, count), TRM_FAILED);
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "full.h5"));
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  CU_ASSERT_EQUAL(trm_local_state_restore(world, &trm_checkpoint_hdf5, path, world->size, local, count, &given),
                  TRM_OK);
  CU_ASSERT(given && is_filled(5, local, count));
  trm_free(path);
}

/* A damaged item: all ranks return an error that names it. */
static void test_damaged(void)
{
  char *path = trm_format("%s/damaged.h5", folder);
  struct trm_local_state local[TRM_MAX_LOCAL_STATES];
  const int count = local_make(local);
  bool given = true;
  fill(3);
  clock_word = UINT64_C(0x123456789abcdef0) + (uint64_t)world->rank;
  CU_ASSERT_EQUAL(save(path, local, count), TRM_OK);
  if (world->rank == 0) { /* damages its clock */
    FILE *file = fopen(path, "r+b");
    char *all = malloc(4 << 20);
    const size_t length = fread(all, 1, 4 << 20, file);
    const char *place = memmem(all, length, &clock_word, sizeof clock_word);
    CU_ASSERT_PTR_NOT_NULL_FATAL(place);
    fseek(file, place - all, SEEK_SET);
    fputc(1, file);
    fclose(file);
    free(all);
  }
  world->ops->barrier(world);
  CU_ASSERT_EQUAL(trm_local_state_restore(world, &trm_checkpoint_hdf5, path, world->size, local, count, &given),
                  TRM_FAILED);
  CU_ASSERT(!given);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "damaged.h5: ranks/0/clock is damaged"));
  trm_free(path);
}

static void test_name(void)
{
  const struct trm_strategy_ops ops = {.name = "hoarder"};
  struct trm_strategy strategy = {.ops = &ops};
  char name[TRM_LOCAL_STATE_NAME];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  CU_ASSERT_EQUAL(trm_strategy_keep(&strategy, name, &clock_word, 8), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "strategy.name=hoarder: the name of the local state \"nnn"));
  name[sizeof name - 1 - strlen("hoarder: ")] = '\0';
  CU_ASSERT_EQUAL(trm_strategy_keep(&strategy, name, &clock_word, 8), TRM_OK);
  CU_ASSERT_PTR_NOT_NULL(strstr(strategy.local_state[strategy.local_states - 1].name, "hoarder: nnn"));
}

static void test_too_many(void)
{
  const struct trm_strategy_ops ops = {.name = "hoarder"};
  struct trm_strategy strategy = {.ops = &ops};
  for (int i = 0; i < TRM_MAX_LOCAL_STATES; i++)
    CU_ASSERT_EQUAL(trm_strategy_keep(&strategy, "array", &clock_word, sizeof clock_word), TRM_OK);
  CU_ASSERT_EQUAL(trm_strategy_keep(&strategy, "one more", &clock_word, sizeof clock_word), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "hoarder"));
  CU_ASSERT_EQUAL(strategy.local_states, TRM_MAX_LOCAL_STATES);
}

static void test_folder(void)
{
  const struct trm_input_spec spec = {.shape = {.dims = 1, .size = {20}}, .target = TRM_TARGET_CLASS, .classes = 7};
  job_folder();
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "linear 7", "auto", &spec), TRM_OK);
  CU_ASSERT_FATAL(model.parameters <= sizeof weights / sizeof *weights);
}

static void test_removed(void)
{
  trm_model_free(&model);
  job_folder_remove();
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"a folder", test_folder},
    {"round trip", test_round_trip},
    {"not restored", test_left_out},
    {"disk full", test_disk_full},
    {"damaged", test_damaged},
    {"name too long", test_name},
    {"too many", test_too_many},
    {"the folder is removed", test_removed},
    CU_TEST_INFO_NULL,
  };
  return ranks_run(argc, argv, "local_state", tests);
}
