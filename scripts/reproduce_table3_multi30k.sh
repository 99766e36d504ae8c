#!/usr/bin/env bash
# Table 3 in small on two CPU cores: Multi30k en-de, a quarter of the paper's
# widths, half its layers, 1,600 steps of 1,024 tokens: 2 to 7 minutes a row.
# Rows that are finished lie in scripts/results/table3_multi30k/ and are not
# trained again.
#
#     scripts/reproduce_table3_multi30k.sh FOLDER [flags of table3.py]
set -euo pipefail
folder=$1
shift
scripts=$(dirname "$0")

# Peak learning rate 0.0036 for base: 0.7 times equation 3 with this warm-up.
hparams=batching=packed,batch_tokens=1024,max_length=128
hparams+=,learning_rate_warmup_steps=300,learning_rate_constant=0.7
hparams+=,train_steps=1600,save_checkpoints_steps=400

exec python "$scripts/table3.py" \
  --problem=multi30k_ende --problem_args=vocab_size=4000 \
  --divide_widths=4 --divide_layers=2 --hparams="$hparams" \
  --trainer_flags=--eval_bleu_sentences=0 \
  --data_dir="$folder/data" --output_dir="$folder/rows" \
  --results_dir="$scripts/results/table3_multi30k" "$@"
