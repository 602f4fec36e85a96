/* Data set files and the loader: every kind of row is read as written; one order of samples for any number of ranks, in
 * memory and streamed. For 1 or more ranks. */
#include "datasets/order.h"
#include "job_folder.h"

static char *file_name(const char *name)
{
  return trm_format("%s/%s", folder, name);
}

/* Rank 0 writes a file; all ranks check its status. */
static char *file_make(const char *name, enum made_kind kind, size_t width, uint64_t rows, uint64_t test, int compress)
{
  char *path = file_name(name);
  const int status = world->rank == 0 ? made_file(path, kind, width, rows, test, compress) : TRM_OK;
  CU_ASSERT_EQUAL(trm_agree(world, status), TRM_OK);
  return path;
}

static struct trm_options options_of(int64_t memory, int64_t batch)
{
  return (struct trm_options){
    .data = {.shuffle = true, .memory = memory, .threads = 1, .context = 10},
    .train = {.batch = batch}, .parallel = {.share = TRM_SHARE_NODE}, .run = {.seed = 5},
  };
}

/* -- order of samples */

static void check_order(uint64_t rows, size_t block_rows, uint64_t window_blocks, bool shuffle)
{
  struct order order;
  order_init(&order, 42, shuffle, rows, block_rows, window_blocks);
  unsigned char *seen = calloc(rows, 1);
  for (uint64_t epoch = 0; epoch < 3; epoch++) {
    struct order_epoch at = {0};
    order_epoch_enter(&order, &at, epoch);
    bool good = order_window_start(&order, &at, 0) == 0 && order_window_start(&order, &at, order.windows) == rows;
    uint64_t last = 0;
    for (uint64_t p = 0; p < rows; p++) {
      const uint64_t window = order_window_of(&order, &at, p);
      uint64_t in_window;
      order_row_indices(&order, &at, window, p, 1, &in_window);
      const size_t place = (size_t)(in_window / order.block_rows), row = (size_t)(in_window % order.block_rows);
      good = good && window >= last && window < order.windows && order_window_start(&order, &at, window) <= p &&
             p < order_window_start(&order, &at, window + 1) && place < order_window_blocks(&order, window);
      last = window;
      const uint64_t block = order_block(&order, &at, window, place);
      good = good && row < order_block_size(&order, block);
      const uint64_t number = block * order.block_rows + row;
      good = good && number < rows && seen[number] == epoch;
      if (good)
        seen[number]++;
      if (!shuffle)
        good = good && number == p;
    }
    CU_ASSERT(good);
  }
  free(seen);
}

/* The order of samples does not depend on the ranks: one checks it. */
static void test_order(void)
{
  if (world->size > 1)
    return;
  const uint64_t rows[] = {1, 2, 3, 10, 64, 100, 1000, 4097};
  const size_t blocks[] = {1, 2, 7, 64, 5000};
  const uint64_t windows[] = {1, 2, 3, 5, 1000000};
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
    for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++)
      for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
        check_order(rows[r], blocks[b], windows[w], true);
        check_order(rows[r], blocks[b], windows[w], false);
      }
}

/* A window's rows come from random blocks of the whole split, shuffled; epochs and seeds differ. */
static void test_order_mixes(void)
{
  struct order order, other;
  struct order_epoch at = {0}, next = {0};
  const uint64_t rows = 100000;
  order_init(&order, 1, true, rows, 100, 50);
  order_init(&other, 2, true, rows, 100, 50);
  order_epoch_enter(&order, &at, 0);
  order_epoch_enter(&order, &next, 1);
  uint64_t same_epoch = 0, same_seed = 0, rising = 0, before = 0;
  double mean = 0;
  for (uint64_t p = 0; p < 5000; p++) { /* the first window */
    uint64_t number[3];
    const struct order *orders[] = {&order, &order, &other};
    const struct order_epoch *epochs[] = {&at, &next, &at};
    for (int i = 0; i < 3; i++) {
      order_row_indices(orders[i], epochs[i], 0, p, 1, &number[i]);
      number[i] = order_block(orders[i], epochs[i], 0, (size_t)(number[i] / 100)) * 100 + number[i] % 100;
    }
    same_epoch += number[0] == number[1];
    same_seed += number[0] == number[2];
    rising += number[0] == before + 1;
    before = number[0];
    mean += (double)number[0] / 5000;
  }
  CU_ASSERT(same_epoch < 10 && same_seed < 10);
  CU_ASSERT(rising < 100);
  /* 50 blocks of 1,000: the standard deviation of the mean is 1000 * 100 / sqrt(12 * 50) = 4082 */
  CU_ASSERT(mean > 50000 - 4 * 4082 && mean < 50000 + 4 * 4082);
}

