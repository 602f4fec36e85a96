#!/bin/bash
# check.sh EXPECTED.json OUT [full|short]: compares results with what is expected, a line for each; fails if one differs.
#
# EXPECTED.json is a list of objects, one a line:
#
#   {"says": "text", "form": "short", "sweep": "main", "row": "variant=asgd,strategy.tau=16", "metric": "test_accuracy",
#    "relation": "<", "than": "variant=easgd,strategy.tau=16", "by": 0.1}
#
# row: the values of columns of OUT/SWEEP/results.csv that name one of its rows. relation: "<" or ">" value, or the row
# `than` and at least `by`; "=" value, within tolerance. form: of one form alone. sweep: main if it is not given.
set -u
here=$(cd "$(dirname "$0")" && pwd)
awk -v out="$2" -v form="${3:-full}" -f "$here/check.awk" "$1"
