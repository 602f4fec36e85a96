#!/bin/bash
# The benches at small sizes: every result is a number, on one rank and on several; temporary files are removed. Speed
# is not tested here (see tests/bench).
set -u
. "$top_srcdir/tests/lib.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99

# figures KEY...: each is a positive number on each line of out.json
figures() {
  local key
  for key in "$@"; do
    [ "$(json_number "$key" out.json | wc -l)" -eq "$(wc -l < out.json)" ] ||
      { cat out.json; fail "a line without $key"; }
    for value in $(json_number "$key" out.json); do
      at_least "$value" 1e-12 || { cat out.json; fail "$key is $value"; }
    done
  done
}

"$TRIREME" bench gemm --shapes=64x48x32,8x9x10:tn,5x7x300:nt --threads=1 --repeat=3 --json > out.json ||
  fail "bench gemm"
figures m n k product_s gflop_per_s
[ "$(wc -l < out.json)" -eq 3 ] || fail "three shapes, $(wc -l < out.json) lines"
pass "bench gemm"
if grep -q '^BLAS_LIBS = .*openblas-openmp' "$top_builddir/Makefile"; then
  grep -q USE_OPENMP out.json || { cat out.json; fail "configured with OpenBLAS on OpenMP, running with another one"; }
  pass "the BLAS that configure chose"
fi

for ranks in 1 3; do
  launch $ranks "$TRIREME" bench step --model="mlp 20-30-5 tanh" --batch=8 --steps=3 --warmup=1 --threads=1 --peak=256 \
    --json > out.json ||
    fail "bench step, $ranks ranks"
  figures step_s items_per_s model_s strategy_s bound_s products_s optimizer_s share_of_bound
  [ "$(json_number ranks out.json)" = $ranks ] && [ "$(json_number params out.json)" = 785 ] ||
    { cat out.json; fail "bench step: wrong job"; }
  pass "bench step, $ranks ranks"
done

for model in lenet5 "gpt layers=1 heads=2 dim=8 context=12" "linear 8 | batch_norm | dropout 0.5 | linear 10"; do
  for ranks in 1 2; do # the bound on one
    [ $ranks = 1 ] && bound=yes || bound=no
    launch $ranks "$TRIREME" bench step --model="$model" --batch=2 --steps=2 --warmup=1 --threads=1 --bound=$bound \
      --peak=256 --json > out.json ||
      fail "bench step of $model, $ranks ranks"
    figures step_s items_per_s
    [ $ranks = 2 ] || figures bound_s memory_gb_per_s product_gflop_per_s
    pass "bench step of $model, $ranks ranks"
    [ $ranks = 1 ] || continue
    for s in $(grep -o '"part_s":[0-9.e-]*' out.json | cut -d: -f2) $(json_number step_s out.json); do echo "$s"; done |
      awk '{ sum += last; last = $1 } END { exit !(NR > 4 && sum > 0.1 * last && sum < 1.0001 * last) }' ||
      { cat out.json; fail "bench step of $model: the parts do not add up to the step"; }
    pass "the parts add up to the step"
  done
done
slots='/^struct trm_device_ops/,/^};/s/.*(\*\([a-z0-9_]*\))(struct trm_device .*/\1/p'
for slot in $(sed -n "$slots" "$top_srcdir/src/core/device.h" | grep -vx slot); do
  grep -qF "  .$slot = timed_$slot," "$top_srcdir/kernels/timed_device.c" || fail "timed_device.c does not forward $slot"
done
pass "every operation of a device is timed"

for ranks in 2 3 4; do # 4: on nodes of 3 and 1
  [ $ranks -lt 4 ] || export TRM_NODE_SIZE=3
  launch $ranks "$TRIREME" bench allreduce --max=64K --pool=1M --repeat=2 --json > out.json ||
    fail "bench allreduce, $ranks ranks"
  figures bytes median_s low_s high_s
  [ "$(json_number ranks out.json | sort -u)" = $ranks ] || { cat out.json; fail "bench allreduce: wrong job"; }
  for method in library doubling halving circulant ring shared; do
    [ "$(grep -c "\"method\":\"$method\"" out.json)" -eq 3 ] ||
      { cat out.json; fail "bench allreduce: $method is not at three sizes"; }
  done
  grep '"method":"shared"' out.json > shared.json
  mv shared.json out.json
  [ $ranks = 4 ] || figures bound_s memory_gb_per_s
  unset TRM_NODE_SIZE
  pass "bench allreduce, $ranks ranks"
done

# rows TEXT...: lines of out.json with every TEXT
rows() {
  local text
  cp out.json rows.json
  for text in "$@"; do grep -F -- "$text" rows.json > next.json; mv next.json rows.json; done
  wc -l < rows.json
}
for ranks in 2 3; do
  launch $ranks "$TRIREME" bench rma --repeat=1 --sleep=100,300 --json > out.json || fail "bench rma, $ranks ranks"
  figures ranks bytes latency_s gb_per_s
  for window in mpi shared; do
    operations="get put accumulate"
    targets="idle busy"
    if [ $window = shared ]; then operations="$operations add"; else targets="$targets helper"; fi
    for target in $targets; do
      rows=1
      [ "$target" = helper ] && rows=2
      for operation in $operations; do
        for bytes in 8 4096 262144 4194304; do
          [ "$(rows "\"window\":\"$window\"" "\"operation\":\"$operation\"" "\"target\":\"$target\"" \
            "\"bytes\":$bytes,")" -eq $rows ] ||
            { cat out.json; fail "bench rma: $window $operation of $bytes bytes, $target: not $rows"; }
        done
      done
      [ "$(rows "\"window\":\"$window\"" '"operation":"fetch_add"' "\"target\":\"$target\"" \
        '"bytes":8,')" -eq $rows ] ||
        { cat out.json; fail "bench rma: $window fetch_add, $target: not $rows"; }
    done
  done
  [ "$(rows '"sleep_us":100,')" -eq 13 ] && [ "$(rows '"sleep_us":300,')" -eq 13 ] ||
    { cat out.json; fail "bench rma: times of sleep"; }
  grep -v '"target":"idle"' out.json > computing.json
  mv computing.json out.json
  figures speed quiet_speed
  pass "bench rma, $ranks ranks"