/* -- every kind of row */

/* Reads a split in file order, sharded over the ranks, and checks each row. */
static void check_rows(const char *path, enum made_kind kind, size_t width, enum trm_split split,
                       struct trm_options *options, struct trm_comm *comm, uint64_t rows)
{
  struct trm_dataset *data;
  options->data.shuffle = false;
  const int status = trm_dataset_hdf5.open(&data, path, split, options, comm);
  CU_ASSERT_EQUAL(status, TRM_OK);
  if (status != TRM_OK) {
    printf("%s\n", trm_error_text());
    return;
  }
  CU_ASSERT_EQUAL(data->rows, rows);
  struct trm_host_batch batch = {0};
  size_t low, high, wrong = 0;
  const size_t context = (size_t)options->data.context;
  const bool overlaps = split == TRM_SPLIT_TRAIN && options->data.stride > 0;
  const size_t stride = overlaps ? (size_t)options->data.stride : context;
  trm_interval(data->rows, (size_t)comm->size, (size_t)comm->rank, &low, &high);
  for (size_t at = low, part = 1; at < high; at += part, part = part * 5 % 601 + 1) {
    part = high - at < part ? high - at : part;
    const int fetched = data->ops->fetch(data, 0, at, at + part, &batch);
    CU_ASSERT_EQUAL(fetched, TRM_OK);
    if (fetched != TRM_OK) {
      printf("%s\n", trm_error_text());
      break;
    }
    CU_ASSERT_EQUAL(batch.rows, part);
    for (size_t i = 0; i < part; i++)
      wrong += !made_is_row_strided(kind, width, context, stride, &batch, i, at + i);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  trm_host_batch_free(&batch);
  data->ops->close(data);
}

static const enum trm_share shares[] = {TRM_SHARE_NODE, TRM_SHARE_NUMA, TRM_SHARE_NONE};

/* A split read in memory and streamed. */
static void check_kind(enum made_kind kind, int compress)
{
  const size_t width = 30;
  const bool tokens = kind == MADE_TOKENS || kind == MADE_WIDE_TOKENS;
  const uint64_t rows = tokens ? 100003 : 10007, test = tokens ? 45 : 1;
  char *path = file_make("kind.h5", kind, width, rows, test, compress);
  for (int i = 0; i < 3; i++) {
    struct trm_options options = options_of(1 << 30, 64);
    options.parallel.share = shares[i];
    const uint64_t samples = tokens ? (rows - 1) / 10 : rows;
    check_rows(path, kind, width, TRM_SPLIT_TRAIN, &options, world, samples);
    if (i > 0) /* the other checks do not depend on parallel.share */
      continue;
    if (world->size < 3)
      check_rows(path, kind, width, TRM_SPLIT_TRAIN, &options, trm_comm_self(), samples);
    check_rows(path, kind, width, TRM_SPLIT_TEST, &options, world, tokens ? 4 : 1);
    options.data.limit = 4321;
    check_rows(path, kind, width, TRM_SPLIT_TRAIN, &options, world, 4321);
    options.data.memory = 100000;
    check_rows(path, kind, width, TRM_SPLIT_TRAIN, &options, world, 4321);
    options.data.limit = 0;
    check_rows(path, kind, width, TRM_SPLIT_TRAIN, &options, world, samples);
    if (!tokens)
      continue;
    options.data.stride = 3; /* overlapping rows in train, not in test */
    check_rows(path, kind, width, TRM_SPLIT_TRAIN, &options, world, (rows - 11) / 3 + 1);
    check_rows(path, kind, width, TRM_SPLIT_TEST, &options, world, 4);
    options.data.memory = 1 << 30;
    check_rows(path, kind, width, TRM_SPLIT_TRAIN, &options, world, (rows - 11) / 3 + 1);
    options.data.limit = 1000;
    check_rows(path, kind, width, TRM_SPLIT_TRAIN, &options, world, 1000);
  }
  trm_free(path);
}

static void test_kinds(void)
{
  for (int kind = 0; kind < MADE_KINDS; kind++)
    check_kind((enum made_kind)kind, 0);
}

static void test_kinds_compressed(void)
{
  for (int kind = 0; kind < MADE_KINDS; kind++)
    check_kind((enum made_kind)kind, 4);
}

/* Sparse rows accessed in place equal those of a fetch: in memory, in windows, and out of order. */
static void check_rows_in_place(const char *path, int64_t memory, bool shuffle, uint64_t rows)
{
  struct trm_options options = options_of(memory, 64);
  struct trm_dataset *copied, *in_place;
  struct trm_host_batch one = {0}, other = {0};
  struct trm_sparse_row row[64];
  size_t wrong = 0;
  options.data.shuffle = shuffle;
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&copied, path, TRM_SPLIT_TRAIN, &options, trm_comm_self()), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&in_place, path, TRM_SPLIT_TRAIN, &options, trm_comm_self()), TRM_OK);
  for (uint64_t epoch = 0; epoch < 2; epoch++)
    for (size_t low = 0, high; low < rows; low = high) {
      high = low + 64 < rows ? low + 64 : rows;
      CU_ASSERT_EQUAL_FATAL(copied->ops->fetch(copied, epoch, low, high, &one), TRM_OK);
      CU_ASSERT_EQUAL_FATAL(in_place->ops->fetch_rows(in_place, epoch, low, high, &other, row), TRM_OK);
      CU_ASSERT_EQUAL_FATAL(other.rows, high - low);
      wrong += memcmp(one.target_class, other.target_class, other.rows * sizeof(int32_t)) != 0;
      for (size_t i = 0; i < other.rows; i++) {
        const size_t start = (size_t)one.starts[i], entries = (size_t)one.starts[i + 1] - start;
        wrong += row[i].entries != entries || memcmp(row[i].columns, one.columns + start, entries * sizeof(int32_t)) ||
                 memcmp(row[i].values, one.values + start, entries * sizeof(float));
      }
    }
  CU_ASSERT_EQUAL(wrong, 0);
  CU_ASSERT_EQUAL(in_place->ops->fetch_rows(in_place, 2, rows, rows, &other, row), TRM_OK);
  CU_ASSERT_EQUAL(other.rows, 0);
  CU_ASSERT_EQUAL(in_place->ops->fetch_rows(in_place, 2, rows - 1, rows + 1, &other, row), TRM_FAILED);
  trm_host_batch_free(&one);
  trm_host_batch_free(&other);
  copied->ops->close(copied);
  in_place->ops->close(in_place);
}

