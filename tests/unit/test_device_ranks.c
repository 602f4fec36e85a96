/* Whole runs on devices with memory of their own, on all ranks or on some beside ranks with the CPU: every family of
 * methods, every axis of the grid. The pretend device computes with the CPU's kernels, so where sums are added in a
 * fixed order scores and weights have the bits of a run on CPUs. For 1 to 4 ranks. */
#include <math.h>

#include "job/job.h"
#include "job_folder.h"
#include "method_devices.h"
#include "mpi/network.h"

struct setup {
  const char *text; /* options: "name=value ..." */
  int ranks;        /* with any other number the case is skipped; 0: with none */
};

static const char *text_of(const struct setup *c)
{
  return c->text;
}

/* Ranks with a pretend device. */
enum { ON_NONE, ON_ALL, ON_FIRST, ON_OTHERS, PLACEMENTS };
static const char *const placement_name[] = {"CPUs", "devices", "a device and CPUs", "a CPU and devices"};

static bool has_pretend(int placement)
{
  return placement == ON_ALL || (placement == ON_FIRST && world->rank == 0) ||
         (placement == ON_OTHERS && world->rank > 0);
}

static int import(const char *kind, const struct trm_import_request *request)
{
  const struct trm_importer *row = trm_importer_table;
  while (row->name && strcmp(row->name, kind) != 0)
    row++;
  return row->name ? row->run(request) : TRM_FAILED;
}

static char digits[300], letters[300], rows[300];

static void test_data(void)
{
  char text[300], sparse[300];
  const char *const paths[] = {text}, *const sparse_paths[] = {sparse};
  snprintf(digits, sizeof digits, "%s/digits.h5", folder);
  snprintf(letters, sizeof letters, "%s/letters.h5", folder);
  snprintf(rows, sizeof rows, "%s/rows.h5", folder);
  snprintf(text, sizeof text, "%s/text", folder);
  snprintf(sparse, sizeof sparse, "%s/sparse", folder);
  if (world->rank == 0) {
    FILE *file = fopen(text, "w");
    for (int i = 0; i < 1500; i++)
      fputc("abcdefgh \n"[mix(1, 2, (uint64_t)i * (uint64_t)i / 7) % 10], file);
    fclose(file);
    file = fopen(sparse, "w");
    for (int i = 0; i < 200; i++)
      fprintf(file, "%d %d:0.5 %d:1\n", i % 3 ? 1 : -1, 1 + i % 3, 5 + i % 11);
    fclose(file);
    CU_ASSERT_EQUAL_FATAL(
      import("digits", &(struct trm_import_request){.out = digits, .seed = 1, .train = 240, .test = 40}), TRM_OK);
    CU_ASSERT_EQUAL_FATAL(
      import("text", &(struct trm_import_request){.out = letters, .paths = paths, .count = 1, .test_part = 0.1}), TRM_OK);
    CU_ASSERT_EQUAL_FATAL(
      import("libsvm", &(struct trm_import_request){.out = rows, .paths = sparse_paths, .count = 1, .test_part = 0.1}),
      TRM_OK);
  }
  world->ops->barrier(world);
}

/* Sets options from the words of a text. */
static void set_options(struct trm_options *options, const char *text)
{
  char words[600], *at = words;
  snprintf(words, sizeof words, "%s", text);
  for (char *word; (word = strsep(&at, " "));) {
    char *value = strchr(word, '=');
    *value++ = '\0';
    for (char *c = value; *c; c++)
      *c = *c == '_' ? ' ' : *c;
    if (trm_options_set(options, word, value) != TRM_OK)
      printf("\n    %s\n", trm_error_text());
  }
}

