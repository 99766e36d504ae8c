#!/usr/bin/env bash
# The Transformer's row of the paper's Table 4: data, training, averaging,
# bracketing F1 of section 23, and parses as pictures. It needs GPUs and the Penn
# Treebank; problems/wsj_parsing.py describes its folder.
#
#     scripts/reproduce/table4.sh wsj_parsing TREEBANK FOLDER [flags of the trainer]
#     scripts/reproduce/table4.sh wsj_parsing_semi TREEBANK FOLDER […]
set -euo pipefail
source "${BASH_SOURCE%/*}/functions.sh"
if [[ $# -lt 3 ]]; then
  echo "Usage: $0 wsj_parsing|wsj_parsing_semi TREEBANK FOLDER [flags]" >&2
  exit 1
fi
problem=$1 treebank=$2 folder=$3
shift 3

run="$folder/$problem"

# Single precision, as in the paper.
train_and_score "$run" --problem="$problem" --hparams_set=parsing \
  --mixed_precision=float32 --raw_dir="$treebank" --data_dir="$folder/data" "$@"
t2t report --output_dir="$run"
paper table4_parsing "$run"
