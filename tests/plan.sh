#!/bin/bash
# trireme plan: consistent results, refusals, and planned memory compared with runs.
set -u
. "$(dirname "$0")/lib.sh"
scratch
letters
digits 2000 200
cat > gpt.yaml << 'END'
model: gpt layers=4 heads=4 dim=256 context=128
data: {file: text.h5}
train: {batch: 16, accumulate: 2, steps: 2}
optim: {name: adamw, lr: 1e-3}
parallel: {threads: 1}
log: {quiet: yes}
END
cat > mlp.yaml << 'END'
model: mlp 784-2048-1024-10 relu
data: {file: digits.h5}
train: {batch: 256, accumulate: 2, steps: 2}
optim: {momentum: 0.9}
parallel: {threads: 1}
log: {quiet: yes}
END

plan() { "$TRIREME" plan "$@" 2> plan.log || { cat plan.log; fail "plan $*"; }; }
# figure FILE DATA PIPELINE TENSOR ZERO KEY: of the first such layout without recomputation
figure() {
  sed 's/{"data":[0-9]*,"pipeline":[0-9]*,"tensor":[0-9]*,"schedule"/\n&/g' "$1" |
    grep "^{\"data\":$2,\"pipeline\":$3,\"tensor\":$4,.*\"zero\":$5,\"recompute\":\"none\"" |
    grep -v '"schedule":"\(gpipe\|interleaved\)"' | head -1 > row.json
  json_number "$6" row.json
}
holds() { awk "BEGIN { exit !($1) }" || fail "$2: $1"; pass "$2"; }
refused() {
  local status=$1 words=$2
  shift 2
  "$TRIREME" plan "$@" > out 2> err
  [ $? = "$status" ] && grep -q "$words" err || { cat out err; fail "plan $*: not refused with $status, $words"; }
  pass "plan $*: $words"
}

# -- figures
plan gpt.yaml --ranks=4 --json --parallel.share=none --calibrate=machine.json > gpt4.json
arrays() {
  echo "$(figure gpt4.json "$@" parameters) + $(figure gpt4.json "$@" gradients) + $(figure gpt4.json "$@" states)"
}
whole=$(sed 's/"layouts".*//' gpt4.json > head.json && json_number parameters head.json) # bytes of the model's weights
times=$(json_number measurements head.json)
holds "$times >= 2 && $times <= 5 && $(json_number equal_to_best head.json) >= 0" "the machine is measured 2 to 5 times"
holds "$(json_number spread head.json) <= 0.03 || $times == 5" "until two measurements agree"
[ -n "$(figure gpt4.json 4 1 1 3 total)" ] || fail "no layout of four ranks with zero 3"
holds "$(arrays 4 1 1 0) >= 16 * $whole" "a rank of four with its own arrays has all of them"
holds "$(arrays 4 1 1 3) < 0.3 * ($(arrays 4 1 1 0))" "zero 3 divides them"
holds "$(figure gpt4.json 4 1 1 2 total) < $(figure gpt4.json 4 1 1 1 total)" "zero 2 takes less than 1"
holds "4 * $(figure gpt4.json 1 1 4 0 parameters) >= 4 * $whole" "the parts of four are the whole"
holds "$(figure gpt4.json 1 1 4 0 parameters) < 1.1 * $whole" "a part of four is a quarter"
holds "$(figure gpt4.json 1 1 4 0 tensor) > 0 && $(figure gpt4.json 1 1 4 0 step_s) > 0" "it has messages, and takes time"
plan gpt.yaml --ranks=4 --json --parallel.share=none --machine=machine.json > again.json
sed 's/.*"layouts"//' gpt4.json > a && sed 's/.*"layouts"//' again.json > b
# the program's own memory is measured in each run
sed -i 's/"\(program\|total\|resident\|data\)":[0-9.e+]*//g' a b
cmp -s a b || fail "a machine read from its file gives another plan"
pass "a machine read from its file gives the same plan"
plan gpt.yaml --ranks=4 --machine=machine.json > table
[ "$(grep -c ' x tensor' table)" = 13 ] && grep -q 'more (--all)' table && grep -q '^best: ' table ||
  { cat table; fail "the table does not have twelve layouts and the best one"; }
pass "the table"
plan gpt.yaml --ranks=8 --nodes=2 --machine=machine.json | grep -q 'between nodes (given)' || fail "two nodes"
pass "two nodes"

