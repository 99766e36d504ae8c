#!/usr/bin/env bash
# A complete run on number words: data, training, averaging, scores, export, and
# three translations by the exported model.
#
#     scripts/reproduce/demo.sh FOLDER [flags of the trainer]
set -euo pipefail
source "${BASH_SOURCE%/*}/functions.sh"
folder=${1?"usage: $0 FOLDER [flags of the trainer]"}
shift
problem=number_words_ende
run="$folder/train"

SECONDS=0
# A German number is one word: its BLEU, of n-grams up to four words, is 0.
train_and_score "$run" --problem=$problem --hparams_set=tiny \
  --eval_bleu_sentences=0 --data_dir="$folder/data" "$@"
t2t exporter --output_dir="$run" --export_dir="$folder/export"
# Three cardinals of the test split. Training had no form of these numbers.
grep -v -m 3 -E '(th|first|second|third)$' \
  "$folder/data/downloads/$problem/test.en" > "$folder/unseen.en"
t2t query --export_dir="$folder/export" < "$folder/unseen.en" \
  > "$folder/unseen.de"
paste -d '=' "$folder/unseen.en" "$folder/unseen.de" | sed 's/=/ -> /'
say "Done in $((SECONDS / 60)) min $((SECONDS % 60)) s; see $folder/."
