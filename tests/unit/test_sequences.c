/* Token models: presets, initial weights by name, the tied head, smoothed and ignored targets. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "suite.h"
#include "support/nn_case.h"

static const struct trm_input_spec characters = {
  .shape = {.dims = 1, .size = {256}}, .tokens = true, .target = TRM_TARGET_CLASS, .classes = 65};
static const struct trm_input_spec pieces = {
  .shape = {.dims = 1, .size = {1024}}, .tokens = true, .target = TRM_TARGET_CLASS, .classes = 50257};

static size_t size_of(const char *text, const struct trm_input_spec *spec)
{
  struct trm_model model;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, text, "auto", spec), TRM_OK);
  const size_t size = trm_model_size(&model);
  trm_model_free(&model);
  return size;
}

static void test_presets(void)
{
  struct trm_model model;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "gpt layers=1 heads=2 dim=6 dropout=0.1", "auto", &nn_tokens), TRM_OK);
  CU_ASSERT_STRING_EQUAL(
    model.text, "embedding 6 | position | dropout 0.1 | mark a | layer_norm | linear 18 init=gpt2 | attention heads=2 "
                "| linear 6 init=gpt2 residuals=2 | dropout 0.1 | add a | mark b | layer_norm | linear 24 init=gpt2 | "
                "gelu tanh | linear 6 init=gpt2 residuals=2 | dropout 0.1 | add b | layer_norm | head tied");
  CU_ASSERT_EQUAL(model.targets, 5);
  trm_model_free(&model);

  /* parameter counts of the networks with these names */
  CU_ASSERT_EQUAL(size_of("gpt layers=6 heads=6 dim=384 context=256", &characters), 10770816);
  CU_ASSERT_EQUAL(size_of("gpt2-124m", &pieces), 124439808);
  CU_ASSERT_EQUAL(size_of("gpt2-355m", &pieces), 354823168);
  CU_ASSERT_EQUAL(size_of("gpt2-774m", &pieces), 774030080);
  CU_ASSERT_EQUAL(size_of("gpt2-1558m", &pieces), 1557611200);

  CU_ASSERT_EQUAL(trm_model_context("gpt layers=6 heads=6 dim=384 context=256"), 256);
  CU_ASSERT_EQUAL(trm_model_context("gpt layers=6 heads=6 dim=384"), 0);
  CU_ASSERT_EQUAL(trm_model_context("gpt2-355m dropout=0.1"), 1024);
  CU_ASSERT_EQUAL(trm_model_context(" gpt2-124m context=64 | relu"), 64);
  CU_ASSERT_EQUAL(trm_model_context("gpt layers=6 context=many"), 0);
  CU_ASSERT_EQUAL(trm_model_context("mlp 784-10"), 0);
  CU_ASSERT_EQUAL(trm_model_context("linear 10"), 0);
  CU_ASSERT_EQUAL(trm_model_context(""), 0);
}

/* Checks standard deviation and bound of initial weights. */
static void init_check(const char *text, int number, double deviation, double bound)
{
  static const struct trm_input_spec wide = {
    .shape = {.dims = 1, .size = {200}}, .target = TRM_TARGET_CLASS, .classes = 100};
  struct trm_model model;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, text, "auto", number < 2 ? &wide : &characters), TRM_OK);
  float *w = trm_alloc(model.parameters * sizeof *w, "weights");
  trm_model_init(&model, 5, w);
  const struct trm_parameter *p = trm_model_parameter(&model, number % 2);
  double squares = 0, largest = 0;
  for (size_t e = 0; e < p->count; e++) {
    const double value = (double)w[p->offset + e];
    squares += value * value / (double)p->count;
    largest = fmax(largest, fabs(value));
  }
  CU_ASSERT_DOUBLE_EQUAL(sqrt(squares), deviation, 0.03 * deviation);
  CU_ASSERT(largest <= bound);
  CU_ASSERT(largest >= 0.5 * bound);
  trm_free(w);
  trm_model_free(&model);
}

