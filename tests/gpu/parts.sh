# shellcheck shell=bash disable=SC2154,SC2034 # top, here, folder, out, modules, mock, chosen, pack: of run
# The parts of tests/gpu/run. Sourced. The working directory is the folder of the results.
failed=0 deadline=0
all_s=${TRM_GPU_SECONDS-590} # for all parts

# limited COMMAND...: until the part's deadline
limited() {
  local left=$((deadline - SECONDS))
  [ $left -gt 0 ] || return 124
  timeout -k 5 "$left" "$@"
}

# part NAME SECONDS COMMAND...: status 77 means that something is missing here; the last line says what
part() {
  local name=$1 limit=$2 from=$SECONDS result status=0
  shift 2
  case ${chosen:+$chosen,build,data,} in '' | *",$name,"*) ;; *) return ;; esac
  deadline=$((from + limit < all_s ? from + limit : all_s))
  if [ $deadline -le "$from" ]; then status=124; else "$@" > "$name.log" 2>&1 || status=$?; fi
  case $status in
    0) result=passed ;;
    77) result="skipped: $(tail -n 1 "$name.log")" ;;
    124 | 137) result="FAILED: not done after $((SECONDS - from)) s" ;;
    *) result="FAILED: $(tail -n 1 "$name.log" | cut -c 1-200)" ;;
  esac
  case $result in FAILED*) failed=$((failed + 1)); tail -n 12 "$name.log" 2> /dev/null ;; esac
  printf '%-20s %4d s  %s\n' "$name" $((SECONDS - from)) "$result"
  printf '| %s | %s | %d |\n' "$name" "$result" $((SECONDS - from)) >> parts.txt
}

missing() { echo "$*"; return 77; }

# -- the program

