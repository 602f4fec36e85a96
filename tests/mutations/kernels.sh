# shellcheck shell=bash
# Kernels of the CPU. Their order of additions, their edge cases and their constants.
mutation 'relu: gradient 1 at 0' kernels/cpu/activation.c 's/out, i\) <= 0\.0f/out, i) < 0.0f/' 'test_kernels:activations' 1
mutation 'tanh: gradient without the square' kernels/cpu/activation.c 's/\(1\.0f - y \* y\)/(1.0f - y)/' \
  'test_kernels:activations' 1
mutation 'sigmoid: gradient with the wrong sign' kernels/cpu/activation.c \
  's/\(y \* \(1\.0f - y\)\)/(y * (1.0f + y))/' 'test_kernels:activations' 1
mutation 'gelu: gradient without the density' kernels/cpu/activation.c 's/\(gate \+ x \* density\)/gate/' \
  'test_kernels:activations' 1
mutation 'gelu: sqrt(2 \/ pi) for sqrt(8 \/ pi)' kernels/cpu/activation.c 's/1\.595769122f/0.797884561f/' \
  'test_kernels:activations' 1
mutation 'softmax: no smoothing in the loss' kernels/cpu/loss.c \
  's/all \* log\(sum\) \+ own \*/all * log(sum) +/' 'test_kernels:softmax' 1
mutation 'softmax: smoothing of the label alone' kernels/cpu/loss.c \
  's/uniform = scale \* share \/ \(float\)c/uniform = 0/' 'test_kernels:softmax' 1
mutation 'softmax: smoothing without the weights of the classes' kernels/cpu/loss.c \
  's/terms\[j\] \* factor - uniform \* weight\[j\]/terms[j] * factor - uniform/' 'test_kernels:softmax' 1
mutation 'softmax: the last class of maximum score' kernels/cpu/loss.c \
  's/if \(cpu_value\(type, z, j\) >= maximum\)/if (cpu_value(type, z, j) > maximum)/' 'test_kernels:softmax' 1
mutation 'softmax: ignored rows counted' kernels/cpu/loss.c 's/ignored \? -1 : 0;/0;/' 'test_kernels:softmax' 1
mutation 'softmax: ignored rows have a gradient' kernels/cpu/loss.c \
  's/cpu_set\(type, dz, j, ignored \? 0 : NAN\)/cpu_set(type, dz, j, ignored ? 1 : NAN)/' 'test_kernels:softmax' 1
mutation 'sharded scores: ties take the last shard' kernels/cpu/loss.c \
  's/k == 0 \|\| \(double\)at\[TRM_SCORES_MAX\] > max/k == 0 || (double)at[TRM_SCORES_MAX] >= max/' 'test_kernels:sharded' 1
mutation 'sharded scores: sums not shifted' kernels/cpu/loss.c \
  's/at\[TRM_SCORES_SUM\] \* exp\(-shift\)/at[TRM_SCORES_SUM]/' 'test_kernels:sharded' 1
mutation 'sharded scores: the distance not shifted' kernels/cpu/loss.c 's/ \+ \(double\)at\[TRM_SCORES_WEIGHT\] \* shift//' \
  'test_kernels:sharded' 1
mutation 'squared error: gradient without the 2' kernels/cpu/loss.c 's/return 2 \* e;/return e;/' \
  'test_kernels:squared error' 1
mutation 'hinge: margin 0' kernels/cpu/loss.c \
  's/it->loss\[i\] = margin >= 1 \? 0 : 1 - margin/it->loss[i] = margin >= 0 ? 0 : -margin/' 'test_kernels:logistic' 1
mutation 'logistic: gradient by e^-margin' kernels/cpu/loss.c 's/\(1 \+ expf\(margin\)\)/(1 + expf(-margin))/' \
  'test_kernels:logistic' 1
mutation 'margin: the sign of 0 is 1' kernels/cpu/loss.c 's/t > 0 \? z > 0 : z <= 0/t > 0 ? z >= 0 : z < 0/' \
  'test_kernels:logistic' 1
mutation 'sum of losses: ignored rows counted' kernels/cpu/loss.c 's/counted \+= .*;/counted++;/' 'test_kernels:sums of losses' 1
mutation 'momentum: dampened' kernels/cpu/update.c   \
  's/m\[i\] = momentum \* m\[i\] \+ \(scale \* g\[i\] \+ l2 \* w\[i\]\)/m[i] = momentum * m[i] + (1 - momentum) * (scale * g[i] + l2 * w[i])/' \
  'test_kernels:updates' 1
