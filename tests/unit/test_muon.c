/* Muon: its directions against the iterations in double precision, the tensors that have them, and the same bits at any
 * number of ranks. Meant for 1 to 5 ranks. */
#include <math.h>

#include "nn/model.h"
#include "support/nn_case.h"
#include "sync_job.h"

/* to (m, n) = a (m, k) b (k, n); transposed: b (n, k) */
static void multiply(size_t m, size_t n, size_t k, const double *a, const double *b, bool transposed, double *to)
{
  for (size_t i = 0; i < m; i++)
    for (size_t j = 0; j < n; j++) {
      double sum = 0;
      for (size_t l = 0; l < k; l++)
        sum += a[i * k + l] * (transposed ? b[j * k + l] : b[l * n + j]);
      to[i * n + j] = sum;
    }
}

/* Jordan et al. 2024: x (rows, columns) orthogonalized in place; of a tall matrix the transpose is. */
static void orthogonalize(double *x, size_t rows, size_t columns)
{
  const size_t n = rows * columns, low = rows < columns ? rows : columns, high = n / low;
  double *y = trm_alloc(n * sizeof *y, "test"), *more = trm_alloc(n * sizeof *y, "test");
  double *gram = trm_alloc(low * low * sizeof *y, "test"), *square = trm_alloc(low * low * sizeof *y, "test");
  double norm = 0;
  for (size_t i = 0; i < n; i++)
    norm += x[i] * x[i];
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < columns; j++)
      y[rows > columns ? j * rows + i : i * columns + j] = x[i * columns + j] / (sqrt(norm) + 1e-7);
  for (int iteration = 0; iteration < 5; iteration++) {
    multiply(low, low, high, y, y, true, gram);
    multiply(low, low, low, gram, gram, false, square);
    for (size_t i = 0; i < low * low; i++)
      square[i] = -4.7750 * gram[i] + 2.0315 * square[i];
    multiply(low, high, low, square, y, false, more);
    for (size_t i = 0; i < n; i++)
      y[i] = 3.4445 * y[i] + more[i];
  }
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < columns; j++)
      x[i * columns + j] = y[rows > columns ? j * rows + i : i * columns + j];
  trm_free(y);
  trm_free(more);
  trm_free(gram);
  trm_free(square);
}

/* The least and the largest squared singular value of x (rows, columns): eigenvalues of the smaller of x x' and x' x,
 * by Jacobi's rotations. */
static void squared_singular_values(const double *x, size_t rows, size_t columns, double bounds[2])
{
  const size_t n = rows < columns ? rows : columns;
  double *a = trm_alloc(n * n * sizeof *a, "test");
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < n; j++)
      for (size_t k = 0; k < rows * columns / n; k++)
        a[i * n + j] += rows < columns ? x[i * columns + k] * x[j * columns + k] : x[k * columns + i] * x[k * columns + j];
  for (int sweep = 0; sweep < 10; sweep++)
    for (size_t p = 0; p < n; p++)
      for (size_t q = p + 1; q < n; q++) {
        const double angle = 0.5 * atan2(2 * a[p * n + q], a[q * n + q] - a[p * n + p]), c = cos(angle), s = sin(angle);
        for (size_t k = 0; k < n; k++) {
          const double u = a[k * n + p], v = a[k * n + q];
          a[k * n + p] = c * u - s * v;
          a[k * n + q] = s * u + c * v;
        }
        for (size_t k = 0; k < n; k++) {
          const double u = a[p * n + k], v = a[q * n + k];
          a[p * n + k] = c * u - s * v;
          a[q * n + k] = s * u + c * v;
        }
      }
  bounds[0] = bounds[1] = a[0];
  for (size_t i = 0; i < n; i++) {
    bounds[0] = fmin(bounds[0], a[i * n + i]);
    bounds[1] = fmax(bounds[1], a[i * n + i]);
  }
  trm_free(a);
}

