/* Models sharded over the ranks of the tensor axis, against the whole model on the same rank: scores, losses,
 * gradients, initial weights, masks. Runs at several rank counts. */
#include <math.h>
#include <string.h>

#include "core/axis.h"
#include "core/memory.h"
#include "core/random.h"
#include "kernels/kernels.h"
#include "ranks.h"
#include "support/nn_case.h"
#include "support/pretend_device.h"

/* This rank's shard of a case's model, with its weights. */
struct share {
  struct nn_case *whole;
  struct trm_model model;
  struct trm_axis axis;
  float *w, *g; /* device, (model.parameters) */
};

static const struct trm_parameter *whole_of(const struct share *s, const struct trm_parameter *part)
{
  for (int n = 0; n < trm_model_parameter_count(&s->whole->model); n++)
    if (trm_model_parameter(&s->whole->model, n)->number == part->number)
      return trm_model_parameter(&s->whole->model, n);
  CU_FAIL_FATAL("a parameter without a whole");
  return NULL;
}

/* Copies from a flat array of the whole model to one of the shard. */
static void part_of(const struct share *s, const float *whole, float *part)
{
  memset(part, 0, s->model.parameters * sizeof *part);
  for (int n = 0; n < trm_model_parameter_count(&s->model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&s->model, n), *from = whole_of(s, p);
    CU_ASSERT_STRING_EQUAL(p->name, from->name);
    CU_ASSERT_EQUAL(p->count, trm_shape_count(&p->shape));
    CU_ASSERT_EQUAL(p->slice.outer * p->slice.extent * p->slice.inner, from->count);
    for (size_t e = 0; e < p->count; e++)
      part[p->offset + e] = whole[from->offset + trm_slice_full_index(&p->slice, e)];
  }
}

/* cut: the layer of the whole model where a second chunk starts, 0: one chunk. */
static int share_open(struct share *s, struct nn_case *whole, const char *loss, bool by_positions, int cut,
                      int recompute)
{
  const struct trm_model_part part = {.tensor_rank = world->rank,
                                      .tensor_size = world->size,
                                      .sequence_parallel = by_positions,
                                      .chunks = cut ? 2 : 0,
                                      .chunk = {{0, cut}, {cut, whole->model.layers}}};
  struct trm_device *device = whole->device;
  *s = (struct share){.whole = whole};
  TRM_CHECK(trm_model_create_part(&s->model, whole->model.text, loss, &whole->model.spec, &part));
  s->model.recompute = recompute;
  trm_axis_open(&s->axis, world, device);
  if (by_positions) /* otherwise by messages */
    trm_axis_share_memory(&s->axis, TRM_SHARE_NODE);
  const size_t n = s->model.parameters;
  float *init = trm_alloc(n * sizeof *init, "test"), *want = trm_alloc(n * sizeof *want, "test");
  float *all = trm_alloc(whole->model.parameters * sizeof *all, "test");
  trm_model_init(&s->model, 5, init);
  trm_model_init(&whole->model, 5, all);
  part_of(s, all, want);
  CU_ASSERT_EQUAL(memcmp(init, want, n * sizeof *init), 0);
  device->ops->download(device, all, whole->w, whole->model.parameters * sizeof *all);
  part_of(s, all, want);
  void *memory;
  CU_ASSERT_EQUAL_FATAL(device->ops->alloc(device, n * sizeof *init, TRM_MEMORY_WEIGHTS, &memory), TRM_OK);
  s->w = memory;
  CU_ASSERT_EQUAL_FATAL(device->ops->alloc(device, n * sizeof *init, TRM_MEMORY_GRADIENTS, &memory), TRM_OK);
  s->g = memory;
  device->ops->upload(device, s->w, want, n * sizeof *want);
  trm_free(init);
  trm_free(want);
  trm_free(all);
  return trm_model_bind(&s->model, device, s->w, s->g, whole->model.max_rows, true);
}

static void share_close(struct share *s)
{
  struct trm_device *device = s->whole->device;
  trm_model_free(&s->model);
  device->ops->release(device, s->w);
  device->ops->release(device, s->g);
  trm_axis_close(&s->axis);
}

/* Returns the largest difference relative to the largest value. */
static double error_of(const float *got, const float *want, size_t n)
{
  double most = 0, error = 0;
  for (size_t i = 0; i < n; i++) {
    const double value = fabs((double)want[i]), off = fabs((double)got[i] - (double)want[i]);
    most = value > most ? value : most;
    error = !(off <= error) ? off : error; /* NaN stays */
  }
  return error == 0 ? 0 : error / (most > 0 ? most : 1);
}

