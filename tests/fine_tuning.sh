#!/bin/bash
# Fine-tuning: initial weights from safetensors files, checkpoints and run directories, in parts (model.skip), and
# frozen parameters (model.freeze), in several layouts.
set -u
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/fine_tuning_lib.sh"

# -- a checkpoint, its run directory and its export begin the same run
write digits "mlp 784-20-10 gelu" digits.h5
config=digits.yaml
run 1 base --run.seed=1
export_of base base.safetensors
n=0
for from in base.safetensors base base/checkpoints/last.h5; do
  run $((n + 1)) from-$n --model.init=$from --train.epochs=0 --train.steps=0
  [ "$(sha from-$n)" = "$(sha base)" ] || fail "$from: other weights than those of the run"
  n=$((n + 1))
done
pass "safetensors, run directory and checkpoint are the same initial weights"
expect 'weights of base/checkpoints/last.h5: 4 of 4 parameters loaded$' from-1.log
grep -q '"file":"base/checkpoints/last.h5","sha256":"[0-9a-f]' from-1/record.json || fail "no checkpoint in record.json"

# -- another head: its parameters stay random
write wider "linear 24 | gelu | linear 10" digits.h5
config=wider.yaml
refuses 'layer0.weight has shape \(20, 784\), but the model.s has \(24, 784\)' --model.init=base
refuses 'layer0.weight has shape \(20, 784\), but the model.s has \(24, 784\)' --model.init=base.safetensors
refuses "model.skip: 'layer2\(' is no regular expression" --model.init=base '--model.skip=layer2('
refuses 'model.skip: names parameters that model.init does not load' --model.skip=layer2
for from in base base.safetensors; do
  run 1 wider-1 --train.steps=1 --model.init=$from --model.skip='layer0|2.weight$' --run.overwrite=yes
  expect '1 of 4 parameters loaded; skipped: .*layer0.weight \(\(20, 784\) in the file, \(24, 784\) here\)' wider-1.log
done
config=digits.yaml
refuses 'model.skip: matches no parameter; the first one is called layer0.weight' --model.init=base --model.skip=head
run 1 random --optim.lr=0
run 1 begun --optim.lr=0 --model.init=base --model.skip='^layer2\.'
export_of begun begun.safetensors
export_of random random.safetensors
# the tensors of a file, one a line, sorted: name and hash of its bytes
tensors() {
  python3 - "$1" << 'END'
import hashlib, json, struct, sys
data = open(sys.argv[1], "rb").read()
n, = struct.unpack("<Q", data[:8])
for name, entry in sorted(json.loads(data[8:8 + n]).items()):
    if name != "__metadata__":
        low, high = entry["data_offsets"]
        print(name, hashlib.sha256(data[8 + n + low:8 + n + high]).hexdigest())
END
}
command -v python3 > /dev/null || skip "python3 compares the tensors of files"
tensors begun.safetensors > begun.txt
{ tensors base.safetensors | grep layer0; tensors random.safetensors | grep layer2; } | cmp - begun.txt ||
  fail "the first layer is not the file's, or the second not the random one"
pass "a partial load: one layer of the file, one random"

# -- parts that only one side has, by the names of another program, in layouts
write letters "gpt layers=2 heads=2 dim=16 context=20" text.h5
write deeper "gpt layers=3 heads=2 dim=16 context=20" text.h5
config=letters.yaml
run 1 gpt
config=deeper.yaml
refuses 'there is no tensor h.2.ln_1.weight' --model.init=gpt
for layout in "1 one" "2 tensor --parallel.tensor=2" "2 sharded --parallel.zero=3"; do
  read -r ranks name options <<< "$layout"
  # shellcheck disable=SC2086 # a list of options
  run "$ranks" "deeper-$name" --model.init=gpt --model.skip='^h\.2\.' --train.steps=0 --train.epochs=0 $options
  [ "$(sha "deeper-$name")" = "$(sha deeper-one)" ] || fail "$name: begins with other weights than one rank"