# Libraries of an unpacked archive; cuBLAS may be that of PyTorch's packages.
use_libraries() {
  local cublas
  [ -d "$folder/lib" ] || return 0
  export LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  cublas=$(python3 -c 'import glob, sys
for folder in sys.path:
    for found in glob.glob(folder + "/nvidia/*/lib"):
        print(found, end=":")' 2> /dev/null)
  LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$cublas/usr/local/cuda/lib64
}

build() {
  local jobs
  jobs=$(nproc)
  if ! [ -x "$folder/trireme" ] || ! [ -x "$folder/tests/unit/test_kernels" ] || ! [ -e "$modules/trireme_cuda.so" ]; then
    [ -z "$mock" ] || { echo "--mock: no build in $folder (make check makes one)"; return 1; }
    (cd "$top" && { [ -x configure ] || limited autoreconf -i; }) &&
      (mkdir -p "$folder" && cd "$folder" && { [ -e Makefile ] || limited "$top/configure" --quiet --with-cuda; } &&
        limited make -s -j"$jobs" && limited make -s -j"$jobs" tests/unit/test_kernels) || return
  fi
  "$folder/trireme" --version
}

# The archive: trireme-gpu/{tests/gpu,tests/bench,build-gpu}, with all libraries but those of the C library, the driver
# and CUDA's large ones (PACK_CUDA=yes: these, too), and MPICH's launcher.
pack_build() {
  local work=$out/pack/trireme-gpu lib file launcher
  lib=$work/build-gpu/lib
  rm -rf "$out/pack" && mkdir -p "$lib" "$work/build-gpu/bin" "$work/build-gpu/tests/unit" "$work/tests/bench" || return
  cp -r "$here" "$work/tests/" && cp "$top/tests/bench/torch_peer.py" "$work/tests/bench/" || return
  cp "$folder/trireme" "$work/build-gpu/" && cp "$folder/tests/unit/test_kernels" "$work/build-gpu/tests/unit/" || return
  mkdir -p "$work/build-gpu/${modules#"$folder"/}" &&
    cp "$modules/trireme_cuda.so" "$work/build-gpu/${modules#"$folder"/}" || return
  for file in "${MPIEXEC:-mpiexec}" hydra_pmi_proxy; do
    launcher=$(command -v "$file") || { echo "$file: not found (the archive is made with MPICH)"; return 1; }
    case $file in hydra*) ;; *) file=mpiexec ;; esac
    cp -L "$launcher" "$work/build-gpu/bin/$file" || return
  done
  chmod -R u+w "$work"
  for file in $(ldd "$folder/trireme" "$folder/tests/unit/test_kernels" "$modules/trireme_cuda.so" \
    "$work"/build-gpu/bin/* | awk '$3 ~ /^\// { print $3 }' |
    sort -u); do
    case ${file##*/} in
      ld-linux* | libc.so* | libm.so* | libpthread.so* | libdl.so* | librt.so* | libresolv.so* | libcuda.so*) continue ;;
      libcublas*) [ "${PACK_CUDA-}" = yes ] || continue ;;
    esac
    cp -L "$file" "$lib/" || return
    case ${file##*/} in libucs.so*) [ ! -d "${file%/*}/ucx" ] || cp -r "${file%/*}/ucx" "$lib/" ;; esac
  done
  rm -f "$lib"/ucx/*.a
  find "$work" -type f \( -name '*.so*' -o -name trireme -o -name test_kernels \) -exec strip -g {} + || return
  if ! tar -C "$out/pack" -caf "$pack" trireme-gpu; then return 1; fi
  rm -rf "$out/pack"
  ls -l "$pack"
}

# -- sizes

# Sets mlp, lenet5, gpt: options of runs; step_rows: "NAME|MODEL|BATCH|VALUES|OPTIONS" a line; product_shapes; checks.
sizes() {
  local adamw="--optim.name=adamw --optim.lr=3e-4"
  digits=$out/digits.h5 text=$out/text.h5
  if [ -n "$mock" ]; then
    train=320 mlp_steps=12 image_steps=3 gpt_steps=4 few=4 batch=16 gpt_batch=2 step_flags=(--steps=1 --warmup=1)
    mlp_model="mlp 784-16-10 relu" gpt_model="gpt layers=1 heads=2 dim=16 context=16"
    step_rows="mlp|mlp 16-8-4 relu|4|f32|
mlp|mlp 16-8-4 relu|4|bf16|
mlp, no graphs|mlp 16-8-4 relu|4|f32|--device.graphs=no
lenet5|lenet5|1|bf16|
gptchar|gpt layers=1 heads=2 dim=16 context=16|1|bf16|$adamw"
    product_shapes=16x16x16,8x24x16:nt
    checked="softmax: extremes|recorded" own_kernels="softmax: extremes"
    return
  fi
  train=12800 mlp_steps=200 image_steps=200 gpt_steps=200 few=40 batch=64 gpt_batch=8 step_flags=(--steps=20 --warmup=10)
  mlp_model="mlp 784-256-10 relu" gpt_model="gpt layers=2 heads=4 dim=64 context=64"
  step_rows="mlp|mlp 784-2048-2048-10 relu|256|f32|
mlp|mlp 784-2048-2048-10 relu|256|bf16|
lenet5|lenet5|64|f32|
lenet5|lenet5|64|bf16|
lenet5, no graphs|lenet5|64|bf16|--device.graphs=no
resnet20|resnet20|128|f32|
resnet20|resnet20|128|bf16|
resnet18|resnet18|64|bf16|
gptchar|gpt layers=6 heads=6 dim=384 context=256|64|bf16|$adamw
gptchar, no graphs|gpt layers=6 heads=6 dim=384 context=256|64|bf16|$adamw --device.graphs=no
gpt2-124m|gpt2-124m|16|bf16|$adamw
gpt2-124m|gpt2-124m|32|bf16|$adamw
gpt2-124m, no graphs|gpt2-124m|32|bf16|$adamw --device.graphs=no
gpt2-124m|gpt2-124m|64|bf16|$adamw"
  product_shapes=1024x1024x1024,4096x4096x4096,8192x8192x8192,16384x3072x768:nt,16384x768x3072:nt,16384x50257x768:nt
  checked="gemm against|convolution against|softmax|layer norm|attention|embedding|sums in|updates against|bfloat16|recorded"
  own_kernels="softmax|layer norm|attention|sums in|updates against" # racecheck reports kernels of cuBLAS, too
}

# Options of runs by name.
options() {
  case $1 in
    mlp) set -- "--model=$mlp_model" "--data.file=$digits" --train.batch="$batch" --train.steps="$mlp_steps" \
      --optim.lr=0.1 ;;
    lenet5) set -- --model=lenet5 "--data.file=$digits" --train.batch="$batch" --train.steps="$image_steps" --optim.lr=0.05 ;;
    gpt) set -- "--model=$gpt_model" "--data.file=$text" --train.batch="$gpt_batch" --train.steps="$gpt_steps" \
      --optim.name=adamw --optim.lr=1e-3 ;;
  esac
  run=("$@" --train.evaluate_every=100000 --log.every=1 --log.quiet=yes --run.checkpoint_every=-1 --run.overwrite=yes)
}

data() {
  "$folder/trireme" data make digits --out "$digits" --overwrite --train="$train" --test=64 --seed=7 &&
    awk 'BEGIN { for (i = 0; i < 40000; i++)
                   printf "%s%s", substr("abcdefghij klmnop", (i * i + int(i / 7)) % 17 + 1, 1), i % 40 == 39 ? "\n" : "" }' \
      > text.txt && "$folder/trireme" data import text text.txt --out="$text" --overwrite
}

# -- correctness

suite() { limited env TRM_TEST_DEVICE=cuda ${mock:+"TRM_TEST_ONLY=$checked"} "$folder/tests/unit/test_kernels"; }

# run_on NAME RANKS DEVICE OPTION...: a run of $run in folder NAME
run_on() {
  local name=$1 ranks=$2 device=$3
  shift 3
  limited ${MPIEXEC:-mpiexec} -n "$ranks" "$folder/trireme" train "${run[@]}" --run.dir="$name" --device.name="$device" "$@"
}

# curves_agree ONE OTHER TOLERANCE: every step's training loss, relative; prints the largest difference
curves_agree() {
  local name
  for name in "$1" "$2"; do
    sed -n 's/.*"loss":\([-+0-9.e]*\).*/\1/p' "$name/metrics.jsonl" > "$name.losses"
  done
  paste "$1.losses" "$2.losses" | awk -v limit="$3" -v names="$1, $2" '
    { d = ($2 - $1) / $1; if (d < 0) d = -d; if (d > worst) worst = d; good += NF == 2 && $1 > 0 && $2 > 0 }
    END { printf "%s: %d steps, losses differ by at most %.3g (%s)\n", names, NR, worst, limit
          exit !(NR > 2 && good == NR && worst <= limit) }'
}

