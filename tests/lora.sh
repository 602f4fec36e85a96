#!/bin/bash
# Low-rank adapters (model.lora): they begin as the model without them, are trained alone, in every layout as on one
# rank, are in checkpoints, and are merged by export.
set -u
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/fine_tuning_lib.sh"

COMPARE=$(dirname "$TRIREME")/tests/support/compare_weights
# close_to A B: the weights of two runs
close_to() {
  local worst
  worst=$("$COMPARE" "$1/checkpoints/last.h5" "$2/checkpoints/last.h5") && at_least 1e-5 "$worst" ||
    fail "$2: weights differ from those of $1 by $worst"
}
first_loss() { grep -o '"loss":[^,}]*' "$1/metrics.jsonl" | head -1; }

write gpt "gpt layers=2 heads=2 dim=16 context=20" text.h5
write mlp "linear 40 | gelu | linear 30 | gelu | linear 10" digits.h5
config=gpt.yaml
run 1 base
lora=(--model.init=base '--model.lora=attn|mlp' --model.lora_rank=4 --model.freeze=.)

# -- the first loss is that of the model without adapters, then only they move
run 1 plain --model.init=base --train.steps=1 --optim.lr=0
run 1 start "${lora[@]}" --train.steps=1 --optim.lr=0
[ "$(first_loss plain)" = "$(first_loss start)" ] || fail "adapters change the first loss: $(first_loss start)"
run 1 one "${lora[@]}"
expect 'weights of base/checkpoints/last.h5: 28 of 44 parameters loaded$' one.log
expect 'trained: 16 of 44 parameters, 2048 of 9248 values' one.log
[ "$(of one trained_parameters)" = 2048 ] && [ "$(of one gradient_bytes)" = 8192 ] || fail "one: more than adapters"
if command -v python3 > /dev/null; then
  export_of base base.safetensors
  export_of start start.safetensors
  export_of one one.safetensors
  cmp base.safetensors start.safetensors || fail "export without updates: other bytes than without adapters"
  # by name: those that differ
  python3 - > differ.txt << 'EOF' || fail "the exported names or shapes are not those of the model without adapters"
import json, struct
def read(path):
    data = open(path, "rb").read()
    n, = struct.unpack("<Q", data[:8])
    return {name: (entry["shape"], data[8 + n + entry["data_offsets"][0]:8 + n + entry["data_offsets"][1]])
            for name, entry in json.loads(data[8:8 + n]).items() if name != "__metadata__"}
base, one = read("base.safetensors"), read("one.safetensors")
assert {name: shape for name, (shape, _) in base.items()} == {name: shape for name, (shape, _) in one.items()}
print(*(name for name in base if base[name][1] != one[name][1]), sep="\n")
EOF
  [ "$(wc -l < differ.txt)" = 8 ] && [ "$(grep -cE '(c_attn|c_proj|c_fc).weight' differ.txt)" = 8 ] ||
    { cat differ.txt; fail "not the eight adapted weights have moved"; }
  # merged weights score as adapters do
  "$TRIREME" eval one --json > one.json 2> eval.log && "$TRIREME" eval one.safetensors --json --data.file=text.h5 \
    --model="gpt layers=2 heads=2 dim=16 context=20" > merged.json 2>> eval.log || { cat eval.log; fail "eval"; }
  awk -v a="$(json_number loss one.json)" -v b="$(json_number loss merged.json)" \
    'BEGIN { exit !(a > 1 && a - b < 1e-5 && b - a < 1e-5) }' ||
    fail "merged: loss $(json_number loss merged.json), not $(json_number loss one.json)"
  pass "export merges adapters: names and shapes of the model without them, the same loss"
fi
"$TRIREME" generate one --prompt=abc --tokens=5 > generate.log 2>&1 || { cat generate.log; fail "generate"; }
"$TRIREME" predict one --out=one.jsonl > predict.log 2>&1 || { cat predict.log; fail "predict"; }
pass "adapters alone are trained; eval, predict and generate take them"

# -- restart, and layouts
run 1 half "${lora[@]}" --train.steps=3
run 1 half "${lora[@]}" --run.resume=auto
equal one half
refuses 'model.lora: matches no weight of a linear layer; the first one is called h.0.attn.c_attn' --model.lora=wte
refuses 'model.freeze: matches no parameter' --model.lora=attn --model.freeze=lora_A
refuses "model.lora: 'attn\\(' is no regular expression" '--model.lora=attn('
run 1 rebased --train.steps=1 --model.init=one '--model.lora=attn|mlp' --model.lora_rank=4 --optim.lr=0
expect '44 of 44 parameters loaded$' rebased.log
refuses 'the model has no place for tensor h.0.attn.c_attn.lora_A.weight' --model.init=one
# layouts FILE RUN OPTION...: as the run of one rank
layouts() {
  local config=$1 reference=$2 ranks name options
  shift 2
  while read -r ranks name options; do
    # shellcheck disable=SC2086 # a list of options
    run "$ranks" "$reference-$name" "$@" $options
    close_to "$reference" "$reference-$name"
  done << EOF
2 data
3 uneven
2 tensor --parallel.tensor=2
3 tensor3 --parallel.tensor=3
4 hybrid --parallel.tensor=2 --parallel.pipeline=2 --train.accumulate=2
2 stages --parallel.pipeline=2 --train.accumulate=2
2 zero1 --parallel.zero=1
2 zero3 --parallel.zero=3
1 recompute --parallel.recompute=block
EOF
}
layouts gpt.yaml one "${lora[@]}"
run 2 one-positions "${lora[@]}" --parallel.tensor=2 --parallel.sequence=yes
close_to one one-positions
run 1 lanes1 "${lora[@]}" --run.lanes=2
run 2 lanes2 "${lora[@]}" --run.lanes=2
equal lanes1 lanes2
config=mlp.yaml
run 1 mlp --model.lora=layer2 --model.lora_rank=3 # the other layers are trained
expect 'trained: 6 of 8 parameters' mlp.log
layouts mlp.yaml mlp --model.lora=layer2 --model.lora_rank=3
pass "adapters in layouts"
finish
