#include "train/compatibility.h"

#include <string.h>

#include "core/status.h"
#include "nn/loss.h"
#include "train/pipeline_schedule.h"
#include "train/slowdown.h"

enum feature {
  LANES, ACCUMULATE, PIPELINE, TENSOR, NO_FLUSH, PIPEDREAM, NO_STASH, RECOMPUTE, ZERO, SHARDED, OFFLOAD, DEVICE_MEMORY,
  ASYNCHRONOUS, SERVERS, NO_SERVERS, GROUPS, NO_GROUPS, AGGREGATE, NO_AGGREGATE, TAU, NO_TAU, STALE_RATE,
  NO_STALE_RATE, CLIP, NO_CLIP, AVERAGE, NO_AVERAGE, STATES, NO_STATES, OTHER_RULE, NESTEROV_ALONE, TRUST_RATIOS,
  MOVING_WEIGHTS, WORKER_BATCH, SHARDED_BATCH, ROWS, SMOOTHING, OTHER_LOSS, RECORD, NO_RECORD, PLAN,
  SIMULATED, REAL_RANKS, AUTO_LAYOUT, TRACE, THREADS, NO_GRADIENTS, MACHINE, REDUCING_LAYER, PATIENCE, RESUMED,
  CHECKPOINTS, REPLAY, FAILURES, STATIC, SHARES, MEASURED, VERIFY, NO_LANES, ENCRYPTED, BUDDY, COLLECTIVES,
  LOCAL_STEPS, FRAGMENTS, NO_FRAGMENTS, WHOLE_TENSORS, ENCRYPTED_MESSAGES, COMPRESS, DGC,
  MOMENTUM_RULE, FEATURES
};

