/* Layers and losses: gradients against finite differences, accumulation, readiness, evaluation, dropout. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "suite.h"
#include "support/nn_case.h"

/* -- two layers registered by the program: a row count other than the batch's, settings, an auxiliary loss */

struct repeat {
  float penalty;
};

static int repeat_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  struct repeat *s = layer->settings;
  TRM_CHECK(trm_argument_reject_unknown(layer, arguments, 0, (const char *const[]){"penalty", NULL}));
  return trm_argument_real(layer, arguments, -1, "penalty", 0, 10, &s->penalty);
}

static size_t repeat_rows(const struct trm_layer *layer, size_t rows, size_t batch_rows)
{
  (void)layer, (void)batch_rows;
  return 2 * rows;
}

/* to += factor * from */
static void add_scaled(const struct trm_pass *pass, float *to, float factor, const float *from, size_t n)
{
  const struct trm_update add = {.rule = TRM_UPDATE_SGD, .rate = -factor, .scale = 1};
  pass->device->ops->update(pass->device, &(struct trm_update_arrays){.update = add, .w = to, .g = from, .n = n});
}

/* y (2 B, F): x, then -x / 2. Auxiliary loss: penalty / 2 |x|^2 per row. */
static void repeat_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, void *y, float *work)
{
  (void)work;
  const struct repeat *s = layer->settings;
  const size_t n = layer->rows * trm_shape_count(&layer->in);
  CU_ASSERT_EQUAL(layer->rows, pass->input->rows);
  float *second = (float *)y + n;
  pass->device->ops->copy(pass->device, y, x, n * sizeof *second);
  pass->device->ops->fill(pass->device, second, 0, n);
  add_scaled(pass, second, -0.5f, x, n);
  float *host = trm_alloc(n * sizeof *host, "repeat");
  pass->device->ops->download(pass->device, host, x, n * sizeof *host);
  for (size_t i = 0; i < n && pass->auxiliary_loss; i++)
    *pass->auxiliary_loss += 0.5 * (double)s->penalty * (double)host[i] * (double)host[i];
  trm_free(host);
}

static void repeat_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                            const void *dy, void *dx, float *work)
{
  (void)y, (void)work;
  const struct repeat *s = layer->settings;
  const size_t n = layer->rows * trm_shape_count(&layer->in);
  pass->device->ops->copy(pass->device, dx, dy, n * sizeof(float));
  add_scaled(pass, dx, -0.5f, (const float *)dy + n, n);
  add_scaled(pass, dx, pass->scale * s->penalty, x, n);
}

static int fold_shape(struct trm_layer *layer)
{
  layer->rows_from = TRM_FROM_BATCH;
  return trm_layer_require_dense(layer);
}

static size_t fold_rows(const struct trm_layer *layer, size_t rows, size_t batch_rows)
{
  (void)layer, (void)rows;
  return batch_rows;
}

/* y (B / 2, F): the first half of x plus half of the second. */
static void fold_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, void *y, float *work)
{
  (void)work;
  const size_t n = layer->output_rows * trm_shape_count(&layer->in);
  CU_ASSERT_EQUAL(layer->rows, 2 * layer->output_rows);
  pass->device->ops->copy(pass->device, y, x, n * sizeof(float));
  add_scaled(pass, y, 0.5f, (const float *)x + n, n);
}

static void fold_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                          const void *dy, void *dx, float *work)
{
  (void)x, (void)y, (void)work;
  const size_t n = layer->output_rows * trm_shape_count(&layer->in);
  float *second = (float *)dx + n;
  pass->device->ops->copy(pass->device, dx, dy, n * sizeof *second);
  pass->device->ops->fill(pass->device, second, 0, n);
  add_scaled(pass, second, 0.5f, dy, n);
}

static const struct trm_layer_ops layer_repeat = {.name = "repeat",
                                                  .usage = "repeat [penalty=P]",
                                                  .settings_bytes = sizeof(struct repeat),
                                                  .create = repeat_create,
                                                  .output_rows = repeat_rows,
                                                  .forward = repeat_forward,
                                                  .backward = repeat_backward,
                                                  .keeps_input = true};
