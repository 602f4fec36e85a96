#include "mpi/async/gradient_sum.h"

enum value { BATCHES = SERVER_SCALE + 1 }; /* in the sum; 0: one gradient, as it was computed */

void gradient_sum_add(const struct trm_strategy *s, float *sum, int batch, double rate, double scale)
{
  const struct trm_optimizer *optimizer = s->optimizer;
  const size_t trained = trm_optimizer_trained(optimizer);
  server_weights_axpy(s, rate * scale, trained, sum, s->g);
  if (optimizer->update.l2 > 0)
    server_weights_axpy(s, rate * (double)optimizer->update.l2, trained, sum, s->w);
  trm_optimizer_add_moments(optimizer, s->device, batch, 0, s->elements, sum, s->g);
}

void gradient_sum_push(struct trm_strategy *s, const float *sum, int batches, double rates)
{
  const double rate = rates / batches;
  const double value[SERVER_VALUES] = {
    [SERVER_RATE] = rate, [SERVER_SCALE] = rate > 0 ? 1 / rate : 0, [BATCHES] = batches};
  worker_exchange(s, SERVER_PUSH, value, sum, s->w, true);
}

/* Weight decay of the gradients is part of the sum. */
void gradient_sum_set_rule(struct trm_update *update, const struct server_call *call)
{
  const int batches = (int)call->value[BATCHES];
  if (batches == 0)
    return;
  update->l2 = 0;
  update->decay *= (float)batches;
  update->batches = batches;
}
