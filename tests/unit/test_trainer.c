/* The trainer with a data set, a strategy and checkpoints that are made up: what it does at which step, in numbers
 * computed by hand.
 *
 * Training rows i = 0 to 9 have x = 1 and target i, for the model w x: the loss of a row is (w - i)^2, and the gradient
 * of a batch 2 (w - mean of i). Four validation rows have target 0, so that their loss is w^2, and two test rows have
 * target 1. The initial w is 3. After update u the strategy sets w to number u of a list. */
#include <math.h>
#include <sys/stat.h>

#include "core/log.h"
#include "dataset_files.h"
#include "kernels/kernels.h"
#include "mpi/grid.h"
#include "mpi/pipeline/pipeline.h"
#include "nn/param_load.h"
#include "suite.h"
#include "train/train.h"

enum { TRAIN_ROWS = 10, MAX_EVENTS = 64, MAX_SAVES = 256 };

static char folder[256];

/* What happened in a run, and what is to happen. */
static struct {
  /* plan */
  const float *w, *average; /* after update 1, 2, ...; average: weights of evaluations, NULL: none */
  uint64_t fail_at;         /* this update fails; 0: none */
  int fail_fetch;           /* the training batch that cannot be read, from 1; 0: none */
  bool fail_save;
  bool own; /* the state is copied by its owner, which takes 20 ms for an array */
  /* record */
  struct made_fetch {
    uint64_t epoch;
    size_t low, high;
  } fetch[MAX_EVENTS]; /* of training rows */
  int fetches;
  struct made_step {
    double rate, gradient, loss, rows;
  } step[MAX_EVENTS];
  int steps;
  int first_save; /* of this run */
  float initial[2]; /* w and its average, as restored */
} run;

/* -- the data set */

static const struct trm_dataset_ops made_data;

static int made_open(struct trm_dataset **dataset, const char *path, enum trm_split split,
                     const struct trm_options *options, struct trm_comm *comm)
{
  static const size_t rows[] = {TRAIN_ROWS, 4, 2};
  (void)options, (void)comm;
  struct trm_dataset *d = *dataset = trm_alloc(sizeof *d, "data");
  d->ops = &made_data;
  d->spec = (struct trm_input_spec){
    .shape = {.dims = 1, .size = {1}}, .target = TRM_TARGET_VALUE, .classes = 1};
  d->rows = rows[split];
  d->path = path;
  d->digest = "made up";
  d->impl = (void *)(uintptr_t)split;
  return TRM_OK;
}

static int made_fetch(struct trm_dataset *d, uint64_t epoch, size_t low, size_t high, struct trm_host_batch *batch)
{
  const enum trm_split split = (enum trm_split)(uintptr_t)d->impl;
  if (split == TRM_SPLIT_TRAIN) {
    CU_ASSERT_FATAL(run.fetches < MAX_EVENTS);
    run.fetch[run.fetches++] = (struct made_fetch){epoch, low, high};
    if (run.fetches == run.fail_fetch)
      return trm_error(TRM_FAILED, "made: row %zu is damaged", low);
  }
  batch->rows = high - low;
  batch->dense = trm_grow(batch->dense, &batch->dense_capacity, 0, batch->rows, sizeof(float), "x");
  batch->target_value = trm_grow(batch->target_value, &batch->value_capacity, 0, batch->rows, sizeof(float), "targets");
  for (size_t i = 0; i < batch->rows; i++) {
    batch->dense[i] = 1;
    batch->target_value[i] = split == TRM_SPLIT_TRAIN ? (float)(low + i) : split == TRM_SPLIT_TEST ? 1 : 0;
  }
  return TRM_OK;
}

static void made_close(struct trm_dataset *d)
{
  trm_free(d);
}

static int made_has_split(const char *path, enum trm_split split, bool *has)
{
  (void)path, (void)split;
  *has = true;
  return TRM_OK;
}

static const struct trm_dataset_ops made_data = {
  .name = "made up", .open = made_open, .fetch = made_fetch, .close = made_close, .has_split = made_has_split};

/* -- the strategy: w, its gradient, its average */

static int made_create(struct trm_strategy *s)
{
  float *arrays = s->impl = trm_alloc(3 * s->elements * sizeof(float), "strategy");
  s->w = arrays;
  s->g = arrays + s->elements;
  s->eval_weights = run.average ? arrays + 2 * s->elements : NULL;
  s->batch_shards = 1;
  return TRM_OK;
}

