#!/bin/bash
# The README's commands work as typed, in order, in a fresh clone: all indented commands of README.md run in a scratch
# copy, and then those of the table in docs/everyday.md. Compilation is replaced by the existing programs; files that the
# reader must provide (shakespeare.txt, CONFIG.yaml, table.csv, man) are given; a wrapper of the program reduces data and
# epochs.
. "$(dirname "$0")/lib.sh"
scratch
cp -r "$top_srcdir/bootstrap" "$top_srcdir/docs" "$top_srcdir/README.md" "$top_srcdir/experiments" "$top_srcdir/cli" .
chmod -R u+w .

# A clone with everything compiled: nothing to install, configure or make.
mkdir -p build build-aux tools
touch configure.ac Makefile.am trireme.pc.in Makefile.in build-aux/ltmain.sh configure build/config.status
mkdir -p m4 src/core && touch m4/trm_none.m4 src/core/Makefile.mk configure build/config.status
printf 'MPIEXEC = %s\nall:\ncheck:\n\t@echo checked\n' "$MPIEXEC" > build/Makefile
printf '#!/bin/sh\necho Status: install ok installed\n' > tools/dpkg
cat > build/trireme << EOF
#!/bin/sh
case "\$1 \$2" in
  "data make") set -- "\$@" --train=1500 --test=500 ;;
  train\ *help) ;;
  train\ *) set -- "\$@" --train.epochs=1 ;;
esac
exec "$TRIREME" "\$@"
EOF
export PATH=$work/tools:$PATH
printf '#!/bin/sh\nexec "%s" "$@"\n' "$(command -v "$MPIEXEC")" > tools/mpiexec
command -v man > /dev/null || { printf '#!/bin/sh\ntest -s "$1"\n' > tools/man; true; }
chmod +x tools/* build/trireme
awk 'BEGIN { for (i = 0; i < 40000; i++) printf "%s%s", substr("abcdefghij klmnop", (i * i + int(i / 7)) % 17 + 1, 1),
             i % 40 == 39 ? "\n" : "" }' > shakespeare.txt
sed 's,runs/quickstart,runs/config,' experiments/quickstart/config.yaml > CONFIG.yaml

# What docs/everyday.md assumes: a table, arrays, and, with libraries for them, pictures.
numpy_bytes x.npy '(6, 4)' abcdefghijklmnopqrstuvwx
numpy_bytes y.npy '(6,)' 010101
numpy_bytes labels.npy '(6, 3)' '\0\1\0\1\1\0\0\0\1\1\1\1\0\0\0\1\0\1'
awk 'BEGIN { print "size,color,kind"
             for (i = 0; i < 80; i++)
               printf "%s,%s,%s\n", i % 9 == 8 ? "" : i * 37 % 100, i % 3 ? "red" : "blue", i % 2 ? "a" : "b" }' > table.csv

# typed COMMAND FILE: a command of the guide; doctor may find something
typed() {
  local status=0
  timeout -k 10 300 bash -c "$1" > out.log 2>&1 < /dev/null || status=$?
  case $1 in *"trireme doctor"*) [ $status != 1 ] || status=0 ;; esac
  [ $status = 0 ] || { cat out.log; fail "$2: $1"; }
  pass "$1"
}

commands README.md | grep -E '^(export|\./bootstrap|trireme|mpiexec|man|make) ' > commands.txt
[ "$(wc -l < commands.txt)" -ge 15 ] || fail "README.md: only $(wc -l < commands.txt) commands"
while IFS= read -r command <&3; do
  case $command in
    export\ *) eval "$command" && pass "$command" ;;
    *) typed "$command" README.md ;;
  esac
done 3< commands.txt

# Rows of the table: | number | what | `command` |, where \| is |
sed -n 's/^| [0-9]* | .* | `\(.*\)` |$/\1/p' docs/everyday.md | sed 's/\\|/|/g' > table.txt
[ "$(wc -l < table.txt)" = 47 ] || fail "docs/everyday.md: $(wc -l < table.txt) commands"
mkdir -p pictures/a pictures/b
if ! trireme data head digits.h5 --out=sheet.png > out.log 2>&1; then
  grep -qE 'no (libpng|librsvg)' out.log || { cat out.log; fail "a sheet of images"; }
  echo "SKIPPED: pictures: $(tail -n 1 out.log)"
  sed -i '/pictures/d' table.txt
fi
for i in 1 2 3 4; do [ ! -e sheet.png ] || { cp sheet.png pictures/a/$i.png; cp sheet.png pictures/b/$i.png; }; done
while IFS= read -r command <&3; do typed "$command" docs/everyday.md; done 3< table.txt
for file in runs/quickstart/curves.svg runs/first/summary.json report.html; do
  [ -s $file ] || fail "README.md: $file is missing at the end"
done
pass "the files named by the README exist"
finish
