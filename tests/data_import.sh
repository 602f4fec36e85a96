#!/bin/bash
# From files as people have them to predictions: a table with a train split, new rows treated alike; rows and sheets of
# images; a folder of images.
. "$(dirname "$0")/lib.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99

# -- a table, a model, new rows
{
  echo 'name;size;kind;class'
  for i in $(seq 200); do
    [ $((i % 2)) = 0 ] && echo "\"row; $i\";$((i * 37 % 100 + 1000));round;yes" || echo "row $i;$((i * 37 % 100));flat;no"
  done
  echo ';;round;yes'
} > table.csv
"$TRIREME" data import csv table.csv --drop=name --missing=drop --standardize --categories=onehot --test-part=0.2 \
  --out=table.h5 > table.log 2>&1 || { cat table.log; fail "data import csv"; }
grep -q 'table.csv: 1 rows with missing values are dropped' table.log || fail "dropped rows: $(cat table.log)"
"$TRIREME" train --model="mlp 3-4-2 relu" --data.file=table.h5 --train.epochs=20 --train.batch=16 --optim.lr=0.5 \
  --run.dir=run > train.log 2>&1 || { cat train.log; fail "train"; }
printf 'kind,size\nround,1050\nflat,10\nround,1010\n' > new.csv
"$TRIREME" data import csv new.csv --like=table.h5 --out=new.h5 > new.log 2>&1 || { cat new.log; fail "--like"; }
grep -q 'has no column "class"' new.log || fail "a table without labels: $(cat new.log)"
"$TRIREME" predict run --data.file=new.h5 --split=train --out=predicted.csv > predict.log 2>&1 ||
  { cat predict.log; fail "predict"; }
words=$(grep -oE '\b(yes|no)\b' <(tail -n +2 predicted.csv) | tr '\n' ' ')
[ "$words" = "yes no yes " ] || fail "predictions of new rows: $(cat predicted.csv)"
pass "a table: train, then new rows treated like the old ones"

# -- several label columns: their names in the predictions of values and of labels
awk 'BEGIN { print "x,\"a, b\",c"; for (i = 0; i < 60; i++) printf "%d,%d,%d\n", i % 7, i % 2, (i % 7 > 3) }' > labels.csv
"$TRIREME" data import csv labels.csv --label=3,2 --out=labels.h5 > labels.log 2>&1 ||
  { cat labels.log; fail "--label=3,2"; }
grep -q '^value names *c, a, b$' labels.log || fail "names of values: $(cat labels.log)"
for loss in mean_squared_error binary_cross_entropy; do
  "$TRIREME" train --model="linear 2" --data.file=labels.h5 --train.loss=$loss --train.epochs=1 --train.batch=16 \
    --run.dir=$loss > train.log 2>&1 || { cat train.log; fail "train on several label columns, $loss"; }
  "$TRIREME" predict $loss --split=train --out=$loss.csv > log 2>&1 || { cat log; fail "predict, $loss"; }
  "$TRIREME" predict $loss --split=train --out=$loss-pred.h5 > log 2>&1 || { cat log; fail "predict to HDF5, $loss"; }
done
head -1 mean_squared_error.csv | grep -qx 'index,prediction_c,"prediction_a, b"' ||
  fail "$(head -1 mean_squared_error.csv)"
head -1 binary_cross_entropy.csv | grep -qx 'index,prediction_c,"prediction_a, b",probability_c,"probability_a, b"' ||
  fail "$(head -1 binary_cross_entropy.csv)"
pass "several label columns: values and labels with names"

# -- head
"$TRIREME" data head table.h5 --rows=2 > head.log 2>&1 || fail "data head: $(cat head.log)"
[ "$(wc -l < head.log)" = 2 ] && grep -q '^0 .*size: .*kind=flat: .*kind=round: ' head.log ||
  fail "data head: $(cat head.log)"
printf 'to be or not to be' > text.txt
"$TRIREME" data import text text.txt --test-part=0 --out=text.h5 > /dev/null 2>&1
[ "$("$TRIREME" data head text.h5)" = "to be or not to be" ] || fail "data head of a text"
"$TRIREME" data make digits --train=30 --test=5 --out=digits.h5 > /dev/null 2>&1
"$TRIREME" data head digits.h5 --rows=3 | grep -q '^2 .*(1, 28, 28), 0.* to ' || fail "data head of images"
"$TRIREME" data head text.h5 --out=x.svg > x.log 2>&1 && fail "a sheet of a text"
grep -q 'its rows are no images' x.log || fail "a sheet of a text: $(cat x.log)"
"$TRIREME" data head table.h5 --split=validation > x.log 2>&1 && fail "a split that is not there"
grep -q 'table.h5: has no validation split' x.log || fail "a split that is not there: $(cat x.log)"
pass "data head: values by name, text, images"

# -- a sheet, and a folder of images
if "$TRIREME" data head digits.h5 --rows=12 --out=sheet.svg > sheet.log 2>&1; then
  [ "$(grep -c '<image ' sheet.svg)" = 12 ] && [ "$(grep -cE '>[0-9]</text>' sheet.svg)" = 12 ] || fail "sheet.svg"
  pass "a sheet of images as SVG"
else
  grep -q 'no libpng' sheet.log || fail "sheet.svg: $(cat sheet.log)"
fi
if [ -e sheet.svg ] && "$TRIREME" data head digits.h5 --rows=12 --out=sheet.png > sheet.log 2>&1; then
  mkdir -p folder/a folder/b
  cp sheet.png folder/a/1.png && cp sheet.png folder/b/2
  "$TRIREME" data import images folder --size=20x90 --channels=1 --out=images.h5 > images.log 2>&1 ||
    { cat images.log; fail "data import images"; }
  "$TRIREME" data head images.h5 | grep -q '^1 *b *(1, 20, 90), 0.* to 1, mean' || fail "data import images"
  head -c 5000 sheet.png > folder/b/2
  "$TRIREME" data import images folder --size=20x90 --out=x.h5 > x.log 2>&1 && fail "a damaged image"
  grep -q 'folder/b/2: is a damaged PNG' x.log && [ ! -e x.h5 ] || fail "a damaged image: $(cat x.log)"
  pass "a sheet as PNG, and a folder of images"
fi
finish
