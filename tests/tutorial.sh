#!/bin/bash
# docs/new-method.md, as a newcomer follows it: its changes in a copy of the sources, a build, its commands.
. "$(dirname "$0")/lib.sh"
: "${top_builddir:=$top_srcdir/build}"
top_srcdir=$(cd "$top_srcdir" && pwd) top_builddir=$(cd "$top_builddir" && pwd)
made() { sed -n "s/^$1 = //p" "$top_builddir/Makefile"; } # a variable of the Makefile
unset MAKEFLAGS MAKELEVEL MFLAGS
scratch
[ -z "$(made TRM_SANITIZE)" ] || skip "the sources need not be built with a sanitizer again"
command -v automake > /dev/null || skip "no automake, which a new file needs"

mkdir sources
for item in "$top_srcdir"/*; do
  [ -e "$item/config.status" ] || cp -a "$item" sources/ || fail "copy of the sources"
done
chmod -R u+w sources

# Fenced blocks: file=PATH writes a file, into=PATH after=TEXT inserts after the first line that contains the text,
# `run` makes a script. Files that are no source of the program are in the folder of the runs.
awk '
  /^```/ && open { open = 0; close(to); print to, into, after > "blocks"; next }
  /^```[a-z]+ (file=|into=|run)/ {
    open = 1; count++; into = file = after = "-"
    if (match($0, /file=[^ ]+/)) file = substr($0, RSTART + 5, RLENGTH - 5)
    if (match($0, /into=[^ ]+/)) into = substr($0, RSTART + 5, RLENGTH - 5)
    if (match($0, /after=.*/)) { after = substr($0, RSTART + 6); gsub(/"/, "", after) }
    to = file == "-" ? (into == "-" ? "run." ++runs : "block." count) : file ~ /\// ? "sources/" file : file
    printf "" > to
    next
  }
  open { print > to }' "$top_srcdir/docs/new-method.md"
while read -r block into after; do
  [ "$into" = - ] && continue
  grep -qF "$after" "sources/$into" || fail "$into has no line with: $after"
  awk -v block="$block" -v after="$after" '{ print } !done && index($0, after) {
    done = 1; while ((getline line < block) > 0) print line }' "sources/$into" > new && cat new > "sources/$into"
done < blocks
[ "$(grep -c . blocks)" -ge 8 ] && [ -s sources/mpi/async/stalepower.c ] || fail "blocks of the page: $(cat blocks)"

mkdir sources/build-new && cd sources/build-new || exit 99
{ ../configure --quiet --without-cuda CC="$(made CC)" CFLAGS=-O0 && make -s -j"$(nproc)" trireme; } > ../../build.log 2>&1 ||
  { tail -40 ../../build.log; fail "the build"; }
! grep -i 'warning:' ../../build.log || fail "the build warns"
PATH=$PWD:$PATH
cd "$work" || exit 99
pass "the program with the new method"

bash -e run.1 > run.log 2>&1 || { cat run.log; fail "the first commands"; }
hash() { json_text weights_sha256 "$1/summary.json"; }
equal serial one "one worker"
equal asgd zero "p = 0"
! grep -q "$(hash asgd)" serial/summary.json || fail "eight workers are one"
trireme train mlp.yaml --strategy.name=stalepower --simulate.workers=8 --run.dir=half > half.log 2>&1 || fail "p = 0.5"
! grep -q "$(hash asgd)" half/summary.json || fail "the power changes nothing"
trireme train mlp.yaml --strategy.name=asgd --strategy.rate=polynomial --simulate.workers=8 --run.dir=poly > poly.log 2>&1 ||
  fail "the program's own rule"
equal poly half "p = 0.5"
pass "identities of the page"
trireme options | grep -q 'strategy.power ' || fail "options do not list strategy.power"
bash -e run.2 > race.log 2>&1 || { cat race.log; fail "the race"; }
[ "$(grep -c '^| *\(asgd\|stalepower\) ' race/table.md)" = 2 ] || { cat race.log race/table.md; fail "table of the race"; }
pass "the race"
finish