static void run(const struct setup *c, int placement, struct trm_result *result)
{
  struct trm_job job;
  trm_job_init(&job);
  struct trm_options *o = &job.options;
  set_options(o, "model=mlp_784-16-10_gelu train.epochs=2 train.batch=30 train.evaluate_every=3 data.validation=0.1 "
                 "optim.lr=0.1 run.seed=3 run.overwrite=yes parallel.threads=1");
  CU_ASSERT_EQUAL_FATAL(trm_options_set(o, "data.file", digits), TRM_OK);
  char dir[320];
  snprintf(dir, sizeof dir, "%s/run", folder);
  CU_ASSERT_EQUAL_FATAL(trm_options_set(o, "run.dir", dir), TRM_OK);
  set_options(o, c->text);
  if (strncmp(o->model, "gpt", 3) == 0)
    CU_ASSERT_EQUAL_FATAL(trm_options_set(o, "data.file", letters), TRM_OK);
  if (strncmp(o->model, "linear", 6) == 0)
    CU_ASSERT_EQUAL_FATAL(trm_options_set(o, "data.file", rows), TRM_OK);
  job.network = trm_network_find("mpi");
  job.modules = (struct trm_modules){.comm = world,
                                     .device = has_pretend(placement) ? &pretend : &cpu,
                                     .strategy = trm_strategy_find(o->strategy.name),
                                     .dataset = &trm_dataset_hdf5,
                                     .checkpoint = &trm_checkpoint_hdf5};
  const int status = trm_job_train(&job, result);
  if (status != TRM_OK)
    printf("\n    %s, %s: %s\n", c->text, placement_name[placement], trm_error_text());
  CU_ASSERT_EQUAL(status, TRM_OK);
  trm_options_free(o);
}

/* Prints the first difference between the results of rank 0. */
static void check_same(const struct setup *c, int placement, const struct trm_result *got,
                       const struct trm_result *want)
{
  const double pairs[][2] = {{got->final_train_loss, want->final_train_loss},
                             {got->best_validation.loss, want->best_validation.loss},
                             {got->validation.loss, want->validation.loss},
                             {got->test.loss, want->test.loss}};
  if (world->rank > 0)
    return;
  CHECK(c, isfinite(want->test.loss) && isfinite(want->final_train_loss) && got->steps == want->steps &&
             got->samples == want->samples);
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    const bool same = memcmp(&pairs[i][0], &pairs[i][1], sizeof(double)) == 0;
    if (!same)
      printf("\n    %s, %s: score %zu is %.17g, not %.17g\n", c->text, placement_name[placement], i, pairs[i][0],
             pairs[i][1]);
    CU_ASSERT(same);
  }
  CHECK(c, strcmp(got->weights_sha256, want->weights_sha256) == 0);
}

static void check_equal_bits(const struct setup *c)
{
  struct trm_result want, got;
  if (world->size != c->ranks)
    return;
  run(c, ON_NONE, &want);
  for (int placement = 1; placement < (world->size > 1 ? PLACEMENTS : ON_FIRST); placement++) {
    run(c, placement, &got);
    check_same(c, placement, &got, &want);
  }
}

/* Where the order of updates differs from run to run. */
static void check_trains(const struct setup *c)
{
  struct trm_result got;
  if (world->size != c->ranks)
    return;
  for (int placement = ON_ALL; placement < PLACEMENTS; placement++) {
    run(c, placement, &got);
    CHECK(c, got.steps > 0 && got.samples == got.steps * 27); /* 216 rows in 8 batches */
    if (world->rank == 0 && !(got.test.loss < 2.285))
      printf("\n    %s, %s: test loss %g\n", c->text, placement_name[placement], got.test.loss);
    CHECK(c, world->rank > 0 || got.test.loss < 2.285); /* of uniform predictions: 2.303 */
  }
}

/* Kernels are called while the weights or the next batch are on their way to the device; with several ranks also while
 * gradients are on theirs to the host. */
static void check_overlap(const struct setup *c)
{
  struct trm_result got;
  if (world->size != c->ranks)
    return;
  pretend_device_record(&pretend);
  run(c, ON_ALL, &got);
  const struct pretend_device_record record = pretend_device_record(&pretend);
  CHECK(c, record.beside_uploads > 0 && (world->size == 1 || record.beside_downloads > 0));
}

