#!/usr/bin/env bash
# Table 2 and Table 3, reduced for two CPU cores: Multi30k en-de, a quarter or an
# eighth of the paper's widths, half its layers, steps of 1,024 tokens. Rows of
# Table 3 are trained until they no longer improve, the others for minutes.
# scripts/results/ has our results.
#
#     scripts/reproduce/tables_multi30k.sh table2|table3 FOLDER [flags]
#
# Run it again to resume; finished rows are not trained again. The flags are those
# of the program in scripts/paper/, such as --rows=base,big or --seed=2.
set -euo pipefail
table=${1-} folder=${2-}
trainer_flags=--eval_bleu_sentences=0
divide_widths=4
stopping=
hparams=batching=packed,batch_tokens=1024
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
    # One epoch is 510 steps. Until BLEU of the validation set has not improved
    # for 3 epochs. The peak learning rate of base is 0.0031: 0.7 times equation
    # 3 with this warm-up.
    hparams+=,max_length=128,train_steps=12000,save_checkpoints_steps=500
    hparams+=,learning_rate_warmup_steps=800,learning_rate_constant=0.7
    trainer_flags=--eval_bleu_sentences=1014
    divide_widths=8
    stopping=--early_stopping_evals=3
    ;;
  *) folder= ;;
esac
if [[ -z $folder ]]; then
  echo "Usage: $0 table2|table3 FOLDER [flags]" >&2
  exit 1
fi
shift 2

# FOLDER may be relative to any working directory.
root=$(cd "$(dirname "$0")/../.." && pwd)
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec python -m "scripts.paper.$module" \
  --problem=multi30k_ende --problem_args=vocab_size=4000 \
  --divide_widths=$divide_widths --divide_layers=2 --hparams="$hparams" \
  --trainer_flags="$trainer_flags" $stopping \
  --data_dir="$folder/data" --output_dir="$folder/$table" "$@"
