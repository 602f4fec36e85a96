#!/bin/bash
# Sums over the ranks of one node in private arrays: Trireme's algorithms beside the MPI library's and PyTorch's over
# gloo, and in arrays shared by the node; measured alternately.
#
#   [RANKS="2 4"] [SIZES="4096 16384 ... 268435456"] [REPEAT=20] [POOL=bytes] [ROUNDS=5] [PYTHON=python3]
#   tests/bench/allreduce.sh
#
# Each round measures all of them at each size, REPEAT times, one thread per rank, in arrays that are in no cache (POOL:
# bytes of a rank's arrays together; default: 5/2 of the last-level cache, divided by the ranks). Results are medians
# over rounds; ratios are of the same round: best is the faster one of the MPI library and gloo, ours the algorithm that
# --parallel.collectives=FILE of `trireme bench allreduce --tune` would name: the fastest of all rounds. Of the shared
# arrays the percentage of the bound of memory bandwidth is printed. PYTHON= (empty): without gloo.
. "$(dirname "$0")/lib.sh"
RANKS=${RANKS:-2 4}
SIZES=${SIZES:-4096 16384 65536 262144 1048576 4194304 16777216 67108864 268435456}
REPEAT=${REPEAT:-20}
PYTHON=${PYTHON-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# pool RANKS BYTES: bytes of the arrays of a rank
pool() {
  local cache
  cache=$(getconf LEVEL3_CACHE_SIZE 2> /dev/null || echo 0)
  awk -v given="${POOL:-0}" -v cache="$cache" -v ranks="$1" -v bytes="$2" 'BEGIN {
    pool = given > 0 ? given : 2.5 * cache / ranks
    if (given == 0 && pool < 67108864) pool = 67108864
    if (pool < 2 * bytes) pool = 2 * bytes
    printf "%.0f\n", pool }'
}

# measure RANKS BYTES: a line "METHOD SECONDS BOUND" for each method
measure() {
  local bytes
  bytes=$(pool "$1" "$2")
  job "$1" bench allreduce --json --threads=1 --min="$2" --max="$2" --pool="$bytes" --repeat="$REPEAT" |
    sed -n 's/.*"method":"\([a-z]*\)".*"median_s":\([-+0-9.eE]*\).*/\1 \2 &/p' |
    sed 's/^\([a-z]* [^ ]*\) .*"bound_s":\([-+0-9.eE]*\).*/\1 \2/; s/ {.*//'
  [ -z "$PYTHON" ] ||
    echo "gloo $("$PYTHON" "$here/allreduce_gloo.py" "$1" "$2" "$REPEAT" "$bytes" | json_value median_s)"
}

for ranks in $RANKS; do
  for bytes in $SIZES; do
    rm -f "$work/rows"
    for round in $(seq "$ROUNDS"); do
      measure "$ranks" "$bytes" > "$work/round"
      wanted "an all-reduce of $bytes bytes" "$(awk 'NF > 1' "$work/round")"
      sed "s/^/$round /" "$work/round" >> "$work/rows"
    done
    ours="" least=""
    for method in $(awk '$1 == 1 { print $2 }' "$work/rows"); do
      mapfile -t seconds < <(awk -v m="$method" '$2 == m { print $3 }' "$work/rows")
      s=$(median "${seconds[@]}")
      printf '{"compare":"all-reduce","ranks":%s,"bytes":%s,"rounds":%s,"method":"%s","s":%s' "$ranks" "$bytes" \
        "$ROUNDS" "$method" "$s"
      if [ "$method" = shared ]; then
        mapfile -t parts < <(awk '$2 == "shared" { print 100 * $4 / $3 }' "$work/rows")
        printf ',"percent_of_bound":%s' "$(median "${parts[@]}")"
      fi
      echo "}"
      case $method in library | gloo | shared) continue ;; esac
      [ -n "$least" ] && awk -v a="$s" -v b="$least" 'BEGIN { exit !(a >= b) }' || { least=$s ours=$method; }
    done
    mapfile -t ratios < <(awk -v ours="$ours" '$2 == ours { s[$1] = $3 }
      $2 == "library" || $2 == "gloo" { if (!($1 in best) || $3 < best[$1]) best[$1] = $3 }
      END { for (r in s) print best[r] / s[r] }' "$work/rows")
    printf '{"compare":"all-reduce","ranks":%s,"bytes":%s,"ours":"%s","best_over_ours":%s}\n' "$ranks" "$bytes" \
      "$ours" "$(median "${ratios[@]}")"
  done
done