mutation 'nesterov: without its look ahead' kernels/cpu/update.c 's/\(gradient \+ momentum \* m\[i\]\)/m[i]/' \
  'test_kernels:updates' 1
mutation 'lars: the rate not in the momentum' kernels/cpu/update.c \
  's/momentum \* m\[i\] \+ rate \* \(scale/momentum * m[i] + (scale/' 'test_kernels:updates' 1
mutation 'adagrad: epsilon under the root' kernels/cpu/update.c \
  's/\(sqrtf\(m\[i\]\) \+ epsilon\)/sqrtf(m[i] + epsilon)/' 'test_kernels:updates' 1
mutation 'adam: epsilon before the bias correction' kernels/cpu/update.c \
  '0,/\(sqrtf\(v\[i\]\) \* root \+ epsilon\)/s//((sqrtf(v[i]) + epsilon) * root)/' 'test_kernels:updates' 1
mutation 'adam: no bias correction of the mean' kernels/cpu/update.c 's/it->step = .*;/it->step = rate;/' \
  'test_kernels:updates' 1
mutation 'adam: bias correction one step late' kernels/cpu/update.c \
  's/const double t = \(double\)it->opt->step;/const double t = (double)it->opt->step + 1;/' 'test_kernels:updates' 1
mutation 'adamw: decay of adam' kernels/cpu/update.c \
  's/opt->rule == TRM_UPDATE_ADAM \? 1 : 1 - opt->rate \* opt->decay/1/' 'test_kernels:updates' 1
mutation 'nadamw: the momentum of one update for the next' kernels/cpu/update.c \
  's/update_nadam_momentum\(beta1, t \+ 1\)/now/' 'test_kernels:updates' 1
mutation 'error feedback: the first step twice' kernels/cpu/update.c 's/plain = it->opt->step == 1/plain = false/' \
  'test_kernels:error feedback' 1
mutation 'error feedback: of the corrected step' kernels/cpu/update.c \
  's/last\[i\] = step;/last[i] = before[i - low] - w[i];/' 'test_kernels:error feedback' 1
mutation 'error feedback: the first step twice where the rule is sgd of a direction' src/nn/optimizer.c 's/\.step = hyper->step,//' \
  'test_sync:rules' 2
mutation 'muon: the smaller side of a tall matrix' src/nn/muon.c 's/const bool tall = .*;/const bool tall = false;/' \
  'test_muon:directions' 1
mutation 'muon: momentum without Nesterov' src/nn/muon.c 's/TRM_UPDATE_NESTEROV/TRM_UPDATE_MOMENTUM/' \
  'test_muon:directions' 1
mutation 'adamw: decay without the rate' kernels/cpu/update.c 's/1 - opt->rate \* opt->decay/1 - opt->decay/' \
  'test_kernels:updates' 1
mutation 'lamb: decay not in the direction' kernels/cpu/update.c 's/ \+ decay \* w\[i\];/;/' 'test_kernels:updates' 1
mutation 'clipping by the squared norm' kernels/cpu/update.c \
  's/norm = sqrt\(step->norm_squared\)/norm = step->norm_squared/' 'test_kernels:a step|trust' 1
mutation 'a step with a loss that is not finite' kernels/cpu/update.c \
  's/step->skip = !isfinite\(step->loss\)/step->skip = 0/' 'test_kernels:a step|trust' 1
mutation 'trust ratio: without the decay' kernels/cpu/update.c 's/ \+ \(double\)call->update\.l2 \* w\)/)/' \
  'test_kernels:a step|trust' 1
mutation 'layer norm: variance of d - 1' kernels/cpu/norm.c \
  's/mean, d\) \/ \(double\)d \+ it->epsilon/mean, d) \/ (double)(d - 1) + it->epsilon/' 'test_kernels:layer norm' 1
mutation 'layer norm: epsilon outside the root' kernels/cpu/norm.c \
  's/1 \/ sqrt\((norm_squares_sum\(type, x, mean, d\) \/ \(double\)d) \+ it->epsilon\)/1 \/ (sqrt(\1) + it->epsilon)/' \
  'test_kernels:layer norm' 1
mutation 'layer norm: gradient of the gain overwritten' kernels/cpu/norm.c \
  's/it->beta == 0 \? 0 : \(double\)it->beta \* to\[j\]/0/' 'test_kernels:layer norm' 1
mutation 'rms norm: subtracts a mean' kernels/cpu/norm.c \
  's/it->mean \? \(float\)\(g_sum \/ \(double\)it->d\) : 0/(float)(g_sum \/ (double)it->d)/' 'test_kernels:layer norm' 1
