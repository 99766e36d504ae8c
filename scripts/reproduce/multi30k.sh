#!/usr/bin/env bash
# A short training on Multi30k: half an hour on two CPU cores.
#
#     scripts/reproduce/multi30k.sh ende|enfr FOLDER [flags of the trainer]
set -euo pipefail
source "${BASH_SOURCE%/*}/functions.sh"
case ${1-} in
  ende | enfr) problem=multi30k_$1 ;;
  *) echo "Usage: ${0##*/} ende|enfr FOLDER" >&2 && exit 1 ;;
esac
folder=${2:?"Usage: ${0##*/} $1 FOLDER"}
shift 2

train_and_score "$folder/train" --problem=$problem --hparams_set=small \
  --eval_every=500 --data_dir="$folder/data" "$@"
t2t exporter --output_dir="$folder/train" --export_dir="$folder/export"
t2t report --output_dir="$folder/train"
