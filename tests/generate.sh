#!/bin/bash
# trireme generate: a periodic text has one correct continuation, for all kinds of tokens and beyond the context;
# samples depend on the seed only; invalid input is refused.
set -u
. "$(dirname "$0")/lib.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99

# cyclic text: a few characters determine the position
ring='Drei Bänke tragen das Schiff; vorn zählt jemand laut: 1, 2, 3, 4, los! '
for _ in $(seq 300); do printf '%s' "$ring"; done > ring.txt

# learn NAME FLAG...: import ring.txt and train on it
learn() {
  local name=$1
  shift
  "$TRIREME" data import text ring.txt --out="$name.h5" "$@" > "$name.log" 2>&1 ||
    { cat "$name.log"; fail "import $name"; }
  "$TRIREME" train "--model=gpt layers=2 heads=2 dim=32 context=24" --data.file="$name.h5" --train.batch=16 \
    --train.steps=800 --optim.name=adamw --optim.lr=0.01 --optim.warmup=20 --optim.schedule=cosine --optim.clip=1 --data.stride=5 \
    --run.dir="$name" --parallel.threads=1 --data.limit_test=5 >> "$name.log" 2>&1 ||
      { cat "$name.log"; fail "train $name"; }
}
generate() { "$TRIREME" generate "$@" --parallel.threads=1 --log.quiet=yes; }

# right NAME TEXT: TEXT is part of the cyclic text, and long
right() {
  case "$ring$ring$ring$ring" in
    *"$2"*) pass "$1: correct continuation: $2" ;;
    *) fail "$1: \"$2\" is not in the training text" ;;
  esac
}

encodings="characters bytes"
"$TRIREME" data import text ring.txt --out=try.h5 --tokens=bpe --vocab=300 > try.log 2>&1 &&
  encodings="$encodings bpe" ||
  grep -q 'needs PCRE2' try.log || fail "import, bpe: $(cat try.log)"
