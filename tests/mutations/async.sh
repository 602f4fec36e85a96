# shellcheck shell=bash
# Asynchronous methods.
mutation 'easgd: the center does not move' mpi/async/easgd.c 's/center\[i\] \+= d\[i\];/;/' test_async_peers 2
mutation 'easgd: the worker does not move' mpi/async/easgd.c \
  's/subtract = \{\.rule = TRM_UPDATE_SGD, \.rate = 1,/subtract = {.rule = TRM_UPDATE_SGD, .rate = 0,/' \
  test_async_peers 2
mutation 'easgd: alpha of one worker' mpi/async/easgd.c 's/0\.9 \/ w->workers/0.9/' virtual.sh
mutation 'eamsgd: plain steps' mpi/async/easgd.c \
  's/nesterov\.update\.rule = TRM_UPDATE_NESTEROV/nesterov.update.rule = TRM_UPDATE_SGD/' test_async_peers 2
mutation 'eamsgd: momentum 0.9' mpi/async/easgd.c 's/s->momentum : 0\.99/s->momentum : 0.9/' test_async_peers 2
mutation 'adpsgd: the passive rank keeps its weights' mpi/async/adpsgd.c \
  's/call->out\[i\] = x\[i\] = 0\.5f/call->out[i] = 0.5f/' test_async_peers 2
mutation 'adpsgd: a quarter' mpi/async/adpsgd.c \
  's/0\.5f \* \(x\[i\] \+ call->in\[i\]\)/0.25f * (3 * x[i] + call->in[i])/' test_async_peers 2
mutation 'ssp: one clock more' mpi/async/ssp.c \
  's/needed = clock - \(int64_t\)ssp_slack\(s\);/needed = clock - (int64_t)ssp_slack(s) - 1;/' test_async_ssp 2
mutation 'ssp: replies not held back' mpi/async/ssp.c \
  's/if \(\(double\)\*chunk->clock < call->value\[CLOCK\]\)/if (0)/' test_async_ssp 2
mutation 'ssp: own gradients not seen' mpi/async/ssp.c \
  's/for \(int64_t c = from; c < clock; c\+\+\)/for (int64_t c = from; c < from; c++)/' test_async_ssp 2
mutation 'ssp: own steps of one number' mpi/async/ssp.c 's/update\.step = \(uint64_t\)c \+ 1;/update.step = 1;/' \
  test_async_ssp 2
mutation 'ssp: states not copied' mpi/async/ssp.c '/ssp_copy/,/^}/s/i < ssp->own\.states/i < 0/' test_async_ssp 2
mutation 'essp: the newest are not requested' mpi/async/ssp.c \
  's/ssp_request\(s, chunk, w->seen\[chunk\] \+ 1\)/ssp_request(s, chunk, w->seen[chunk])/' test_async_ssp 2
mutation 'sgp: y is not halved' mpi/async/sgp.c 's/weight\[i\] -= sgp->half\[i\];/;/' test_async_peers 2
mutation 'sgp: the half that a failed owner returns counts twice' mpi/async/sgp.c \
  's/weight\[i\] \+= sgp->half\[i\];/weight[i] += 2 * sgp->half[i];/' test_schedules 1
mutation 'sgp: a push does not wait' mpi/async/sgp.c \
  's/if \(call->value\[ITERATION\] > state\[BEGUN\] \+ \(double\)s->options->overlap\)/if (0)/' test_async_peers 3
mutation 'softsync: the first gradient' mpi/async/softsync.c \
  's/\+\+chunk->method_state\[WAITING\] < count/++chunk->method_state[WAITING] < 1/' test_async_server_weights 3
mutation 'softsync: a sum, no mean' mpi/async/softsync.c \
  's/scale, count, mean/scale, 1, mean/' \
  test_async_server_weights 2
mutation 'asgd: one rate of a period' mpi/async/asgd.c \
  's/if \(asgd->batches == s->options->tau\)/if (asgd->batches == s->options->tau + 1)/' test_async_server_weights \
  2
