"""A self-contained HTML page of one run, or of several side by side."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import jinja2

from t2t_repro.reports import bleu, curves

SAMPLES = 10


class Subject(NamedTuple):
    """What the page says of one run."""

    name: str
    settings: dict  # run.json
    parameters: int
    scores: dict[str, dict]  # split -> score sheet
    samples: list[tuple[str, str, str]]  # input, translation, reference
    output_dir: pathlib.Path


def render(subjects: Sequence[Subject]) -> str:
    """The page, with everything it needs inside."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("t2t_repro.reports", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    plots = []
    for subject in subjects:
        read = curves.read(subject.output_dir)
        plots.append(
            {
                title: curves.plot(read, names)
                for title, names in curves.PLOTS.items()
            }
        )
    return environment.get_template("page.html.j2").render(
        subjects=list(zip(subjects, plots, strict=True)),
        conventions=bleu.CONVENTIONS,
    )