# -- refusals
refused 2 'ranks' gpt.yaml --ranks=0
refused 2 'no number of ranks given' gpt.yaml
refused 2 'unknown flag' gpt.yaml --ranks=2 --rank=2
refused 2 'same number of ranks' gpt.yaml --ranks=4 --nodes=3
refused 2 'bytes, such as' gpt.yaml --ranks=2 --memory=much
refused 2 'no data set' --model="mlp 4-2" --ranks=2
refused 2 'exchange whole models.*strategy.name=asgd' gpt.yaml --ranks=2 --strategy.name=asgd
refused 2 'parallel.schedule=pipedream or 2bw' gpt.yaml --ranks=2 --parallel.schedule=2bw --train.accumulate=2
refused 2 'run.lanes' gpt.yaml --ranks=2 --run.lanes=4
refused 2 'no list\|is missing' gpt.yaml --ranks=2 --machine=gpt.yaml
refused 1 'no layout fits' gpt.yaml --ranks=2 --machine=machine.json --memory=10M
refused 2 'strategy.compress=dgc: needs several nodes' mlp.yaml --ranks=2 --strategy.compress=dgc --machine=machine.json
plan mlp.yaml --ranks=2 --nodes=2 --strategy.name=local --all --machine=machine.json > table
grep -q 'not possible: data 2 .*, zero 1: parallel.zero: cannot be combined with a method with local steps' table ||
  { cat table; fail "local steps with sharded arrays are planned"; }
pass "layouts that a method cannot have"
# -- a machine whose device has memory of its own
sed 's/"device":"cpu","device_bytes":0,/"device":"accelerator","device_bytes":4e9,/' machine.json |
  awk '{ own = ""
         for (rest = $0; match(rest, /{"name":"(sum|copy|update)",[^}]*}/); rest = substr(rest, RSTART + RLENGTH)) {
           one = substr(rest, RSTART, RLENGTH)
           sub(/"name":"/, "\"name\":\"device ", one)
           own = own one ","
         }
         sub(/"work":\[/, "\"work\":[{\"name\":\"upload\",\"bytes\":1e6,\"forward_s\":0.5}," \
                           "{\"name\":\"download\",\"bytes\":1e6,\"forward_s\":0.5}," own); print }' > device.json
plan gpt.yaml --ranks=2 --json --parallel.share=none --machine=device.json > device2.json
plan gpt.yaml --ranks=2 --json --parallel.share=none --machine=machine.json > host2.json
holds "$(figure device2.json 2 1 1 0 device) > 2 * $whole" "weights, gradient and activations are on the device"
holds "$(figure device2.json 2 1 1 0 total) > 3 * $whole" "what ranks share is on the host"
holds "$(figure host2.json 2 1 1 0 device) == 0" "a machine without such a device has nothing there"
holds "$(figure device2.json 2 1 1 0 step_s) > $(figure host2.json 2 1 1 0 step_s) + 0.9 * $whole / 1e6" "transfers take time"
plan gpt.yaml --ranks=2 --machine=device.json | grep -q '^device: accelerator, 3815 MB of its own' || fail "the device's line"
sed 's/"device_bytes":4e9/"device_bytes":1e5/' device.json > small.json
refused 1 'no layout fits in 0.1 MB of its device' gpt.yaml --ranks=2 --machine=small.json

# -- two kinds of ranks
both() { sed 's/.*"both":/"both":/' both.json; }
of_kind() { both | sed 's/{"device":"/\n&/g' | grep "^{\"device\":\"$1\"" > row.json && json_number "$2" row.json; }
plan gpt.yaml --ranks=1 --machine=device.json --beside=machine.json --beside-ranks=2 --parallel.shares=measured --json \
  > both.json
both > all.json
slower=$(of_kind cpu update_s) faster=$(of_kind accelerator update_s)
holds "$faster > 2 * 0.5 * 1e-6 * $whole && $slower < $faster" "the accelerator's gradient and weights are moved, not the others'"
holds "$(of_kind cpu device_bytes) == 0 && $(of_kind accelerator device_bytes) > 2 * $whole" "memory of both kinds"
passes=$(printf '%s\n' "$(of_kind cpu passes_s)" "$(of_kind accelerator passes_s)" | sort -g | tail -1)
near=$(json_number both_s all.json)
holds "$near > 0.999 * ($passes + $faster) && $near < 1.001 * ($passes + $faster)" "a step: the longest passes, the longest update"
grep -q '"pays":false' both.json || { cat both.json; fail "ranks that cost two transfers of half a second a megabyte pay"; }
plan gpt.yaml --ranks=1 --machine=machine.json --beside=machine.json --beside-ranks=1 --beside-nodes=1 > table
grep -q '^both: .* ms a step, without the cpu ranks .* ms: they ' table || { cat table; fail "the line of both kinds"; }
pass "two kinds of ranks"
refused 2 'one needs the other' gpt.yaml --ranks=1 --machine=machine.json --beside=machine.json
refused 2 'beside-ranks: 3 ranks on 2 nodes' gpt.yaml --ranks=1 --machine=machine.json --beside=machine.json \
  --beside-ranks=3 --beside-nodes=2