mutation 'assignment: parts without rest' mpi/async/batch_assignment.c \
  's/\(assigned \+ a->parts - 1\) \/ a->parts/assigned \/ a->parts/' test_batch_assignment 2
mutation 'assignment: static ranks take all' mpi/async/batch_assignment.c \
  's/i % \(size_t\)a->workers == \(size_t\)a->worker/true/' test_batch_assignment 2
mutation 'asgd, tau > 1: no local step' mpi/async/asgd.c 's/\.rate = \(float\)rate/.rate = 0/' \
  test_async_server_weights 2
mutation 'asgd, tau > 1: sends the last gradient alone' mpi/async/gradient_sum.c \
  's/server_weights_axpy\(s, rate \* scale/if (batch == s->options->tau) &/' test_async_server_weights 2
mutation 'asgd, tau > 1: sum not cleared' mpi/async/asgd.c 's/if \(asgd->sum\)$/if (!asgd)/' \
  test_async_server_weights 2
mutation 'asgd, tau > 1: sends unclipped gradients' mpi/async/gradient_sum.c 's/rate \* scale/rate/' \
  test_async_server_weights 2
mutation 'asgd, tau > 1: local steps unclipped' mpi/async/asgd.c 's/\.scale = \(float\)scale/.scale = 1/' \
  test_async_server_weights 2
mutation 'asgd, tau > 1: one rate for a period' mpi/async/asgd.c \
  's/asgd->rates \+= rate/asgd->rates = rate * (asgd->batches + 1)/' test_async_server_weights 1
mutation 'asgd, tau > 1: no decay in local steps' mpi/async/asgd.c 's/step\.l2 = .*/step.l2 = 0;/' \
  test_async_server_weights 1
mutation 'asgd: rate=staleness ignored' mpi/async/asgd.c 's, / server_weights_rate_divisor\(s\, call\),,' \
  test_async_server_weights 3
mutation 'rate=delay: that of staleness' mpi/async/server_weights.c 's, / worker_of\(s\)->workers,,' test_async_delays
mutation 'rate=delay: smaller for every gradient' mpi/async/server_weights.c \
  's/fmax\(1, (staleness \/ worker_of)/(1 + \1/' test_async_delays
mutation 'rate=delay: larger for fresh gradients' mpi/async/server_weights.c \
  's/fmax\(1, (staleness \/ worker_of)/(0.01 + \1/' test_async_delays
mutation 'rate=delay: ranks in place of groups' mpi/async/server_weights.c \
  's/worker_of\(s\)->workers/worker_count(s)/' test_async_delays
mutation 'asgd: clipping off' mpi/async/server_weights.c 's/update\.scale = \(float\)scale/update.scale = 1/' \
  test_async_server_weights 2
mutation 'softsync: rate=staleness ignored' mpi/async/softsync.c 's, / server_weights_rate_divisor\(s\, call\),,' \
  test_async_server_weights 3
mutation 'softsync: restored clocks count gradients' mpi/async/softsync.c \
  's, / softsync_gradients_per_update\(s\)\),),' test_async_server_weights 2
mutation 'softsync: clocks not restored' mpi/async/softsync.c 's/worker_gradients\(s, updates\) \//0 */' \
  test_async_server_weights 2
mutation 'dcasgd: squares of the unclipped gradient' mpi/async/dcasgd.c \
  's/\(scale \* g\[i\]\) \* \(scale \* g\[i\]\)/g[i] * g[i]/' test_async_server_weights 2
mutation 'dcasgd: correction by the unclipped gradient' mpi/async/dcasgd.c \
  's/strength \* \(scale \* g\[i\]\)/strength * g[i]/' test_async_server_weights 2
mutation 'dcasgd: memory and 1 - memory exchanged' mpi/async/dcasgd.c \
  's/memory \* squares\[i\] \+ \(1 - memory\)/(1 - memory) * squares[i] + memory/' test_async_server_weights 2
