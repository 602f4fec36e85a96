#!/bin/bash
# kills_job.sh JOB...: the launcher in tests/kills.sh. At its first start it has the job killed again and again, until
# PLANNED kills are done, and ends like a job that was killed; then it starts the job undisturbed. It writes a line
# "PHASE kill" for each kill to the file TABLE, and "PHASE hang" or "PHASE lost" where a kill had this effect.
set -u
newest() { find "$RUN/checkpoints" -name 'step-*.h5' 2> /dev/null | sort | tail -1; }
config() { stat -c %i-%y "$RUN/config.yaml" 2> /dev/null; }
starts() { grep '"event":"start"' "$RUN/audit.jsonl" 2> /dev/null; }

# at_call FOLDER CALLS JOB...: kills a rank at one of its first calls that change files there
at_call() {
  FAULT_AT=$((RANDOM % $2 + 1)) FAULT=kill FAULT_FOLDER=$1 LD_PRELOAD=$FAULTS timeout -k 5 60 "${@:3}"
}

# at_time FILE MILLISECONDS LAUNCHER -n N PROGRAM...: kills a rank, or all at once, up to so long after FILE is there
at_time() {
  local pid job
  rm -f rank.*
  # shellcheck disable=SC2016 # that shell expands it
  timeout -k 5 60 "${@:3:3}" bash -c 'echo $$ > "rank.${PMI_RANK:-$OMPI_COMM_WORLD_RANK}"; exec "$@"' rank "${@:6}" &
  job=$!
  until [ -e "$1" ] || ! kill -0 $job; do sleep 0.002; done
  sleep "$(awk -v n=$RANDOM -v most="$2" 'BEGIN { printf "%.3f", n / 32768 * most / 1000 }')"
  for pid in $(cat rank.*); do
    kill -KILL "$pid"
    [ $((RANDOM % 2)) = 0 ] || break
  done
  wait $job
}

# phase CONFIG: prints the phase of the kill of a job that began when config.yaml was CONFIG
phase() {
  if [ "$(config)" = "$1" ]; then
    echo start-up
  elif [ -n "$(find "$RUN/checkpoints" -name '*.new')" ]; then
    echo save
  elif [ -n "$(find "$RUN" -maxdepth 1 -name 'summary.json*')" ] || grep -qs '"test_loss"' "$RUN/metrics.jsonl"; then
    echo teardown
  else
    echo training
  fi
}

# killed KIND JOB...: false if the job has ended before
killed() {
  local before_config before count status resumed phase
  before_config=$(config) before=$(newest) count=$(starts | wc -l)
  case $1 in
    0 | 1) at_time . "$LIFE" "${@:2}" ;;
    2) at_call "$RUN/" 700 "${@:2}" ;;
    3) at_call "$RUN/" 20 "${@:2}" ;;
    4) at_time . $((LIFE / 2)) "${@:2}" ;;
    5) at_call "$RUN/checkpoints/" 250 "${@:2}" ;;
    6) at_call "$RUN/summary.json" 5 "${@:2}" ;;
    7) at_time "$RUN/summary.json" 15 "${@:2}" ;;
  esac
  status=$?
  [ $status != 0 ] || return 1
  phase=$(phase "$before_config")
  echo "$phase kill" >> "$TABLE"
  [ $status != 124 ] || echo "$phase hang" >> "$TABLE"
  [ -n "$before" ] || return 0
  resumed=$(starts | tail -1 | sed 's/.*"step":\([0-9]*\).*/\1/')
  if [[ $(newest) < $before ]] || ! "$TRIREME" data info --check "$(newest)" > /dev/null ||
    { [ "$(starts | wc -l)" -gt "$count" ] && [ "$((10#$(basename "${before#*step-}" .h5)))" != "$resumed" ]; }; then
    echo "$phase lost" >> "$TABLE"
  fi
}

if mkdir "$RUN.first"; then
  RANDOM=$SEED
  for ((i = 0; i < PLANNED; i++)); do
    killed $(((SEED + i) % 8)) "$@" || exit 0
  done
  [ -e "$RUN/summary.json" ] || exit 137 # a run that is not at its end is started again
fi
exec timeout -k 5 60 "$@"
