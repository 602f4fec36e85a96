#!/bin/bash
# Include dependencies point down only: cli -> {job, plan}, job -> {mpi, datasets, kernels, exchange}, {plan, mpi,
# datasets, kernels} -> train -> nn -> core, exchange -> nn, kernels -> blas -> core. Only job and cli combine folders,
# through their public headers; each third-party header is confined to few files.
. "$(dirname "$0")/lib.sh"
cd "$top_srcdir" || exit 99

# may FOLDER PATTERN: project headers included by files of FOLDER match PATTERN, or are in the same folder
may() {
  local folder=$1 pattern=$2 wrong
  [ -d "$folder" ] || fail "$folder: no such folder"
  wrong=$(find "$folder" -name '*.[ch]' -exec grep -HnE '^ *# *include +"' {} + |
    grep -vE "include +\"(($pattern)|[a-z0-9_]+\.h\")" || true)
  [ -z "$wrong" ] || { echo "$wrong"; fail "$folder includes forbidden headers (allowed: $pattern)"; }
  pass "$folder includes only $pattern"
}
public='mpi/real\.h|mpi/network\.h|mpi/grid\.h|mpi/pipeline/pipeline\.h|mpi/strategies\.h|mpi/coll/choices\.h'
public="$public"'|mpi/async/param_server\.h|mpi/async/weight_copy\.h'
public="$public"'|kernels/kernels\.h|kernels/timed_device\.h|blas/blas\.h|datasets/datasets\.h|exchange/exchange\.h'
may src/core 'core/'
may src/nn 'core/|nn/'
may src/train 'core/|nn/|train/'
may blas 'core/|blas/'
may kernels 'core/|blas/|kernels/'
may mpi 'core/|nn/|train/|mpi/'
may datasets 'core/|nn/|train/|datasets/'
may src/exchange 'core/|nn/|exchange/'
may plan 'core/|nn/|train/|plan/'
may job "core/|nn/|train/|job/|$public"
may cli "core/|nn/|train/|plan/planner\.h|job/|cli/|$public"

# only HEADER PATTERN: files outside tests that include <HEADER> must match PATTERN
only() {
  local header=$1 pattern=$2 wrong
  wrong=$(find src mpi blas kernels datasets plan job cli -name '*.[ch]' -exec grep -lE "^ *# *include +<$header>" {} + |
    grep -vE "^($pattern)$" || true)
  [ -z "$wrong" ] || fail "<$header> is included by $wrong (allowed: $pattern)"
  pass "<$header> is included in $pattern only"
}
# Strategies and pipelines reach other ranks, time, threads and locks through the communicator alone, so that they run
# on any network.
behind='^ *# *include +<(stdatomic|pthread|sched|threads|time|sys/time)\.h>|_Atomic'
behind="$behind"'|\b(__atomic_[a-z_]+|nanosleep|clock_nanosleep|clock_gettime|gettimeofday|sched_yield|usleep|sleep) *\('
for folder in mpi/sync mpi/async mpi/pipeline mpi/coll src/train; do
  wrong=$(find "$folder" -name '*.[ch]' -exec grep -HnE "$behind" {} + || true)
  [ -z "$wrong" ] || { echo "$wrong"; fail "$folder goes behind the communicator's back (core/comm.h, core/counter.h)"; }
  pass "$folder uses the communicator's counters, locks, waiting and time"
done
only 'mpi\.h' 'mpi/real[a-z_]*\.[ch]|datasets/h5[a-z_]*\.c'
only 'hdf5\.h' 'datasets/[a-z0-9_]*\.[ch]'
only 'cblas\.h' 'blas/openblas\.c'
only 'dnnl\.h' 'blas/onednn[a-z_]*\.[ch]|kernels/cpu/conv_onednn\.h'
only 'yaml\.h' 'src/core/document\.c'
only 'protobuf-c' 'src/exchange/[a-z_]*\.[ch]'
only 'zlib\.h' 'datasets/[a-z0-9_]*\.c'
only 'png\.h' 'datasets/image_png\.c'
only 'jpeglib\.h' 'datasets/image_jpeg\.c'
only 'sodium\.h' 'src/core/[a-z0-9_]*\.c'
only 'openssl' 'src/core/chunk_cipher\.c'
only 'omp\.h' 'src/core/parallel\.c|kernels/cpu/conv_onednn[a-z_]*\.c|blas/(openblas|onednn)\.c'
finish
