#!/bin/bash
# `trireme run`: a job whose ranks are killed in their start, set-up, steps and saves is started again, and ends with the
# weights of an undisturbed run; it is not when killed after its end, when no restart is left, when it was refused, failed,
# or got a signal; hosts that do not answer are left out; shared memory that nobody has any more is removed.
set -u
. "$(dirname "$0")/lib.sh"
find_faults
scratch
openblas_only
export SHM=/dev/shm/mpich_shar_tmp$$
trap 'rm -rf "$work" "$SHM".*; kill $holder' EXIT
(until [ -e "$SHM.held" ]; do sleep 0.1; done; exec sleep 60 < "$SHM.held") & holder=$!
: > "$SHM.old"
digits 300 30
cat > config.yaml << 'EOT'
model: mlp 784-8-10
data: {file: digits.h5}
train: {steps: 400, epochs: 100, batch: 10}
optim: {name: adam, lr: 0.01}
parallel: {threads: 1}
run: {seed: 3, lanes: 2, checkpoint_every: 50, stall_after: 0, stall_abort: 0} # so that calls have numbers
log: {every: 10, quiet: yes}
EOT
# rank.sh PROGRAM...: line N of `plan` says how a rank ends that starts for the Nth time. - or none: as it will; start:
# before the program begins, and leaves shared memory; NUMBER: rank 0 at that call that changes the run directory; step:
# rank 1 after a line of metrics; the disk is slow then, so that the job does not end before
cat > rank.sh << 'EOT'
#!/bin/bash
rank=${PMI_RANK:-$OMPI_COMM_WORLD_RANK}
echo >> "starts.$rank"
how=$(sed -n "$(wc -l < "starts.$rank")p" plan)
case $rank-${how:--} in
0-start)
  : > "$SHM.left"; : > "$SHM.held"
  kill -KILL $$ ;;
0-[0-9]*)
  FAULT_COUNT=$RUN.calls FAULT_AT=$how FAULT=kill FAULT_FOLDER=$RUN/ LD_PRELOAD=$FAULTS exec "$@" ;;
0-step)
  FAULT_DELAY=0.1 FAULT_FOLDER=$RUN/ LD_PRELOAD=$FAULTS exec "$@" ;;
1-step)
  lines=$(wc -l < "$RUN/metrics.jsonl")
  (until [ "$(wc -l < "$RUN/metrics.jsonl")" -gt "$lines" ]; do sleep 0.01; done; kill -KILL $$) & ;;
esac
exec "$@"
EOT
chmod +x rank.sh
export FAULTS

# restarts RUN FLAG... -- OPTION...: status in $status, log in RUN.log, number of starts in $count
restarts() {
  local name=$1 flags=()
  shift
  while [ "$1" != -- ]; do flags+=("$1"); shift; done
  rm -f starts.*
  # shellcheck disable=SC2086 # MPIEXEC is a list of words
  RUN=$work/$name timeout -k 5 60 bash -c 'echo $$ > wrapper; exec "$@"' - "$TRIREME" run "${flags[@]}" -- \
    $MPIEXEC -n 2 ./rank.sh "$TRIREME" train config.yaml --run.dir="$work/$name" "${@:2}" > "$name.log" 2>&1
  status=$?
  count=$(cat starts.0 2> /dev/null | wc -l)
}
# ends NAME STATUS STARTS TEXT: as restarts has left it
ends() {
  [ $status = "$2" ] && [ "$count" = "$3" ] && grep -q -- "$4" "$1.log" ||
    { cat "$1.log"; fail "$1: status $status after $count starts, not $2 after $3, or no \"$4\""; }
}

echo 0 > plan
restarts whole --
[ "$status $count" = '0 1' ] && [ ! -s whole.log ] || { cat whole.log; fail "whole: status $status, $count starts"; }

printf '%s\n' 3 100 start 100 step > plan # a save makes 42 calls
restarts killed --restarts=5 --
ends killed 0 6 'restart 5 of 5 in [12] s: the job was cut off in training' # 1: after a new checkpoint
grep -o 'restart .* of 5 in .* s: the job was cut off in .* (status 9' killed.log | cut -d' ' -f2,6,14 | sed 's/^5 2/5 1/' > restarts
printf '%s\n' '1 1 its' '2 1 training' '3 2 its' '4 1 training' '5 1 training' | cmp -s restarts - ||
  { cat killed.log restarts; fail "killed: other restarts"; }
equal whole killed
[ -e "$SHM.old" ] && [ -e "$SHM.held" ] && [ ! -e "$SHM.left" ] || fail "shared memory: $(ls "$SHM".*)"
pass "shared memory that nobody has is removed, and no other"

cat whole.calls > plan
restarts end --
[ "$status $count" = '0 1' ] && [ -e end/lease ] || { cat end.log; fail "end: status $status, $count starts"; }
equal whole end

printf '%s\n' start start start > plan
restarts exhausted --restarts=1 --
ends exhausted 1 2 'error: run: .*/exhausted: no restart is left of 1: the job was cut off in its start (status 9 of'
pass "the number of restarts is limited"

: > plan
restarts option -- --train.bacth=3
ends option 2 0 'unknown option "train.bacth"'
restarts layout -- --parallel.pipeline=7
ends layout 2 1 'error: run: the job did not begin to train (its message is above): no restart'
restarts diverged -- --optim.lr=1e30 --optim.name=sgd
ends diverged 1 1 'error: run: .*/diverged: failed (its message is above) without a new checkpoint: no restart'
pass "what was refused or has failed is not started again"

# stops NAME SIGNAL FILE TEXT OPTION...: a signal once FILE has a line with TEXT
stops() {
  local name=$1 signal=$2 file=$3 text=$4
  shift 4
  (restarts "$name" -- "$@"; ends "$name" 3 1 "run: .*/$name: stopped by a signal") &
  until grep -qs "$text" "$file" || ! kill -0 $!; do sleep 0.02; done
  kill -"$signal" "$(cat wrapper)"
  wait $! || fail "$name: $signal"
}
stops stopped TERM stopped/metrics.jsonl '"step":10,' --train.steps=1000000 --train.epochs=1000000
[ "$(json_text status stopped/summary.json)" = stopped ] || fail "stopped: no checkpoint: $(cat stopped/summary.json)"
echo start > plan
stops pause INT pause.log 'restart 1 of'
: > plan
restarts pause -- --run.resume=auto
[ $status = 0 ] || { cat pause.log; fail "pause: status $status"; }
equal whole pause
pass "a signal stops the run, and the wait for a restart"

# launcher HOSTS RANKS PROGRAM...: host b answers until the file `lost` is there
cat > launcher << 'EOT'
#!/bin/bash
[ ! -e lost ] || case $1 in *b*) exit 1 ;; esac
exec $MPIEXEC -n "$2" "${@:3}"
EOT
chmod +x launcher
export MPIEXEC
echo start > plan
(until grep -qs 'restart 1 of' hosts.log; do sleep 0.02; done; : > lost) & loses=$!
rm -f starts.*
timeout -k 5 60 "$TRIREME" run --hosts=a,b -- ./launcher {hosts} {ranks} ./rank.sh "$TRIREME" train config.yaml \
  --run.dir=hosts > hosts.log 2>&1 || { cat hosts.log; fail "hosts"; }
wait $loses
grep -q 'run: 1 of 2 hosts answer: 1 rank$' hosts.log && [ "$(of hosts ranks)" = 1 ] ||
  { cat hosts.log; fail "hosts: $(of hosts ranks) ranks"; }
equal whole hosts
finish
