#!/bin/bash
# The Python reader (python/) reads runs, a sweep, a data set and a checkpoint that this build has just written; the
# notebook runs.
set -u
. "$top_srcdir/tests/lib.sh"
top=$(realpath "$top_srcdir")
for python in "${PYTHON:-python3}" /usr/bin/python3; do # the first one may be another than Debian's
  "$python" -c 'import numpy, pandas, h5py, pytest' 2> /dev/null && break
done
"$python" -c 'import numpy, pandas, h5py, pytest' 2> /dev/null ||
  skip "${PYTHON:-python3} has not numpy, pandas, h5py and pytest (set PYTHON)"
scratch
quietly() { "$TRIREME" "$@" > log 2>&1 || { cat log; fail "trireme $*"; }; }
digits 400 100
train=("--model=mlp 784-16-10 relu" --data.file=digits.h5 --data.validation=0.1 --train.batch=20 --log.every=4
  --parallel.threads=1 --log.quiet=yes --optim.name=momentum --optim.momentum=0.9 --optim.lr=0.05)
quietly train "${train[@]}" --train.epochs=2 --run.dir=first
quietly predict first --data.file=digits.h5 --out=predictions.h5
quietly train "${train[@]}" --train.epochs=2 --run.dir=async --strategy.name=asgd --optim.name=sgd --optim.momentum=0 \
  --simulate.workers=4
echo 'train: {batch: 20}' > config.yaml
quietly sweep config.yaml "${train[@]:0:7}" --train.epochs=1 --optim.lr=0.05,0.1 --run.seed=1,2 --dir=sweep
if "$TRIREME" key make key > log 2>&1; then
  quietly data make digits --out secret.h5 --train=20 --test=10 --security.key=file:key
fi
TRIREME_FILES=$PWD PYTHONPATH=$top/python PYTHONDONTWRITEBYTECODE=1 "$python" -m pytest -q -p no:cacheprovider \
  "$top/python/tests" > log 2>&1 || { cat log; fail "pytest"; }
tail -1 log
pass "the reader reads what this build writes"
notebook=$top/python/experiment.ipynb
"$python" - "$notebook" > notebook.py << 'END' || fail "$notebook: not a notebook without outputs"
import json, sys
cells = json.load(open(sys.argv[1]))["cells"]
assert all(not c.get("outputs") and c.get("execution_count") is None for c in cells), "outputs are not stripped"
print("\n".join("".join(c["source"]) + "\n" for c in cells if c["cell_type"] == "code"))
END
if "$python" -c 'import matplotlib' 2> /dev/null; then
  SWEEP=sweep MPLBACKEND=agg PYTHONPATH=$top/python PYTHONDONTWRITEBYTECODE=1 "$python" notebook.py > log 2>&1 ||
    { cat log; fail "the notebook"; }
  [ -s experiment.png ] || fail "the notebook draws no picture"
  pass "the notebook draws a sweep"
else
  echo "SKIPPED: the notebook ($python has no matplotlib)"
fi
finish
