#!/bin/bash
# Sums over the ranks of two virtual hosts with a limited link: those that `trireme bench allreduce` measures, compared
# with the MPI library's. Needs root and MPICH.
#
#   [RANKS="2,2 4,4 3,1"] [BYTES=16777216] [RATE=1gbit] [REPEAT=5] [ROUNDS=5] [FLAGS=...] tests/bench/allreduce_hosts.sh
#
# RANKS: on each host, one thread each. Results are medians over rounds; ratios, MPI's seconds / theirs, are of the same
# round. FLAGS: of the benchmark.
# shellcheck source=tests/bench/lib.sh
. "$(dirname "$0")/lib.sh"
. "$here/../lib.sh"
. "$here/../hosts_lib.sh"
isolate "$@"
RANKS=${RANKS:-2,2 4,4 3,1}
BYTES=${BYTES:-16777216}
RATE=${RATE:-1gbit}
REPEAT=${REPEAT:-5}
read -ra flags <<< "${FLAGS-}"
scratch
start_hosts 2
limit_hosts "$RATE"

# fields: METHOD SECONDS of each JSON object on stdin
fields() { sed -n 's/.*"method":"\([a-z]*\)".*"median_s":\([-+0-9.e]*\).*/\1 \2/p'; }

for ranks in $RANKS; do
  rm -f rows
  for round in $(seq "$ROUNDS"); do
    # shellcheck disable=SC2086 # two numbers
    place ${ranks/,/ }
    launch $((${ranks/,/+})) "$TRIREME" bench allreduce --json --repeat="$REPEAT" --threads=1 \
      --min="$BYTES" --max="$BYTES" "${flags[@]}" | fields | sed "s/^/$round /" >> rows
  done
  wanted "bench allreduce, $BYTES bytes" "$(cat rows)"
  for name in $(awk '$1 == 1 { print $2 }' rows); do
    mapfile -t seconds < <(awk -v name="$name" '$2 == name { print $3 }' rows)
    mapfile -t ratios < <(awk -v name="$name" '$2 == "library" { mpi[$1] = $3 } $2 == name { s[$1] = $3 }
      END { for (r in s) print mpi[r] / s[r] }' rows)
    printf '{"compare":"sum over two hosts","ranks":"%s","rate":"%s","bytes":%s,"rounds":%s,"what":"%s","s":%s,' \
      "$ranks" "$RATE" "$BYTES" "$ROUNDS" "$name" "$(median "${seconds[@]}")"
    printf '"mpi_over_it":%s}\n' "$(median "${ratios[@]}")"
  done
done
