# shellcheck shell=bash
# Virtual hosts on one machine, for tests and benchmarks: network namespaces on a bridge, each with a host name, an
# address and a /dev/shm of its own. Sourced after lib.sh.
#
#   isolate "$@"             starts the script again in namespaces of its own, with which all processes and links end;
#                            skips it where that is not possible
#   scratch
#   start_hosts 2            host1 and host2, 10.77.0.1 and 10.77.0.2
#   limit_hosts 1gbit        what each host sends (none: as fast as the machine can)
#   place 3 1                from now on launch and run put three ranks on host1 and one on host2
#   place                    all ranks on this machine, as before
#   on_host 2 COMMAND...     runs a command there
#   sent_by 2                bytes that the host has sent so far
#   lose_host 2              ends all its processes, and with them its memory; start_host 2: starts it again

# isolate ARGUMENT...: those of the script
isolate() {
  local tool namespaces=(unshare --net --mount --pid --fork --kill-child --mount-proc)
  if [ -z "${IN_NAMESPACES-}" ]; then
    [ -x "$TRIREME" ] || fail "$TRIREME is not built"
    [ "$(id -u)" = 0 ] || skip "namespaces need root"
    for tool in ip tc nsenter taskset; do
      command -v $tool > /dev/null || skip "no $tool here (Debian: iproute2 util-linux)"
    done
    case $("$TRIREME" --version) in *MPICH*) ;; *) skip "written for MPICH's launcher" ;; esac
    "${namespaces[@]}" ip link add test type bridge > /dev/null 2>&1 || skip "no namespaces or bridges here"
    IN_NAMESPACES=yes exec "${namespaces[@]}" bash "$0" "$@"
  fi
  TRIREME=$(realpath "$TRIREME")
  export TRIREME
  mpiexec_here=$MPIEXEC
}

host_pid() { cat "$work/host.10.77.0.$1"; }

# cores_of HOST HOSTS: a list for taskset
cores_of() {
  taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' | awk -F- -v i="$1" -v hosts="$2" '
    { for (core = $1; core <= $NF; core++) all[n++] = core }
    END { if (n < hosts) { print all[(i - 1) % n]; exit }
          for (k = int((i - 1) * n / hosts); k < int(i * n / hosts); k++) list = list "," all[k]
          print substr(list, 2) }'
}

# start_host NUMBER: a host is the namespaces of a process that sleeps. UCX finds a host's links in /sys.
start_host() {
  local i=$1 pid
  rm -f "host.10.77.0.$i"
  unshare --net --uts --ipc --mount bash -c "hostname host$i && mount -t tmpfs tmpfs /dev/shm &&
    mount -t sysfs sysfs /sys && ip link set lo up &&
    echo \$\$ > host.10.77.0.$i && exec sleep infinity" &
  until [ -s "host.10.77.0.$i" ] || ! kill -0 $! 2> /dev/null; do sleep 0.02; done
  disown $!
  pid=$(host_pid "$i") || fail "host $i did not start"
  ip link delete "port$i" 2> /dev/null || true # of an earlier host of this number
  ip link add "port$i" type veth peer name eth0 netns "$pid"
  ip link set "port$i" master bridge up
  on_host "$i" bash -c "ip addr add 10.77.0.$i/24 dev eth0 && ip link set eth0 up" || fail "host $i"
}

lose_host() {
  local place process
  place=$(readlink "/proc/$(host_pid "$1")/ns/mnt")
  for process in /proc/[0-9]*; do
    [ "$(readlink "$process/ns/mnt" 2> /dev/null)" = "$place" ] && kill -KILL "${process#/proc/}" 2> /dev/null
  done
}

# start_hosts N: in the folder of scratch
start_hosts() {
  local i
  hosts=$1
  mount -t tmpfs tmpfs /dev/shm # others' processes are not seen here, and their files would be taken for left ones
  ip link set lo up
  ip link add bridge type bridge
  ip link set bridge up
  ip addr add 10.77.0.254/24 dev bridge
  for i in $(seq "$1"); do
    cores_of "$i" "$1" > "cores.10.77.0.$i"
    start_host "$i"
  done
  # the launcher in place of ssh: enter [OPTION...] HOST COMMAND...
  cat > enter << 'EOT'
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
cd "${0%/*}" || exit 1
exec taskset -c "$(cat "cores.$1")" nsenter --target "$(cat "host.$1")" --net --uts --ipc --mount bash -c "${*:2}"
EOT
  chmod +x enter
  mpiexec_hosts="$mpiexec_here -launcher ssh -launcher-exec $work/enter -iface bridge"
}

# on_host HOST COMMAND...: in this folder
on_host() {
  # shellcheck disable=SC2016 # that shell expands it
  taskset -c "$(cat "$work/cores.10.77.0.$1")" nsenter --target "$(host_pid "$1")" --net --uts --ipc --mount \
    bash -c 'cd "$0" && exec "$@"' "$PWD" "${@:2}"
}

# limit_hosts RATE: in tc's units
limit_hosts() {
  local i set=(replace dev eth0 root tbf rate "$1" burst 256kb latency 100ms)
  [ "$1" != none ] || set=(replace dev eth0 root noqueue)
  for i in $(seq "$hosts"); do
    on_host "$i" tc qdisc "${set[@]}" || fail "the network cannot be limited to $1"
  done
}

# place RANKS...: of each host, which may be 0
place() {
  local list='' i=0 ranks
  for ranks; do
    i=$((i + 1))
    [ "$ranks" = 0 ] || list=$list,10.77.0.$i:$ranks
  done
  MPIEXEC="$mpiexec_hosts -hosts ${list#,}"
  [ $i -gt 0 ] || MPIEXEC=$mpiexec_here
}

sent_by() { on_host "$1" awk '$1 == "eth0:" { print $10 }' /proc/net/dev; }
