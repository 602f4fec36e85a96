#!/bin/bash
# Enforces GLOSSARY.md: no private words in identifiers or comments of headers; these comments are statements; static
# functions carry their file's name; files and options named by guides exist.
#   tests/check_words.sh [list]    list: prints all hits and continues
. "$(dirname "$0")/lib.sh"
cd "$top_srcdir" || exit 99
list=${1-}
folders="src mpi blas kernels datasets plan job cli"

# report WHAT HITS
report() {
  [ -n "$2" ] || { pass "$1"; return; }
  echo "$2"
  [ "$list" = list ] && echo "== $1: $(echo "$2" | wc -l)" || fail "$1"
}

# Forbidden parts of names (between underscores).
names='again|anew|board|centre|claims?|colour|crowded|divisions?|eats|fans|filling|gives?|gave|holders?'
names="$names"'|homes?|how|imagined|kepts|late|lays?|least|meets?|most|nap|naps|neighbour|pace|pieces?|politely|rooms?|rundir|settles?|settled|tally|tallies|wish|wishes'
# Forbidden words in comments of headers.
texts='anew|centres?|claims?|colours?|come politely|crowded|eats|holders?|imagined|kepts|naps?|neighbours?|politely'
texts="$texts"'|riddle|roof|rowers?|settles?|settled|tally|tallies|whoever|wish|wishes|bank of oars|banks of oars'

# strip FILE...: code without comments, strings and character constants; line numbers are kept.
strip() {
  awk '{
    out = ""; n = length($0)
    for (i = 1; i <= n; i++) {
      c = substr($0, i, 1); two = substr($0, i, 2)
      if (comment) { if (two == "*/") { comment = 0; i++ } continue }
      if (quote != "") { if (c == "\\") i++; else if (c == quote) quote = ""; continue }
      if (two == "/*") { comment = 1; i++; continue }
      if (two == "//") break
      if (c == "\"" || c == "\047") { quote = c; continue }
      out = out c
    }
    print FILENAME ":" FNR ":" out
  }
  FNR == 1 { quote = "" }' "$@"
}
sources=$(find $folders -name '*.[ch]' | sort)
headers=$(find $folders -name '*.h' | sort)
# shellcheck disable=SC2086 # lists of files
hits=$(strip $sources | awk -v bad="^($names)$" '{
  at = index($0, ":"); rest = substr($0, at + 1); at2 = index(rest, ":")
  place0 = substr($0, 1, at); place = place0 substr(rest, 1, at2 - 1); code = substr(rest, at2 + 1)
  while (match(code, /[A-Za-z_][A-Za-z0-9_]*/)) {
    name = substr(code, RSTART, RLENGTH); code = substr(code, RSTART + RLENGTH)
    n = split(tolower(name), part, "_")
    for (i = 1; i <= n; i++)
      if (part[i] ~ bad && name !~ /at_(most|least)/ && !seen[place0, name]++) print place ": " name
  } }')
report "identifiers are in the words of GLOSSARY.md" "$hits"

# comments FILE...: file and line, then the text of each comment in one line
comments() {
  awk '{
    line = $0
    while (length(line)) {
      if (!inside) {
        if (!(at = index(line, "/*"))) break
        inside = 1; line = substr(line, at + 2); text = ""; place = FILENAME ":" FNR
      }
      at = index(line, "*/")
      text = text " " (at ? substr(line, 1, at - 1) : line)
      if (!at) break
      inside = 0; line = substr(line, at + 2)
      gsub(/[ \t]+\*? */, " ", text); print place ":" text
    } }' "$@"
}
# shellcheck disable=SC2086
hits=$(comments $headers | grep -iE ":.*[^a-z_.-](${texts})[^a-z_-]" | cut -c1-160)
report "comments of headers are in the words of GLOSSARY.md" "$hits"
# shellcheck disable=SC2086
hits=$(comments $headers | grep -E '^[^:]*:[0-9]*: (-- )?(What|Where|Who[a-z]*|(With|By) (what|which)|How|Whether|Which)\b' |
  cut -c1-160)
report "comments of headers begin with a statement" "$hits"

# The first part of a static function's name is a prefix of a part of its file's name. Exceptions: FILE PREFIX
exceptions='src/exchange/safetensors_file.c st'
# shellcheck disable=SC2086
hits=$(strip $(find $folders -name '*.c' | sort) | awk -v exceptions="$exceptions" '
  match($0, /^[^:]*:[0-9]*:static [^=;(]*[ *][a-z0-9_]+\(/) && !/static_assert/ {
    split($0, field, ":"); name = substr($0, 1, RLENGTH - 1); sub(/.*[ *]/, "", name)
    if (name == "__attribute__") next
    stem = field[1]; sub(/.*\//, "", stem); sub(/\.c$/, "", stem)
    split(name, part, "_"); n = split(stem, word, "_"); good = index(exceptions, field[1] " " part[1]) > 0
    for (i = 1; i <= n; i++) good = good || (length(part[1]) > 1 && index(word[i], part[1]) == 1)
    if (!good) print field[1] ":" field[2] ": " name
  }')
report "static functions carry the name of their file" "$hits"

# Files and options in backquotes in the guides. A file is found from the top, from the guide's folder, or anywhere if
# it is named without a folder; x stands for any name.
hits=$(find . -name '*.md' -not -path './build*' -not -path './_build*' -not -path './CHANGELOG.md' | sort | while read -r guide; do
  grep -oE '`[A-Za-z0-9_./-]*(/|\.(c|h|sh|py|m4|mk|md))`' "$guide" | tr -d '`' | sort -u | while read -r path; do
    case $path in */x/ | */question/ | */x.c | *_x.c | build/ | .c | mpi.h | cblas.h) continue ;; esac
    [ -e "$path" ] || [ -e "${guide%/*}/$path" ] || [ -e "src/$path" ] ||
      { [ "$path" = "${path%/*}" ] && [ -n "$(find $folders tests examples -name "$path")" ]; } ||
      echo "$guide: no file $path"
  done
  grep -oE '`-?-?(data|train|optim|parallel|strategy|run|log|device)\.[a-z][a-z0-9_]*' "$guide" | tr -d '`-' | grep -v '\.sh$' | sort -u |
    while read -r option; do
      grep -qE "[(\"]$option[,\"]" src/core/options_table.c || echo "$guide: no option $option"
    done
done)
report "files and options that the guides name are there" "$hits"
finish
