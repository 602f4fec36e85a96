#!/bin/bash
# trireme doctor on three virtual hosts: nothing found, then a clock that is off, a folder that they do not share, and
# packets between two of them that are lost, as by a firewall: they are named, and nothing waits longer than its time.
set -u
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/hosts_lib.sh"
isolate "$@"
scratch
start_hosts 3
find_preloaded shifted_clock
place 1 1 1
# doctor STATUS COMMAND...: lines has what it prints on three ranks, without the settings of this machine. While
# mpiexec ends a job that failed, an assertion of its own proxies may fail: its status is 255 then
doctor() {
  local began=$SECONDS status
  # shellcheck disable=SC2086 # MPIEXEC is a list of words
  timeout 60 $MPIEXEC "${@:2}" > all 2> errors
  status=$?
  took=$((SECONDS - began))
  grep -E '^[a-z]+ *(launch|network|versions|clock|folder) ' all > lines
  [ $status = "$1" ] || { [ "$1 $status" = '1 255' ] && grep -q '^\[proxy:.* assert ' errors; } ||
    { cat all errors; fail "status $status of doctor ${*:2}"; }
}
# finds TEXT: a problem with this text, and no other
finds() {
  grep -q "^problem *$1" lines && [ "$(grep -vc '^ok ' lines)" = 1 ] || { cat all errors; fail "not found: $1"; }
  pass "$1"
}

$MPIEXEC -n 3 "$TRIREME" doctor > all 2>&1
well=$? # settings of this machine may be findings
doctor $well -n 3 "$TRIREME" doctor --dir=.
[ "$(grep -c '^ok ' lines)" = 5 ] && grep -q 'network *3 hosts: all reach one another' lines ||
  { cat all errors; fail "not five checks that are well"; }
pass "three hosts, no problem"

doctor 1 -n 2 "$TRIREME" doctor : -n 1 env LD_PRELOAD="$PRELOADED" SHIFTED_CLOCK=-90 "$TRIREME" doctor
finds "clock *the clock is [89][0-9.]* s behind rank 0's.*\[host3\]$"
mkdir /tmp/doctor.$$ && on_host 2 mount -t tmpfs tmpfs /tmp/doctor.$$
doctor 1 -n 3 "$TRIREME" doctor --dir=/tmp/doctor.$$
rmdir /tmp/doctor.$$ 2> /dev/null
finds "folder .*a file that rank 0 has written there is not seen.*\[host2\]$"

# lost packets: host 3 has a wrong address of host 2's link, then also of host 1's
on_host 3 ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:99 dev eth0 nud permanent
doctor 1 -n 3 "$TRIREME" doctor --limit=1
at_least 10 $took || fail "$took s for a limit of 1 s"
# in MPI's start or after it, as the library will
grep -q '^problem *network .* from host host[23] to host host[23].*\[host1\]$' lines ||
  { grep -q '^problem *network .*\[host2\]$' lines && grep -q '^problem *network .*\[host3\]$' lines; } ||
  { cat all errors; fail "the two hosts are not named"; }
pass "two hosts that do not reach one another are named"
on_host 3 ip neigh replace 10.77.0.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent
doctor 1 -n 3 "$TRIREME" doctor --limit=1
at_least 10 $took || fail "$took s for a limit of 1 s"
grep -q '^problem *network .*rank 2.*\[host[13]\]$' lines || { cat all errors; fail "rank 2 is not named"; }
pass "a host that rank 0 does not hear is named"
finish