static int made_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  CU_ASSERT_FATAL(run.steps < MAX_EVENTS);
  run.step[run.steps++] = (struct made_step){rate, s->g[0], sums->loss, sums->rows};
  if (s->updates + 1 == run.fail_at)
    return trm_error(TRM_FAILED, "made: update %d fails", (int)run.fail_at);
  s->w[0] = run.w[s->updates];
  if (run.average)
    s->eval_weights[0] = run.average[s->updates];
  s->updates++;
  return TRM_OK;
}

static int made_collect(struct trm_strategy *s, const float *view[TRM_MAX_STATES])
{
  view[0] = s->w;
  view[1] = s->eval_weights;
  return TRM_OK;
}

static int made_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  for (int state = 0; state < 2; state++)
    run.initial[state] = from[state] ? from[state][0] : NAN;
  s->w[0] = run.initial[0];
  if (s->eval_weights)
    s->eval_weights[0] = run.initial[1];
  s->updates = updates;
  return TRM_OK;
}

static void made_destroy(struct trm_strategy *s)
{
  trm_free(s->impl);
}

static const struct trm_strategy_ops made_strategy = {
  .name = "made up", .lockstep = true, .takes = TRM_TAKES_ALL, .create = made_create, .step = made_step,
  .collect = made_collect, .restore = made_restore, .destroy = made_destroy};

static bool made_own(const struct trm_strategy *s, int state, size_t from, struct trm_own_elements *next)
{
  if (from >= s->elements)
    return false;
  usleep(20000);
  *next = (struct trm_own_elements){from, s->elements, (state ? s->eval_weights : s->w) + from};
  return true;
}

static const struct trm_strategy_ops made_owning_strategy = {
  .name = "made up", .lockstep = true, .takes = TRM_TAKES_ALL, .create = made_create, .step = made_step,
  .collect = made_collect, .restore = made_restore, .own = made_own, .destroy = made_destroy};

/* -- checkpoints: an empty file, and what was to be in it */

struct save {
  char path[400];
  struct trm_checkpoint c; /* texts are static */
  char validation[80];
  float values[2]; /* w and its average */
  bool damaged;
};
static struct save saves[MAX_SAVES]; /* of all runs, in order of writing; of equal paths the last one counts */
static int save_count;

/* Save `number` of this run. */
static const struct save *save_at(int number)
{
  return &saves[run.first_save + number];
}

static struct save *save_find(const char *path)
{
  for (int i = save_count; i-- > 0;)
    if (strcmp(saves[i].path, path) == 0)
      return &saves[i];
  return NULL;
}

static int save_write(const char *path, const struct trm_checkpoint *c, const struct trm_model *model)
{
  CU_ASSERT_FATAL(save_count < MAX_SAVES);
  if (run.fail_save)
    return trm_error(TRM_FAILED, "%s: the disk is full", path);
  struct save *save = &saves[save_count++];
  *save = (struct save){.c = *c};
  snprintf(save->path, sizeof save->path, "%s", path);
  snprintf(save->validation, sizeof save->validation, "%s", c->validation);
  for (int state = 0; state < c->states; state++) {
    const float *values = c->state[state];
    if (c->read_tensor)
      TRM_CHECK(c->read_tensor(c->read_tensor_context, state, 0, &values));
    save->values[state] = values[0];
  }
  CU_ASSERT_STRING_EQUAL(c->model_text, model->text);
  FILE *file = fopen(path, "w");
  return file && fclose(file) == 0 ? TRM_OK : TRM_FAILED;
}

static int save_verify(const char *path)
{
  const struct save *save = save_find(path);
  return save && !save->damaged ? TRM_OK : trm_error(TRM_FAILED, "%s: damaged", path);
}

static int save_read_head(const char *path, struct trm_checkpoint *c)
{
  const struct save *save = save_find(path);
  *c = save->c;
  c->model_text = trm_strdup("linear 1 bias=no");
  c->loss_name = trm_strdup("mean_squared_error");
  c->config = c->record = c->weights_sha256 = NULL;
  c->data_digest = trm_strdup("made up");
  c->validation = trm_strdup(save->validation);
  c->undone = c->undones > 0 ? trm_alloc(c->undones * sizeof *c->undone, "parts") : NULL;
  for (size_t i = 0; i < c->undones; i++)
    c->undone[i].parts = 1;
  return TRM_OK;
}

static int save_read_model_part(const char *path, const struct trm_checkpoint *c, const struct trm_model *model,
                                const struct trm_model *part,
                                int (*consume)(void *context, int state, const struct trm_parameter *parameter,
                                               const float *values),
                                void *context)
{
  (void)model;
  for (int state = 0; state < c->states; state++)
    TRM_CHECK(consume(context, state, trm_model_parameter(part, 0), &save_find(path)->values[state]));
  return TRM_OK;
}

