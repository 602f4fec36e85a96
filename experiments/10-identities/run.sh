#!/bin/bash
# Pairs of runs that end with the same weights, to the bit, and some that do not.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
[ $form = full ] && steps=400 || steps=40
use_images
hash_of() { # hash_of OPTION...: of a run's weights
  "$TRIREME" train "$here/config.yaml" --data.file="$data" --train.steps=$steps --run.dir="$OUT/run" \
    --run.overwrite=yes "$@" > "$OUT/log" 2>&1 || { cat "$OUT/log" >&2; exit 1; }
  sed 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/' "$OUT/run/summary.json"
}
mkdir -p "$OUT/main"
echo "variant,equal" > "$OUT/main/results.csv"
{
  echo "| identity | equal | weights of the one, SHA-256 | of the other | options of the one | of the other |"
  echo "|---|---|---|---|---|---|"
} > "$OUT/main/table.md"
while IFS='|' read -r name one other; do
  # shellcheck disable=SC2086
  a=$(hash_of $one) b=$(hash_of $other)
  [ "$a" = "$b" ] && equal=1 || equal=0
  echo "$name,$equal" >> "$OUT/main/results.csv"
  echo "| $name | $([ $equal = 1 ] && echo yes || echo no) | ${a:0:12} | ${b:0:12} | \`${one# }\` | \`${other# }\` |" >> "$OUT/main/table.md"
done < <(sed -e '/^#/d' -e 's/ *| */|/g' "$here/pairs.txt")
cut -d'|' -f2-5 "$OUT/main/table.md"
finish
