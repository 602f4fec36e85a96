#!/bin/bash
# Copies of the state in the memory of two nodes (run.buddy). Of two hosts on one machine (network namespaces on a
# bridge, each with its own name and shared memory) one is lost in the middle of a run: `trireme run` goes on with the
# other one from its memory, and the weights are those of an undisturbed run. Damaged copies are not used; nothing is
# left in memory.
set -u
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/hosts_lib.sh"
isolate "$@"
scratch
openblas_only
mount -t tmpfs -o size=64m tmpfs /dev/shm || fail "no memory for this test"
digits 2000 100
cat > config.yaml << 'EOT'
model: mlp 784-64-10
data: {file: digits.h5}
train: {steps: 400, epochs: 1000, batch: 128}
optim: {name: adam, lr: 0.01}
parallel: {threads: 1}
run: {seed: 3, checkpoint_every: 160, buddy: 20}
log: {every: 10}
EOT

# copies: those in the memory of this machine. nothing_left WHAT: none, and no folders
copies() { find /dev/shm -path '*/trireme-*' -name 'step-*.h5'; }
nothing_left() {
  [ -z "$(find /dev/shm -path '*/trireme-*')" ] || fail "$1: left in memory: $(find /dev/shm -path '*/trireme-*')"
}
# last_step RUN: of the metrics
last_step() { tail -n 1 "$1/metrics.jsonl" | sed -n 's/^{"step":\([0-9]*\),.*/\1/p'; }
# killed RANKS NAME STEP OPTION...: trains until the metrics have that step, then all ranks are killed. On a busy machine
# the run may be beyond the checkpoint or the copy of step $before by then: it is made again.
before=400
killed() {
  local attempt
  for attempt in 1 2 3 4 5 6; do
    killed_once "$@"
    [ -n "$(find "$2" /dev/shm -name "step-$(printf %08d $before).h5" -o -name step-00000400.h5)" ] || return 0
    rm -rf "$2" /dev/shm/trireme-*
  done
  fail "$2: not killed before step $before, $attempt times"
}
killed_once() {
  local ranks=$1 name=$2 step=$3 job
  shift 3
  rm -f rank.*
  (launch_ranks "$ranks" "$TRIREME" train config.yaml --run.dir="$name" "$@" > "$name.log" 2>&1) & job=$!
  until [ "$(last_step "$name" 2> /dev/null || echo 0)" -ge "$step" ] 2> /dev/null || ! kill -0 $job 2> /dev/null; do
    sleep 0.01
  done
  # shellcheck disable=SC2046 # a list
  kill -KILL $(cat rank.*)
  wait $job
}
# resumed NAME FROM: its log says that it was resumed at a step from FROM on; sets $step
resumed() {
  step=$(sed -n 's,^resumed from /dev/shm/.*: epoch [0-9]*\, step \([0-9]*\)$,\1,p' "$1.log")
  at_least "$step" "$2" && [ $((step % 20)) = 0 ] || { cat "$1.log"; fail "$1: resumed at step ${step:-none}, not $2"; }
}

# -- one machine: a rank is killed
layouts=("2" "3 --parallel.zero=1" "2 --parallel.tensor=2")
! all_cases || layouts+=("1" "2 --run.background=no" "2 --parallel.zero=3 --run.background=yes"
  "2 --parallel.pipeline=2 --train.accumulate=2" "2 --run.lanes=2")
for layout in "${layouts[@]}"; do
  read -ra words <<< "$layout"
  rm -rf whole one
  run "${words[0]}" whole --run.buddy=0 "${words[@]:1}"
  killed "${words[0]}" one 110 "${words[@]:1}"
  [ "$(stat -c %a /dev/shm/trireme-*)" = 700 ] || fail "$layout: the folder is not private"
  run "${words[0]}" one --run.resume=auto "${words[@]:1}"
  resumed one 80
  equal whole one "$layout, resumed at step $step"
  nothing_left "$layout"
done

# damage FILE: changes the byte in its middle
damage() {
  local at=$(($(stat -c %s "$1") / 2)) byte
  byte=$(od -An -tu1 -j $at -N 1 "$1")
  # shellcheck disable=SC2059 # an octal escape
  printf "\\$(printf %03o $((byte ^ 1)))" | dd of="$1" bs=1 seek=$at conv=notrunc status=none
}
# -- a damaged copy: the newest file is taken, loudly; a copy that is older than the newest file is not
run 1 whole --run.buddy=0 --run.overwrite=yes
before=320
killed 1 damaged 250
before=400
[ -n "$(copies)" ] || fail "damaged: no copy"
for copy in $(copies); do damage "$copy"; done
run 1 damaged --run.resume=auto
grep -q 'warning: run.buddy: a copy of the state in memory is damaged, and is not used: /dev/shm/' damaged.log &&
  grep -q '^resumed from damaged/checkpoints/step-00000160.h5' damaged.log ||
  { cat damaged.log; fail "damaged: not resumed from the file"; }
