#!/usr/bin/env bash
# A row of the paper's Table 2, from the data to scores, export and report. It
# needs GPUs, and internet or --raw_dir. Run it again to resume.
#
#     scripts/reproduce/wmt14.sh ende|enfr base|big FOLDER [flags of the trainer]
#
# English to German: 27.3 BLEU in the paper for base after 100,000 steps, an
# average of the last 5 checkpoints, and 28.4 for big after 300,000 steps, an
# average of the last 20. English to French: 38.1 and 41.8; big has a dropout of
# 0.1 there, in the hparams set big_enfr (section 6.1).
set -euo pipefail
source "${BASH_SOURCE%/*}/functions.sh"
case "${1-} ${2-}" in
  "ende base" | "ende big" | "enfr base") hparams_set=$2 ;;
  "enfr big") hparams_set=big_enfr ;;
  *) set -- ;;
esac
if [[ $# -lt 3 ]]; then
  echo "Usage: $0 ende|enfr base|big FOLDER [flags of the trainer]" >&2
  exit 1
fi
problem=wmt14_$1 run="$3/wmt14_$1/$hparams_set" data="$3/data"
shift 3

# The paper's FLOPs are of single precision (section 6.1, Table 2).
# --mixed_precision=bfloat16 after FOLDER is a faster, but different experiment.
train_and_score "$run" --problem="$problem" --hparams_set="$hparams_set" \
  --mixed_precision=float32 --data_dir="$data" "$@"
t2t exporter --output_dir="$run" --export_dir="$run/export"
t2t report --output_dir="$run"
