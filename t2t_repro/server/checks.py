"""Checks of a request's inputs, in the order of their cost."""

from collections.abc import Iterable, Mapping, Sized
from typing import Any

from t2t_repro.server import batching, request_errors
from t2t_repro.serving.limits import Limits
from t2t_repro.text import language_tags

_OTHER_MARKS = 1000  # of keys that are ignored, and the like
_SHOWN_NAMES, _SHOWN_LETTERS = 5, 40


def check_size(inputs: Sized, limits: Limits) -> None:
    """Check the number of sentences, before anything is done with each.

    Raises:
        RequestError: there are none, or too many.
    """
    if not 1 <= len(inputs) <= limits.max_batch_size:
        raise request_errors.invalid(
            f"A request must have 1 to {limits.max_batch_size} sentences; got "
            f"{len(inputs)}."
        )


def check_density(body: bytes, limits: Limits) -> None:
    r"""Check that a JSON body has no more values than its sentences explain.

    Python's parser would make an object of each, and holds Python's lock for as
    long. A sentence in quotes has at most 12 of them, as one of two inputs of a
    row: {"inputs": {"b64": "…"}, "targets": …}. Within a text quotes are \",
    but commas are plain.

    Raises:
        RequestError: it has more.
    """
    marks = 12 * limits.max_batch_size + _OTHER_MARKS
    quotes = body.count(b'"') - body.count(b'\\"')
    commas = body.count(b",") - 2 * limits.max_batch_bytes
    if max(quotes, commas) > marks:
        raise request_errors.invalid(
            f"A request must have 1 to {limits.max_batch_size} sentences; this "
            "body has far more values."
        )


def check_names(found: Iterable[str], names: list[str]) -> None:
    """Check the names of a request's inputs.

    Args:
        found: names in the request.
        names: names of the signature's inputs, sorted.

    Raises:
        RequestError: they differ.
    """
    if sorted(found) != names:
        raise request_errors.invalid(
            f"The signature's inputs are {', '.join(names)}; got "
            f"{list_names(found)}."
        )


def list_names(names: Iterable[str]) -> str:
    """List the first few of a client's names, shortened: "a, b, …"."""
    first = sorted(names)
    shown = [name[:_SHOWN_LETTERS] for name in first[:_SHOWN_NAMES]]
    return ", ".join(shown + ["…"] * (len(first) > _SHOWN_NAMES)) or "none"


def check_inputs(
    inputs: batching.Inputs, names: list[str], limits: Limits
) -> None:
    """Check the inputs of a request.

    Args:
        inputs: inputs by name.
        names: names of the signature's inputs, sorted.
        limits: limits of a request.

    Raises:
        RequestError: names the input that is wrong.
    """
    check_names(inputs, names)
    sizes = {name: len(values) for name, values in inputs.items()}
    size = max(sizes.values())
    if len(set(sizes.values())) > 1:
        raise request_errors.invalid(f"Inputs differ in number: {sizes}.")
    for name, values in inputs.items():
        longest = max(map(len, values))
        if not limits.allow(size, longest):
            raise request_errors.invalid(
                f"{name}: sentences times bytes of the longest are {size} x "
                f"{longest:,}; at most {limits.max_batch_bytes:,} are taken. "
                "Send fewer at a time, or shorter ones."
            )
        for number, value in enumerate(values):
            _check_text(value, f"{name}[{number}]")


def check_tags(inputs: batching.Inputs, card: Mapping[str, Any]) -> None:
    """Check that sources of a many-to-many model name a target language.

    Args:
        inputs: inputs by name, of UTF-8.
        card: model card.

    Raises:
        RequestError: a source has no tag that the model knows.
    """
    languages = card.get("data", {}).get("target_languages", ())
    for number, value in enumerate(inputs["inputs"] if languages else ()):
        if not language_tags.has_known(value.decode("utf-8"), languages):
            raise request_errors.invalid(
                f"inputs[{number}] must begin with the tag of its target "
                f"language: {', '.join(map(language_tags.tag, languages))}."
            )


def _check_text(value, label):
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise request_errors.invalid(
            f"{label} is not UTF-8: {error}."
        ) from error
