#!/bin/bash
# Virtual runs with this machine's figures compared with real runs: seconds of an update, and mean staleness.
#
#   [ROUNDS=5] [RANKS="2 4"] [MODELS="small large"] [METHODS="sync asgd ssp easgd"] [JITTER=0.07] tests/bench/calibrate.sh
#
# In each round the machine is calibrated for each model and number of ranks (trireme plan --calibrate, by as many
# ranks), and every real run follows its virtual run. JITTER: spread of the seconds of a gradient (run.jitter of the
# virtual runs; in traces of two ranks, run.trace=steps, it was 0.02 to 0.12). Prints medians over rounds of the times, of predicted / real, and
# of the stalenesses; exits with 1 if a ratio, or that of the stalenesses plus one (to compare small ones), is beyond
# 15 %. For a machine without other work.
ROUNDS=${ROUNDS:-5}
. "$(dirname "$0")/lib.sh"
RANKS=${RANKS:-2 4}
MODELS=${MODELS:-small large}
METHODS=${METHODS:-sync asgd ssp easgd}
JITTER=${JITTER:-0.07}
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

# figures: "seconds of an update, staleness" of the run that has ended last
figures() {
  awk -v s="$(json_value train_s < run/summary.json)" -v n="$(json_value steps < run/summary.json)" \
    -v late="$(json_value staleness_mean < run/summary.json)" 'BEGIN { printf "%.9f %.4f\n", s / n, late }'
}
# row MODEL METHOD RANKS WHICH: adds the figures of the last run to the rows of this round
row() {
  echo "$1 $2 $3 $4 $(figures)" >> rows
}
for round in $(seq "$ROUNDS"); do
  for model in $MODELS; do
    for ranks in $RANKS; do
      job "$ranks" plan $model.yaml --ranks="$ranks" --calibrate=machine.json > plan.log 2>&1 ||
        { cat plan.log >&2; exit 1; }
      for method in $METHODS; do
        job 1 train $model.yaml --run.dir=run --strategy.name="$method" --simulate.workers="$ranks" --simulate.nodes=1 \
          --simulate.machine=machine.json --simulate.gradients=no --run.jitter="lognormal $JITTER" > train.log 2>&1 || { cat train.log >&2; exit 1; }
        row $model "$method" "$ranks" predicted
        job "$ranks" train $model.yaml --run.dir=run --strategy.name="$method" > train.log 2>&1 ||
          { cat train.log >&2; exit 1; }
        row $model "$method" "$ranks" real
        echo "round $round: $(tail -n 2 rows | tr '\n' ' ')" >&2
      done
    done
  done
done
# column WHICH FIELD: of this model, method and number of ranks, one value a round
column() {
  awk -v m="$model" -v n="$method" -v r="$ranks" -v w="$1" -v f="$2" '$1 == m && $2 == n && $3 == r && $4 == w {
    print $f }' rows
}
printf '%-6s %-6s %5s %9s %9s %6s %10s %9s %6s\n' model method ranks 'real us' predicted ratio staleness predicted ratio
for model in $MODELS; do
  for ranks in $RANKS; do
    for method in $METHODS; do
      ratio=$(median $(paste <(column predicted 5) <(column real 5) | awk '{ print $1 / $2 }'))
      late=$(median $(paste <(column predicted 6) <(column real 6) | awk '{ print (1 + $1) / (1 + $2) }'))
      awk -v m="$model" -v n="$method" -v r="$ranks" -v a="$(median $(column real 5))" \
        -v b="$(median $(column predicted 5))" -v ratio="$ratio" -v c="$(median $(column real 6))" \
        -v d="$(median $(column predicted 6))" -v late="$late" 'BEGIN {
        printf "%-6s %-6s %5d %9.1f %9.1f %6.3f", m, n, r, 1e6 * a, 1e6 * b, ratio
        if (n == "sync")
          print ""
        else
          printf " %10.3f %9.3f %6.3f\n", c, d, late
      }'
    done
  done
done | tee table
awk '{ for (i = 6; i <= NF; i += 3) { ratios++; beyond += $i > 1.15 || $i < 0.85 } }
     END { printf "%d of %d ratios within 15 %%\n", ratios - beyond, ratios; exit beyond > 0 }' table
