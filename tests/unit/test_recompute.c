/* Recomputation of activations: which are kept and recomputed, that it saves memory, and that it changes no bit. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "nn/arena_plan.h"
#include "suite.h"
#include "support/nn_case.h"

static void test_option(void)
{
  int blocks = -1;
  CU_ASSERT_EQUAL(trm_model_parse_recompute("none", &blocks), TRM_OK);
  CU_ASSERT_EQUAL(blocks, 0);
  CU_ASSERT_EQUAL(trm_model_parse_recompute("block", &blocks), TRM_OK);
  CU_ASSERT_EQUAL(blocks, 1);
  CU_ASSERT_EQUAL(trm_model_parse_recompute("17", &blocks), TRM_OK);
  CU_ASSERT_EQUAL(blocks, 17);
  const char *const wrong[] = {"", "0", "-1", "blocks", "3x", "1.5", " 2", "99999999999", "all"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    CU_ASSERT_EQUAL(trm_model_parse_recompute(wrong[i], &blocks), TRM_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "parallel.recompute"));
  }
  CU_ASSERT_EQUAL(blocks, 17);
}

/* Compares the segments: one letter per layer, 'a' recomputed, '.' not, '|' between segments. */
static void check_segments(const char *text, const struct trm_input_spec *spec, int blocks, bool whole,
                           const char *want)
{
  struct trm_model model;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, text, "auto", spec), TRM_OK);
  int end[128];
  bool again[128];
  char got[256], *at = got;
  CU_ASSERT_TRUE_FATAL(model.layers <= 128);
  trm_recompute_plan(model.layer, 0, model.layers, blocks, whole, end, again);
  for (int i = 0; i < model.layers; i++) {
    *at++ = again[i] ? 'a' : '.';
    if (i + 1 == end[i] && i + 1 < model.layers)
      *at++ = '|';
  }
  *at = '\0';
  if (strcmp(got, want) != 0)
    printf("%s\n  segments %s\n  not      %s\n", text, got, want);
  CU_ASSERT_STRING_EQUAL(got, want);
  trm_model_free(&model);
}

static void test_segments(void)
{
  const char *chain = "linear 8 | tanh | linear 8 | tanh | linear 8 | gelu | linear 8 | tanh | linear 10";
  check_segments(chain, &nn_ten_classes, 0, true, ".........");
  /* tanh keeps what the next block reads, gelu its input */
  check_segments(chain, &nn_ten_classes, 1, false, "..|..|a.|..|.");
  check_segments(chain, &nn_ten_classes, 2, false, "aa..|aa..|.");
  check_segments(chain, &nn_ten_classes, 2, true, "aa..|aa..|.");
  check_segments(chain, &nn_ten_classes, 3, false, "aaaaa.|...");
  check_segments(chain, &nn_ten_classes, 3, true, "aaaaa.|aa.");
  check_segments(chain, &nn_ten_classes, 100, false, ".........");
  check_segments(chain, &nn_ten_classes, 100, true, "aaaaaaaa.");
  /* embedding position dropout | norm linear attention linear dropout add | norm linear gelu linear dropout add | ...
   * norm head: from the last linear of each branch on, nothing needs recomputation */
  check_segments("gpt layers=2 heads=2 dim=8 context=5 dropout=0.1", &nn_tokens, 1, false,
                 "...|aaa...|aaa...|aaa...|aaa...|..");
  check_segments("gpt layers=2 heads=2 dim=8 context=5", &nn_tokens, 2, false, "..|aaaaaaaa..|aaaaaaaa..|..");
  /* the stem is one block; activation and pooling after a branch belong to its block */
  check_segments("conv2d 2 3 pad=1 bias=no | batch_norm | tanh | mark a | conv2d 2 3 pad=1 bias=no | batch_norm | "
                 "tanh | conv2d 2 3 pad=1 bias=no | batch_norm | add a | tanh | mark b | conv2d 2 3 pad=1 | tanh | "
                 "conv2d 2 3 pad=1 | add b | tanh | global_avg_pool | linear 5", &nn_images, 1, false,
                 "aa.|aaaaa..|aaaaa.|.");
}

static void fill_nan(struct trm_device *device, void *array, size_t bytes)
{
  if (array)
    device->ops->fill(device, array, NAN, bytes / sizeof(float));
}