/* Reduction over the data axis for batch norm: here of one rank. */
static void alone(void *context, double *values, size_t n)
{
  (void)context, (void)values, (void)n;
}

static void check(bool good, const char *what, const struct share *s, bool by_positions, double error)
{
  CU_ASSERT(good);
  if (!good)
    printf("%d of %d ranks%s, %s: %s: %.2g\n", world->rank, world->size, by_positions ? ", positions" : "",
           s->whole->model.text, what, error);
}

static void gradients_check(struct share *s, bool by_positions, double least)
{
  const size_t n = s->model.parameters;
  float *want = trm_alloc(n * sizeof *want, "test"), *got = trm_alloc(n * sizeof *got, "test");
  float *all = trm_alloc(s->whole->model.parameters * sizeof *all, "test");
  struct trm_device *device = s->whole->device;
  for (int k = 0; k < trm_model_parameter_count(&s->model); k++) {
    const struct trm_parameter *p = trm_model_parameter(&s->model, k);
    if (p->gradient_partial)
      trm_axis_allreduce(&s->axis, p->g, p->count, TRM_VALUES_F32);
    if (trm_slice_is_shard(&p->slice))
      continue;
    const float *each = trm_axis_allgather_host(&s->axis, p->g, p->count); /* equal weights, equal bits */
    for (int rank = 1; rank < world->size; rank++)
      check(!memcmp(each, each + (size_t)rank * p->count, p->count * sizeof *all), p->name, s, by_positions, NAN);
  }
  device->ops->download(device, all, s->whole->g, s->whole->model.parameters * sizeof *all);
  device->ops->download(device, got, s->g, n * sizeof *got);
  part_of(s, all, want);
  for (int k = 0; k < trm_model_parameter_count(&s->model); k++) {
    const struct trm_parameter *p = trm_model_parameter(&s->model, k), *from = whole_of(s, p);
    double most = 0; /* of the whole tensor: the values of a slice may be small */
    for (size_t e = 0; e < from->count; e++)
      most = fmax(most, fabs((double)all[from->offset + e]));
    double error = 0;
    for (size_t e = 0; e < p->count; e++) {
      const double off = fabs((double)got[p->offset + e] - (double)want[p->offset + e]);
      error = !(off <= error) ? off : error;
    }
    check(error <= 1e-5 * most + least, p->name, s, by_positions, error / most);
  }
  trm_free(want);
  trm_free(got);
  trm_free(all);
}

static void scores_check(struct share *s, const struct trm_input *input, bool by_positions)
{
  const struct trm_layer *last = &s->model.layer[s->model.layers - 1];
  const struct trm_slice *slice = &last->slice;
  const size_t n = input->rows * trm_shape_count(&s->whole->model.layer[s->whole->model.layers - 1].out);
  struct trm_device *device = s->whole->device;
  float *want = trm_alloc(n * sizeof *want, "test"), *got = trm_alloc(n * sizeof *got, "test");
  void *memory = NULL;
  const float *scores = s->model.scores;
  CU_ASSERT_TRUE(last->is_output);
  if (last->output_sharded) {
    CU_ASSERT_EQUAL_FATAL(device->ops->alloc(device, n * sizeof *got, TRM_MEMORY_BUFFERS, &memory), TRM_OK);
    trm_axis_allgather(&s->axis, scores, memory, input->rows * slice->outer, slice->extent, slice->inner,
                       TRM_VALUES_F32);
    scores = memory;
  }
  device->ops->download(device, got, scores, n * sizeof *got);
  device->ops->download(device, want, s->whole->model.scores, n * sizeof *want);
  const double error = error_of(got, want, n);
  check(error <= 1e-5, "scores", s, by_positions, error);
  if (memory)
    device->ops->release(device, memory);
  trm_free(want);
  trm_free(got);
}

static void tally_check(const struct share *s, const struct trm_loss_sums *got, const struct trm_loss_sums *want,
                        bool by_positions)
{
  const double error = fabs(got->loss - want->loss) / (fabs(want->loss) + 1e-3);
  check(error <= 1e-5, "loss", s, by_positions, error);
  check(got->correct == want->correct, "correct", s, by_positions, got->correct - want->correct);
  check(got->rows == want->rows, "rows", s, by_positions, got->rows - want->rows);
}

