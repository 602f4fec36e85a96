#!/bin/bash
# The guides' commands work as typed, in order: all indented commands that start the program, of docs/, mpi/README.md
# and the READMEs of experiments, each guide in a folder with the files that it assumes. A wrapper of the program trains
# for few steps. Commands for what a test machine may lack are listed, not run. Others have tests of their own:
# readme.sh (README.md, docs/everyday.md), tutorial.sh (docs/new-method.md), sbatch.sh (batch scripts of
# docs/clusters.md).
. "$(dirname "$0")/lib.sh"
TRIREME=$(realpath "$TRIREME")
top_srcdir=$(cd "$top_srcdir" && pwd)
scratch
mkdir -p tools home/.keys
export PATH=$work/tools:$PATH HOME=$work/home
printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v "$MPIEXEC")" > tools/mpiexec
cat > tools/trireme << EOF
#!/bin/sh
[ "\$1" != train ] || set -- "\$@" --train.steps=3 --optim.warmup=0
[ "\$1 \$2" != "bench allreduce" ] || set -- "\$@" --max=4K --pool=64K --repeat=1
exec "$TRIREME" "\$@"
EOF
chmod +x tools/*

# Files that guides assume. configuration FILE LINE...: with a run directory of its own, which later runs replace
configuration() { printf '%s\n' "${@:2}" "run: {dir: runs/${1%.yaml}, seed: 1, overwrite: yes}" > "$1"; }
quiet() { "$@" > setup.log 2>&1 || { cat setup.log; fail "$*"; }; }

# mnist FOLDER: 512 and 256 images as the files of MNIST
mnist() {
  local part n
  mkdir -p "$1"
  for part in train:2 t10k:1; do
    n=${part#*:} part=$1/${part%:*}
    { printf "\0\0\x08\x03\0\0\x0$n\0\0\0\0\x1c\0\0\0\x1c"
      yes pixels | head -c $((n * 256 * 784)); } > "$part-images-idx3-ubyte"
    { printf "\0\0\x08\x01\0\0\x0$n\0"
      yes $'\1\2\3' | tr '\n' '\0' | head -c $((n * 256)); } > "$part-labels-idx1-ubyte"
  done
}

# prepare_GUIDE: the files; before_GUIDE COMMAND: what the text says between commands
prepare_fine-tuning() {
  letters
  numpy_bytes x.npy '(16, 3, 32, 32)' "$(yes 'pixels ' | tr -d '\n' | head -c 49152)"
  numpy_bytes y.npy '(16,)' 0000000000000000
  quiet trireme data import npy x.npy y.npy --out=images.h5
  configuration config.yaml 'model: resnet18' 'data: {file: images.h5}' 'train: {batch: 8}'
  configuration gpt2.yaml 'model: gpt layers=2 heads=2 dim=32 context=16' 'data: {file: text.h5}' 'train: {batch: 8}'
  quiet trireme train config.yaml --run.dir=runs/pretrained
  quiet trireme export runs/pretrained --format=safetensors --out=resnet18.safetensors
  quiet trireme train gpt2.yaml
  quiet trireme export runs/gpt2 --format=safetensors --out=gpt2.safetensors
}

prepare_security() {
  if ! trireme key make key > setup.log 2>&1; then
    grep -q 'no libsodium' setup.log || { cat setup.log; fail "key make"; }
    no_keys='needs libsodium'
  fi
  awk 'BEGIN { print "a,b,class"
               for (i = 0; i < 80; i++) printf "%d,%d,%s\n", i * 37 % 100, i % 9, i % 2 ? "x" : "y" }' > rows.csv
  configuration run.yaml 'model: mlp 2-8-2 relu' 'data: {file: rows.h5}' 'train: {batch: 8}'
  sed -i 's,runs/run,runs/mine,' run.yaml
}
before_security() {
  local import=(trireme data import csv rows.csv --test-part=0.2 --out=rows.h5 --overwrite)
  local key=--security.key=file:$HOME/.keys/project
  case $1 in
    *"key decrypt export.onnx"*) quiet trireme export runs/mine --format=onnx --out=export.onnx "$key" ;;
    *"key sign rows.h5"*) quiet "${import[@]}" ;; # a plain one: another section
    *run.encrypt*) quiet "${import[@]}" "$key" ;;
  esac
}

prepare_clusters() {
  digits 64 16
  configuration config.yaml 'model: mlp 784-16-10' 'data: {file: digits.h5}'
  quiet trireme train config.yaml --run.dir=runs/first
}

prepare_mpi() {
  digits 600 100
  configuration CONFIG.yaml 'model: mlp 784-16-10' 'data: {file: digits.h5}' 'train: {batch: 8}'
}

# A preloaded library that prints regions, in the place of IPM.
prepare_other-tools() {
  prepare_mpi
  export IPM=$PWD
  mkdir lib && ln -s "$(dirname "$TRIREME")/tests/support/.libs/regions.so" lib/libipm.so
}

prepare_quickstart() { cp "$top_srcdir/experiments/quickstart/config.yaml" .; }
prepare_hybrid() { digits 1000 100 && cp "$top_srcdir/experiments/hybrid/config.yaml" .; }
prepare_gpt-shakespeare() {
  letters
  { cat text.txt text.txt text.txt && echo ROMEO: && cat text.txt; } > input.txt
  cp "$top_srcdir/experiments/gpt-shakespeare/config.yaml" . && chmod +w config.yaml
  sed -i 's/^model:.*/model: gpt layers=2 heads=2 dim=32 context=32/' config.yaml
}
prepare_lenet5-fashion() { mnist FOLDER && cp "$top_srcdir/experiments/lenet5-fashion/config.yaml" .; }
prepare_resnet20-fashion() { mnist FOLDER && cp "$top_srcdir/experiments/resnet20-fashion/config.yaml" .; }
prepare_10-identities() {
  digits 600 100 && mv digits.h5 fashion.h5 && cp "$top_srcdir/experiments/10-identities/config.yaml" .
}

