# shellcheck shell=bash
# Synchronous data parallelism, ZeRO, pipelines.
mutation 'sync: the sum of nodes left out' mpi/sync/bucket_sum.c 's/if \(cross->size == 1 \|\| n == 0\)/if (true)/' \
  test_sync 2
mutation 'sync: one rate for all steps' mpi/sync/sync_update.c 's/update\.rate = \(float\)rate;/;/' test_sync 2
mutation 'sync: the step of adam one behind' mpi/sync/sync_update.c \
  's/update\.step = strategy->updates \+ 1/update.step = strategy->updates/' test_sync 2
mutation 'sync: updates with a loss that is not finite' mpi/sync/sync_node.c \
  's/if \(!isfinite\(s->node_shared->progress/if (0 \&\& !isfinite(s->node_shared->progress/' test_sync_state 2
mutation 'sync: early updates with a loss that is not finite' mpi/sync/sync.c \
  's/s->losses_known && isfinite\(s->losses\[0\]\.sums\.loss\)/s->losses_known/' test_sync_state 3
mutation 'sync: last updates with a loss that is not finite' mpi/sync/sync.c \
  's/if \(status == TRM_OK\)$/if (true)/' test_sync_state 3
mutation 'sync: early updates before the losses are known' mpi/sync/sync.c \
  's/finite = s->losses_known && /finite = /' 'test_sync:losses' 3
mutation 'sync: updates of weights that are still read' mpi/sync/sync.c \
  's/sync_node_has\(strategy, SYNC_RELEASED, /sync_node_has(strategy, SYNC_FINAL, /' test_sync 2
mutation 'sync: parts reported as released' mpi/sync/sync.c \
  's/sync_ready\(strategy, SYNC_FINAL, high/sync_ready(strategy, SYNC_RELEASED, high/' test_sync 2
mutation 'sync: nothing begun before the step' mpi/sync/sync.c 's/^  if \(!sync_has_other_nodes\(s\)\)$/  if (true)/' \
  'test_sync:during the backward' 2
mutation 'sync: no update before the step' mpi/sync/sync.c 's/while \(finite && /while (false \&\& /' test_sync 2
mutation 'sync: buckets sent before the node has them' mpi/sync/sync_between_nodes.c \
  's/sync_node_has\(strategy, SYNC_FINAL, s->bucket\[s->summed\]\.full\.high\)/true/' test_sync 4
mutation 'sync: losses of the first rank that has them' mpi/sync/sync_between_nodes.c \
  's/if \(!s->losses_begun && sync_node_has\(strategy, SYNC_FINAL, 1\)\)/if (!s->losses_begun)/' test_sync 4
mutation 'sync: a bucket taken for arrived' mpi/sync/bucket_sum.c \
  's/: bucket->cross->ops->test\(&bucket->request\);/: true;/' test_sync 3
mutation 'sync: the last bucket not awaited' mpi/sync/bucket_sum.c 's/bucket->cross->ops->wait\(&bucket->request\);/;/' \
  test_sync 3
mutation 'sync: every rank of an uneven node one slice' mpi/sync/sync_arrays.c \
  's/s->crosses = \(int\)\(high - low\);/s->crosses = 1;/' test_sync 3
mutation 'sync: shards of uneven nodes by rank in the node' mpi/sync/sync_arrays.c \
  's/firsts\[rank\] < first \|\| //' test_sync 3
mutation 'sync: lanes on uneven nodes' mpi/sync/sync_arrays.c 's/if \(!equal && strategy->lanes > 0\)/if (false)/' \
  test_sync_lanes 5
mutation 'sync: lanes added in any order' mpi/sync/sync.h 's/strategy->lanes > 0 \? TRM_TREE_SUM : TRM_SUM/TRM_SUM/' \
  test_sync_lanes 5
mutation 'lanes: the last one not added' src/train/lanes.c \
  's/lanes_add\(t, t->lanes\.count - 1, low, high\);/;/' train.sh
mutation 'linear: a block of rows too few' src/nn/layers/linear.c \
  's/part\.n = n - at < rows \? n - at : rows/part.n = rows \/ 2/' test_nn 1
