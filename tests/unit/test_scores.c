/* Scores of many classes: rows that lie apart, and scores of a chunk of rows at a time. */
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"
#include "suite.h"
#include "support/nn_case.h"

enum { ROWS = 3, T = 5, V = 1030, R = ROWS * T };

static const struct trm_input_spec many_tokens = {
  .shape = {.dims = 1, .size = {T}}, .tokens = true, .target = TRM_TARGET_CLASS, .classes = V};
static const struct trm_input_spec many_classes = {
  .shape = {.dims = 1, .size = {9}}, .target = TRM_TARGET_CLASS, .classes = V};
static const struct trm_input_spec many_values = {
  .shape = {.dims = 1, .size = {9}}, .target = TRM_TARGET_VALUE, .classes = V};

static void open_case(struct nn_case *c, struct trm_device *device, const char *text, const struct trm_input_spec *spec)
{
  static float x[ROWS * 9], value[ROWS * V];
  static int32_t class[R];
  CU_ASSERT_EQUAL_FATAL(nn_case_open(c, device, text, "auto", spec, ROWS, 3), TRM_OK);
  for (size_t i = 0; i < ROWS * 9; i++)
    x[i] = spec->tokens ? (float)(i * 389 % V) : trm_random_normal(1, TRM_RANDOM_BENCH, 2, i);
  for (size_t i = 0; i < ROWS * V; i++)
    value[i] = trm_random_normal(1, TRM_RANDOM_BENCH, 3, i);
  for (int i = 0; i < R; i++)
    class[i] = i == 4 && spec->tokens ? TRM_IGNORE_INDEX : i * 211 % V;
  nn_case_batch(c, ROWS, x, spec->target == TRM_TARGET_CLASS ? class : NULL,
                spec->target == TRM_TARGET_VALUE ? value : NULL);
}

/* Returns the parameter of that number, counted from the first layer up, in a flat array. */
static const float *part_of(const struct nn_case *c, const float *flat, int number)
{
  return flat + trm_model_parameter(&c->model, number)->offset;
}

/* Sets the bias, the last parameter, to 0 and the other weights to those of the case without one. */
static void copy_weights(struct nn_case *biased, struct nn_case *plain)
{
  const float *from = nn_case_weights(plain);
  float *to = trm_alloc(biased->model.parameters * sizeof *to, "weights");
  for (int n = 0; n < trm_model_parameter_count(&plain->model); n++)
    memcpy(to + trm_model_parameter(&biased->model, n)->offset, part_of(plain, from, n),
           trm_model_parameter(&plain->model, n)->count * sizeof *to);
  nn_case_upload(biased, to);
  trm_free(to);
}

/* Scores without a bias lie apart, those with one do not: with a bias of 0 both give the same numbers. */
static void padded_check(struct trm_device *device, const char *padded, const char *packed,
                         const struct trm_input_spec *spec)
{
  const size_t vectors = spec->tokens ? R : ROWS;
  struct nn_case a, b;
  open_case(&a, device, padded, spec);
  open_case(&b, device, packed, spec);
  copy_weights(&b, &a);
  const struct trm_layer *last = &a.model.layer[a.model.layers - 1];
  CU_ASSERT_EQUAL(trm_layer_output_ld(last), 1088);
  CU_ASSERT_EQUAL(trm_layer_output_ld(&b.model.layer[b.model.layers - 1]), V);
  struct trm_loss_sums sums[2] = {0};
  const struct trm_pass pass[2] = {nn_case_pass(&a), nn_case_pass(&b)};
  CU_ASSERT_EQUAL(trm_model_evaluate(&a.model, &pass[0], &sums[0]), TRM_OK);
  CU_ASSERT_EQUAL(trm_model_evaluate(&b.model, &pass[1], &sums[1]), TRM_OK);
  float *scores = trm_alloc(2 * vectors * V * sizeof *scores, "scores"), *others = scores + vectors * V;
  trm_model_read_scores(&a.model, 0, vectors, scores);
  trm_model_read_scores(&b.model, 0, vectors - 2, others);
  trm_model_read_scores(&b.model, vectors - 2, 2, others + (vectors - 2) * V);
  CU_ASSERT_EQUAL(distance_of(scores, others, vectors * V), 0);
  a.model.smoothing = b.model.smoothing = spec->target == TRM_TARGET_CLASS ? 0.1f : 0;
  CU_ASSERT_EQUAL(trm_model_train(&a.model, &pass[0], 0.5f, &sums[0], NULL, NULL), TRM_OK);
  CU_ASSERT_EQUAL(trm_model_train(&b.model, &pass[1], 0.5f, &sums[1], NULL, NULL), TRM_OK);
  CU_ASSERT_EQUAL(sums[0].loss, sums[1].loss);
  CU_ASSERT_EQUAL(sums[0].correct, sums[1].correct);
  const float *got = nn_case_gradient(&a), *want = nn_case_gradient(&b);
  for (int n = 0; n < trm_model_parameter_count(&a.model); n++)
    CU_ASSERT_EQUAL(distance_of(part_of(&a, got, n), part_of(&b, want, n), trm_model_parameter(&a.model, n)->count), 0);
  trm_free(scores);
  nn_case_close(&a);
  nn_case_close(&b);
}