/* Overwrites what an earlier pass left. */
static void spoil(struct nn_case *c)
{
  const struct trm_model *m = &c->model;
  size_t passing = m->arena_bytes;
  for (int k = 0; k < m->chunks; k++)
    for (int slot = 0; slot < m->slots; slot++) {
      const struct trm_arena_plan *plan = m->chunk[k].plan;
      const size_t bytes = plan->transient_offset <= plan->bytes ? plan->transient_offset : plan->bytes;
      fill_nan(c->device, m->chunk[k].arena[slot], bytes);
      passing -= bytes;
    }
  fill_nan(c->device, m->transient, passing);
}

static void open_case(struct nn_case *c, struct trm_device *device, const struct nn_example *how, int recompute,
                      int slots)
{
  CU_ASSERT_EQUAL_FATAL(nn_case_open(c, device, how->text, how->loss, how->spec, NN_ROWS, 3), TRM_OK);
  c->model.recompute = recompute;
  CU_ASSERT_EQUAL_FATAL(trm_model_bind_slots(&c->model, device, c->w, c->g, NN_ROWS, true, slots), TRM_OK);
  nn_case_draw(c, 13, 10);
  spoil(c);
}

/* Two micro-batches, one after the other. */
static const float *train_two(struct nn_case *c)
{
  const struct trm_input part[] = {nn_case_part(c, 0, 6), nn_case_part(c, 6, 13)};
  struct trm_pass pass = nn_case_pass(c);
  for (int i = 0; i < 2; i++) {
    pass.input = &part[i];
    pass.first_row = i ? 6 : 0;
    pass.beta = (float)i;
    nn_case_train(c, &pass, 1.0f / 13);
    spoil(c);
  }
  return nn_case_gradient(c);
}

/* Two micro-batches in flight: forward of both, then loss and backward of both. */
static const float *train_slots(struct nn_case *c)
{
  const struct trm_input part[] = {nn_case_part(c, 0, 6), nn_case_part(c, 6, 13)};
  struct trm_pass pass[2];
  struct trm_loss_sums tally = {0};
  for (int i = 0; i < 2; i++) {
    pass[i] = nn_case_pass(c);
    pass[i].input = &part[i];
    pass[i].first_row = i ? 6 : 0;
    pass[i].beta = (float)i;
    pass[i].scale = 1.0f / 13;
    trm_model_select(&c->model, 0, i);
    trm_model_forward(&c->model, &pass[i]);
  }
  for (int i = 0; i < 2; i++) {
    trm_model_select(&c->model, 0, i);
    CU_ASSERT_EQUAL(trm_model_loss(&c->model, &pass[i], &tally), TRM_OK);
    CU_ASSERT_EQUAL(trm_model_backward(&c->model, &pass[i], NULL, NULL), TRM_OK);
  }
  return nn_case_gradient(c);
}

static void bits(struct trm_device *device)
{
  int computed_again = 0;
  for (const struct nn_example *how = nn_examples; how->text; how++) {
    struct nn_case c;
    open_case(&c, device, how, 0, 1);
    const float *want = train_two(&c);
    const size_t parameters = c.model.parameters, bytes = c.model.plan->bytes;
    nn_case_close(&c);
    for (int recompute = 0; recompute <= 4; recompute++) {
      open_case(&c, device, how, recompute, 1);
      for (int i = 0; i < c.model.layers; i++)
        computed_again += c.model.plan->recompute[i];
      CU_ASSERT(recompute || c.model.plan->bytes == bytes);
      check_same(how->text, train_two(&c), want, parameters);
      nn_case_close(&c);
      open_case(&c, device, how, recompute, 2);
      check_same(how->text, train_slots(&c), want, parameters);
      nn_case_close(&c);
    }
  }
  CU_ASSERT(computed_again > 200);
}

/* -- two chunks */

static void copy_rows(const struct nn_case *c, float *to, const float *from, const struct trm_shape *shape, size_t rows)
{
  c->device->ops->copy(c->device, to, from, rows * trm_shape_count(shape) * sizeof(float));
}

