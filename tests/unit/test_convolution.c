/* Layers and models of images: shapes, refused settings, presets, and the statistics of batch normalization. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "blas/blas.h"
#include "core/memory.h"
#include "core/status.h"
#include "kernels/kernels.h"
#include "nn/arena_plan.h"
#include "nn/optimizer.h"
#include "suite.h"
#include "support/nn_case.h"

static const struct trm_input_spec mnist = {
  .shape = {.dims = 3, .size = {1, 28, 28}}, .target = TRM_TARGET_CLASS, .classes = 10};
static const struct trm_input_spec cifar = {
  .shape = {.dims = 3, .size = {3, 32, 32}}, .target = TRM_TARGET_CLASS, .classes = 10};
static const struct trm_input_spec imagenet = {
  .shape = {.dims = 3, .size = {3, 224, 224}}, .target = TRM_TARGET_CLASS, .classes = 1000};

static void test_shapes(void)
{
  static const struct {
    const char *text, *out, *weight;
    size_t parameters;
    double flop; /* of the first layer, forward */
  } cases[] = {
    {"conv2d 8 3 | head", "(8, 30, 30)", "(8, 3, 3, 3)", 8 * 27 + 8, 2.0 * 8 * 27 * 900},
    {"conv2d units=6 kernel=5x3 stride=2x1 pad=2x0 bias=no | head", "(6, 16, 30)", "(6, 3, 5, 3)", 6 * 45,
     2.0 * 6 * 45 * 480},
    {"conv2d 9 1 groups=3 | head", "(9, 32, 32)", "(9, 1, 1, 1)", 18, 2.0 * 9 * 1024},
    {"max_pool 3 stride=2 pad=1 | head", "(3, 16, 16)", NULL, 0, 3 * 256 * 9.0},
    {"max_pool 2x3 | head", "(3, 16, 10)", NULL, 0, 3 * 160 * 6.0},
    {"avg_pool 5 stride=3x4 | head", "(3, 10, 7)", NULL, 0, 3 * 70 * 25.0},
    {"global_avg_pool | head", "(3)", NULL, 0, 3 * 1024.0},
    {"flatten | head", "(3072)", NULL, 0, 0},
    {"batch_norm | head", "(3, 32, 32)", "(3)", 6, 6 * 3072.0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trm_model model;
    CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, cases[i].text, "auto", &cifar), TRM_OK);
    const struct trm_layer *layer = &model.layer[0];
    CU_ASSERT_STRING_EQUAL(trm_shape_text(&layer->out), cases[i].out);
    if (cases[i].weight)
      CU_ASSERT_STRING_EQUAL(trm_shape_text(&layer->parameter[0].shape), cases[i].weight);
    CU_ASSERT_EQUAL(trm_model_size(&model) - 10 * (trm_shape_count(&layer->out) + 1), cases[i].parameters);
    CU_ASSERT_EQUAL(trm_layer_cost(layer).flop, cases[i].flop);
    trm_model_free(&model);
  }
}