static void test_rows_in_place(void)
{
  const uint64_t rows = 30011;
  char *path;
  if (world->size == 1) { /* each rank reads alone */
    path = file_make("place.h5", MADE_CSR, 0, rows, 1, 0);
    check_rows_in_place(path, 1 << 30, true, rows);
    check_rows_in_place(path, 1 << 30, false, rows);
    check_rows_in_place(path, 1 << 18, true, rows);
    check_rows_in_place(path, 1 << 18, false, rows);
    trm_free(path);
  }
  path = file_make("dense.h5", MADE_BYTES, 30, 100, 1, 0);
  struct trm_options options = options_of(1 << 30, 64);
  struct trm_dataset *data;
  struct trm_host_batch batch = {0};
  struct trm_sparse_row row;
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, world), TRM_OK);
  CU_ASSERT_EQUAL(data->ops->fetch_rows(data, 0, 0, 1, &batch, &row), TRM_USAGE);
  data->ops->close(data);
  trm_free(path);
}

static void test_spec(void)
{
  char *path = file_make("spec.h5", MADE_BYTES, 30, 100, 10, 0);
  struct trm_options options = options_of(1 << 30, 64);
  struct trm_dataset *data;
  bool has = false;
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, world), TRM_OK);
  CU_ASSERT_EQUAL(data->spec.shape.dims, 3);
  CU_ASSERT(data->spec.shape.size[0] == 1 && data->spec.shape.size[1] == 2 && data->spec.shape.size[2] == 15);
  CU_ASSERT(!data->spec.sparse && !data->spec.tokens && data->spec.target == TRM_TARGET_CLASS);
  CU_ASSERT_EQUAL(data->spec.classes, MADE_CLASSES);
  CU_ASSERT_STRING_EQUAL(data->class_names[6], "s\xc3\xa9ven");
  CU_ASSERT_EQUAL(strlen(data->digest), 64);
  CU_ASSERT(trm_dataset_hdf5.has_split(path, TRM_SPLIT_TEST, &has) == TRM_OK && has);
  char digest[65];
  strcpy(digest, data->digest);
  data->ops->close(data);
  trm_free(path);
  /* compression does not change the data */
  path = file_make("spec.h5", MADE_BYTES, 30, 100, 10, 9);
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, world), TRM_OK);
  CU_ASSERT_STRING_EQUAL(data->digest, digest);
  data->ops->close(data);
  trm_free(path);
}

