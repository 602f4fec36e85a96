/* Actions of a schedule: for each one a stage waits for its input, computes, and sends the result. A device with memory
 * of its own computes the next action while the result is on its way to the host: it is sent by the progress between
 * layers, or before this rank waits for others. Activations and
 * gradients go through channels (channel.h); the loss sums of a batch come from the last stage, which has them
 * before any stage has finished the batch (batch_losses.h). */
#include "mpi/pipeline/executor.h"

#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"

static bool executor_is_first(const struct executor *e, int chunk)
{
  return chunk == 0 && e->comm->rank == 0;
}

static bool executor_is_last(const struct executor *e, int chunk)
{
  return chunk == e->pipeline->schedule.chunks - 1 && e->comm->rank == e->comm->size - 1;
}

static double executor_now(const struct executor *e)
{
  return e->comm->ops->clock(e->comm);
}

/* Begins the sends and receives whose buffers are ready. Returns false if a message is not sent yet; all: waits. */
static bool executor_post_messages(struct executor *e, bool all)
{
  bool sent = true;
  for (int c = 0; c < e->pipeline->schedule.chunks && !e->device->host_memory; c++)
    for (int kind = 0; kind < CHANNELS; kind++)
      sent &= channel_progress(&e->channel[c][kind], all);
  return sent;
}

/* Sends all messages that wait for their copies to the host: before this rank waits for others. */
static void executor_send_all(struct executor *e)
{
  executor_post_messages(e, true);
}

/* Between layers. */
static void executor_progress(void *context)
{
  struct executor *e = context;
  executor_post_messages(e, false);
  e->comm->ops->progress(e->comm);
}

/* Waits for the device; meanwhile messages of earlier passes go on. */
static int executor_wait(void *context)
{
  struct executor *e = context;
  struct trm_device *device = e->device;
  device->ops->download_begin(device, e, device->number, 0, &e->marked);
  while (!device->ops->event_done(device, &e->marked))
    executor_progress(e);
  return device->ops->sync(device);
}

void executor_free_mark(struct executor *e)
{
  if (!e->device)
    return;
  e->device->ops->event_wait(e->device, &e->marked);
  e->device->ops->event_free(e->device, &e->marked);
}

/* Receives the message of an action into a device array. Messages of earlier passes are sent before this rank
 * blocks. */
static void executor_receive(struct executor *e, struct channel *channel, void *to, int micro)
{
  const double before = executor_now(e);
  while (!executor_post_messages(e, false) && !channel_has_arrived(channel, micro))
    e->comm->ops->progress(e->comm);
  e->pipeline->wait_s += executor_now(e) - before;
  channel_receive(channel, to, micro);
}

/* Selects the arrays of an action, which earlier messages may still be copied from. */
static void executor_select(struct executor *e, const struct trm_action *action)
{
  struct channel *channel = e->channel[action->chunk];
  const int slot = action->micro % e->slots;
  trm_model_select(e->pipeline->model, action->chunk, slot);
  channel_protect(&channel[ACTIVATION_OUT], slot, e->slots);
  channel_protect(&channel[GRADIENT_OUT], slot, e->slots);
}

/* Fills the pass of a micro-batch over one chunk. */
static int executor_make_pass(struct executor *e, const struct trm_action *action, struct trm_pass *pass)
{
  const struct trm_pipeline_run *run = e->run;
  const int slot = action->micro % e->slots, batch = action->micro / e->micros, micro = action->micro % e->micros;
  const bool features = executor_is_first(e, action->chunk), targets = executor_is_last(e, action->chunk);
  struct trm_input *input = &e->input[slot];
  if (run->collective)
    executor_send_all(e);
  if (action->kind == TRM_FORWARD && (features || targets))
    TRM_CHECK(run->input(run->context, batch, micro, slot, features, targets, input));
  *pass = run->pass;
  pass->input = input;
  if (!features && !targets) {
    e->rows_only.rows = e->rows[action->micro];
    pass->input = &e->rows_only;
  }
  if (pass->input->rows != e->rows[action->micro])
    return trm_error(TRM_FAILED, "micro-batch %d has %zu rows, not the %zu that the stages were told", micro,
                     pass->input->rows, e->rows[action->micro]);
  pass->progress = e->comm->size > 1 ? executor_progress : NULL;
  pass->wait = e->device->host_memory ? NULL : executor_wait;
  pass->progress_context = e;
  pass->first_row = e->first_row[action->micro];
  pass->scale = run->batch[batch].scale;
  pass->beta = micro ? 1 : 0;
  pass->weights_kept = micro > 0;
  return TRM_OK;
}

/* Injected slowdown: sleeps until the action has taken run->action_duration, while making MPI progress. */
static void executor_slow_down(struct executor *e, const struct trm_action *action, double began)
{
  const struct trm_pipeline_run *run = e->run;
  if (!run->action_duration)
    return;
  const double flop = (double)e->rows[action->micro] * e->pipeline->flop[action->chunk];
  const double duration = run->action_duration(run->context, action->micro / e->micros,
                                               action->kind == TRM_FORWARD ? flop : 2 * flop, executor_now(e) - began);
  e->comm->ops->sleep_until(e->comm, began + duration, true);
}