static void padded(struct trm_device *device)
{
  padded_check(device, "embedding 6 | layer_norm | head tied", "embedding 6 | layer_norm | head tied bias=yes",
               &many_tokens);
  padded_check(device, "linear 4 bias=no | tanh | linear 1030 bias=no", "linear 4 bias=no | tanh | linear 1030",
               &many_classes);
  padded_check(device, "linear 1030 bias=no", "linear 1030", &many_values);
}

/* Only scores lie apart, which only the loss reads, and only those of many classes. */
static void test_rule(void)
{
  static const char *const packed[] = {"linear 1024 bias=no | linear 1030", "linear 1030 bias=no | tanh", "linear 1030"};
  struct trm_model model;
  for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
    CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, packed[i], "auto", &many_classes), TRM_OK);
    for (int k = 0; k < model.layers; k++)
      CU_ASSERT_EQUAL(trm_layer_output_ld(&model.layer[k]), trm_shape_count(&model.layer[k].out));
    trm_model_free(&model);
  }
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "linear 10 bias=no", "auto", &nn_ten_classes), TRM_OK);
  CU_ASSERT_EQUAL(trm_layer_output_ld(&model.layer[0]), 10);
  trm_model_free(&model);
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "embedding 4 | head tied", "auto", &many_tokens), TRM_OK);
  CU_ASSERT_EQUAL(trm_layer_output_elements(&model.layer[1]), T * 1088);
  trm_model_free(&model);
}

/* -- some rows at a time */

enum { PASSES = 2 };

struct outcome {
  struct trm_loss_sums evaluated, trained;
  float *gradient;
  size_t arena_bytes;
};

/* Slot part_ready: parts of the last layer, whose gradient comes first, are not final before the last chunk. */
static void note_part(void *context, size_t high)
{
  const struct trm_model *model = context;
  CU_ASSERT(high > model->layer[model->layers - 1].high || !model->loss_chunk);
}

/* Evaluates, and trains for two passes whose gradients are added, with `chunk` rows of scores at a time. */
static struct outcome chunk_run(struct nn_case *c, size_t chunk)
{
  struct outcome out = {.arena_bytes = 0};
  struct trm_pass pass = nn_case_pass(c);
  CU_ASSERT_EQUAL_FATAL(trm_model_set_loss_chunk(&c->model, chunk), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_model_bind(&c->model, c->device, c->w, NULL, ROWS, false), TRM_OK); /* releases the arena */
  CU_ASSERT_EQUAL_FATAL(trm_model_bind(&c->model, c->device, c->w, c->g, ROWS, true), TRM_OK);
  pass.training = false;
  CU_ASSERT_EQUAL(trm_model_evaluate(&c->model, &pass, &out.evaluated), TRM_OK);
  CU_ASSERT_EQUAL(c->model.scores == NULL, chunk > 0);
  pass.training = true;
  pass.part = 10;
  pass.part_ready = note_part;
  pass.part_context = &c->model;
  for (int i = 0; i < PASSES; i++) {
    const struct trm_input input = nn_case_part(c, (size_t)i, ROWS); /* passes of different sizes */
    pass.input = &input;
    pass.beta = i ? 1 : 0;
    pass.more_passes = i + 1 < PASSES;
    CU_ASSERT_EQUAL(trm_model_train(&c->model, &pass, 0.5f, &out.trained, NULL, NULL), TRM_OK);
  }
  out.gradient = nn_case_gradient(c);
  out.arena_bytes = c->model.arena_bytes;
  return out;
}