mutation 'local steps: nothing but the last' mpi/async/local_work.c 's/\+\+period->steps >= period->length/true/' \
  test_async_local
mutation 'local steps: a period from its end' mpi/async/local_work.c \
  's/start \? w\[i\] - start\[i\]/start ? start[i] - w[i]/' \
  test_async_local
mutation 'local steps: open periods are not in checkpoints' mpi/async/local_work.c \
  's/trm_strategy_keep\(s, "period"[^)]*\)/TRM_OK/' test_async_local
mutation 'fedasync: staleness ignored' mpi/async/fedasync.c \
  's, / server_weights_rate_divisor\(s\, call\),,' test_async_local
mutation 'fedbuff: the sum for the mean' mpi/async/fedbuff.c 's,(m\[i\] \+ .double.sum\[i\]) / count,\1,' \
  test_async_local
mutation 'fedbuff: staleness ignored' mpi/async/fedbuff.c 's,1 / server_weights_rate_divisor\(s\, call\),1,' \
  test_async_local
mutation 'asyncdiloco: momentum not delayed' mpi/async/delayed_nesterov.c 's/push % rule->period == 0/true/' \
  test_async_local
mutation 'asyncdiloco: no activation' mpi/async/delayed_nesterov.c 's/1 - c \* count \+ c : c/1 : 0/' test_async_local
mutation 'halos: a group keeps its weights' mpi/async/halos.c 's/base\[i\] = x\[i\] = .*$/base[i] = x[i];/' \
  test_async_local
mutation 'halos: pushes of all that a group has moved' mpi/async/halos.c 's/base\[i\] = x\[i\] = /x[i] = /' \
  test_async_local
mutation 'halos: one group' mpi/async/halos.c 's/const int group = h->group_of\[call->caller\]/const int group = 0/' \
  test_async_local
mutation 'dylu: no rounding' mpi/async/local_work.c 's/ \+ 1e-6//' test_async_local
mutation 'dylu: off' mpi/async/local_work.c 's/\* speed \/ fastest/\/ 1/' test_async_local
mutation 'rate=hinge: no bound' mpi/async/server_weights.c 's/ - s->options->rate_bound//' test_async_delays
mutation 'dana: no look-ahead' mpi/async/dana.c 's/g\[i\] = gradient \+ rule->momentum \* v/g[i] = v/' \
  test_async_delays
mutation 'dana: no momentum' mpi/async/dana.c 's/v\[i\] = rule->momentum \* v\[i\] \+ gradient/v[i] = gradient/' \
  test_async_delays
mutation 'dana: l2 at the server, too' mpi/async/dana.c 's/plain\.update\.l2 = 0;/;/' test_async_delays
mutation 'dana: unclipped gradients' mpi/async/dana.c 's/= scale \* g\[i\]/= g[i]/' test_async_delays
mutation 'dana: strategy.rate ignored' mpi/async/dana.c 's, / server_weights_rate_divisor\(s\, call\),,' \
  test_async_delays
mutation "dana: checkpoints without the workers' momentum" mpi/async/worker.c \
  's/worker_array\(s, s->elements, name\[i\]/worker_array(s, s->elements, NULL/' test_async_server_weights 3
mutation 'dana: momentum 0.99 by itself' mpi/async/dana.c 's/0\.9f/0.99f/' async_server_weights.sh
mutation 'stragglers: nobody ends computations' mpi/async/stragglers.c 's/stragglers_tell\(g, END\)/(void)0/' \
  stragglers.sh
mutation 'stragglers: their parts are lost' mpi/async/worker.c 's/batch_assignment_return\(&w->assignment\);/;/' \
  stragglers.sh
mutation 'stragglers: first to ask for their own parts' mpi/async/stragglers.c 's/g->left_out = end;/;/' stragglers.sh
mutation 'stragglers: never again' mpi/async/stragglers.c 's/if \(ready == 0\)/if (0)/' stragglers.sh
mutation 'stragglers: evaluate, too' mpi/async/worker.c 's/s->straggler = /s->straggler = false \&\& /' stragglers.sh
mutation 'ormo: late gradients as new ones in the momentum' mpi/async/ormo.c 's/of_v = pow\(momentum, missed\)/of_v = 1/' \
  test_async_collect
