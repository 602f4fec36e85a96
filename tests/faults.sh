#!/bin/bash
# Every system call that changes a run directory fails once, or the process is killed there: the program ends with a
# message that names the file, or goes on; the earlier checkpoint is whole; the run resumes to the weights of an
# undisturbed one and leaves no file behind. Of the checkpoints of a run the last is written while it waits, the one
# before by a thread. make check takes some of the calls, TRM_FAULTS_EVERY=1 all.
#   tests/faults.sh [OPTION...]    of the runs, such as --run.background=no
set -u
. "$(dirname "$0")/lib.sh"
every=${TRM_FAULTS_EVERY:-12} options=("$@")
find_faults
scratch
openblas_only
digits 200 20
cat > config.yaml << 'EOT'
model: mlp 784-8-10
data: {file: digits.h5}
train: {steps: 8, batch: 10}
optim: {name: adam, lr: 0.01}
parallel: {threads: 1}
run: {seed: 3, resume: auto, checkpoint_every: 2}
EOT

# disturbed FAULT NUMBER: resumes a copy of `begun` as run `x`, with a fault at this call; returns the status
disturbed() {
  rm -rf x && cp -r begun x
  (LD_PRELOAD=$FAULTS FAULT=$1 FAULT_AT=$2 FAULT_FOLDER=$work/x/ FAULT_COUNT=count \
    timeout -k 5 60 "$TRIREME" train config.yaml --run.dir="$work/x" "${options[@]}" > x.log 2>&1) 2> /dev/null
}

run 1 begun --train.steps=4 "${options[@]}"
disturbed none 0 || { cat x.log; fail "the undisturbed run"; }
calls=$(cat count) want=$(sha x)
at_least "$calls" 40 || fail "only $calls calls are watched"

first=0
for fault in ENOSPC EIO EDQUOT EINTR kill; do
  faults=0 first=$((first % every + 1))
  for ((call = first; call <= calls; call += every)); do
    disturbed $fault $call 2> /dev/null
    status=$?
    where="$fault at call $call of $calls"
    case $fault:$status in
      *:0 | kill:137) ;;
      *:1) grep -q "error: .*$work/x" x.log || { cat x.log; fail "$where: no message names the file"; } ;;
      *) cat x.log; fail "$where: status $status" ;;
    esac
    "$TRIREME" data info --check x/checkpoints/step-00000004.h5 > info.log 2>&1 ||
      { cat info.log; fail "$where: the earlier checkpoint is damaged"; }
    run 1 x "${options[@]}"
    [ "$(sha x)" = "$want" ] || fail "$where: resumed to other weights"
    left=$(find x \( -name '*.new' -o -name 'lease*' \))
    [ -z "$left" ] || fail "$where: $left is left"
    faults=$((faults + 1))
  done
  pass "$fault at $faults of $calls calls: resumed to equal weights, nothing is left"
done
finish
