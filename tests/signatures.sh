#!/bin/bash
# A run that verifies takes signed files only: data sets, checkpoints, initial weights. A checkpoint without a valid
# signature is not resumed from; a process that was killed between a signature and its file has lost neither.
set -u
. "$(dirname "$0")/lib.sh"
TRIREME=$(realpath "$TRIREME")
scratch
openblas_only
"$TRIREME" key make key --sign > log 2>&1 || { grep -q 'no libsodium' log && skip "needs libsodium"; fail "$(cat log)"; }
"$TRIREME" key make other --sign > /dev/null 2>&1
[ "$(stat -c %a key) $(grep -c . key.pub)" = "600 1" ] || fail "the pair of keys"
digits 200 50
refused() { # TEXT COMMAND...
  local text=$1
  shift
  "$@" > log 2>&1
  local status=$?
  [ $status != 0 ] && [ $status -lt 4 ] && grep -q "$text" log || { cat log; fail "not refused ($text): $*"; }
}
works() { "$@" > log 2>&1 || { cat log; fail "$*"; }; }
verify=--run.verify_with=key.pub
works "$TRIREME" key sign digits.h5 --run.sign=key
works "$TRIREME" key verify digits.h5 $verify
refused 'digits.h5: its signature does not verify' "$TRIREME" key verify digits.h5 --run.verify_with=other.pub
train() { # RANKS OPTION...
  launch "$1" "$TRIREME" train --data.file=digits.h5 --run.dir=run --log.quiet=yes --model="mlp 784-8-10" \
    --train.batch=50 --run.keep=2 --run.sign=key $verify "${@:2}"
}
works train 2 --train.epochs=4
ls run/checkpoints > list
[ "$(grep -c '^step.*h5$' list) $(grep -c '^step.*h5.sig$' list)" = "2 2" ] || { cat list; fail "not one signature each"; }
works train 2 --train.epochs=5 --run.resume=auto
works "$TRIREME" eval run $verify
works "$TRIREME" export run --format=safetensors --out=w.safetensors --run.sign=key $verify
works launch 2 "$TRIREME" train --data.file=digits.h5 --run.dir=init --model="mlp 784-8-10" --train.steps=1 \
  --model.init=w.safetensors $verify
works "$TRIREME" predict run --out=scores.csv --run.sign=key $verify
works "$TRIREME" key verify scores.csv run/checkpoints/step*.h5 $verify
pass "signed data, checkpoints, weights and predictions verify, on 1 and 2 ranks; removed checkpoints leave no signature"

last=run/checkpoints/$(readlink run/checkpoints/last.h5)
cp "$last" saved.h5
size=$(stat -c %s "$last")
for at in 0 100 $((size / 2)) $((size - 1)); do
  printf '\245' | dd of="$last" bs=1 seek="$at" conv=notrunc 2> /dev/null
  refused "$(basename "$last"): its signature does not verify" "$TRIREME" eval run $verify
  cp saved.h5 "$last"
done
works train 1 --train.epochs=5 --run.resume=auto
mv "$last.sig" away
refused 'is not signed' "$TRIREME" eval run $verify
works train 1 --train.epochs=6 --run.resume=auto
grep -q 'is not signed.*the checkpoint before it is tried' log || { cat log; fail "no older checkpoint was tried"; }
for file in digits.h5 w.safetensors; do
  cp "$file" good
  printf '\245' | dd of="$file" bs=1 seek=5000 conv=notrunc 2> /dev/null
  refused "$file: its signature does not verify" launch 2 "$TRIREME" train --data.file=digits.h5 --run.dir=no \
    --model="mlp 784-8-10" --model.init=w.safetensors $verify
  cp good "$file"
done
pass "changed and unsigned files are refused; resume=auto falls back to a signed checkpoint"

# killed between the two: the signature of the new file beside the older file, which the next line verifies
cp digits.h5 older.h5
works "$TRIREME" key sign older.h5 --run.sign=key
printf 'x' > other.txt
works "$TRIREME" key sign other.txt --run.sign=key
cat other.txt.sig older.h5.sig > both
cp both older.h5.sig
works "$TRIREME" key verify older.h5 $verify
cp other.txt.sig older.h5.sig
refused 'does not verify' "$TRIREME" key verify older.h5 $verify
"$TRIREME" key encrypt digits.h5 --out=digits.secret --security.key=none > log 2>&1 && fail "a key that is not there"
works "$TRIREME" key make secret
works "$TRIREME" key encrypt digits.h5 --out=hidden.h5 --security.key=secret
cp digits.h5.sig hidden.h5.sig
works "$TRIREME" key verify hidden.h5 $verify --security.key=secret
pass "a file that was not replaced verifies; a signature stays valid when the file is encrypted"
finish
