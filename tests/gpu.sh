#!/bin/bash
# tests/gpu/run without a GPU: all of its parts at small sizes, on the emulator and the mock runtime; its table; a part
# that fails, and one that does not end; the archive, unpacked where the build is not.
. "$(dirname "$0")/lib.sh"
build=${builddir:-$top_srcdir/build}
[ -e "$build/tests/cuda/.libs/trireme_cuda.so" ] || skip "the C++ compiler of this build does not make the module"
scratch
run_parts() { # STATUS OPTION...: without and with the programs in $work/bin
  local status=0
  PATH=$work/bin:$PATH "$top_srcdir/tests/gpu/run" --mock --out=out "${@:2}" > run.log 2>&1 || status=$?
  [ $status = "$1" ] || { cat run.log; fail "tests/gpu/run ${*:2}: status $status, not $1"; }
}

# compute-sanitizer and PyTorch, as far as the script sees them
mkdir bin
cat > bin/compute-sanitizer << 'END'
#!/bin/sh
case $1 in --tool=memcheck | --tool=racecheck | --tool=synccheck) ;; *) exit 3 ;; esac
while [ "${1#--}" != "$1" ] || [ "${1#*=}" != "$1" ]; do shift; done
exec "$@"
END
cat > bin/python3 << 'END'
#!/bin/sh
[ "$1" != -c ] || exit 0
cat > /dev/null
echo '{"bench":"gemm","peer":"pytorch","mode":"torch.mm","values":"f32","m":16,"n":16,"k":16,"transposes":"nn","product_s":2e-3}'
echo '{"bench":"step","work":"mlp","peer":"pytorch","mode":"graph","values":"f32","batch":4,"step_s":0.5,"items_per_s":8}'
echo '{"bench":"step","work":"mlp","peer":"pytorch","mode":"compiled","values":"f32","batch":4,"step_s":0.25,"items_per_s":16}'
END
chmod +x bin/*
run_parts 0 "$build"
parts="build data operators losses-mlp losses-lenet5 losses-gpt bfloat16 layouts methods graphs
  two-ranks-one-gpu gpu-and-cpu
  steps products peer memcheck racecheck synccheck"
for part in $parts; do
  grep -q "^| $part | passed | [0-9]* |$" out/table.md || { cat out/table.md; fail "$part"; }
done
pass "all parts"
grep -q "^Date: $(date -u +%Y)-.* Device: the mock" out/table.md || { cat out/table.md; fail "date and device"; }
grep -q '^| mlp | f32 | 4 | [0-9.]* | [0-9]* | 250 | [0-9.]* | compiled |$' out/table.md &&
  grep -q '^| mlp, no graphs | f32 | 4 | [0-9.]* |' out/table.md &&
  grep -q '^| lenet5 | bf16 | 1 | [0-9.]* | [0-9.]* | - | - |  |$' out/table.md &&
  grep -q '^| 16 x 16 x 16 nn | f32 | [0-9.]* | [0-9.]* | 2 | [0-9.]* | torch.mm |$' out/table.md ||
  { cat out/table.md; fail "the tables"; }
[ "$(grep -c '"bench":"step"' out/rows.jsonl)" = 7 ] || { cat out/rows.jsonl; fail "rows"; }
pass "tables of steps and products"

for name in $(grep -ho 'torch_peer\.[A-Za-z0-9_]*' "$top_srcdir"/tests/*/*.py | sort -u); do
  [ "$name" = torch_peer.py ] || grep -qE "^(def |class )?${name#*.}\\b" "$top_srcdir/tests/bench/torch_peer.py" ||
    fail "PyTorch's programs: there is no $name"
done
pass "what PyTorch's programs share exists"

TRM_MOCK_GPUS=none run_parts 1 --parts=losses-mlp,steps "$build"
grep -q '^| losses-mlp | FAILED: .*no NVIDIA driver' out/table.md && grep -q '^| steps | FAILED' out/table.md &&
  grep -q '2 parts failed' out/table.md && ! grep -q '^| layouts' out/table.md || { cat out/table.md; fail "no driver"; }
pass "parts that fail"
printf '#!/bin/sh\nsleep 60\n' > bin/asleep && chmod +x bin/asleep
TRM_GPU_SECONDS=2 MPIEXEC=asleep run_parts 1 --parts=losses-mlp "$build"
grep -q '^| losses-mlp | FAILED: not done after' out/table.md || { cat out/table.md; fail "a part that hangs"; }
pass "a part that does not end"

if all_cases && command -v hydra_pmi_proxy > /dev/null; then
  run_parts 0 --pack="$work/gpu.tar" "$build"
  tar xf gpu.tar && mv trireme-gpu unpacked
  env -u MPIEXEC unpacked/tests/gpu/run --mock --parts=losses-mlp,two-ranks-one-gpu > run.log 2>&1 ||
    { cat run.log; fail "the unpacked archive"; }
  grep -q '^| two-ranks-one-gpu | passed' unpacked/build-gpu/gpu/table.md || { cat run.log; fail "two unpacked ranks"; }
  pass "the archive"
fi
finish
