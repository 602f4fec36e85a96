# shellcheck shell=bash
# The loop over steps and epochs, evaluations, resuming.
mutation 'rate of the next step' src/train/step.c \
  's/trm_schedule_rate\(t->options, part->batch,/trm_schedule_rate(t->options, part->batch + 1,/' test_trainer 1
mutation 'rate by steps of one epoch' src/train/step.c \
  's/part->batch, t->steps, t->steps_per_epoch/part->batch, t->steps_per_epoch, t->steps_per_epoch/' test_trainer 1
mutation 'patience + 1' src/train/epochs.c \
  's/t->stale_evaluations >= \(uint64_t\)patience/t->stale_evaluations > (uint64_t)patience/' test_trainer 1
mutation 'patience never reset' src/train/epochs.c 's/  t->stale_evaluations = 0;/  ;/' test_trainer 1
mutation 'a worse score is the best' src/train/epochs.c \
  's/validation\.loss < t->result->best_validation\.loss/validation.loss > t->result->best_validation.loss/' \
  test_trainer 1
mutation 'stop_delta ignored' src/train/epochs.c 's/ - t->options->train\.stop_delta;/;/' test_trainer 1
mutation 'epochs: drop_last ignored at the end' src/train/epochs.c \
  's/left == 0 \|\| \(t->options->data\.drop_last && left < \(size_t\)t->options->train\.batch\)/left == 0/' \
  test_trainer 1
mutation 'epochs: counted from the steps of a smaller set' src/train/setup.c \
  's/rows \/ batch : \(rows \+ batch - 1\) \/ batch/rows \/ batch : rows \/ batch/' test_trainer 1
mutation 'epochs: loss summed over the whole run' src/train/step.c \
  's/if \(t->position == 0\)$/if (t->samples == 0)/' test_trainer 1
mutation 'evaluations one step late' src/train/epochs.c \
  's/step \/ \(uint64_t\)every > before \/ \(uint64_t\)every/(step - 1) \/ (uint64_t)every > before \/ (uint64_t)every/' \
  test_trainer 1
mutation 'checkpoints: no one at the end' src/train/epochs.c \
  's/end \|\| early \|\| epochs_is_due\(before/early || epochs_is_due(before/' train.sh
mutation 'resume: from the oldest' src/train/checkpoint_files.c \
  's/return \(x > y\) - \(x < y\);/return (x < y) - (x > y);/' test_resume 1
mutation 'resume: the best forgotten' src/train/restart.c \
  's/t->result->best_validation = \(struct trm_score\)\{c->best_loss, c->best_accuracy\};/;/' test_resume 1
mutation 'resume: patience forgotten' src/train/restart.c 's/t->stale_evaluations = c->stale_evaluations;/;/' \
  test_resume 1
mutation 'resume: position forgotten' src/train/restart.c 's/  t->position = c->position;/  t->position = 0;/' \
  test_resume 1
mutation 'resume: samples forgotten' src/train/restart.c 's/  t->samples = c->samples;/  ;/' test_resume 1
mutation 'resume: epoch sums forgotten' src/train/restart.c 's/  t->epoch_loss = c->epoch_loss;/  ;/' test_resume 1
mutation 'resume: another seed' src/train/restart.c 's/if \(c->seed != \(uint64_t\)t->options->run\.seed\)/if (0)/' \
  test_trainer 1
mutation 'resume: another data set' src/train/restart.c \
  's/if \(c->data_digest && t->data->digest && strcmp/if (0 \&\& strcmp/' bad_input.sh
mutation 'resume: a damaged checkpoint' src/train/checkpoint_files.c \
  's/if \(ops->verify\(candidate\) == TRM_OK\)/if (true)/' test_trainer 1
mutation 'resume: an average from nothing' src/train/restart.c \
  's/trm_model_restore_parameter\(&restore, average, p, values\)/TRM_OK/' test_trainer 1
mutation 'micro-batches: gradients overwritten' src/train/step.c 's/pass\.beta = i \? 1 : 0;/pass.beta = 0;/' \
  test_trainer 1
mutation 'micro-batches: one scale too many' src/train/step.c \
  's/trainer_gradient_scale\(t, rows->batch_high - rows->batch_low\)/trainer_gradient_scale(t, rows->high - rows->low)/' test_trainer 1
mutation 'evaluation: the last rows left out' src/train/evaluate.c \
  's/\(max_rows \+ batch - 1\) \/ batch/max_rows \/ batch/' test_trainer 1