mutation 'linear: blocks add to the first rows' src/nn/layers/linear.c \
  's/part\.dw = call\.dw \+ at \* call\.k/part.dw = call.dw/' test_nn 1
mutation 'linear: a block reported before it is computed' src/nn/layers/linear.c \
  's/weight->offset \+ \(at \+ rows\) \* call\.k/weight->offset + (at + 2 * rows) * call.k/' test_nn 1
mutation 'loss: chunks report parts' src/nn/model_loss.c 's/inner\.part_ready = NULL;.*/;/' test_scores 1
mutation 'sync: blocks not awaited' mpi/sync/sync_node.c \
  's/sync_node_await\(strategy, SYNC_RELEASED, at \+ n\);/;/' test_sync 2
mutation 'sync: the last block cut' mpi/sync/sync_node.c \
  's/\(strategy->elements \+ s->block - 1\) \/ s->block/strategy->elements \/ s->block/' test_sync 2
mutation 'sync: losses of the node in order' mpi/sync/sync_node.c \
  's/for \(level = 0; i >> level & 1; level\+\+\)/for (level = 0; i >> level \& 1; level += 2)/' test_sync 3
mutation 'sync: losses published once a run' mpi/sync/sync_node.c \
  's/trm_counter_get\(&flag->upto\[SYNC_FINAL\]\) <= before/trm_counter_get(\&flag->upto[SYNC_FINAL]) == 0/' \
  layouts.sh
mutation 'sync: norm of the first bucket' mpi/sync/sync_clip.c \
  's/for \(size_t i = 0; i < sync_units\(strategy->elements\); i\+\+\)/for (size_t i = 0; i < 1; i++)/' test_sync 2
mutation 'sync: clip scale forgotten' mpi/sync/sync_update.c \
  's/strategy->optimizer->clip > 0 \? trm_clip_scale.* : 1/1/' test_sync 2
mutation 'sync: restored weights of the first rank alone' mpi/sync/sync.c 's/strategy->updates = updates;/;/' \
  test_sync_state 2
mutation 'replicas: the sum for the mean' mpi/sync/replicas_exchange.c 's/x\[e\] \/= \(float\)r->count;/;/' \
  test_replicas 2
mutation 'replicas: losses of every rank' mpi/sync/replicas_exchange.c 's/if \(r->replica->rank > 0\)/if (0)/' \
  test_replicas 1
mutation 'replicas: always the first fragment' mpi/sync/replicas.c \
  's/\(size_t\)\(\(r->position \/ steps - 1\) % fragments\)/(size_t)0/' test_replicas 1
mutation 'replicas: an evaluation of the first replica' mpi/sync/replicas.c 's/r->count == 1 \|\| r->equal/true/' \
  test_replicas 1
mutation 'replicas: resumed from the mean' mpi/sync/replicas.c 's/goes_on \? none : from/from/' test_replicas 1
mutation 'replicas: a resumed round begins' mpi/sync/replicas.c 's/if \(!goes_on\)/if (true)/' test_replicas 1
mutation 'replicas: gradients of the whole batch' src/train/step.c 's/  if \(s->replica\) \{/  if (0) {/' local_steps.sh
mutation 'postlocal: H from the start' mpi/sync/replicas.c \
  's/r->method\.awaits_decay && !strategy->decayed \? 1 : //' test_replicas 1
mutation 'slowmo: without the learning rate' mpi/sync/slowmo.c 's/moved \/ gamma\)/moved)/' test_replicas 1
mutation 'slowmo: alpha left out' mpi/sync/slowmo.c 's/\(1 - alpha\) \* moved/0/' test_replicas 1
mutation 'bmuf: the block learning rate left out' mpi/sync/bmuf.c 's/- zeta \* moved\)/- moved)/' test_replicas 1
mutation 'diloco: heavy ball' mpi/sync/diloco.c \
  's/\(1 - rate\) \* g - rate \* mu \* \(double\)m\[i\]/g - rate * (double)m[i]/' test_replicas 1
mutation 'adasum: a plain sum' mpi/sync/adasum.c 's/of->aa > 0 \? 1 - of->ab \/ \(2 \* of->aa\) : 1/1/' \
  test_replica_identities 1