static const float *train_chunks(struct nn_case *c)
{
  const struct trm_input part[] = {nn_case_part(c, 0, 6), nn_case_part(c, 6, 13)};
  const struct trm_shape *shape;
  struct trm_pass pass[2];
  struct trm_loss_sums tally = {0};
  for (int i = 0; i < 2; i++) {
    pass[i] = nn_case_pass(c);
    pass[i].input = &part[i];
    pass[i].first_row = i ? 6 : 0;
    pass[i].beta = (float)i;
    pass[i].scale = 1.0f / 13;
    trm_model_select(&c->model, 0, i);
    trm_model_forward(&c->model, &pass[i]);
    const float *out = trm_model_chunk_output(&c->model, false, &shape);
    trm_model_select(&c->model, 1, i);
    copy_rows(c, trm_model_chunk_input(&c->model, false, &shape), out, shape, part[i].rows);
  }
  for (int i = 0; i < 2; i++) {
    trm_model_select(&c->model, 1, i);
    trm_model_forward(&c->model, &pass[i]);
  }
  for (int i = 0; i < 2; i++) {
    trm_model_select(&c->model, 1, i);
    CU_ASSERT_EQUAL(trm_model_loss(&c->model, &pass[i], &tally), TRM_OK);
    CU_ASSERT_EQUAL(trm_model_backward(&c->model, &pass[i], NULL, NULL), TRM_OK);
    const float *gradient = trm_model_chunk_input(&c->model, true, &shape);
    trm_model_select(&c->model, 0, i);
    copy_rows(c, trm_model_chunk_output(&c->model, true, &shape), gradient, shape, part[i].rows);
    CU_ASSERT_EQUAL(trm_model_backward(&c->model, &pass[i], NULL, NULL), TRM_OK);
  }
  return nn_case_gradient(c);
}

/* Splits the case's model into two chunks, the second from layer `at` on. */
static void cut_case(struct nn_case *c, const struct nn_example *how, int at, int recompute)
{
  const struct trm_model_part part = {.chunks = 2, .chunk = {{0, at}, {at, c->model.layers}}};
  const float *whole = nn_case_weights(c);
  trm_model_free(&c->model);
  CU_ASSERT_EQUAL_FATAL(trm_model_create_part(&c->model, how->text, how->loss, how->spec, &part), TRM_OK);
  nn_case_upload(c, whole);
  c->model.recompute = recompute;
  CU_ASSERT_EQUAL_FATAL(trm_model_bind_slots(&c->model, c->device, c->w, c->g, NN_ROWS, true, 2), TRM_OK);
  spoil(c);
}

static void chunks(struct trm_device *device)
{
  int whole_segments = 0;
  for (const struct nn_example *how = nn_examples; how->text; how++) {
    struct nn_case c;
    open_case(&c, device, how, 0, 1);
    const float *want = train_two(&c);
    const size_t parameters = c.model.parameters;
    for (int at = 1; at < c.model.layers; at++) {
      if (!trm_partition_allowed(c.model.layer, c.model.layers, at) || !c.model.layer[at - 1].needs_dy)
        continue;
      for (int recompute = 0; recompute <= 2; recompute++) {
        struct nn_case cut;
        open_case(&cut, device, how, 0, 1);
        cut_case(&cut, how, at, recompute);
        CU_ASSERT_EQUAL(cut.model.parameters, parameters);
        const struct trm_arena_plan *plan = cut.model.chunk[0].plan;
        for (int i = 0; i < plan->last; i++)
          whole_segments += plan->recompute[i] && plan->segment_end[i] == plan->last;
        check_same(how->text, train_chunks(&cut), want, parameters);
        nn_case_close(&cut);
      }
    }
    nn_case_close(&c);
  }
  CU_ASSERT(whole_segments > 20);
}

/* -- memory */

static struct trm_arena_plan *plan_for(const struct trm_model *model, size_t rows, int recompute)
{
  const struct trm_arena_request request = {.rows = rows, .training = true, .recompute_blocks = recompute};
  return trm_arena_plan_create(model->layer, 0, model->layers, &request);
}

static size_t elements_for(const char *text, const struct trm_input_spec *spec, size_t rows, int recompute)
{
  struct trm_model model;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, text, "auto", spec), TRM_OK);
  struct trm_arena_plan *plan = plan_for(&model, rows, recompute);
  const size_t elements = plan->bytes / sizeof(float);
  trm_arena_plan_free(plan);
  trm_model_free(&model);
  return elements;
}