static void test_init(void)
{
  init_check("linear 100", 0, 1 / sqrt(3 * 200), 1 / sqrt(200));
  init_check("linear 100 init=default", 0, 1 / sqrt(3 * 200), 1 / sqrt(200));
  init_check("linear 100 init=he", 0, sqrt(2.0 / 200), 6 * sqrt(2.0 / 200));
  init_check("linear 100 init=xavier", 0, sqrt(2.0 / 300), sqrt(6.0 / 300));
  init_check("linear 100 init=gpt2", 0, 0.02, 0.12);
  init_check("linear 100 init=gpt2 residuals=16", 0, 0.005, 0.03);
  init_check("linear 100 init=he", 1, 0, 0);
  init_check("head init=gpt2", 1, 0, 0);
  init_check("linear 100", 1, 1 / sqrt(3 * 200), 1 / sqrt(200));
  init_check("embedding 100 | position | head", 2, 0.02, 0.12);
  init_check("embedding 100 | position | head", 3, 0.02, 0.12);
}

/* -- the tied head */

struct readiness {
  size_t end;
  int calls;
  float *g, *seen; /* device, host */
  struct trm_device *device;
};

static int note_ready(void *context, size_t low, size_t high)
{
  struct readiness *r = context;
  CU_ASSERT_EQUAL(low, r->end);
  r->device->ops->download(r->device, r->seen + low, r->g + low, (high - low) * sizeof(float));
  r->end = high;
  r->calls++;
  return TRM_OK;
}

/* A tied head is stored once, is ready last, and its gradient is the sum of an untied head's and the embedding's. */
static void tied(struct trm_device *device)
{
  struct nn_case one, two;
  const char *const text[] = {"embedding 6 | position | head tied", "embedding 6 | position | head bias=no"};
  CU_ASSERT_EQUAL_FATAL(nn_case_open(&one, device, text[0], "auto", &nn_tokens, NN_ROWS, 3), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(nn_case_open(&two, device, text[1], "auto", &nn_tokens, NN_ROWS, 3), TRM_OK);
  const struct trm_parameter *own = trm_model_parameter(&one.model, 0), *below = trm_model_parameter(&two.model, 0);
  const struct trm_parameter *position = trm_model_parameter(&two.model, 1), *head = trm_model_parameter(&two.model, 2);
  CU_ASSERT_EQUAL(trm_model_size(&one.model), 6 * (7 + 5));
  CU_ASSERT_EQUAL(one.model.boundaries, 2);
  CU_ASSERT(own->offset > trm_model_parameter(&one.model, 1)->offset);

  float *w = nn_case_weights(&two);
  const float *tied_w = nn_case_weights(&one);
  memcpy(w + below->offset, tied_w + own->offset, own->count * sizeof *w);
  memcpy(w + head->offset, tied_w + own->offset, own->count * sizeof *w);
  memcpy(w + position->offset, tied_w + trm_model_parameter(&one.model, 1)->offset, position->count * sizeof *w);
  nn_case_upload(&two, w);
  nn_case_draw(&one, 13, 10);
  nn_case_draw(&two, 13, 10);
  struct trm_pass pass_one = nn_case_pass(&one), pass_two = nn_case_pass(&two);
  for (int again = 0; again < 2; again++) { /* the second pass accumulates */
    struct readiness r = {.g = one.g, .device = device,
                          .seen = trm_alloc(one.model.parameters * sizeof(float), "gradients seen")};
    struct trm_loss_sums tally = {0};
    pass_one.beta = pass_two.beta = (float)again;
    CU_ASSERT_EQUAL(trm_model_train(&one.model, &pass_one, 1, &tally, note_ready, &r), TRM_OK);
    CU_ASSERT_EQUAL(r.calls, 2);
    CU_ASSERT_EQUAL(r.end, one.model.parameters);
    const float *g = nn_case_gradient(&one);
    float *both = nn_case_train(&two, &pass_two, 1);
    CU_ASSERT(memcmp(r.seen, g, one.model.parameters * sizeof *g) == 0);
    for (size_t e = 0; e < own->count; e++)
      both[below->offset + e] += both[head->offset + e];
    CU_ASSERT(distance_of(g + own->offset, both + below->offset, own->count) < 1e-6);
    CU_ASSERT(norm_of(g + own->offset, own->count) > 0.01);
    trm_free(r.seen);
  }
  nn_case_close(&one);
  nn_case_close(&two);
}

/* -- targets */

/* Scores of one pass, (B, T, V). */
static const float *scores_of(struct nn_case *c, const struct trm_pass *pass)
{
  struct trm_loss_sums tally = {0};
  CU_ASSERT_EQUAL_FATAL(trm_model_evaluate(&c->model, pass, &tally), TRM_OK);
  return read_floats(c->device, c->model.scores, pass->input->rows * 5 * 7);
}

static void targets(struct trm_device *device)
{
  enum { ROWS = 4, T = 5, V = 7 };
  struct nn_case c;
  float x[ROWS * T];
  int32_t target[ROWS * T];
  CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, "gpt layers=1 heads=1 dim=6", "auto", &nn_tokens, ROWS, 3), TRM_OK);
  for (int i = 0; i < ROWS * T; i++) {
    x[i] = (float)(i * i % V);
    target[i] = i % 3 ? (i * 5) % V : TRM_IGNORE_INDEX;
  }
  nn_case_batch(&c, ROWS, x, target, NULL);
  struct trm_pass pass = nn_case_pass(&c);
  const float *z = scores_of(&c, &pass);
  double loss = 0, smooth = 0, right = 0, count = 0;
  for (int i = 0; i < ROWS * T; i++) {
    const float *row = z + V * i;
    double sum = 0, mean = 0;
    int best = 0;
    for (int k = 0; k < V; k++) {
      sum += exp((double)row[k]);
      mean += (double)row[k] / V;
      best = row[k] > row[best] ? k : best;
    }
    if (target[i] == TRM_IGNORE_INDEX)
      continue;
    loss += log(sum) - (double)row[target[i]];
    smooth += log(sum) - 0.8 * (double)row[target[i]] - 0.2 * mean;
    right += best == target[i];
    count++;
  }
  struct trm_loss_sums tally = {0}, smoothed = {0}, plain = {0};
  CU_ASSERT_EQUAL(trm_model_evaluate(&c.model, &pass, &tally), TRM_OK);
  CU_ASSERT_EQUAL(tally.rows, count);
  CU_ASSERT_EQUAL(tally.correct, right);
  CU_ASSERT_DOUBLE_EQUAL(tally.loss, loss, 1e-5);
  /* smoothing applies in training only */
  c.model.smoothing = 0.2f;
  CU_ASSERT_EQUAL(trm_model_train(&c.model, &pass, 1, &smoothed, NULL, NULL), TRM_OK);
  CU_ASSERT_DOUBLE_EQUAL(smoothed.loss, smooth, 1e-5);
  CU_ASSERT_EQUAL(smoothed.correct, right);
  pass.training = false;
  CU_ASSERT_EQUAL(trm_model_evaluate(&c.model, &pass, &plain), TRM_OK);
  CU_ASSERT_DOUBLE_EQUAL(plain.loss, loss, 1e-5);
  nn_case_close(&c);
}