/* -- the same samples for any number of ranks */

enum { EPOCHS = 4 };

/* FNV-1a over the numbers of the rows. */
static uint64_t hash_add(uint64_t hash, uint64_t number)
{
  return (hash ^ number) * UINT64_C(0x100000001b3);
}

/* Returns the order of some epochs as one rank reads it. */
static uint64_t *order_alone(const char *path, size_t width, struct trm_options *options, int epochs, size_t *rows,
                             uint64_t *hash)
{
  struct trm_dataset *data;
  *hash = UINT64_C(0xcbf29ce484222325);
  if (trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, options, trm_comm_self()) != TRM_OK) {
    CU_FAIL("open");
    printf("%s\n", trm_error_text());
    return NULL;
  }
  *rows = data->rows;
  uint64_t *order = calloc((size_t)epochs * data->rows, sizeof *order);
  struct trm_host_batch batch = {0};
  size_t wrong = 0;
  for (int e = 0; e < epochs; e++) {
    unsigned char *seen = calloc(data->rows, 1);
    for (size_t at = 0; at < data->rows; at += batch.rows) {
      const size_t end = at + 1000 < data->rows ? at + 1000 : data->rows;
      if (data->ops->fetch(data, (uint64_t)e, at, end, &batch) != TRM_OK) {
        CU_FAIL("fetch");
        printf("%s\n", trm_error_text());
        break;
      }
      for (size_t i = 0; i < batch.rows; i++) {
        const uint64_t number = made_number(MADE_BYTES, width, &batch, i);
        wrong += number >= data->rows || seen[number] || !made_is_row(MADE_BYTES, width, 0, &batch, i, number);
        if (number < data->rows)
          seen[number] = 1;
        order[(size_t)e * data->rows + at + i] = number;
        *hash = hash_add(*hash, number);
      }
    }
    free(seen);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  trm_host_batch_free(&batch);
  data->ops->close(data);
  return order;
}

/* The same on all ranks; rank 0 reads. Collective. */
static uint64_t *order_of_one(const char *path, size_t width, struct trm_options *options, size_t *rows, uint64_t *hash)
{
  uint64_t *order = world->rank == 0 ? order_alone(path, width, options, EPOCHS, rows, hash) : NULL;
  uint64_t known[] = {order != NULL, order ? *rows : 0, order ? *hash : 0};
  world->ops->broadcast(world, known, sizeof known, TRM_BYTE, 0);
  if (!known[0])
    return NULL;
  *rows = known[1];
  *hash = known[2];
  if (!order)
    order = calloc(EPOCHS * *rows, sizeof *order);
  world->ops->broadcast(world, order, EPOCHS * *rows * sizeof *order, TRM_BYTE, 0);
  return order;
}

struct walk {
  struct trm_dataset *data;
  const uint64_t *order;
  size_t width, batch, pieces;
  bool step_together, drop_last;
  struct trm_host_batch rows;
};

/* Reads this rank's shard of every global batch of an epoch, from `begin` to `end`, and checks each row. */
static void walk_epoch(struct walk *walk, uint64_t epoch, size_t begin, size_t end)
{
  size_t wrong = 0;
  for (size_t at = begin; at < end; at += walk->batch) {
    const size_t n = end - at < walk->batch ? end - at : walk->batch;
    if (walk->drop_last && n < walk->batch)
      break;
    size_t from, to;
    trm_interval(n, (size_t)world->size, (size_t)world->rank, &from, &to);
    for (size_t piece = 0; piece < walk->pieces; piece++) {
      size_t a, b;
      trm_interval(to - from, walk->pieces, piece, &a, &b);
      const int status = walk->data->ops->fetch(walk->data, epoch, at + from + a, at + from + b, &walk->rows);
      CU_ASSERT_EQUAL(status, TRM_OK);
      if (status != TRM_OK) {
        printf("%s\n", trm_error_text());
        return;
      }
      wrong += walk->rows.rows != b - a;
      for (size_t i = 0; i < walk->rows.rows; i++)
        wrong += !made_is_row(MADE_BYTES, walk->width, 0, &walk->rows, i,
                              walk->order[(size_t)epoch * walk->data->rows + at + from + a + i]);
    }
    if (walk->step_together)
      world->ops->barrier(world);
  }
  CU_ASSERT_EQUAL(wrong, 0);
}

