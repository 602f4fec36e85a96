# shellcheck shell=bash
# Layers, models, schedules and optimizers.
mutation 'batch norm: evaluation by the batch' src/nn/layers/batch_norm.c 's/if \(pass->training\) \{/if (true) {/' \
  test_reference_images 1
mutation 'batch norm: synchronized moments not weighted' src/nn/layers/batch_norm.c \
  's/count \? \*count \* first : first/first/' test_zero 2
mutation 'dropout in evaluations' src/nn/layers/dropout.c \
  's/pass->training \? \*\(const float \*\)layer->settings : 0/*(const float *)layer->settings/' test_nn 1
mutation 'dropout: layers share a stream' src/nn/layers/dropout.c \
  's/\.stream = \(uint32_t\)layer->number/.stream = 1/' test_nn 1
mutation 'linear: bias of every rank in partial sums' src/nn/layers/linear.c \
  's/bias = NULL; \/\* of partial/(void)0; \/* of partial/' test_tensor 2
mutation 'linear: gradient of a tied weight' src/nn/layers/linear.c \
  's/layer->tied_gradient \? layer->tied_gradient : weight->g/weight->g/' layouts.sh
mutation 'rate: cosine over half a wave too much' src/nn/schedule.c 's/cos\(pi \* p\)/cos(2 * pi * p)/' \
  test_trainer:rate 1
mutation 'rate: linear without its end' src/nn/schedule.c 's/1 - \(1 - final\) \* p/1 - p/' test_trainer:rate 1
mutation 'rate: warm-up begins with 0' src/nn/schedule.c \
  's/rate \* \(\(double\)step \+ 1\) \//rate * (double)step \//' test_trainer:rate 1
mutation 'rate: warm-up one step longer' src/nn/schedule.c 's/return step < warmup \?/return step <= warmup ?/' \
  test_trainer:rate 1
mutation 'rate: milestones one step late' src/nn/schedule.c \
  's/\(double\)step >= \(fraction/(double)step > (fraction/' test_trainer:rate 1
mutation 'rate: gamma once' src/nn/schedule.c 's/factor \*= options->optim\.gamma/factor = options->optim.gamma/' \
  test_trainer:rate 1
mutation 'decay of vectors' src/nn/optimizer.c 's/optimizer->tensor\[t\]\.vector && !optimizer->decay_all/false/' \
  test_sync 2
mutation 'lamb: ratio turned over' src/nn/optimizer.c 's/return \(float\)\(w \/ g\)/return (float)(g \/ w)/' \
  test_optimizer 1
mutation 'trust ratio of a zero weight' src/nn/optimizer.c 's/if \(!\(w > 0 && g > 0\)\)/if (!(g > 0))/' \
  test_optimizer 1
mutation 'clipping of small gradients' src/nn/optimizer.c \
  's/optimizer->clip > 0 && norm > optimizer->clip \?/optimizer->clip > 0 ?/' test_optimizer 1
mutation 'average: without its start' src/nn/optimizer.c \
  's/fmin\(optimizer->ema, \(1 \+ t\) \/ \(10 \+ t\)\)/optimizer->ema/' test_sync 2
mutation 'average: of the weights before the step' src/nn/optimizer.c \
  's/1 - fmin\(optimizer->ema/fmin(optimizer->ema/' test_sync 2
mutation 'statistics: momentum of one batch' src/nn/optimizer.c 's/1 - pow\(1 - momentum, batches\)/momentum/' \
  test_async_server_weights 3
mutation 'runs of an update: rates joined' src/nn/optimizer.c 's/ && next\.rate == last->rate\)/)/' test_sync 2
mutation 'norm counts replicas' src/nn/optimizer.c 's/return !replica;/return true;/' layouts.sh
mutation 'loss chunks: the last one too long' src/nn/model_loss.c \
  's/vectors - first < plan->loss_chunk \? vectors - first : plan->loss_chunk/plan->loss_chunk/' test_scores 1