/* Two directions of the second of two tensors. */
static void check_directions(size_t rows, size_t columns)
{
  const size_t n = rows * columns, padding = (16 - n % 16) % 16, end = 16 + n + padding;
  const struct trm_tensor tensor[] = {{.end = 16, .columns = 16}, {.end = end, .columns = columns, .padding = padding,
                                                                   .hidden = true}};
  const struct trm_optimizer o = {.update = {.rule = TRM_UPDATE_MUON, .momentum = 0.75f, .scale = 0.5f},
                                  .tensor = tensor, .tensors = 2};
  float *m = trm_alloc(end * sizeof *m, "test"), *g = trm_alloc(end * sizeof *g, "test");
  float *scratch = trm_alloc(trm_muon_scratch(&o) * sizeof *scratch, "test");
  double *want_m = trm_alloc(n * sizeof *want_m, "test"), *x = trm_alloc(n * sizeof *x, "test"), bounds[2];
  const double scale = sqrt(fmax(1, (double)rows / (double)columns));
  for (uint64_t step = 0; step < 2; step++) {
    for (size_t i = 0; i < n; i++) {
      g[16 + i] = exact_gradient(step, 0, i);
      want_m[i] = 0.75 * want_m[i] + 0.5 * (double)g[16 + i];
      x[i] = 0.5 * (double)g[16 + i] + 0.75 * want_m[i];
    }
    orthogonalize(x, rows, columns);
    trm_muon_direction(&o, &cpu, &o.update, 1, m, g, scratch);
    double worst = 0, off = 0;
    for (size_t i = 0; i < n; i++) {
      worst = fmax(worst, fabs((double)g[16 + i] - scale * x[i]));
      off = fmax(off, fabs((double)m[16 + i] - want_m[i]));
    }
    CU_ASSERT(worst < 1e-5 && off < 1e-6);
    squared_singular_values(x, rows, columns, bounds);
    const bool inside = bounds[0] > 0.65 * 0.65 && bounds[1] < 1.25 * 1.25;
    if (!inside || !(worst < 1e-5))
      printf("\n    %zu x %zu: off by %g, singular values %g to %g\n", rows, columns, worst, sqrt(bounds[0]),
             sqrt(bounds[1]));
    CU_ASSERT(inside);
    for (size_t i = 0; i < padding; i++)
      CU_ASSERT(g[16 + n + i] == 0 && m[16 + n + i] == 0);
  }
  void *const all[] = {m, g, scratch, want_m, x};
  for (int i = 0; i < 5; i++)
    trm_free(all[i]);
}

/* Weights and biases in turn: the ranks have as many matrices each. */
static void test_owners(void)
{
  const struct trm_tensor tensor[] = {{.end = 1}, {.end = 2}, {.end = 3, .hidden = true}, {.end = 4},
                                      {.end = 5, .hidden = true}, {.end = 6}, {.end = 7, .hidden = true}};
  const struct trm_optimizer o = {.tensor = tensor, .tensors = 7};
  static const int owner[] = {-1, -1, 0, -1, 1, -1, 0};
  for (int t = 0; t < 7; t++)
    CU_ASSERT_EQUAL(trm_muon_owner(&o, t, 2), owner[t]);
}

static void test_directions(void)
{
  check_directions(12, 31);
  check_directions(40, 9);
  check_directions(1, 7);
  check_directions(7, 1);
  /* a gradient of zeros has no direction */
  float m[16] = {0}, g[16] = {0};
  const struct trm_tensor tensor = {.end = 16, .columns = 4, .hidden = true};
  const struct trm_optimizer o = {.update = {.rule = TRM_UPDATE_MUON, .scale = 1}, .tensor = &tensor, .tensors = 1};
  float *scratch = trm_alloc(trm_muon_scratch(&o) * sizeof *scratch, "test");
  trm_muon_direction(&o, &cpu, &o.update, 0, m, g, scratch);
  for (int i = 0; i < 16; i++)
    CU_ASSERT_EQUAL(g[i], 0);
  trm_free(scratch);
}

/* The hidden matrices of a model, by the rows and columns of their tensors, from the last layer to the first. */
static void hidden_are(const char *text, const struct trm_input_spec *spec, const char *wanted)
{
  struct nn_case c;
  char found[256] = "";
  CU_ASSERT_FATAL(nn_case_open(&c, &cpu, text, "auto", spec, 4, 1) == TRM_OK);
  for (int t = 0; t < c.model.tensors; t++) {
    const struct trm_tensor *tensor = &c.model.tensor[t];
    const size_t n = tensor->end - tensor->padding - (t ? tensor[-1].end : 0), used = strlen(found);
    if (tensor->hidden)
      snprintf(found + used, sizeof found - used, "%zux%zu ", n / tensor->columns, tensor->columns);
  }
  if (strcmp(found, wanted) != 0)
    printf("\n    %s: %s\n", text, found);
  CU_ASSERT_STRING_EQUAL(found, wanted);
  nn_case_close(&c);
}

