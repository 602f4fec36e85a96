#!/bin/bash
# Sweeps: the table is that of the runs' summaries, any number of processes and any kill gives the same bytes, a run
# that is done is not run again, runs that diverge, fail or take too long are counted, the choice is that of the
# validation split, variants have options of their own, a best value at the edge is a warning, Slurm's tasks give the same results.
set -u
. "$(dirname "$0")/lib.sh"
TRIREME=$(realpath "$TRIREME")
scratch
openblas_only
digits 400 100
cat > config.yaml << 'EOF'
model: mlp 784-16-10 relu
data: {file: digits.h5, validation: 0.2}
train: {epochs: 2, batch: 32}
run: {checkpoint_every: -1}
EOF

# sweep DIR OPTION...: sweeps config.yaml; the table is in DIR.out, messages are in DIR.err
sweep() {
  local dir=$1
  shift
  timeout -k 10 "${LIMIT:-120}" "$TRIREME" sweep config.yaml --dir="$dir" "$@" > "$dir.out" 2> "$dir.err"
}
good() { sweep "$@" || { cat "$1.err"; fail "sweep $*"; }; }
refused() { # refused TEXT OPTION...
  local text=$1
  shift
  sweep refused "$@"
  [ $? = 2 ] && grep -qF -- "$text" refused.err || { cat refused.err; fail "sweep $*: not refused with \"$text\""; }
}
same() { cmp -s "$1/$3" "$2/$3" || { diff "$1/$3" "$2/$3"; fail "$1/$3 and $2/$3 differ"; }; }