/* Each element of a whole parameter is counted on one rank. */
static void counted_check(struct share *s)
{
  const size_t n = s->whole->model.parameters;
  float *count = trm_alloc(n * sizeof *count, "test");
  for (int k = 0; k < trm_model_parameter_count(&s->model); k++) {
    const struct trm_parameter *p = trm_model_parameter(&s->model, k), *whole = whole_of(s, p);
    for (size_t e = 0; p->primary && e < p->count; e++)
      count[whole->offset + trm_slice_full_index(&p->slice, e)]++;
  }
  world->ops->allreduce(world, count, n, TRM_FLOAT, TRM_SUM);
  for (int k = 0; k < trm_model_parameter_count(&s->whole->model); k++) {
    const struct trm_parameter *p = trm_model_parameter(&s->whole->model, k);
    for (size_t e = 0; e < p->count; e++)
      if (count[p->offset + e] != 1) {
        CU_FAIL("an element that is not counted once");
        break;
      }
  }
  trm_free(count);
}

/* The sharded model matches the whole one over the case's batch: in evaluation, in training, twice. */
static void share_check(struct share *s, bool by_positions)
{
  struct nn_case *c = s->whole;
  struct trm_pass whole = nn_case_pass(c), part;
  const float scale = 1 / (float)c->input.rows;
  whole.first_row = 1234567;
  whole.reduce = alone;
  part = whole;
  part.tensor_axis = &s->axis;
  c->model.smoothing = s->model.smoothing = c->model.loss->run_sharded ? 0.1f : 0;
  counted_check(s);
  for (int turn = 0; turn < 2; turn++) {
    struct trm_loss_sums got = {0}, want = {0};
    whole.training = part.training = false;
    CU_ASSERT_EQUAL_FATAL(trm_model_evaluate(&c->model, &whole, &want), TRM_OK);
    CU_ASSERT_EQUAL_FATAL(trm_model_evaluate(&s->model, &part, &got), TRM_OK);
    scores_check(s, &c->input, by_positions);
    tally_check(s, &got, &want, by_positions);
    whole.training = part.training = true;
    whole.beta = part.beta = (float)turn;
    got = want = (struct trm_loss_sums){0};
    CU_ASSERT_EQUAL_FATAL(trm_model_train(&c->model, &whole, scale, &want, NULL, NULL), TRM_OK);
    CU_ASSERT_EQUAL_FATAL(trm_model_train(&s->model, &part, scale, &got, NULL, NULL), TRM_OK);
    tally_check(s, &got, &want, by_positions);
    if (turn == 0)
      gradients_check(s, by_positions, 1e-8);
  }
}

/* Runs one training pass through all chunks; returns its gradient, which the caller frees. */
static float *share_train(struct share *s)
{
  struct trm_device *device = s->whole->device;
  struct trm_pass pass = nn_case_pass(s->whole);
  struct trm_loss_sums tally = {0};
  const struct trm_shape *shape;
  pass.scale = 0.25f;
  pass.reduce = alone;
  pass.tensor_axis = &s->axis;
  const float *value = NULL;
  for (int c = 0; c < s->model.chunks; c++) {
    trm_model_select(&s->model, c, 0);
    float *entry = trm_model_chunk_input(&s->model, false, &shape);
    if (entry)
      device->ops->copy(device, entry, value, pass.input->rows * trm_shape_count(shape) * sizeof *entry);
    trm_model_forward(&s->model, &pass);
    value = trm_model_chunk_output(&s->model, false, &shape);
  }
  CU_ASSERT_EQUAL(trm_model_loss(&s->model, &pass, &tally), TRM_OK);
  for (int c = s->model.chunks - 1; c >= 0; c--) {
    trm_model_select(&s->model, c, 0);
    float *to = trm_model_chunk_output(&s->model, true, &shape);
    if (to)
      device->ops->copy(device, to, value, pass.input->rows * trm_shape_count(shape) * sizeof *to);
    CU_ASSERT_EQUAL(trm_model_backward(&s->model, &pass, NULL, NULL), TRM_OK);
    value = trm_model_chunk_input(&s->model, true, &shape);
  }
  float *gradient = trm_alloc(s->model.parameters * sizeof *gradient, "test");
  device->ops->download(device, gradient, s->g, s->model.parameters * sizeof *gradient);
  return gradient;
}

/* The parameters of b are those of a in another order or under other names; their gradients are bit-identical. */
static void gradients_same(const struct share *a, const float *of_a, const struct share *b, const float *of_b)
{
  for (int n = 0; n < trm_model_parameter_count(&a->model); n++)
    for (int m = 0; m < trm_model_parameter_count(&b->model); m++) {
      const struct trm_parameter *p = trm_model_parameter(&a->model, n), *q = trm_model_parameter(&b->model, m);
      if (p->number == q->number)
        CU_ASSERT(p->count == q->count && !memcmp(of_a + p->offset, of_b + q->offset, p->count * sizeof *of_a));
    }
}