/* example: arguments that give a run the feature; NULL: no arguments do. of_method: it depends on strategy.name. */
static const struct {
  const char *name, *example;
  bool of_method;
} features[FEATURES] = {
  [LANES] = {"run.lanes", "--run.lanes=2", false},
  [ACCUMULATE] = {"train.accumulate above 1", "--train.accumulate=2", false},
  [PIPELINE] = {"parallel.pipeline above 1", "--parallel.pipeline=2", false},
  [TENSOR] = {"parallel.tensor above 1", "--parallel.tensor=2", false},
  [NO_FLUSH] = {"parallel.schedule=pipedream or 2bw", "--parallel.pipeline=2 --parallel.schedule=2bw", false},
  [PIPEDREAM] = {"parallel.schedule=pipedream", "--parallel.pipeline=2 --parallel.schedule=pipedream", false},
  [NO_STASH] = {"parallel.stash=no",
                "--parallel.pipeline=2 --parallel.schedule=pipedream --parallel.stash=no", false},
  [RECOMPUTE] = {"parallel.recompute", "--parallel.recompute=block", false},
  [ZERO] = {"parallel.zero", "--parallel.zero=2", false},
  [SHARDED] = {"sharded arrays (parallel.zero)", "--parallel.zero=2", false},
  [OFFLOAD] = {"parallel.offload", "--parallel.offload=.", false},
  [DEVICE_MEMORY] = {"a device with memory of its own", NULL, false},
  [ASYNCHRONOUS] = {"an asynchronous method", "--strategy.name=asgd", true},
  [SERVERS] = {"strategy.servers", "--strategy.servers=1", false},
  [NO_SERVERS] = {"a method without parameter servers", "--strategy.name=keuper", true},
  [GROUPS] = {"strategy.groups", "--strategy.groups=1", false},
  [NO_GROUPS] = {"a method without groups", "--strategy.name=asgd", true},
  [TAU] = {"strategy.tau above 1", "--strategy.tau=2", false},
  [NO_TAU] = {"a method that exchanges after every batch", "--strategy.name=softsync", true},
  [AGGREGATE] = {"strategy.aggregate=node", "--strategy.name=asgd --strategy.aggregate=node", false},
  [NO_AGGREGATE] = {"a method whose workers' gradients are not summed", "--strategy.name=dcasgd", true},
  [STALE_RATE] = {"strategy.rate=staleness", "--strategy.rate=staleness", false},
  [NO_STALE_RATE] = {"a method that does not scale its rate by staleness", "--strategy.name=dcasgd", true},
  [CLIP] = {"optim.clip", "--optim.clip=1", false},
  [NO_CLIP] = {"a method that adds gradients as they come", "--strategy.name=ssp", true},
  [AVERAGE] = {"optim.ema", "--optim.ema=0.9", false},
  [NO_AVERAGE] = {"a method whose workers have weights of their own", "--strategy.name=easgd", true},
  [STATES] = {"an optimizer with states (optim.name, optim.momentum, optim.ema)", "--optim.name=momentum", false},
  [NO_STATES] = {"a method that shares nothing but the weights", "--strategy.name=hogwild", true},
  [OTHER_RULE] = {"optim.name other than sgd and nesterov", "--optim.name=adam", false},
  [NESTEROV_ALONE] = {"a method with Nesterov's steps", "--strategy.name=eamsgd", true},
  [TRUST_RATIOS] = {"optim.name=lars or lamb", "--optim.name=lars", false},
  [MOVING_WEIGHTS] = {"a method whose weights others change during a batch", "--strategy.name=hogwild", true},
  [WORKER_BATCH] = {"strategy.batch=worker", "--strategy.batch=worker", false},
  [SHARDED_BATCH] = {"a method whose ranks compute shards of every batch", "--strategy.name=ssp", true},
  [ROWS] = {"updates by single sparse rows", "--strategy.name=hogwild --data.file=sparse.h5", false},
  [SMOOTHING] = {"train.label_smoothing", "--train.label_smoothing=0.1", false},
  [OTHER_LOSS] = {"a loss other than softmax_cross_entropy", "--data.file=sparse.h5", false},
  [RECORD] = {"run.record or simulate.replay", "--run.record=order", false},
  [NO_RECORD] = {"a synchronous method, or hogwild", "--strategy.name=hogwild", true},
  [PLAN] = {"trireme plan", "--ranks=2", false},
  [SIMULATED] = {"simulate.workers", "--simulate.workers=2", false},
  [REAL_RANKS] = {"real ranks (without simulate.workers)", "--simulate.workers=0", false},
  [AUTO_LAYOUT] = {"parallel.layout=auto", "--parallel.layout=auto", false},
  [TRACE] = {"run.trace", "--run.trace=steps", false},
  [THREADS] = {"parallel.threads above 1", "--parallel.threads=2", false},
  [NO_GRADIENTS] = {"simulate.gradients=no",
                    "--simulate.workers=2 --simulate.gradients=no --run.checkpoint_every=-1", false},
  [COLLECTIVES] = {"parallel.collectives", "--parallel.collectives=collectives.json", false},
  [MACHINE] = {"simulate.machine", "--simulate.workers=2 --simulate.machine=machine.json", false},
  [REDUCING_LAYER] = {"a layer that sums over the ranks of a batch (batch_norm)", "--model=resnet20", false},
  [PATIENCE] = {"train.stop_patience", "--train.stop_patience=1 --data.validation=0.1", false},
  [RESUMED] = {"run.resume", "--run.resume=auto", false},
  [FAILURES] = {"a failure (run.outages without an end)", "--run.outages=1:0-", false},
  [STATIC] = {"strategy.data=static", "--strategy.name=asgd --strategy.data=static", false},
  [CHECKPOINTS] = {"run.checkpoint_every other than -1", "--run.checkpoint_every=1", false},
  [REPLAY] = {"simulate.replay", "--simulate.replay=order --strategy.name=asgd", false},
  [LOCAL_STEPS] = {"a method with local steps", "--strategy.name=local", true},
  [FRAGMENTS] = {"strategy.fragments above 1", "--strategy.fragments=2 --strategy.tau=2", false},
  [NO_FRAGMENTS] = {"a method that exchanges all weights at once", "--strategy.name=adasum", true},
  [WHOLE_TENSORS] = {"a method whose rule is of whole tensors", "--strategy.name=adasum", true},
  [SHARES] = {"parallel.shares other than equal", "--parallel.shares=measured", false},
  [MEASURED] = {"parallel.shares=measured", "--parallel.shares=measured", false},
  [VERIFY] = {"run.verify_every", "--run.lanes=2 --run.verify_every=1", false},
  [NO_LANES] = {"a run without lanes (run.lanes=0)", "--run.lanes=0", false},
  [ENCRYPTED] = {"security.key", NULL, false}, /* needs a file with a key */
  [BUDDY] = {"run.buddy", "--run.buddy=1", false},
  [ENCRYPTED_MESSAGES] = {"run.encrypt", "--run.encrypt=yes", false},
  [COMPRESS] = {"strategy.compress", "--strategy.compress=topk", false},
  [DGC] = {"strategy.compress=dgc", "--strategy.compress=dgc", false},
  [MOMENTUM_RULE] = {"optim.name other than sgd", "--optim.name=adam", false},
};

