"""Wrong flags and inputs, which commands refuse before TensorFlow is there."""

import json

import pytest
from cases import read_cases
from forked import ok
from processes import run_python
from stored_run import RUN

# Runs each command in a fork, without the time that the imports take.
PROGRAM = """
import json, os, sys
import grpc, pyarrow, sacrebleu
from t2t_repro import __main__ as t2t, registry
registry.load_definitions()
for number, arguments in enumerate(json.load(sys.stdin)):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        continue
    os.dup2(os.open(f"{sys.argv[1]}/{number}", os.O_CREAT | os.O_WRONLY), 2)
    sys.argv[1:] = arguments
    try:
        sys.exit(t2t.main())
    except SystemExit as end:
        heavy = {"tensorflow", "keras"} & set(sys.modules)
        print(f"status {end.code}", *heavy, file=sys.stderr, flush=True)
    finally:
        os._exit(0)
"""
NAMES = {
    "run": f"{RUN}",
    "decoder": f"decoder --output_dir={RUN}",
    "to_dir": "--decode_from_file={here}/two --decode_to_dir={here}/out",
    "evaluate": "evaluate --translations={here}/two --bootstrap_samples=1",
    "sweep": "sweep --problem=multi30k_ende --hparams_set=tiny "
    "--output_dir={here}",
}
# Each command, and what its message must contain.
CASES = read_cases("""
trainr
    Unknown command 'trainr'. Did you mean trainer or train?
trainer surprise
    Unexpected arguments: ['surprise']. Write flags as --NAME=VALUE, or
trainer --problm=x
    'problm'. Did you mean: problem, problem_args ? t2t trainer --help
trainer --hidden_size=64
    'hidden_size'. It is a setting: write --hparams=hidden_size=…
trainer --xla=x
    should be one of <auto|on|off>. t2t trainer --help
trainer --model=transformer --tmp_dir=/tmp
    --tmp_dir=/tmp: downloads are in --data_dir; --raw_dir names raw text of
query --timeout_secs=nan
    --timeout_secs=nan: must be a finite number. t2t query --help
importer --output_dir=s3://b/run --from=huggingface --input={here}
    folder of this machine; got s3://b/run. Name
{decoder} --decode_hparams=beam=5
    DecodeHParams has no 'beam'. Did you mean beam_size?
{decoder} --decode_hparams=rules=no_digitz
    Unknown search rule 'no_digitz'
decoder --output_dir={here}
    There is no run in {here} (run.json is missing)
{decoder} --hparams_set=big
    hparams_set: 'tiny' -> 'big'.
{decoder} --checkpoint_path={run}/checkpoints/ckpt-7
    There is no checkpoint
avg_checkpoints --output_dir={run} --num_last_checkpoints=2
    has 1 checkpoints; 2 are to be averaged. Train on
{decoder} --decode_from_file={here}/none
    There is no file {here}/none: it does not exist.
{decoder} --decode_from_file={here}/latin
    {here}/latin, line 2, is not UTF-8
{decoder} --decode_from_file={here}/two --decode_prefix_file={here}/one
    got 1 lines in {here}/one for 2.
{decoder} --decode_prefix_file={here}/one
    --decode_prefix_file needs --decode_from_file.
{decoder} --decode_from_file={here}/two --decode_side_file={here}/one
    --decode_side_file has a line for each of --decode_from_file; got 1 lines
{decoder} --decode_from_file={here}/two --decode_side_file={here}/two \
--split_sentences
    --decode_side_file ignores --split_sentences.
{decoder} --decode_to_file={here}/none/out
    No such file or directory: {here}/none/out.
{decoder} --decode_to_file={here}
    {here} is a folder. Name a file.
{decoder} --decode_interactive --score_file={here}/two
    --decode_interactive ignores --score_file={here}/two. Omit one of them.
{decoder} --decode_attention \
--checkpoint_path={run}/checkpoints/ckpt-300,{run}/checkpoints/ckpt-300
    --checkpoint_path names 2. Name one.
{decoder} --alignments={here}/out --alignment_layer=3
    --alignment_layer must be from 1 to 2, the number of
{decoder} --alignments={here}/out --decode_to_file={here}/out
    --decode_to_file and --alignments are the same file
{decoder} --decode_to_file={here}/out.gz
    {here}/out.gz would be plain text. Omit .gz,
{decoder} --decode_from_file={here}/two --shard_lines=7
    --shard_lines needs --decode_to_dir.
{decoder} --decode_from_file={here}/x* --decode_to_dir={here}/out
    No file matches --decode_from_file={here}/x*.
{decoder} --decode_from_file={here}/two --decode_to_dir={here}
    --decode_to_dir={here} has the files of --decode_from_file={here}/
{decoder} --decode_from_file={here}/two --decode_to_dir={here}/one
    File exists: {here}/one.
{decoder} {to_dir} --engine=spark
    engine must be local, or dask:ADDRESS
{decoder} {to_dir} --engine=dask:tcp://a:1 --num_workers=2
    --engine=dask:tcp://a:1 ignores --num_workers
decoder {to_dir} --export_dir={here}/none
    There is no exported model in {here}/none.
decoder {to_dir} --export_dir={here}/none \
--checkpoint_path={run}/checkpoints/ckpt-300
    --export_dir ignores --checkpoint_path
{decoder} --decode_from_file={here}/two --decode_to_file={here}/two
    {here}/two is also a file to read, and would be lost.
{decoder} --decode_to_file={here}/two \
--decode_hparams=rules=forbid:file={here}/two
    {here}/two is also a file to read, and would be lost.
{decoder} --score_file={here}/two
    {here}/two, line 1: expected input, tab, target; got 1 fields: 'a b'.
{evaluate} --references={here}/one --language=de
    the same number of lines, at least one; got 1 references, 2 translations.
{evaluate} --sources=in.xx --language=de
    got --sources=in.xx alone
{evaluate}
    such as wmt14/full
{evaluate} --references={here}/two --decode_hparams=beam_size=1
    --translations ignores --decode_hparams=beam_size=1. Omit one of them.
evaluate --output_dir={run} --references={here}/two
    --sources with --references
{evaluate} --references={here}/two --language=German
    must be a language's code
{evaluate} --problem=wsj_parsing --references={here}/two
    1 references and no sentences
{evaluate} --references={here}/two
    Name that of the translations with --language=de,
datagen --problem=number_words_ende --engine=dask:tcp://a:1 --num_workers=2
    --engine=dask:tcp://a:1 ignores --num_workers
{evaluate} --references={here}/two --language=de --scores_file={here}/two
    {here}/two is also a file to read, and would be lost.
{evaluate} --references={here}/two --language=de --split=validation
    --references ignores --split=validation. Omit one of them.
{evaluate} --split=wmt20 --language=de
    test set wmt20 has en-de, fr-de. Name one pair with --source_language and
    --language; got none and de.
{evaluate} --problem=multi30k_ende --language=fr
    The problem multi30k_ende translates from en to de; got fr.
{evaluate} --problem=multi30k_many --split=tset
    --split must be a split of multi30k_many, one of validation, test,
    or a test set that sacreBLEU knows, such as wmt14/full; got
{evaluate} --problem=multi30k_many --references={here}/two
    multi30k_many has several directions. Name that of the text
evaluate --output_dir={run} --verbose=maybe
    flag --verbose=maybe: expected true or false. t2t evaluate --help lists
evaluate --output_dir={run} --data_dir={here}
    There is no data in {here}
query --server=http://127.0.0.1:8501 --inputs=a
    or [::1]:8500, without http://, and PORT is at most 65535; got
    'http://127.0.0.1:8501'.
query
    --export_dir and --server; got neither
serve --export_dir={here} --max_waiting=31
    --max_waiting=31 never has room
serve --export_dir={here} --allowed_hosts=http://x/
    takes names of hosts, such as mt.example.org; got 'http://x/'.
serve --export_dir={here} --servable_name=
    --servable_name is empty
serve --export_dir={here} --port=8501
    --rest_port and --grpc_port (alias --port) are both 8501.
query --export_dir={here}/export/1 --token_file={here}/token
    --export_dir ignores --token_file={here}/token.
{sweep} --seeds=1,b
    whole number below 2^31; got --seeds=b
{sweep} --metric=blue
    Did you mean bleu
{sweep} --split=tset
    is one of validation, test; got tset. Did you mean
{sweep} --early_stopping_evals=2 --early_stopping_metric=bluu
    --early_stopping_metric is loss, accuracy, headline, or a metric
{sweep} --row=2
    There are 1 rows; got --row=2. --list
{sweep} --trainer_flags=--random_seed=3
    Use the seeds
{sweep} --trainer_flags=--eval_every=0
    perplexity of its last validation
{sweep} --trainer_flags=--random_sede=3
    --random_sede=3: Unknown command line flag 'random_sede'. Did you mean
{sweep} --output_dir=s3://b/x
    needs local folders; got --output_dir
show --runs_dir={here} --hparams_set=small
    --runs_dir ignores --hparams_set=small.
""")


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Return the folder of the inputs, and the errors of each command."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "token").write_text("a\n")
    (folder / "one").write_text("a b\n")
    (folder / "two").write_text("a b\nc\n")
    (folder / "latin").write_bytes(b"a\nb \xe4\n")
    (folder / "export" / "1").mkdir(parents=True)
    (folder / "export" / "1" / "saved_model.pb").write_bytes(b"")
    errors = folder / "errors"
    errors.mkdir()
    names = {name: text.format(here=folder) for name, text in NAMES.items()}
    names["here"] = folder
    commands = [case.format_map(names).split() for case in CASES]
    ok(run_python("-c", PROGRAM, errors, input=json.dumps(commands)))
    texts = [(errors / str(i)).read_text() for i in range(len(commands))]
    return names, dict(zip(CASES, texts, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_input_is_refused_before_tensorflow_is_imported(answers, case):
    names, errors = answers
    message, status = errors[case].rsplit("\n", 2)[:2]
    message = " ".join(message.partition("Error: ")[2].split())
    assert CASES[case].format_map(names) in message
    assert status == "status 1"
