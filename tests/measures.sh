#!/bin/bash
# Measures of the test split: the same in every layout, on a virtual network and by trireme eval; none where they do not
# apply. Predictions as JSON lines give them again.
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 1000 300
letters
cat > config.yaml << 'END'
model: mlp 784-16-10 relu
data: {file: digits.h5}
train: {batch: 50, epochs: 3, accumulate: 2}
optim: {name: sgd, lr: 0.1}
run: {seed: 1}
log: {quiet: yes}
END
keys="top5 f1_macro f1_micro auc ece"

# values PREFIX FILE: the measures
values() {
  local key
  for key in ${chosen:-$keys}; do printf '%s %s ' "$key" "$(json_number "$1$key" "$2")"; done
}
# same WHAT GOT WANT: numbers are equal to 1e-6; an AUC to one of the 30 x 270 pairs of one of 10 classes, whose scores
# may be so near that their order depends on rounding
same() {
  awk -v got="$2" -v want="$3" 'BEGIN {
    n = split(got, a, " "); same = n > 1 && n == split(want, b, " ")
    for (i = 1; i <= n; i += 2) {
      d = a[i + 1] - b[i + 1]
      limit = a[i] == "auc" ? 1 / (30 * 270 * 10) + 1e-6 : 1e-6
      same = same && a[i] == b[i] && a[i + 1] ~ /^-?[0-9.]+(e-?[0-9]+)?$/ && d <= limit && d >= -limit
    }
    exit !same }' || fail "$1: $2, not $3"
}

# predict RUN DATA FILE
predict() { "$TRIREME" predict "$1" --data.file="$2" --out="$3" > log 2>&1 || { cat log; fail "predict $*"; }; }

run 1 one
one=$(values test_ one/summary.json)
awk -v t="$(of one test_top5)" -v a="$(of one test_auc)" -v m="$(of one test_accuracy)" -v e="$(of one test_ece)" \
  'BEGIN { exit !(t > m && t < 1 && a > 0.6 && a < 1 && e > 0 && e < 1) }' || fail "measures: $one"
[ "$(of one test_f1_micro)" = "$(of one test_accuracy)" ] || fail "the micro F1 is not the accuracy: $one"
grep -q '_mae"\|_perplexity"' one/summary.json && fail "measures of values in $(cat one/summary.json)"
run 2 data
run 2 pipeline --parallel.pipeline=2
run 2 tensor --parallel.tensor=2
run 2 zero --parallel.zero=3
for name in data pipeline tensor zero; do same "$name" "$(values test_ $name/summary.json)" "$one"; done
pass "the same measures on 1 and 2 ranks, with a pipeline, tensor parallelism and ZeRO: $one"
run 1 linear --model="linear 10"
run 2 sharded --model="linear 10" --parallel.tensor=2
same "sharded scores" "$(values test_ sharded/summary.json)" "$(values test_ linear/summary.json)"
pass "the same measures of scores that are sharded by class"
for n in 1 2; do
  launch $n "$TRIREME" eval one --json --log.quiet=yes > eval.json 2> log || { cat log; fail "eval on $n ranks"; }
  same "eval on $n ranks" "$(values '' eval.json)" "$one"
done
"$TRIREME" eval one > eval.txt 2>&1 || fail "eval"
grep -q '^top-5 accuracy .*%, F1 macro 0.*, micro 0.*, AUC 0.*, calibration error 0' eval.txt ||
  { cat eval.txt; fail "eval prints no measures"; }
pass "trireme eval gives them, as text and JSON, on 1 and 2 ranks"
run 1 virtual --strategy.name=asgd --simulate.workers=4 --train.accumulate=1
"$TRIREME" eval virtual --json --log.quiet=yes > eval.json 2> log || { cat log; fail "eval"; }
same "4 virtual workers" "$(values test_ virtual/summary.json)" "$(values '' eval.json)"
pass "a virtual network has those of its weights"
run 1 times --strategy.name=asgd --simulate.workers=4 --train.accumulate=1 --simulate.gradients=no \
  --run.checkpoint_every=-1
grep -q '_auc"' times/summary.json && fail "measures of a run without gradients: $(cat times/summary.json)"

# -- predictions as JSON lines
predict one digits.h5 one.jsonl
predict one digits.h5 one.csv
sed -e 's/{"index":\([0-9]*\),"prediction":[0-9]*,"class":"\([^"]*\)","probabilities":\[\(.*\)\]}/\1,\2,\3/' \
  one.jsonl > lines.csv