/* A sharded model in two chunks, and one with recomputation, match the sharded model in one chunk. */
static void pieces_check(struct nn_case *c, const char *loss, bool by_positions)
{
  struct share one, other;
  CU_ASSERT_EQUAL_FATAL(share_open(&one, c, loss, by_positions, 0, 0), TRM_OK);
  float *want = share_train(&one);
  for (int cut = 0; cut < c->model.layers; cut += 1 + c->model.layers / 6) {
    if (cut && !trm_partition_allowed(c->model.layer, c->model.layers, cut))
      continue;
    CU_ASSERT_EQUAL_FATAL(share_open(&other, c, loss, by_positions, cut, 1 + cut % 2), TRM_OK);
    float *got = share_train(&other);
    gradients_same(&one, want, &other, got);
    trm_free(got);
    share_close(&other);
  }
  trm_free(want);
  share_close(&one);
}

/* A model on one device, whole and sharded over up to `most` ranks. It has no bias before batch norm, whose gradient
 * would be rounding errors only. */
static void model_check(struct trm_device *device, const char *text, const char *loss,
                        const struct trm_input_spec *spec, const float *x, const int32_t *target, const float *value,
                        size_t rows, int most)
{
  for (int by_positions = 0; by_positions < 2; by_positions++) {
    struct nn_case c;
    struct share s;
    const int status = nn_case_open(&c, device, text, loss, spec, NN_ROWS, 5);
    if (status != TRM_OK)
      printf("%s\n", trm_error_text());
    CU_ASSERT_EQUAL_FATAL(status, TRM_OK);
    if (x)
      nn_case_batch(&c, rows, x, spec->target == TRM_TARGET_CLASS ? target : NULL,
                    spec->target == TRM_TARGET_VALUE ? value : NULL);
    else
      nn_case_draw(&c, rows, 3);
    const int opened = share_open(&s, &c, loss, by_positions, 0, 0);
    CU_ASSERT_EQUAL(opened, world->size <= most ? TRM_OK : TRM_USAGE);
    if (opened == TRM_OK) {
      share_check(&s, by_positions);
      share_close(&s);
      pieces_check(&c, loss, by_positions);
    } else {
      char number[32];
      snprintf(number, sizeof number, "among %d ranks", world->size);
      CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), number));
    }
    nn_case_close(&c);
  }
}

static void on_both(void (*test)(struct trm_device *device))
{
  struct trm_device device;
  CU_ASSERT_EQUAL_FATAL(trm_device_open(&device, "cpu", "auto", TRM_MATMUL_F32, 0, 1), TRM_OK);
  test(&device);
  trm_device_close(&device);
  CU_ASSERT_EQUAL_FATAL(pretend_device_open(&device, 1), TRM_OK);
  test(&device);
  pretend_device_close(&device);
}

/* Returns the number of ranks that the model's heads allow. */
static int heads_of(const char *text)
{
  int most = 7; /* the examples' vocabulary */
  for (const char *at = text; (at = strstr(at, "heads=")); at++)
    most = atoi(at + 6) < most ? atoi(at + 6) : most;
  return strstr(text, "embedding") || strstr(text, "gpt") ? most : 1 << 20;
}

static void examples(struct trm_device *device)
{
  for (const struct nn_example *e = nn_examples; e->text; e++)
    model_check(device, e->text, e->loss, e->spec, NULL, NULL, NULL, 5, heads_of(e->text));
}

/* -- larger models */

static const struct trm_input_spec small = {
  .shape = {.dims = 3, .size = {1, 16, 16}}, .target = TRM_TARGET_CLASS, .classes = 10};
static const struct trm_input_spec colored = {
  .shape = {.dims = 3, .size = {3, 8, 8}}, .target = TRM_TARGET_CLASS, .classes = 10};
static const struct trm_input_spec characters = {
  .shape = {.dims = 1, .size = {12}}, .tokens = true, .target = TRM_TARGET_CLASS, .classes = 65};
static const struct trm_input_spec odd = { /* positions do not divide evenly by 3 and 4 */
  .shape = {.dims = 1, .size = {14}}, .tokens = true, .target = TRM_TARGET_CLASS, .classes = 65};
static const struct trm_input_spec vectors = {
  .shape = {.dims = 1, .size = {50}}, .target = TRM_TARGET_CLASS, .classes = 10};
static const struct trm_input_spec values = {
  .shape = {.dims = 1, .size = {50}}, .target = TRM_TARGET_VALUE, .classes = 7};

