#!/bin/bash
# Steps of a GPT on several ranks in all kinds of parallelism, compared with PyTorch's over gloo, measured alternately.
#
#   [RANKS=2] [BATCH=16] [MICROS=8] [STEPS=6] [WARMUP=2] [ROUNDS=5] [PYTHON=python3] [LAYOUTS="data tensor ..."]
#   tests/bench/layouts_vs_torch.sh
#
# The model: 6 layers, 6 heads, 384 wide, 256 characters of 65; BATCH rows per step in all; AdamW; float32; one thread
# per rank. Each layout trains with `trireme train`; its step is the median over STEPS steps. PyTorch does the same
# work (torch_layouts.py). Each round runs both sides of each layout; results are medians over rounds, ratios
# (PyTorch's seconds / ours) are of the same round. Communication and waiting: share of our step time, mean over ranks;
# memory: peak of rank 0 (PyTorch: of any rank). PYTHON= (empty): ours only.
. "$(dirname "$0")/lib.sh"
RANKS=${RANKS:-2} BATCH=${BATCH:-16} MICROS=${MICROS:-8} STEPS=${STEPS:-6} WARMUP=${WARMUP:-2}
ROUNDS=${ROUNDS:-5}
PYTHON=${PYTHON-python3}
PEER=${PEER:-$here/torch_layouts.py}
LAYOUTS=${LAYOUTS:-one data zero1 zero2 zero3 zero2-sends zero3-sends tensor sequence pipeline}
TRIREME=$(realpath "$TRIREME")
PEER=$(realpath "$PEER")

# layout_of NAME: ranks, options, PyTorch's counterpart, text for the table
layout_of() {
  local pipeline="--parallel.pipeline=$RANKS --parallel.schedule=1f1b --train.accumulate=$MICROS"
  ranks=$RANKS peer="" options="" words=$1
  case $1 in
    one) ranks=1 words="one rank, $RANKS threads" options="--parallel.threads=$RANKS" ;;
    data) peer=ddp words="data" ;;
    data-sends) peer=ddp words="data, nothing shared" options="--parallel.share=none" ;;
    zero1) peer="" words="data, \`zero=1\`" options="--parallel.zero=1" ;;
    zero2) peer="" words="data, \`zero=2\`" options="--parallel.zero=2" ;;
    zero3) peer=fully_shard words="data, \`zero=3\`" options="--parallel.zero=3" ;;
    zero1-sends) peer="" words="data, \`zero=1\`, nothing shared" options="--parallel.zero=1 --parallel.share=none" ;;
    zero2-sends) peer="" words="data, \`zero=2\`, nothing shared" options="--parallel.zero=2 --parallel.share=none" ;;
    zero3-sends) peer=fsdp words="data, \`zero=3\`, nothing shared" options="--parallel.zero=3 --parallel.share=none" ;;
    tensor) peer=tensor words="tensor" options="--parallel.tensor=$RANKS --parallel.sequence=no" ;;
    sequence) peer=sequence words="tensor, norms by positions" options="--parallel.tensor=$RANKS" ;;
    pipeline) peer=pipeline words="pipeline, 1f1b, M = $MICROS" options=$pipeline ;;
    *) echo "no layout $1" >&2; exit 2 ;;
  esac
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
awk 'BEGIN { srand(1); s = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .,"
             for (i = 0; i < 260000; i++) printf "%s", substr(s, 1 + (i < 65 ? i : int(65 * rand())), 1) }' > text.txt
"$TRIREME" data import text text.txt --out=text.h5 --test-part=0 > import.log 2>&1 || { cat import.log >&2; exit 1; }

