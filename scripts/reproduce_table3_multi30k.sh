#!/usr/bin/env bash
# Table 3 in small on two CPU cores: Multi30k en-de, an eighth of the paper's
# widths, half its layers, 400 steps of 1,024 tokens. Rows that are finished lie
# in scripts/results/table3_multi30k/ and are not trained again.
#
#     scripts/reproduce_table3_multi30k.sh FOLDER [flags of table3.py]
set -euo pipefail
folder=$1
shift
scripts=$(dirname "$0")

# Peak learning rate 0.0044 for base: half of equation 3 with this warm-up.
hparams=batching=packed,batch_tokens=1024,max_length=128
hparams+=,learning_rate_warmup_steps=200,learning_rate_constant=0.5
hparams+=,train_steps=400,save_checkpoints_steps=100

exec python "$scripts/table3.py" \
  --problem=multi30k_ende --problem_args=vocab_size=2000 \
  --divide_widths=8 --divide_layers=2 --hparams="$hparams" \
  --trainer_flags=--eval_bleu_sentences=0 \
  --data_dir="$folder/data" --output_dir="$folder/rows" \
  --results_dir="$scripts/results/table3_multi30k" "$@"