static void test_refused(void)
{
  static const struct trm_input_spec vectors = {
    .shape = {.dims = 1, .size = {9}}, .target = TRM_TARGET_CLASS, .classes = 10};
  static const struct trm_input_spec values = {
    .shape = {.dims = 3, .size = {3, 32, 32}}, .target = TRM_TARGET_VALUE, .classes = 2};
  static const struct {
    const char *text;
    const struct trm_input_spec *spec;
    const char *message; /* its beginning */
  } cases[] = {
    {"conv2d", &cifar, "layer 0 (conv2d): units is missing; usage: conv2d UNITS KERNEL"},
    {"conv2d 8", &cifar, "layer 0 (conv2d): kernel is missing; usage"},
    {"conv2d 8 0", &cifar, "layer 0 (conv2d): kernel is '0', must be N or HxW, from 1 to 32767"},
    {"conv2d 8 3x", &cifar, "layer 0 (conv2d): kernel is '3x', must be N or HxW"},
    {"conv2d 8 3x3x3", &cifar, "layer 0 (conv2d): kernel is '3x3x3', must be N or HxW"},
    {"conv2d 8 -3", &cifar, "layer 0 (conv2d): kernel is '-3', must be N or HxW"},
    {"conv2d 8 3 pad=x", &cifar, "layer 0 (conv2d): pad is 'x', must be N or HxW, from 0 to 32767"},
    {"conv2d 8 3 stride=0", &cifar, "layer 0 (conv2d): stride is '0', must be"},
    {"conv2d 8 3 dilation=2", &cifar, "layer 0 (conv2d): there is no argument 'dilation'"},
    {"conv2d 8 3 groups=2", &cifar,
     "layer 0 (conv2d): 3 channels and 8 units cannot both be divided among 2 groups"},
    {"conv2d 8 3 groups=3", &cifar,
     "layer 0 (conv2d): 3 channels and 8 units cannot both be divided among 3 groups"},
    {"conv2d 8 35 pad=1", &cifar,
     "layer 0 (conv2d): a kernel of 35x35 with pad 1x1 does not fit images of shape (3, 32, 32)"},
    {"linear 8 | conv2d 8 3", &cifar, "layer 1 (conv2d): takes images (C, H, W), not samples of shape (8)"},
    {"max_pool 2 pad=2", &cifar, "layer 0 (max_pool): pad is 2, must be at most half of the kernel's 2"},
    {"max_pool", &cifar, "layer 0 (max_pool): kernel is missing; usage: max_pool KERNEL"},
    {"avg_pool 2", &vectors, "layer 0 (avg_pool): takes images (C, H, W), not samples of shape (9)"},
    {"global_avg_pool 3", &cifar, "layer 0 (global_avg_pool): '3' is one word too many"},
    {"batch_norm momentum=1", &cifar, "layer 0 (batch_norm): momentum is '1', must be a number in [0, 1)"},
    {"batch_norm sync=perhaps", &cifar, "layer 0 (batch_norm): sync is 'perhaps', must be yes or no"},
    {"embedding 6 | batch_norm | head", &nn_tokens, "layer 1 (batch_norm): takes images (C, H, W) or vectors (C), not"},
    {"mark a | conv2d 8 3 stride=2 pad=1 | add a", &cifar,
     "layer 2 (add): adds a value of shape (3, 32, 32) to one of shape (8, 16, 16): the two must agree"},
    {"lenet5 10", &mnist, "layer 0 (lenet5): '10' is one word too many; usage: lenet5"},
    {"lenet5", &vectors, "layer 0 (lenet5): takes images (C, H, W) of at least 14 x 14, the data set has samples of"},
    {"resnet20", &nn_sparse_two, "layer 0 (resnet20): takes images (C, H, W) of at least"},
    {"resnet18", &mnist, "layer 0 (resnet18): takes images (C, H, W) of at least 32 x 32, the data set has samples of"},
    {"vgg11", &values, "layer 0 (vgg11): tells classes apart, the data set has 2 values a sample"},
    {"resnet21", &cifar, "layer 0: there is no layer 'resnet21', did you mean 'resnet20'?"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trm_model model;
    const int status = trm_model_create(&model, cases[i].text, "auto", cases[i].spec);
    CU_ASSERT_EQUAL(status, TRM_USAGE);
    const bool as_said = strncmp(trm_error_text(), cases[i].message, strlen(cases[i].message)) == 0;
    if (!as_said)
      printf("\n  '%s': %s\n", cases[i].text, trm_error_text());
    CU_ASSERT(as_said);
    if (status == TRM_OK)
      trm_model_free(&model);
  }
}

/* Parameter counts of PyTorch and torchvision. */
static void test_presets(void)
{
  static const struct {
    const char *text;
    const struct trm_input_spec *spec;
    size_t parameters;
    int weighty; /* layers with products, without projection shortcuts */
  } cases[] = {
    {"lenet5", &mnist, 61706, 5},          {"resnet20", &cifar, 272474, 20},       {"resnet32", &cifar, 466906, 32},
    {"resnet44", &cifar, 661338, 44},      {"resnet56", &cifar, 855770, 56},       {"resnet110", &cifar, 1730714, 110},
    {"resnet18", &imagenet, 11689512, 18}, {"vgg11", &imagenet, 132863336, 11},    {"resnet20", &mnist, 272186, 20},
    {"resnet34", &imagenet, 21797672, 34}, {"resnet50", &imagenet, 25557032, 18}, /* 3 x 3 and larger */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trm_model model;
    CU_ASSERT_EQUAL_FATAL(trm_model_create(&model, cases[i].text, "auto", cases[i].spec), TRM_OK);
    CU_ASSERT_EQUAL(trm_model_size(&model), cases[i].parameters);
    int weighty = 0;
    for (int l = 0; l < model.layers; l++) {
      const struct trm_layer *layer = &model.layer[l];
      const bool product = strcmp(layer->ops->name, "conv2d") == 0 || strcmp(layer->ops->name, "linear") == 0;
      const struct trm_shape *weight = &layer->parameter[0].shape;
      const bool projects = weight->dims == 4 && weight->size[2] == 1;
      weighty += product && !projects;
    }
    CU_ASSERT_EQUAL(weighty, cases[i].weighty);
    trm_model_free(&model);
  }
}

/* -- batch normalization */

/* The two statistics of layer 1 in a flat array. */
static const float *statistic(const struct nn_case *c, const float *flat, int which)
{
  return flat + c->model.layer[1].parameter[2 + which].offset;
}

/* Averages the moments that a pass leaves, as a strategy does. */
static void statistics_apply(struct nn_case *c)
{
  const struct trm_optimizer none = {.update = {.rule = TRM_UPDATE_SGD, .scale = 1},
                                     .tensor = c->model.tensor,
                                     .tensors = c->model.tensors,
                                     .statistics = c->model.statistic_tensors};
  const struct trm_update_interval all = {0, c->model.parameters, c->w, NULL, NULL};
  trm_optimizer_apply(&none, c->device, &none.update, NULL, &all, c->g);
}

/* Returns the input of batch_norm, i.e. the output of the convolution, (13, 3, 4), on the host. */
static float *activations(struct nn_case *c, const struct trm_input *input, const float *w)
{
  struct trm_model bare;
  const struct trm_input_spec spec = {
    .shape = nn_images.shape, .target = TRM_TARGET_VALUE, .classes = 12};
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&bare, "conv2d 3 3 bias=no", "auto", &spec), TRM_OK);
  float *host = trm_alloc(bare.parameters * sizeof *host, "weights");
  memcpy(host, w + c->model.layer[0].parameter[0].offset, 54 * sizeof *host);
  float *on_device = device_floats(c->device, host, bare.parameters);
  CU_ASSERT_EQUAL_FATAL(trm_model_bind(&bare, c->device, on_device, NULL, NN_ROWS, false), TRM_OK);
  const struct trm_pass pass = {.device = c->device, .input = input};
  trm_model_forward(&bare, &pass);
  float *y = trm_alloc(input->rows * 12 * sizeof *y, "activations");
  c->device->ops->download(c->device, y, bare.scores, input->rows * 12 * sizeof *y);
  trm_free(host);
  trm_model_free(&bare);
  return y;
}