static const struct {
  enum feature feature, other;
  const char *reason;
} incompatibilities[] = {
  {LANES, PIPELINE, "a lane is a pass over the whole model, which a pipeline cuts"},
  {LANES, ACCUMULATE, "lanes are the micro-batches already"},
  {LANES, SHARDED, "lanes are added as whole gradients, which no rank has"},
  {LANES, ASYNCHRONOUS, "lanes divide a batch over all ranks, and each worker has batches of its own"},
  {LANES, PLAN, "layouts are planned for batches that the ranks divide"},
  {ASYNCHRONOUS, PLAN, "its ranks exchange whole models: there is no layout to choose"},
  {LANES, LOCAL_STEPS, "lanes are added over all ranks in every step"},
  {LOCAL_STEPS, PLAN, "layouts are planned for gradients that are summed in every step"},
  {NO_FLUSH, LOCAL_STEPS, "an exchange would leave out the older versions of the weights"},
  {NO_FLUSH, PLAN, "only layouts with the loss curve of one rank are planned"},
  {PIPELINE, ASYNCHRONOUS, "workers exchange whole models"},
  {TENSOR, ASYNCHRONOUS, "workers exchange whole models"},
  {TENSOR, WHOLE_TENSORS, "no rank has the products of whole tensors"},
  {ZERO, ASYNCHRONOUS, "only arrays that all ranks update together are sharded"},
  {ZERO, LOCAL_STEPS, "whole weights are exchanged between replicas"},
  {ZERO, NO_FLUSH, "versions of the weights are kept whole"},
  {OFFLOAD, ASYNCHRONOUS, "parameter servers and workers keep optimizer states in memory"},
  {OFFLOAD, LOCAL_STEPS, "checkpoints have every replica's states, from memory"},
  {OFFLOAD, ENCRYPTED, "the states in its files are not encrypted"},
  {PIPEDREAM, ACCUMULATE, "it updates after every micro-batch; 2bw accumulates"},
  {RECOMPUTE, NO_STASH, "the weights change between the two forward passes of a batch"},
  {RECOMPUTE, MOVING_WEIGHTS, "the weights change between the two forward passes of a batch"},
  {WORKER_BATCH, SHARDED_BATCH, "train.batch is the batch of all ranks; set it to as many times the rows"},
  {SERVERS, NO_SERVERS, "its shared state is spread over all ranks, or it has none"},
  {GROUPS, NO_GROUPS, "every rank is a worker (strategy.name=groups has groups)"},
  {AGGREGATE, NO_AGGREGATE, "every gradient is sent by itself (asgd takes strategy.aggregate)"},
  {AGGREGATE, TAU, "a node's message is the sum over its workers, strategy.tau's the sum over batches of one"},
  {TAU, NO_TAU, "every gradient is sent at once (asgd takes strategy.tau)"},
  {FRAGMENTS, NO_FRAGMENTS, "its rule is of whole tensors, or its period changes"},
  {STALE_RATE, NO_STALE_RATE, "its gradients are corrected, of bounded staleness, or applied where they are made"},
  {STATES, NO_STATES, "shared states would not stay consistent with the weights"},
  {OTHER_RULE, NESTEROV_ALONE, "its workers take no other steps"},
  {TRUST_RATIOS, ASYNCHRONOUS, "the ratios need norms of whole tensors in one version"},
  {AVERAGE, NO_AVERAGE, "no worker's average is that of the run"},
  {CLIP, NO_CLIP, "the norm is that of all workers' gradients together, which are never in one place"},
  {CLIP, ROWS, "there is no gradient of a batch"},
  {ACCUMULATE, ROWS, "there is no gradient of a batch"},
  {RECORD, FAILURES, "the parts that a failed worker returns are not recorded"},
  {RECORD, NO_RECORD, "it makes no calls on a parameter server, whose order could be recorded"},
  {RECORD, AGGREGATE, "the order in which gradients are added to a node's sum is not recorded"},
  {REPLAY, REAL_RANKS, "only virtual ranks can be made to wait for their turn"},
  {SMOOTHING, OTHER_LOSS, "only distributions over classes are smoothed"},
  {SIMULATED, AUTO_LAYOUT, "layouts are planned for the machine that the ranks are on"},
  {SIMULATED, TRACE, "passes run in other threads, and take no time of the virtual clock"},
  {SIMULATED, THREADS, "a virtual rank computes in one thread; simulate.threads says how many compute at a time"},
  {SIMULATED, DEVICE_MEMORY, "each of the ranks would need an accelerator of its own"},
  {SIMULATED, COLLECTIVES, "the virtual network models collectives, and has algorithms of its own"},
  {MACHINE, REAL_RANKS, "only the virtual network has modeled times"},
  {MACHINE, PIPELINE, "the time of a stage is modeled by device.gflops (trireme plan predicts that of a layout)"},
  {MACHINE, ROWS, "the time of a row is modeled by device.gflops"},
  {NO_GRADIENTS, REAL_RANKS, "only the virtual network has times without computations"},
  {NO_GRADIENTS, PIPELINE, "passes communicate, and cannot be left out (trireme plan predicts the time of a layout)"},
  {NO_GRADIENTS, TENSOR, "passes communicate, and cannot be left out (trireme plan predicts the time of a layout)"},
  {NO_GRADIENTS, SHARDED, "passes communicate, and cannot be left out (trireme plan predicts the time of a layout)"},
  {NO_GRADIENTS, REDUCING_LAYER, "passes communicate, and cannot be left out"},
  {NO_GRADIENTS, PATIENCE, "no score is measured"},
  {NO_GRADIENTS, RESUMED, "no weights are trained"},
  {NO_GRADIENTS, CHECKPOINTS, "there are no trained weights to keep"},
  {FAILURES, GROUPS, "the others of its group would wait forever"},
  {FAILURES, SHARDED_BATCH, "the others would wait for its shards forever; an outage with an end is waited for"},
  {FAILURES, STATIC, "the batches of a failed worker are nobody's"},
  {SHARES, LANES, "lanes are equal parts of a batch, and a rank has a whole subtree of them"},
  {SHARES, ASYNCHRONOUS, "a fast worker takes more batches by itself"},
  {SHARES, PLAN, "layouts are planned for ranks of equal speed"},
  {VERIFY, NO_LANES, "only with lanes has a gradient the same bits on every rank"},
  {VERIFY, TENSOR, "several ranks compute a gradient together, and none of them could be named"},
  {ENCRYPTED_MESSAGES, SIMULATED, "its ranks are one process, and send nothing"},
  {VERIFY, SIMULATED, "its ranks are one process on one machine"},
  {BUDDY, SIMULATED, "its ranks are one process on one machine"},
  {MEASURED, LOCAL_STEPS, "a replica that gets no rows for a time would still be a part of the mean"},
  {COMPRESS, ASYNCHRONOUS, "only sums over nodes of gradients are compressed"},
  {COMPRESS, LOCAL_STEPS, "what replicas exchange is weights; only sums over nodes of gradients are compressed"},
  {COMPRESS, ZERO, "shards are summed over all ranks, not between nodes"},
  {COMPRESS, LANES, "the bits of compressed sums depend on the number of nodes"},
  {COMPRESS, PLAN, "layouts are planned for sums of float32"},
  {DGC, CLIP, "what it sends is momentum of many steps, not a gradient whose norm could be bounded"},
  {DGC, MOMENTUM_RULE, "the momentum is part of what is sent, and the update is sgd's (with optim.momentum)"},
  {MEASURED, NO_FLUSH, "its batches overlap, and none is measured by itself"},
};