done

launch 2 "$TRIREME" bench service --bytes=400004 --rounds=2 --json > out.json || fail "bench service"
figures bytes exchange_s plain_s part_of_plain
for way in shared server thread; do
  [ "$(rows "\"way\":\"$way\"")" -eq 1 ] || { cat out.json; fail "bench service: $way"; }
done
pass "bench service"

"$TRIREME" data make digits --out=digits.h5 --train=300 --test=50 > /dev/null 2>&1 || fail "data make digits"
for ranks in 1 2; do
  launch $ranks "$TRIREME" bench io digits.h5 --repeat=1 --json > out.json || fail "bench io, $ranks ranks"
  figures bytes gb_per_s read_gb_per_s share
  pass "bench io, $ranks ranks"
done

# --tune writes a file that training takes: of two ranks in a node, and of two nodes of two ranks
for ranks in 2 4; do
  [ $ranks = 2 ] || export TRM_NODE_SIZE=2
  launch $ranks "$TRIREME" bench allreduce --tune --max=16K --pool=64K --repeat=1 > log || fail "bench allreduce --tune"
  kinds=$(grep -o '"collective":"[a-z -]*","domain":"[a-z]*","ranks":[0-9]*' collectives.json | sort | uniq -c |
    awk '$1 != 2 { wrong = 1 } END { print wrong ? 0 : NR }')
  [ "$kinds" -eq $((ranks == 2 ? 5 : 15)) ] || { cat collectives.json; fail "bench allreduce --tune: $kinds kinds"; }
  launch $ranks "$TRIREME" train --model="mlp 784-20-10 tanh" --data.file=digits.h5 --train.steps=4 --train.batch=16 \
    --parallel.share=none --parallel.collectives=collectives.json --run.dir=tuned-$ranks > log 2>&1 ||
    { cat log; fail "train with the file of bench allreduce --tune, $ranks ranks"; }
  unset TRM_NODE_SIZE
  pass "bench allreduce --tune and train, $ranks ranks"
done
sed '3s/"bytes"/"byte"/' collectives.json > damaged.json
launch 2 "$TRIREME" train --model="mlp 784-20-10 tanh" --data.file=digits.h5 --parallel.collectives=damaged.json > log 2>&1
[ $? -eq 2 ] && grep -qF 'damaged.json:3: unknown entry "byte"' log || { cat log; fail "a damaged file is not refused"; }
pass "parallel.collectives refuses a damaged file"

# 300 rows of two classes, given by the parity of their features
awk 'BEGIN { srand(3); for (i = 0; i < 300; i++) { c = i % 2; line = c ? "+1" : "-1"; at = 0
  for (e = 0; e < 5; e++) { at += 2 + 2 * int(8 * rand()); line = line " " (at + c) ":" (1 + int(9 * rand())) / 4 }
  print line } }' > two.libsvm
"$TRIREME" data import libsvm two.libsvm --test-part=0.2 --normalize --out=two.h5 > /dev/null 2>&1 ||
  fail "import two.libsvm"
for ranks in 1 2 3; do
  for more in "" "--mu=0.1 --train.loss=logistic" "--strategy.rows=4"; do
    launch $ranks "$TRIREME" bench hogwild --data.file=two.h5 --train.batch=16 --repeat=2 --optim.lr=1 $more \
      --json > out.json ||
      fail "bench hogwild $more, $ranks ranks"
    figures plain_rows_per_s copied_rows_per_s in_place_rows_per_s shared_rows_per_s copies_rows_per_s \
      cost_of_plain shared_speedup copies_speedup
    for error in plain_error in_place_error shared_error copies_error; do
      at_least 0.05 "$(json_number $error out.json)" || { cat out.json; fail "bench hogwild $more: $error"; }
    done
    pass "bench hogwild $more, $ranks ranks"
  done
done

refused() { # refused TEXT ARGUMENT...
  local text=$1
  shift
  "$TRIREME" bench "$@" > log 2>&1
  [ $? -eq 2 ] || { cat log; fail "bench $*: not status 2"; }
  grep -qF -- "$text" log || { cat log; fail "bench $*: does not say: $text"; }
  pass "bench $*: $text"
}
refused 'did you mean "step"' stp
refused 'did you mean --shapes' gemm --shape=3x3x3
refused 'needs two ranks' rma
refused 'wants two ranks' service
refused 'at "5ms"' rma --sleep=100,5ms
refused 'at "3x4"' gemm --shapes=3x4
refused 'did you mean "optim.lr"' step --optim.lt=1
refused 'must have sparse rows of two classes' hogwild --data.file=digits.h5
refused 'no data set named' hogwild

# the manual page knows every command
for command in $("$TRIREME" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
  grep -q "^\.B $command\$" "$top_srcdir/cli/trireme.1" || fail "the manual page does not list the command $command"
done
pass "manual page"
finish