done
expect '28 of 40 parameters loaded; skipped: h.2.ln_1.weight \(not in the file\)' deeper-one.log
run 1 deep --train.steps=1
config=letters.yaml
refuses 'the model has no place for tensor h.2.ln_1.weight' --model.init=deep
run 1 shallow --model.init=deep --train.steps=1 --model.skip='^h\.2\.'
expect '28 of 28 parameters loaded; skipped: h.2.ln_1.weight \(not in the model\)' shallow.log
pass "a partial load begins all layouts with the same weights"

# -- frozen parameters keep their bits, the others move as without: after one step they have the same bits
config=deeper.yaml
lower='^(wte|wpe|h\.[01]\.)'
run 1 all --train.steps=1 --optim.lr=0.5
run 1 upper --train.steps=1 --optim.lr=0.5 "--model.freeze=$lower"
run 1 still --train.steps=1 --optim.lr=0
for name in all upper still; do
  export_of $name $name.safetensors
  tensors $name.safetensors > $name.txt
done
{ grep -E "$lower" still.txt; grep -vE "$lower" all.txt; } | sort | cmp - <(sort upper.txt) ||
  fail "a frozen parameter moved, or another one did not move as without model.freeze"
[ "$(cat upper.txt | wc -l)" -eq 40 ] && [ "$(comm -3 <(sort still.txt) <(sort upper.txt) | wc -l)" -ge 28 ] ||
  fail "not 14 parameters have moved"
expect 'trained: 14 of 40 parameters, [0-9]* of [0-9]* values: gradients of [0-9.]* MB, [0-9]* % of the op' upper.log
pass "frozen parameters keep their bits, the others are trained"

# -- in layouts: the lower of two stages has nothing to train
frozen=("--model.freeze=$lower" --train.accumulate=2)
run 1 freeze "${frozen[@]}"
COMPARE=$(dirname "$TRIREME")/tests/support/compare_weights
for layout in "2 data" "2 tensor --parallel.tensor=2" "2 sharded --parallel.zero=3"; do
  read -r ranks name options <<< "$layout"
  # shellcheck disable=SC2086
  run "$ranks" "freeze-$name" "${frozen[@]}" $options
  worst=$("$COMPARE" freeze/checkpoints/last.h5 "freeze-$name/checkpoints/last.h5") && at_least 1e-5 "$worst" ||
    fail "freeze-$name: weights differ by $worst"
done
run 2 freeze-stages "${frozen[@]}" --parallel.pipeline=2 --train.steps=3
run 1 freeze-stages "${frozen[@]}" --run.resume=auto
equal freeze freeze-stages

# -- checkpoints have no optimizer states of frozen parameters; runs resume with the same bits, and with other patterns
adam=(--optim.name=adamw --optim.momentum=0 --optim.lr=0.01 --train.accumulate=2)
bytes() { stat -L -c %s "$1/checkpoints/last.h5"; }
for name in all part ema; do
  options=("${adam[@]}" "--model.freeze=$lower")
  [ $name = all ] && options=("${adam[@]}")
  [ $name = ema ] && options+=(--optim.ema=0.9)
  run 1 states-$name "${options[@]}"
  run 2 halves-$name "${options[@]}" --train.steps=3 --parallel.pipeline=2 --run.background=yes --run.checkpoint_every=1
  run 1 halves-$name "${options[@]}" --run.resume=auto
  equal states-$name halves-$name resumed
  [ "$(of states-$name test_loss)" = "$(of halves-$name test_loss)" ] || fail "halves-$name: another test loss"
done
saved=$(($(bytes states-all) - $(bytes states-part)))
[ "$saved" -ge $((2 * 4 * (10480 - 3312))) ] || fail "$saved bytes less, not two states of 10480 - 3312 values"
average=$(($(bytes states-ema) - $(bytes states-part)))
[ "$average" -lt $((4 * 10480 * 3 / 4)) ] || fail "averages take $average bytes, and 3312 of 10480 values have some"
run 1 halves-part "${adam[@]}" --run.resume=auto --train.steps=8 # all are trained from here on
run 1 halves-all "${adam[@]}" "--model.freeze=$lower" --run.resume=auto --train.steps=8 # of a file with all states
for name in halves-part states-part halves-all states-all; do
  export_of $name $name.safetensors
  tensors $name.safetensors | sort > $name.txt