mutation 'adasum: products of one slice' mpi/sync/adasum.c 's/i < slices->size \* tensors/i < tensors/' test_replicas 1
mutation 'zero: gradients of micro-batches overwritten' mpi/sync/zero.c 's/z->unit\[u\]\.accumulated = false;/;/' \
  test_zero 2
mutation 'zero: the norm of one shard' mpi/sync/zero.c \
  's/sync_allreduce\(strategy, \(\(struct zero \*\)strategy->impl\)->group, &norm_squared.*;/;/' test_zero 2
mutation 'zero: stale weights after a step' mpi/sync/zero.c 's/zero_weights_invalidate\(strategy\);/;/' test_zero 2
mutation 'zero: evaluation of the weights, not the average' mpi/sync/zero.c \
  's/mode == TRM_ACQUIRE_EVALUATE && strategy->optimizer->ema > 0/false/' test_zero 2
mutation 'zero: statistics of another chunk added again' mpi/sync/zero.c \
  's/(strategy->device->ops->fill\(strategy->device, z->g_statistics, 0, z->statistics\);)/;/' test_device_ranks 4
mutation 'zero: statistics of a pass left out' mpi/sync/zero.c \
  's/(z->statistics_sum, \.from = both, \.count =) 2/\1 1/' test_zero 2
mutation 'zero: ratios of one shard' mpi/sync/zero.c \
  's/sync_allreduce\(strategy, z->group, sum, 2 \* tensors.*;/;/' test_zero 2
mutation 'lanes: added in order' src/train/lanes.c \
  's/for \(; number >> level & 1; level\+\+\)/for (; level < 1 \&\& number \& 1; level++)/' train.sh
mutation 'pipeline: micro-batches overwrite gradients' mpi/pipeline/executor.c \
  's/pass->beta = micro \? 1 : 0/pass->beta = 0/' test_pipeline 2
mutation 'pipeline: one slot' mpi/pipeline/executor.c 's/slot = action->micro % e->slots, batch/slot = 0, batch/' \
  test_pipeline 2
mutation 'pipeline: buffers not protected' mpi/pipeline/executor.c \
  's/channel_protect\(&channel\[ACTIVATION_OUT\], slot, e->slots\);/;/' test_device_ranks 2 \
  'stages that send activations have two slots or more, and a third message awaits the first'
mutation 'pipeline: a batch of tied weights not summed' mpi/pipeline/executor.c \
  's/TRM_CHECK\(tied_allreduce\(.*\);/;/' test_pipeline 2
mutation 'pipeline: dropout of the first row' mpi/pipeline/executor.c \
  's/pass->first_row = e->first_row\[action->micro\]/pass->first_row = 0/' test_pipeline 2
mutation '2bw: the newest weights' mpi/pipeline/versions.c \
  's/batch == versions->updates \? versions->copy\[0\] : w/w/' test_pipeline_versions 2
mutation '2bw: versions not counted' mpi/pipeline/versions.c 's/versions->updates\+\+/(void)versions/' \
  test_pipeline_versions 2
mutation 'pipedream: backward with the newest weights' mpi/pipeline/versions.c \
  's/w = versions->copy\[at\];/w = action->kind == TRM_FORWARD ? versions->copy[at] : w;/' test_pipeline_versions 2
mutation 'schedule: one forward pass too few' src/train/pipeline_schedule.c \
  's/schedule->stages - 1 - stage/schedule->stages - stage/' test_schedule 1
mutation 'schedule: bubble of one chunk' src/train/pipeline_schedule.c \
  's/idle \/ \(schedule->chunks \* batches/idle \/ (batches/' test_schedule 1
mutation 'replicas: differences from the initial weights' mpi/sync/replicas_exchange.c \
  's/^    if \(r->compressor\)$/    if (false)/;' test_replicas 1
mutation 'replicas: weights compressed' mpi/sync/replicas_exchange.c 's/w\[e\] -= x0\[e\]/w[e] -= 0/' test_replicas 1
mutation 'replicas: compressed in the replica, too' mpi/sync/bucket_sum.c 's/ \|\| strategy->replica\)/)/' test_replicas 1