for name in $encodings; do
  case $name in bpe) learn bpe --tokens=bpe --vocab=300 ;; *) learn "$name" --tokens="$name" ;; esac
  # longer than the context of 24 tokens, from a shorter prompt and from a longer one
  short=$(generate "$name/checkpoints/last.h5" --prompt='Drei Bänke' --tokens=60 --temperature=0) || fail "$name"
  [ ${#short} -ge 70 ] || [ "$name" != characters ] || fail "$name: only ${#short} characters"
  right "$name" "${short%?}" # bytes: the last character may be incomplete
  # no space at the end: byte pairs have no such token before a word
  long=$(generate "$name/checkpoints/last.h5" --prompt="${ring% 1,*}" --tokens=12 --temperature=0) || fail "$name"
  right "$name, a long prompt" "${long%?}"
done

# -- samples
checkpoint=characters/checkpoints/last.h5
draw() { generate $checkpoint --prompt='Drei' --tokens=100 "$@"; }
[ "$(draw --temperature=0)" = "$(draw --top-k=1 --temperature=5 --seed=9)" ] ||
  fail "top-k=1 is not the most likely token"
[ "$(draw --temperature=0)" = "$(draw --top-p=0 --temperature=5 --seed=9)" ] ||
  fail "top-p=0 is not the most likely token"
pass "top-k=1 and top-p=0 take the most likely token"
[ "$(draw --temperature=4 --seed=3)" = "$(draw --temperature=4 --seed=3)" ] || fail "one seed gave different texts"
[ "$(draw --temperature=4 --seed=3)" != "$(draw --temperature=4 --seed=4)" ] || fail "two seeds gave the same text"
[ "$(draw --temperature=4 --seed=3)" = "$("$TRIREME" generate $checkpoint --prompt=Drei --tokens=100 --temperature=4 \
  --seed=3 --parallel.threads=2 --log.quiet=yes 2> /dev/null)" ] || fail "threads change the text"
pass "the text depends on the seed, not on threads"

# -- weights without vocabulary: that of the data set is used
"$TRIREME" export $checkpoint --format=safetensors --out=weights.safetensors --log.quiet=yes || fail "export"
alone=$(generate weights.safetensors "--model=gpt layers=2 heads=2 dim=32 context=24" --data.file=characters.h5 \
  --prompt=Drei --tokens=100 --temperature=0) || fail "weights alone"
[ "$alone" = "$(draw --temperature=0)" ] || fail "weights alone continue with \"$alone\""
pass "weights alone, and the data set's vocabulary"

# -- bits per byte: comparable between tokens of characters and of bytes
bits=$("$TRIREME" eval bytes/checkpoints/last.h5 --data.file=bytes.h5 --json --parallel.threads=1 --log.quiet=yes)
echo "$bits" > bits.json
[ "$(json_number bits bits.json)" = "$(json_number bits_per_byte bits.json)" ] || fail "bytes: $bits"
"$TRIREME" eval $checkpoint --data.file=characters.h5 --json --parallel.threads=1 --log.quiet=yes > bits.json ||
  fail "eval"
awk -v t="$(json_number bits bits.json)" -v b="$(json_number bits_per_byte bits.json)" \
  -v n="$(printf '%s' "$ring" | wc -c)" -v c="$(printf '%s' "$ring" | LC_ALL=C.UTF-8 wc -m)" \
  'BEGIN { r = t / b / (n / c); exit !(r > 0.999 && r < 1.001) }' || fail "characters: $(cat bits.json)"
pass "bits per byte are bits per token / bytes per token"
for key in test_bits_per_byte test_perplexity; do
  grep -q "\"$key\":" characters/metrics.jsonl && grep -q "\"$key\":" characters/summary.json ||
    fail "no $key recorded"
done
pass "bits per byte are recorded"

# -- refusals
bad() {
  local pattern=$1
  shift
  generate "$@" > out 2> err && fail "generate $*: no error"
  [ "$(grep -c 'error:' err)" = 1 ] && grep 'error:' err | grep -qE -- "$pattern" ||
    { cat err; fail "generate $*: not $pattern"; }
  pass "generate $*: $(grep 'error:' err)"
}
"$TRIREME" data make digits --out=digits.h5 --train=64 --test=32 > /dev/null 2>&1
"$TRIREME" train "--model=mlp 784-8-10 relu" --data.file=digits.h5 --train.epochs=1 --run.dir=mlp > /dev/null 2>&1 ||
  fail "mlp"
"$TRIREME" train "--model=embedding 8 | linear 24 | attention heads=1 causal=no | head" --data.file=characters.h5 \
  --train.steps=1 --run.dir=sees --data.context=8 --data.limit_test=1 > sees.log 2>&1
bad 'mlp/.*not a model of tokens' mlp/checkpoints/last.h5 --prompt=a
bad 'U\+0051.*not in the vocabulary' $checkpoint --prompt=Q
bad 'not valid UTF-8' $checkpoint --prompt=$'\xff'
bad '--prompt needs a value' $checkpoint --prompt=
bad '--prompt: no text' $checkpoint
bad 'no checkpoint' --prompt=a
bad '--tokens=0: a whole number' $checkpoint --prompt=a --tokens=0
bad '--temperature=-1: a number' $checkpoint --prompt=a --temperature=-1
bad '--temperature=hot: a number' $checkpoint --prompt=a --temperature=hot
bad '--top-p=1.01: a number' $checkpoint --prompt=a --top-p=1.01
bad '--top-k=-1: a whole number' $checkpoint --prompt=a --top-k=-1
bad 'digits.h5' digits.h5 --prompt=a
if [ -e sees/checkpoints/last.h5 ]; then
  bad 'attention.*is not causal' sees/checkpoints/last.h5 --prompt=D
else
  cat sees.log
  fail "a noncausal model"
fi
# another text of the same length
tr 'DBRSdt' 'XYZWqy' < ring.txt > other.txt
"$TRIREME" data import text other.txt --out=other.h5 > /dev/null 2>&1
"$TRIREME" eval $checkpoint --data.file=other.h5 --log.quiet=yes > out 2> err && fail "another vocabulary was accepted"
grep -q 'error: .*another vocabulary' err || { cat err; fail "another vocabulary: no such message"; }
pass "another vocabulary: $(cat err)"

# -- control characters of a file are shown, not sent to the terminal: in generated text, names of classes, messages
# shown FILE TEXT: FILE has no control characters but tabs and line feeds, and has TEXT
shown() {
  LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' "$1" &&
    { cat -v "$1"; fail "$1 has control characters"; }
  grep -qF -- "$2" "$1" || { cat "$1"; fail "$1 does not show $2"; }
  pass "shown: $2"
}
for _ in $(seq 100); do printf 'a\033[\302\233\n'; done > control.txt
"$TRIREME" data import text control.txt --tokens=bytes --out=control.h5 > control.log 2>&1 || fail "import control.txt"
"$TRIREME" train "--model=embedding 4 | head" --data.file=control.h5 --data.context=8 --train.steps=200 \
  --train.batch=16 --data.stride=2 --optim.name=adam --optim.lr=0.05 --run.dir=control --data.limit_test=1 \
  > control.log 2>&1 || { cat control.log; fail "train control"; }
generate control/checkpoints/last.h5 --prompt=$'a\033[' --tokens=20 --temperature=0 > control.txt ||
  fail "generate control"
shown control.txt '\x1b['
shown control.txt '\xc2\x9b'
for i in 1 2 3 4 5; do printf '%d,\033[31mred\n%d,b\302\233lue\n' $i -$i; done > control.csv
"$TRIREME" data import csv control.csv --test-part=0.4 --out=classes.h5 > import.log 2>&1 ||
  { cat import.log; fail "import control.csv"; }
"$TRIREME" data info classes.h5 > info.log 2>&1 || fail "data info classes.h5"
shown info.log '\x1b[31mred'
"$TRIREME" data info classes.h5 --json > info.json || fail "data info --json"
shown info.json '\u001b[31mred'
"$TRIREME" train --model="linear 2" --data.file=classes.h5 --train.steps=1 --train.batch=2 --run.dir=classes \
  > classes.log 2>&1 || { cat classes.log; fail "train classes"; }
"$TRIREME" eval classes --data.file=classes.h5 > eval.log 2>&1 || { cat eval.log; fail "eval classes"; }
shown eval.log '\x1b[31mred'
shown eval.log 'b\xc2\x9blue'
finish