#define CHECK_ALL(check, ...)                                    \
  do {                                                           \
    static const struct setup cases[] = {__VA_ARGS__};           \
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)    \
      check(&cases[i]);                                          \
    CU_PASS("as many cases as are for this number of ranks");    \
  } while (0)

#define GPT "model=gpt_layers=2_heads=2_dim=16_context=16 train.batch=12 train.epochs=1 "

static void test_sync(void)
{
  CHECK_ALL(check_equal_bits, {"optim.name=momentum", 1}, {"optim.name=adamw optim.ema=0.9 train.accumulate=2", 1},
            {"run.lanes=4 optim.clip=0.5", 1}, {"optim.name=momentum optim.clip=0.5", 2},
            {"optim.name=adamw optim.ema=0.9 train.accumulate=2", 3}, {"run.lanes=4 optim.clip=0.5", 2},
            {"optim.name=lamb", 2}, {"optim.name=momentum parallel.share=none parallel.bucket=4k", 2},
            {"model=lenet5", 3}, {"model=resnet20 train.steps=2 data.limit=60", 2}, {GPT "optim.name=adamw", 2},
            {GPT "train.activations=bf16 optim.name=adamw train.accumulate=2", 2});
}

/* One worker: the updates come in order. With a server the worker is on one kind of device, the server on another. */
static void test_one_worker(void)
{
  CHECK_ALL(check_equal_bits, {"strategy.name=asgd optim.name=momentum", 1}, {"strategy.name=easgd", 1},
            {"strategy.name=hogwild", 1}, {"strategy.name=sgp", 1},
            {"model=linear_1 train.loss=hinge strategy.name=hogwild optim.l2=0.001", 1},
            {"strategy.name=asgd strategy.servers=1 optim.name=momentum train.accumulate=2", 2},
            {"strategy.name=softsync strategy.servers=1", 2}, {"strategy.name=dcasgd strategy.servers=1", 2},
            {"strategy.name=ssp strategy.servers=1 model=lenet5", 2}, {"strategy.name=essp strategy.servers=1", 2},
            {"strategy.name=easgd strategy.servers=1", 2}, {"strategy.name=eamsgd strategy.servers=1", 2},
            {"strategy.name=dana strategy.servers=1 optim.l2=0.001", 2}, {"strategy.name=groups strategy.groups=1", 3});
}

static void test_workers(void)
{
  CHECK_ALL(check_trains, {"strategy.name=asgd", 3}, {"strategy.name=asgd strategy.servers=1 strategy.tau=2", 3},
            {"strategy.name=softsync", 3}, {"strategy.name=dcasgd", 3}, {"strategy.name=ssp", 3},
            {"strategy.name=essp", 3}, {"strategy.name=easgd optim.lr=0.5 train.epochs=4", 3},
            {"strategy.name=eamsgd optim.lr=0.05 train.epochs=6", 3}, {"strategy.name=adpsgd optim.lr=0.3", 3},
            {"strategy.name=sgp optim.lr=0.3", 3}, {"strategy.name=keuper optim.lr=0.3", 3},
            {"strategy.name=hogwild", 3}, {"strategy.name=hogwild strategy.tau=2", 2},
            {"strategy.name=hogwild parallel.share=none", 2}, {"strategy.name=groups strategy.groups=2", 3},
            {"strategy.name=dana optim.momentum=0.5 optim.lr=0.05", 3});
}

static void test_axes(void)
{
  CHECK_ALL(check_equal_bits, {"parallel.pipeline=2 train.accumulate=2 optim.name=adam", 2},
            {"parallel.pipeline=2 parallel.schedule=2bw train.accumulate=2", 2},
            {"parallel.pipeline=2 parallel.schedule=pipedream", 2},
            {"model=lenet5 parallel.pipeline=3 train.accumulate=3", 3},
            {GPT "parallel.pipeline=2 train.accumulate=2", 2}, {"parallel.tensor=2 optim.clip=1", 2},
            {GPT "parallel.tensor=2", 2}, {"parallel.tensor=2 parallel.share=none", 2},
            {GPT "parallel.tensor=2 optim.name=adamw", 4}, {"parallel.pipeline=2 train.accumulate=2", 4},
            {"parallel.pipeline=2 parallel.schedule=2bw train.accumulate=2", 4},
            {GPT "parallel.pipeline=2 parallel.zero=3 train.accumulate=2", 4},
            {GPT "parallel.pipeline=2 parallel.zero=1 parallel.share=none train.accumulate=2", 4},
            {"model=resnet20 train.steps=2 data.limit=60 parallel.pipeline=2 parallel.schedule=interleaved "
             "parallel.chunks=2 train.accumulate=2 parallel.zero=2", 4});
}