static const struct trm_layer_ops layer_fold = {.name = "fold",
                                                .usage = "fold",
                                                .shape = fold_shape,
                                                .output_rows = fold_rows,
                                                .forward = fold_forward,
                                                .backward = fold_backward};
static const struct nn_example rows_example = {
  "linear 7 | repeat penalty=0.3 | mark a | tanh | linear 7 | add a | fold | linear 10", "auto", &nn_ten_classes,
  false};

/* -- gradients */

/* Includes the auxiliary losses. */
static double loss_at(struct nn_case *c, const struct trm_pass *pass, const float *w)
{
  struct trm_loss_sums tally = {0};
  double auxiliary = 0;
  struct trm_pass with_auxiliary = *pass;
  with_auxiliary.auxiliary_loss = &auxiliary;
  nn_case_upload(c, w);
  CU_ASSERT_EQUAL_FATAL(trm_model_evaluate(&c->model, &with_auxiliary, &tally), TRM_OK);
  return tally.loss + (double)c->model.targets * auxiliary;
}

/* Returns the derivative of the summed loss with respect to *at, an element of w, by central differences. Rounding
 * errors are about 1e-7 in the loss of a row. */
static double loss_derivative(struct nn_case *c, const struct trm_pass *pass, enum nn_loss_form form, const float *w,
                              float *at)
{
  const float step = form == NN_KINKS ? 1.0f / 1024 : form == NN_CURVED ? 1.0f / 256 : 1.0f / 128, before = *at;
  double difference[2] = {0};
  for (int k = 0; k < (form == NN_CURVED ? 2 : 1); k++) {
    *at = before + (float)(k + 1) * step;
    const double up = loss_at(c, pass, w);
    *at = before - (float)(k + 1) * step;
    difference[k] = (up - loss_at(c, pass, w)) / (2 * (double)step);
  }
  *at = before;
  return form == NN_CURVED ? (8 * difference[0] - difference[1]) / 6 : difference[0];
}

/* Compares the gradient of every parameter element with differences of the loss. */
static void gradient_check(struct trm_device *device, const struct nn_example *how)
{
  struct nn_case c;
  CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, how->text, how->loss, how->spec, NN_ROWS, 3), TRM_OK);
  nn_case_draw(&c, 11, 10);
  const struct trm_pass pass = nn_case_pass(&c);
  float *w = nn_case_weights(&c);
  float *g = nn_case_train(&c, &pass, (float)c.model.targets);
  for (int n = 0; n < trm_model_parameter_count(&c.model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&c.model, n);
    if (p->statistic)
      continue; /* no gradient: see test_convolution.c */
    float *numeric = trm_alloc(p->count * sizeof *numeric, "numeric gradient");
    for (size_t e = 0; e < p->count; e++)
      numeric[e] = (float)loss_derivative(&c, &pass, how->form, w, &w[p->offset + e]);
    const double error = distance_of(&g[p->offset], numeric, p->count);
    if (!(error < 1e-3))
      printf("\n  %s, %s, %s: %s: |difference| / |gradient| = %g\n", device->ops->name, how->text, how->loss, p->name,
             error);
    CU_ASSERT(error < 1e-3);
    CU_ASSERT(norm_of(numeric, p->count) > 1e-3);
    trm_free(numeric);
  }
  nn_case_close(&c);
}

static void gradients(struct trm_device *device)
{
  for (const struct nn_example *how = nn_examples; how->text; how++)
    gradient_check(device, how);
  gradient_check(device, &rows_example);
}

/* -- values in bfloat16 */