enum { ROWS_OF_TABLE = sizeof incompatibilities / sizeof *incompatibilities };

static void compatibility_find_features(const struct trm_run_facts *run, bool has[FEATURES])
{
  const struct trm_options *o = run->options;
  const bool asynchronous = run->strategy->next_batch != NULL, schedules = run->stages > 1 || run->plans;
  const unsigned lacks = asynchronous ? ~run->strategy->takes : 0;
  const struct trm_schedule schedule = {.name = o->parallel.schedule};
  const enum trm_update_rule rule = o->optim.name;
  const bool in_use[FEATURES] = {
    [LANES] = o->run.lanes > 0,
    [ACCUMULATE] = o->train.accumulate > 1,
    [PIPELINE] = run->stages > 1,
    [TENSOR] = run->tensor_ranks > 1,
    [NO_FLUSH] = schedules && !trm_schedule_flushes(&schedule),
    [PIPEDREAM] = schedules && schedule.name == TRM_PIPEDREAM,
    [NO_STASH] = schedules && schedule.name == TRM_PIPEDREAM && !o->parallel.stash,
    [RECOMPUTE] = strcmp(o->parallel.recompute, "none") != 0,
    [ZERO] = o->parallel.zero > 0,
    [SHARDED] = run->strategy->sharded,
    [OFFLOAD] = o->parallel.offload[0] != '\0',
    [DEVICE_MEMORY] = run->device_memory,
    [ASYNCHRONOUS] = asynchronous,
    [SERVERS] = asynchronous && o->strategy.servers > 0,
    [NO_SERVERS] = lacks & TRM_TAKES_SERVERS,
    [GROUPS] = o->strategy.groups > 0,
    [NO_GROUPS] = lacks & TRM_TAKES_GROUPS,
    [TAU] = o->strategy.tau > 1,
    [NO_TAU] = lacks & TRM_TAKES_TAU,
    [AGGREGATE] = asynchronous && o->strategy.aggregate == TRM_AGGREGATE_NODE,
    [NO_AGGREGATE] = lacks & TRM_TAKES_AGGREGATE,
    [STALE_RATE] = o->strategy.rate == TRM_STALE_RATE_DIVIDED,
    [NO_STALE_RATE] = lacks & TRM_TAKES_STALE_RATE,
    [CLIP] = o->optim.clip > 0,
    [NO_CLIP] = lacks & TRM_TAKES_CLIP,
    [AVERAGE] = o->optim.ema > 0,
    [NO_AVERAGE] = lacks & TRM_TAKES_AVERAGE || run->strategy->local_steps,
    [STATES] = rule != TRM_UPDATE_SGD || o->optim.momentum > 0 || o->optim.ema > 0,
    [NO_STATES] = lacks & TRM_TAKES_STATES,
    [OTHER_RULE] = rule != TRM_UPDATE_SGD && rule != TRM_UPDATE_NESTEROV,
    [NESTEROV_ALONE] = lacks & TRM_TAKES_RULES,
    [TRUST_RATIOS] = rule == TRM_UPDATE_LARS || rule == TRM_UPDATE_LAMB,
    [MOVING_WEIGHTS] = lacks & TRM_TAKES_RECOMPUTE,
    [WORKER_BATCH] = o->strategy.batch == TRM_BATCH_WORKER,
    [SHARDED_BATCH] = !asynchronous || lacks & TRM_TAKES_OWN_BATCHES,
    [ROWS] = run->trains_rows,
    [SMOOTHING] = o->train.smoothing > 0,
    [OTHER_LOSS] = run->loss && !run->loss->smooths,
    [RECORD] = o->run.record[0] != '\0' || o->simulate.replay[0] != '\0',
    [NO_RECORD] = !asynchronous || lacks & TRM_TAKES_RECORD,
    [PLAN] = run->plans,
    [SIMULATED] = o->simulate.workers > 0,
    [REAL_RANKS] = o->simulate.workers == 0,
    [AUTO_LAYOUT] = o->parallel.layout == TRM_LAYOUT_AUTO,
    [TRACE] = o->run.trace != TRM_TRACE_NONE,
    [THREADS] = o->parallel.threads > 1,
    [NO_GRADIENTS] = !o->simulate.gradients,
    [COLLECTIVES] = o->parallel.collectives[0] != '\0',
    [MACHINE] = o->simulate.machine[0] != '\0',
    [REDUCING_LAYER] = run->reduces,
    [PATIENCE] = o->train.stop_patience > 0,
    [RESUMED] = o->run.resume[0] != '\0',
    [FAILURES] = trm_slowdown_has_failures(o->run.outages),
    [STATIC] = asynchronous && o->strategy.data == TRM_ASSIGN_STATIC,
    [LOCAL_STEPS] = run->strategy->local_steps,
    [FRAGMENTS] = o->strategy.fragments > 1,
    [NO_FRAGMENTS] = run->strategy->local_steps && !(run->strategy->takes & TRM_TAKES_FRAGMENTS),
    [WHOLE_TENSORS] = run->strategy->local_steps && !(run->strategy->takes & TRM_TAKES_TENSOR_AXIS),
    [CHECKPOINTS] = o->run.checkpoint_every != -1,
    [REPLAY] = o->simulate.replay[0] != '\0',
    [SHARES] = strcmp(o->parallel.shares, "equal") != 0,
    [VERIFY] = o->run.verify_every > 0,
    [NO_LANES] = o->run.lanes == 0,
    [MEASURED] = strcmp(o->parallel.shares, "measured") == 0,
    [ENCRYPTED] = o->security.key[0] != '\0',
    [BUDDY] = o->run.buddy > 0,
    [ENCRYPTED_MESSAGES] = o->run.encrypt,
    [COMPRESS] = o->strategy.compress != TRM_COMPRESS_NONE,
    [DGC] = o->strategy.compress == TRM_COMPRESS_DGC,
    [MOMENTUM_RULE] = rule != TRM_UPDATE_SGD,
  };
  memcpy(has, in_use, sizeof in_use);
}

int trm_compatibility_check(const struct trm_run_facts *run)
{
  bool has[FEATURES];
  compatibility_find_features(run, has);
  for (int i = 0; i < ROWS_OF_TABLE; i++) {
    const enum feature feature = incompatibilities[i].feature, other = incompatibilities[i].other;
    const bool of_method = features[feature].of_method || features[other].of_method;
    if (has[feature] && has[other])
      return trm_error(TRM_USAGE, "%s: cannot be combined with %s: %s%s%s", features[feature].name,
                       features[other].name, incompatibilities[i].reason, of_method ? "; strategy.name=" : "",
                       of_method ? run->strategy->name : "");
  }
  return TRM_OK;
}

void trm_compatibility_print(FILE *stream)
{
  for (int i = 0; i < ROWS_OF_TABLE; i++) {
    const enum feature feature = incompatibilities[i].feature, other = incompatibilities[i].other;
    fprintf(stream, "%s excludes %s: %s\n", features[feature].name, features[other].name, incompatibilities[i].reason);
    if (features[feature].example && features[other].example)
      fprintf(stream, "    trireme %s %s %s\n", other == PLAN ? "plan" : "train", features[feature].example,
              features[other].example);
  }
}
