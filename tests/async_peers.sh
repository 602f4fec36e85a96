#!/bin/bash
# The peer methods train on rendered digits: three ranks with shared memory, without, and on two nodes; one rank equals
# serial training; a stopped run resumes; options without effect are refused with one line.
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 4000 500
cat > config.yaml << 'END'
model: mlp 784-32-10 gelu
data: {file: digits.h5}
train: {epochs: 6, batch: 50}
optim: {name: sgd, lr: 0.3, schedule: cosine}
parallel: {threads: 1}
run: {seed: 3}
log: {every: 1, quiet: yes}
END

# trains LIMIT NAME OPTION...: three ranks use all samples. LIMIT is five points below the lowest test accuracy of
# several runs.
trains() {
  local limit=$1 name=$2
  shift 2
  try 3 "$name" --run.overwrite=yes "$@" || { cat "$name.log"; fail "$*"; }
  [ "$(of "$name" steps) $(of "$name" samples)" = "480 24000" ] ||
    fail "$*: $(of "$name" steps) steps, $(of "$name" samples) samples"
  at_least "$(of "$name" test_accuracy)" $limit || fail "$*: test accuracy $(of "$name" test_accuracy)"
  pass "$*: test accuracy $(of "$name" test_accuracy)"
}

for method in easgd "eamsgd --optim.lr=0.01" adpsgd sgp keuper; do
  name=${method%% *}
  limit=0.74
  # shellcheck disable=SC2086
  {
    trains $limit "$name" --strategy.name=$method
    trains $limit "$name-alone" --strategy.name=$method --strategy.data=static --parallel.share=none
    TRM_NODE_SIZE=2 trains $limit "$name-nodes" --strategy.name=$method --strategy.data=static --strategy.tau=2
  }
  [ -e "$name/staleness.json" ] && defined=yes || defined=no
  case $name in
    ea*) [ $defined = yes ] && at_least "$(of "$name" staleness_mean)" 0.1 || fail "$name: no staleness recorded" ;;
    *)
      [ $defined = no ] && grep -q '"staleness_mean":null.*"staleness_max":null' "$name/summary.json" ||
        fail "$name: a staleness that is not defined is recorded"
      ;;
  esac
done
trains 0.74 easgd-server --strategy.name=easgd --strategy.servers=1

# -- one worker is serial training
try 1 serial || fail "serial"
for method in adpsgd a2cid2 sgp keuper; do
  try 1 "one-$method" --strategy.name=$method || fail "one worker of $method"
  [ "$(json_text weights_sha256 "one-$method/summary.json")" = "$(json_text weights_sha256 serial/summary.json)" ] ||
    fail "one worker of $method differs from serial training"
done
pass "one worker equals serial training"

# -- sgp without overlap: the order of arrival changes no bit
for name in sgp-first sgp-second; do
  run 4 $name --strategy.name=sgp --strategy.overlap=0 --strategy.data=static --strategy.tau=2
done
equal sgp-first sgp-second

# -- resume with the same number of ranks, and with another one
for ranks in 3 2; do
  on=on-$ranks
  run 3 $on --strategy.name=sgp --train.epochs=2
  run $ranks $on --strategy.name=sgp --run.resume=auto
  [ "$(of $on steps)" = 480 ] && at_least "$(of $on test_accuracy)" 0.6 ||
    fail "a run resumed on $ranks ranks: $(of $on steps) steps, test accuracy $(of $on test_accuracy)"
done
pass "a run resumes with the same number of ranks, and with fewer"
run 3 keuper-first --strategy.name=keuper --train.epochs=1
for method in adpsgd a2cid2 sgp keuper; do
  cp -r keuper-first "as-$method"
  run 3 "as-$method" --strategy.name=$method --run.resume=auto --train.epochs=2 --log.quiet=no
  [ $method = keuper ] && lines=0 || lines=1
  [ "$(grep -c 'has local state of another method' "as-$method.log")" = $lines ] ||
    { cat "as-$method.log"; fail "a checkpoint of keuper resumed as $method"; }
done
pass "a method does not take the local state of another one"

# refuses TEXT OPTION...: one line of error that contains TEXT
refuses() {
  local words=$1
  shift
  try 2 refused "$@"
  [ $? = 2 ] && [ "$(grep -c "error:" refused.log)" = 1 ] && grep "error:" refused.log | grep -q -- "$words" ||
    { cat refused.log; fail "$*: not refused in one line that says \"$words\""; }
}
refuses "strategy.alpha: -0.5" --strategy.name=easgd --strategy.alpha=-0.5
refuses "optim.name other than .*strategy.name=eamsgd" --strategy.name=eamsgd --optim.name=adam
refuses "optim.ema: .*strategy.name=sgp" --strategy.name=sgp --optim.ema=0.9
refuses "strategy.servers: .*strategy.name=adpsgd" --strategy.name=adpsgd --strategy.servers=1
refuses "strategy.rate other than constant" --strategy.name=keuper --strategy.rate=staleness
pass "options without effect are refused"
finish
