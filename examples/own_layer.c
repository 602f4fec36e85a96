/* Trains with a layer that the library does not have: PReLU (He et al. 2015), with one learned slope for all values.
 *
 *   y = x where x > 0, otherwise slope x;   slope = w / 4, w begins as 1
 *
 *   mpiexec -n 2 ./own_layer digits.h5
 */
#include <stdio.h>

#include <trireme/trireme.h>

static int prelu_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  return trm_argument_reject_unknown(layer, arguments, 0, (const char *const[]){NULL});
}

static int prelu_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_require_dense(layer));
  layer->out = layer->in;
  const struct trm_shape one = {.dims = 1, .size = {1}};
  trm_layer_add_parameter(layer, "slope", &one, TRM_INIT_ONE, 0);
  return TRM_OK;
}

/* x, y (B, F) are float32, since the layer does not say takes_bf16. The loops access device memory, which main has
 * checked; other layers call pass->device->ops. */
static void prelu_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, void *y, float *work)
{
  (void)pass, (void)work;
  const size_t n = layer->rows * trm_shape_count(&layer->in);
  const float slope = layer->parameter[0].w[0] / 4, *from = x;
  float *to = y;
  for (size_t i = 0; i < n; i++)
    to[i] = from[i] > 0 ? from[i] : slope * from[i];
}

/* dx may be NULL if no layer needs it. The parameter's gradient is overwritten (beta 0) or added to (beta 1). */
static void prelu_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                           const void *dy, void *dx, float *work)
{
  (void)y, (void)work;
  const size_t n = layer->rows * trm_shape_count(&layer->in);
  const float slope = layer->parameter[0].w[0] / 4, *in = x, *from = dy;
  float *to = dx;
  double sum = 0;
  for (size_t i = 0; i < n; i++) {
    if (in[i] <= 0)
      sum += (double)(from[i] * in[i]) / 4;
    if (to)
      to[i] = in[i] > 0 ? from[i] : slope * from[i];
  }
  float *g = layer->parameter[0].g;
  g[0] = (pass->beta > 0 ? pass->beta * g[0] : 0) + (float)sum;
}

static struct trm_cost prelu_cost(const struct trm_layer *layer)
{
  const double f = (double)trm_shape_count(&layer->in);
  return (struct trm_cost){.flop = 2 * f, .bytes = 2 * sizeof(float) * f};
}

static const struct trm_layer_ops prelu = {
  .name = "prelu",
  .usage = "prelu",
  .create = prelu_create,
  .shape = prelu_shape,
  .forward = prelu_forward,
  .backward = prelu_backward,
  .cost = prelu_cost,
  .keeps_input = true,
};

static int set_options(struct trm_options *options, const char *data_file)
{
  static const char *const settings[][2] = {
    {"model", "linear 64 | prelu | linear 10"}, {"train.epochs", "2"}, {"train.batch", "32"},
    {"optim.lr", "0.1"}, {"run.dir", "own_layer.run"}, {"run.overwrite", "yes"},
  };
  TRM_CHECK(trm_layer_register(&prelu));
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    TRM_CHECK(trm_options_set(options, settings[i][0], settings[i][1]));
  return trm_options_set(options, "data.file", data_file);
}

int main(int argc, char **argv)
{
  if (argc != 2) {
    fprintf(stderr, "usage: own_layer DATA.h5\n");
    return TRM_USAGE;
  }
  struct trm_job job;
  struct trm_result result;
  trm_job_init(&job);
  int status = trm_job_open(&job, set_options(&job.options, argv[1]));
  if (status == TRM_OK && !job.device.host_memory)
    status = trm_error(TRM_USAGE, "device.name: prelu needs a device whose memory the host can read");
  if (status == TRM_OK)
    status = trm_job_train(&job, &result);
  if (status == TRM_OK && result.test.accuracy < 0.5)
    status = trm_error(TRM_FAILED, "test accuracy %.3f: the model has not learned the digits", result.test.accuracy);
  if (trm_log_rank() == 0 && status != TRM_OK)
    trm_log_error();
  else if (trm_log_rank() == 0)
    printf("own_layer: ok: test accuracy %.3f with prelu\n", result.test.accuracy);
  trm_job_close(&job);
  return status;
}
