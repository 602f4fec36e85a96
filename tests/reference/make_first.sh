#!/bin/bash
# Writes the files of tests/reference/first with the first program that trained: that of commit 67def861, built by hand.
#   tests/reference/make_first.sh TRIREME DIRECTORY
# Later programs must read them: tests/first_formats.sh, python/tests/test_reader.py.
set -eu
program=$(realpath "$1")
mkdir -p "$2" && target=$(realpath "$2")
export OMP_NUM_THREADS=1
scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

# Three kinds by the sum of two numbers; the last quarter of the rows is the test split.
awk 'BEGIN {
  print "x,y,kind"
  for (i = 0; i < 48; i++) { x = (i * 7 % 48 - 24) / 16; y = (i * 13 % 48 - 24) / 16
    printf "%.4f,%.4f,%d\n", x, y, (x + y < -0.7 ? 0 : (x + y > 0.7 ? 2 : 1)) }
}' > table.csv
awk 'BEGIN { for (i = 1; i <= 6; i++) printf "%d 1:%d 2:0.5 4:-%d\n", i % 3, i, i }' > rows
awk 'BEGIN { for (i = 1; i <= 3; i++) printf "%d 1:%d 3:0.25\n", i % 3, i }' > test-rows
for _ in 1 2 3 4 5; do printf abcabcabdabcabcabdab; done > text
"$program" data import csv table.csv --label=kind --test-part=0.25 --names=low,middle,high --out=vector.h5
"$program" data import libsvm rows test-rows --out=csr.h5
"$program" data import text text --out=tokens.h5
"$program" data make digits --train=1 --test=1 --compress=9 --out=image.h5
"$program" train --model="mlp 2-4-3 relu" --data.file=vector.h5 --train.batch=9 --train.epochs=3 \
  --train.evaluate_every=4 --run.checkpoint_every=4 --optim.name=momentum --optim.momentum=0.9 --optim.lr=0.2 \
  --log.every=1 --log.quiet=yes --run.dir=run
# The checkpoints of step 4, from which a run goes on, and of the end.
find run/checkpoints -name '*.h5' ! -name step-00000004.h5 ! -name step-00000012.h5 -delete
chmod -R u=rwX,go=rX .
cp -r ./*.h5 run "$target"
