#!/bin/bash
# Lines and branches of datasets, src/exchange and src/train that the tests run, by gcov and gcovr. Builds in
# ./build-coverage, runs make check there and prints a table of the files and of the folders. The aim is 97 % of the
# lines and 88 % of the branches.
#
#   tests/coverage.sh [TEST...]    only these: tests/unit/test_import tests/train.sh; none: all
#   tests/coverage.sh table        the table of what has run since the build
set -u
. "$(dirname "$0")/lib.sh"
top=$(realpath "$top_srcdir")
command -v gcovr > /dev/null || skip "no gcovr (Debian: gcovr)"
mkdir -p "$top/build-coverage" && cd "$top/build-coverage" || exit 99

if [ "${1-}" != table ]; then
  [ -e config.status ] && [ config.status -nt "$top/configure" ] ||
    "$top/configure" --quiet --without-cuda CFLAGS='-O1 -g --coverage -fprofile-update=atomic' \
      LIBS=-lgcov || fail configure
  export TRM_TEST_RANKS=${TRM_TEST_RANKS-1 2 3} TRM_TEST_QUICK=1
  make -s -j2 > build.log 2>&1 || { tail -20 build.log; fail build; }
  tests=()
  [ $# = 0 ] || tests=("TESTS=$*")
  make -s check "${tests[@]}" || echo "some tests failed, see $PWD/test-suite.log: their coverage is counted"
fi

gcovr --root "$top" --filter "$top/datasets/" --filter "$top/src/exchange/" --filter "$top/src/train/" \
  --json coverage.json datasets src > /dev/null 2> gcovr.log || { tail -5 gcovr.log; fail gcovr; }
summary() { gcovr --root "$top" --add-tracefile coverage.json "$@"; }
summary
for folder in datasets src/exchange src/train; do
  echo "$folder:" $(summary --filter "$top/$folder/" --print-summary --output /dev/null | grep -E '^(lines|branches)')
done