/* Scores at a position depend on all tokens up to it, and on no later ones. */
static void causal(struct trm_device *device)
{
  enum { T = 5, V = 7, CUT = 3 };
  float x[T] = {1, 6, 2, 0, 3};
  const int32_t target[T] = {0};
  struct nn_case c;
  CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, "gpt layers=2 heads=2 dim=8", "auto", &nn_tokens, 1, 3), TRM_OK);
  const struct trm_pass pass = nn_case_pass(&c);
  nn_case_batch(&c, 1, x, target, NULL);
  const float *before = scores_of(&c, &pass);
  x[CUT] = 5;
  nn_case_batch(&c, 1, x, target, NULL);
  const float *after = scores_of(&c, &pass);
  check_same("scores before the change", after, before, CUT * V);
  for (int t = CUT; t < T; t++)
    CU_ASSERT(distance_of(after + V * t, before + V * t, V) > 1e-4);
  x[0] = 0;
  nn_case_batch(&c, 1, x, target, NULL);
  const float *first = scores_of(&c, &pass);
  for (int t = 0; t < T; t++)
    CU_ASSERT(distance_of(first + V * t, after + V * t, V) > 1e-4);
  nn_case_close(&c);
}

static void test_tied(void)
{
  on_devices(tied);
}

static void test_targets(void)
{
  on_devices(targets);
}

static void test_causal(void)
{
  on_devices(causal);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"presets", test_presets},
    {"initial weights by name", test_init},
    {"a tied head", test_tied},
    {"targets smoothed and ignored", test_targets},
    {"scores are causal", test_causal},
    CU_TEST_INFO_NULL,
  };
  return suite_run("sequences", tests);
}
