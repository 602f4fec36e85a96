# Read by run.sh of every experiment.
#
#   run.sh            the full form; needs fashion.h5 (trireme data import mnist FOLDER --out=fashion.h5) in this folder
#   run.sh --short    a part of it in seconds, on rendered digits, which it makes
#
# Both leave their runs in OUT (runs/NAME, runs/NAME-short), and compare the results with expected.json. TRIREME: the
# program. The full form replaces the experiment's table.md and picture.svg. An experiment on other data says so by
# `use`.
set -eu
form=full
case ${1:-} in
  "") ;;
  --short) form=short ;;
  *) echo "usage: run.sh [--short]" >&2; exit 2 ;;
esac
: "${TRIREME:=trireme}" "${OUT:=runs/$(basename "$here")$([ $form = full ] || echo -short)}"
export TRIREME
# The same bits on every processor with AVX2: OpenBLAS would choose kernels by the processor, and they round differently.
! grep -qw avx2 /proc/cpuinfo 2> /dev/null || export OPENBLAS_CORETYPE="${OPENBLAS_CORETYPE:-Haswell}"
command -v "$TRIREME" > /dev/null || { echo "$TRIREME: no such program; TRIREME=PATH names it" >&2; exit 2; }

# use FILE COMMAND: the data of the sweeps that follow, and the command that makes the file, for who lacks it
use() {
  data=$1
  [ -e "$data" ] || { echo "$data is missing: $2" >&2; exit 2; }
}

# use_images: Fashion-MNIST, or in the short form rendered digits
use_images() {
  if [ $form = full ]; then
    use fashion.h5 "trireme data import mnist FOLDER --out=fashion.h5"
  else
    [ -e digits.h5 ] || "$TRIREME" data make digits --out=digits.h5 --train=6000 --test=1000 2> /dev/null
    use digits.h5 "trireme data make digits"
  fi
}

# sweep NAME OPTION...: trireme sweep of config (config.yaml) in OUT/NAME, with the data
config=config.yaml
sweep() {
  local name=$1
  shift
  [ "${data:-}" ] || use_images
  "$TRIREME" sweep "$here/$config" --data.file="$data" --dir="$OUT/$name" "$@" 2> "$OUT-$name.log" ||
    { cat "$OUT-$name.log" >&2; exit 1; }
}
mkdir -p "$(dirname "$OUT")"

# finish: of the full form, copies table and picture of the sweep "main"; compares with expected.json
finish() {
  if [ $form = full ]; then
    for file in table.md picture.svg; do
      [ ! -e "$OUT/main/$file" ] || cp "$OUT/main/$file" "$here/$file"
    done
  fi
  bash "$here/../check.sh" "$here/expected.json" "$OUT" $form
}
