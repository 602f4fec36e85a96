#!/bin/bash
# The energy of a run in summary.json, with counters of a processor that this script makes in a /sys/class of its own:
# joules of packages and memory, once a node, over a counter that begins anew; nothing where no counter can be read.
set -u
. "$(dirname "$0")/lib.sh"
if [ -z "${IN_NAMESPACES-}" ]; then
  [ "$(id -u)" = 0 ] || skip "namespaces need root"
  command -v unshare > /dev/null && unshare --mount mount -t tmpfs tmpfs /sys/class 2> /dev/null ||
    skip "no mounts over /sys/class here"
  IN_NAMESPACES=yes exec unshare --mount bash "$0"
fi
TRIREME=$(realpath "$TRIREME")
scratch
digits 320 64
mkdir class && cp -a /sys/class/. class 2> /dev/null # links to the devices
mount --bind class /sys/class || fail "mount"
train=("$TRIREME" train "--model=mlp 784-16-10 relu" --data.file=digits.h5 --train.batch=32 --train.epochs=1000
  --log.every=1 --log.quiet=yes)

rm -rf /sys/class/powercap
launch 2 "${train[@]}" --train.steps=4 --run.dir=none > log 2>&1 || { cat log; fail "without counters"; }
! grep -q joules none/summary.json || fail "joules without counters: $(cat none/summary.json)"
pass "no joules without counters"

# zone ZONE NAME UJ: RAPL's folder of a counter, which begins anew at 1 J
zone() {
  mkdir -p "/sys/class/powercap/$1"
  echo "$2" > "/sys/class/powercap/$1/name"
  echo 1000000 > "/sys/class/powercap/$1/max_energy_range_uj"
  echo "$3" > "/sys/class/powercap/$1/energy_uj"
}
zone intel-rapl:0 package-0 900000
zone intel-rapl:0:0 core 0
zone intel-rapl:0:1 dram 100000
zone intel-rapl:1 psys 0
zone intel-rapl-mmio:0 package-0 0
launch 2 "${train[@]}" --train.steps=4000 --run.dir=counted > log 2>&1 &
awaits 1 counted/metrics.jsonl $!
zone intel-rapl:0 package-0 150000 # 250 mJ later
zone intel-rapl:0:0 core 500000
zone intel-rapl:0:1 dram 225000 # 125 mJ
zone intel-rapl:1 psys 700000
zone intel-rapl-mmio:0 package-0 250000
[ ! -e counted/summary.json ] || fail "the run has ended before the counters changed"
wait $! || { cat log; fail "with counters"; }
[ "$(of counted joules)" = 0.375 ] || fail "joules: $(of counted joules), not 0.375: $(cat counted/summary.json)"
pass "joules of package and memory, over a counter that began anew, once for two ranks"

rm /sys/class/powercap/intel-rapl:0:1/energy_uj
launch 1 "${train[@]}" --train.steps=4 --run.dir=unreadable > log 2>&1 || { cat log; fail "an unreadable counter"; }
! grep -q joules unreadable/summary.json || fail "joules of a part of the counters: $(cat unreadable/summary.json)"
pass "no joules where a counter cannot be read"
finish
