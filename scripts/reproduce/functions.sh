# Functions of the other scripts, which `source` this file.

# Prints a line to standard error, in bold on a terminal.
say() {
  local bold='' plain=''
  if [[ -t 2 && -z ${NO_COLOR:-} ]]; then
    bold=$'\033[1m' plain=$'\033[0m'
  fi
  printf '\n%s\n' "$bold$*$plain" >&2
}

# Prints and runs a command of the package.
t2t() {
  say "t2t $*"
  python -m t2t_repro "$@"
}

# Trains a run, averages its last checkpoints and scores the test split.
train_and_score() { # RUN FLAGS
  t2t trainer --output_dir="$1" "${@:2}"
  t2t avg_checkpoints --output_dir="$1"
  t2t evaluate --output_dir="$1" --split=test
}

# Runs a program of scripts/paper from any working directory.
paper() { # PROGRAM FLAGS
  local root
  root=$(cd "${BASH_SOURCE%/*}/../.." && pwd)
  PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} \
    python -m "scripts.paper.$1" "${@:2}"
}