static void test_memory(void)
{
  const char *chain = "mlp 9-64-64-64-64-64-64-64-64-10 tanh"; /* 8 values of 64, and scores */
  CU_ASSERT_EQUAL(elements_for(chain, &nn_ten_classes, 64, 0), 64 * (9 * 64 + 10)); /* all values and a gradient */
  /* all values are inputs of segments */
  CU_ASSERT_EQUAL(elements_for(chain, &nn_ten_classes, 64, 1), 64 * (9 * 64 + 10));
  /* the second, fourth, sixth and eighth value, a gradient, and the recomputed seventh */
  CU_ASSERT_EQUAL(elements_for(chain, &nn_ten_classes, 64, 2), 64 * 6 * 64);
  CU_ASSERT_EQUAL(elements_for(chain, &nn_ten_classes, 64, 4), 64 * 6 * 64); /* two inputs, a gradient, three again */
  CU_ASSERT_EQUAL(elements_for(chain, &nn_ten_classes, 64, 9), 64 * (9 * 64 + 10)); /* one segment */
}

/* A deep GPT keeps the inputs of its blocks, plus the memory of one block. */
static void test_deep(void)
{
  const struct trm_input_spec tokens = {
    .shape = {.dims = 1, .size = {32}}, .tokens = true, .target = TRM_TARGET_CLASS, .classes = 50};
  enum { ROWS = 4, LAYERS = 24, DIM = 48 };
  const char *deep = "gpt layers=24 heads=4 dim=48 context=32 dropout=0.1";
  const char *one = "gpt layers=1 heads=4 dim=48 context=32";
  const size_t whole = elements_for(deep, &tokens, ROWS, 0), block = elements_for(deep, &tokens, ROWS, 1);
  const size_t inputs = (size_t)ROWS * 32 * DIM * (2 * LAYERS + 1), single = elements_for(one, &tokens, ROWS, 0);
  CU_ASSERT(block >= inputs);
  CU_ASSERT(block <= inputs + single);
  CU_ASSERT(whole > 5 * block);
  const size_t two = elements_for(deep, &tokens, ROWS, 2); /* half the inputs */
  CU_ASSERT(two < block);
  CU_ASSERT(two <= inputs / 2 + 2 * single);
}

/* Micro-batches in flight have their own segment inputs and share all other memory. */
static void slots_memory(struct trm_device *device)
{
  struct nn_case c;
  const struct nn_example gpt = {"gpt layers=4 heads=2 dim=8 context=5", "auto", &nn_tokens, false};
  open_case(&c, device, &gpt, 1, 4);
  const struct trm_arena_plan *plan = c.model.plan;
  const size_t input = (size_t)NN_ROWS * 5 * 8, scores = (size_t)NN_ROWS * 5 * 7;
  /* nine segment inputs, the output of the last norm, and its two statistics per position */
  CU_ASSERT_EQUAL(plan->transient_offset, sizeof(float) * (10 * input + scores + 2 * (size_t)NN_ROWS * 5));
  CU_ASSERT_EQUAL(c.model.arena_bytes,
                  4 * plan->transient_offset + (plan->bytes - plan->transient_offset));
  CU_ASSERT_PTR_NOT_NULL(c.model.transient);
  nn_case_close(&c);
}

static void test_cost(void)
{
  struct trm_model model;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, "mlp 9-64-64-64-64-10 tanh", "auto", &nn_ten_classes), TRM_OK);
  CU_ASSERT_EQUAL(trm_model_recompute_cost(&model, 1).flop, 0);
  model.recompute = 2;
  const double again = trm_model_recompute_cost(&model, 1).flop;
  double want = 0;
  for (int i = 0; i < 6; i++)
    want += i % 4 < 2 ? trm_layer_cost(&model.layer[i]).flop : 0;
  CU_ASSERT(again > 0);
  CU_ASSERT_EQUAL(again, want);
  trm_model_free(&model);
}

static void test_bits(void)
{
  on_devices(bits);
}

static void test_chunks(void)
{
  on_devices(chunks);
}

static void test_slots(void)
{
  on_devices(slots_memory);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"the option", test_option},
    {"segments and recomputed layers", test_segments},
    {"bit-identical", test_bits},
    {"bit-identical in chunks", test_chunks},
    {"memory of a chain", test_memory},
    {"memory of a deep model", test_deep},
    {"memory of several micro-batches", test_slots},
    {"cost", test_cost},
    CU_TEST_INFO_NULL,
  };
  return suite_run("recompute", tests);
}