static void check_ranks(const char *path, size_t width, struct trm_options *options, uint64_t expected)
{
  size_t rows;
  uint64_t hash;
  uint64_t *order = order_of_one(path, width, options, &rows, &hash);
  CU_ASSERT_PTR_NOT_NULL_FATAL(order);
  if (hash != expected)
    printf("the order of the samples hashes to 0x%llx\n", (unsigned long long)hash);
  CU_ASSERT_EQUAL(hash, expected);
  /* threads; ranks in lockstep or not; which ranks share memory */
  const struct {
    int threads, together, share;
  } ways[] = {{0, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 1, 0}, {1, 0, 1}, {0, 0, 2}, {1, 1, 2}};
  for (size_t way = 0; order && way < sizeof ways / sizeof ways[0]; way++) {
    struct walk walk = {.order = order, .width = width, .batch = (size_t)options->train.batch,
                        .pieces = 1 + (size_t)ways[way].threads, .step_together = ways[way].together};
    options->parallel.share = shares[ways[way].share];
    options->data.threads = ways[way].threads;
    const int status = trm_dataset_hdf5.open(&walk.data, path, TRM_SPLIT_TRAIN, options, world);
    CU_ASSERT_EQUAL(status, TRM_OK);
    if (status != TRM_OK) {
      printf("%s\n", trm_error_text());
      continue;
    }
    walk_epoch(&walk, 0, 0, rows); /* consecutive epochs */
    walk_epoch(&walk, 1, 0, rows);
    walk.drop_last = true; /* without the last partial batch */
    walk_epoch(&walk, 2, 0, rows);
    walk_epoch(&walk, 3, 0, rows);
    walk.drop_last = false;
    walk_epoch(&walk, 1, rows / walk.batch * 2 / 3 * walk.batch, rows); /* a resumed run */
    walk_epoch(&walk, 2, 0, rows / 3);                                   /* abandoned early */
    walk_epoch(&walk, 2, 0, rows / 2);                                   /* repeated */
    walk_epoch(&walk, 0, 0, walk.batch);                                 /* back, then two ahead */
    walk_epoch(&walk, 2, 0, rows);
    trm_host_batch_free(&walk.rows);
    walk.data->ops->close(walk.data);
  }
  free(order);
}

static void test_ranks_whole(void)
{
  char *path = file_make("whole.h5", MADE_BYTES, 20, 5003, 0, 0);
  struct trm_options options = options_of(1 << 30, 64);
  check_ranks(path, 20, &options, UINT64_C(0x8dd8fc44d8fa8e13));
  trm_free(path);
}

static void test_ranks_windows(void)
{
  /* 334 rows per block, 16 blocks, the last one short; windows of two blocks */
  char *path = file_make("windows.h5", MADE_BYTES, 784, 5003, 0, 0);
  struct trm_options options = options_of(1 << 20, 100);
  check_ranks(path, 784, &options, UINT64_C(0x2ec7b9ca817bd72b));
  /* the minimum: windows as long as a batch */
  options.data.memory = 1;
  options.train.batch = 500;
  check_ranks(path, 784, &options, UINT64_C(0x752be806fe616cbb));
  trm_free(path);
}

/* Fetches positions [begin, end) of an epoch, and checks each row. */
static void check_positions(struct walk *walk, uint64_t epoch, size_t begin, size_t end)
{
  size_t wrong = 0;
  CU_ASSERT_EQUAL_FATAL(walk->data->ops->fetch(walk->data, epoch, begin, end, &walk->rows), TRM_OK);
  wrong += walk->rows.rows != end - begin;
  for (size_t i = 0; i < walk->rows.rows; i++)
    wrong += !made_is_row(MADE_BYTES, walk->width, 0, &walk->rows, i,
                          walk->order[(size_t)epoch * walk->data->rows + begin + i]);
  CU_ASSERT_EQUAL(wrong, 0);
}

/* Independent ranks: one after the other reads two epochs, then all at once, each its own batches; and a batch of
 * before. */