/* The gradients of float32, to the rounding of values; with recomputation the same bits. */
static void rounded_values(struct trm_device *device)
{
  for (const struct nn_example *how = nn_examples; how->text; how++) {
    struct nn_case c;
    CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, how->text, how->loss, how->spec, NN_ROWS, 3), TRM_OK);
    nn_case_draw(&c, 11, 10);
    const struct trm_pass pass = nn_case_pass(&c);
    const float *g = nn_case_train(&c, &pass, 1);
    const size_t n = c.model.parameters, bytes = c.model.arena_bytes;
    CU_ASSERT_EQUAL(trm_model_set_values(&c.model, TRM_VALUES_BF16), TRM_OK);
    CU_ASSERT_EQUAL_FATAL(trm_model_bind(&c.model, device, c.w, c.g, NN_ROWS, true), TRM_OK);
    const float *rounded = nn_case_train(&c, &pass, 1);
    const double error = distance_of(rounded, g, n);
    if (!(error < 0.05))
      printf("\n  %s, %s: |difference| / |gradient| = %g\n", device->ops->name, how->text, error);
    CU_ASSERT(error > 0 && error < 0.05);
    CU_ASSERT(!how->spec->tokens || c.model.arena_bytes < bytes * 6 / 10);
    c.model.recompute = 1;
    CU_ASSERT_EQUAL_FATAL(trm_model_bind(&c.model, device, c.w, c.g, NN_ROWS, true), TRM_OK);
    CU_ASSERT(memcmp(nn_case_train(&c, &pass, 1), rounded, n * sizeof *rounded) == 0);
    nn_case_close(&c);
  }
}

static void test_rounded_values(void)
{
  on_devices(rounded_values);
}

/* A kind that does not say that it takes bfloat16 is refused. */
static void test_values_refused(void)
{
  struct trm_model model;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, rows_example.text, "auto", rows_example.spec), TRM_OK);
  CU_ASSERT_EQUAL(trm_model_set_values(&model, TRM_VALUES_BF16), TRM_USAGE);
  CU_ASSERT_STRING_EQUAL(trm_error_text(), "layer 1 (repeat): takes values in float32 alone: train.activations=bf16 "
                                           "cannot be used with it");
  CU_ASSERT_EQUAL(trm_model_set_values(&model, TRM_VALUES_F32), TRM_OK);
  trm_model_free(&model);
}

/* -- registered layers */

/* Recomputation gives the same bits and counts auxiliary losses once; the reported loss excludes them. */
static void registered_layers(struct trm_device *device)
{
  struct nn_case c;
  CU_ASSERT_EQUAL_FATAL(
    nn_case_open(&c, device, rows_example.text, rows_example.loss, rows_example.spec, NN_ROWS, 3), TRM_OK);
  nn_case_draw(&c, 11, 10);
  double auxiliary[2] = {0, 0};
  struct trm_pass pass = nn_case_pass(&c);
  struct trm_loss_sums sums = {0}, evaluated = {0};
  const size_t n = c.model.parameters;
  float *g[2];
  for (int recompute = 0; recompute < 2; recompute++) {
    c.model.recompute = recompute;
    CU_ASSERT_EQUAL_FATAL(trm_model_bind(&c.model, device, c.w, c.g, NN_ROWS, true), TRM_OK);
    pass.auxiliary_loss = &auxiliary[recompute];
    sums = (struct trm_loss_sums){0};
    CU_ASSERT_EQUAL(trm_model_train(&c.model, &pass, 1.0f / 11, &sums, NULL, NULL), TRM_OK);
    g[recompute] = nn_case_gradient(&c);
  }
  CU_ASSERT(memcmp(g[0], g[1], n * sizeof **g) == 0);
  CU_ASSERT(auxiliary[0] > 0.1);
  CU_ASSERT_EQUAL(auxiliary[0], auxiliary[1]);
  CU_ASSERT_EQUAL(trm_model_evaluate(&c.model, &pass, &evaluated), TRM_OK);
  CU_ASSERT_EQUAL(sums.loss, evaluated.loss);
  for (int at = 1; at < c.model.layers; at++) /* possible chunk boundaries */
    CU_ASSERT_EQUAL(trm_partition_allowed(c.model.layer, c.model.layers, at), at == 1 || at == 6);
  nn_case_close(&c);
}