/* Checks the model with a pseudo-random batch. ignored: some targets are ignored. */
static void drawn_check(struct trm_device *device, const char *text, const struct trm_input_spec *spec, bool ignored,
                        int most)
{
  enum { ROWS = 6 };
  const size_t f = trm_shape_count(&spec->shape), t = spec->tokens ? f : 1;
  float *x = trm_alloc(ROWS * f * sizeof *x, "test"), *value = trm_alloc(ROWS * spec->classes * sizeof *value, "test");
  int32_t *target = trm_alloc(ROWS * t * sizeof *target, "test");
  for (size_t i = 0; i < ROWS * f; i++)
    x[i] = spec->tokens ? floorf(trm_random_uniform(1, TRM_RANDOM_BENCH, 1, i) * (float)spec->classes)
                        : trm_random_normal(1, TRM_RANDOM_BENCH, 1, i);
  for (size_t i = 0; i < ROWS * t; i++)
    target[i] = ignored && i % 5 == 3 ? TRM_IGNORE_INDEX
                                      : (int32_t)(trm_random_uniform(1, TRM_RANDOM_BENCH, 2, i) * (float)spec->classes);
  for (size_t i = 0; i < ROWS * spec->classes; i++)
    value[i] = trm_random_normal(1, TRM_RANDOM_BENCH, 3, i);
  model_check(device, text, "auto", spec, x, target, value, ROWS, most);
  trm_free(x);
  trm_free(value);
  trm_free(target);
}

static void perceptrons(struct trm_device *device)
{
  drawn_check(device, "mlp 50-37-29-23-10 relu", &vectors, false, 99);
  drawn_check(device, "linear 21 | dropout 0.3 | gelu | layer_norm | linear 26 | dropout 0.4 | swiglu | linear 10",
              &vectors, true, 99);
  drawn_check(device, "linear 3 | relu | linear 2 | tanh | linear 40 | sigmoid | linear 10", &vectors, false, 99);
  drawn_check(device, "mark x | linear 50 | tanh | add x | mark y | linear 50 bias=no | batch_norm | tanh | "
                      "linear 50 | add y | linear 7", &values, false, 99);
  drawn_check(device, "linear 50 bias=no | relu | linear 31 bias=no | relu | linear 7", &values, false, 99);
}

static void sequences(struct trm_device *device)
{
  static const struct trm_input_spec *const specs[] = {&characters, &odd};
  for (int k = 0; k < 2; k++) {
    drawn_check(device, "gpt layers=2 heads=4 dim=16 dropout=0.1", specs[k], true, 4);
    drawn_check(device, "embedding 20 | mark a | rms_norm | linear 60 bias=no | rotary heads=5 | attention heads=5 | "
                        "linear 20 | dropout 0.2 | add a | mark b | rms_norm | linear 70 bias=no | swiglu | "
                        "linear 20 bias=no | add b | rms_norm | head", specs[k], false, 5);
    /* all reshards: features and positions, heads that do not divide, scores in another sharding */
    drawn_check(device, "embedding 8 | position | mark a | linear 24 | dropout 0.1 | attention heads=4 causal=no | "
                        "mark h | layer_norm | add a | mark c | linear 8 | gelu | add h | add c | head bias=no | tanh",
                specs[k], false, 4);
    drawn_check(device, "embedding 24 | rotary heads=4 | mark q | attention heads=4 | dropout 0.1 | position | "
                        "linear 24 | add q | swiglu | layer_norm | linear 65 | layer_norm", specs[k], true, 4);
    drawn_check(device, "embedding 12 | dropout 0.3 | linear 10 | tanh | dropout 0.3 | linear 12 | dropout 0.2 | "
                        "head tied bias=yes", specs[k], false, 65);
  }
}

static void images(struct trm_device *device)
{
  drawn_check(device, "lenet5", &small, false, 99);
  drawn_check(device, "resnet20", &colored, false, 99);
  drawn_check(device,
              "conv2d 8 3 pad=1 | relu | conv2d 12 3 groups=4 pad=1 bias=no | batch_norm | gelu | max_pool 2 | "
              "dropout 0.2 | conv2d 12 3 groups=12 | conv2d 6 1 groups=2 | relu | conv2d 7 2 | flatten | "
              "linear 10",
              &colored, false, 99);
  drawn_check(device,
              "conv2d 5 3 bias=no | batch_norm sync=no | dropout 0.1 | avg_pool 2 | linear 11 | tanh | "
              "linear 10",
              &colored, false, 99);
  drawn_check(device, "conv2d 9 3 | flatten | dropout 0.1 | linear 10", &colored, false, 99);
  drawn_check(device,
              "avg_pool 2 | conv2d 3 1 | mark a | conv2d 3 1 | max_pool 1 | conv2d 3 1 | add a | "
              "global_avg_pool | layer_norm | linear 10",
              &colored, false, 99);
  drawn_check(device, "conv2d 10 8 bias=no | flatten", &colored, false, 99);
}