static void test_independent(void)
{
  char *path = file_make("windows.h5", MADE_BYTES, 784, 5003, 0, 0);
  struct trm_options options = options_of(1 << 20, 100);
  size_t rows;
  uint64_t hash;
  uint64_t *order = order_of_one(path, 784, &options, &rows, &hash);
  CU_ASSERT_PTR_NOT_NULL_FATAL(order);
  for (int threads = 0; threads < 2; threads++) {
    struct walk walk = {.order = order, .width = 784};
    options.data.threads = threads;
    CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&walk.data, path, TRM_SPLIT_TRAIN, &options, world), TRM_OK);
    walk.data->independent = true;
    check_positions(&walk, 0, 0, 0);
    for (int rank = 0; rank < world->size; rank++) {
      for (size_t at = 0; rank == world->rank && at < 2 * rows; at += 100) {
        const size_t low = at % rows, high = low + 100 < rows ? low + 100 : rows;
        check_positions(&walk, at / rows, low, high);
      }
      world->ops->barrier(world);
    }
    for (size_t at = 100 * (size_t)world->rank; at + 100 <= rows; at += 100 * (size_t)world->size)
      check_positions(&walk, 2, at, at + 100);
    check_positions(&walk, 2, 300, 400);
    world->ops->barrier(world);
    check_positions(&walk, 0, 200, 200 + 2000); /* an earlier epoch; over several windows */
    trm_host_batch_free(&walk.rows);
    walk.data->ops->close(walk.data);
  }
  free(order);
  trm_free(path);
}

static void test_ranks_windows_compressed(void)
{
  char *path = file_make("windows.h5", MADE_BYTES, 784, 5003, 0, 1);
  struct trm_options options = options_of(1 << 20, 100);
  check_ranks(path, 784, &options, UINT64_C(0x2ec7b9ca817bd72b));
  trm_free(path);
}

/* Few rows per block: more ranks than rows in a batch. */
static void test_ranks_large_rows(void)
{
  char *path = file_make("large.h5", MADE_BYTES, 100000, 41, 0, 0);
  struct trm_options options = options_of(1 << 20, 3);
  check_ranks(path, 100000, &options, UINT64_C(0xf5d1469c5debaf47));
  trm_free(path);
}

/* Rows of tokens by their first token: rows of a bucket are chained. Returns (65536 + rows), each 1 + a row, 0: none. */
static uint64_t *token_rows(enum made_kind kind, uint64_t rows)
{
  uint64_t *chain = calloc(65536 + rows, sizeof *chain);
  for (uint64_t r = 0; r < rows; r++) {
    uint64_t *bucket = &chain[(uint32_t)made_token(kind, r * 10) % 65536];
    chain[65536 + r] = *bucket;
    *bucket = 1 + r;
  }
  return chain;
}

/* Other kinds, streamed: every row once per epoch, also for kinds with another storage layout. */
static void check_windows_kind(enum made_kind kind, uint64_t rows)
{
  const size_t width = 30, batch_rows = 700;
  char *path = file_make("window-kind.h5", kind, width, rows, 0, 0);
  struct trm_options options = options_of(300000, (int64_t)batch_rows);
  struct trm_dataset *data;
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, world), TRM_OK);
  struct trm_host_batch batch = {0};
  size_t wrong = 0;
  /* not every row contains its number: use the order */
  struct order order;
  const size_t mean = kind == MADE_CSR ? 8 + 8 * 4 : kind == MADE_TOKENS ? 20 : 120;
  order_init(&order, 5, true, data->rows, ((size_t)256 << 10) / mean, 1);
  int32_t *seen = calloc(data->rows, sizeof *seen);
  uint64_t *chain = token_rows(kind, data->rows);
  for (uint64_t epoch = 0; epoch < 2; epoch++)
    for (size_t at = 0; at < data->rows; at += batch_rows) {
      const size_t n = data->rows - at < batch_rows ? data->rows - at : batch_rows;
      size_t from, to;
      trm_interval(n, (size_t)world->size, (size_t)world->rank, &from, &to);
      CU_ASSERT_EQUAL_FATAL(data->ops->fetch(data, epoch, at + from, at + to, &batch), TRM_OK);
      for (size_t i = 0; i < batch.rows; i++) {
        uint64_t number = data->rows;
        if (kind == MADE_FLOATS)
          number = (uint64_t)batch.dense[i * width];
        else if (kind == MADE_CSR && batch.starts[i + 1] > batch.starts[i])
          number = (uint64_t)batch.values[batch.starts[i]];
        else if (kind == MADE_CSR)
          continue;
        else
          for (uint64_t r = chain[(uint32_t)batch.tokens[i * 10] % 65536]; r > 0 && number == data->rows;
               r = chain[65536 + r - 1])
            if (made_is_row(kind, width, 10, &batch, i, r - 1))
              number = r - 1;
        wrong += number >= data->rows || !made_is_row(kind, width, 10, &batch, i, number);
        if (number < data->rows)
          seen[number]++;
      }
    }
  CU_ASSERT_EQUAL(wrong, 0);
  world->ops->allreduce(world, seen, data->rows, TRM_INT32, TRM_SUM);
  for (size_t r = 0; r < data->rows; r++)
    wrong += seen[r] != 2 && !(kind == MADE_CSR && made_entries(r) == 0);
  CU_ASSERT_EQUAL(wrong, 0);
  free(seen);
  free(chain);
  trm_host_batch_free(&batch);
  data->ops->close(data);
  trm_free(path);
}

