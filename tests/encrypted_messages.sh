#!/bin/bash
# run.encrypt: runs have the weights of those without it; no message between nodes has the weights; a message that was
# changed or repeated on its way, another key and a missing key end the job with one message.
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
TRIREME=$(realpath "$TRIREME")
"$TRIREME" key make key > log 2>&1 || { grep -q 'no libsodium' log && skip "no libsodium"; cat log; fail "key make"; }
"$TRIREME" key make other > /dev/null 2>&1
export TRM_NODE_SIZE=1
digits 600 100
"$TRIREME" key encrypt digits.h5 --out=secret.h5 --security.key=key > log 2>&1 || { cat log; fail "key encrypt"; }
cat > config.yaml << 'EOF'
model: mlp 784-16-10 relu
data: {file: secret.h5}
train: {epochs: 2, batch: 24}
optim: {name: momentum, lr: 0.05}
parallel: {threads: 1}
run: {seed: 3}
security: {key: key}
log: {quiet: yes}
EOF
# pair RANKS NAME OPTION...: the same weights with and without
pair() {
  run "$1" "$2" "${@:3}"
  run "$1" "$2-encrypted" --run.encrypt=yes "${@:3}"
  equal "$2" "$2-encrypted"
}
pair 3 sync
pair 4 lanes --run.lanes=4
pair 2 zero --parallel.zero=3
pair 2 tensor --parallel.tensor=2
pair 2 pipeline --parallel.pipeline=2 --train.accumulate=2
TRM_NODE_SIZE=2 pair 4 nodes
for method in asgd ssp adpsgd; do
  run 3 $method --strategy.name=$method --run.encrypt=yes --optim.name=sgd --optim.lr=0.2
  at_least 2.25 "$(of $method test_loss)" || fail "$method: test loss $(of $method test_loss)"
  pass "$method: test loss $(of $method test_loss)"
done

# Weights that do not change: the parameter server sends them again and again.
find_preloaded wire
asgd=(--strategy.name=asgd --strategy.servers=1 --optim.name=sgd --optim.lr=0)
run 2 still "${asgd[@]}"
"$TRIREME" export still --format=safetensors --out=w.encrypted --security.key=key > log 2>&1 &&
  "$TRIREME" key decrypt w.encrypted --out=w.safetensors --security.key=key > log 2>&1 || { cat log; fail "export"; }
tail -c 2000 w.safetensors | head -c 256 > weights # within the first layer, or the second: no bias is so long
export LD_PRELOAD=$PRELOADED
WIRE_SEEK=$work/weights run 2 plain "${asgd[@]}"
grep -q 'wire: found' plain.log || fail "the weights are not among the messages of a run without run.encrypt"
WIRE_SEEK=$work/weights run 2 sealed --run.encrypt=yes "${asgd[@]}"
! grep -q 'wire: found' sealed.log || fail "the weights are among the messages"
pass "messages that have the weights in plain have them no more"

# ends NAME: with status 1, and one message, which names the ranks
verify='error: run.encrypt: a message of rank 1 of the 2 ranks of a communicator to its rank 0 does not verify'
ends() {
  local status=$?
  [ $status = 1 ] && [ "$(grep -c "$verify" "$1.log")" = 1 ] || { cat "$1.log"; fail "$1: status $status"; }
  pass "$1: $verify"
}
WIRE_FLIP=5 try 2 flipped --run.encrypt=yes
ends flipped
WIRE_FLIP=5 try 2 flipped-asgd --run.encrypt=yes "${asgd[@]}"
ends flipped-asgd
WIRE_REPEAT=6 try 2 repeated --run.encrypt=yes --strategy.compress=bf16 # whose tags come again in every step
ends repeated
unset LD_PRELOAD

try 1 none --run.encrypt=yes --security.key= --data.file=digits.h5
[ $? = 2 ] && grep -q 'error: run.encrypt: needs security.key' none.log || { cat none.log; fail "without a key"; }
cat > keys << 'EOF'
keys=(key other)
KEY=${keys[${PMI_RANK:-$OMPI_COMM_WORLD_RANK}]} exec "$@" '--security.key=command:cat $KEY'
EOF
launch 2 bash keys "$TRIREME" train config.yaml --run.dir=keys --run.encrypt=yes > keys.log 2>&1
status=$?
[ $status != 0 ] && grep -q 'does not verify: .*has another security.key' keys.log ||
  { cat keys.log; fail "two keys: status $status"; }
pass "a run without a key, and ranks with two keys, are refused"
finish
