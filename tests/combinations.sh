#!/bin/bash
# Incompatible options: every row of `trireme options --combinations`, as arguments of a real run, is refused with its
# reason; the guide lists the same rows.
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
digits 2000 100
printf '1 1:0.5 3:1\n-1 2:1\n1 1:1 2:0.25\n-1 3:2\n' > good.libsvm
"$TRIREME" data import libsvm good.libsvm --out sparse.h5 > import.log 2>&1 || fail "data import libsvm"
"$TRIREME" plan --data.file=digits.h5 --model="mlp 784-16-10 relu" --ranks=1 --calibrate=machine.json > plan.log 2>&1 ||
  { cat plan.log; fail "plan --calibrate"; }
"$TRIREME" options --combinations > table || fail "options --combinations"

rows=0
while IFS= read -r line; do
  if [[ $line != ' '* ]]; then
    rows=$((rows + 1))
    row=$line reason=${line#*: } features=${line%%: *}
    grep -qF -- "| ${features/ excludes / | } | $reason |" "$top_srcdir/mpi/README.md" ||
      fail "mpi/README.md: the table does not have: $row"
    continue
  fi
  read -r -a words <<< "$line" # trireme train|plan ARGUMENT...
  common=(--data.file=digits.h5 "--model=mlp 784-16-10 relu" --log.quiet=yes --parallel.threads=1)
  [[ $line == *sparse.h5* ]] && common=(--model="linear 1" --train.loss=hinge "${common[@]:2}")
  ranks=2
  [[ ${words[1]} = plan || $line == *simulate.workers=2* ]] && ranks=1
  launch $ranks "$TRIREME" "${words[1]}" "${common[@]}" "${words[@]:2}" > out 2> err < /dev/null
  status=$?
  [ $status = 2 ] || { cat out err; fail "$row: status $status, expected 2"; }
  grep 'error:' err | grep -qF -- "$reason" || { cat err; fail "$row: another message"; }
  pass "$row"
done < table
[ "$checks" -ge $((rows - 3)) ] || fail "only $checks of $rows rows have arguments"
[ ! -e runs ] || fail "a refused run left a folder"
finish
