#!/usr/bin/env bash
# Trainings behind docs/claims.md on two CPU cores: about 30 hours, of which the
# first parts tell the most.
#
#     scripts/reproduce/claims.sh FOLDER [PART]...
#
# FOLDER/raw has train, validation and test in .en and .de: Tatoeba, divided as
# docs/reproducing.md says, and Multi30k, one after the other, and
# FOLDER/multi30k the files of Multi30k. PARTs are the functions below; without
# them, all run in their order. Run it again to resume; finished rows are not
# trained again. CLAIMS_RESULTS is the folder of the results, by default that of
# this checkout.
set -euo pipefail
source "${BASH_SOURCE%/*}/functions.sh"
folder=${1-}
if [[ -z $folder ]]; then
  echo "Usage: $0 FOLDER [PART]..." >&2
  exit 1
fi
shift
folder=$(cd "$folder" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
results=${CLAIMS_RESULTS:-$root/scripts/results/claims}
mkdir -p "$results"

text=(--problem=parallel_text
  --problem_args=name=everyday,languages=en-de,vocab_size=4000
  --raw_dir="$folder/raw" --data_dir="$folder/data")
small=(--divide_widths=8 --divide_layers=2)
hparams=batch_tokens=2048,max_length=64,learning_rate_warmup_steps=400
hparams+=,save_checkpoints_steps=100
trainer="--eval_bleu_sentences=0 --eval_every=500"
searched=$results/tuning/hparam_search.json

tune() { # SETS RATES DROPOUTS TRIALS: a grid, 3,000 steps
  paper hparam_search "${text[@]}" "${small[@]}" --rows="$1" --trials="$4" \
    --hparams="$hparams,train_steps=3000" --trainer_flags="$trainer" \
    --range="learning_rate_constant=$2" \
    --range="layer_prepostprocess_dropout=$3" \
    --output_dir="$folder/tuning" --results_dir="$results/tuning"
}

rows() { # ROWS SEEDS [TRAINER FLAGS]: of Table 3, with BLEU of greedy search
  local trainings
  # shellcheck disable=SC2046
  paper table3_variations "${text[@]}" "${small[@]}" --rows="$1" \
    $(printf -- '--seed=%s ' $2) --tuned="$searched" \
    --hparams="$hparams,train_steps=6000" --trainer_flags="$trainer ${3-}" \
    --early_stopping_evals=4 --early_stopping_metric=loss \
    --output_dir="$folder/table3" --results_dir="$results/table3"
  trainings=$(printf '%s,' "$folder"/table3/*-float32)
  paper claim_rows --figures=greedy --results_dir="$results" \
    --trainings="${trainings%,}"
}

variants() { # NAME ROWS: with results in the folder NAME
  paper claim_rows "${text[@]}" "${small[@]}" --hparams_set=table3_base \
    --rows="$2" --seed=1 --seed=2 --seed=3 --tuned="$searched" \
    --hparams="$hparams" --trainer_flags="$trainer" \
    --output_dir="$folder/$1" --results_dir="$results/$1"
}

figures() { # NAME: of the trainings of base
  paper claim_rows --figures="$1" --results_dir="$results" --trainings="$(
    printf "$folder/table3/base-seed%s-float32," 1 2 3 4 5
  )$folder/table3/base-seed6-float32"
}

base() {
  tune table3_base "0.25|0.5|1.0|2.0" "0.0|0.1" 8
  rows base "1 2 3 4 5 6" "--keep_checkpoint_max=20"
}
warmup() {
  variants variants post_warmup,post_at_once,pre_warmup,pre_at_once
}
attention() {
  variants variants scaled_dk256,unscaled_dk8,unscaled_dk256
  variants variants additive_dk8,additive_dk256
}
heads() { figures heads; }
search() { figures search; }
smoothing() { rows d_smoothing0,d_smoothing02 "1 2 3"; }
heads_and_keys() { rows a_h1,b_dk16 "1 2 3"; }
# The paper's differences are so small that each needs more than 10 seeds:
# docs/claims.md. This part runs by its name alone.
small_differences() {
  rows a_h4,a_h16,a_h32,b_dk32,e_learned_positions "1 2 3"
  tune table3_c_n8 "0.25|0.5|1.0" "0.0|0.1" 6
  rows c_n8 "1 2 3"
}
positions() { variants variants short_sinusoids,short_learned,short_none; }
overfitting() {
  text=(--problem=multi30k_ende --problem_args=vocab_size=4000
    --raw_dir="$folder/multi30k" --data_dir="$folder/data")
  variants overfitting dropout_0,dropout_01,dropout_03
}
sizes() {
  tune table3_c_n2,table3_c_n4,table3_c_d256 "0.5|1.0|2.0" "0.0|0.1" 6
  rows c_n2,c_n4,c_d256,c_dff1024,c_dff4096 "1 2 3"
  tune table3_c_d1024 "0.25|0.5|1.0" "0.0|0.1" 6
  rows c_d1024 "1 2 3"
}
big() {
  tune table3_big "0.25|0.5|1.0" "0.0|0.1|0.3" 9
  rows big "1 2 3"
}
table3() { base; smoothing; heads_and_keys; sizes; big; }
restricted() { variants variants restricted_none,restricted_2,restricted_8; }
rivals() {
  paper table2_rivals "${text[@]}" --transformer_steps=2000 \
    --hparams=learning_rate_warmup_steps=400,batch_tokens=2048 \
    --seed=1 --seed=2 --seed=3 --trainer_flags=--eval_bleu_sentences=0 \
    --output_dir="$folder/rivals" --results_dir="$results/rivals"
}
counts() { paper claim_counts --results_dir="$results"; }

parts=("$@")
if [[ $# == 0 ]]; then
  # Heads and search need the trainings of base in FOLDER, not only their rows.
  parts=(base heads search warmup smoothing heads_and_keys sizes overfitting
    attention positions big restricted rivals counts)
fi
for part in "${parts[@]}"; do
  if [[ $(type -t "$part") != function ]]; then
    echo "There is no part $part. The functions in $0 are the parts." >&2
    exit 1
  fi
done
if [[ ${#parts[@]} == 1 ]]; then
  "${parts[0]}"
  exit
fi
status=0
for part in "${parts[@]}"; do
  # A part that fails does not stop the others.
  "$0" "$folder" "$part" || {
    status=1
    echo "$part failed; run it again to resume." >&2
  }
done
exit $status