static const struct trm_checkpoint_ops made_checkpoints = {
  .name = "made up", .write = save_write, .verify = save_verify, .read_head = save_read_head,
  .read_model_part = save_read_model_part};

/* The saves of this run as "best.h5@1 step-00000003.h5@3 ". */
static const char *save_list(void)
{
  static char text[2000];
  text[0] = '\0';
  for (int i = run.first_save; i < save_count; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s@%d ", strrchr(saves[i].path, '/') + 1,
             (int)saves[i].c.updates);
  return text;
}

/* -- a run */

static int made_weights(struct trm_param_load *load, float *w)
{
  load->loaded[0] = true;
  w[0] = 3;
  return TRM_OK;
}

/* Trains in directory `name` with these options (names and values, then NULL); the plan stays, the record begins. */
static int train(const char *name, const char *const *settings, struct trm_result *result)
{
  static const char *const common[] = {
    "model", "linear 1 bias=no", "model.init", "w", "data.file", "made", "train.batch", "4", "train.epochs", "2",
    "optim.lr", "0.8", "parallel.threads", "1", NULL};
  const char *const *const lists[] = {common, settings};
  struct trm_options options;
  struct trm_device device;
  struct trm_grid grid;
  char *dir = trm_format("%s/%s", folder, name);
  run.fetches = run.steps = 0;
  run.first_save = save_count;
  trm_options_default(&options);
  for (int l = 0; l < 2; l++)
    for (const char *const *s = lists[l]; *s; s += 2)
      CU_ASSERT_EQUAL_FATAL(trm_options_set(&options, s[0], s[1]), TRM_OK);
  trm_options_set(&options, "run.dir", dir);
  CU_ASSERT_EQUAL_FATAL(trm_device_open(&device, "cpu", "auto", TRM_MATMUL_F32, 0, 1), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_grid_create(&grid, &options, trm_comm_self()), TRM_OK);
  const struct trm_modules modules = {
    .comm = trm_comm_self(), .grid = &grid, .device = &device, .strategy = run.own ? &made_owning_strategy : &made_strategy,
    .pipeline = &trm_pipeline_messages, .dataset = &made_data, .checkpoint = &made_checkpoints,
    .weights_load = made_weights};
  const int status = trm_train(&options, &modules, result);
  trm_grid_free(&grid);
  trm_device_close(&device);
  trm_options_free(&options);
  trm_free(dir);
  return status;
}

static const float constant[] = {3, 3, 3, 3, 3, 3, 3, 3};

static bool fetched(const struct made_fetch *expected, int count)
{
  bool same = run.fetches == count;
  for (int i = 0; i < count && same; i++)
    same = run.fetch[i].epoch == expected[i].epoch && run.fetch[i].low == expected[i].low &&
           run.fetch[i].high == expected[i].high;
  return same;
}

/* -- tests */

/* Batches of 4 of 10 rows, two epochs: the last one of an epoch has 2 rows. */
static void test_epochs(void)
{
  static const struct made_fetch expected[] = {{0, 0, 4}, {0, 4, 8}, {0, 8, 10}, {1, 0, 4}, {1, 4, 8}, {1, 8, 10}};
  static const double gradient[] = {3, -5, -11}, loss[] = {14, 30, 61}; /* 9+4+1+0, 1+4+9+16, 25+36 */
  static const char *const none[] = {NULL};
  struct trm_result result;
  run.w = constant;
  CU_ASSERT_EQUAL_FATAL(train("epochs", none, &result), TRM_OK);
  CU_ASSERT(fetched(expected, 6));
  CU_ASSERT_EQUAL_FATAL(run.steps, 6);
  for (int i = 0; i < 6; i++) {
    CU_ASSERT_EQUAL(run.step[i].gradient, gradient[i % 3]);
    CU_ASSERT_EQUAL(run.step[i].loss, loss[i % 3]);
    CU_ASSERT_EQUAL(run.step[i].rows, i % 3 == 2 ? 2 : 4);
  }
  CU_ASSERT(result.epochs == 2 && result.steps == 6 && result.samples == 20);
  CU_ASSERT_EQUAL(result.final_train_loss, 10.5); /* 105 / 10 */
  CU_ASSERT_EQUAL(result.validation.loss, 9);
  CU_ASSERT_EQUAL(result.test.loss, 4);
  CU_ASSERT(isnan(result.test.accuracy) && isnan(result.virtual_s));
  CU_ASSERT_STRING_EQUAL(result.status, "done");
}

