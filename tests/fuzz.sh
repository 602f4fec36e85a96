#!/bin/bash
# Every reader under libFuzzer with the address and undefined-behaviour sanitizers, two at a time. Needs clang, and
# builds in ./build-fuzz; FUZZ_BUILD: in this folder, which may be configured already. Not part of make check; .ci/run
# runs it, and make fuzz FUZZ_SECONDS=600.
#
#   tests/fuzz.sh [SECONDS [READER...]]    SECONDS for each reader, 15 if not given
#
# Inputs that reach new code are kept in that folder's corpus/, and the next call begins with them. An input that shows
# a fault is in found/; FUZZ_READER=READER FUZZ_FOLDER=/tmp build-fuzz/tests/fuzz/fuzz FILE repeats it.
set -u
. "$(dirname "$0")/lib.sh"
seconds=${1:-15}
shift $(($# > 0))
readers=("$@")
[ $# -gt 0 ] || readers=(dataset checkpoint encrypted safetensors rows text settings model run)
top=$(realpath "$top_srcdir")
build=$(realpath -m "${FUZZ_BUILD:-$top/build-fuzz}")

command -v clang > /dev/null || skip "no clang"
echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return !d && n; }' |
  clang -fsanitize=fuzzer,address -x c - -o /dev/null 2> /dev/null || skip "clang has no libFuzzer"

mkdir -p "$build/corpus" "$build/found" && cd "$build" || exit 99
[ -e config.status ] && [ config.status -nt "$top/configure" ] ||
  "$top/configure" --quiet --without-cuda CC=clang CFLAGS='-O1 -g' \
    --enable-sanitizer=address,undefined,fuzzer-no-link || fail configure
make -s -j2 tests/fuzz/fuzz tests/fuzz/seeds > build.log 2>&1 || { tail -20 build.log; fail build; }

# The first inputs: those of the repository, and those that the program makes.
cp -r "$top/tests/fuzz/corpus/." corpus/
ASAN_OPTIONS=detect_leaks=0 tests/fuzz/seeds corpus || fail "seeds"
for file in "$top"/experiments/*/*.yaml; do
  { printf c; cat "$file"; } > "corpus/settings/$(basename "$(dirname "$file")")-$(basename "$file")"
done
# Recorded images and arrays, in hexadecimal.
recorded() {
  while read -r name hex; do
    # shellcheck disable=SC2059 # bytes as escapes
    { printf %s "$1"; printf "$(printf %s "$hex" | sed 's/../\\x&/g')"; } > "corpus/rows/$name"
  done
}
awk '{ print $1, $5 }' "$top/tests/reference/image_files.txt" | recorded p
grep '\.npz ' "$top/tests/reference/numpy_files.txt" | recorded z

# fuzz READER: prints one line of results; the log is in READER.log.
fuzz() {
  local reader=$1 folder status
  folder=$(mktemp -d -p /dev/shm 2> /dev/null || mktemp -d)
  FUZZ_READER=$reader FUZZ_FOLDER=$folder ASAN_OPTIONS=allocator_may_return_null=1 \
    LSAN_OPTIONS=suppressions=$top/tests/leaks.supp:print_suppressions=0 OMP_NUM_THREADS=1 \
    timeout -k 10 $((seconds + 60)) tests/fuzz/fuzz "corpus/$reader" -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=2048 -malloc_limit_mb=1024 -close_fd_mask=3 -print_final_stats=1 -artifact_prefix="found/$reader-" \
    > "$reader.log" 2>&1
  status=$?
  rm -rf "$folder"
  awk -v reader="$reader" -v status=$status '
    /^stat::number_of_executed_units/ { units = $2 }
    / cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") edges = $(i + 1) }
    END { printf "%-12s %9d inputs, %6d edges: %s\n", reader, units, edges, status == 0 ? "ok" : "FAULT" }
  ' "$reader.log"
  return $status
}

failed=()
export seconds top
export -f fuzz
printf '%s\n' "${readers[@]}" | xargs -P 2 -I{} bash -c 'fuzz {} || touch found/{}'
for reader in "${readers[@]}"; do
  [ -e "found/$reader" ] && failed+=("$reader") || checks=$((checks + 1))
  rm -f "found/$reader"
done
for reader in "${failed[@]}"; do
  grep -vE '^(#|INFO|stat::)' "$build/$reader.log" | tail -40
done
[ ${#failed[@]} = 0 ] || fail "${failed[*]}: the inputs are in $build/found"
finish
