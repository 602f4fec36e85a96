#!/bin/bash
# Rate of imports of csv and libsvm files, compared with pandas.read_csv and sklearn.datasets.load_svmlight_file, which
# leave the rows in memory; ours also sorts out classes, checks, hashes and writes. Measured alternately, on one core.
# Then the time that passes with one rank and with several, compressed, and whether the data sets are equal.
#
#   [ROUNDS=5] [MB=100] [RANKS=2] [PYTHON=python3] tests/bench/import.sh [csv|libsvm]...
#
# PYTHON needs numpy, pandas and scikit-learn. The results are medians over rounds: their time / ours, and the time of one
# rank / that of several.
ROUNDS=${ROUNDS:-5}
. "$(dirname "$0")/lib.sh"
MB=${MB:-100}
RANKS=${RANKS:-2}
PYTHON=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# Rows of 20 numbers with 4 to 9 digits and a label of 10 classes; of libsvm 30 entries of 1,000 columns.
"$PYTHON" - "$folder" "$MB" << 'EOF'
import sys
import numpy as np
folder, wanted = sys.argv[1], int(sys.argv[2]) * 10**6
random = np.random.default_rng(1)
with open(folder + "/rows.csv", "w") as out:
    out.write(",".join(f"x{i}" for i in range(20)) + ",class\n")
    while out.tell() < wanted:
        x = random.normal(size=(20000, 20)) * 10.0 ** random.integers(-2, 4, 20)
        for row, label in zip(x, random.integers(0, 10, 20000)):
            out.write(",".join("%.7g" % value for value in row) + f",{label}\n")
with open(folder + "/rows.libsvm", "w") as out:
    while out.tell() < wanted:
        columns = np.sort(random.permuted(np.tile(np.arange(1, 1001), (2000, 1)), axis=1)[:, :30], axis=1)
        for row, value, label in zip(columns, random.random((2000, 30)), random.integers(0, 2, 2000)):
            out.write(f"{label} " + " ".join("%d:%.6g" % pair for pair in zip(row, value)) + "\n")
EOF

# seconds COMMAND...: of the command's processor time, its children's included
seconds() {
  local TIMEFORMAT='%U %S'
  { time "$@" > "$folder/log" 2>&1; } 2>&1 | awk '{ print $1 + $2 }'
}

# passing RANKS KIND FILE: seconds that pass
passing() {
  local TIMEFORMAT=%R
  { time job "$1" data import "$2" "$3" --out="$folder/ranks-$1.h5" --overwrite > "$folder/log" 2>&1; } 2>&1
}

digest() { "$TRIREME" data info "$1" --json | sed -n 's/.*"digest":"\([0-9a-f]*\)".*/\1/p'; }

cat > "$folder/peer.py" << 'EOF'
import sys
if sys.argv[1] == "csv":
    import pandas
    if len(sys.argv) > 2:
        pandas.read_csv(sys.argv[2])
else:
    import sklearn.datasets
    if len(sys.argv) > 2:
        sklearn.datasets.load_svmlight_file(sys.argv[2])
EOF

for format in "${@:-csv libsvm}"; do
  for kind in $format; do
    file=$folder/rows.$kind
    bytes=$(stat -c %s "$file")
    ours=() theirs=() ratios=() packed=() speedups=()
    for round in $(seq "$ROUNDS"); do
      a=$(seconds "$TRIREME" data import "$kind" "$file" --out="$folder/out.h5" --overwrite --compress=0)
      c=$(seconds "$TRIREME" data import "$kind" "$file" --out="$folder/out.h5" --overwrite)
      whole=$(seconds "$PYTHON" "$folder/peer.py" "$kind" "$file")
      start=$(seconds "$PYTHON" "$folder/peer.py" "$kind")
      b=$(awk -v a="$whole" -v b="$start" 'BEGIN { print a - b }')
      ours+=("$a") packed+=("$c") theirs+=("$b") ratios+=("$(ratio "$b" "$a")")
      one=$(passing 1 "$kind" "$file")
      all=$(passing "$RANKS" "$kind" "$file")
      speedups+=("$(ratio "$one" "$all")")
      echo "$kind: round $round: ours $a s (compressed $c s), theirs $b s; 1 rank $one s, $RANKS ranks $all s"
    done
    first=$(digest "$folder/ranks-1.h5")
    wanted "trireme data info" "$first"
    equal=$([ "$first" = "$(digest "$folder/ranks-$RANKS.h5")" ] && echo true || echo false)
    awk -v ranks="$RANKS" -v speedup="$(median "${speedups[@]}")" -v equal="$equal" -v kind="$kind" -v n="$bytes" -v a="$(median "${ours[@]}")" -v b="$(median "${theirs[@]}")" -v rounds="$ROUNDS" \
      -v c="$(median "${packed[@]}")" -v r="$(median "${ratios[@]}")" 'BEGIN {
        printf "{\"compare\":\"import %s\",\"rounds\":%d,\"mb_per_s\":%.1f,\"compressed_mb_per_s\":%.1f,", kind, rounds,
               n / a / 1e6, n / c / 1e6
        printf "\"peer_mb_per_s\":%.1f,\"ratio\":%s,", n / b / 1e6, r
        printf "\"ranks\":%d,\"speedup\":%.2f,\"equal_digests\":%s}\n", ranks, speedup, equal }'
  done
done
