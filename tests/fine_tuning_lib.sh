# For tests of fine-tuning, after lib.sh: data, configurations, refusals.
scratch
digits 600 100
letters

# write NAME MODEL DATA: a configuration
write() {
  cat > "$1.yaml" << END
model: $2
data: {file: $3, context: 20}
train: {steps: 6, batch: 24}
optim: {name: momentum, lr: 0.05, momentum: 0.9}
parallel: {threads: 1}
run: {seed: 3, checkpoint_every: 3}
log: {every: 1}
END
}

# expect TEXT FILE
expect() { grep -qE -- "$1" "$2" || { cat "$2"; fail "$2 does not say: $1"; }; }

# refuses TEXT OPTION...: the run ends with status 2 and this message
refuses() {
  local text=$1
  shift
  try 1 refused "$@" --run.overwrite=yes
  [ $? -eq 2 ] || { cat refused.log; fail "$*: not status 2"; }
  expect "$text" refused.log
}

# export_of RUN FILE [FORMAT]
export_of() {
  "$TRIREME" export "$1" --format="${3:-safetensors}" --out="$2" > export.log 2>&1 ||
    { cat export.log; fail "export of $1"; }
}
