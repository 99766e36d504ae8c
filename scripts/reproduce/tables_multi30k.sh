#!/usr/bin/env bash
# Table 2 and Table 3, reduced for two CPU cores: Multi30k en-de, a quarter or an
# eighth of the paper's widths, half its layers, steps of 1,024 tokens. Rows of
# Table 3 are trained until they no longer improve, the others for minutes.
# scripts/results/ has our results.
#
#     scripts/reproduce/tables_multi30k.sh table2|table3 FOLDER [flags]
#
# Run it again to resume; finished rows are not trained again. The flags are those
# of `t2t sweep` for table2, such as --seeds=1,2, and of scripts.paper.
# table3_variations for table3, such as --rows=base,big or --seed=2.
set -euo pipefail
source "${BASH_SOURCE%/*}/functions.sh"
table=${1-} folder=${2-}
[[ $table == table[23] ]] || folder=
if [[ -z $folder ]]; then
  echo "Usage: $0 table2|table3 FOLDER [flags]" >&2
  exit 1
fi
shift 2
where=(--data_dir="$folder/data" --output_dir="$folder/$table")
if [[ $table == table2 ]]; then
  t2t sweep --config="${BASH_SOURCE%/*}/table2_multi30k.yaml" "${where[@]}" "$@"
  exit
fi
# One epoch is 510 steps. Until BLEU of the validation set has not improved for 3
# epochs. The peak learning rate of base is 0.0031: 0.7 times equation 3 with this
# warm-up.
hparams=batching=packed,batch_tokens=1024
hparams+=,max_length=128,train_steps=12000,save_checkpoints_steps=500
hparams+=,learning_rate_warmup_steps=800,learning_rate_constant=0.7
paper table3_variations \
  --problem=multi30k_ende --problem_args=vocab_size=4000 \
  --divide_widths=8 --divide_layers=2 --hparams="$hparams" \
  --trainer_flags=--eval_bleu_sentences=1014 --early_stopping_evals=3 \
  "${where[@]}" "$@"