static void test_other_lengths(void)
{
  static const struct made_fetch dropped[] = {{0, 0, 4}, {0, 4, 8}, {1, 0, 4}, {1, 4, 8}};
  static const struct made_fetch halves[] = {{0, 0, 2}, {0, 2, 4}, {0, 4, 6}, {0, 6, 8}, {0, 8, 9}, {0, 9, 10}};
  static const char *const drop_last[] = {"data.drop_last", "yes", NULL}, *const steps[] = {"train.steps", "5", NULL};
  static const char *const accumulate[] = {"train.accumulate", "2", "train.epochs", "1", NULL};
  static const char *const lanes[] = {"run.lanes", "2", "train.epochs", "1", NULL};
  static const char *const too_few[] = {"data.drop_last", "yes", "train.batch", "11", NULL};
  struct trm_result result;
  run.w = constant;
  CU_ASSERT_EQUAL(train("drop", drop_last, &result), TRM_OK);
  CU_ASSERT(fetched(dropped, 4));
  CU_ASSERT(result.epochs == 2 && result.steps == 4 && result.samples == 16 && result.final_train_loss == 5.5);
  CU_ASSERT_EQUAL(train("steps", steps, &result), TRM_OK);
  CU_ASSERT(result.epochs == 1 && result.steps == 5 && result.samples == 18 && result.final_train_loss == 5.5);
  CU_ASSERT_EQUAL(train("accumulate", accumulate, &result), TRM_OK);
  CU_ASSERT(fetched(halves, 6) && run.steps == 3);
  CU_ASSERT(run.step[0].gradient == 3 && run.step[1].gradient == -5 && run.step[2].gradient == -11);
  CU_ASSERT_EQUAL(train("lanes", lanes, &result), TRM_OK);
  CU_ASSERT(fetched(halves, 6) && run.step[1].gradient == -5 && run.step[1].loss == 30);
  CU_ASSERT_EQUAL(train("few", too_few, &result), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "train.batch: 11 is more than the 10 samples"));
}

static void test_rates(void)
{
  static const char *const settings[][9] = {
    {"optim.schedule", "cosine", NULL},
    {"optim.schedule", "linear", "optim.final", "0.5", NULL},
    {"optim.schedule", "step", "optim.milestones", "1", "optim.gamma", "0.25", NULL},
    {"optim.schedule", "step", "optim.milestones", "0.25,0.75", "optim.gamma", "0.5", NULL},
    {"optim.warmup", "2", NULL},
    {"optim.warmup", "0.5", "optim.schedule", "linear", NULL}};
  static const double rates[][4] = {
    {0.8, 0.6828427124746190, 0.4, 0.1171572875253810}, /* 0.4 (1 + cos(pi k / 4)) */
    {0.8, 0.7, 0.6, 0.5}, {0.8, 0.8, 0.2, 0.2}, {0.8, 0.4, 0.4, 0.2}, {0.4, 0.8, 0.8, 0.8}, {0.4, 0.6, 0.4, 0.2}};
  run.w = constant;
  for (int s = 0; s < 6; s++) {
    const char *all[16] = {"train.batch", "5"};
    struct trm_result result;
    char name[16];
    for (int i = 0; settings[s][i]; i++)
      all[2 + i] = settings[s][i];
    snprintf(name, sizeof name, "rates%d", s);
    CU_ASSERT_EQUAL(train(name, all, &result), TRM_OK);
    CU_ASSERT_EQUAL_FATAL(run.steps, 4);
    for (int i = 0; i < 4; i++)
      CU_ASSERT_DOUBLE_EQUAL(run.step[i].rate, rates[s][i], 1e-12);
  }
}

/* Losses 4, 2.25, 3.24, 2.56: two evaluations in a row are no better than the best. */
static const float falling[] = {2, 1.5f, 1.8f, 1.6f, 1, 0.5f};
static const char *const patient[] = {"train.evaluate_every", "1", "train.stop_patience", "2", NULL};