# losses NAME: a rank on the CPU and one on the GPU
losses() {
  options "$1"
  run_on "$1.cpu" 1 cpu && run_on "$1.cuda" 1 cuda && curves_agree "$1.cpu" "$1.cuda" 1e-4
}

rounded() {
  options mlp
  run_on rounded.cpu 1 cpu --train.activations=bf16 && run_on rounded.cuda 1 cuda --train.activations=bf16 &&
    curves_agree rounded.cpu rounded.cuda 0.02
}

# Two ranks of each layout, on one GPU where there is one, against one rank on the CPU.
layouts() {
  local layout
  options mlp
  run+=(--train.steps="$few")
  run_on layouts.cpu 1 cpu || return
  for layout in tensor=2 pipeline=2 zero=1 zero=3; do
    run_on "layouts.$layout" 2 cuda --parallel.$layout && curves_agree layouts.cpu "layouts.$layout" 1e-4 || return
  done
}

# A method with a parameter server: one worker is serial training.
methods() {
  options mlp
  run+=(--train.steps="$few")
  run_on method.cpu 1 cpu --strategy.name=asgd && run_on method.cuda 1 cuda --strategy.name=asgd &&
    curves_agree method.cpu method.cuda 1e-4 && run_on workers 2 cuda --strategy.name=asgd
}