static void test_registered(void)
{
  static const struct {
    const char *text, *message;
  } refused[] = {
    {"linear 7 | repeat | linear 10", "layer 2 (linear): scores need a row for each sample"},
    {"linear 7 | mark a | repeat | add a | fold | linear 10", "layer 3 (add): the two values have other numbers"},
    {"linear 7 | repeat | dropout 0.1 | fold | linear 10", "layer 2 (dropout): takes values with a row for each"},
    {"linear 7 | repeat penalty=11 | fold | linear 10", "layer 1 (repeat): penalty is '11', must be"},
    {"linear 7 | repeat | fold 2 | linear 10", "layer 2 (fold): '2' is one word too many; usage: fold"},
  };
  on_devices(registered_layers);
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    struct trm_model model;
    CU_ASSERT_EQUAL(trm_model_create(&model, refused[i].text, "auto", &nn_ten_classes), TRM_USAGE);
    CU_ASSERT_NSTRING_EQUAL(trm_error_text(), refused[i].message, strlen(refused[i].message));
  }
  CU_ASSERT_EQUAL(trm_layer_register(&layer_fold), TRM_USAGE);
  CU_ASSERT(strstr(trm_error_text(), "there is a layer 'fold' already") != NULL);
  CU_ASSERT_EQUAL(trm_layer_register(&(struct trm_layer_ops){.name = "empty"}), TRM_USAGE);
  CU_ASSERT(strstr(trm_error_text(), "empty: needs name, usage, forward and backward") != NULL);
}

/* The gradient's padding and the batch are never written. */
static void untouched(struct trm_device *device)
{
  for (const struct nn_example *how = nn_examples; how->text; how++) {
    struct nn_case c;
    CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, how->text, how->loss, how->spec, NN_ROWS, 3), TRM_OK);
    nn_case_draw(&c, 5, 10);
    const bool dense = !how->spec->sparse && !how->spec->tokens;
    const size_t bytes = dense ? 5 * trm_shape_count(&how->spec->shape) * sizeof(float) : 0;
    float before[256], after[256];
    if (bytes)
      c.device->ops->download(c.device, before, c.input.dense, bytes);
    c.device->ops->fill(c.device, c.g, 77, c.model.parameters);
    const struct trm_pass pass = nn_case_pass(&c);
    float *g = nn_case_train(&c, &pass, 1);
    if (bytes)
      c.device->ops->download(c.device, after, c.input.dense, bytes);
    CU_ASSERT(!bytes || memcmp(before, after, bytes) == 0);
    size_t left = 0, parameters = 0, trained = 0;
    for (size_t e = 0; e < c.model.parameters; e++)
      left += g[e] == 77;
    for (int n = 0; n < trm_model_parameter_count(&c.model); n++) {
      const struct trm_parameter *p = trm_model_parameter(&c.model, n);
      parameters += p->count;
      trained += p->statistic ? 0 : p->count;
    }
    CU_ASSERT_EQUAL(left, c.model.parameters - parameters);
    CU_ASSERT_EQUAL(trm_model_size(&c.model), trained);
    nn_case_close(&c);
  }
}

/* The gradient of a batch is the sum of those of its micro-batches, one of them empty. Sums of products may have
 * another order in a micro-batch: roundings of 2^-24 in each of up to thirty layers. */
static void accumulation(struct trm_device *device)
{
  for (const struct nn_example *how = nn_examples; how->text; how++) {
    if (strstr(how->text, "batch_norm"))
      continue; /* statistics are of each micro-batch */
    struct nn_case c;
    CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, how->text, how->loss, how->spec, NN_ROWS, 3), TRM_OK);
    nn_case_draw(&c, 13, 10);
    struct trm_pass pass = nn_case_pass(&c);
    pass.first_row = 1000;
    struct trm_loss_sums whole = {0}, parts = {0};
    CU_ASSERT_EQUAL(trm_model_train(&c.model, &pass, 1.0f / 13, &whole, NULL, NULL), TRM_OK);
    float *g = nn_case_gradient(&c);

    const struct trm_input input[] = {nn_case_part(&c, 0, 6), nn_case_part(&c, 6, 6), nn_case_part(&c, 6, 13)};
    c.device->ops->fill(c.device, c.g, NAN, c.model.parameters); /* beta = 0 must not read g */
    for (int part = 0; part < 3; part++) {
      struct trm_pass some = pass;
      some.input = &input[part];
      some.first_row = 1000 + (part ? 6 : 0);
      some.beta = part ? 1 : 0;
      CU_ASSERT_EQUAL(trm_model_train(&c.model, &some, 1.0f / 13, &parts, NULL, NULL), TRM_OK);
    }
    const float *sum = nn_case_gradient(&c);
    for (int n = 0; n < trm_model_parameter_count(&c.model); n++) {
      const struct trm_parameter *p = trm_model_parameter(&c.model, n);
      CU_ASSERT(distance_of(sum + p->offset, g + p->offset, p->count) < 4e-6);
    }
    CU_ASSERT_DOUBLE_EQUAL(parts.loss, whole.loss, 1e-6 * whole.loss);
    CU_ASSERT_EQUAL(parts.correct, whole.correct);
    CU_ASSERT_EQUAL(parts.rows, 13 * (double)c.model.targets);
    nn_case_close(&c);
  }
}

