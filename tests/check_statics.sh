#!/bin/bash
# No state of a rank is static in src/, mpi/ and datasets/, since several ranks can live in one process: it belongs in
# core/context.h. Checks the writable data of the object files against a list of what belongs to the process or a
# thread.
. "$(dirname "$0")/lib.sh"
: "${top_builddir:=$top_srcdir/build}"
command -v objdump > /dev/null || skip "needs objdump"

allowed=$(sed 's/ *#.*//' << 'LIST'
src/core/context.c process_rank               # the rank of a process that sets no other
src/core/context.c own                        # default context of a thread
src/core/context.c current                    # current context; a scheduler switches it
src/core/log.c lock                           # the terminal is the process's
src/core/log.c progress_line                  # the line on the terminal
src/core/memory.c allocated_bytes             # counts the process's memory
src/core/parallel.c parallel_inside           # of a thread
src/core/parallel.c parallel_number           # the same
src/core/parallel.c parallel_key              # each thread has its own pool
src/core/parallel.c parallel_once             # the same
src/core/security.c process                   # keys are of the process: its ranks read the same files
src/core/sha256.c sha_once                    # the processor's instructions
src/core/sha256.c sha_instructions            # the same
src/core/signature.c process                  # the same
src/core/status.c abort_hook                  # how the process ends
src/nn/layer.c layer_registered               # kinds of layers that the program has registered
src/nn/layer.c layer_registered_count         # the same
src/train/stop.c stop_requested               # a signal reaches the process
mpi/real_launch.c text                              # name and version of the MPI library
mpi/ucx_yield.c progress                      # a function of the MPI library
mpi/ucx_yield.c last_empty                    # of a thread that polls the MPI library
mpi/ucx_yield.c empty                         # the same
datasets/h5.c lock                            # HDF5 serves one thread of a process at a time
datasets/h5.c lock_once                       # the same
datasets/h5.c turn                            # the same
datasets/h5.c depth                           # guarded by the lock
datasets/h5.c saved_error_handler             # the same
datasets/h5.c saved_error_context             # the same
datasets/h5.c saved_plugins                   # the same
LIST
)

# writable FOLDER...: "file variable" of each writable static variable in the objects of existing sources. Tables of
# addresses (.data.rel.ro) are constants; names that begin with __ are a sanitizer's.
writable() {
  local object source
  find "$@" -name '*.o' | while read -r object; do
    source=${object#"$top_builddir"/}
    source=${source/.libs\//}
    [ -f "$top_srcdir/${source%.o}.c" ] || continue
    objdump -t "$object" | awk -v source="${source%.o}.c" '
      match($0, /(\.data|\.bss|\.tdata|\.tbss|\*COM\*)[^ \t]*[ \t]/) {
        if ($0 ~ /\.data\.rel\.ro/)
          next
        name = $NF
        sub(/\.[0-9]+$/, "", name)
        if (name !~ /^(\.|__)/)
          print source, name
      }'
  done | sort -u
}

found=$(cd "$top_builddir" && top_builddir=$PWD writable "$PWD/src" "$PWD/mpi" "$PWD/datasets")
[ "$(wc -l <<< "$found")" -gt 5 ] || fail "no objects in $top_builddir: build first"
wrong=$(grep -vxFf <(echo "$allowed") <<< "$found" || true)
[ -z "$wrong" ] || { echo "$wrong"; fail "writable static variables (move them to core/context.h)"; }
pass "the only static variables in src/, mpi/ and datasets/ are those of the process"
finish
