"""Table 1 on real models: time by length, and measured path lengths.

    python -m scripts.paper.table1_models --results=table1_models.json

Each model has an encoder of one layer (ByteNet: one set of blocks). For each
length the table has the milliseconds in which it encodes one sentence, and in
which its decoder of one layer writes a subword, as a mean over outputs as long
as the input. Exponents of the length are fitted from --fit_from on. Times are
the fastest of several; measure on a machine that is otherwise idle.

A path length is the number of encoder layers through which the gradient of the
state in the middle of a sentence reaches an input at a distance, on both sides.
"""

import functools
import pathlib

import numpy as np
import tensorflow as tf
from absl import flags

from scripts.benchmarks import harness
from scripts.paper import model_kinds, table1_complexity, table_layout
from t2t_repro import errors
from t2t_repro.cli import command_line
from t2t_repro.decoding import search
from t2t_repro.hparam import DecodeHParams
from t2t_repro.io import files
from t2t_repro.runtime import graph


def define_flags():
    flags.DEFINE_list("n", "32,64,128,256,512", "Lengths of sentences.")
    flags.DEFINE_integer("d", 256, "Width of the models.", lower_bound=16)
    flags.DEFINE_list("distances", "1,2,4,8,16,32,64", "Distances of paths.")
    flags.DEFINE_list("models", list(model_kinds.KINDS), "Kinds of models.")
    flags.DEFINE_integer("times", 3, "Timed passes.", lower_bound=1)
    flags.DEFINE_integer("fit_from", 64, "Shortest length in the fit.")
    flags.DEFINE_string("results", None, "JSON file to write.")


def main():
    values = flags.FLAGS
    lengths = table1_complexity.parse_sizes("n", values.n)
    distances = table1_complexity.parse_sizes("distances", values.distances)
    for name in values.models:
        if name not in model_kinds.KINDS:
            raise errors.UserError(
                f"There is no kind of model {name!r}; known: "
                f"{', '.join(model_kinds.KINDS)}."
            )
    if sum(n >= values.fit_from for n in lengths) < 2:
        raise errors.UserError(
            "An exponent needs two lengths from --fit_from on; got "
            f"--n={','.join(values.n)} with --fit_from={values.fit_from}."
        )
    harness.print_machine()
    results = {}
    for name in values.models:
        kind = model_kinds.KINDS[name]
        results[name] = {
            "times": measure_times(kind, values.d, lengths, values.times),
            "paths": measure_paths(kind, distances),
        }
        print(f"{name} is measured.", flush=True)
    print(f"\n{lay_out(results, values.fit_from)}")
    if values.results:
        files.write_json(
            pathlib.Path(values.results),
            {
                "machine": harness.machine(),
                "width": values.d,
                "measured": results,
            },
        )


def measure_times(kind, width, lengths, times) -> list[dict]:
    """Return seconds of encoding and of a decoding step for each length."""
    model = model_kinds.build(kind, layers=1, width=width)
    encode = graph.function(
        lambda ids: (
            model.start_decoding(
                ids, 1, capacity=1, constants=model.decoding_constants()
            ).sentences
        )
    )
    measured = []
    for n in lengths:
        ids = tf.constant(model_kinds.sentence(n)[None])
        hparams = DecodeHParams(beam_size=1, min_length=n, extra_length=0)
        decode = graph.function(
            lambda ids, hparams=hparams: (
                search.search([model], ids, hparams).ids
            )
        )
        encoding, both = (
            min(harness.time_calls(functools.partial(call, ids), times))
            for call in (encode, decode)
        )
        measured.append(
            {"n": n, "encode": encoding, "decode_step": (both - encoding) / n}
        )
    return measured


def measure_paths(kind, distances) -> dict[int, int | None]:
    """Return {distance: encoder layers}; None: beyond MAX_LAYERS."""
    paths: dict[int, int | None] = dict.fromkeys(distances)
    waiting = sorted(distances)
    for layers in range(1, model_kinds.MAX_LAYERS + 1):
        model = model_kinds.build(kind, layers, width=16)
        reach = model_kinds.reach(model, max(distances))
        while waiting and waiting[0] <= reach:
            paths[waiting.pop(0)] = layers * kind.layers_at_a_time
        if not waiting:
            break
    return paths


def lay_out(results, fit_from) -> str:
    """Format times, exponents and path lengths in Markdown."""
    first = next(iter(results.values()))
    lengths = [m["n"] for m in first["times"]]
    columns = (
        "model",
        *(f"encode, n={n}: ms" for n in lengths),
        "exponent of n",
        *(f"step, n={n}: ms" for n in lengths),
    )
    times = [
        (
            name,
            *(f"{m['encode'] * 1e3:.2f}" for m in result["times"]),
            f"{exponent(result['times'], fit_from):.1f}",
            *(f"{m['decode_step'] * 1e3:.2f}" for m in result["times"]),
        )
        for name, result in results.items()
    ]
    paths = [
        (
            name,
            *(
                f"over {model_kinds.MAX_LAYERS}" if p is None else str(p)
                for p in result["paths"].values()
            ),
            model_kinds.KINDS[name].sequential,
        )
        for name, result in results.items()
    ]
    path_columns = (
        "layers of a path",
        *(f"distance {d}" for d in first["paths"]),
        "sequential operations of a layer",
    )
    return (
        f"{table_layout.markdown(columns, times)}\n\n"
        f"{table_layout.markdown(path_columns, paths)}\n"
    )


def exponent(measured, fit_from) -> float:
    """Return a of time = c n^a, by least squares of the logarithms."""
    large = [m for m in measured if m["n"] >= fit_from]
    logs = np.log([(m["n"], m["encode"]) for m in large])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


if __name__ == "__main__":
    define_flags()
    command_line.run(main)