/* Three steps; on_devices compares the weights. */
static void training(struct trm_device *device)
{
  for (const struct nn_example *how = nn_examples; how->text; how++) {
    struct nn_case c;
    CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, how->text, how->loss, how->spec, NN_ROWS, 3), TRM_OK);
    nn_case_draw(&c, 5, 10);
    const struct trm_pass pass = nn_case_pass(&c);
    for (int step = 0; step < 3; step++) {
      nn_case_train(&c, &pass, 0.2f);
      device->ops->update(device, &(struct trm_update_arrays){
        .update = {.rule = TRM_UPDATE_SGD, .rate = 0.1f, .scale = 1}, .w = c.w, .g = c.g, .n = c.model.parameters});
    }
    read_floats(device, c.w, c.model.parameters);
    nn_case_close(&c);
  }
}

struct readiness {
  struct nn_case *c;
  size_t end;
  int calls;
  float *seen; /* the gradient's intervals at the time they were ready */
};

static int note_ready(void *context, size_t low, size_t high)
{
  struct readiness *r = context;
  CU_ASSERT_EQUAL(low, r->end);
  CU_ASSERT(high > low);
  CU_ASSERT_EQUAL(high, r->c->model.boundary[r->calls]);
  r->c->device->ops->download(r->c->device, r->seen + low, r->c->g + low, (high - low) * sizeof(float));
  r->end = high;
  r->calls++;
  return TRM_OK;
}

static int refuse_ready(void *context, size_t low, size_t high)
{
  (void)low, (void)high;
  ++*(int *)context;
  return trm_error(TRM_FAILED, "no more");
}

static bool abandon_after(void *left)
{
  return --*(int *)left == 0;
}

static void ready(struct trm_device *device)
{
  struct nn_case c;
  const char *text = "dropout 0.1 | linear 6 | relu | linear 7 bias=no | gelu | linear 10 | dropout 0.1";
  CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, text, "auto", &nn_ten_classes, NN_ROWS, 3), TRM_OK);
  nn_case_draw(&c, 13, 10);
  const size_t n = c.model.parameters;
  struct readiness r = {.c = &c, .seen = trm_alloc(n * sizeof(float), "gradients seen")};
  struct trm_pass pass = nn_case_pass(&c);
  struct trm_loss_sums tally = {0};
  CU_ASSERT_EQUAL(trm_model_train(&c.model, &pass, 1, &tally, note_ready, &r), TRM_OK);
  CU_ASSERT_EQUAL(r.calls, 3);
  CU_ASSERT_EQUAL(r.end, n);
  CU_ASSERT_EQUAL(c.model.boundaries, 3);
  float *g = nn_case_gradient(&c);
  CU_ASSERT(memcmp(r.seen, g, n * sizeof *g) == 0);

  /* abandoned between two layers, forward and backward: no layer follows, and no gradient is ready after it */
  for (int layer = 1; layer <= 2 * 7; layer++) {
    int left = layer;
    struct trm_loss_sums some = {0};
    r.calls = 0, r.end = 0;
    pass.abandons = abandon_after;
    pass.abandons_context = &left;
    CU_ASSERT_EQUAL(trm_model_train(&c.model, &pass, 1, &some, note_ready, &r), TRM_OK);
    CU_ASSERT_EQUAL(left, 0);
    CU_ASSERT_EQUAL(r.calls, (layer > 8) + (layer > 10) + (layer > 12));
  }
  pass.abandons = NULL;
  r.calls = 0, r.end = 0;
  CU_ASSERT_EQUAL(trm_model_train(&c.model, &pass, 1, &(struct trm_loss_sums){0}, note_ready, &r), TRM_OK);
  CU_ASSERT(memcmp(g, nn_case_gradient(&c), n * sizeof *g) == 0);

  /* no rows: the gradient is 0 or unchanged, and ready all the same */
  const struct trm_input none = {0};
  pass.input = &none;
  pass.beta = 1;
  r.calls = 0, r.end = 0;
  CU_ASSERT_EQUAL(trm_model_train(&c.model, &pass, 1, &tally, note_ready, &r), TRM_OK);
  CU_ASSERT_EQUAL(r.calls, 3);
  CU_ASSERT(memcmp(nn_case_gradient(&c), g, n * sizeof *g) == 0);
  pass.beta = 0;
  r.calls = 0, r.end = 0;
  CU_ASSERT_EQUAL(trm_model_train(&c.model, &pass, 1, &tally, note_ready, &r), TRM_OK);
  CU_ASSERT_EQUAL(r.end, n);
  CU_ASSERT_EQUAL(norm_of(r.seen, n), 0);
  CU_ASSERT_EQUAL(norm_of(nn_case_gradient(&c), n), 0);
  CU_ASSERT_EQUAL(tally.rows, 13);
  struct trm_loss_sums still = tally;
  CU_ASSERT_EQUAL(trm_model_evaluate(&c.model, &pass, &still), TRM_OK);
  CU_ASSERT_EQUAL(still.loss, tally.loss);

  int calls = 0;
  CU_ASSERT_EQUAL(trm_model_train(&c.model, &pass, 1, &tally, refuse_ready, &calls), TRM_FAILED);
  CU_ASSERT_EQUAL(calls, 1);
  trm_free(r.seen);
  nn_case_close(&c);
}