mutation 'evaluation: rows of one rank' src/train/evaluate.c \
  's/comm->ops->allreduce\(comm, sums, TRM_LOSS_SUMS, TRM_DOUBLE, TRM_SUM\);/;/' train.sh
mutation 'confusion: transposed' src/train/measures.c \
  's/confusion\[class \* m->classes \+ predicted\]/confusion[predicted * m->classes + class]/' test_measures 1
mutation 'predicted class of one score' src/train/measures.c 's/return scores\[0\] > 0;/return scores[0] >= 0;/' \
  test_trainer:predicted 1
mutation 'measures: ties of the AUC' src/train/auc.c \
  's/auc_below\(sorted, n, area->p\[k\], true\)/auc_below(sorted, n, area->p[k], false)/' test_measures 1
mutation 'measures: classes without rows' src/train/auc.c 's/if \(own > 0 && others > 0\)/if (others > 0)/' \
  test_measures 1
mutation 'measures: the end of a bin' src/train/measures.c 's/p > \(bin \+ 1\) \* width/p >= (bin + 1) * width/' \
  test_measures 1
mutation 'measures: ties of the top 5' src/train/measures.c 's/&& k > class\)/\&\& k < class)/' test_measures 1
mutation 'measures: means of the ranks' src/train/measures.c \
  's/ \+ difference \* difference \* to->rows \* from->rows \/ rows;/;/' test_measures 3
mutation 'measures: scores of one shard' src/train/measures.c 's/sharded = call->classes < m->c,/sharded = false,/' \
  measures.sh
mutation 'measures: of the first stage' src/train/epochs.c 's/TRM_BYTE, stages->size - 1\)/TRM_BYTE, 0)/' measures.sh
mutation 'staleness: maximum not merged' src/train/staleness.c 's/if \(from->max > to->max\)/if (0)/' test_staleness 1
mutation 'staleness: quantile one too high' src/train/staleness.c \
  's/\(double\)passed >= fraction/(double)passed > fraction/' test_staleness 1
mutation 'slow: factor below 1' src/train/slowdown.c 's/elapsed_s \* fmax\(1, factor\)/elapsed_s * factor/' \
  test_slowdown 1
mutation 'outage: its own time forgotten' src/train/slowdown.c \
  's/end \+= to - fmax\(from, began_s\)/end += to - from/' test_slowdown 1
mutation 'outage: at its end' src/train/slowdown.c \
  's/if \(to > began_s && from < end\)/if (to >= began_s \&\& from <= end)/' test_slowdown 1
mutation 'slowest rank: named for noise' src/train/rank_times.c 's/^static const double noise = 0\.05;/static const double noise = 0;/' \
  rank_times.sh
mutation 'slowest rank: compared with other stages' src/train/rank_times.c \
  's/sum\[stage\] = max\[stage\] = compute_s;/sum[0] = max[0] = compute_s;/' rank_times.sh
mutation 'slowest rank: of an asynchronous method' src/train/rank_times.c 's/ \|\| t->strategy\.ops->next_batch\)/)/' \
  rank_times.sh
mutation 'slowest rank: the mean has it, too' src/train/rank_times.c 's/\(sum\[i\] - max\[i\]\) \/ others/sum[i] \/ (others + 1)/' \
  rank_times.sh
mutation 'shares: smallest remainders' src/train/shares.c \
  's/\(x->value < y->value\) - \(x->value > y->value\)/(x->value > y->value) - (x->value < y->value)/' test_shares 1
mutation 'shares: a row for a share of 0' src/train/shares.c 's/shares->share\[shard\] > 0 \? quota - whole : -1/quota - whole + (shares->share[shard] == 0)/' \
  test_shares 1
mutation 'shares: for a gain of less than 5 %' src/train/speeds.c 's/^#define GAIN 0\.05/#define GAIN 0.03/' hybrid.sh
mutation 'shares: not for a gain of more than 5 %' src/train/speeds.c 's/^#define GAIN 0\.05/#define GAIN 0.06/' hybrid.sh
mutation 'shares: nodes of unlike ranks' src/train/speeds.c 's/^#define ALIKE 0\.1/#define ALIKE 10/' hybrid.sh
mutation 'shares: no nodes' src/train/speeds.c 's/^#define ALIKE 0\.1/#define ALIKE 0/' hybrid.sh
mutation 'shares: measured once' src/train/speeds.c 's/if \(phase == SPEEDS_WATCH\)$/if (0)/' hybrid.sh
mutation 'shares: speed of the whole batch' src/train/speeds.c \
  's/speeds_median\(s->copy_s\) \/ \(double\)\(to - from\) : 0/speeds_median(s->copy_s) : 0/' hybrid.sh