static void test_patience(void)
{
  static const float slow[] = {2, 1.95f, 1.9f, 1.9f, 1.9f, 0}, slower[] = {2, 1.95f, 1.93f, 0, 0, 0};
  static const char *const delta[] = {"train.evaluate_every", "1", "train.stop_patience", "2", "train.stop_delta",
                                      "0.3", NULL};
  static const char *const each_epoch[] = {"train.stop_patience", "1", NULL};
  struct trm_result result;
  run.w = falling;
  CU_ASSERT_EQUAL(train("patience", patient, &result), TRM_OK);
  CU_ASSERT_STRING_EQUAL(result.status, "early-stop");
  CU_ASSERT(run.steps == 4 && result.steps == 4 && result.best_step == 2 && result.best_validation.loss == 2.25);
  CU_ASSERT_DOUBLE_EQUAL(result.test.loss, 0.36, 1e-6); /* of the last weights */
  CU_ASSERT_STRING_EQUAL(save_list(), "best.h5@1 best.h5@2 step-00000003.h5@3 step-00000004.h5@4 ");
  CU_ASSERT(save_at(1)->values[0] == 1.5f && save_at(1)->c.best_loss == 2.25 && save_at(1)->c.stale_evaluations == 0);
  CU_ASSERT(save_at(3)->c.stale_evaluations == 2 && save_at(3)->c.best_updates == 2 && save_at(3)->c.epoch == 1);
  CU_ASSERT(save_at(3)->c.position == 4 && save_at(3)->c.samples == 14 && save_at(3)->c.batch == 4);
  /* 3.8025 is better than 4 by less than 0.3, 3.61 by more */
  run.w = slow;
  CU_ASSERT_EQUAL(train("delta", delta, &result), TRM_OK);
  CU_ASSERT(result.steps == 5 && result.best_step == 3);
  CU_ASSERT_DOUBLE_EQUAL(result.best_validation.loss, 3.61, 1e-6);
  run.w = slower; /* nor is 3.7249 */
  CU_ASSERT_EQUAL(train("slower", delta, &result), TRM_OK);
  CU_ASSERT(result.steps == 3 && result.best_step == 1 && result.best_validation.loss == 4);
  /* evaluated after steps 3 and 6: 3.24 and 0.25 */
  run.w = falling;
  CU_ASSERT_EQUAL(train("each", each_epoch, &result), TRM_OK);
  CU_ASSERT_STRING_EQUAL(result.status, "done");
  CU_ASSERT(result.steps == 6 && result.best_step == 6 && result.best_validation.loss == 0.25);
  CU_ASSERT_STRING_EQUAL(save_list(), "best.h5@3 step-00000003.h5@3 best.h5@6 step-00000006.h5@6 ");
}

/* The class of the largest score, the first of equal ones; of a single score 1 if it is above 0. */
static void test_predicted_class(void)
{
  CU_ASSERT(trm_predicted_class((float[]){0}, 1) == 0 && trm_predicted_class((float[]){1e-30f}, 1) == 1);
  CU_ASSERT(trm_predicted_class((float[]){-1}, 1) == 0);
  CU_ASSERT(trm_predicted_class((float[]){1, 3, 3, 2}, 4) == 1 && trm_predicted_class((float[]){-2, -3, -1}, 3) == 2);
}

static bool is_file(const char *name)
{
  char *path = trm_format("%s/%s", folder, name);
  const bool is = access(path, F_OK) == 0;
  trm_free(path);
  return is;
}

static void test_saves(void)
{
  static const char *const every[] = {"run.checkpoint_every", "2", "run.keep", "2", NULL};
  static const char *const never[] = {"run.checkpoint_every", "-1", NULL};
  struct trm_result result;
  run.w = constant;
  CU_ASSERT_EQUAL(train("every", every, &result), TRM_OK);
  CU_ASSERT_STRING_EQUAL(save_list(), "step-00000002.h5@2 best.h5@3 step-00000004.h5@4 step-00000006.h5@6 ");
  CU_ASSERT(!is_file("every/checkpoints/step-00000002.h5") && is_file("every/checkpoints/step-00000004.h5"));
  CU_ASSERT(is_file("every/checkpoints/step-00000006.h5") && is_file("every/checkpoints/last.h5"));
  CU_ASSERT_EQUAL(train("never", never, &result), TRM_OK);
  CU_ASSERT_EQUAL(save_count, run.first_save);
}

/* No step changes the state before it is copied. */
static void test_owned_saves(void)
{
  static const float w[] = {1, 2, 3, 4, 5, 6}, average[] = {10, 20, 30, 40, 50, 60};
  static const char *const each[] = {"optim.ema", "0.9", "run.checkpoint_every", "1", "run.background", "yes", NULL};
  struct trm_result result;
  run.w = w;
  run.average = average;
  run.own = true;
  CU_ASSERT_EQUAL(train("owned", each, &result), TRM_OK);
  for (int i = run.first_save; i < save_count; i++) {
    const struct save *save = &saves[i];
    CU_ASSERT(save->values[0] == (float)save->c.updates && save->values[1] == 10 * (float)save->c.updates);
  }
  CU_ASSERT(save_count - run.first_save >= 6 && is_file("owned/checkpoints/step-00000005.h5"));
  run.own = false;
  run.average = NULL;
}