/* Mean and unbiased variance of channel k. */
static void moments_of(const float *y, size_t rows, size_t k, double *mean, double *variance)
{
  const double n = 4 * (double)rows;
  *mean = *variance = 0;
  for (size_t i = 0; i < 4 * rows; i++)
    *mean += (double)y[i / 4 * 12 + k * 4 + i % 4] / n;
  for (size_t i = 0; i < 4 * rows; i++)
    *variance += pow((double)y[i / 4 * 12 + k * 4 + i % 4] - *mean, 2) / (n - 1);
}

static const char bn_text[] = "conv2d 3 3 bias=no | batch_norm momentum=0.25 | tanh | linear 5";

static void statistics(struct trm_device *device)
{
  struct nn_case c;
  CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, bn_text, "auto", &nn_images, NN_ROWS, 3), TRM_OK);
  CU_ASSERT_EQUAL(c.model.statistics, 32);
  CU_ASSERT_EQUAL(c.model.boundary[c.model.boundaries - 1], c.model.parameters);
  CU_ASSERT_EQUAL(c.model.layer[1].parameter[2].offset, c.model.parameters - 32);
  nn_case_draw(&c, 13, 10);
  struct trm_pass pass = nn_case_pass(&c);
  const float *w = nn_case_weights(&c);
  for (int k = 0; k < 3; k++) {
    CU_ASSERT_EQUAL(statistic(&c, w, 0)[k], 0);
    CU_ASSERT_EQUAL(statistic(&c, w, 1)[k], 1);
  }

  /* a pass does not change the running statistics; the strategy does */
  nn_case_train(&c, &pass, 1.0f / 13);
  check_same("weights after a pass", nn_case_weights(&c), w, c.model.parameters);
  statistics_apply(&c);
  const float *after = nn_case_weights(&c);
  check_same("parameters", after, w, c.model.parameters - 32);
  float *y = activations(&c, &c.input, w);
  for (size_t k = 0; k < 3; k++) {
    double mean, variance;
    moments_of(y, 13, k, &mean, &variance);
    CU_ASSERT_DOUBLE_EQUAL((double)statistic(&c, after, 0)[k], 0.25 * mean, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL((double)statistic(&c, after, 1)[k], 0.75 + 0.25 * variance, 1e-6);
  }
  trm_free(y);

  /* two micro-batches: the mean of their statistics, weighted by rows */
  const struct trm_input parts[2] = {nn_case_part(&c, 0, 4), nn_case_part(&c, 4, 13)};
  device->ops->fill(device, c.g, NAN, c.model.parameters);
  for (int part = 0; part < 2; part++) {
    struct trm_pass some = pass;
    some.input = &parts[part];
    some.beta = part ? 1 : 0;
    nn_case_train(&c, &some, 1.0f / 13);
  }
  statistics_apply(&c);
  const float *later = nn_case_weights(&c);
  for (size_t k = 0; k < 3; k++) {
    double want[2] = {0, 0};
    for (int part = 0; part < 2; part++) {
      double moments[2];
      y = activations(&c, &parts[part], w);
      moments_of(y, parts[part].rows, k, &moments[0], &moments[1]);
      trm_free(y);
      for (int s = 0; s < 2; s++)
        want[s] += moments[s] * (double)parts[part].rows / 13;
    }
    for (int s = 0; s < 2; s++)
      CU_ASSERT_DOUBLE_EQUAL((double)statistic(&c, later, s)[k],
                             0.75 * (double)statistic(&c, after, s)[k] + 0.25 * want[s], 1e-6);
  }

  /* evaluation uses running statistics: rows are independent */
  float whole[16 * 5], alone[5];
  pass.training = false;
  trm_model_forward(&c.model, &pass);
  device->ops->download(device, whole, c.model.scores, 13 * 5 * sizeof *whole);
  const struct trm_input one = nn_case_part(&c, 7, 8);
  pass.input = &one;
  trm_model_forward(&c.model, &pass);
  device->ops->download(device, alone, c.model.scores, sizeof alone);
  CU_ASSERT(distance_of(alone, whole + 7 * 5, 5) < 1e-6);
  char hex[2][65];
  trm_model_hash(&c.model, after, hex[0]);
  trm_model_hash(&c.model, later, hex[1]);
  CU_ASSERT_STRING_NOT_EQUAL(hex[0], hex[1]);
  nn_case_close(&c);
}