/* -- the axis */

/* Collectives on an array (outer, n, inner) of integers. */
static void axis_check(struct trm_axis *axis, size_t outer, size_t n, size_t inner)
{
  struct trm_device *device = axis->device;
  const size_t count = outer * n * inner, ranks = (size_t)world->size;
  size_t low, high;
  trm_interval(n, ranks, (size_t)world->rank, &low, &high);
  const size_t own = outer * (high - low) * inner;
  float *host = trm_alloc((count + 1) * sizeof *host, "test"), *got = trm_alloc((count + 1) * sizeof *got, "test");
  float *mine = trm_alloc((own + 1) * sizeof *mine, "test");
  void *memory[3];
  for (int k = 0; k < 3; k++)
    CU_ASSERT_EQUAL_FATAL(device->ops->alloc(device, (count + 1) * sizeof *host, TRM_MEMORY_BUFFERS, &memory[k]),
                          TRM_OK);
  float *whole = memory[0], *part = memory[1], *back = memory[2];
  for (size_t i = 0; i < count; i++)
    host[i] = (float)i;
  device->ops->upload(device, whole, host, count * sizeof *host);
  trm_axis_slice(axis, whole, part, outer, n, inner, TRM_VALUES_F32);
  device->ops->download(device, mine, part, own * sizeof *mine);
  const struct trm_slice slice = {.outer = outer, .extent = n, .inner = inner, .low = low, .high = high};
  size_t wrong = 0;
  for (size_t e = 0; e < own; e++)
    wrong += mine[e] != (float)trm_slice_full_index(&slice, e);
  trm_axis_allgather(axis, part, back, outer, n, inner, TRM_VALUES_F32);
  device->ops->download(device, got, back, count * sizeof *got);
  wrong += memcmp(got, host, count * sizeof *got) != 0;
  trm_axis_reduce_scatter(axis, whole, part, outer, n, inner, TRM_VALUES_F32);
  device->ops->download(device, got, part, own * sizeof *got);
  for (size_t e = 0; e < own; e++)
    wrong += got[e] != (float)ranks * mine[e];
  trm_axis_allreduce(axis, whole, count, TRM_VALUES_F32);
  device->ops->download(device, got, whole, count * sizeof *got);
  for (size_t i = 0; i < count; i++)
    wrong += got[i] != (float)ranks * host[i];
  for (size_t i = 0; i < count; i++)
    host[i] = (float)(i + 7 * (size_t)world->rank);
  device->ops->upload(device, back, host, count * sizeof *host);
  const float *all = trm_axis_allgather_host(axis, back, count);
  for (size_t i = 0; i < ranks * count; i++)
    wrong += all[i] != (float)(i % count + 7 * (i / count));
  CU_ASSERT_EQUAL(wrong, 0);
  for (int k = 0; k < 3; k++)
    device->ops->release(device, memory[k]);
  trm_free(host);
  trm_free(got);
  trm_free(mine);
}

/* Downloads a device array of bfloat16 and counts the elements that are not factor times want. */
static size_t wrong_values(struct trm_device *device, const void *array, const trm_bf16 *want, size_t n, float factor)
{
  trm_bf16 *got = trm_alloc((n + 1) * sizeof *got, "test");
  size_t wrong = 0;
  device->ops->download(device, got, array, n * sizeof *got);
  for (size_t i = 0; i < n; i++)
    wrong += trm_bf16_value(got[i]) != factor * trm_bf16_value(want[i]);
  trm_free(got);
  return wrong;
}

