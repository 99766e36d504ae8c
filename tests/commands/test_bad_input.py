"""Mistakes of users, and the messages that explain them."""

import pytest
from cases import read_cases
from forked import error
from stored_run import RUN

CASES = read_cases("""
trainer
    --problem is needed
serve
    --export_dir is needed
show --hparams_set=tiny --hparams=optimizer=sgd,optimizer_arguments=momentun=1
    SGD has no 'momentun'. Did you mean momentum?
importer --output_dir={here}/run
    --from is needed
importer --output_dir={here}/run --from=huggingface
    --input is needed
importer --output_dir={here}/run --from=marian --input=Some/opus-mt-en-de
    hf download Some/opus-mt-en-de --local-dir opus-mt-en-de
trainer --problem=number_words_ende --hparams_set=tiny \
--problem_args=separate_vocabularies=true --data_dir={here}/data
    separate_vocabularies=true and shared_embedding
trainer --problem=parallel_text --hparams_set=tiny --output_dir={here}/run \
--problem_args=name=a,languages=en-de,decode_hparams=beam_search=nope
    Unknown beam search 'nope'
avg_checkpoints --output_dir={run} --checkpoints=a,b --num_last_checkpoints=2
    --checkpoints ignores --num_last_checkpoints=2
report --output_dir={run},{run}
    --output_dir names a run twice
report --output_dir={run} --devices=8
    --devices=8 needs --sustained_tflops
show --runs_dir={run} --shapes
    --runs_dir ignores --shapes
doctor --hparams=num_heads=2
    --hparams_set is needed
report --output_dir={run} --sentence= --num_sentences=0
    got 0 in ''
""")


@pytest.mark.parametrize("case", CASES)
def test_wrong_names_and_settings_are_explained(run, tmp_path, case):
    names = {"here": tmp_path, "run": RUN}
    message = error(run(*case.format_map(names).split()))
    assert CASES[case].format_map(names) in message
    assert not list(tmp_path.iterdir())


def test_long_lines_are_refused_and_the_others_translated(run, tmp_path):
    (tmp_path / "in").write_text(f"two\n{'nine ' * 40}\nsix\n")
    result = run(
        "decoder",
        f"--output_dir={RUN}",
        "--decode_hparams=max_input_length=20,long_inputs=refuse",
        f"--decode_from_file={tmp_path / 'in'}",
        f"--decode_to_file={tmp_path / 'out'}",
    )
    message = error(result)
    assert "longer than max_input_length=20 subwords" in message
    assert "line 2 (" in message
    assert (tmp_path / "out").read_text() == "zwei\n\nsechs\n"