/* Ranks as threads, each with its own device and model, that compute shards of one batch. */
enum { RANKS = 3 };
static const size_t rank_low[RANKS + 1] = {0, 4, 4, 13}; /* rank 1 has no rows */

struct rank {
  int number;
  bool sync;
  float *g; /* (parameters) */
  size_t parameters;
  double loss;
};

static pthread_barrier_t meeting;
static double *offered[RANKS];

static void threads_reduce(void *context, double *values, size_t n)
{
  double sum[512] = {0};
  offered[*(int *)context] = values;
  pthread_barrier_wait(&meeting);
  for (int r = 0; r < RANKS; r++)
    for (size_t i = 0; i < n; i++)
      sum[i] += offered[r][i];
  pthread_barrier_wait(&meeting);
  memcpy(values, sum, n * sizeof *values);
}

static const char ranks_text[] = "conv2d 3 3 pad=1 bias=no | batch_norm | tanh | linear 7 | batch_norm sync=yes | "
                                 "sigmoid | linear 5";

static void *rank_run(void *argument)
{
  struct rank *rank = argument;
  struct trm_device device;
  struct nn_case c;
  struct trm_loss_sums tally = {0};
  if (trm_device_open(&device, "cpu", "auto", TRM_MATMUL_F32, 0, 1) != TRM_OK ||
      nn_case_open(&c, &device, ranks_text, "auto", &nn_images, NN_ROWS, 3) != TRM_OK)
    return NULL;
  nn_case_draw(&c, 13, 10);
  const bool all = rank->number == RANKS;
  const struct trm_input part = nn_case_part(&c, all ? 0 : rank_low[rank->number],
                                             all ? 13 : rank_low[rank->number + 1]);
  const struct trm_pass pass = {.device = &device, .input = &part, .training = true,
                                .reduce = rank->sync ? threads_reduce : NULL, .reduce_context = &rank->number};
  rank->parameters = c.model.parameters;
  rank->g = trm_alloc(rank->parameters * sizeof *rank->g, "gradient");
  if (trm_model_train(&c.model, &pass, 1.0f / 13, &tally, NULL, NULL) == TRM_OK)
    device.ops->download(&device, rank->g, c.g, rank->parameters * sizeof *rank->g);
  rank->loss = tally.loss;
  nn_case_close(&c);
  trm_device_close(&device);
  return NULL;
}