mutation 'ormo: late gradients in one step only' mpi/async/ormo.c 's/missed \+ 1\)\) \//1)) \//' test_async_collect
mutation 'ormo: buckets begin one gradient late' mpi/async/ormo.c 's/arrivals % workers == 1 % workers/arrivals % workers == 0/' \
  test_async_collect
mutation 'ringleader: new weights in every reply' mpi/async/ringleader.c \
  's/SERVER_PULL \|\| ringleader_receive\(context, chunk, call\)/SERVER_PULL || ringleader_receive(context, chunk, call) || true/' \
  test_async_collect
mutation 'ringleader: one table' mpi/async/ringleader.c 's/next_round \? 1 - table : table/table/' test_async_collect
mutation 'ringleader: old rows stay' mpi/async/ringleader.c 's/\*ringleader_count\(s, chunk, table, k\) = 0;/0;/' \
  test_async_collect
mutation 'ringmaster: takes one update more' mpi/async/ringmaster.c 's/staleness < ringmaster_limit/staleness <= ringmaster_limit/' \
  test_async_collect
mutation 'ringmaster: sends old weights to who is late' mpi/async/ringmaster.c \
  '0,/server_weights_reply\(s, chunk, call\);/s//if (call->staleness < 2) server_weights_reply(s, chunk, call);/' test_async_collect
mutation 'stops: one update later' mpi/async/delay_watch.c 's/\*read_at < \(double\)limit/*read_at <= (double)limit/' \
  test_async_collect
mutation 'stops: one update later in shared memory' mpi/async/delay_watch.c 's/>= watch->limit/> watch->limit/' test_async_collect
mutation 'stops: the old weights again' mpi/async/ringmaster.c 's/NULL, NULL, s->w, true/NULL, NULL, s->g, true/' test_async_collect
mutation 'stops: the delay of the first weights' mpi/async/delay_watch.c 's/(state\(chunk, call, READ_AT\) =).*;/\1 0;/' \
  test_async_collect
mutation 'stops: no second call' mpi/async/delay_watch.c 's/watch->in_progress = false;/;/' test_async_collect
mutation 'stops: an answer of old weights' mpi/async/delay_watch.c 's/w->per_chunk\[0\] > 0/false/' test_schedules
mutation 'stops: a call is left at the end' mpi/async/delay_watch.c 's/\*read_at = -INFINITY;/;/' test_schedules
mutation 'stops: the parts are done again' mpi/async/worker.c 's/ && w->plan\.restart;/ \&\& false;/' test_schedules
mutation 'mindflayer: the mean of what arrives' mpi/async/mindflayer.c 's/1 \/ mindflayer_expected\(s, chunk\)/1 \/ chunk->method_state[ARRIVED]/' \
  test_async_collect
mutation 'mindflayer: one share for the round' mpi/async/mindflayer.c '/SUCCESSES\) \/ \*/s/made \* //' test_async_collect
mutation 'mindflayer: one trial' mpi/async/mindflayer.c 's/MADE\) < \(double\)s->options->trials/MADE) < 1/' test_async_collect
mutation 'mindflayer: the sum stays' mpi/async/mindflayer.c 's/^.*ops->fill\(s->device, mindflayer_sum.*$//' test_async_collect
mutation 'mindflayer: who leaves is waited for' mpi/async/mindflayer.c 's/\*takes_part = 0;/;/' test_schedules
mutation 'mindflayer: no limit of time' src/train/slowdown.c 's/fmin\(when, limit\)/when/' stragglers.sh
mutation 'rennala: takes old gradients' mpi/async/ringmaster.c 's/call->staleness == 0 && //' test_async_collect
mutation 'rennala: the sum, not the mean' mpi/async/ringmaster.c 's/\[SERVER_SCALE\], count, mean/[SERVER_SCALE], 1, mean/' test_async_collect
mutation 'backup: takes old gradients' mpi/async/backup.c 's/ && call->staleness == 0//' test_async_collect
mutation 'backup: does not wait for the next weights' mpi/async/backup.c 's/w->seen\[0\] + 1 : 0/w->seen[0] : 0/' test_async_collect
mutation 'backup: waits though batches run out' mpi/async/backup.c 's/<= worker_count(s) - backup_needed(s))/< 1000)/' test_async_collect
mutation 'malenia: takes old gradients' mpi/async/ringleader.c 's/pushes && call->staleness == 0;/pushes;/' test_async_collect
mutation 'iaasgd: updates before the table is full' mpi/async/ringleader.c 's/\[ROWS\] < worker_count\(s\)/[ROWS] < 0/' \
  test_async_collect