/* The same in bfloat16: integers small enough for exact sums. */
static void axis_check_bf16(struct trm_axis *axis, size_t outer, size_t n, size_t inner)
{
  struct trm_device *device = axis->device;
  const size_t count = outer * n * inner, ranks = (size_t)world->size, bytes = (count + 1) * sizeof(trm_bf16);
  struct trm_slice slice = {.outer = outer, .extent = n, .inner = inner};
  trm_interval(n, ranks, (size_t)world->rank, &slice.low, &slice.high);
  const size_t own = outer * (slice.high - slice.low) * inner;
  trm_bf16 *host = trm_alloc(bytes, "test"), *mine = trm_alloc(bytes, "test");
  void *memory[3];
  for (int k = 0; k < 3; k++)
    CU_ASSERT_EQUAL_FATAL(device->ops->alloc(device, bytes, TRM_MEMORY_BUFFERS, &memory[k]), TRM_OK);
  for (size_t i = 0; i < count; i++)
    host[i] = trm_bf16_round((float)(i % 31));
  for (size_t e = 0; e < own; e++)
    mine[e] = host[trm_slice_full_index(&slice, e)];
  device->ops->upload(device, memory[0], host, count * sizeof *host);
  trm_axis_slice(axis, memory[0], memory[1], outer, n, inner, TRM_VALUES_BF16);
  size_t wrong = wrong_values(device, memory[1], mine, own, 1);
  trm_axis_allgather(axis, memory[1], memory[2], outer, n, inner, TRM_VALUES_BF16);
  wrong += wrong_values(device, memory[2], host, count, 1);
  trm_axis_reduce_scatter(axis, memory[0], memory[1], outer, n, inner, TRM_VALUES_BF16);
  wrong += wrong_values(device, memory[1], mine, own, (float)ranks);
  trm_axis_allreduce(axis, memory[0], count, TRM_VALUES_BF16);
  wrong += wrong_values(device, memory[0], host, count, (float)ranks);
  CU_ASSERT_EQUAL(wrong, 0);
  for (int k = 0; k < 3; k++)
    device->ops->release(device, memory[k]);
  trm_free(host);
  trm_free(mine);
}

static void axes_checked(struct trm_device *device, bool shares)
{
  struct trm_axis axis;
  trm_axis_open(&axis, world, device);
  if (shares)
    trm_axis_share_memory(&axis, TRM_SHARE_NODE);
  CU_ASSERT_EQUAL(axis.node != NULL, shares && world->size > 1);
  axis_check(&axis, 1, 12, 5);
  axis_check(&axis, 3, 12, 5);
  axis_check(&axis, 3, 13, 1);
  axis_check(&axis, 1, 7, 2);
  axis_check(&axis, 40, 5, 3);
  axis_check(&axis, 2, 1, 3); /* some ranks have nothing */
  axis_check(&axis, 1, 60, 20);
  axis_check(&axis, 0, 4, 3);
  axis_check(&axis, 3, 160, 2501); /* larger than the shared buffer, unaligned ends */
  axis_check_bf16(&axis, 1, 12, 5);
  axis_check_bf16(&axis, 3, 13, 1);
  axis_check_bf16(&axis, 2, 1, 3);
  axis_check_bf16(&axis, 0, 4, 3);
  axis_check_bf16(&axis, 3, 160, 2501);
  CU_ASSERT(axis.comm_s > 0);
  trm_axis_close(&axis);
}

static void axes(struct trm_device *device)
{
  axes_checked(device, false);
  axes_checked(device, true);
}

static void test_axes(void) { on_both(axes); }

/* -- the reshard layers inserted: as few as possible */

static void names_check(const char *text, const struct trm_input_spec *spec, bool by_positions, const char *want)
{
  const struct trm_model_part part = {.tensor_rank = 1, .tensor_size = 3, .sequence_parallel = by_positions};
  struct trm_model model;
  char names[1024] = "";
  CU_ASSERT_EQUAL_FATAL(trm_model_create_part(&model, text, "auto", spec, &part), TRM_OK);
  for (int i = 0; i < model.layers; i++) {
    const struct trm_layer *layer = &model.layer[i];
    CU_ASSERT(i == 0 || layer->global_index >= model.layer[i - 1].global_index);
    CU_ASSERT_EQUAL(layer->is_output, i == model.layers - 1);
    snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s%s%s", i ? " " : "", layer->ops->name,
             layer->grad_input_partial ? "^" : "", layer->output_sharded ? "/" : "");
  }
  CU_ASSERT_STRING_EQUAL(names, want);
  trm_model_free(&model);
}

