#!/bin/bash
# Runs on an encrypted data set have the weights of those on a plain one; whatever a run writes of data and weights is
# encrypted; other keys, plain files and keys that others can read are refused.
set -u
. "$(dirname "$0")/lib.sh"
TRIREME=$(realpath "$TRIREME")
scratch
openblas_only
if ! "$TRIREME" key make key > log 2>&1; then
  grep -q 'no libsodium' log || { cat log; fail "key make"; }
  "$TRIREME" data make digits --out=e.h5 --security.key=file:key > log 2>&1
  [ $? = 2 ] && [ ! -e e.h5 ] && grep -q 'security.key: this build has no libsodium.*libsodium-dev' log ||
    { cat log; fail "without libsodium, security.key is not refused"; }
  pass "a build without libsodium says so"
  finish
fi
"$TRIREME" key make other > /dev/null 2>&1
[ "$(stat -c %a key)" = 600 ] || fail "the key's file has mode $(stat -c %a key)"
digits 300 100
key=--security.key=file:key

# refused TEXT COMMAND...: it fails with that message
refused() {
  local text=$1
  shift
  "$@" > log 2>&1
  local status=$?
  [ $status != 0 ] && [ $status -lt 4 ] && grep -q "$text" log || { cat log; fail "not refused ($text): $*"; }
}
train() { # NAME RANKS OPTION...
  local name=$1 ranks=$2
  shift 2
  launch "$ranks" "$TRIREME" train --run.dir="$name" --log.quiet=yes --model="mlp 784-12-10 relu" --train.batch=20 \
    --run.lanes=4 --optim.momentum=0.9 "$@" > log 2>&1 || { cat log; fail "run $name"; }
}
sha() { json_text weights_sha256 "$1/summary.json"; }

"$TRIREME" key encrypt digits.h5 --out=secret.h5 $key > log 2>&1 || { cat log; fail "key encrypt"; }
train plain 1 --data.file=digits.h5 --train.epochs=2
train first 4 --data.file=secret.h5 $key --train.epochs=1
train first 2 --data.file=secret.h5 $key --train.epochs=2 --run.resume=auto
[ -n "$(sha plain)" ] && [ "$(sha plain)" = "$(sha first)" ] || fail "other weights on the encrypted data set"
pass "4, then 2 resumed ranks on an encrypted data set: the weights of 1 rank on the plain one"

"$TRIREME" export plain --format=safetensors --out=plain.safetensors > log 2>&1 &&
  "$TRIREME" export first --format=safetensors --out=first.safetensors $key > log 2>&1 &&
  "$TRIREME" predict first --data.file=secret.h5 --out=first.csv $key > log 2>&1 &&
  "$TRIREME" predict plain --data.file=digits.h5 --out=plain.csv > log 2>&1 || { cat log; fail "export, predict"; }
files=(secret.h5 first/checkpoints/step-*.h5 first.safetensors first.csv)
for file in "${files[@]}"; do
  [ "$(head -c 8 "$file")" = TRMCIPH1 ] || fail "$file is not encrypted"
done
for name in safetensors csv; do
  "$TRIREME" key decrypt first.$name --out=back.$name $key > log 2>&1 && cmp plain.$name back.$name ||
    { cat log; fail "first.$name, decrypted, differs from plain.$name"; }
done
! grep -rqE "$(tail -c 64 key)" first || fail "the key is in the run's files"
[ -z "$(find . -name '*.new')" ] || fail "temporary files stay"
pass "checkpoints, exports and predictions are encrypted; their contents are those of a plain run"

refused 'is encrypted; security.key=file:PATH names its key' "$TRIREME" eval plain --data.file=secret.h5
refused 'is encrypted with another key' "$TRIREME" eval first --data.file=secret.h5 --security.key=file:other
refused 'is not encrypted' "$TRIREME" eval plain --data.file=secret.h5 $key
refused 'is not encrypted' launch 2 "$TRIREME" train --model="mlp 784-10" --data.file=digits.h5 --run.dir=no $key
printf x | dd of=first.safetensors bs=1 seek=300 conv=notrunc 2> log
refused 'first.safetensors: was changed after it was encrypted' "$TRIREME" eval first.safetensors --model="mlp 784-12-10 relu" \
  --data.file=secret.h5 $key
cp secret.h5 changed.h5
printf xyz | dd of=changed.h5 bs=1 seek=100000 conv=notrunc 2> log
refused 'changed.h5: .*was changed after it was written' launch 2 "$TRIREME" train --model="mlp 784-10" \
  --data.file=changed.h5 --run.dir=no $key
refused 'never an option' "$TRIREME" data info secret.h5 --security.key="$(cut -d' ' -f4 key)"
chmod 640 key
refused 'others can reach the key (mode 0640)' "$TRIREME" data info secret.h5 $key
chmod 600 key
refused 'is encrypted already' "$TRIREME" key encrypt secret.h5 --out=twice.h5 $key
pass "other keys, plain files, changed files and keys that others can read are refused"

sum=$("$TRIREME" data info secret.h5 $key --check 2>&1)
"$TRIREME" key rotate secret.h5 first/checkpoints/step-*.h5 $key --new=file:other > log 2>&1 ||
  { cat log; fail "key rotate"; }
refused 'is encrypted with another key' "$TRIREME" data info secret.h5 $key
exec 7< other
[ "$sum" = "$("$TRIREME" data info secret.h5 --security.key=fd:7 --check 2>&1)" ] || fail "rotated: other content"
"$TRIREME" eval first --data.file=secret.h5 "--security.key=command:cat other" > log 2>&1 ||
  { cat log; fail "eval under the new key"; }
pass "rotated files are read under the new key alone, from a file descriptor or a command"
finish