/* With reduce, the shards' gradients and statistics add up to those of the whole batch on one rank; without, they do
 * not. */
static void test_ranks(void)
{
  struct rank whole = {.number = RANKS};
  rank_run(&whole);
  for (int sync = 0; sync < 2; sync++) {
    struct rank rank[RANKS];
    pthread_t thread[RANKS];
    pthread_barrier_init(&meeting, NULL, RANKS);
    for (int r = 0; r < RANKS; r++) {
      rank[r] = (struct rank){.number = r, .sync = sync};
      CU_ASSERT_EQUAL_FATAL(pthread_create(&thread[r], NULL, rank_run, &rank[r]), 0);
    }
    double loss = 0;
    for (int r = 0; r < RANKS; r++) {
      pthread_join(thread[r], NULL);
      CU_ASSERT_PTR_NOT_NULL_FATAL(rank[r].g);
      loss += rank[r].loss;
    }
    for (int r = 1; r < RANKS; r++)
      for (size_t e = 0; e < whole.parameters; e++)
        rank[0].g[e] += rank[r].g[e];
    const double distance = distance_of(rank[0].g, whole.g, whole.parameters);
    if (sync) {
      CU_ASSERT(distance < 2e-6);
      CU_ASSERT_DOUBLE_EQUAL(loss, whole.loss, 1e-6 * whole.loss);
    } else {
      CU_ASSERT(distance > 0.01);
    }
    for (int r = 0; r < RANKS; r++)
      trm_free(rank[r].g);
    pthread_barrier_destroy(&meeting);
  }
  trm_free(whole.g);
}

static void test_statistics(void)
{
  on_devices(statistics);
}

/* -- inference: calls for a convolution and what follows it give the values of single calls */

enum { CHAIN_ROWS = 3, CHAIN_SCORES = 10 };

/* Scores (CHAIN_ROWS, CHAIN_SCORES) of an evaluation. */
static void chain_score(struct nn_case *c, bool kept, float *scores)
{
  const struct trm_pass pass = {.device = c->device, .input = &c->input, .weights_kept = kept};
  trm_model_forward(&c->model, &pass);
  trm_model_read_scores(&c->model, 0, CHAIN_ROWS, scores);
  CU_ASSERT_EQUAL(c->device->ops->sync(c->device), TRM_OK);
}