struct parts {
  struct nn_case *c;
  size_t end; /* of what has been reported */
  int calls, reported;
  const float *want;
};

/* Elements [end, high) are final, and belong to the layer in progress. */
static void note_part(void *context, size_t high)
{
  struct parts *p = context;
  const struct nn_case *c = p->c;
  float *g = trm_alloc((high - p->end) * sizeof *g, "a part");
  CU_ASSERT_FATAL(high > p->end && high <= c->model.boundary[p->calls]);
  c->device->ops->download(c->device, g, c->g + p->end, (high - p->end) * sizeof *g);
  CU_ASSERT(distance_of(g, p->want + p->end, high - p->end) < 1e-6);
  p->end = high;
  p->reported++;
  trm_free(g);
}

static int note_layer(void *context, size_t low, size_t high)
{
  struct parts *p = context;
  CU_ASSERT(p->end >= low && p->end <= high);
  p->calls++;
  p->end = high;
  return TRM_OK;
}

/* The gradient of a large layer is computed in parts of about `part` elements, final when they are reported. */
static void parts(struct trm_device *device)
{
  struct nn_case c;
  const char *text = "linear 150 | relu | linear 17 bias=no | gelu | linear 10";
  CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, text, "auto", &nn_ten_classes, NN_ROWS, 3), TRM_OK);
  nn_case_draw(&c, 13, 10);
  const size_t n = c.model.parameters;
  struct trm_pass pass = nn_case_pass(&c);
  struct trm_loss_sums sums = {0};
  CU_ASSERT_EQUAL(trm_model_train(&c.model, &pass, 1, &sums, NULL, NULL), TRM_OK);
  float *want = trm_alloc(n * sizeof *want, "gradients");
  memcpy(want, nn_case_gradient(&c), n * sizeof *want);
  CU_ASSERT(norm_of(want, n) > 1e-3);
  for (pass.part = 1; pass.part < 1000; pass.part *= 5) {
    struct parts p = {.c = &c, .want = want};
    pass.part_ready = note_part;
    pass.part_context = &p;
    CU_ASSERT_EQUAL(trm_model_train(&c.model, &pass, 1, &sums, note_layer, &p), TRM_OK);
    CU_ASSERT_EQUAL(p.calls, 3);
    CU_ASSERT(pass.part > 1 || p.reported > 3); /* more than the layers before they compute dx */
    CU_ASSERT(distance_of(nn_case_gradient(&c), want, n) < 1e-6);
  }
  trm_free(want);
  nn_case_close(&c);
}

