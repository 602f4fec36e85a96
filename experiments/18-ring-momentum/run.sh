#!/bin/bash
# Accuracy and consensus distance of workers on a ring: AD-PSGD and A2CiD2. Makes table.md (three minutes on two cores).
# Run it in a folder with fashion.h5 (trireme data import mnist). TRIREME: the program.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
"${TRIREME:-trireme}" sweep "$here/config.yaml" --variants="$here/variants.txt" --simulate.workers=16,32 \
  --tune=optim.lr --optim.lr=0.05,0.1,0.2,0.4,0.8 --run.seed=1..3 --figures=consensus_distance --dir=runs/a2cid2-ring
cp runs/a2cid2-ring/table.md "$here/table.md"
