#!/bin/bash
# Runs a test program at several rank counts, each under a timeout, and prints which failed. The build starts every
# test program through this script; those without MPI run once.
#
#   run_matrix.sh PROGRAM [ARGUMENT...]    MPIEXEC: the launcher; TRM_TEST_LIMIT: seconds per rank count (240);
#                                          TRM_TEST_RANKS: those of a program's rank counts that are among these, if any
#                                          TRM_TEST_ALL: 1, or names of programs: these have more rank counts
set -u
program=$1
more=
case ${program##*/} in
  test_async_server_weights | test_async_ssp | test_hogwild) ranks="1 2 3" more=9 ;;
  test_replicas | test_replica_identities) ranks="1 2 3" more=5 ;; # with one rank also 1 to 9 virtual ones
  test_comm) ranks="1 2 3 9" more="4 5 6 7 8" ;;
  test_datasets) ranks="1 2 3" more=8 ;;
  test_augment | test_measures | test_staleness | test_validation) ranks="1 3" ;;
  test_param_server | test_batch_assignment | test_async_peers) ranks="1 2 5" more="3 9" ;;
  test_a2cid2) ranks="1 3 4" more="2 5 8" ;;
  test_async_turns) ranks="2 4" more=5 ;;
  test_mapped | test_local_state | test_trace | test_buddy) ranks="1 2 3 4" ;;
  test_sync_compress) ranks="2 3 5" more="1 4 9" ;;
  test_pipeline | test_pipeline_versions | test_tensor) ranks="1 2 4" more=3 ;;
  test_zero | test_zero_state | test_device_ranks) ranks="1 2 3" more=4 ;;
  # each case creates its own communicators
  test_sync | test_sync_lanes | test_sync_state | test_muon) ranks="1 2 3 5" more="4 6 9" ;;
  *) exec "$@" ;;
esac
case " ${TRM_TEST_ALL:-} ${TRM_TEST_RANKS:+1 }" in *" 1 "* | *" ${program##*/} "*) ranks="$ranks $more" ;; esac
for n in ${TRM_TEST_RANKS:-}; do
  case " $ranks " in *" $n "*) chosen="${chosen-} $n" ;; esac
done
ranks=${chosen:-$ranks}
[ -n "${MPIEXEC:-}" ] || { echo "$program: no mpiexec to start ranks with" >&2; exit 77; }

failed=
for n in $ranks; do
  timeout -k 10 "${TRM_TEST_LIMIT:-240}" $MPIEXEC -n "$n" "$@"
  status=$?
  case $status in
    0) echo "$program: $n ranks: passed" ;;
    124 | 137) echo "$program: $n ranks: NOT DONE after ${TRM_TEST_LIMIT:-240} s"; failed="$failed $n" ;;
    *) echo "$program: $n ranks: FAILED with status $status"; failed="$failed $n" ;;
  esac
done
[ -z "$failed" ] || { echo "$program: failed at these numbers of ranks:$failed"; exit 1; }
