#!/bin/bash
# Mutations of the training methods: each changes one rule in the source, and a suite must notice. Not part of make
# check, since it takes minutes.
#
#   tests/mutations.sh [PATTERN]    PATTERN: only mutations whose name matches (grep -E)
#
# Works on a copy of the tree, configured like ./build. Prints a table. Fails if a mutation survives, does not apply or
# does not build, or if a suite fails without any.
set -u
. "$(dirname "$0")/lib.sh"
pattern=${1-.}
from=$(cd "$top_srcdir" && pwd)
scratch
tree=$work/tree
names=() files=() changes=() suites=()

# mutation NAME FILE CHANGE SUITE [RANKS]: CHANGE is a sed -E expression on FILE; SUITE a script of tests/, or a program
# of tests/unit/, which runs on RANKS ranks.
mutation() {
  echo "$1" | grep -qE -- "$pattern" || return 0
  names+=("$1") files+=("$2") changes+=("$3") suites+=("$4 ${5-}")
}

mutation 'asgd, tau > 1: no local step' mpi/async/asgd.c 's/\.rate = \(float\)rate/.rate = 0/' \
  test_async_server_weights 2
mutation 'asgd, tau > 1: sends the last gradient alone' mpi/async/gradient_sum.c \
  's/server_weights_axpy\(s, rate \* scale/if (batch == s->options->tau) &/' test_async_server_weights 2
mutation 'asgd, tau > 1: sum not cleared' mpi/async/asgd.c 's/if \(asgd->sum\)$/if (!asgd)/' test_async_server_weights 2
mutation 'asgd, tau > 1: sends unclipped gradients' mpi/async/gradient_sum.c 's/rate \* scale/rate/' \
  test_async_server_weights 2
mutation 'asgd, tau > 1: local steps unclipped' mpi/async/asgd.c 's/\.scale = \(float\)scale/.scale = 1/' \
  test_async_server_weights 2
mutation 'asgd, tau > 1: one rate for a period' mpi/async/asgd.c \
  's/asgd->rates \+= rate/asgd->rates = rate * (asgd->batches + 1)/' test_async_server_weights 1
mutation 'asgd, tau > 1: no decay in local steps' mpi/async/asgd.c 's/step\.l2 = .*/step.l2 = 0;/' \
  test_async_server_weights 1
mutation 'asgd: rate=staleness ignored' mpi/async/asgd.c 's, / server_weights_rate_divisor\(s\, call\),,' \
  test_async_server_weights 3
mutation 'asgd: clipping off' mpi/async/server_weights.c 's/update\.scale = \(float\)scale/update.scale = 1/' \
  test_async_server_weights 2
mutation 'softsync: rate=staleness ignored' mpi/async/softsync.c 's, / server_weights_rate_divisor\(s\, call\),,' \
  test_async_server_weights 3
mutation 'softsync: restored clocks count gradients' mpi/async/softsync.c \
  's, / softsync_gradients_per_update\(s\)\),),' test_async_server_weights 2
mutation 'softsync: clocks not restored' mpi/async/softsync.c 's/worker_gradients\(s, updates\) \//0 */' test_async_server_weights 2
mutation 'dcasgd: squares of the unclipped gradient' mpi/async/dcasgd.c \
  's/\(scale \* g\[i\]\) \* \(scale \* g\[i\]\)/g[i] * g[i]/' test_async_server_weights 2
mutation 'dcasgd: correction by the unclipped gradient' mpi/async/dcasgd.c \
  's/strength \* \(scale \* g\[i\]\)/strength * g[i]/' test_async_server_weights 2
mutation 'dcasgd: memory and 1 - memory exchanged' mpi/async/dcasgd.c \
  's/memory \* squares\[i\] \+ \(1 - memory\)/(1 - memory) * squares[i] + memory/' test_async_server_weights 2
mutation 'keuper: no gate' mpi/async/keuper.c 's/accepts = .*;/accepts = true;/' test_async_turns 2
mutation 'keuper: gate closed' mpi/async/keuper.c 's/accepts = .*;/accepts = false;/' test_async_turns 2
mutation 'keuper: gate reversed' mpi/async/keuper.c 's/(accepts = .*) < /\1 > /' test_async_turns 2
mutation 'keuper: always to the next rank' mpi/async/keuper.c \
  's/draw \+ \(draw >= s->comm->rank\)/(s->comm->rank + 1) % s->comm->size/' test_async_turns 4