equal whole damaged "a damaged copy"
nothing_left damaged
before=360
killed 1 older 290 --run.buddy=120 --run.checkpoint_every=140 --run.background=no
copies | grep -q 'step-00000240.h5$' || fail "older: $(copies)"
run 1 older --run.resume=auto --run.buddy=0
grep -q '^resumed from older/checkpoints/step-00000280.h5' older.log || { cat older.log; fail "older: not from the file"; }
equal whole older "a copy older than the newest file"
nothing_left older
before=400

# -- a run of its own: with another one's directory made anew, its copies are not taken
killed 1 fresh 110
rm -rf fresh
run 1 fresh --run.resume=auto
grep -q 'starting from the initial weights' fresh.log || { cat fresh.log; fail "fresh: not from the beginning"; }
equal whole fresh "a new run in the place of another"
nothing_left fresh

# -- encrypted and signed
if "$TRIREME" key make key > key.log 2>&1; then
  "$TRIREME" key make signing --sign >> key.log 2>&1 || { cat key.log; fail "key make --sign"; }
  "$TRIREME" key encrypt digits.h5 --out=secret.h5 --security.key=file:key >> key.log 2>&1 || { cat key.log; fail "key encrypt"; }
  "$TRIREME" key sign secret.h5 --security.key=file:key --run.sign=file:signing >> key.log 2>&1 ||
    { cat key.log; fail "key sign"; }
  keys=(--data.file=secret.h5 --security.key=file:key --run.sign=file:signing --run.verify_with=file:signing.pub)
  killed 2 secret 110 "${keys[@]}"
  [ "$(head -c 8 "$(copies)")" = TRMCIPH1 ] || fail "the copy in memory is not encrypted"
  run 2 secret --run.resume=auto "${keys[@]}"
  resumed secret 80
  nothing_left secret
  pass "copies are encrypted and signed"
fi

# -- refused: no space
try 1 big --model="mlp 784-4096-10" --run.buddy=1
status=$?
[ $status = 2 ] && grep -q 'error: run.buddy: two copies of the state take 78.* MB of memory in /dev/shm, which has' big.log ||
  { cat big.log; fail "no space: status $status"; }
nothing_left "no space"
pass "without space for two copies a run is refused"

# -- trireme run ends without a restart: nothing is left
cat > once << 'EOT'
#!/bin/bash
(until [ -n "$(find /dev/shm -path '*/trireme-*' -name 'step-*.h5')" ]; do sleep 0.01; done; kill -KILL $$) &
exec "$@"
EOT
chmod +x once
timeout -k 5 60 "$TRIREME" run --restarts=0 -- ./once "$TRIREME" train config.yaml --run.dir=ended > ended.log 2>&1
status=$?
[ $status = 1 ] && [ -e ended/metrics.jsonl ] || { cat ended.log; fail "no restart: status $status"; }
nothing_left "no restart"
pass "trireme run removes the copies when no restart is left"

# -- two hosts, of which one is lost
start_hosts 2
run 1 lanes --run.buddy=0 --run.lanes=2
# The first host is lost, which had rank 0; then in another run the second one.
for lost in 1 $(all_cases && echo 2); do
  name=lost$lost
  [ "$lost" = 1 ] || start_host 1
  timeout -k 5 110 "$TRIREME" run --hosts=10.77.0.1,10.77.0.2 -- \
    $mpiexec_hosts -hosts {hosts} -n {ranks} \
    "$TRIREME" train config.yaml --run.dir="$name" --run.lanes=2 --run.checkpoint_every=5000 --run.stall_after=1 \
    --run.stall_abort=2 > "$name.log" 2>&1 &
  job=$!
  until [ "$(last_step $name 2> /dev/null || echo 0)" -ge 220 ] 2> /dev/null || ! kill -0 $job; do sleep 0.02; done
  lose_host "$lost"
  until grep -q 'run: restart 1 of' $name.log || ! kill -0 $job; do sleep 0.02; done
  reached=$(last_step $name)
  wait $job
  status=$?
  [ $status = 0 ] && grep -q 'run: 1 of 2 hosts answer: 1 rank$' $name.log && [ "$(of $name ranks)" = 1 ] ||
    { cat $name.log; fail "host $lost: status $status, $(of $name ranks) ranks"; }
  grep -q 'run.buddy: copies of the state in the memory of two nodes, those of ranks 0 and 1$' $name.log ||
    { cat $name.log; fail "host $lost: not two nodes"; }
  # the copy before the newest, if the newest was being made
  resumed $name $((reached - 40))
  pass "host $lost is lost: step $reached, resumed from memory at step $step"
  equal lanes $name "host $lost is lost"
  for host in 1 2; do
    [ $host = "$lost" ] || [ -z "$(on_host $host ls /dev/shm | grep trireme-)" ] ||
      fail "host $lost: copies are left on host $host"
  done
done
finish
