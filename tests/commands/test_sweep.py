"""The rows of a sweep: their numbers, and their numbers of steps."""

import json

import yaml
from forked import ok
from micro_jobs import micro_job
from stored_run import FIXTURE

from t2t_repro.problem import build_problem
from t2t_repro.sweeps import rows, running


def test_rows_of_a_file_are_listed_with_their_numbers(run, tmp_path):
    settings = {
        "problem": "multi30k_ende",
        "hparams_set": ["tiny", "small"],
        "variant": {"heads_2": {"num_heads": 2}},
        "seeds": [7],
        "output_dir": str(tmp_path),
    }
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(settings), "utf-8")
    (tmp_path / "results").mkdir()
    problem = build_problem("multi30k_ende")
    job = rows.Job(problem, "test", False, tmp_path / "data", tmp_path)
    table = rows.Table(rows.cross(["tiny", "small"], [], ""), "tiny")
    for name, changes in (("tiny", {"averaged": True}), ("small", {})):
        row = table.row(name, 7)
        job.path(row).write_text(json.dumps(job.settings(row) | changes))
    lines = ok(run("sweep", f"--config={path}", "--list")).splitlines()
    assert lines == [
        "   1  tiny, seed 7  has a file that does not fit",
        "   2  small, seed 7  finished",
        "   3  tiny-heads_2, seed 7",
        "   4  small-heads_2, seed 7",
    ]


def test_rows_have_as_many_steps_as_take_the_same_flops(tmp_path):
    arguments = "name=numbers,languages=en-de,vocab_size=300"
    problem = build_problem("parallel_text", arguments)
    data = FIXTURE / "data" / problem.data_name
    job = micro_job(tmp_path)._replace(problem=problem, data=data)
    slots = "padded:batching=bucketed,num_buckets=1,batch_unit=slots"
    changes = ["wide:filter_size=1024", slots]
    variants = rows.cross(["tiny"], [*changes, "cut:bpe_dropout=0.3"], "")
    table = running.with_flops(rows.Table(variants, "tiny"), job, 1e12)
    tiny, *others = (row.changes["train_steps"] for row in table.rows([], [1]))
    wide, padded, cut = others
    assert padded > tiny > max(wide, cut) > 0  # less text in a step, or more