static void test_windows_kinds(void)
{
  check_windows_kind(MADE_FLOATS, 20001);
  check_windows_kind(MADE_CSR, 50001);
  check_windows_kind(MADE_WIDE_TOKENS, 200001);
}

/* -- a rank that cannot read */

static void test_windows_damaged(void)
{
  char *path = file_make("damaged.h5", MADE_BYTES, 784, 5003, 0, 0);
  struct trm_options options = options_of(1 << 20, 100);
  for (int threads = 0; threads < 2; threads++) {
    struct trm_dataset *data;
    options.data.threads = threads;
    if (world->rank == 0 && threads == 0) { /* in the rows: headers and checksums are elsewhere */
      FILE *file = fopen(path, "r+b");
      fseek(file, 2000000, SEEK_SET);
      const int c = fgetc(file);
      fseek(file, 2000000, SEEK_SET);
      fputc(c ^ 4, file);
      fclose(file);
    }
    world->ops->barrier(world);
    CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, world), TRM_OK);
    struct trm_host_batch batch = {0};
    int status = TRM_OK;
    for (size_t at = 0; at + 100 <= data->rows && status == TRM_OK; at += 100) {
      size_t from, to;
      trm_interval(100, (size_t)world->size, (size_t)world->rank, &from, &to);
      status = data->ops->fetch(data, 0, at + from, at + to, &batch);
      int32_t worst = status;
      world->ops->allreduce(world, &worst, 1, TRM_INT32, TRM_MAX);
      if (worst != TRM_OK && status == TRM_OK) /* reported by the next fetch */
        status = data->ops->fetch(data, 0, at + to, at + to, &batch);
    }
    CU_ASSERT_EQUAL(status, TRM_FAILED);
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "damaged.h5: rows "));
    trm_host_batch_free(&batch);
    data->ops->close(data);
  }
  /* in memory: open fails on all ranks */
  struct trm_dataset *data;
  options.data.memory = 1 << 30;
  CU_ASSERT_EQUAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, world), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "of train/x are damaged"));
  trm_free(path);
}

/* A single rank may request any number of rows; several ranks would deadlock, so too many are refused. */
static void test_long_batch(void)
{
  char *path = file_make("long.h5", MADE_BYTES, 784, 5003, 0, 0);
  struct trm_options options = options_of(1 << 20, 100);
  struct trm_dataset *data;
  struct trm_host_batch batch = {0};
  CU_ASSERT_EQUAL_FATAL(trm_dataset_hdf5.open(&data, path, TRM_SPLIT_TRAIN, &options, world), TRM_OK);
  const int status = data->ops->fetch(data, 0, 0, data->rows, &batch);
  CU_ASSERT_EQUAL(status, world->size > 1 ? TRM_USAGE : TRM_OK);
  if (world->size > 1)
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "long.h5: a batch reaches over more than two windows of 668 rows"));
  CU_ASSERT_EQUAL(data->ops->fetch(data, 0, data->rows, data->rows + 1, &batch), TRM_FAILED);
  trm_host_batch_free(&batch);
  data->ops->close(data);
  trm_free(path);
}

static void test_read_rate(void)
{
  char *path = file_make("rate.h5", MADE_FLOATS, 30, 100003, 0, 0);
  double seconds = 0;
  uint64_t bytes = 0;
  CU_ASSERT_EQUAL(trm_data_read_rate(path, world, &seconds, &bytes), TRM_OK);
  CU_ASSERT(seconds > 0 && bytes == 100003 * 120);
  trm_free(path);
}

/* -- rows that the writer refuses */

