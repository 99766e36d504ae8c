#!/usr/bin/env bash
# A row of the paper's Table 2, from the data to scores, export and report. It is
# the common part of wmt14_ende.sh and wmt14_enfr.sh. It needs GPUs, and internet
# or --raw_dir. Run it again to resume.
#
#     scripts/reproduce/wmt14.sh wmt14_ende big FOLDER [flags of the trainer]
set -euo pipefail
source "${BASH_SOURCE%/*}/functions.sh"
problem=$1 hparams_set=$2 folder=$3
shift 3

run="$folder/$problem/$hparams_set"

# The paper's FLOPs are of single precision (section 6.1, Table 2).
# --mixed_precision=bfloat16 after FOLDER is a faster, but different experiment.
t2t trainer --problem="$problem" --hparams_set="$hparams_set" \
  --mixed_precision=float32 \
  --data_dir="$folder/data" --output_dir="$run" "$@"
t2t avg_checkpoints --output_dir="$run"
t2t evaluate --output_dir="$run" --split=test
t2t exporter --output_dir="$run" --export_dir="$run/export"
t2t report --output_dir="$run"
