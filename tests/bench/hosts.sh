#!/bin/bash
# Whole training steps on two virtual hosts with a limited link, of Trireme and of PyTorch's DistributedDataParallel
# over gloo, measured alternately. Sets the hosts up, measures, and leaves nothing behind. Needs root and MPICH.
#
#   [WORK="mlp gptchar"] [RANKS="1 2 4"] [RATE=1gbit] [BATCH=...] [STEPS=...] [WARMUP=3] [ROUNDS=7] [OPTIONS=...]
#   [COMPRESS=METHOD] [PYTHON=python3] tests/bench/hosts.sh
#
# WORK: mlp is the perceptron 784-2048-2048-10, 128 rows a rank, SGD with momentum; gptchar a GPT of 6 layers, 6 heads,
# 384 wide, 4 rows of 256 characters a rank, AdamW. RANKS: on each host, one thread each. RATE: what a host sends, in
# tc's units. OPTIONS, COMPRESS: options of a run for ours, such as --parallel.bucket=1M; strategy.compress. PYTHON=
# (empty): ours only. For each work and number of ranks, a line a round, then the medians and the range of both ratios:
#
#   compute  a step of the same ranks without the network: both hosts at the same time, each as a job of its own
#   wire     the bytes that a host must send (the gradient; with COMPRESS, those that it has sent) at the rate of the
#            link, which is that of 16 MB sent there and back in the same round
#   bound    the larger of these: step / bound is 1 if the shorter one is hidden completely
# shellcheck source=tests/bench/lib.sh
. "$(dirname "$0")/lib.sh"
. "$here/../lib.sh"
. "$here/../hosts_lib.sh"
isolate "$@"
WORK=${WORK:-mlp gptchar}
RANKS=${RANKS:-1 2 4}
RATE=${RATE:-1gbit}
WARMUP=${WARMUP:-3}
COMPRESS=${COMPRESS-}
PYTHON=${PYTHON-python3}
read -ra options <<< "${OPTIONS-}"
[ -z "$COMPRESS" ] || options+=("--strategy.compress=$COMPRESS")
scratch
start_hosts 2
limit_hosts "$RATE"
export GLOO_SOCKET_IFNAME=eth0 MASTER_ADDR=10.77.0.1

# step RANKS OPTION...: a run of the benchmark
step() {
  launch "$1" "$TRIREME" bench step "${model[@]}" --bound=no --json --threads=1 --steps="$steps" --warmup="$WARMUP" \
    "${@:2}"
}

# Each host alone, at the same time: the mean of both.
measure_compute() {
  local job
  place 0 "$1"
  step "$1" > compute.2 &
  job=$!
  place "$1"
  step "$1" > compute.1
  wait $job && median "$(json_value step_s < compute.1)" "$(json_value step_s < compute.2)"
}

measure_link() {
  local server
  on_host 2 python3 "$here/link.py" serve &
  server=$!
  on_host 1 python3 "$here/link.py" 10.77.0.2
  wait $server
}

# shellcheck disable=SC2016 # that shell expands it
measure_peer() {
  MASTER_PORT=$((29500 + round)) launch $((2 * $1)) bash -c 'exec "$@" --rank "$PMI_RANK"' rank "$PYTHON" \
    "$here/torch_peer.py" "$work_name" --batch "$batch" --ranks $((2 * $1)) --threads 1 --steps "$steps" \
    --warmup "$WARMUP" 2> peer.log | json_value step_s
}

# row ROUND STEP COMPUTE WIRE PEER
row() {
  awk -v r="$1" -v s="$2" -v c="$3" -v w="$4" -v p="$5" 'BEGIN {
    b = c > w ? c : w
    printf "%6s %9.1f %9.1f %9.1f %9.3f", r, 1e3 * s, 1e3 * c, 1e3 * w, s / b
    if (p != "") printf " %9.1f %9.3f", 1e3 * p, p / s
    printf "\n" }'
}

# extremes NUMBER...: the smallest and the largest
extremes() { printf '%s\n' "$@" | sort -g | sed -n '1p;$p' | paste -sd' '; }

# compare WORK RANKS
compare() {
  local round one before sent link a=() c=() w=() p=() bounds=() ratios=()
  printf '%s, 2 hosts x %s ranks, %s%s\n%6s %9s %9s %9s %9s %9s %9s\n' "$1" "$2" "$RATE" "${COMPRESS:+, $COMPRESS}" \
    round 'step ms' 'compute' 'wire' 'of bound' 'PyTorch' 'ratio'
  for round in $(seq "$ROUNDS"); do
    c+=("$(measure_compute "$2")")
    wanted "one host" "${c[-1]}"
    link=$(measure_link)
    wanted "the link" "$link"
    place "$2" "$2"
    before=$(sent_by 1)
    one=$(step $((2 * $2)) "${options[@]}")
    sent=$(awk -v n="$(($(sent_by 1) - before))" -v s="$((steps + WARMUP))" 'BEGIN { print n / s }')
    a+=("$(echo "$one" | json_value step_s)")
    wanted "trireme bench step" "${a[-1]}"
    [ -n "$COMPRESS" ] || sent=$(($(echo "$one" | json_value params) * 4))
    w+=("$(ratio "$sent" "$link")")
    p+=('')
    if [ -n "$PYTHON" ]; then
      p[-1]=$(measure_peer "$2") || { cat peer.log >&2; exit 1; }
      wanted torch_peer.py "${p[-1]}"
      ratios+=("$(ratio "${p[-1]}" "${a[-1]}")")
    fi
    bounds+=("$(awk -v s="${a[-1]}" -v c="${c[-1]}" -v w="${w[-1]}" 'BEGIN { print s / (c > w ? c : w) }')")
    row "$round" "${a[-1]}" "${c[-1]}" "${w[-1]}" "${p[-1]}"
  done
  printf '{"compare":"step on two hosts","work":"%s","ranks_of_a_host":%s,"rate":"%s","compress":"%s","rounds":%s,' \
    "$1" "$2" "$RATE" "$COMPRESS" "$ROUNDS"
  printf '"batch":%s,"step_s":%s,"compute_s":%s,"wire_s":%s,"step_over_bound":%s,"range":"%s"' "$batch" \
    "$(median "${a[@]}")" "$(median "${c[@]}")" "$(median "${w[@]}")" "$(median "${bounds[@]}")" \
    "$(extremes "${bounds[@]}")"
  [ -z "$PYTHON" ] || printf ',"pytorch_s":%s,"pytorch_over_step":%s,"pytorch_range":"%s"' "$(median "${p[@]}")" \
    "$(median "${ratios[@]}")" "$(extremes "${ratios[@]}")"
  printf '}\n'
}

for work_name in $WORK; do
  case $work_name in
    mlp)
      batch=${BATCH:-128} steps=${STEPS:-20} model=("--model=mlp 784-2048-2048-10 relu" --batch="$batch") ;;
    gptchar)
      batch=${BATCH:-4} steps=${STEPS:-6}
      model=("--model=gpt layers=6 heads=6 dim=384 context=256" --batch="$batch" --optim.name=adamw --optim.lr=3e-4) ;;
    *) echo "WORK=$work_name is none of mlp, gptchar" >&2; exit 2 ;;
  esac
  for ranks in $RANKS; do compare "$work_name" "$ranks"; done
done