# ours: a run of the layout; median ms per step, and values of its summary
ours() {
  # shellcheck disable=SC2086 # options
  OMP_NUM_THREADS=1 job "$ranks" train "--model=gpt layers=6 heads=6 dim=384 context=256" --data.file=text.h5 \
    --data.context=256 --train.batch="$BATCH" --train.steps=$((WARMUP + STEPS)) --optim.name=adamw --optim.lr=3e-4 \
    --parallel.threads=1 --run.dir=run --run.overwrite=yes --run.checkpoint_every=-1 --log.quiet=yes --log.every=1 \
    $options > log 2>&1 || { cat log >&2; exit 1; }
  # shellcheck disable=SC2046 # numbers
  step=$(median $(awk -F'"wall_s":' -v skip="$WARMUP" '{ if (NR > skip) print $2 - before; before = $2 + 0 }' \
    run/metrics.jsonl))
  bytes=$(json_value max_resident_bytes < run/summary.json)
  shares=$(for key in train_s comm_s wait_s bubble; do echo "$key $(json_value $key < run/summary.json)"; done |
    awk '{ v[$1] = $2 }
         END { printf "%.4f %.4f %s", v["comm_s"] / v["train_s"], v["wait_s"] / v["train_s"], v["bubble"] }')
}

printf '%5s %-12s %12s %12s %8s %6s %6s %7s %8s %8s\n' round layout 'trireme ms' 'PyTorch ms' ratio comm wait bubble \
  MiB 'their MiB'
for round in $(seq "$ROUNDS"); do
  for layout in $LAYOUTS; do
    layout_of "$layout"
    ours
    wanted "trireme train, $layout" "$step"
    read -r comm wait bubble <<< "$shares"
    theirs="" their_bytes=""
    if [ -n "$peer" ] && [ -n "$PYTHON" ]; then
      line=$("$PYTHON" "$PEER" "$peer" --ranks "$RANKS" --batch "$BATCH" --micros "$MICROS" --steps "$STEPS" \
        --warmup "$WARMUP" 2> peer.log) || { cat peer.log >&2; exit 1; }
      theirs=$(echo "$line" | json_value step_s) their_bytes=$(echo "$line" | json_value max_resident_bytes)
      wanted "$PEER $peer" "$theirs"
    fi
    echo "$layout $step ${theirs:-nan} $comm $wait ${bubble:-nan} $bytes ${their_bytes:-nan}" >> figures
    tail -n 1 figures | awk -v r="$round" '{
      printf "%5d %-12s %12.1f %12.1f %8.3f %6.3f %6.3f %7.3f %8.0f %8.0f\n", r, $1, 1e3 * $2, 1e3 * $3, $3 / $2,
        $4, $5, $6, $7 / 1048576, $8 / 1048576 }'
  done
done

# of LAYOUT COLUMN: median over the rounds; column 9: of the ratios
of() {
  # shellcheck disable=SC2046 # numbers
  median $(awk -v layout="$1" -v c="$2" '$1 == layout { print c == 9 ? $3 / $2 : $c }' figures)
}
first=${LAYOUTS%% *}
echo
echo "| layout | ms per step | of $first | communication, % | waiting, % | idle, % | MiB | PyTorch | ms per step |" \
  "ratio | MiB |"
echo "|---|---|---|---|---|---|---|---|---|---|---|"
for layout in $LAYOUTS; do
  layout_of "$layout"
  echo "$(of "$layout" 2) $(of "$first" 2) $(of "$layout" 4) $(of "$layout" 5) $(of "$layout" 6) $(of "$layout" 7)" \
    "$(of "$layout" 3) $(of "$layout" 9) $(of "$layout" 8)" |
    awk -v words="$words" -v peer="$peer" '{
      printf "| %s | %.0f | %.2f | %.1f | %.1f | %s | %.0f |", words, 1e3 * $1, $1 / $2, 100 * $3, 100 * $4,
        $5 == "nan" ? "" : sprintf("%.1f", 100 * $5), $6 / 1048576
      if ($7 == "nan") print " | | | |"
      else printf " %s | %.0f | %.2f | %.0f |\n", peer, 1e3 * $7, $8, $9 / 1048576 }'
done