int executor_forward(struct executor *e, const struct trm_action *action, struct trm_pipeline_event *timing,
                            struct trm_loss_sums *sums)
{
  struct trm_pipeline *pipeline = e->pipeline;
  struct trm_model *model = pipeline->model;
  struct channel *channel = e->channel[action->chunk];
  const struct trm_shape *shape;
  struct trm_pass pass;
  executor_select(e, action);
  executor_receive(e, &channel[ACTIVATION_IN], trm_model_chunk_input(model, false, &shape), action->micro);
  TRM_CHECK(executor_make_pass(e, action, &pass));
  timing->began = executor_now(e);
  trm_model_forward(model, &pass);
  if (executor_is_last(e, action->chunk) && !pass.training)
    TRM_CHECK(trm_model_loss(model, &pass, sums));
  else
    TRM_CHECK(trm_pass_wait(&pass));
  executor_slow_down(e, action, timing->began);
  timing->ended = executor_now(e);
  channel_send(&channel[ACTIVATION_OUT], trm_model_chunk_output(model, false, &shape), action->micro);
  return TRM_OK;
}

struct ready_context {
  struct executor *executor;
  int batch;
  bool first_micro;
};

/* Returns true if each micro-batch's gradient is released separately (parameter provider of ZeRO). */
static bool executor_overwrites_gradient(const struct executor *e)
{
  return e->run->pass.provider && e->run->pass.provider->overwrites_gradient;
}

static struct trm_loss_sums *executor_batch_sums(const struct executor *e, int batch)
{
  return &e->losses.sums[batch];
}

static int executor_notify_ready(const struct executor *e, int batch, size_t low, size_t high)
{
  const struct trm_pipeline_run *run = e->run;
  return run->grad_ready ? run->grad_ready(run->context, batch, low, high, executor_batch_sums(e, batch)) : TRM_OK;
}

static int executor_on_grad_ready(void *context, size_t low, size_t high)
{
  const struct ready_context *to = context;
  struct executor *e = to->executor;
  versions_backward_done(&e->versions, low, high);
  if (executor_overwrites_gradient(e))
    tied_accumulate(&e->tied, e->device, low, high, to->first_micro);
  else if (low >= e->tied.deferred_from)
    return TRM_OK; /* executor_batch_end does */
  return executor_notify_ready(e, to->batch, low, high);
}

/* The loss of a micro-batch, just before its backward pass; after the batch's last one the other stages get the sums. */
static int executor_loss(struct executor *e, const struct trm_action *action, const struct trm_pass *pass, double stops)
{
  struct trm_loss_sums *sums = executor_batch_sums(e, action->micro / e->micros);
  TRM_CHECK(trm_model_loss(e->pipeline->model, pass, sums));
  if (action->micro % e->micros < e->micros - 1)
    return TRM_OK;
  sums->stop_requests += stops;
  executor_send_all(e);
  batch_losses_send(&e->losses, action->micro / e->micros);
  return TRM_OK;
}

static int executor_backward(struct executor *e, const struct trm_action *action, struct trm_pipeline_event *timing,
                             double stops)
{
  struct trm_model *model = e->pipeline->model;
  struct channel *channel = e->channel[action->chunk];
  const struct trm_shape *shape;
  struct trm_pass pass;
  struct ready_context to = {e, action->micro / e->micros, action->micro % e->micros == 0};
  const bool last_micro = action->micro % e->micros == e->micros - 1;
  executor_select(e, action);
  executor_receive(e, &channel[GRADIENT_IN], trm_model_chunk_output(model, true, &shape), action->micro);
  if (last_micro && action->chunk == model->chunks - 1 && !executor_is_last(e, action->chunk)) {
    executor_send_all(e);
    batch_losses_receive(&e->losses, to.batch, &e->pipeline->wait_s);
  }
  TRM_CHECK(executor_make_pass(e, action, &pass));
  timing->began = executor_now(e);
  if (executor_is_last(e, action->chunk))
    TRM_CHECK(executor_loss(e, action, &pass, stops));
  TRM_CHECK(trm_model_backward(model, &pass,
                               last_micro || executor_overwrites_gradient(e) ? executor_on_grad_ready : NULL, &to));
  executor_slow_down(e, action, timing->began);
  timing->ended = executor_now(e);
  channel_send(&channel[GRADIENT_OUT], trm_model_chunk_input(model, true, &shape), action->micro);
  return TRM_OK;
}

/* Releases the summed gradients of tied weights to the parameter provider, as those of an additional micro-batch whose
 * other gradients are 0. Visits all layers of the chunk, since the provider may combine layers. */