mutation 'batch norm: variance of n - 1' kernels/cpu/batch_norm.c \
  's/\(double\)square \/ batch_norm_count\(bn\)/(double)square \/ (batch_norm_count(bn) - 1)/' 'test_kernels:batch norm' 1
mutation 'batch norm: moments merged without the difference' kernels/cpu/batch_norm.c \
  's/ \+ difference \* difference \* all->count \* count \/ sum//' 'test_kernels:batch norm' 1
mutation 'batch norm: running variance biased' kernels/cpu/batch_norm.c 's/count > 1 \? count - 1 : 1/count/' \
  'test_kernels:batch norm' 1
mutation 'batch norm: gradient without the mean' kernels/cpu/batch_norm.c 's/ - sum - \(cpu_value/ - (cpu_value/' \
  'test_kernels:batch norm' 1
mutation 'max pool: the last of equal values' kernels/cpu/pool.c \
  's/!\(max >= v\) && max == max/!(max > v) \&\& max == max/' 'test_kernels:pooling' 1
mutation 'max pool, 2 x 2: the last of equal values' kernels/cpu/pool.c 's/second = !\(a >= b\)/second = !(a > b)/' \
  'test_kernels:pooling' 1
mutation 'max pool: NaN is no maximum' kernels/cpu/pool.c 's/!\(max >= v\) && max == max/v > max/' 'test_kernels:pooling' 1
mutation 'mean pool: padding not counted' kernels/cpu/pool.c   \
  's/cpu_set\(type, y, i \* win->out\[1\] \+ j, scale \* sum\)/cpu_set(type, y, i * win->out[1] + j, sum \/ (float)((bottom - top) * (right - left)))/' \
  'test_kernels:pooling' 1
mutation 'dropout: not scaled' kernels/cpu/dropout.c 's/\.scale = 1\.0f \/ \(1\.0f - mask->rate\)/.scale = 1.0f/' \
  'test_kernels:dropout|masks' 1
mutation 'dropout: one mask for all layers' kernels/cpu/dropout.c 's/\.stream = mask->stream/.stream = 0/' \
  'test_kernels:dropout|masks' 1
mutation 'dropout: one mask for all steps' kernels/cpu/dropout.c \
  's/\(step_row \+ mask->first_row\) \* stride/(mask->first_row * 0) * stride/' 'test_kernels:dropout|masks' 1
mutation 'dropout: the tail of a run' kernels/cpu/dropout.c 's/\(it->first \+ e\) % 4 != 0/e % 4 != 0/' 'test_kernels:dropout|masks' 1
mutation 'embedding: gradient of repeated tokens' kernels/cpu/embedding.c \
  's/block\[j\] \+= cpu_value/block[j] = cpu_value/' 'test_kernels:embedding' 1
mutation 'embedding: gradient not cleared' kernels/cpu/embedding.c \
  's/dw\[j\] = it->beta == 0 \? 0 : it->beta \* dw\[j\];/;/' 'test_kernels:embedding' 1
mutation 'rotary: the first position is 1' kernels/cpu/rotary.c \
  's/\(shape->first \+ t\) \* rate/(shape->first + t + 1) * rate/' 'test_kernels:rotary' 1
mutation 'rotary: later positions begin at 0' kernels/cpu/rotary.c \
  's/\(shape->first \+ t\) \* rate/t * rate/' 'test_kernels:rotary' 1
mutation 'attention: later queries see too few keys' kernels/cpu/attention.c \
  's/first = shape->first \+ number \* STRIP/first = number * STRIP/' 'test_kernels:attention against' 1
mutation 'rotary: values rotated' kernels/cpu/rotary.c 's/h < 2 \* heads/h < 3 * heads/' 'test_kernels:rotary' 1
mutation 'swiglu: gates exchanged' kernels/cpu/gate.c \
  's/cpu_set\(type, dx, f \+ j, slope \* silu\)/cpu_set(type, dx, f + j, slope * s)/' 'test_kernels:swiglu' 1
mutation 'sum: in order instead of a tree' kernels/cpu/flat.c \
  's/\(a\[i\] \+ b\[i\]\) \+ \(c\[i\] \+ d\[i\]\)/((a[i] + b[i]) + c[i]) + d[i]/' 'test_kernels:sums in|norm against' 1
mutation 'sum: uneven tree' kernels/cpu/flat.c 's/while \(half < count - half\)/while (half * 2 < count - half)/' \
  'test_kernels:sums in|norm against' 1
