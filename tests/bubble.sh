#!/bin/bash
# The idle time of pipelines of four stages is the theoretical one, within 5 points, and interleaving lowers it; 2bw,
# one run of four batches, fills and drains once. Computation takes modeled time, so that four stages on few cores
# behave like four machines.
set -u
. "$(dirname "$0")/lib.sh"
scratch
digits 600 32
layer="linear 784 | gelu" # eight equal layers, and a small one
model="$layer | $layer | $layer | $layer | $layer | $layer | $layer | $layer | linear 10"

counts="4 8"
[ -z "${TRM_TEST_QUICK:-}" ] || counts=4
within() { awk -v m="$measured" -v t="$theory" 'BEGIN { exit !(m != "" && t > 0 && m - t < 0.05 && t - m < 0.05) }'; }
for schedule in gpipe 1f1b interleaved 2bw; do
  for micros in $counts; do
    what="$schedule with $micros micro-batches"
    for _ in 1 2 3; do # other processes can only add idle time
      launch 4 "$TRIREME" train --model="$model" --data.file=digits.h5 --run.dir=$schedule$micros --run.overwrite=yes \
        --run.checkpoint_every=-1 --parallel.pipeline=4 --parallel.schedule=$schedule --train.accumulate=$micros \
        --train.steps=3 --train.batch=32 --device.compute=sleep --device.gflops="${TRM_BUBBLE_GFLOPS:-0.3}" \
        > $schedule$micros.log 2>&1 || { cat $schedule$micros.log; fail "$what"; }
      measured=$(json_number bubble $schedule$micros/summary.json)
      theory=$(json_number bubble_theory $schedule$micros/summary.json)
      within && break
      echo "   $what: idle $measured of the time, $theory in theory"
    done
    within || fail "$what: idle $measured of the time, $theory in theory"
    pass "$what: idle $measured of the time, $theory in theory"
  done
done
for micros in $counts; do
  at_least "$(json_number bubble 1f1b$micros/summary.json)" "$(json_number bubble interleaved$micros/summary.json)" ||
    fail "interleaving does not lower the idle time with $micros micro-batches"
done
pass "interleaving lowers the idle time"
finish
