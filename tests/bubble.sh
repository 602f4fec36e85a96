#!/bin/bash
# The idle time of pipelines of four stages is the theoretical one, within half a point, and interleaving lowers it;
# 2bw, one run of four batches, fills and drains once. Computation takes modeled time on the virtual network, whose
# messages take the rest; on the real one, where other processes can add idle time, it is at least as long.
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 600 32
layer="linear 784 | gelu" # eight equal layers, and a small one
model="$layer | $layer | $layer | $layer | $layer | $layer | $layer | $layer | linear 10"

# pipeline RANKS RUN SCHEDULE MICROS OPTION...: sets measured and theory
pipeline() {
  launch "$1" "$TRIREME" train --model="$model" --data.file=digits.h5 --run.dir="$2" --run.checkpoint_every=-1 \
    --parallel.pipeline=4 --parallel.schedule="$3" --train.accumulate="$4" --train.steps=3 --train.batch=32 \
    --device.compute=sleep --device.gflops=0.3 "${@:5}" > "$2.log" 2>&1 || { cat "$2.log"; fail "$2"; }
  measured=$(of "$2" bubble) theory=$(of "$2" bubble_theory)
}
holds() { awk -v m="$measured" -v t="$theory" "BEGIN { exit !(m != \"\" && t > 0 && $1) }"; }
for schedule in gpipe 1f1b interleaved 2bw; do
  for micros in 4 8; do
    what="$schedule with $micros micro-batches"
    pipeline 1 $schedule$micros $schedule $micros --simulate.workers=4
    holds "m - t < 0.005 && t - m < 0.005" || fail "$what: idle $measured of the time, $theory in theory"
    pass "$what: idle $measured of the time, $theory in theory"
  done
done
for micros in 4 8; do
  at_least "$(of 1f1b$micros bubble)" "$(of interleaved$micros bubble)" ||
    fail "interleaving does not lower the idle time with $micros micro-batches"
done
pass "interleaving lowers the idle time"
pipeline 4 real 1f1b 4
holds "m > t - 0.05 && m < 1" || fail "real network: idle $measured of the time, $theory in theory"
pass "real network: idle $measured of the time, $theory in theory"
finish