# The example of the manual: means and deviations are those of the summaries.
good plain --optim.lr=0.05,0.1,0.2 --run.seed=1..3 --jobs=2
[ "$(find plain/runs -name summary.json | wc -l)" = 9 ] || fail "there are not 9 runs"
cmp -s plain.out plain/table.md || fail "the terminal shows another table"
for rate in 0.05 0.1 0.2; do
  expected=$(for seed in 1 2 3; do
    json_number test_accuracy "plain/runs/optim.lr=$rate,run.seed=$seed/summary.json"
  done | awk '{ sum += $1; square += $1 * $1 }
    END { m = sum / NR; printf "%.2f (%.2f)", 100 * m, 100 * sqrt((square - NR * m * m) / (NR - 1)) }')
  grep -qF "| $rate | 3 of 3 |" plain/table.md && grep -F "| $rate |" plain/table.md | grep -qF "| $expected |" ||
    { cat plain/table.md; fail "lr $rate: no $expected in the table"; }
done
grep -q 'optim.lr=0.2, the best one, is at the edge' plain.err || { cat plain.err; fail "no warning of the edge"; }
pass "means and deviations are those of the runs; a best value at the edge is a warning"

# Numbers of processes, and a kill.
good one --optim.lr=0.05,0.1,0.2 --run.seed=1..3 --jobs=1
for file in results.csv runs.csv table.md; do same plain one $file; done
pass "one process at a time and two give the same bytes"
setsid "$TRIREME" sweep config.yaml --dir=killed --optim.lr=0.05,0.1,0.2 --run.seed=1..3 --jobs=2 > /dev/null 2>&1 &
job=$!
until [ "$(find killed -name summary.json 2> /dev/null | wc -l)" -ge 3 ]; do sleep 0.01; done
kill -9 -$job
wait $job 2> /dev/null
done_before=$(find killed -name summary.json | wc -l)
[ "$done_before" -lt 9 ] || fail "the kill came too late: all runs were done"
find killed -name summary.json -exec ls -i {} + | sort > before
good killed --optim.lr=0.05,0.1,0.2 --run.seed=1..3 --jobs=2
for file in results.csv runs.csv table.md; do same plain killed $file; done
find killed -name summary.json -exec ls -i {} + | sort > after
[ "$(comm -12 before after | wc -l)" = "$done_before" ] || fail "a run that was done was run again"
pass "after kill -9 with $done_before of 9 runs done: the same bytes, and no run again"
# The sweep alone is killed: its runs go on, and the next one waits for them.
"$TRIREME" sweep config.yaml --dir=orphans --train.epochs=400 --run.seed=1..3 --jobs=2 > /dev/null 2>&1 &
job=$!
until [ "$(find orphans -name metrics.jsonl 2> /dev/null | wc -l)" -ge 2 ]; do sleep 0.01; done
{ kill -9 $job && wait $job; } 2> /dev/null
[ "$(find orphans -name summary.json | wc -l)" = 0 ] || fail "the runs are too short for this test"
good orphans --train.epochs=400 --run.seed=1..3 --jobs=2
grep -q "waiting" orphans.err && grep -q "1 run, 1 at a time; 2 ended before" orphans.err ||
  { cat orphans.err; fail "the sweep has not waited for the runs of the one that was killed"; }
pass "runs of a sweep that was killed are waited for, and count"
timeout 60 "$TRIREME" sweep killed > killed.out 2> killed.err || { cat killed.err; fail "sweep DIR"; }
cmp -s killed.out plain/table.md || fail "sweep DIR shows another table"
refused "other options: another --dir" --dir=plain --optim.lr=0.05,0.1,0.2 --train.epochs=3
pass "a folder goes on with its own options, and takes no others"

# The choice: on the validation split, by other seeds. Peaks inside the grid have no warning.
good tuned --strategy.name=sync,asgd --simulate.workers=4 --optim.lr=0.01,0.1,0.5,4 --tune=optim.lr \
  --tune-seeds=101,102 --run.seed=1..3 --baseline=strategy.name=sync
for method in sync asgd; do
  for rate in 0.01 0.1 0.5 4; do
    for seed in 101 102; do
      json_number validation_accuracy "tuned/runs/strategy.name=$method,optim.lr=$rate,run.seed=$seed/summary.json"
    done | awk -v rate=$rate '{ sum += $1 } END { print sum / NR, rate }'
  done > means
  best=$(sed -n "s/^$method,\([^,]*\),no,3,3,.*/\1/p" tuned/results.csv)
  at_least "$(awk -v rate="$best" '$2 == rate { print $1 }' means)" "$(sort -gr means | head -1 | cut -d' ' -f1)" ||
    { cat means tuned/results.csv; fail "$method: the choice is not the best"; }
  final=$(find tuned/runs -path "*strategy.name=$method,*run.seed=[123]/summary.json")
  [ "$(echo "$final" | grep -c "optim.lr=$best,")" = 3 ] && [ "$(echo "$final" | wc -l)" = 3 ] ||
    fail "$method: the final runs have another rate"
done
! grep -q edge tuned.err || { cat tuned.err; fail "a warning of an edge where there is none"; }
grep '^tune,' tuned/runs.csv | awk -F, '$NF != "" || $(NF - 1) != "" { exit 1 }' ||
  fail "runs that tune show test scores"
expected=$(for seed in 1 2 3; do
  for method in asgd sync; do
    json_number test_accuracy "$(echo tuned/runs/strategy.name=$method,*,run.seed=$seed/summary.json)"
  done | paste -sd' '
done | awk '{ sum += $1 - $2 } END { printf "%+.2f", 100 * sum / NR }')
grep '^| asgd' tuned/table.md | grep -qF "| $expected |" ||
  { cat tuned/table.md; fail "the difference is not $expected"; }
pass "settings are chosen on the validation split, with other seeds; the baseline's difference is that of the seeds"

# Runs that diverge, fail, or take too long.
good bad --optim.lr=0.1,100,1e9,1e30 --run.seed=1,2 --train.batch=32
for rate in 100 1000000000 1e+30; do # the loss of the last one is not finite in the second step
  grep -q "^| $rate | 0 of 2, 2 diverged | - | - |" bad/table.md || { cat bad/table.md; fail "lr $rate: not diverged"; }
done
grep -q '6 of 8 runs: diverged' bad.err || { cat bad.err; fail "no warning of diverged runs"; }
good refusal --strategy.name=sync,none --optim.lr=0.1
grep -q '^| none | 0 of 1, 1 failed | - | - |' refusal/table.md ||
  { cat refusal/table.md; fail "a failed run is not shown"; }
cp refusal/results.csv before
good refusal --strategy.name=sync,none --optim.lr=0.1 --collect
cmp before refusal/results.csv || fail "a failed run is another one when results are collected"
good slow --train.epochs=1,100000 --time-limit=3
grep -q '^| 100000 | 0 of 1, 1 timeout |' slow/table.md || { cat slow/table.md; fail "a timeout is not shown"; }
LIMIT=2 good slow --train.epochs=1,100000 --time-limit=3
! sweep none --optim.lr=1e9,2e9 && grep -q 'no run is done' none.err || fail "a sweep without any result succeeds"
pass "runs that diverge, fail or take too long are counted, and are in no mean"
# One seed that diverges: its mean is of the others.
good part --optim.lr=0.1,0.2 --run.seed=1..3
file=part/runs/optim.lr=0.1,run.seed=2/summary.json
sed -i 's/"final_train_loss":[^,]*/"final_train_loss":99/' "$file"
good part --optim.lr=0.1,0.2 --run.seed=1..3
expected=$(for seed in 1 3; do json_number test_accuracy "part/runs/optim.lr=0.1,run.seed=$seed/summary.json"; done |
  awk '{ sum += $1 } END { printf "%.2f", 100 * sum / NR }')
grep '^| 0.1 | 2 of 3, 1 diverged |' part/table.md | grep -qF "| $expected (" ||
  { cat part/table.md; fail "the mean is not $expected"; }
pass "a seed that diverged is shown, and the mean is of 2 of 3"

# Random search: the same settings for a seed.
good random --optim.lr=0.001..1 --optim.momentum=0,0.5,0.9 --optim.name=momentum --tune=optim.lr,optim.momentum \
  --search=random --trials=6 --run.seed=1,2
[ "$(grep -c '^tune,' random/runs.csv)" = 6 ] || fail "there are not 6 trials"
good random2 --optim.lr=0.001..1 --optim.momentum=0,0.5,0.9 --optim.name=momentum --tune=optim.lr,optim.momentum \
  --search=random --trials=6 --run.seed=1,2 --jobs=1
same random random2 runs.csv
grep '^tune,' random/runs.csv | cut -d, -f2 |
  awk '$1 < 0.001 || $1 > 1 { exit 1 } { low += $1 < 0.0316 } END { exit !(low > 0 && low < 6) }' ||
  { cat random/runs.csv; fail "the rates are not spread over the range"; }
pass "a random search repeats, inside its ranges"

# Successive halving: nine settings with a third of the epochs, the best three with all.
nine="--train.epochs=6 --optim.lr=0.01,0.05,0.1,0.2,0.3,0.4,0.5,2,4 --tune=optim.lr --search=halving --run.seed=1,2"
# shellcheck disable=SC2086 # a list
good halving $nine
rung() { grep "^tune $1," halving/runs.csv; }
[ "$(rung 1 | wc -l)" = 9 ] && [ "$(rung 2 | wc -l)" = 3 ] && [ "$(grep -c '^final,' halving/runs.csv)" = 2 ] ||
  { cat halving/runs.csv; fail "not 9, 3 and 2 runs"; }
third=$(rung 1 | grep ',done,' | cut -d, -f5 | sort -gr | sed -n 3p) # equal ones may be in either half
for rate in $(rung 2 | cut -d, -f2); do
  at_least "$(rung 1 | awk -F, -v rate="$rate" '$2 == rate { print $5 }')" "$third" ||
    { cat halving/runs.csv; fail "lr $rate is not among the best three of the first rung"; }
done
json_number epochs "halving/runs/optim.lr=0.1,run.seed=101,train.epochs=2/summary.json" | grep -qx 2 ||
  fail "the first rung has not two epochs"
refused "a job array" --optim.lr=0.1,0.2 --tune=optim.lr --search=halving --slurm
cp halving/runs.csv before
# shellcheck disable=SC2086
good halving $nine
cmp before halving/runs.csv || fail "halving: the same sweep gives another table"
pass "successive halving: the best third of the settings goes on, with three times the epochs"

# Variants: rows with options of their own, and own values of the tuned ones; figures of the summaries; a picture.
cat > lines << 'END'
# name | options
sync        | --strategy.name=sync
asgd, slow  | --strategy.name=asgd --run.jitter=lognormal 0.5 --optim.lr=0.05,0.1,0.2
slowmo      | --strategy.name=slowmo --strategy.tau=2 --strategy.outer_momentum=0.2,0.5
END
of_variants="--variants=lines --simulate.workers=2,4 --optim.lr=0.1,0.4 --tune=optim.lr,strategy.outer_momentum
  --run.seed=1,2 --figures=train_s,staleness_mean,target.step --target=0.3 --x=simulate.workers --y=train_s"
# shellcheck disable=SC2086 # a list
good variants $of_variants --baseline=variant=sync
count() { grep -c "^tune,$1," variants/runs.csv; }
[ "$(count sync)" = 4 ] && [ "$(count '"asgd, slow"')" = 6 ] && [ "$(count slowmo)" = 8 ] ||
  { cat variants/runs.csv; fail "the variants do not have their own values"; }
[ "$(grep -l 'jitter: .*lognormal 0.5' variants/runs/*/config.yaml | wc -l)" = 10 ] &&
  [ "$(grep -lE 'outer_momentum: (0.2|0.5)$' variants/runs/*/config.yaml | wc -l)" = 12 ] ||
  fail "runs do not have the options of their variants"
for run in variants/runs/variant=asgd*workers=4*run.seed=[12]-*/; do
  [ -e "$run/summary.json" ] || continue
  echo "$(json_number train_s "$run/summary.json")" "$(json_number staleness_mean "$run/summary.json")" \
    "$(sed -n 's/^{"step":\([0-9]*\),.*"validation_accuracy":0.\([3-9]\).*/\1/p' "$run/metrics.jsonl" | head -1)"
done | awk '{ t += $1; s += $2; if ($3 != "") { k += $3; n++ } }
  END { printf "%.6f %.6f %s\n", t / NR, s / NR, n ? sprintf("%.6f", k / n) : "" }' > expected
grep '^"asgd, slow",4,' variants/results.csv |
  awk -F, '{ printf "%.6f %.6f %s\n", $(NF - 2), $(NF - 1), $NF == "" ? "" : sprintf("%.6f", $NF) }' | diff expected - ||
  fail "figures are not those of the summaries"
grep -c '^<[a-z]* class="dot' variants/picture.svg | grep -qx 6 && # and one dot for each of three rows in the legend
  [ "$(grep -o 'class="dot' variants/picture.svg | wc -l)" = 21 ] ||
  fail "the picture does not have a dot for each mean and seed"
cp variants/results.csv before
timeout 60 "$TRIREME" sweep variants > again 2>&1 || { cat again; fail "sweep DIR with variants"; }
cmp before variants/results.csv || fail "sweep DIR with variants gives other results"
echo 'sync | --strategy.name=sync --train.label_smoothing=0.125' > lines
# shellcheck disable=SC2086
good variants ${of_variants/,strategy.outer_momentum/}
[ "$(grep -l 'label_smoothing: 0.125' variants/runs/variant=sync*/config.yaml | wc -l)" -gt 0 ] &&
  [ "$(find variants/runs -path '*variant=sync*summary.json' | wc -l)" = 16 ] ||
  fail "a variant with other options has not been run again"
pass "variants have options and tuned values of their own; figures and picture are those of the runs"

# Slurm: the scripts' tasks, one after the other, by a stand-in for sbatch.
good tasks --optim.lr=0.01,0.1,0.5 --tune=optim.lr --run.seed=1,2 --slurm
[ ! -e tasks/results.csv ] && [ -z "$(ls tasks/runs)" ] || fail "--slurm has run something"
mkdir bin
cat > bin/sbatch << 'EOF'
#!/bin/bash
for word; do
  case $word in
  --array=*) array=${word#--array=} ;;
  --export=*) IFS=, read -ra set <<< "${word#--export=ALL,}"; export "${set[@]}" ;;
  esac
done
if [ -n "${array-}" ]; then
  for SLURM_ARRAY_TASK_ID in $(seq "${array%-*}" "${array#*-}"); do
    export SLURM_ARRAY_TASK_ID
    bash "${!#}" > /dev/null 2>> tasks.log
  done
else
  bash "${!#}" > /dev/null 2>> tasks.log
fi
echo 7
EOF
chmod +x bin/sbatch
PATH=$PWD/bin:$PATH bash tasks/submit.sh > submit.log 2>&1 || { cat submit.log tasks.log; fail "submit.sh"; }
good direct --optim.lr=0.01,0.1,0.5 --tune=optim.lr --run.seed=1,2
for file in results.csv runs.csv table.md; do same tasks direct $file; done
pass "the tasks of a job array give the same bytes"

refused "is neither yes nor no" --data.shuffle=yes,perhaps
refused 'unknown option "optim.rl"; did you mean "optim.lr"?' --optim.rl=1,2
refused "is given twice" --optim.lr=0.1,0.10
refused "has no list of values" --tune=optim.lr --optim.name=sgd,adam
refused "a range of a grid is of whole numbers" --optim.lr=0.1..0.5
refused "is no value of an option" --optim.lr=0.1,0.2 --baseline=optim.lr=0.3
echo 'a --optim.lr=1' > lines
refused 'has no "| options"' --variants=lines
printf 'a | --optim.lr=1\na | --optim.lr=2\n' > lines
refused "is given twice" --variants=lines
refused "has a list of values, too" --variants=lines --optim.lr=1,2
lists=()
for key in optim.lr optim.decay optim.l2 optim.clip optim.momentum optim.beta1 optim.beta2 train.batch train.epochs run.jitter \
           train.label_smoothing data.limit strategy.lambda strategy.alpha strategy.memory; do
  lists+=("--$key=0.5,0.25")
done
for i in "${!lists[@]}"; do # whole numbers, and a text
  case ${lists[i]} in
    --train.batch=* | --train.epochs=* | --data.limit=*) lists[i]="${lists[i]%%=*}=1,2" ;;
    --run.jitter=*) lists[i]="--run.jitter=; lognormal 0.1" ;;
  esac
