# Shared by the benchmark scripts. Sourced. TRIREME: the program (default: build/trireme, or from PATH); ROUNDS: number
# of alternations.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TRIREME=${TRIREME:-$here/../../build/trireme}
[ -x "$TRIREME" ] || TRIREME=$(command -v trireme) || { echo "no trireme: build it, or set TRIREME" >&2; exit 1; }
MPIEXEC=${MPIEXEC:-mpiexec}
ROUNDS=${ROUNDS:-7}

# json_value KEY: a number of the JSON object on stdin
json_value() { sed -n "s/.*\"$1\": *\([-+0-9.eE]*\).*/\1/p" | tail -n 1; }

# median NUMBER...
median() {
  printf '%s\n' "$@" | sort -g |
    awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4f\n", a / b }'; }

# job RANKS ARGUMENT...: runs the program on that many ranks
job() {
  local ranks=$1
  shift
  if [ "$ranks" = 1 ]; then "$TRIREME" "$@"; else timeout -k 10 600 $MPIEXEC -n "$ranks" "$TRIREME" "$@"; fi
}

# wanted WHAT NUMBER: checks that a number was measured
wanted() { [ -n "$2" ] || { echo "no figure from $1" >&2; exit 1; }; }