mutation 'keuper: no gate' mpi/async/keuper.c 's/accepts = .*;/accepts = true;/' test_async_turns 2
mutation 'keuper: gate closed' mpi/async/keuper.c 's/accepts = .*;/accepts = false;/' test_async_turns 2
mutation 'keuper: gate reversed' mpi/async/keuper.c 's/(accepts = .*) < /\1 > /' test_async_turns 2
mutation 'keuper: always to the next rank' mpi/async/keuper.c \
  's/draw \+ \(draw >= s->comm->rank\)/(s->comm->rank + 1) % s->comm->size/' test_async_turns 4
mutation 'adpsgd: always one partner' mpi/async/adpsgd.c 's/peers_draw\(s, passive\)/0/' test_async_turns 4
mutation 'peers: one draw for all batches' mpi/async/peers.c 's/\(uint64_t\)peers_of\(s\)->batches, word/0, word/' \
  test_async_turns 4
mutation 'peers: one draw for all ranks' mpi/async/peers.c 's/\(uint32_t\)s->comm->rank/0/' test_async_turns 4
mutation 'sgp: always to the next rank' mpi/async/sgp.c 's/= \(int\)\(sgp->iteration % sgp->distances\)/= 0/' \
  test_async_turns 4
mutation 'sgp: steps not divided by y' mpi/async/sgp.c 's, / sgp->peers.weight\[chunk\],,' test_async_turns 4
mutation 'sgp: halves for a worker that has failed' mpi/async/sgp.c 's/state\[BEGUN\] == -INFINITY/false/' \
  test_schedules 1
mutation 'the batch of a failed worker is dropped' mpi/async/batch_assignment.c \
  's/assignment_add_undone\(a, a->assigned\)/(void)a/' test_schedules 1
mutation 'hogwild: staleness 0' mpi/async/hogwild.c 's/staleness = begun - h->seen/staleness = 0/' test_hogwild 2
mutation 'hogwild: clock not read with the weights' mpi/async/hogwild.c 's/h->seen = shared_counters_read.*/;/' \
  test_hogwild 2
mutation 'rate frozen between evaluations' src/train/step.c \
  's/trm_schedule_rate\(t->options, part->batch/trm_schedule_rate(t->options, t->strategy.updates/' async.sh
mutation 'graphs: a ring without one of its directions' mpi/async/topology.c \
  's/topology_add\(t, 0, -1\)/topology_add(t, 0, 1)/' test_topology
mutation 'graphs: rates of edges not divided by the neighbors' mpi/async/topology.c 's, \* rate / t->offsets, * rate,' \
  test_topology
mutation 'a2cid2: no mixing' mpi/async/a2cid2.c 's/-expm1\(-2/0 * expm1(-2/' test_a2cid2 2
mutation 'a2cid2: a step on the weights alone' mpi/async/a2cid2.c \
  's/tilde\[i\] \+= x\[i\] - call->out\[i\]/(void)tilde/' test_a2cid2 2
mutation 'a2cid2: half of the other vector'"'"'s move' mpi/async/a2cid2.c \
  's/\(float\)\(2 \* a2cid2->a\)/(float)a2cid2->a/' test_a2cid2 2
