#!/usr/bin/env bash
# A row of the paper's Table 2: data, training, averaging, scores, export.
# Needs GPUs, and internet or --raw_dir. For big on wmt14_enfr, section 6.1 has
# another dropout: add --hparams=layer_prepostprocess_dropout=0.1.
#
#     scripts/reproduce_wmt14.sh wmt14_ende big FOLDER [flags of the trainer]
set -euo pipefail
problem=$1 hparams_set=$2 folder=$3
shift 3

run="$folder/$problem/$hparams_set"
python -m t2t_repro.trainer --problem="$problem" --hparams_set="$hparams_set" \
  --data_dir="$folder/data" --output_dir="$run" "$@"
python -m t2t_repro.avg_checkpoints --output_dir="$run"
python -m t2t_repro.evaluate --output_dir="$run" --split=test
python -m t2t_repro.exporter --output_dir="$run" --export_dir="$run/export"
python -m t2t_repro.report --output_dir="$run"
