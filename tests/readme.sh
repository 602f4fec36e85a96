#!/bin/bash
# The README's commands work as typed, in order, in a fresh clone: all indented commands of README.md run in a scratch
# copy. Compilation is replaced by the existing programs; files that the reader must provide (shakespeare.txt,
# CONFIG.yaml, man) are given; a wrapper of the program reduces data and epochs.
. "$(dirname "$0")/lib.sh"
scratch
cp -r "$top_srcdir/bootstrap" "$top_srcdir/README.md" "$top_srcdir/experiments" "$top_srcdir/cli" .
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

# Commands are indented by four spaces; a trailing \ continues the line.
sed -n 's/^    //p' README.md | sed -e ':a' -e '/\\$/N; s/\\\n */ /; ta' |
  grep -E '^(export|\./bootstrap|trireme|mpiexec|man|make) ' > commands.txt
[ "$(wc -l < commands.txt)" -ge 15 ] || fail "README.md: only $(wc -l < commands.txt) commands"
while IFS= read -r command <&3; do
  case $command in
    export\ *) eval "$command" ;;
    *) timeout -k 10 300 bash -c "$command" > out.log 2>&1 < /dev/null || { cat out.log; fail "README.md: $command"; } ;;
  esac
  pass "$command"
done 3< commands.txt
for file in runs/quickstart/curves.svg runs/first/summary.json report.html; do
  [ -s $file ] || fail "README.md: $file is missing at the end"
done
pass "the files named by the README exist"
finish
