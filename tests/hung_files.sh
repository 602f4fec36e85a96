#!/bin/bash
# A file system that does not answer in the middle of a run (a frozen one): the watchdog, whose files are there, too,
# names the rank that waits for it and ends the job with status 4; `trireme run` starts the job again once the file
# system answers, and the weights are those of an undisturbed run.
set -u
. "$(dirname "$0")/lib.sh"
TRIREME=$(realpath "$TRIREME")
[ "$(id -u)" = 0 ] || skip "mounting needs root"
command -v mkfs.ext4 fsfreeze > /dev/null || skip "no mkfs.ext4 or fsfreeze here (Debian: e2fsprogs util-linux)"
scratch
trap 'fsfreeze --unfreeze disk 2> /dev/null; umount disk 2> /dev/null; rm -rf "$work"' EXIT
truncate -s 16M image
mkdir disk
mkfs.ext4 -q image 2> /dev/null && mount -o loop image disk 2> /dev/null || skip "no loop devices here"
fsfreeze --freeze disk 2> /dev/null && fsfreeze --unfreeze disk || skip "file systems cannot be frozen here"
digits 300 100
cat > config.yaml << 'EOT'
model: mlp 784-8-10
data: {file: digits.h5}
train: {steps: 4000, epochs: 1000, batch: 10}
parallel: {threads: 1}
run: {seed: 3, lanes: 2, stall_after: 1, stall_abort: 2, checkpoint_every: 100}
log: {every: 20, quiet: yes}
EOT
run 1 whole
(sleep 60; fsfreeze --unfreeze disk) > /dev/null 2>&1 & # even if this script is killed
guard=$!
# shellcheck disable=SC2086 # MPIEXEC is a list of words
timeout -k 5 90 "$TRIREME" run -- $MPIEXEC -n 2 "$TRIREME" train config.yaml --run.dir=disk/hung > hung.log 2>&1 &
job=$!
end() {
  kill $guard
  fsfreeze --unfreeze disk 2> /dev/null
  kill $job 2> /dev/null && wait $job
  umount disk
  rm -rf "$work"
}
trap end EXIT
awaits 5 disk/hung/metrics.jsonl $job
fsfreeze --freeze disk
began=$SECONDS
until grep -q 'error: stalled' hung.log || [ $((SECONDS - began)) -gt 8 ]; do sleep 0.1; done
took=$((SECONDS - began)) # 2 s until the job is ended, 1 s between two looks at the clock, and 5 s
rank="rank 0 (host [^ ]*, pid [0-9]*) waits for a file system or a device, for [0-9] s (it writes a file "
at_least 8 $took && grep -q "warning: stalled: $rank" hung.log && grep -q "error: stalled: .* $rank" hung.log ||
  { cat hung.log; fail "not named within $took s"; }
pass "the rank that waits for its file system is named"
sleep 5 # what processes are given for their last files
fsfreeze --unfreeze disk
wait $job
status=$?
# which of both depends on whether a last file could be written; the launcher gives 1 for a rank whose connection it saw
# closed before its end
[ $status = 0 ] &&
  grep -qE 'run: restart 1 of 10 in 1 s: (the job was cut off in training \(status [14] of|the run has stalled)' hung.log ||
  { cat hung.log; fail "status $status, or not started again"; }
equal whole disk/hung
finish