tail -n +2 one.csv | cmp - lines.csv || fail "JSON lines and CSV differ"
pass "predictions as JSON lines are those of the CSV file"

# -- values, and one score
awk 'BEGIN { srand(3); for (i = 0; i < 200; i++) { a = rand(); b = rand(); print a "," b "," 2 * a - b } }' > plane.csv
"$TRIREME" data import csv plane.csv --target=value --test-part=0.3 --split=last --out=plane.h5 > log 2>&1 ||
  { cat log; fail "import"; }
awk -F, '{ print $1 "," $2 "," ($3 > 0.5 ? "yes" : "no") }' plane.csv > side.csv
"$TRIREME" data import csv side.csv --test-part=0.3 --out=side.h5 > log 2>&1 || { cat log; fail "import"; }
sed -i 's/digits.h5/plane.h5/; s/^model.*/model: linear 1/' config.yaml
for n in 1 2; do run $n plane-$n; done
chosen="mae rmse r2"
same "2 ranks" "$(values test_ plane-2/summary.json)" "$(values test_ plane-1/summary.json)"
predict plane-1 plane.h5 plane.jsonl
paste <(sed 's/.*:\(.*\)}/\1/' plane.jsonl) <(tail -n 60 plane.csv | cut -d, -f3) |
  awk '{ e = $1 - $2; a += e < 0 ? -e : e; s += e * e; y += $2; yy += $2 * $2 }
       END { printf "mae %.9f rmse %.9f r2 %.9f\n", a / NR, sqrt(s / NR), 1 - s / (yy - y * y / NR) }' > by_hand
same "by the predictions" "$(values test_ plane-1/summary.json)" "$(cat by_hand)"
pass "MAE, RMSE and R^2 on 1 and 2 ranks, and by the predictions: $(cat by_hand)"
run 1 side --data.file=side.h5 --optim.lr=1
run 1 margin --data.file=side.h5 --train.loss=hinge --optim.lr=1
grep -q '_top5"' side/summary.json && fail "top 5 of 2 classes"
grep -q '_ece"' margin/summary.json && fail "probabilities of a hinge loss"
for name in side margin; do at_least "$(of $name test_auc)" 0.9 || fail "AUC of two classes: $name"; done
predict margin side.h5 margin.jsonl
grep -qE '^\{"index":0,"prediction":[01],"class":"(yes|no)","score":-?[0-9.]+\}$' margin.jsonl ||
  { cat margin.jsonl; fail "predictions of a hinge loss"; }
"$TRIREME" report plane-1 --out=plane.html > log 2>&1 && "$TRIREME" report one plane-1 --out=both.html > log 2>&1 ||
  { cat log; fail "report"; }
grep -q '>R²<' plane.html && ! grep -q '>AUC<' plane.html && grep -q '>AUC<' both.html ||
  fail "the report has not the columns of the measures that the runs have"
pass "one score: no top 5, no probabilities of a hinge loss"

# -- tokens: a line for each sequence
run 1 gpt --model="gpt layers=1 heads=2 dim=16 context=16" --data.file=text.h5 --optim.lr=0.5
grep -q '_f1_macro"' gpt/summary.json && fail "measures of classes of tokens"
predict gpt text.h5 gpt.jsonl
awk -F'[:,]' -v loss="$(of gpt test_loss)" -v perplexity="$(of gpt test_perplexity)" '
  { n += $4; s += $4 * $6; e = exp($6) / $8 - 1; if (e > 1e-9 || e < -1e-9) exit 1 }
  END { d = s / n - loss; p = exp(loss) / perplexity - 1
        exit !(n > 0 && d < 1e-6 && d > -1e-6 && p < 1e-9 && p > -1e-9) }' gpt.jsonl ||
  { head -n 2 gpt.jsonl; fail "the losses of the sequences are not those of the run, $(of gpt test_loss)"; }
grep -qvE '"next_token":[0-9]+,"next_text":"([a-p ]|\\n)","next_probability":0\.[0-9]+\}$' gpt.jsonl &&
  { head -n 2 gpt.jsonl; fail "no next token"; }
for file in gpt.csv gpt.h5; do
  "$TRIREME" predict gpt --data.file=text.h5 --out=$file > log 2>&1
  [ $? = 2 ] && [ ! -e $file ] && grep -q 'error:.*--out.*jsonl' log || { cat log; fail "predict of tokens to $file"; }
done
pass "predictions of tokens: loss and perplexity of each sequence, and the next token"
finish