/* Offers one batch of rows to a new file; returns the error without the path. */
static const char *writer_error(const struct trm_data_spec *spec, const char *split, const struct trm_data_rows *rows)
{
  static char text[400];
  char *path = trm_format("%s/refused.h5", folder);
  struct trm_data_writer *writer = NULL;
  int status = trm_data_writer_open(&writer, path, spec);
  if (status == TRM_OK && split)
    status = trm_data_writer_split(writer, split);
  if (status == TRM_OK)
    status = trm_data_writer_append(writer, rows);
  if (writer)
    trm_data_writer_abandon(writer);
  const bool named = strncmp(trm_error_text(), path, strlen(path)) == 0;
  snprintf(text, sizeof text, "%s", status == TRM_FAILED && named ? trm_error_text() + strlen(path) : "not refused");
  CU_ASSERT(access(path, F_OK) != 0); /* nothing is left */
  trm_free(path);
  return text;
}

static void test_writer_refuses(void)
{
  struct trm_data_spec csr, tokens, floats;
  made_spec(MADE_CSR, 30, 0, &csr);
  made_spec(MADE_TOKENS, 30, 0, &tokens);
  made_spec(MADE_FLOATS, 2, 0, &floats);
  const int64_t late[] = {1, 2, 3}, back[] = {0, 2, 1}, good[] = {0, 2, 3};
  const int32_t columns[] = {4, 5, 6}, equal[] = {4, 4, 6}, negative[] = {4, 5, -1}, words[] = {0, MADE_VOCABULARY};
  const int32_t classes[] = {0, MADE_CLASSES}, below[] = {-1, 0};
  const float values[] = {1, 2, 3, 4};
  const struct {
    const struct trm_data_spec *spec;
    const char *split;
    struct trm_data_rows rows;
    const char *error;
  } cases[] = {
    {&csr, NULL, {.rows = 2, .starts = good, .columns = columns, .values = values}, ": rows before the first split"},
    {&csr, "train", {.rows = 2, .starts = late, .columns = columns, .values = values},
     ": rows to append begin at entry 1 in place of 0"},
    {&csr, "train", {.rows = 2, .starts = back, .columns = columns, .values = values},
     ": train row 1 ends before it begins"},
    {&csr, "train", {.rows = 2, .starts = good, .columns = equal, .values = values},
     ": columns of train row 0 are not ascending from 0"},
    {&csr, "test", {.rows = 2, .starts = good, .columns = negative, .values = values},
     ": columns of test row 1 are not ascending from 0"},
    {&tokens, "train", {.rows = 2, .tokens = words}, NULL},
    {&floats, "train", {.rows = 2, .floats = values, .target_class = classes}, NULL},
    {&floats, "train", {.rows = 2, .floats = values, .target_class = below},
     ": the class of train row 0 is -1, of 7 classes"},
  };
  char token[80], class[80];
  snprintf(token, sizeof token, ": train token 1 is %d, outside of the vocabulary of %d", MADE_VOCABULARY,
           MADE_VOCABULARY);
  snprintf(class, sizeof class, ": the class of train row 1 is %d, of %d classes", MADE_CLASSES, MADE_CLASSES);
  for (size_t i = 0; i < sizeof cases / sizeof *cases && world->rank == 0; i++) {
    const char *expected = cases[i].error ? cases[i].error : cases[i].rows.tokens ? token : class;
    CU_ASSERT_STRING_EQUAL(writer_error(cases[i].spec, cases[i].split, &cases[i].rows), expected);
  }
  floats.shape = (struct trm_shape){.dims = 2, .size = {3, 0}};
  CU_ASSERT(world->rank || strstr(writer_error(&floats, "train", &cases[6].rows), ": samples of shape "));
  made_spec(MADE_VALUES, 2, 0, &floats);
  floats.classes = 0;
  CU_ASSERT(world->rank || !strcmp(writer_error(&floats, "train", &cases[6].rows), ": samples have no target values"));
  world->ops->barrier(world);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"folder", job_folder},
    {"order: each row once per epoch", test_order},
    {"order: mixes", test_order_mixes},
    {"every kind of row", test_kinds},
    {"every kind, compressed", test_kinds_compressed},
    {"sparse rows in place", test_rows_in_place},
    {"description", test_spec},
    {"same samples: in memory", test_ranks_whole},
    {"same samples: windows", test_ranks_windows},
    {"windows, independent ranks", test_independent},
    {"same samples: windows, compressed", test_ranks_windows_compressed},
    {"same samples: large rows", test_ranks_large_rows},
    {"windows of other kinds", test_windows_kinds},
    {"an unreadable block", test_windows_damaged},
    {"a batch longer than the windows", test_long_batch},
    {"read rate", test_read_rate},
    {"rows that the writer refuses", test_writer_refuses},
    {"folder, removed", job_folder_remove},
    CU_TEST_INFO_NULL,
  };
  return ranks_run(argc, argv, "datasets", tests);
}