done
[ "$(comm -13 states-part.txt halves-part.txt | wc -l)" = 40 ] || fail "a parameter is still frozen"
{ grep -E "$lower" states-all.txt; grep -vE "$lower" halves-all.txt; } | sort | cmp - halves-all.txt ||
  fail "a frozen parameter moved after the resume"
pass "checkpoints without states of frozen parameters: $(bytes states-part) bytes, not $(bytes states-all)"

# -- what a step sends and computes: of two nodes each sends its gradient once, of trained parameters alone
sent() { sed -n 's/.*"between_nodes":{"bytes":\([0-9]*\).*/\1/p' "$1/summary.json"; } # a step
for name in all part; do
  pattern=$lower
  [ $name = part ] || pattern=
  TRM_NODE_SIZE=1 run 2 sent-$name "--model.freeze=$pattern"
  [ "$(sent sent-$name)" = "$(of sent-$name gradient_bytes)" ] ||
    fail "sent-$name: $(sent sent-$name) bytes a step, for gradients of $(of sent-$name gradient_bytes)"
  # times of the virtual network follow from the operations alone
  run 1 virtual-$name --simulate.workers=1 --device.gflops=1 "--model.freeze=$pattern"
done
[ "$(of sent-all trained_parameters)" = 10480 ] && [ "$(of sent-part trained_parameters)" = 3312 ] &&
  [ "$(of sent-all gradient_bytes)" = $((4 * 10480)) ] && [ "$(of sent-part gradient_bytes)" = $((4 * 3312)) ] ||
  fail "other numbers of trained parameters, or bytes, than those of one block and its norm"
ratio() { awk -v a="$(of "$1-part" "$2")" -v b="$(of "$1-all" "$2")" 'BEGIN { if (b > 0) printf "%.3f", a / b }'; }
awk -v f="$(ratio sent train_flop)" -v t="$(ratio virtual train_s)" \
  'BEGIN { exit !(f > 0.3 && f < 0.6 && t - f < 0.01 && f - t < 0.01) }' ||
  fail "a step has $(ratio sent train_flop) of the operations, and takes $(ratio virtual train_s) of the time"
pass "frozen parameters in layouts; messages of $(sent sent-part) bytes, not $(sent sent-all), $(ratio sent train_flop) \
of the operations and $(ratio virtual train_s) of the modeled time"

# -- frozen statistics: initial ones leave values as they are, so that the network is that without its norms
write fixed "conv2d 6 5 stride=2 bias=no | batch_norm | gelu | conv2d 8 3 bias=no | batch_norm | gelu |
  global_avg_pool | linear 10" digits.h5
write without "conv2d 6 5 stride=2 bias=no | gelu | conv2d 8 3 bias=no | gelu | global_avg_pool | linear 10" digits.h5
losses() { grep -o '"loss":[^,}]*' "$1/metrics.jsonl"; }
config=without.yaml
run 1 without
run 1 begins --optim.lr=0
export_of begins begins.safetensors
python3 - << 'END' || fail "fixed.safetensors"
import json, struct
data = open("begins.safetensors", "rb").read()
n, = struct.unpack("<Q", data[:8])
names = {"layer0.weight": "layer0.weight", "layer2.weight": "layer3.weight", "layer5.weight": "layer7.weight",
         "layer5.bias": "layer7.bias"}
head, body = {}, b""
def add(name, shape, values):
    global body
    head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(values)]}
    body += values
for name, entry in json.loads(data[8:8 + n]).items():
    if name in names:
        low, high = entry["data_offsets"]
        add(names[name], entry["shape"], data[8 + n + low:8 + n + high])
for layer, channels in ((1, 6), (4, 8)):
    for name, value in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
        add(f"layer{layer}.{name}", [channels], struct.pack("<f", value) * channels)