static void evaluate(struct trm_device *device)
{
  struct nn_case c;
  const char *text = "linear 20 | relu | dropout 0.5 | linear 10";
  CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, text, "auto", &nn_ten_classes, NN_ROWS, 3), TRM_OK);
  nn_case_draw(&c, 16, 10);
  struct trm_pass pass = nn_case_pass(&c);
  struct trm_loss_sums on = {0}, off = {0}, again = {.loss = 5, .correct = 2, .rows = 3};
  CU_ASSERT_EQUAL(trm_model_evaluate(&c.model, &pass, &on), TRM_OK);
  pass.training = false;
  CU_ASSERT_EQUAL(trm_model_evaluate(&c.model, &pass, &off), TRM_OK);
  CU_ASSERT(fabs(on.loss - off.loss) > 1e-3);
  float scores[160], plain[160];
  c.device->ops->download(c.device, scores, c.model.scores, sizeof scores);

  /* loss and number of correct answers from the scores */
  int32_t class[16];
  c.device->ops->download(c.device, class, c.input.target_class, sizeof class);
  double loss = 0, correct = 0;
  for (int i = 0; i < 16; i++) {
    double sum = 0;
    int best = 0;
    for (int k = 0; k < 10; k++) {
      sum += exp((double)scores[10 * i + k]);
      best = scores[10 * i + k] > scores[10 * i + best] ? k : best;
    }
    loss += log(sum) - (double)scores[10 * i + class[i]];
    correct += best == class[i];
  }
  CU_ASSERT_DOUBLE_EQUAL(off.loss, loss, 1e-5);
  CU_ASSERT_EQUAL(off.correct, correct);
  CU_ASSERT_EQUAL(off.rows, 16);
  CU_ASSERT_EQUAL(trm_model_evaluate(&c.model, &pass, &again), TRM_OK);
  CU_ASSERT_EQUAL(again.loss, 5 + off.loss);
  CU_ASSERT_EQUAL(again.correct, 2 + off.correct);
  CU_ASSERT_EQUAL(again.rows, 19);

  /* the same without dropout in the model, bound for evaluation only */
  struct trm_model bare;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&bare, "linear 20 | relu | linear 10", "auto", &nn_ten_classes), TRM_OK);
  CU_ASSERT_EQUAL(bare.parameters, c.model.parameters);
  CU_ASSERT_EQUAL(trm_model_bind(&bare, c.device, c.w, NULL, 16, false), TRM_OK);
  trm_model_forward(&bare, &pass);
  c.device->ops->download(c.device, plain, bare.scores, sizeof plain);
  CU_ASSERT(memcmp(scores, plain, sizeof plain) == 0);
  CU_ASSERT(bare.arena_bytes < c.model.arena_bytes);
  struct trm_loss_sums tally = {0};
  CU_ASSERT_EQUAL(trm_model_train(&bare, &pass, 1, &tally, NULL, NULL), TRM_FAILED);
  CU_ASSERT(strstr(trm_error_text(), "gradients") != NULL);

  /* too many rows are refused; binding again enlarges the arena */
  CU_ASSERT_EQUAL(trm_model_bind(&bare, c.device, c.w, NULL, 15, false), TRM_OK);
  CU_ASSERT_EQUAL(trm_model_evaluate(&bare, &pass, &tally), TRM_FAILED);
  CU_ASSERT(strstr(trm_error_text(), "16 rows") != NULL && strstr(trm_error_text(), "15") != NULL);
  CU_ASSERT_EQUAL(trm_model_bind(&bare, c.device, c.w, c.g, 16, true), TRM_OK);
  CU_ASSERT_EQUAL(trm_model_train(&bare, &pass, 1, &tally, NULL, NULL), TRM_OK);
  float *arena = bare.arena;
  CU_ASSERT_EQUAL(trm_model_bind(&bare, c.device, c.g, c.w, 16, true), TRM_OK); /* other weights, same arena */
  CU_ASSERT_PTR_EQUAL(bare.arena, arena);
  CU_ASSERT_PTR_EQUAL(trm_model_parameter(&bare, 0)->w, c.g + trm_model_parameter(&bare, 0)->offset);
  trm_model_free(&bare);
  nn_case_close(&c);
}

