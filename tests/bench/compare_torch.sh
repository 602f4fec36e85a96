#!/bin/bash
# Whole steps of the perceptron 784-2048-2048-10 on 256 samples a rank, here and in PyTorch, in turns.
#
#   [RANKS=1] [THREADS=all] [STEPS=20] [ROUNDS=7] [PYTHON=python3] [PEER=torch_peer.py] tests/bench/compare_torch.sh
#
# THREADS are those of a rank. The figure that counts is the ratio of each round, PyTorch's seconds over ours (above 1:
# ours are fewer), and its median: whatever else the machine does then falls on both.
. "$(dirname "$0")/lib.sh"
RANKS=${RANKS:-1}
THREADS=${THREADS:-$(($(nproc) / RANKS > 0 ? $(nproc) / RANKS : 1))}
STEPS=${STEPS:-20}
PYTHON=${PYTHON:-python3}
PEER=${PEER:-$here/torch_peer.py}

printf '%5s %14s %14s %8s\n' round 'trireme ms' 'PyTorch ms' ratio
for round in $(seq "$ROUNDS"); do
  a=$(job "$RANKS" bench step --bound=no --json --steps="$STEPS" --threads="$THREADS" | json_value step_s)
  wanted "trireme bench step" "$a"
  b=$("$PYTHON" "$PEER" mlp --ranks "$RANKS" --threads "$THREADS" --steps "$STEPS" | json_value step_s)
  wanted "$PEER" "$b"
  ours+=("$a") theirs+=("$b") ratios+=("$(ratio "$b" "$a")")
  awk -v r="$round" -v a="$a" -v b="$b" 'BEGIN { printf "%5d %14.2f %14.2f %8.3f\n", r, 1e3 * a, 1e3 * b, b / a }'
done
printf '{"compare":"step, pytorch over trireme","ranks":%s,"threads":%s,"rounds":%s,' "$RANKS" "$THREADS" "$ROUNDS"
printf '"trireme_s":%s,"pytorch_s":%s,"ratio":%s}\n' "$(median "${ours[@]}")" "$(median "${theirs[@]}")" \
  "$(median "${ratios[@]}")"
