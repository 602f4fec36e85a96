#!/bin/bash
# Hogwild! on sparse and on dense rows: what the delay by 1, 8 and 32 workers costs, and how often updates conflict.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
mkdir -p "$OUT"

# rows NAME [FILE...]: makes NAME.h5, and a line of the table of the data
rows() {
  local name=$1
  shift
  awk -f "$here/rows.awk" -v make="$name" "$@" > "$OUT/$name.svm"
  awk -f "$here/describe.awk" -v name="$name" "$OUT/$name.svm" >> "$OUT/rows.md"
  "$TRIREME" data import libsvm "$OUT/$name.svm" --normalize --test-part=0.1 --out="$name.h5" --overwrite \
    > "$OUT/$name.log" 2>&1 || { cat "$OUT/$name.log" >&2; exit 1; }
  use "$name.h5" "made by run.sh"
}

# bytes FILE SKIP WIDTH: the first 15,935 records of an IDX file, as numbers
bytes() {
  gzip -dc "$1" | tail -c +$(($2 + 1)) | head -c $((15935 * $3)) | od -An -v -tu1 -w"$3"
}

printf '%s\n' "| data | rows | features | of them in a row | % | frequent | mean row | limit of the rate |" \
  "|---|---|---|---|---|---|---|---|" > "$OUT/rows.md"
if [ $form = full ]; then
  use news20.svm "bzip2 -dc news20.bz2 > news20.svm, of LIBSVM's data sets"
  for file in train-{images-idx3,labels-idx1}-ubyte.gz; do
    use $file "a file of Fashion-MNIST"
  done
  rows rare news20.svm news20.svm
  rows words news20.svm
  rows folded news20.svm
  paste -d' ' <(bytes train-labels-idx1-ubyte.gz 8 1) <(bytes train-images-idx3-ubyte.gz 16 784) > "$OUT/pixels.txt"
  rows images "$OUT/pixels.txt"
  variants=$here/variants.txt workers=1,8,32 rates=0.25,1,4,16 seeds=1..5 biased=words
else
  rows sparse
  rows dense
  variants=$here/short.txt workers=1,32 rates=0.25,1,4 seeds=1,2 biased=sparse
fi
set -- --run.seed=$seeds --figures=final_train_loss,conflicts
{
  sed 's/ --optim.*//' "$variants"
  echo "bias | --data.file=$biased.h5 --model=linear 1" # the same rows with one more feature, which all have
} > "$OUT/same.txt"
sweep main --variants="$OUT/same.txt" --simulate.workers=1,32 --optim.lr=$rates "$@" --x=optim.lr --y=final_train_loss
set -- --simulate.workers=$workers "$@"
sweep retuned --variants="$variants" --tune=optim.lr --tune-seeds=101..103 "$@"
# The rate of one worker for any number: the column optim.lr of the rows of one.
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
  $column["simulate.workers"] == 1 { print $1 " | --data.file=" $1 ".h5 --optim.lr=" $column["optim.lr"] }' \
  "$OUT/retuned/results.csv" > "$OUT/kept.txt"
sweep kept --variants="$OUT/kept.txt" "$@"
if [ $form = full ]; then
  cp "$OUT/rows.md" "$here/rows.md"
  cp "$OUT/retuned/table.md" "$here/retuned.md"
  cp "$OUT/kept/table.md" "$here/kept.md"
fi
finish