/* The mask depends on seed, layer and global row: a micro-batch has the masks of its rows in the whole batch. */
static void dropout(struct trm_device *device)
{
  struct nn_case c;
  const char *text = "dropout 0.5 | linear 1 bias=no";
  CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, text, "hinge", &nn_one_value, NN_ROWS, 3), TRM_OK);
  nn_case_draw(&c, 16, 10);
  struct trm_pass pass = nn_case_pass(&c);
  float whole[16], part[16];
  pass.first_row = 40;
  trm_model_forward(&c.model, &pass);
  c.device->ops->download(c.device, whole, c.model.scores, sizeof whole);
  const struct trm_input tail = nn_case_part(&c, 5, 16);
  pass.input = &tail;
  pass.first_row = 45;
  trm_model_forward(&c.model, &pass);
  c.device->ops->download(c.device, part, c.model.scores, 11 * sizeof *part);
  CU_ASSERT(distance_of(part, whole + 5, 11) < 1e-6);
  pass.first_row = 46;
  trm_model_forward(&c.model, &pass);
  c.device->ops->download(c.device, part, c.model.scores, 11 * sizeof *part);
  CU_ASSERT(distance_of(part, whole + 5, 11) > 0.1);
  pass.first_row = 45;
  pass.seed++;
  trm_model_forward(&c.model, &pass);
  c.device->ops->download(c.device, part, c.model.scores, 11 * sizeof *part);
  CU_ASSERT(distance_of(part, whole + 5, 11) > 0.1);

  /* another layer number gives another mask; rate 0 is the identity */
  struct trm_model moved;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&moved, "dropout 0 | dropout 0.5 | linear 1 bias=no", "hinge", &nn_one_value),
                        TRM_OK);
  CU_ASSERT_EQUAL(trm_model_bind(&moved, c.device, c.w, c.g, 16, true), TRM_OK);
  pass = nn_case_pass(&c);
  pass.first_row = 40;
  float other[16];
  trm_model_forward(&moved, &pass);
  c.device->ops->download(c.device, other, moved.scores, sizeof other);
  CU_ASSERT(distance_of(other, whole, 16) > 0.1);
  trm_model_free(&moved);
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&moved, "dropout 0.5 | dropout 0 | linear 1 bias=no", "hinge", &nn_one_value),
                        TRM_OK);
  CU_ASSERT_EQUAL(trm_model_bind(&moved, c.device, c.w, c.g, 16, true), TRM_OK);
  trm_model_forward(&moved, &pass);
  c.device->ops->download(c.device, other, moved.scores, sizeof other);
  CU_ASSERT(memcmp(other, whole, sizeof whole) == 0);
  trm_model_free(&moved);
  nn_case_close(&c);
}

static void test_gradients(void)
{
  on_devices(gradients);
}

static void test_untouched(void)
{
  on_devices(untouched);
}

static void test_accumulation(void)
{
  on_devices(accumulation);
}

static void test_training(void)
{
  on_devices(training);
}

static void test_ready(void)
{
  on_devices(ready);
}

static void test_parts(void)
{
  on_devices(parts);
}

static void test_evaluate(void)
{
  on_devices(evaluate);
}

static void test_dropout(void)
{
  on_devices(dropout);
}

int main(void)
{
  if (trm_layer_register(&layer_repeat) != TRM_OK || trm_layer_register(&layer_fold) != TRM_OK)
    return 1;
  CU_TestInfo tests[] = {
    {"registered layers: rows, an auxiliary loss", test_registered},
    {"gradients against finite differences", test_gradients},
    {"padding and batch untouched", test_untouched},
    {"values in bfloat16", test_rounded_values},
    {"layers that take float32 alone", test_values_refused},
    {"accumulation over parts of a batch", test_accumulation},
    {"training, with the same bits on every device", test_training},
    {"readiness of the gradient, empty batches", test_ready},
    {"gradients in parts", test_parts},
    {"evaluation and binding", test_evaluate},
    {"dropout masks by global row", test_dropout},
    CU_TEST_INFO_NULL,
  };
  return suite_run("nn", tests);
}
