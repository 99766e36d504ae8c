#!/usr/bin/env bash
# Writes a small run, its data and its export, with their outputs.
#
#     scripts/release/run_fixture.sh tests/fixtures/run
#
# tests/commands/test_stored_run.py opens all of them. The folder must be new: the
# committed files represent the runs of users, and are kept when a later version
# writes another format.
set -euo pipefail
mkdir "$1"
cd "$1"
python - <<'END'
import itertools, pathlib

from num2words import num2words

pathlib.Path("raw").mkdir()
numbers = {"train": range(0, 1000, 3), "validation": range(1, 200, 9)}
numbers["test"] = range(2, 200, 17)
for (split, some), language in itertools.product(numbers.items(), ("en", "de")):
    lines = [num2words(number, lang=language) for number in some]
    text = "".join(f"{line}\n" for line in lines)
    pathlib.Path(f"raw/{split}.{language}").write_text(text, "utf-8")
END
t2t() { python -m "t2t_repro.$1" "${@:2}"; }
small=hidden_size=32,filter_size=64,num_heads=2,max_length=32,batch_tokens=512
small=$small,learning_rate_warmup_steps=50,learning_rate_constant=0.1
train() {
    t2t trainer --problem=parallel_text --hparams_set=tiny \
        --problem_args=name=numbers,languages=en-de,vocab_size=300 \
        --raw_dir=raw --data_dir=data --output_dir=run --hparams=$small \
        --save_checkpoints_steps=100 --eval_bleu_sentences=0 "$@"
}
train --train_steps=300
head -n 6 raw/test.en > test.en
t2t decoder --output_dir=run --decode_from_file=test.en --decode_to_file=test.de
paste test.en test.de > pairs.tsv
t2t decoder --output_dir=run --score_file=pairs.tsv --decode_to_file=scores.tsv
t2t exporter --output_dir=run --export_dir=export --decode_hparams=beam_size=2
cp -r run trained_on
train --output_dir=trained_on --train_steps=304
cp trained_on/validation.json trained_on.json
rm -r trained_on run/checkpoints/ckpt-{1,2}00.* run/{train,validation} data/downloads \
    raw/train.* 2> /dev/null || true
tar --remove-files -cJf export.tar.xz export
# Remove the paths of this machine.
python - <<'END'
import pathlib

from t2t_repro.io import files

path = pathlib.Path("run/run.json")
settings = files.read_json(path)
lines = [line.split(" ", 1)[1] for line in settings["command_lines"]]
changes = {"data_dir": "data", "command_lines": [f"trainer {x}" for x in lines]}
settings.pop("sha256", None)
files.write_json(path, settings | changes, with_checksum=True)
END