# elsewhere COMMAND: prints what it needs that is not here, or the test that runs it
elsewhere() {
  case $1 in
    *trireme\ key* | *.key=* | *.sign=*) [ -z "$no_keys" ] && return 1; echo "$no_keys" ;;
    srun* | sbatch* | *"trireme sbatch"*) echo "sbatch.sh, slurm.sh" ;;
    *"-f hosts"*) echo "several hosts" ;;
    *=cuda* | *gpu.json*) echo "a GPU" ;;
    *) return 1 ;;
  esac
}

typed=0 no_keys=
while read -r file least <&4; do
  guide=$(basename "${file%.md}")
  [ "$guide" != README ] || guide=$(basename "$(dirname "$file")")
  mkdir "$work/$guide" && cd "$work/$guide" || exit 99
  "prepare_$guide"
  commands "$top_srcdir/$file" | grep -E '^(trireme|mpiexec|srun|sbatch) ' > commands.txt
  [ "$(wc -l < commands.txt)" -ge "$least" ] || fail "$file: only $(wc -l < commands.txt) commands"
  while IFS= read -r command <&3; do
    if reason=$(elsewhere "$command"); then
      echo "not typed: $file: $command ($reason)"
      continue
    fi
    [ "$(type -t "before_$guide")" != function ] || "before_$guide" "$command"
    status=0
    timeout -k 10 120 bash -c "${command//\/scratch\/me/.}" > out.log 2>&1 < /dev/null || status=$?
    case $command in *"trireme doctor"*) [ $status != 1 ] || status=0 ;; esac # it may find something
    [ $status = 0 ] || { cat out.log; fail "$file: $command"; }
    pass "$file: $command"
    typed=$((typed + 1))
  done 3< commands.txt
done 4<< EOF
docs/fine-tuning.md 6
docs/security.md 9
docs/clusters.md 5
docs/other-tools.md 1
mpi/README.md 6
experiments/quickstart/README.md 3
experiments/gpt-shakespeare/README.md 4
experiments/lenet5-fashion/README.md 3
experiments/resnet20-fashion/README.md 3
experiments/10-identities/README.md 2
experiments/hybrid/README.md 5
EOF
[ -z "$no_keys" ] && least=36 || least=26
[ $typed -ge $least ] || fail "only $typed commands"
finish