/* ^: dx is all-reduced; /: the output is sharded */
static void test_moves(void)
{
  names_check("mlp 50-37-29-23-10 relu", &vectors, false,
              "linear^/ relu/ linear all_reduce relu linear^/ relu/ linear all_reduce");
  names_check("linear 30 | relu | linear 30 | relu | linear 10", &vectors, false,
              "linear^/ relu/ linear all_reduce relu linear^/");
  names_check("linear 30 | layer_norm | linear 2 | linear 10", &vectors, false,
              "linear^/ all_gather layer_norm linear linear^/");
  names_check("gpt layers=1 heads=4 dim=16 dropout=0.1", &characters, true,
              "embedding reduce_scatter/ position/ dropout/ layer_norm/ all_gather_partial linear/ attention/ "
              "linear reduce_scatter/ dropout/ add/ layer_norm/ all_gather_partial linear/ gelu_tanh/ linear "
              "reduce_scatter/ dropout/ add/ layer_norm/ all_gather_partial head/");
  names_check("gpt layers=1 heads=4 dim=16", &characters, false,
              "embedding all_reduce position layer_norm linear^/ attention/ linear all_reduce add layer_norm "
              "linear^/ gelu_tanh/ linear all_reduce add layer_norm head^/");
  names_check("gpt layers=1 heads=4 dim=16", &odd, true,
              "embedding all_reduce position layer_norm linear^/ attention/ linear all_reduce add layer_norm "
              "linear^/ gelu_tanh/ linear all_reduce add layer_norm head^/");
  names_check("embedding 8 | linear 24 | swiglu | linear 24 | rotary heads=4 | attention heads=4 | linear 9 | head",
              &characters, true,
              "embedding reduce_scatter/ all_gather_partial linear/ swiglu/ linear reduce_scatter/ all_gather "
              "slice/ rotary/ attention/ linear reduce_scatter/ all_gather_partial head/");
  names_check("lenet5", &small, false,
              "conv2d^/ relu/ max_pool/ conv2d all_reduce relu max_pool flatten linear^/ relu/ linear all_reduce "
              "relu linear^/");
  names_check("conv2d 6 3 | conv2d 9 3 groups=3 | global_avg_pool | linear 10 | tanh", &colored, false,
              "conv2d^/ conv2d/ global_avg_pool/ linear all_reduce tanh");
}

/* -- errors */

static void test_errors(void)
{
  struct trm_model_part part = {.tensor_rank = 2, .tensor_size = 3};
  struct trm_model model;
  CU_ASSERT_EQUAL(trm_model_create_part(&model, "embedding 6 | linear 18 | attention heads=2 | head", "auto",
                                        &nn_tokens, &part), TRM_USAGE);
  CU_ASSERT_STRING_EQUAL(trm_error_text(), "layer 2 (attention): 2 heads cannot be divided among 3 ranks");
  CU_ASSERT_EQUAL(trm_model_create_part(&model, "embedding 6 | linear 12 | rotary heads=1 | head", "auto", &nn_tokens,
                                        &part), TRM_USAGE);
  CU_ASSERT_STRING_EQUAL(trm_error_text(), "layer 2 (rotary): 1 heads cannot be divided among 3 ranks");
  part.tensor_size = 8;
  CU_ASSERT_EQUAL(trm_model_create_part(&model, "embedding 6 | head", "auto", &nn_tokens, &part), TRM_USAGE);
  CU_ASSERT_STRING_EQUAL(trm_error_text(), "layer 0 (embedding): a vocabulary of 7 cannot be divided among 8 ranks");
  /* a pass without the tensor axis is an error */
  struct trm_device device;
  struct trm_loss_sums tally = {0};
  float *w, *g;
  CU_ASSERT_EQUAL_FATAL(trm_device_open(&device, "cpu", "auto", TRM_MATMUL_F32, 0, 1), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_model_create_part(&model, "linear 10", "auto", &nn_ten_classes, &part), TRM_OK);
  w = trm_alloc(model.parameters * sizeof *w, "test");
  g = trm_alloc(model.parameters * sizeof *g, "test");
  CU_ASSERT_EQUAL_FATAL(trm_model_bind(&model, &device, w, g, 1, true), TRM_OK);
  const struct trm_input none = {0};
  const struct trm_pass pass = {.device = &device, .input = &none};
  CU_ASSERT_EQUAL(trm_model_evaluate(&model, &pass, &tally), TRM_FAILED);
  CU_ASSERT_STRING_EQUAL(trm_error_text(), "the model is one part of 8: a pass needs the other ranks");
  trm_model_free(&model);
  trm_device_close(&device);
  trm_free(w);
  trm_free(g);
}

static void test_examples(void) { on_both(examples); }
static void test_perceptrons(void) { on_both(perceptrons); }
static void test_sequences(void) { on_both(sequences); }
static void test_images(void) { on_both(images); }

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"sums, gathering, scattering", test_axes},
    {"inserted reshard layers", test_moves},
    {"errors", test_errors},
    {"every layer and loss", test_examples},
    {"perceptrons", test_perceptrons},
    {"sequences", test_sequences},
    {"images", test_images},
    CU_TEST_INFO_NULL,
  };
  return ranks_run(argc, argv, "tensor parallelism", tests);
}