static void chain_compare(const float *scores, const float *want)
{
  double largest = 0, error = 0;
  for (int i = 0; i < CHAIN_ROWS * CHAIN_SCORES; i++) {
    largest = fmax(largest, fabs((double)want[i]));
    error = fmax(error, fabs((double)scores[i] - (double)want[i]));
  }
  CU_ASSERT(largest > 0 && error <= 1e-5 * largest);
}

/* chains: of the model on a device that computes them all. */
static void chain_check(struct trm_device *device, const char *text, const struct trm_input_spec *spec, int chains)
{
  struct nn_case c;
  CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, text, "auto", spec, CHAIN_ROWS, 5), TRM_OK);
  const size_t values = CHAIN_ROWS * trm_shape_count(&spec->shape);
  float *x = trm_alloc(values * sizeof *x, "images");
  for (size_t k = 0; k < values; k++)
    x[k] = (float)(k * 7919 % 1009) / 500 - 1;
  nn_case_batch(&c, CHAIN_ROWS, x, (const int32_t[CHAIN_ROWS]){0}, NULL);
  float *w = nn_case_weights(&c), want[2][CHAIN_ROWS * CHAIN_SCORES], scores[CHAIN_ROWS * CHAIN_SCORES];
  for (int n = 0; n < trm_model_parameter_count(&c.model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&c.model, n);
    for (size_t k = 0; k < p->count && p->statistic; k++)
      w[p->offset + k] = 0.5f + 0.1f * (float)(k % 7);
  }
  float *other = trm_alloc(c.model.parameters * sizeof *other, "weights");
  for (size_t k = 0; k < c.model.parameters; k++)
    other[k] = w[k] * (k % 3 ? 1 : 0.75f);
  nn_case_upload(&c, w);
  chain_score(&c, false, want[0]); /* bound for training: no chains */
  nn_case_upload(&c, other);
  chain_score(&c, false, want[1]);
  CU_ASSERT_EQUAL_FATAL(trm_model_bind(&c.model, device, c.w, NULL, CHAIN_ROWS, false), TRM_OK);
  int found = 0;
  for (int i = 0; i < c.model.layers; i++)
    found += c.model.plan->chain[i] > 0;
  CU_ASSERT(found == chains || found == 0);
  CU_ASSERT(found == 0 || device->ops->conv2d_fuses);
  for (int round = 0; round < 2; round++) {
    nn_case_upload(&c, round ? other : w);
    for (int kept = 0; kept < 2; kept++) { /* twice kept: made, and found */
      chain_score(&c, kept > 0, scores);
      chain_compare(scores, want[round]);
    }
    chain_score(&c, true, scores);
    chain_compare(scores, want[round]);
  }
  trm_free(other);
  trm_free(x);
  nn_case_close(&c);
}

static void chains_on(struct trm_device *device)
{
  chain_check(device, "resnet20", &mnist, 21);
  chain_check(device, "conv2d 16 3 pad=1 | relu | conv2d 32 3 stride=2 | max_pool 2 | conv2d 16 1 | flatten | head",
              &cifar, 3);
  /* 24 units are not whole blocks; a value that is read twice; an addend that no chain makes */
  chain_check(device,
              "conv2d 24 3 pad=1 | batch_norm | relu | conv2d 16 3 pad=1 | batch_norm | mark a | relu | "
              "conv2d 16 3 pad=1 bias=yes | batch_norm | add a | relu | mark b | conv2d 16 5 pad=2 | add b | head",
              &cifar, 2);
  chain_check(device,
              "conv2d 16 3 | batch_norm | relu | max_pool 2 | mark a | conv2d 16 3 pad=1 | batch_norm | add a | relu | "
              "global_avg_pool | head", &mnist, 2);
}

static void test_chains(void)
{
  on_devices(chains_on);
}

/* -- training: images with the channels last give the gradients of the usual layout */

enum { LAST_ROWS = 5 };

/* Sets g (parameters), which the caller frees, to the gradient; returns the number of layers that write images with the
 * channels last. */
