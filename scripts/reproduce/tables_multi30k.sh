#!/usr/bin/env bash
# Table 2, Table 3 and the claim of section 3.5, reduced for two CPU cores:
# Multi30k en-de, a quarter of the paper's widths, half its layers, 800 or 1,600
# steps of 1,024 tokens. A row takes minutes. scripts/results/ has our results.
#
#     scripts/reproduce/tables_multi30k.sh table2|table3|positions FOLDER [flags]
#
# Run it again to resume; finished rows are not trained again. The flags are those
# of the program in scripts/paper/, such as --rows=base,big or --seed=2.
set -euo pipefail
table=${1-} folder=${2-}
trainer_flags=--eval_bleu_sentences=0
hparams=batching=packed,batch_tokens=1024
# The peak learning rate of base is 0.0036: 0.7 times equation 3 with this warm-up.
long=train_steps=1600,save_checkpoints_steps=400
long+=,learning_rate_warmup_steps=300,learning_rate_constant=0.7
case $table in
  table2)
    module=table2_systems
    # Averages of the last 5 checkpoints, an eighth of the steps; peak 0.0022.
    hparams+=,max_length=128,train_steps=800
    hparams+=,learning_rate_warmup_steps=200,learning_rate_constant=0.35
    hparams+=,save_checkpoints_steps=20,num_averaged_checkpoints=5
    trainer_flags+=" --eval_every=200"
    ;;
  table3)
    module=table3_variations
    hparams+=,max_length=128,$long
    ;;
  positions)
    module=positions
    # Trained on short pairs only, and scored on longer ones, too.
    hparams+=,max_length=16,$long
    ;;
  *) folder= ;;
esac
if [[ -z $folder ]]; then
  echo "Usage: $0 table2|table3|positions FOLDER [flags]" >&2
  exit 1
fi
shift 2

# FOLDER may be relative to any working directory.
root=$(cd "$(dirname "$0")/../.." && pwd)
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec python -m "scripts.paper.$module" \
  --problem=multi30k_ende --problem_args=vocab_size=4000 \
  --divide_widths=4 --divide_layers=2 --hparams="$hparams" \
  --trainer_flags="$trainer_flags" \
  --data_dir="$folder/data" --output_dir="$folder/$table" "$@"