/* The average of the weights begins as the weights; evaluations are of the average, training of the weights. */
static void test_average(void)
{
  static const float average[] = {2, 1, 2, 1, 2, 1};
  static const char *const ema[] = {"optim.ema", "0.9", "train.evaluate_every", "1", NULL};
  struct trm_result result;
  run.w = constant;
  run.average = average;
  CU_ASSERT_EQUAL(train("average", ema, &result), TRM_OK);
  CU_ASSERT(run.initial[0] == 3 && run.initial[1] == 3);
  CU_ASSERT(result.best_step == 2 && result.best_validation.loss == 1 && result.test.loss == 0);
  CU_ASSERT(run.step[1].gradient == -5);
  CU_ASSERT_EQUAL_FATAL(save_at(1)->c.states, 2);
  CU_ASSERT_STRING_EQUAL(save_at(1)->c.state_name[1], "ema");
  CU_ASSERT(save_at(1)->values[0] == 3 && save_at(1)->values[1] == 1);
  run.average = NULL;
}

/* Losses 4, 2.25, 3.24, 2.56, 2.89: the best is the second. */
static const float rising[] = {2, 1.5f, 1.8f, 1.6f, 1.7f, 1.9f};
static const char *const resumed[] = {
  "optim.schedule", "linear", "train.evaluate_every", "1", "train.stop_patience", "3", "run.checkpoint_every", "2",
  "run.resume", "auto", NULL};

/* A run that failed in update 5 goes on after its checkpoint of step 4: rows, rate, sums of the epoch, best score and
 * patience. */
static void test_resume(void)
{
  static const struct made_fetch next[] = {{1, 4, 8}}, before[] = {{0, 8, 10}, {1, 0, 4}, {1, 4, 8}};
  struct trm_result result;
  run.w = rising;
  run.fail_at = 5;
  CU_ASSERT_EQUAL(train("resume", resumed, &result), TRM_FAILED);
  run.fail_at = 0;
  CU_ASSERT(result.steps == 4 && isnan(result.test.loss));
  CU_ASSERT_STRING_EQUAL(save_list(), "best.h5@1 best.h5@2 step-00000002.h5@2 step-00000004.h5@4 ");
  struct save *newest = &saves[save_count - 1];
  CU_ASSERT_EQUAL(train("resume", resumed, &result), TRM_OK);
  CU_ASSERT(fetched(next, 1));
  CU_ASSERT_DOUBLE_EQUAL(run.step[0].rate, 0.8 / 3, 1e-12);
  CU_ASSERT_STRING_EQUAL(result.status, "early-stop");
  CU_ASSERT(result.steps == 5 && result.samples == 18);
  CU_ASSERT(result.best_step == 2 && result.best_validation.loss == 2.25);
  CU_ASSERT_DOUBLE_EQUAL(result.final_train_loss, 8.9, 1e-5); /* (5.36 with w = 1.8 + 65.84 with 1.6) / 8 */
  CU_ASSERT_STRING_EQUAL(save_list(), "step-00000005.h5@5 ");
  saves[save_count - 1].damaged = newest->damaged = true;
  CU_ASSERT_EQUAL(train("resume", resumed, &result), TRM_OK);
  CU_ASSERT(fetched(before, 3) && result.steps == 5 && result.best_step == 2);
}

static void test_resume_of_nothing(void)
{
  struct trm_result result;
  CU_ASSERT_EQUAL(train("resume", resumed, &result), TRM_OK);
  CU_ASSERT(run.fetches == 0 && save_count == run.first_save);
  CU_ASSERT_STRING_EQUAL(result.status, "finished");
  for (int i = 0; i < save_count; i++)
    saves[i].damaged = true;
  CU_ASSERT_EQUAL(train("resume", resumed, &result), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "run.resume=auto: no checkpoint of"));
  CU_ASSERT_EQUAL(train("new", resumed, &result), TRM_OK);
  CU_ASSERT(run.fetch[0].epoch == 0 && run.fetch[0].low == 0 && run.initial[0] == 3);
}

/* Resumes from the latest save, after a change of it, which the message names. */
static void resume_refused(struct save *save, const struct save *sound, const char *const *more, const char *message)
{
  const char *settings[8] = {"run.resume", save->path};
  struct trm_result result;
  for (int i = 0; more && more[i]; i++)
    settings[2 + i] = more[i];
  CU_ASSERT_EQUAL(train("refused", settings, &result), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), message));
  if (!strstr(trm_error_text(), message))
    printf("\n%s\nexpected: %s\n", trm_error_text(), message);
  CU_ASSERT_EQUAL(run.steps, 0);
  *save = *sound;
}