static int last_train(struct trm_device *device, const char *text, const struct trm_input_spec *spec, int recompute,
                      bool channels_first, float **g, size_t *parameters, double *loss)
{
  struct nn_case c;
  struct trm_loss_sums tally = {0};
  int found = 0;
  CU_ASSERT_EQUAL_FATAL(nn_case_open(&c, device, text, "auto", spec, NN_ROWS, 3), TRM_OK);
  c.model.recompute = recompute;
  c.model.channels_first = channels_first;
  CU_ASSERT_EQUAL_FATAL(trm_model_bind(&c.model, device, c.w, c.g, NN_ROWS, true), TRM_OK);
  const size_t values = LAST_ROWS * trm_shape_count(&spec->shape);
  float *x = trm_alloc(values * sizeof *x, "images");
  for (size_t k = 0; k < values; k++)
    x[k] = (float)(k * 7919 % 1009) / 500 - 1;
  nn_case_batch(&c, LAST_ROWS, x, (const int32_t[LAST_ROWS]){1, 0, 3, 2, 1}, NULL);
  trm_free(x);
  const struct trm_pass pass = nn_case_pass(&c);
  CU_ASSERT_EQUAL(trm_model_train(&c.model, &pass, 1.0f / LAST_ROWS, &tally, NULL, NULL), TRM_OK);
  for (int i = 0; i < c.model.layers; i++)
    found += c.model.layer[i].out_last;
  *parameters = c.model.parameters;
  *g = trm_alloc(c.model.parameters * sizeof **g, "gradient");
  device->ops->download(device, *g, c.g, c.model.parameters * sizeof **g);
  *loss = tally.loss;
  nn_case_close(&c);
  return found;
}

static void last_check(const char *text, const struct trm_input_spec *spec, int want)
{
  struct trm_device device;
  float *g[2];
  double loss[2];
  size_t parameters;
  CU_ASSERT_EQUAL_FATAL(trm_device_open(&device, "cpu", "auto", TRM_MATMUL_F32, 0, 2), TRM_OK);
  const bool here = device.ops->channels_last && device.ops->channels_last(&device, TRM_VALUES_F32);
  for (int recompute = 0; recompute < 2; recompute++) {
    CU_ASSERT_EQUAL(last_train(&device, text, spec, recompute, true, &g[0], &parameters, &loss[0]), 0);
    const int found = last_train(&device, text, spec, recompute, false, &g[1], &parameters, &loss[1]);
    CU_ASSERT_EQUAL(found, here ? want : 0);
    CU_ASSERT(distance_of(g[1], g[0], parameters) < 2e-5);
    CU_ASSERT_DOUBLE_EQUAL(loss[1], loss[0], 1e-6 * fabs(loss[0]));
    trm_free(g[0]);
    trm_free(g[1]);
  }
  trm_device_close(&device);
}

static void test_last(void)
{
  /* all but the batch and the vectors */
  last_check("conv2d 16 3 pad=1 | batch_norm | relu | max_pool 2 | conv2d 32 3 pad=1 | batch_norm | relu | "
             "avg_pool 2 | conv2d 16 1 | global_avg_pool | head", &cifar, 9);
  /* residual branches, of which the second ends with a flat vector: that has the usual layout, and what is added */
  last_check("conv2d 16 3 pad=1 | batch_norm | relu | mark a | conv2d 16 3 pad=1 | batch_norm | add a | relu | "
             "conv2d 16 3 stride=2 | tanh | head", &cifar, 7);
  /* 24 units are not whole blocks */
  last_check("conv2d 24 3 pad=1 | batch_norm | relu | conv2d 16 3 | relu | global_avg_pool | head", &cifar, 0);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"shapes and parameters", test_shapes},
    {"texts refused", test_refused},
    {"presets", test_presets},
    {"running statistics", test_statistics},
    {"statistics over ranks", test_ranks},
    {"fused convolutions at inference", test_chains},
    {"training with the channels last", test_last},
    CU_TEST_INFO_NULL,
  };
  return suite_run("convolution", tests);
}