mutation 'adpsgd: always one partner' mpi/async/adpsgd.c 's/peers_draw\(s, passive\)/0/' test_async_turns 4
mutation 'peers: one draw for all batches' mpi/async/peers.c 's/\(uint64_t\)peers_of\(s\)->batches, word/0, word/' \
  test_async_turns 4
mutation 'peers: one draw for all ranks' mpi/async/peers.c 's/\(uint32_t\)s->comm->rank/0/' test_async_turns 4
mutation 'sgp: always to the next rank' mpi/async/sgp.c 's/= \(int\)\(sgp->iteration % sgp->distances\)/= 0/' \
  test_async_turns 4
mutation 'sgp: steps not divided by y' mpi/async/sgp.c 's, / sgp->peers.weight\[chunk\],,' test_async_turns 4
mutation 'sgp: halves for a worker that has failed' mpi/async/sgp.c 's/state\[BEGUN\] == -INFINITY/false/' \
  test_schedules 1
mutation 'the batch of a failed worker is dropped' mpi/async/batch_assignment.c \
  's/assignment_add_undone\(a, a->assigned\)/(void)a/' test_schedules 1
mutation 'hogwild: staleness 0' mpi/async/hogwild.c 's/staleness = begun - h->seen/staleness = 0/' test_hogwild 2
mutation 'hogwild: clock not read with the weights' mpi/async/hogwild.c 's/h->seen = shared_counters_read.*/;/' \
  test_hogwild 2
mutation 'sync: no overlap' mpi/sync/sync.c 's/while \(s->buckets_begun < s->buckets &&/while (0 \&\&/' test_sync 2
mutation 'rate frozen between evaluations' src/train/step.c \
  's/trm_schedule_rate\(t->options, part->batch/trm_schedule_rate(t->options, t->strategy.updates/' async.sh

# suite NAME [RANKS]: runs it in the copy; its output goes to suite.log.
suite() (
  cd "$tree/build" || exit 99
  export TRM_TEST_LIMIT=60 TRM_TEST_RANKS=${2-} OMP_WAIT_POLICY=passive MPIEXEC
  export top_srcdir=$tree top_builddir=$tree/build TRIREME=$tree/build/trireme
  case $1 in
    *.sh) bash "$tree/tests/$1" ;;
    *) bash "$tree/tests/run_matrix.sh" "tests/unit/$1" ;;
  esac > "$work/suite.log" 2>&1
)
build() { make -s -j2 -C "$tree/build" "${programs[@]}" > build.log 2>&1; }

# -- the copy, and its suites without a mutation
[ ${#names[@]} -gt 0 ] || fail "no mutation matches $pattern"
mkdir -p "$tree/build" && tar -C "$from" --exclude=./.git --exclude='./build' -cf - . | tar -C "$tree" -xf -
[ -x "$tree/configure" ] || (cd "$tree" && ./bootstrap > bootstrap.log 2>&1) || fail "bootstrap"
options=$([ -x "$from/build/config.status" ] && "$from/build/config.status" --config)
(cd "$tree/build" && eval "../configure -q $options" > configure.log 2>&1) || fail "configure"
programs=(trireme)
for program in $(printf '%s\n' "${suites[@]}" | grep -o '^test_[a-z_]*' | sort -u); do
  programs+=("tests/unit/$program")
done
build || { tail -20 build.log; fail "the tree does not build"; }
while read -r name ranks; do
  suite "$name" "$ranks" || { tail -20 suite.log; fail "$name $ranks fails without a mutation"; }
done < <(printf '%s\n' "${suites[@]}" | sort -u)

# -- the table
failed=0
for i in "${!names[@]}"; do
  file=${files[i]}
  read -r name ranks <<< "${suites[i]}"
  sed -E "${changes[i]}" "$from/$file" > "$tree/$file"
  if cmp -s "$from/$file" "$tree/$file"; then
    result='NOT APPLIED'
  elif ! build; then
    result='NOT BUILT'
  elif suite "$name" "$ranks"; then
    result='NOT CAUGHT'
  else
    result=caught
  fi
  cp "$from/$file" "$tree/$file"
  [ "$result" = caught ] || failed=$((failed + 1))
  printf '%-11s  %-48s  %s\n' "$result" "${names[i]}" "$name${ranks:+ on $ranks ranks}"
done
[ $failed = 0 ] || fail "$failed of ${#names[@]} mutations"
pass "${#names[@]} mutations are caught"
finish
