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
