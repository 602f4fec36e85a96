#!/bin/bash
# One job at a time writes to a run directory: the second says whose it is, or waits where it resumes; the lease of a
# process that is gone, or of another host that is silent, ends; a job that lost its lease writes no more.
set -u
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 2000 100
cat > config.yaml << 'EOT'
model: mlp 784-8-10
data: {file: digits.h5}
train: {epochs: 1000, batch: 10}
parallel: {threads: 1}
device: {compute: sleep, gflops: 0.02}
run: {seed: 3, resume: auto}
log: {every: 1, quiet: yes}
EOT

# starts NAME OPTION...: in the background; job and pid are those of the run once it trains
starts() {
  local name=$1 lines
  lines=$(cat "$name/metrics.jsonl" 2> /dev/null | wc -l)
  "$TRIREME" train config.yaml --run.dir="$@" > "$name.log" 2>&1 &
  job=$!
  awaits $((lines + 2)) "$name/metrics.jsonl" $job
  kill -0 $job 2> /dev/null || { cat "$name.log"; fail "$name: the run has ended"; }
}
ends() { # STATUS NAME
  wait $job
  local status=$?
  [ $status = "$1" ] || { cat "$2.log"; fail "$2: status $status, not $1"; }
}

mkdir a && : > a/notes.new && : > a/lease.pdf # the user's
starts a
[ -e a/notes.new ] && [ -e a/lease.pdf ] || fail "a file of the user was removed"
cp a/metrics.jsonl before
timeout 30 "$TRIREME" train config.yaml --run.dir=a --run.resume= --run.overwrite=yes > second.log 2>&1
[ $? = 1 ] && grep -q "a/lease: another job trains here: host $(hostname), process $job," second.log ||
  { cat second.log; fail "a second job in the directory of process $job"; }
cmp -s before <(head -n "$(wc -l < before)" a/metrics.jsonl) || fail "the second job changed the first one's metrics"
pass "a second job names the first one and leaves its files"

timeout 60 "$TRIREME" train config.yaml --run.dir=a --train.steps=1 > second.log 2>&1 &
second=$!
sleep 0.5
kill -TERM $job
ends 3 a
wait $second
status=$?
[ $status = 0 ] || { cat second.log; fail "the job that waited: status $status"; }
[ ! -e a/lease ] || fail "a/lease is left"
pass "a job that resumes waits until the one before it has ended"

starts b
kill -KILL $job
wait $job 2> /dev/null
[ -e b/lease ] || fail "b/lease: none of a killed process"
starts b
kill -TERM $job
ends 3 b
pass "the lease of a process that is gone ends at once"

# The same lease as of another machine, whose processes cannot be seen here
elsewhere='host elsewhere process 1 job 77 start 5 boot none space none'
echo "$elsewhere" > b/lease
timeout 30 "$TRIREME" train config.yaml --run.dir=b --run.resume=b/checkpoints/last.h5 > second.log 2>&1
[ $? = 1 ] && grep -q 'host elsewhere, process 1, Slurm job 77' second.log ||
  { cat second.log; fail "the lease of another host"; }
touch -d '-61 seconds' b/lease
starts b
grep -q "process $job " b/lease || { cat b/lease; fail "b/lease is not of process $job"; }
pass "the lease of another host lasts for a minute after its renewal"

echo "$elsewhere" > b/lease
ends 1 b
grep -q 'b/lease: another job has taken the run directory' b.log || { cat b.log; fail "b: no message"; }
[ "$(cat b/lease)" = "$elsewhere" ] || fail "b: the lease of another job was removed"
pass "a job that has lost its lease ends, and leaves the other's"

mkdir -p c/lease && touch -d '-1 hour' c/lease
timeout 30 "$TRIREME" train config.yaml --run.dir=c > c.log 2>&1
[ $? = 1 ] && grep -q 'c/lease: cannot be read: Is a directory' c.log && [ -d c/lease ] ||
  { cat c.log; fail "a folder in the place of the lease"; }
pass "a folder in the place of the lease is refused"
finish
