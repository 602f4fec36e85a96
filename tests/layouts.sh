#!/bin/bash
# Every layout against one rank: models x data x pipeline x tensor x schedule x ZeRO x recomputation. Each run makes 20
# steps with dropout, clipping, a learning-rate schedule and accumulation; losses and final weights must equal those of
# one rank within 1e-4, and bit for bit if only the pipeline differs.
#
#   tests/layouts.sh            a part of the cells, spread over all
#   tests/layouts.sh all FILE   every one; writes the table to FILE
set -u
. "$(dirname "$0")/lib.sh"
part=${1:-some} table=${2:-/dev/null}
every=53
! all_cases || every=17
[ "$part" != all ] || every=1
case $table in /*) ;; *) table=$PWD/$table ;; esac
. "$(dirname "$0")/layouts_lib.sh"

# compare MODEL REFERENCE NAME BITS LABEL
compare() {
  local loss weights
  loss=$(paste <(losses "$2") <(losses "$3") |
    awk -F '[:\t]' '{ d = ($4 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; n += NF == 4 }
                    END { if (n == 23) printf "%.3g", worst }')
  [ -n "$loss" ] || fail "$5: expected 20 losses, 2 evaluations and the test"
  weights=$("$COMPARE" "$2/checkpoints/last.h5" "$3/checkpoints/last.h5") || fail "$5: weights cannot be compared"
  awk -v l="$loss" -v w="$weights" 'BEGIN { exit !(l <= 1e-4 && w <= 1e-4) }' ||
    fail "$5: losses differ from one rank's by $loss, weights by $weights"
  [ "$4" = no ] || [ "$weights" = 0 ] ||
    fail "$5: weights differ by $weights from one rank's, must be bit-identical"
  echo "$1 $6 $loss $weights" >> cells.txt
  pass "$5: losses $loss, weights $weights"
}

number=0
# cell MODEL DATA PIPELINE TENSOR ZERO RECOMPUTE SCHEDULE
cell() {
  local model=$1 d=$2 p=$3 t=$4 zero=$5 recompute=$6 schedule=$7 accumulate=3 bits=no chunks=1 share=node
  local label="$model data $d x pipeline $p x tensor $t, zero $zero, recompute $recompute"
  [ "$p" = 1 ] || label="$label, $schedule"
  [ "$schedule" = interleaved ] && chunks=2
  [ "$p" -gt 1 ] && [ $((p * chunks)) -gt "$(pieces_of "$model")" ] && return
  if [ "$model" = norms ]; then # statistics are of a micro-batch: one rank needs the same micro-batches
    [ "$p" = 1 ] && accumulate=1
    [ "$d" -gt 1 ] && [ "$p" -gt 1 ] && return
  fi
  number=$((number + 1))
  [ $((number % every)) -eq 0 ] || [ "$every" = 1 ] || return
  [ $((number / every % 2)) -eq 0 ] || share=none
  local reference=$model-1-$accumulate
  [ -d "$reference" ] || run_of 1 "$model" "$reference" --train.accumulate=$accumulate
  [ "$d$t$zero" = 110 ] && bits=yes
  run_of $((d * p * t)) "$model" cell --run.overwrite=yes --train.accumulate=$accumulate --parallel.data="$d" \
    --parallel.pipeline="$p" --parallel.tensor="$t" --parallel.zero="$zero" --parallel.recompute="$recompute" \
    --parallel.schedule="$schedule" --parallel.share=$share
  compare "$model" "$reference" cell $bits "$label" "$d $p $t"
  rm -rf cell
}

most=${TRM_LAYOUTS_RANKS:-8}
for model in $models; do
  for d in 1 2; do for p in 1 2 4; do for t in 1 2 4; do
    [ $((d * p * t)) -le "$most" ] || [ "$d$p$t$model" = 242gpt4 ] || continue
    for zero in 0 1 2 3; do for recompute in none block; do for schedule in 1f1b gpipe interleaved; do
      [ "$p" = 1 ] && [ $schedule != 1f1b ] && continue
      cell $model $d $p $t $zero $recompute $schedule
    done; done; done
  done; done; done
done

{
  cat << 'END'
# All layouts compared with one rank

Results of `tests/layouts.sh all tests/layouts.md`. For every model (layouts_lib.sh; gpt2 and gpt4 have two and four
blocks) and grid: the number of cells (ZeRO 0 to 3, with and without recomputation, each pipeline schedule), the largest
relative difference from the losses of one rank (20 steps, 2 evaluations, the test), and of final weights, relative to
the largest value of a tensor. The tolerance is 1e-4; 0 means the same bits, which is required if only the pipeline
differs.

END
  echo "| model | data | pipeline | tensor | cells | largest difference of a loss | of a weight |"
  echo "|---|---|---|---|---|---|---|"
  awk '{ k = $1 " | " $2 " | " $3 " | " $4; if (!(k in n)) order[++m] = k; n[k]++; if ($5 > l[k]) l[k] = $5
         if ($6 > w[k]) w[k] = $6 }
       END { for (i = 1; i <= m; i++) { k = order[i]
               printf "| %s | %d | %.2g | %.2g |\n", k, n[k], l[k], w[k] } }' cells.txt
} > "$table"
echo "$(wc -l < cells.txt) of $number cells"
finish