static void test_resume_refused(void)
{
  static const char *const other_model[] = {"model", "linear 1", NULL}, *const ema[] = {"optim.ema", "0.5", NULL};
  static const char *const momentum[] = {"optim.name", "momentum", NULL}, *const seed[] = {"run.seed", "7", NULL};
  static struct save sound;
  struct trm_result result;
  run.w = constant;
  CU_ASSERT_EQUAL(train("sound", (const char *const[]){NULL}, &result), TRM_OK);
  struct save *save = &saves[save_count - 1];
  sound = *save;
  resume_refused(save, &sound, seed, "run.seed: ");
  resume_refused(save, &sound, other_model, "was made with \"linear 1 bias=no\", not \"linear 1\"");
  resume_refused(save, &sound, ema, "has no state \"ema\", which optim.ema needs");
  resume_refused(save, &sound, momentum, "has no state \"momentum\", which optim.name=momentum needs");
  save->c.weights_only = 1;
  resume_refused(save, &sound, NULL, "has only the weights of an evaluation");
  save->c.position = 11;
  resume_refused(save, &sound, NULL, "is 11 samples into an epoch, and made has 10 training samples");
  save->validation[0]++;
  resume_refused(save, &sound, NULL, "was made with other validation rows");
  save->c.undones = 1;
  resume_refused(save, &sound, NULL, "is of an asynchronous run that was stopped when later batches were done");
}

static void test_failures(void)
{
  static const char *const none[] = {NULL}, *const lanes[] = {"run.lanes", "3", NULL},
                           *const waits[] = {"run.background", "no", NULL};
  struct trm_result result;
  run.w = constant;
  run.fail_at = 3;
  CU_ASSERT_EQUAL(train("step", none, &result), TRM_FAILED);
  CU_ASSERT_STRING_EQUAL(trm_error_text(), "made: update 3 fails");
  CU_ASSERT_STRING_EQUAL(result.status, "failed");
  CU_ASSERT_EQUAL(result.steps, 2);
  run.fail_at = 0;
  run.fail_fetch = 2;
  CU_ASSERT_EQUAL(train("fetch", none, &result), TRM_FAILED);
  CU_ASSERT_STRING_EQUAL(trm_error_text(), "made: row 4 is damaged");
  CU_ASSERT(result.steps == 1 && run.steps == 1);
  run.fail_fetch = 0;
  run.fail_save = true;
  CU_ASSERT_EQUAL(train("save", waits, &result), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "best.h5: the disk is full"));
  CU_ASSERT_EQUAL(result.steps, 3);
  CU_ASSERT_EQUAL(train("background", none, &result), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "best.h5: the disk is full"));
  CU_ASSERT(result.steps >= 3); /* the thread may have seen it later */
  run.fail_save = false;
  CU_ASSERT_EQUAL(train("lanes3", lanes, &result), TRM_USAGE);
  CU_ASSERT_STRING_EQUAL(trm_error_text(), "run.lanes: 3 is not a power of two");
}

/* A folder of that name with a file in it, which no file can replace and nothing removes. */
static void blocked(const char *run_name, const char *name)
{
  char *path = trm_format("%s/%s", folder, run_name);
  CU_ASSERT(mkdir(path, 0700) == 0);
  trm_append(&path, "/%s", name);
  for (char *slash = path + strlen(folder) + strlen(run_name) + 2; (slash = strchr(slash, '/')); *slash++ = '/') {
    *slash = '\0';
    mkdir(path, 0700);
  }
  CU_ASSERT(mkdir(path, 0700) == 0);
  trm_append(&path, "/x");
  FILE *file = fopen(path, "w");
  CU_ASSERT_FATAL(file != NULL);
  fclose(file);
  trm_free(path);
}

