#!/bin/bash
# Imports of csv and libsvm files by several ranks: the digest of one rank, the error of one rank, nothing left behind.
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
all_cases && ranks="2 3 4 9" || ranks="2 3"

# import N FORMAT FILE FLAG...: imports by N ranks to NUMBER.h5, the messages to NUMBER.log
import() { launch "$1" "$TRIREME" data import "${@:2}" --out="$1.h5" --overwrite > "$1.log" 2>&1; }

# equal NAME FORMAT FILE FLAG...: every number of ranks writes the same data set, and a whole one
equal() {
  local name=$1 digest
  shift
  import 1 "$@" || { cat 1.log; fail "$name: 1 rank"; }
  digest=$(awk '$1 == "digest" { print $2 }' 1.log)
  [ ${#digest} = 64 ] || { cat 1.log; fail "$name: no digest"; }
  for n in $ranks; do
    import "$n" "$@" || { cat "$n.log"; fail "$name: $n ranks"; }
    grep -q "^digest *$digest$" "$n.log" || { cat 1.log "$n.log"; fail "$name: the digest of $n ranks"; }
    "$TRIREME" data info "$n.h5" --check > check.log 2>&1 || { cat check.log; fail "$name: what $n ranks wrote"; }
    [ "$(grep -c 'rows with missing' "$n.log")" = "$(grep -c 'rows with missing' 1.log)" ] ||
      { cat "$n.log"; fail "$name: warnings of $n ranks"; }
  done
  pass "$name"
}

# refused NAME MESSAGE FORMAT FILE FLAG...: every number of ranks fails with one message and leaves no file
refused() {
  local name=$1 message=$2
  shift 2
  for n in 1 $ranks; do
    rm -f ./*.h5
    import "$n" "$@" && fail "$name: $n ranks succeed"
    [ "$(grep -c 'error: ' "$n.log")" = 1 ] && grep -qF "$message" "$n.log" || { cat "$n.log"; fail "$name: $n ranks"; }
    [ -z "$(find . -name '*.h5*')" ] || fail "$name: $n ranks leave a file"
  done
  pass "$name"
}

# Records over several lines, quotes in quotes, blank lines, missing values, two spellings of one label.
awk 'BEGIN {
  srand(3)
  print "a;\"b\nb\";color;name;y"
  split("red \"gr\"\"een\" \"blue\n\n\" x", color, " ")
  split("1 1.0 two 3", label, " ")
  for (i = 0; i < 997; i++)
    printf "%.7g;%s;%s;\"row; %d\n\";%s\n%s", rand() * 1000, i % 11 ? int(rand() * 10) : "?",
           i % 3 ? color[1 + int(rand() * 2)] : "\"blue\n\n\"", i, label[1 + int(rand() * 4)], i % 50 ? "" : "\n"
}' > table.csv
equal "csv: means, a stratified split" csv table.csv --drop=name --standardize --missing=mean --test-part=0.2
equal "csv: dropped rows, the last ones for the test" csv table.csv --drop=name --standardize --missing=drop \
  --categories=onehot --split=last --test-part=0.3
equal "csv: two files, uncompressed" csv table.csv table.csv --drop=name,a --categorical=3 --missing=mean --compress=0
cp 1.h5 like.h5
equal "csv: --like" csv table.csv --like=like.h5
printf '\n\na,y\nred,2\nblue,4' > tiny.csv
equal "csv: fewer records than ranks" csv tiny.csv --standardize
# full blocks, which the ranks compress
awk 'BEGIN { for (i = 0; i < 150001; i++) printf "%d,%d,%d,%d\n", i, i * 7 % 1000, i * i % 777, i % 5 }' > long.csv
equal "csv: blocks compressed by several ranks" csv long.csv
equal "csv: uncompressed blocks of all ranks, two label columns" csv long.csv --label=4,2 --compress=0 --test-part=0.4
if "$TRIREME" key make key > key.log 2>&1; then # else a build without libsodium
  for level in 0 4; do
    import 1 csv long.csv --compress=$level && launch 3 "$TRIREME" data import csv long.csv --out=secret.h5 --overwrite \
      --compress=$level --security.key=file:key > log 2>&1 || { cat 1.log log; fail "encrypted, level $level"; }
    "$TRIREME" data info secret.h5 --check --security.key=file:key > log 2>&1 || { cat log; fail "encrypted: damaged"; }
    grep -qx "$(grep ^digest 1.log)" log || { cat log 1.log; fail "the digest of an encrypted file, level $level"; }
  done
  pass "csv: encrypted files"
fi

awk 'BEGIN {
  srand(2)
  for (i = 0; i < 501; i++) {
    printf "%d", i % 3
    for (j = 1 + int(rand() * 4); j < 40; j += 1 + int(rand() * 9))
      printf " %d:%.4g", j, rand()
    print i % 7 ? "" : " # a \" quote"
    if (i % 40 == 0)
      print "# no row"
  }
}' > rows.libsvm
equal "libsvm: a stratified split" libsvm rows.libsvm --test-part=0.3 --normalize
equal "libsvm: values, uncompressed" libsvm rows.libsvm --target=value --compress=0

line=$(grep -n '^[0-9.]*;' table.csv | sed -n '400s/:.*//p')
sed "${line}s/;/;;/" table.csv > bad.csv
refused "csv: a field too many" "bad.csv:$line: 6 columns in place of 5" csv bad.csv --missing=drop
printf 'a,y\n1,2\n3,"4\n5,6\n7,8\n' > bad.csv
refused "csv: a quote that stays open" 'bad.csv:3: a quoted field is not closed' csv bad.csv
sed '$s/.*/1e99,0,0,0/' long.csv > bad.csv
refused "csv: a number too large, when the file is being written" 'bad.csv:150001: column 1: "1e99" is not finite' \
  csv bad.csv
sed '300s/ [0-9]*:/ x:/' rows.libsvm > bad.libsvm
refused "libsvm: an entry without index" 'bad.libsvm:300: "x:' libsvm bad.libsvm
refused "a file that is not there" 'none.csv: No such file' csv none.csv
gzip -c rows.libsvm > rows.gz
import 2 libsvm rows.gz && fail "two ranks read a compressed file"
grep -q 'rows.gz: is compressed.*2 ranks' 2.log || { cat 2.log; fail "a compressed file"; }
pass "a compressed file is for one rank"

# a column whose name is a number is found by that name
printf '7,3,y\n1,5,a\n2,6,b\n' > first.csv && printf '3,x,y\n5,0,a\n' > second.csv
"$TRIREME" data import csv first.csv --header=yes --out=first.h5 > x.log 2>&1 || { cat x.log; fail "a numeric header"; }
"$TRIREME" data import csv second.csv --like=first.h5 --out=x.h5 > x.log 2>&1 && fail "--like by place"
grep -q 'second.csv:1: has no column "7"' x.log || { cat x.log; fail "--like: the column that is missing"; }
pass "--like matches columns by name"
finish