static void chunk_check(struct trm_device *device, const char *text, const char *loss,
                        const struct trm_input_spec *spec, enum trm_value_type values, int recompute)
{
  static const size_t chunks[] = {1, 4, 7, 100};
  struct nn_case c;
  if (loss)
    CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, text, loss, spec, ROWS, 3), TRM_OK);
  if (loss)
    nn_case_draw(&c, ROWS, 10);
  else
    open_case(&c, device, text, spec);
  c.model.accumulates = true;
  c.model.recompute = recompute;
  c.model.smoothing = c.model.loss->smooths ? 0.1f : 0;
  CU_ASSERT_EQUAL_FATAL(trm_model_set_values(&c.model, values), TRM_OK);
  const struct trm_layer *last = &c.model.layer[c.model.layers - 1];
  const size_t scores = ROWS * trm_layer_output_elements(last) * trm_value_bytes(values); /* bytes */
  const struct outcome want = chunk_run(&c, 0);
  for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
    const struct outcome got = chunk_run(&c, chunks[k]);
    CU_ASSERT_DOUBLE_EQUAL(got.evaluated.loss, want.evaluated.loss, 1e-6 * want.evaluated.loss);
    CU_ASSERT_DOUBLE_EQUAL(got.trained.loss, want.trained.loss, 1e-6 * want.trained.loss);
    CU_ASSERT_EQUAL(got.trained.correct, want.trained.correct);
    CU_ASSERT_EQUAL(got.trained.rows, want.trained.rows);
    CU_ASSERT(distance_of(got.gradient, want.gradient, c.model.parameters) < 1e-6);
    CU_ASSERT(norm_of(got.gradient, c.model.parameters) > 1e-3);
    if (c.model.spec.classes == V && chunks[k] == 1)
      CU_ASSERT((double)got.arena_bytes < (double)want.arena_bytes - 0.6 * (double)scores);
  }
  nn_case_close(&c);
}

static void chunks(struct trm_device *device)
{
  chunk_check(device, "gpt layers=1 heads=1 dim=6", NULL, &many_tokens, TRM_VALUES_F32, 0);
  chunk_check(device, "gpt layers=2 heads=1 dim=6", NULL, &many_tokens, TRM_VALUES_BF16, 1);
  chunk_check(device, "embedding 6 | mark a | layer_norm | add a | head", NULL, &many_tokens, TRM_VALUES_F32, 0);
  chunk_check(device, "linear 1030", NULL, &many_classes, TRM_VALUES_F32, 0);
  chunk_check(device, "linear 5 | relu | linear 1030 bias=no", NULL, &many_values, TRM_VALUES_BF16, 0);
  chunk_check(device, "linear 5 | tanh | linear 1", "hinge", &nn_one_value, TRM_VALUES_F32, 0);
  chunk_check(device, "linear 4 | tanh | linear 1", "logistic", &nn_sparse_two, TRM_VALUES_F32, 0);
}

static void test_chunks_refused(void)
{
  struct trm_model model;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "linear 8 | linear 10 | tanh", "auto", &nn_ten_classes), TRM_OK);
  CU_ASSERT_EQUAL(trm_model_set_loss_chunk(&model, 4), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "layer 2 (tanh): train.loss_chunk"));
  CU_ASSERT_EQUAL(trm_model_set_loss_chunk(&model, 0), TRM_OK);
  trm_model_free(&model);
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "linear 2", "auto", &nn_sparse_two), TRM_OK);
  CU_ASSERT_EQUAL(trm_model_set_loss_chunk(&model, 4), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "dense values"));
  trm_model_free(&model);
}

static void test_chunks(void)
{
  on_devices(chunks);
}

static void test_padded(void)
{
  on_devices(padded);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"rows that lie apart", test_padded},
    {"which rows lie apart", test_rule},
    {"some rows at a time", test_chunks},
    {"some rows at a time: refused", test_chunks_refused},
    CU_TEST_INFO_NULL,
  };
  return suite_run("scores", tests);
}