/* Whatever of a run's directory cannot be written: an error that names it, and no other end. */
static void test_blocked(void)
{
  static const char *const none[] = {NULL}, *const replaces[] = {"run.overwrite", "yes", NULL},
                           *const resumes[] = {"run.resume", "auto", NULL},
                           *const traces[] = {"run.trace", "steps", NULL};
  static const struct {
    const char *run_name, *name;
    const char *const *settings;
    int status;
    const char *message;
  } cases[] = {
    {"block1", "metrics.jsonl", none, TRM_USAGE, "block1 holds a run already"},
    {"block2", "metrics.jsonl", replaces, TRM_FAILED, "block2/metrics.jsonl: cannot be removed"},
    {"block3", "summary.json", resumes, TRM_FAILED, "block3/summary.json: cannot be removed"},
    {"block4", "config.yaml", none, TRM_FAILED, "block4/config.yaml: cannot be written"},
    {"block5", "audit.jsonl", none, TRM_FAILED, "block5/audit.jsonl: cannot be written"},
    {"block6", "summary.json", none, TRM_FAILED, "block6/summary.json: cannot be written"},
    {"block7", "config.yaml.new", none, TRM_FAILED, "block7/config.yaml: cannot be written"},
    {"block8", "checkpoints/last.h5", none, TRM_OK, ""},      /* a warning */
    {"block9", "checkpoints/last.new", none, TRM_OK, ""},     /* the same */
    {"block10", "trace.json", traces, TRM_OK, ""},            /* the same */
  };
  struct trm_result result;
  run.w = constant;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    blocked(cases[i].run_name, cases[i].name);
    trm_error(TRM_OK, "%s", "");
    const int status = train(cases[i].run_name, cases[i].settings, &result);
    CU_ASSERT(status == cases[i].status && strstr(trm_error_text(), cases[i].message));
    if (status != cases[i].status || !strstr(trm_error_text(), cases[i].message))
      printf("\n%s/%s: status %d: %s\n", cases[i].run_name, cases[i].name, status, trm_error_text());
  }
  char *path = trm_format("%s/file", folder);
  FILE *file = fopen(path, "w");
  CU_ASSERT(file && fclose(file) == 0);
  trm_free(path);
  CU_ASSERT_EQUAL(train("file/in/it", none, &result), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "file/in/it: cannot make the directory"));
}

/* Copies in memory: after every second step but the last; removed at the end, read by a run that goes on. */
static void test_memory(void)
{
  static const char *const copies[] = {"run.buddy", "2", "run.checkpoint_every", "-1", "run.background", "no",
                                       "run.resume", "auto", NULL};
  static const char *const threads[] = {"run.buddy", "2", "run.background", "yes", NULL};
  static const struct made_fetch next[] = {{1, 4, 8}, {1, 8, 10}};
  struct trm_result result;
  run.w = rising;
  CU_ASSERT_EQUAL(train("memory", copies, &result), TRM_OK);
  CU_ASSERT_STRING_EQUAL(save_list(), "step-00000002.h5@2 step-00000004.h5@4 ");
  CU_ASSERT_EQUAL(strncmp(save_at(0)->path, "/dev/shm/trireme-", 17), 0);
  CU_ASSERT(access(save_at(0)->path, F_OK) != 0 && access(save_at(1)->path, F_OK) != 0);
  run.fail_at = 5;
  CU_ASSERT_EQUAL(train("memory2", copies, &result), TRM_FAILED);
  run.fail_at = 0;
  CU_ASSERT(access(save_at(0)->path, F_OK) != 0 && access(save_at(1)->path, F_OK) == 0); /* the one before is gone */
  CU_ASSERT_EQUAL(train("memory2", copies, &result), TRM_OK);
  CU_ASSERT(fetched(next, 2) && result.steps == 6);
  CU_ASSERT_STRING_EQUAL(save_list(), "");
  /* damaged: no other is there, so the run begins with its first step */
  run.fail_at = 5;
  CU_ASSERT_EQUAL(train("memory3", copies, &result), TRM_FAILED);
  run.fail_at = 0;
  saves[save_count - 1].damaged = true;
  CU_ASSERT_EQUAL(train("memory3", copies, &result), TRM_OK);
  CU_ASSERT(run.fetch[0].epoch == 0 && run.fetch[0].low == 0 && result.steps == 6);
  /* a copy that cannot be made is a warning */
  run.fail_save = true;
  CU_ASSERT_EQUAL(train("memory4", copies, &result), TRM_OK);
  run.fail_save = false;
  CU_ASSERT_EQUAL(train("memory5", threads, &result), TRM_OK);
  for (int i = run.first_save; i < save_count; i++) /* whichever were made while files were written */
    CU_ASSERT(strncmp(saves[i].path, "/dev/shm/", 9) != 0 || access(saves[i].path, F_OK) != 0);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"epochs: rows, gradients, sums", test_epochs},
    {"drop_last, steps, accumulate, lanes", test_other_lengths},
    {"the rate of each step", test_rates},
    {"patience and the best", test_patience},
    {"checkpoints", test_saves},
    {"copies by owners", test_owned_saves},
    {"predicted class", test_predicted_class},
    {"the average of the weights", test_average},
    {"resumed", test_resume},
    {"nothing to resume", test_resume_of_nothing},
    {"not resumed", test_resume_refused},
    {"failures", test_failures},
    {"files in the way", test_blocked},
    {"copies in memory", test_memory},
    CU_TEST_INFO_NULL,
  };
  trm_log_set_quiet(true);
  made_folder(folder);
  if (!folder[0])
    return 99;
  const int status = suite_run("trainer", tests);
  made_folder_remove(folder);
  return status;
}
