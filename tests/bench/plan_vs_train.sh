#!/bin/bash
# Step times predicted by `trireme plan` compared with those of `trireme train`, layout by layout.
#
#   [ROUNDS=3] [RANKS="2 4"] [MODELS="gpt mlp"] [STEPS=15] [ONLY=REGEX] tests/bench/plan_vs_train.sh
#
# In each round the planner measures this machine for a number of ranks, and all layouts of as many are trained; the
# measured time is the median of the steps, without the first three. More ranks than cores are bound to cores
# round-robin, as the plan assumes, if the launcher can (MPICH's); otherwise the system may put two busy stages on one
# core and two waiting ones on another. Prints medians over rounds and predicted / measured; last, the number of ratios
# within 0.8 and 1.2.
ROUNDS=${ROUNDS:-3}
. "$(dirname "$0")/lib.sh"
RANKS=${RANKS:-2 4}
MODELS=${MODELS:-gpt mlp}
STEPS=${STEPS:-15}
ONLY=${ONLY:-.}
cores=$(env -u OMP_NUM_THREADS nproc) # which that would tell otherwise
export OMP_NUM_THREADS=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
awk 'BEGIN {
  for (i = 0; i < 20000; i++)
    printf "%s", i % 40 == 39 ? "\n" : substr("abcdefghij klmnop", (i * i + int(i / 7)) % 17 + 1, 1)
}' > text.txt
"$TRIREME" data import text text.txt --out=text.h5 2> /dev/null > /dev/null
"$TRIREME" data make digits --out=digits.h5 --train=4000 --test=100 --seed=7 2> /dev/null > /dev/null
cat > gpt.yaml << 'END'
model: gpt layers=4 heads=4 dim=256 context=128
data: {file: text.h5}
train: {batch: 16, accumulate: 4}
optim: {name: adamw, lr: 1e-3}
END
cat > mlp.yaml << 'END'
model: mlp 784-1536-1536-1024-1024-10 relu
data: {file: digits.h5}
train: {batch: 512, accumulate: 4}
optim: {momentum: 0.9}
END
for model in gpt mlp; do
  printf 'parallel: {threads: 1}\nlog: {quiet: yes, every: 1}\nrun: {overwrite: yes, checkpoint_every: -1}\n' >> $model.yaml
done
# bound N: launcher options that bind N ranks to cores round-robin
bound() {
  local places=-bind-to\ user:$(seq 0 $(($1 - 1)) | awk -v c="$cores" '{ printf("%s%d", NR > 1 ? "," : "", $1 % c) }')
  $MPIEXEC $places -n 1 true > /dev/null 2>&1 && echo "$places"
}

# DATA PIPELINE TENSOR SCHEDULE ZERO SHARE
layouts() {
  if [ "$1" = 2 ]; then
    printf '%s\n' '2 1 1 1f1b 0 node' '2 1 1 1f1b 0 none' '2 1 1 1f1b 1 none' '2 1 1 1f1b 2 none' '2 1 1 1f1b 3 none' \
      '2 1 1 1f1b 2 node' '1 2 1 1f1b 0 node' '1 2 1 gpipe 0 node' '1 1 2 1f1b 0 node'
  else
    printf '%s\n' '4 1 1 1f1b 0 node' '4 1 1 1f1b 3 none' '4 1 1 1f1b 2 node' '1 4 1 1f1b 0 node' '1 4 1 gpipe 0 node' \
      '1 1 4 1f1b 0 node' '2 2 1 1f1b 0 node' '2 2 1 gpipe 2 none' '2 1 2 1f1b 0 node' '2 1 2 1f1b 3 none' \
      '1 2 2 1f1b 0 node'
  fi
}
# predicted FILE DATA PIPELINE TENSOR SCHEDULE ZERO: seconds; levels or schedules that are equivalent are listed once
predicted() {
  local schedule="\"$5\"" level
  [ "$3" = 1 ] && schedule=null
  for level in $(seq "$6" -1 0); do
    sed 's/{"data":[0-9]*,"pipeline":[0-9]*,"tensor":[0-9]*,"schedule"/\n&/g' "$1" |
      grep "^{\"data\":$2,\"pipeline\":$3,\"tensor\":$4,\"schedule\":$schedule,.*\"zero\":$level,\"recompute\":\"none\"" |
      head -1 > row.json
    [ -s row.json ] && break
  done
  sed 's/"axis_s".*//' row.json | json_value step_s
}
measured() {
  MPIEXEC="$MPIEXEC $(bound "$1")" job "$@" > train.log 2>&1 || { cat train.log >&2; exit 1; }
  sed -n 's/.*"wall_s":\([-+0-9.eE]*\),"loss".*/\1/p' run/metrics.jsonl |
    awk 'NR > 3 { print $1 - before } { before = $1 }' > times
  median $(cat times)
}

for round in $(seq "$ROUNDS"); do
  for model in $MODELS; do
    for ranks in $RANKS; do
      for share in node none; do
        job 2 plan $model.yaml --ranks="$ranks" --json --parallel.share=$share > $share.json 2> plan.log ||
          { cat plan.log >&2; exit 1; }
      done
      while read -r d p t schedule zero share; do
        name="$model $d $p $t $schedule $zero $share"
        [[ $name =~ $ONLY ]] || continue
        a=$(predicted $share.json "$d" "$p" "$t" "$schedule" "$zero")
        wanted "plan: $name" "$a"
        b=$(measured "$ranks" train $model.yaml --run.dir=run --train.steps="$STEPS" --parallel.data="$d" \
          --parallel.pipeline="$p" --parallel.tensor="$t" --parallel.schedule="$schedule" --parallel.zero="$zero" \
          --parallel.share="$share" < /dev/null)
        echo "$name $a $b" >> all
        echo "round $round: $name $a $b" >&2
      done < <(layouts "$ranks")
    done
  done
done
printf '%-5s %5s %5s %7s %-9s %5s %5s %12s %12s %8s\n' model data pipe tensor schedule zero share predicted measured ratio
cut -d' ' -f1-7 all | awk '!seen[$0]++' > names
while read -r name; do
  a=$(median $(grep "^$name " all | cut -d' ' -f8)) b=$(median $(grep "^$name " all | cut -d' ' -f9))
  printf '%-5s %5s %5s %7s %-9s %5s %5s %9.2f ms %9.2f ms %8.3f\n' $name "$(awk "BEGIN { print 1e3 * $a }")" \
    "$(awk "BEGIN { print 1e3 * $b }")" "$(ratio "$a" "$b")"
done < names | tee rows
awk '{ inside += $NF >= 0.8 && $NF <= 1.2; off = $NF > 1 ? $NF : 1 / $NF; most = off > most ? off : most }
     END { printf "%d of %d within 20 %%, the furthest by a factor of %.2f\n", inside, NR, most }' rows
