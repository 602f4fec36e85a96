#!/bin/bash
# Virtual runs with this machine's figures compared with real runs: seconds of an update, and mean staleness.
#
#   [ROUNDS=5] [RANKS="2 4"] [MODELS="small large"] [METHODS="sync asgd ssp easgd"] tests/bench/calibrate.sh
#
# Before each model the machine is calibrated (trireme plan --calibrate); then real runs of all methods and numbers of
# ranks alternate. Prints medians over rounds, predicted / real of the time, and exits with 1 if a ratio, or that of
# the stalenesses plus one (to compare small ones), is beyond 15 %. For a machine without other work.
ROUNDS=${ROUNDS:-5}
. "$(dirname "$0")/lib.sh"
RANKS=${RANKS:-2 4}
MODELS=${MODELS:-small large}
METHODS=${METHODS:-sync asgd ssp easgd}
export OMP_NUM_THREADS=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$TRIREME" data make digits --out=digits.h5 --train=8000 --test=100 --seed=7 2> /dev/null > /dev/null
for model in small large; do
  cat > $model.yaml << END
model: mlp $([ $model = small ] && echo 784-32-10 gelu || echo 784-512-256-10 relu)
data: {file: digits.h5}
train: {batch: $([ $model = small ] && echo 50 || echo 64), steps: $([ $model = small ] && echo 6400 || echo 800)}
optim: {lr: 0.01}
log: {quiet: yes, every: 1000000}
run: {overwrite: yes, checkpoint_every: -1}
END
done

# trained OPTION...: "seconds of an update, staleness" of a run that has ended
figures() {
  awk -v s="$(json_value train_s < run/summary.json)" -v n="$(json_value steps < run/summary.json)" \
    -v late="$(json_value staleness_mean < run/summary.json)" 'BEGIN { printf "%.9f %.4f\n", s / n, late }'
}
for model in $MODELS; do
  most=$(printf '%s\n' $RANKS | sort -n | tail -n 1)
  job 2 plan $model.yaml --ranks="$most" --calibrate=$model.json > plan.log 2>&1 || { cat plan.log >&2; exit 1; }
  for ranks in $RANKS; do
    for method in $METHODS; do
      job 1 train $model.yaml --run.dir=run --strategy.name="$method" --simulate.workers="$ranks" --simulate.nodes=1 \
        --simulate.machine=$model.json --simulate.gradients=no > train.log 2>&1 || { cat train.log >&2; exit 1; }
      echo "$model $method $ranks $(figures)" >> predicted
    done
  done
  for round in $(seq "$ROUNDS"); do
    for ranks in $RANKS; do
      for method in $METHODS; do
        job "$ranks" train $model.yaml --run.dir=run --strategy.name="$method" > train.log 2>&1 ||
          { cat train.log >&2; exit 1; }
        echo "$model $method $ranks $(figures)" >> real
        echo "round $round: $(tail -n 1 real)" >&2
      done
    done
  done
done
printf '%-6s %-6s %5s %9s %9s %6s %10s %9s %6s\n' model method ranks 'real us' predicted ratio staleness predicted ratio
while read -r model method ranks seconds late; do
  real=$(median $(grep "^$model $method $ranks " real | cut -d' ' -f4))
  real_late=$(median $(grep "^$model $method $ranks " real | cut -d' ' -f5))
  awk -v m="$model" -v n="$method" -v r="$ranks" -v a="$real" -v b="$seconds" -v c="$real_late" -v d="$late" 'BEGIN {
    printf "%-6s %-6s %5d %9.1f %9.1f %6.3f", m, n, r, 1e6 * a, 1e6 * b, b / a
    if (n == "sync")
      print ""
    else
      printf " %10.3f %9.3f %6.3f\n", c, d, (1 + d) / (1 + c)
  }'
done < predicted | tee rows
awk '{ for (i = 6; i <= NF; i += 3) { ratios++; beyond += $i > 1.15 || $i < 0.85 } }
     END { printf "%d of %d ratios within 15 %%\n", ratios - beyond, ratios; exit beyond > 0 }' rows
