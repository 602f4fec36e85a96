# shellcheck shell=bash
# A Slurm of this machine for a test, as nodes of any names. Sourced after lib.sh; needs root and Debian's slurm-wlm and
# munge. work: a new folder, removed at the end, when the jobs have been ended and the daemons stopped.
#
#   start_slurm LINE NAME...  starts one with this line of the configuration and nodes of these names
#   stop_slurm                ends its jobs and daemons; start_slurm may come again
#   wait_for JOB              waits for its end
for tool in munged slurmctld slurmd sbatch srun; do
  command -v $tool > /dev/null || skip "no $tool here (Debian: slurm-wlm munge)"
done
[ "$(id -u)" = 0 ] || skip "slurmd needs root"

work=$(mktemp -d)
state=$work/state
host=$(hostname -s)
stop_slurm() { # jobs first: their steps outlive slurmd
  local file pids=
  scancel --user="$(id -un)" 2> /dev/null
  for _ in $(seq 50); do
    [ -z "$(squeue -h 2> /dev/null)" ] && break
    sleep 0.2
  done
  for file in "$state"/slurm*.pid; do
    [ -f "$file" ] && pids+=" $(cat "$file")"
  done
  # shellcheck disable=SC2086 # a list
  for _ in $(seq 50); do
    [ -n "$pids" ] && kill $pids 2> /dev/null || break
    sleep 0.1
  done
}
finish_slurm() {
  stop_slurm
  [ -f "$state/munge/pid" ] && kill "$(cat "$state/munge/pid")" 2> /dev/null
  sleep 0.3
  rm -rf "$work"
}
trap finish_slurm EXIT

mkdir -p "$state/munge" "$state/ctld"
chmod 755 "$work"; chmod 700 "$state/munge"
head -c 128 /dev/urandom > "$state/munge/key"; chmod 600 "$state/munge/key"
munged --force --key-file="$state/munge/key" --socket="$state/munge/socket" --pid-file="$state/munge/pid" \
  --log-file="$state/munge/log" --seed-file="$state/munge/seed" --num-threads=1 || fail "munged did not start"

# start_slurm LINE NAME...: with this line of the configuration, nodes of these names, which all are this machine, and no
# jobs. The ports are those of this test only, so that tests of several checkouts can run on one machine.
start_slurm() {
  local line=$1 name port=$((20000 + $$ % 20000)) next=0
  shift
  cat > "$state/slurm.conf" << EOF
ClusterName=trireme
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
AuthType=auth/munge
AuthInfo=socket=$state/munge/socket
MpiDefault=pmi2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
ReturnToService=2
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$state/ctld
SlurmdSpoolDir=$state/spool-%n
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/slurmd-%n.pid
SlurmctldLogFile=$state/slurmctld.log
SlurmdLogFile=$state/slurmd-%n.log
SchedulerType=sched/backfill
$line
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
JobRequeue=1
KillWait=30
MinJobAge=300
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF
  for name; do
    mkdir -p "$state/spool-$name"
    echo "NodeName=$name NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + ++next)) CPUs=2 State=UNKNOWN" \
      >> "$state/slurm.conf"
  done
  slurmctld -c || fail "slurmctld did not start"
  for name; do
    slurmd -N "$name" || fail "slurmd did not start"
  done
  for _ in $(seq 100); do
    [ "$(sinfo -h -o %D%T 2> /dev/null)" = $#idle ] && return
    sleep 0.2
  done
  tail "$state"/slurm*.log
  fail "the nodes did not come up"
}
export SLURM_CONF=$state/slurm.conf

# wait_for JOB: waits until it has left the queue; sets $job_state, a line for each component
wait_for() {
  for _ in $(seq 600); do
    job_state=$(scontrol show job "$1" 2> /dev/null | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p')
    case $job_state in COMPLETED* | FAILED* | CANCELLED* | TIMEOUT* | NODE_FAIL*) return ;; esac
    sleep 0.2
  done
}