sed 's/"name":"attention/"name":"other/g' machine.json > other.json
refused 2 'beside: the file has no figures of' gpt.yaml --ranks=1 --machine=machine.json --beside=other.json --beside-ranks=1

"$TRIREME" plan --data.file=digits.h5 --model="linear 10" --ranks=2 --all > table 2> err || fail "a model of one layer"
grep -q 'not possible: .*cannot be cut' table || { cat table; fail "a model of one layer is split"; }
pass "a model of one layer has no pipeline layouts"

# -- train uses the best layout
cat > auto.yaml << 'END'
model: mlp 784-64-10 relu
data: {file: digits.h5}
parallel: auto
train: {steps: 2}
END
config=auto.yaml run 2 auto
grep -q '^layout: .* the best of' auto.log || { cat auto.log; fail "parallel: auto prints no layout"; }
grep -q 'layout: given' auto/config.yaml && ! grep -q 'data: -1' auto/config.yaml || fail "parallel: auto records no layout"
pass "parallel: auto"

# -- memory of runs
if ! grep -q '^TRM_SANITIZE = .' "${top_builddir:-$top_srcdir/build}/Makefile"; then
  # near MODEL DATA PIPELINE TENSOR ZERO: planned memory is within a tenth of rank 0's peak. Nothing is shared if
  # gradients are whole, because the part of shared arrays that a rank has touched after two steps is random. Levels 2
  # and 3 differ only if nothing is shared.
  near() {
    local ranks=$(($2 * $3 * $4)) most planned share=none
    [ "$2" = 1 ] || [ "$5" = 2 ] && share=node
    [ -s "$1$ranks$share" ] ||
      plan "$1.yaml" --ranks=$ranks --json --machine=machine.json --parallel.share=$share > "$1$ranks$share"
    planned=$(figure "$1$ranks$share" "$2" "$3" "$4" "$5" resident)
    run_of $ranks "$1" run --run.overwrite=yes --parallel.data="$2" --parallel.pipeline="$3" --parallel.tensor="$4" \
      --parallel.zero="$5" --parallel.share=$share
    most=$(json_number max_resident_bytes run/summary.json)
    echo "   planned $planned bytes, peak $most"
    holds "$planned > 0.9 * $most && $planned < 1.1 * $most" "$1, data $2 pipeline $3 tensor $4 zero $5: memory"
  }
  # on_nodes NODE_SIZE OPTION...: the same of a data axis on two nodes; and the bytes between them. Of two steps, of
  # which local steps make a round; with longer rounds the run ends by the mean over the replicas, whose array is planned.
  on_nodes() {
    local most planned sent counted
    plan mlp.yaml --ranks=$((2 * $1)) --nodes=2 --json --machine=machine.json --parallel.share=none "${@:2}" > nodes.json
    planned=$(figure nodes.json $((2 * $1)) 1 1 0 resident) sent=$(figure nodes.json $((2 * $1)) 1 1 0 between_nodes_bytes)
    TRM_NODE_SIZE=$1 run_of $((2 * $1)) mlp run --run.overwrite=yes --parallel.share=none "${@:2}"
    counted=$(sed -n 's/.*"between_nodes":{"bytes":\([0-9.e+]*\).*/\1/p' run/summary.json)
    [[ $* == *tau* ]] && TRM_NODE_SIZE=$1 run_of $((2 * $1)) mlp run --run.overwrite=yes --parallel.share=none "${@:2}" \
      --strategy.tau=4
    most=$(json_number max_resident_bytes run/summary.json)
    echo "   planned $planned bytes, peak $most; planned $sent between nodes, counted $counted"
    holds "$planned > 0.9 * $most && $planned < 1.1 * $most" "$*, two nodes: memory"
    holds "$counted > 0 && $sent > 0.999 * $counted - 1 && $sent < 1.001 * $counted + 1" "$*, two nodes: bytes"
  }
  for compress in topk powersgd sign bf16; do
    on_nodes 1 --strategy.compress=$compress
    all_cases && on_nodes 2 --strategy.compress=$compress
  done
  for method in local slowmo diloco; do
    on_nodes 1 --strategy.name=$method --strategy.tau=2
    all_cases && on_nodes 2 --strategy.name=$method --strategy.tau=2
  done
  near gpt 2 1 1 0
  near gpt 1 2 1 0
  near mlp 1 1 2 0
  if all_cases; then
    near gpt 2 1 1 2
    near gpt 2 1 1 3
    near gpt 1 1 2 0
    near mlp 2 1 1 0
    near mlp 2 1 1 2
    near mlp 1 2 1 0
    near gpt 4 1 1 0
    near gpt 2 2 1 0
    near gpt 1 2 2 0
    near gpt 2 1 2 0
    near mlp 4 1 1 2
    near mlp 2 1 2 0
  fi
fi
finish