static int executor_tied_pass(struct executor *e, int batch, const struct trm_chunk *chunk)
{
  const struct trm_param_provider *provider = e->run->pass.provider;
  for (int i = chunk->last - 1; i >= chunk->first; i--) {
    struct trm_layer *layer = &e->pipeline->model->layer[i];
    float *w, *g;
    if (layer->low == layer->high)
      continue;
    provider->acquire(provider->context, layer->low, layer->high, TRM_ACQUIRE_BACKWARD, &w, &g);
    e->device->ops->fill(e->device, g, 0, layer->high - layer->low);
    tied_write(&e->tied, e->device, layer->low, layer->high, g);
    for (int p = 0; p < layer->parameters; p++)
      if (!layer->parameter[p].statistic && !layer->parameter[p].frozen)
        layer->parameter[p].g = g + (layer->parameter[p].offset - layer->low);
    TRM_CHECK(executor_notify_ready(e, batch, layer->low, layer->high));
    provider->release(provider->context, layer->low, layer->high, TRM_ACQUIRE_BACKWARD);
  }
  return e->device->ops->sync(e->device);
}

/* Passes on the gradients that depended on other stages. */
static int executor_tied_ready(struct executor *e, int batch)
{
  const struct trm_model *model = e->pipeline->model;
  for (int c = model->chunks - 1; c >= 0 && executor_overwrites_gradient(e); c--)
    if (tied_in_chunk(&e->tied, model->layer, &model->chunk[c]))
      TRM_CHECK(executor_tied_pass(e, batch, &model->chunk[c]));
  size_t low = 0;
  for (int b = 0; b < model->boundaries && !executor_overwrites_gradient(e); low = model->boundary[b++])
    if (low >= e->tied.deferred_from)
      TRM_CHECK(executor_notify_ready(e, batch, low, model->boundary[b]));
  return TRM_OK;
}

/* Ends the run early, after the same batch on all stages: the last one that any stage may have started, or may be
 * expecting a message of, when one of them updates by `batch`. */
static void executor_truncate_run(struct executor *e, int batch)
{
  const int ahead = e->comm->size - 1 + CHANNEL_DEPTH, batches = batch + 1 + (ahead + e->micros - 1) / e->micros;
  if (batches >= e->batches)
    return;
  e->batches = batches;
  for (int c = 0; c < e->pipeline->schedule.chunks; c++)
    for (int kind = 0; kind < CHANNELS; kind++)
      e->channel[c][kind].messages = batches * e->micros;
}

/* After the last backward pass of a batch: sums the gradients of tied weights, and updates. */
static int executor_batch_end(struct executor *e, int batch)
{
  const struct trm_pipeline_run *run = e->run;
  executor_send_all(e);
  TRM_CHECK(tied_allreduce(&e->tied, e->device, executor_overwrites_gradient(e), &e->pipeline->wait_s));
  TRM_CHECK(executor_tied_ready(e, batch));
  if (batch + 1 < e->batches)
    TRM_CHECK(tied_begin(&e->tied, e->device));
  if (!run->step || e->failed != TRM_OK)
    return TRM_OK;
  versions_step(&e->versions);
  e->failed = run->step(run->context, batch, executor_batch_sums(e, batch)); /* the same status on all stages */
  if (e->failed != TRM_OK || executor_batch_sums(e, batch)->stop_requests > 0)
    executor_truncate_run(e, batch);
  return TRM_OK;
}

static const char *executor_action_name(const struct trm_action *action)
{
  return action->kind == TRM_FORWARD ? "forward" : "backward";
}

static void executor_trace_action(const struct trm_pipeline_event *timing)
{
  const struct trm_trace_ids place = {.micro = timing->action.micro, .chunk = timing->action.chunk, .layer = -1};
  trm_trace_add("wait for a stage", TRM_TRACE_WAIT, timing->wait_began, timing->began, place);
  trm_trace_add(executor_action_name(&timing->action), TRM_TRACE_COMPUTE, timing->began, timing->ended, place);
}

int executor_run(struct executor *e, const struct trm_action *action, struct trm_pipeline_event *timing)
{
  const int batch = action->micro / e->micros;
  const bool last_micro = action->micro % e->micros == e->micros - 1;
  const double stops = last_micro ? batch_losses_poll_stop(&e->losses) : 0;
  *timing = (struct trm_pipeline_event){.action = *action, .wait_began = executor_now(e)};
  versions_use(&e->versions, action, batch);
  trm_trace_enter_region(executor_action_name(action));
  if (action->kind == TRM_FORWARD) {
    TRM_CHECK(executor_forward(e, action, timing, executor_batch_sums(e, batch)));
  } else {
    TRM_CHECK(executor_backward(e, action, timing, stops));
    if (last_micro && action->chunk == 0)
      TRM_CHECK(executor_batch_end(e, batch));
  }
  trm_trace_leave_region(executor_action_name(action));
  e->pipeline->busy_s += timing->ended - timing->began;
  executor_trace_action(timing);
  return TRM_OK;
}
