#!/bin/bash
# run.verify_every: a wrong bit in a product of one rank is found, the rank and the kind of fault are named, and the
# final weights are those of an undisturbed run. tests/support/bitflip.c flips the bits.
. "$(dirname "$0")/lib.sh"
find_preloaded bitflip
# All products by cblas_sgemm, whose results bitflip.c changes: large ones are oneDNN's beside kernels for AVX-512.
! grep -qw avx2 /proc/cpuinfo || export OPENBLAS_CORETYPE=Haswell
scratch
digits 600 60
config=mlp.yaml
for m in "mlp:linear 24 | gelu | dropout 0.1 | linear 10" \
         "norms:conv2d 4 5 stride=3 bias=no | batch_norm sync=no | relu | flatten | linear 16 | dropout 0.2 | linear 10"; do
  cat > "${m%%:*}.yaml" << END
model: "${m#*:}"
data: {file: digits.h5, flip: yes}
train: {steps: 6, batch: 48}
optim: {name: momentum, lr: 0.1, momentum: 0.9, clip: 0.7, ema: 0.9}
parallel: {threads: 1}
run: {seed: 3, lanes: 8}
log: {every: 1, quiet: yes}
END
done

# faulty STATUS FLIP RANK N NAME OPTION...: a run whose rank RANK of N flips bits
faulty() {
  local status=$1 flip=$2 rank=$3
  shift 3
  LD_PRELOAD=$PRELOADED FLIP=$flip FLIP_RANK=$rank try "$@"
  [ $? = "$status" ] || { cat "$2.log"; fail "$2: another status than $status"; }
}
# says NAME TEXT: a message of the run has the text
says() { grep -qF -- "$2" "$1.log" || { cat "$1.log"; fail "$1 does not say: $2"; }; pass "$1 says: $2"; }
faults() { [ "$(of "$1" transient_faults)" = "$2" ] || fail "$1: $(of "$1" transient_faults) faults, expected $2"; }
host=$(hostname)
transient="computed wrong values, but not when they were repeated: a transient fault"

# without faults: random numbers repeat, statistics and averages are not updated twice
for m in mlp norms; do
  config=$m.yaml
  run 2 "$m" && run 2 "$m-each" --run.verify_every=1 && run 4 "$m-third" --run.verify_every=3
  equal "$m" "$m-each" && equal "$m" "$m-third"
  [ "$(of $m-each verified_steps)" = 6 ] && [ "$(of $m-third verified_steps)" = 2 ] || fail "$m: other steps verified"
  faults $m-each 0
  losses() { grep -o '"step":[0-9]*\|"loss":[^,]*' "$1/metrics.jsonl"; }
  [ "$(losses $m)" = "$(losses $m-each)" ] || fail "$m: other losses with run.verify_every"
done

# a wrong bit, once: on 2 ranks a rank computes 20 products for a gradient, on 4 ranks 10
config=mlp.yaml
faulty 0 33, 1 2 off
[ "$(sha off)" != "$(sha mlp)" ] || fail "the flipped bit changes nothing"
! grep -q verify off.log || fail "off: verified"
faulty 0 33, 1 2 check --run.verify_every=1
says check "rank 1 (host $host) $transient"
faulty 0 50, 1 2 own --run.verify_every=1
says own "rank 1 (host $host) $transient"
faulty 0 33, 3 4 four --run.verify_every=1
says four "rank 3 (host $host) $transient"
for r in check own four; do faults $r 1; equal mlp $r "one flipped bit"; done

# always, and too often
faulty 1 33+ 2 4 always --run.verify_every=1
says always "rank 2 (host $host) computed wrong values, and again when they were repeated: a persistent fault"
[ "$(json_text status always/summary.json)" = failed ] || fail "always: another status in summary.json"
faulty 1 1+ 1 2 both --run.verify_every=1
says both "compute different gradients of the same rows, again and again"
faulty 1 33+ 1 2 repeats --run.verify_every=1
says repeats "rank 1 (host $host) computed wrong values, and again"
faulty 1 25,85,145, 3 4 often --run.verify_every=1
says often "rank 3 (host $host) computed wrong values in 3 steps, each time once"

# what cannot be verified
try 1 alone --run.verify_every=1
says alone "run.verify_every: needs two ranks or more"
options=(train mlp.yaml --run.dir=mixed --run.verify_every=1)
for core in Sandybridge Haswell; do # kernels of one of them are not those of this processor
  launch 1 "$TRIREME" "${options[@]}" : -n 1 env OPENBLAS_CORETYPE=$core "$TRIREME" "${options[@]}" >> mixed.log 2>&1
done
says mixed "their gradients have not the same bits"
finish
