#!/bin/bash
# Links in the guides, and on the pages that make docs makes of them, lead to files and anchors that are there; nothing
# is fetched. Every guide is in the lists of docs/README.md.
. "$(dirname "$0")/lib.sh"
top=$(cd "$top_srcdir" && pwd)
: "${top_builddir:=$top/build}"
build=$(cd "$top_builddir" && pwd)
unset MAKEFLAGS MAKELEVEL MFLAGS
scratch
cd "$top" || exit 99

# Files, their anchors ("# FILE ANCHOR", as forges make them of headings) and links ("LINK FILE TARGET").
find . -name '*.md' -not -path './build*' -not -path './_build*' -not -path './tests/fuzz/*' | sed 's,^\./,,' | sort > "$work/guides"
[ "$(wc -l < "$work/guides")" -ge 40 ] || fail "only $(wc -l < "$work/guides") guides"
xargs awk '
  FNR == 1 { fence = 0; split("", count) }
  /^ *```/ { fence = !fence }
  fence || /^    / { next }
  /^#+ / {
    text = $0; sub(/^#+ /, "", text); gsub(/[`*]/, "", text); text = tolower(text)
    gsub(/ /, "-", text); gsub(/[^a-z0-9_-]/, "", text)
    print "#", FILENAME, text (count[text] ? "-" count[text] : ""); count[text]++
  }
  {
    rest = $0; gsub(/`[^`]*`/, "", rest)
    while (match(rest, /\]\([^) ]*\)/)) {
      print "LINK", FILENAME, substr(rest, RSTART + 2, RLENGTH - 3)
      rest = substr(rest, RSTART + RLENGTH)
    }
  }' < "$work/guides" > "$work/parts"
links=0
while read -r _ guide target; do
  case $target in http:* | https:* | mailto:*) continue ;; esac
  links=$((links + 1))
  file=${target%%#*}
  if [ -z "$file" ]; then file=$guide
  elif [ "$guide" = "${guide%/*}" ]; then file=$file
  else file=${guide%/*}/$file; fi
  [ -e "$file" ] || fail "$guide: no $target"
  case $target in
    *#*) grep -qxF "# $(realpath --relative-to=. "$file") ${target#*#}" "$work/parts" ||
      fail "$guide: no anchor $target" ;;
  esac
done < <(grep '^LINK' "$work/parts")
[ $links -ge 40 ] || fail "only $links links"
pass "$links links in $(wc -l < "$work/guides") guides"

grep -vE '^(docs/README\.md|experiments/[^/]*/.*)$' "$work/guides" | while read -r guide; do
  grep -qF "]($(realpath --relative-to=docs "$guide"))" docs/README.md || echo "$guide"
done > "$work/missing"
[ ! -s "$work/missing" ] || fail "docs/README.md has no link to $(tr '\n' ' ' < "$work/missing")"
pass "docs/README.md lists all guides"

[ -n "$(sed -n 's/^DOXYGEN = //p' "$build/Makefile")" ] || { echo "SKIPPED: pages (no doxygen)"; finish; }
make -s -C "$build" docs > "$work/docs.log" 2>&1 || { cat "$work/docs.log"; fail "make docs"; }
cd "$build/docs/html" || fail "make docs made no docs/html"
ls > "$work/files" && ls search | sed 's,^,search/,' >> "$work/files"
# shellcheck disable=SC2046 # names without blanks
awk '
  FILENAME == ARGV[1] { there[$0] = 1; next }
  {
    rest = $0
    while (match(rest, / (id|name|href|src)="[^"]*"/)) {
      token = substr(rest, RSTART + 1, RLENGTH - 2); rest = substr(rest, RSTART + RLENGTH)
      at = index(token, "="); value = substr(token, at + 2)
      if (token ~ /^(id|name)=/) anchor[FILENAME "#" value] = 1
      else if (value !~ /^(https?|mailto|javascript):/) link[FILENAME " " value] = 1
    }
  }
  END {
    for (i in link) {
      split(i, part, " "); target = part[2]; n++
      if (target ~ /^#/) target = part[1] target
      file = target; sub(/[#?].*/, "", file)
      if (!(file in there) || (target ~ /#./ && !(target in anchor))) print part[1] ": no " part[2]
    }
    print n > "/dev/stderr"
  }' "$work/files" *.html > "$work/wrong" 2> "$work/count"
[ ! -s "$work/wrong" ] || { sort "$work/wrong" | head -20; fail "$(wc -l < "$work/wrong") links of the pages"; }
[ "$(cat "$work/count")" -ge 2000 ] || fail "only $(cat "$work/count") links of the pages"
pass "$(cat "$work/count") links of $(ls ./*.html | wc -l) pages"

# Commands are as in the guides: no dashes or entities where doxygen did not take them for code.
! grep -nE '&ndash;[a-z]|&mdash;[a-z]|&amp;#' page_*.html | cut -c1-200 | grep . || fail "text of the pages"
pass "commands on the pages"

# The navigation has the pages of docs/README.md, in groups.
for title in Tutorials How-to Explanations Reference 'The guided tour' Security Experiments 'Asynchrony as momentum' \
  Options Headers; do
  grep -q "\"$title" navtreedata.js || fail "the navigation has no $title"
done
pass "navigation"
finish