text = json.dumps(head).encode()
open("fixed.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
END
config=fixed.yaml
for ranks in 1 2; do
  run $ranks fixed-$ranks '--model.freeze=^layer[14]\.' --model.init=fixed.safetensors
done
paste <(losses without) <(losses fixed-1) | awk -F '[:\t]' '{ d = ($4 - $2) / $2; if (d < 0) d = -d; n += d < 1e-4 }
  END { exit n != 6 }' || { losses without; losses fixed-1; fail "fixed norms are not the identity"; }
worst=$("$COMPARE" fixed-1/checkpoints/last.h5 fixed-2/checkpoints/last.h5) && at_least 1e-5 "$worst" ||
  fail "fixed norms on 2 ranks: weights differ by $worst"
# statistics of frozen norms that follow the batches need no backward pass, and are the same in all layouts
gains='^layer[0-4]\.(weight|bias)'
run 1 moments "--model.freeze=$gains"
run 1 whole
awk -v a="$(of moments train_flop)" -v b="$(of whole train_flop)" 'BEGIN { exit !(a > 0 && a < 0.5 * b) }' ||
  fail "moments: $(of moments train_flop) operations a sample, of all $(of whole train_flop)"
moved() { export_of "$1" "$1.safetensors"; tensors "$1.safetensors" | grep -cFxvf <(tensors begins-fixed.safetensors); }
run 1 begins-fixed '--model.freeze=^layer[0-4]\.' --optim.lr=0
export_of begins-fixed begins-fixed.safetensors
[ "$(moved moments)" = 6 ] ||
  fail "moments: $(moved moments) parameters have moved, not 4 statistics, a weight and a bias"
for layout in "2 data" "2 stages --parallel.pipeline=2" "2 tensor --parallel.tensor=2" "2 sharded --parallel.zero=3" \
    "1 recompute --parallel.recompute=block"; do
  read -r ranks name options <<< "$layout"
  # shellcheck disable=SC2086
  run "$ranks" "moments-$name" "--model.freeze=$gains" $options
  worst=$("$COMPARE" moments/checkpoints/last.h5 "moments-$name/checkpoints/last.h5") && at_least 1e-5 "$worst" ||
    fail "moments-$name: weights differ by $worst"
done
for ranks in 1 2; do
  run $ranks "moments-lanes$ranks" "--model.freeze=$gains" --run.lanes=2
done
equal moments-lanes1 moments-lanes2
close=$("$COMPARE" moments/checkpoints/last.h5 moments-lanes2/checkpoints/last.h5) && at_least 1e-5 "$close" ||
  fail "moments-lanes: weights differ by $close"
refuses 'matches some of the statistics of layer 1 \(batch_norm\)' --model.freeze=layer1.running_mean
refuses 'model.freeze: matches every parameter' --model.freeze=layer
refuses 'model.freeze: matches no parameter; the first one is called layer0.weight' --model.freeze=head
pass "frozen statistics"

# -- groups in layouts: other updates than without, the same everywhere
config=deeper.yaml
groups=("--optim.groups=bias|ln_: decay=0; wte: rate=0; ^h\.2\.: rate=3" --optim.l2=0.1)
run 1 groups "${groups[@]}"
run 2 groups-stages "${groups[@]}" --parallel.pipeline=2
equal groups groups-stages
for layout in "2 tensor --parallel.tensor=2" "2 sharded --parallel.zero=3"; do
  read -r ranks name options <<< "$layout"
  # shellcheck disable=SC2086
  run "$ranks" "groups-$name" "${groups[@]}" $options
  worst=$("$COMPARE" groups/checkpoints/last.h5 "groups-$name/checkpoints/last.h5") && at_least 1e-5 "$worst" ||
    fail "groups-$name: weights differ by $worst"
done
export_of groups groups.safetensors
[ "$(tensors groups.safetensors | grep wte)" = "$(grep wte still.txt)" ] || fail "wte has moved at a rate of 0"
refuses "optim.groups: 'rate' is not rate=F or decay=F" '--optim.groups=wte: rate'
refuses "optim.groups: 'wte' is not PATTERN: rate=F decay=F" --optim.groups=wte
refuses "optim.groups: 'ln_' matches no parameter that no earlier group has" \
  '--optim.groups=.: rate=1; ln_: rate=2'
refuses "optim.groups: lars takes no decay=F" --optim.name=lars '--optim.groups=wte: decay=0'
pass "parameter groups"
finish
