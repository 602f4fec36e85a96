#!/bin/bash
# Fine-tuning against PyTorch (reference/make_fine_tuning.py): torchvision's ResNet-18 with a new last layer, of which
# only that, or only it and the last stage, is trained; adapters as Hugging Face's peft puts them beside the linear
# layers of a GPT-2. 20 steps each, and an evaluation.
set -u
. "$(dirname "$0")/lib.sh"
reference=$(cd "$(dirname "$0")/reference" && pwd)
command -v python3 > /dev/null || skip "python3 writes the initial weights"
scratch
python3 "$reference/make_fine_tuning.py" --inputs . || fail "make_fine_tuning.py --inputs"
"$TRIREME" data import images pictures --out=pictures.h5 > import.log 2>&1 &&
  "$TRIREME" data import text text.txt --out=text.h5 >> import.log 2>&1 || { cat import.log; fail "data import"; }
cat > resnet.yaml << END
model: resnet18
data: {file: pictures.h5, shuffle: no}
train: {steps: 20, batch: 20}
optim: {name: momentum, momentum: 0.9}
END
cat > gpt.yaml << END
model: gpt layers=2 heads=2 dim=16 context=20
data: {file: text.h5, shuffle: no, limit: 160}
train: {steps: 20, batch: 8}
optim: {name: adamw, decay: 0.1}
END
for file in resnet.yaml gpt.yaml; do
  printf 'parallel: {threads: 1}\nrun: {seed: 3, checkpoint_every: 20}\nlog: {every: 1}\n' >> $file
done

# recorded CASE: its numbers in fine_tuning.txt, one a line: rate, losses, evaluation
recorded() { sed -n "s/^$1 //p" "$reference/fine_tuning.txt" | tr ' ' '\n'; }
# compare CASE RUN: the losses of the run's steps and of its evaluation are the recorded ones within 1e-4
compare() {
  "$TRIREME" eval "$2" --split=train --data.limit=160 --json > eval.log 2>&1 || { cat eval.log; fail "eval $2"; }
  { recorded "$1" | head -1
    grep -o '"loss":[^,}]*' "$2/metrics.jsonl" | cut -d: -f2
    json_number loss eval.log; } > measured
  recorded "$1" | paste - measured > pairs
  awk 'NF != 2 { exit 1 }
       { d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d }
       END { print most; exit !(NR == 22 && most < 1e-4) }' pairs > most ||
    { cat pairs; fail "$1: other losses than PyTorch's"; }
  pass "$1: 20 losses and an evaluation within $(cat most) of PyTorch's"
}
# resnet CASE PATTERN: all but a new last layer begin with the file's weights; what the pattern names is frozen
resnet() {
  config=resnet.yaml
  run 1 "$1" --optim.lr="$(recorded "$1" | head -1)" --model.init=resnet18.safetensors '--model.skip=^fc' \
    "--model.freeze=$2"
  compare "$1" "$1"
}
# gain and bias of frozen norms stay, their running statistics follow the batches, as with requires_grad = False ...
resnet head '^(conv1|bn1|layer[1-4]).*(weight|bias)$'
resnet stage '^(conv1|bn1|layer[1-3]).*(weight|bias)$'
# ... or stay, too, and training normalizes by them, as after eval()
resnet head_fixed '^(conv1|bn1|layer[1-4])'
resnet stage_fixed '^(conv1|bn1|layer[1-3])'

config=gpt.yaml
run 1 lora --optim.lr="$(recorded lora | head -1)" --model.init=gpt.safetensors --model.freeze=. \
  '--model.lora=attn|mlp' --model.lora_rank=4 --model.lora_alpha=6
compare lora lora
finish