static void test_hidden(void)
{
  hidden_are("linear 8 | tanh | linear 5 | tanh | linear 10", &nn_ten_classes, "5x8 ");
  hidden_are("linear 10", &nn_ten_classes, "");
  hidden_are("conv2d 3 3 | relu | conv2d 4 2 | relu | flatten | linear 5", &nn_images, "4x12 ");
  hidden_are("gpt layers=1 heads=2 dim=8 context=5", &nn_tokens, "8x32 32x8 8x8 24x8 ");
}

/* Sets some tensors to hidden matrices, one of them tall, one of a single row. */
static void tensors_hide(struct job *job)
{
  size_t begin = 0;
  for (int t = 0; t < job->optimizer.tensors; begin = job->tensor[t++].end) {
    struct trm_tensor *tensor = &job->tensor[t];
    tensor->hidden = !tensor->vector && (tensor->end - begin) % tensor->columns == 0 && t % 5 != 3;
    if (t == 1)
      tensor->columns = tensor->end - begin;
  }
}

static void muon_start(struct job *job, const struct setup *c, struct trm_comm *comm)
{
  job_start(job, c, comm);
  strategy_end(&job->arrays);
  tensors_hide(job);
  job->optimizer.update.l2 = 0;
  job->optimizer.adamw = 0.25;
  job->strategy = (struct trm_strategy){.ops = trm_strategy_find("sync"), .comm = comm, .device = &cpu,
                                        .optimizer = &job->optimizer, .elements = c->elements,
                                        .boundary = job->boundary, .boundaries = 5};
  trm_strategy_set_options(&job->strategy, &job->options);
  CU_ASSERT_EQUAL_FATAL(strategy_begin(&job->arrays, &job->strategy, c->node_size), TRM_OK);
}

static void check_layout(const struct setup *c)
{
  struct job job, alone;
  muon_start(&job, c, world);
  muon_start(&alone, &(struct setup){.rule = TRM_UPDATE_MUON, .clip = c->clip, .ema = c->ema,
                                .error_feedback = c->error_feedback, .elements = c->elements},
             trm_comm_self());
  const size_t bytes = c->elements * sizeof(float);
  float *g = trm_alloc(bytes, "test");
  strategy_restore_initial(&job.strategy, initial);
  strategy_restore_initial(&alone.strategy, initial);
  for (uint64_t step = 0; step < 3; step++) {
    exact_step(&job, c);
    for (size_t i = 0; i < c->elements; i++) {
      g[i] = 0;
      for (int part = 0; part < world->size; part++)
        g[i] += exact_gradient(step, part, i);
    }
    struct trm_loss_sums sums = {.loss = 1, .rows = 1};
    submit_gradient(&alone, g, &sums);
    trm_strategy_begin_step(&alone.strategy, rate_of(step), 0, &sums);
    CHECK(c, alone.strategy.ops->step(&alone.strategy, rate_of(step), &sums) == TRM_OK);
  }
  const float *one[TRM_MAX_STATES], *many[TRM_MAX_STATES];
  CHECK(c, alone.strategy.ops->collect(&alone.strategy, one) == TRM_OK);
  CHECK(c, job.strategy.ops->collect(&job.strategy, many) == TRM_OK);
  for (int k = 0; k <= job.optimizer.states; k++)
    CHECK(c, memcmp(one[k], many[k], bytes) == 0);
  world->ops->barrier(world);
  strategy_end(&job.arrays);
  strategy_end(&alone.arrays);
  trm_free(g);
}

static void test_layouts(void)
{
  for (int clip = 0; clip < 2; clip++)
    for (int node = 0; node <= 2; node++)
      for (int share = 0; share < 2; share++)
        if (share || node == 0)
          check_layout(&(struct setup){.rule = TRM_UPDATE_MUON, .clip = clip ? 3 : 0, .ema = clip ? 0.9 : 0,
                                       .error_feedback = node == 1,
                                       .share = share ? TRM_SHARE_NODE : TRM_SHARE_NONE, .node_size = node,
                                       .bucket = 20000, .elements = 60000});
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {{"directions", test_directions},
                         {"owners of matrices", test_owners},
                         {"hidden matrices", test_hidden},
                         {"the bits of one rank", test_layouts},
                         CU_TEST_INFO_NULL};
  return method_devices_run(argc, argv, "muon", tests);
}