# Recorded calls have the bits of single ones.
graphs() {
  options mlp
  run+=(--train.steps="$few" --train.accumulate=2)
  run_on graphs.no 1 cuda --device.graphs=no && run_on graphs.yes 1 cuda && curves_agree graphs.no graphs.yes 0
}

two_ranks() {
  options mlp
  run_on one.cpu 1 cpu && run_on two.cuda 2 cuda && curves_agree one.cpu two.cuda 1e-4
}

gpu_and_cpu() {
  options mlp
  run_on alone.cpu 1 cpu || return
  limited ${MPIEXEC:-mpiexec} -n 1 "$folder/trireme" train "${run[@]}" --run.dir=both --device.name=cuda : \
    -n 1 "$folder/trireme" train "${run[@]}" --run.dir=both --device.name=cpu && curves_agree alone.cpu both 1e-4
}

# -- tables

steps() {
  local name model batch values flags bad=0
  while IFS='|' read -r name model batch values flags; do
    # shellcheck disable=SC2086 # a list of words
    limited "$folder/trireme" bench step "--model=$model" --batch="$batch" --train.activations="$values" --device.name=cuda \
      "${step_flags[@]}" --bound=no --json $flags > row.json || { echo "$name, $batch, $values: no figures"; bad=1; continue; }
    grep '^{' row.json | sed "s/^{/{\"work\":\"$name\",/" | tee -a rows.jsonl
  done <<< "$step_rows"
  return $bad
}

products() {
  local values
  for values in f32 bf16; do
    limited "$folder/trireme" bench gemm --shapes="$product_shapes" --train.activations=$values --device.name=cuda \
      --repeat=10 --json > row.json || return
    grep '^{' row.json | tee -a rows.jsonl
  done
}

# peer.py: the same rows by PyTorch.
peer() {
  local name model batch values flags
  python3 -c 'import torch' 2> /dev/null || { missing "no PyTorch (python3 -c 'import torch')"; return; }
  [ -n "$mock" ] || python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
    { missing "PyTorch has no CUDA"; return; }
  while IFS='|' read -r name model batch values flags; do
    case $name in *"no graphs") ;; *) echo "$name $batch $values" ;; esac
  done <<< "$step_rows" > peer.txt
  limited python3 "$here/peer.py" --shapes="$product_shapes" ${mock:+--mock} < peer.txt > peer.out
  local status=$?
  grep '^{' peer.out | tee -a rows.jsonl
  return $status
}

sanitize() {
  command -v compute-sanitizer > /dev/null || { missing "no compute-sanitizer"; return; }
  limited env TRM_TEST_DEVICE=cuda "TRM_TEST_ONLY=$2" compute-sanitizer --tool="$1" --error-exitcode=1 \
    "$folder/tests/unit/test_kernels"
}

# -- the result

# table_of BENCH: rows of rows.jsonl with our figure, the fastest of the peer, and the ratio
table_of() {
  awk -v bench="$1" -f "$here/table.awk" rows.jsonl
}

table() {
  local device=none version commit
  [ -z "$mock" ] || device="the mock runtime and the emulator: the times mean nothing"
  if [ -z "$mock" ] && command -v nvidia-smi > /dev/null; then
    device=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader | head -n 1 |
      sed 's/, \([^,]*\)$/, driver \1/')
  fi
  version=$("$folder/trireme" --version 2> /dev/null | head -n 1)
  commit=$(git -C "$top" rev-parse --short HEAD 2> /dev/null)
  printf '# Run on a GPU\n\nDate: %s. Device: %s. %s%s. `tests/gpu/run` took %d s; %d parts failed.\n\n' \
    "$(date -u +%F)" "$device" "$version" "${commit:+, commit $commit}" $SECONDS $failed
  printf '| part | result | s |\n|---|---|---|\n' && cat parts.txt
  printf '\nWhole training steps (forward, loss, backward, update), median. Ratio: PyTorch over Trireme.\n\n'
  table_of step
  printf '\nMatrix products.\n\n'
  table_of gemm
}