done
echo 'a | --strategy.name=sync' > lines
refused "more than 15 options with lists" --variants=lines "${lists[@]}"
refused "more than 15 options with lists" "${lists[@]}" --strategy.rate_bound=1,2
refused "make more than 1000000 runs" --train.batch=1..10000 --tune=data.limit --data.limit=1..10000
echo 'a | --strategy.name=sync --train.epochs=1' > lines
refused "train.epochs have one value" --variants=lines --optim.lr=0.1,0.2 --tune=optim.lr --search=halving
echo 'a | --optim.lr=1 --run.seed=2' > lines
refused "run.seed is not a variant's" --variants=lines
refused "it cannot be read" --variants=missing
refused "no option with a list of numbers" --optim.lr=0.1,0.2 --x=strategy.tau
refused "is not in --figures" --optim.lr=0.1,0.2 --x=optim.lr --y=train_s
refused "needs --target" --optim.lr=0.1,0.2 --figures=target.step
# flags that would have no effect
refused "--tune-seeds: is for values of the options of --tune" --optim.lr=0.1,0.2 --tune-seeds=101,102
refused "--search: is for values of the options of --tune" --optim.lr=0.1,0.2 --search=grid
refused "--trials: needs --search=random" --optim.lr=0.1,0.2 --tune=optim.lr --trials=2
refused "--search-seed: needs --search=random" --optim.lr=0.1,0.2 --tune=optim.lr --search=halving --search-seed=2
refused "--target: needs --figures" --optim.lr=0.1,0.2 --target=0.9
refused "--y: needs --x" --optim.lr=0.1,0.2 --figures=train_s --y=train_s
refused "--slurm: excludes --collect" --optim.lr=0.1,0.2 --slurm --collect
refused "--jobs: --collect" --optim.lr=0.1,0.2 --collect --jobs=2
refused "--retry: --collect" --optim.lr=0.1,0.2 --collect --retry
[ ! -e refused/runs ] || fail "a refused sweep has begun"
for flag in dir=x variants=x tune=optim.lr tune-seeds=102 search=random trials=3 search-seed=2; do
  "$TRIREME" sweep plain --$flag > begun 2>&1
  [ $? = 2 ] && grep -qF -- "--${flag%%=*}: the sweep began, and this is fixed" begun ||
    { cat begun; fail "--$flag is not refused where the sweep began"; }
done
refused "set data.validation" --optim.lr=0.1,0.2 --tune=optim.lr --data.validation=0 --dir=novalidation

pass "wrong lists are refused"
finish