static void test_zero(void)
{
  CHECK_ALL(check_equal_bits, {GPT "parallel.zero=1 parallel.share=none optim.name=adamw", 2},
            {GPT "parallel.zero=2 train.accumulate=2", 2}, {GPT "parallel.zero=3 optim.ema=0.9 optim.clip=1", 2},
            {GPT "parallel.zero=3 parallel.share=none parallel.recompute=block optim.name=adamw", 3},
            {"model=resnet20 train.steps=2 data.limit=60 parallel.zero=2 parallel.share=none train.accumulate=2", 2},
            {"model=resnet20 train.steps=2 data.limit=60 parallel.zero=3", 2},
            {GPT "train.activations=bf16 parallel.zero=3 train.accumulate=2", 2});
}

/* Optimizer states in files, which are the host's. */
static void test_offload(void)
{
  static const char *const more[] = {"", " parallel.pipeline=2 train.accumulate=2",
                                     " parallel.pipeline=2 parallel.schedule=2bw train.accumulate=2"};
  for (int i = 0; i < (world->size == 2 ? 3 : 1); i++) {
    char text[400];
    snprintf(text, sizeof text, "optim.name=adamw optim.ema=0.9 parallel.offload=%s%s", folder, more[i]);
    const struct setup c = {text, world->size};
    check_equal_bits(&c);
  }
}

/* Weights that are uploaded in several intervals, and one batch in an epoch: none is read ahead. */
#define LARGE "model=mlp_784-350-800-400-10_relu train.batch=27 data.limit=30 train.steps=3 train.evaluate_every=0 "

static void test_overlap(void)
{
  CHECK_ALL(check_overlap, {LARGE "optim.name=sgd", 2}, {LARGE "strategy.name=asgd", 1},
            {"optim.name=momentum", 1}, {"run.lanes=4 train.epochs=1", 1});
  CHECK_ALL(check_equal_bits, {LARGE "optim.name=momentum", 2},
            {LARGE "train.activations=bf16 train.accumulate=2", 3}, {"data.drop_last=yes train.accumulate=3", 2});
}

/* A run that goes on where another left it, on other devices. */
static void test_resume(void)
{
  const struct setup whole = {"optim.name=adamw optim.ema=0.9", world->size};
  const struct setup part = {"optim.name=adamw optim.ema=0.9 train.steps=10", world->size};
  const struct setup rest = {"optim.name=adamw optim.ema=0.9 run.resume=auto run.overwrite=no", world->size};
  struct trm_result want, got;
  run(&whole, ON_NONE, &want);
  run(&part, ON_FIRST, &got);
  CHECK(&part, world->rank > 0 || strcmp(got.weights_sha256, want.weights_sha256) != 0);
  run(&rest, ON_OTHERS, &got);
  CHECK(&rest, world->rank > 0 || strcmp(got.weights_sha256, want.weights_sha256) == 0);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"folder", job_folder},
    {"data sets", test_data},
    {"synchronous", test_sync},
    {"one worker", test_one_worker},
    {"workers", test_workers},
    {"pipelines and tensors", test_axes},
    {"sharded arrays", test_zero},
    {"states in files", test_offload},
    {"checkpoints", test_resume},
    {"copies beside passes", test_overlap},
    {"no folder", job_folder_remove},
    CU_TEST_INFO_NULL,
  };
  trm_hdf5_init();
  return method_devices_run(argc, argv, "ranks with devices of their own", tests);
}
