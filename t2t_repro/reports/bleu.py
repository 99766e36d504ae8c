"""The score sheet: every convention in which translations are scored.

Numbers of different conventions cannot be compared: on one WMT14 en-de
output they differ by 1.5 BLEU. So all are shown, each with its signature and
with the command by which others can check it.
"""

import functools
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER

from t2t_repro.text import moses
from t2t_repro.text.test_sets import require_same_counts

# (key of the sheet, what it is)
CONVENTIONS = {
    "bleu": "sacreBLEU 13a, cased, detokenized",
    "bleu_lc": "the same, lowercased",
    "bleu_intl": "international tokenization (t2t-bleu)",
    "bleu_intl_lc": "the same, lowercased",
    "bleu_tok": "Moses tokenization (multi-bleu)",
    "bleu_compound_split": "Moses tokenization, hyphens split "
    "(get_ende_bleu.sh, the paper's en-de)",
    "chrf": "chrF2",
    "ter": "TER, lower is better",
    "exact_match": "% of lines that equal the reference",
    "length_ratio": "tokens of the system / of the reference",
}
_SPLIT_HYPHENS = r"perl -pe 's/(\S)-(\S)/$1 ##AT##-##AT## $2/g'"
_PUNCTUATION = "replace-unicode-punctuation.perl"
_TOKENIZER = "tokenizer.perl -l {language}"
_MULTI_BLEU = "multi-bleu.perl REF.tok < OUT.tok"
# What to type to get the same number. OUT.tok and REF.tok are OUT and REF after
# the commands before the semicolon.
CHECKS = {
    "bleu": "sacrebleu REF -i OUT -m bleu",
    "bleu_lc": "sacrebleu REF -i OUT -m bleu -lc",
    "bleu_intl": "sacrebleu REF -i OUT -m bleu -tok intl",
    "bleu_intl_lc": "sacrebleu REF -i OUT -m bleu -tok intl -lc",
    "bleu_tok": f"{_TOKENIZER}; {_MULTI_BLEU}",
    "bleu_compound_split": f"{_PUNCTUATION} | {_TOKENIZER} | "
    f"{_SPLIT_HYPHENS}; {_MULTI_BLEU}",
    "chrf": "sacrebleu REF -i OUT -m chrf",
    "ter": "sacrebleu REF -i OUT -m ter",
    "exact_match": 'awk \'NR == FNR {r[FNR] = $0; next} ($0 "") == r[FNR] '
    "{n++} END {print 100 * n / FNR}' REF OUT",
    "length_ratio": "sacrebleu REF -i OUT -m bleu -f text | "
    "grep -o 'ratio = [0-9.]*'",
}
# The same where OUT and REF are tokenized already.
CHECKS_OF_TOKENS = CHECKS | {
    "bleu_tok": "multi-bleu.perl REF < OUT",
    "bleu_compound_split": f"{_SPLIT_HYPHENS}; {_MULTI_BLEU}",
}


class Score(NamedTuple):
    """A number, and all that it takes to compare it."""

    value: float
    signature: str  # sacreBLEU's, and what was done to the text before
    # Half the 95% interval of a bootstrap over sentences; None: not measured.
    plus_minus: float | None = None


class _Bootstrapped:
    """A metric whose scores are all Python's floats.

    sacreBLEU's are NumPy's, but for those of samples in which nothing matches,
    and the mean of such a mixture is a TypeError.
    """

    def _compute_score_from_stats(self, stats):
        found = super()._compute_score_from_stats(stats)
        found.score = float(found.score)
        return found


class _Chrf(_Bootstrapped, CHRF):
    """chrF2."""


class _Ter(_Bootstrapped, TER):
    """TER."""


def scores(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    language: str = "en",
    tokenized: bool = False,
    samples: int = 1,
) -> dict[str, Score]:
    """Scores a system's output in every convention.

    Args:
        hypotheses: [lines] detokenized text.
        references: one or more lists of [lines].
        language: of the text, for Moses tokenization.
        tokenized: the text is tokenized; conventions that would do so leave
            it as it is.
        samples: of the bootstrap, each as large as the text; 1: none.

    Raises:
        UserError: the line counts differ, or there is no line.
    """
    require_same_counts(hypotheses, *references)
    found = {}
    for key, make in _metrics(tokenized).items():
        prepare, note = _preparation(key, language, tokenized)
        metric = make(references=[list(map(prepare, r)) for r in references])
        # Asked before the score is, it does not name the bootstrap.
        signature = metric.get_signature().format() + note
        result = metric.corpus_score(
            list(map(prepare, hypotheses)), None, n_bootstrap=samples
        )
        # sacreBLEU tells the half interval only within a rounded text.
        spread = float(result._ci) if samples > 1 else None
        found[key] = Score(result.score, signature, spread)
        if key == "bleu":
            ratio = result.sys_len / max(result.ref_len, 1)
    found["exact_match"] = _exact_match(hypotheses, references, samples)
    found["length_ratio"] = Score(ratio, found["bleu"].signature)
    return found


def flat(found: dict[str, Score]) -> dict:
    """The values by CONVENTIONS' keys, then "signature" of "bleu"."""
    values = {key: found[key].value for key in CONVENTIONS}
    return values | {"signature": found["bleu"].signature}


def score_sheet(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    language: str = "en",
    tokenized: bool = False,
) -> dict:
    """flat(scores(…)): one number a convention."""
    return flat(scores(hypotheses, references, language, tokenized))


def corpus_bleu(
    hypotheses: Sequence[str], references: Sequence[str]
) -> tuple[float, str]:
    """The sheet's "bleu" alone, against one reference, and its signature."""
    require_same_counts(hypotheses, references)
    metric = BLEU(force=True)  # no word on text that is tokenized
    score = metric.corpus_score(hypotheses, [references]).score
    return score, metric.get_signature().format()


def main_metric(tokenized: bool) -> tuple[str, Callable[..., BLEU]]:
    """The convention that such text is compared in, and BLEU(references=…)."""
    key = "bleu_tok" if tokenized else "bleu"
    return key, _metrics(tokenized)[key]


def _metrics(tokenized):
    """{key: metric(references=…)}."""
    # It warns where text looks tokenized, unless told that it may.
    bleu = functools.partial(BLEU, force=tokenized)
    multi_bleu = functools.partial(
        BLEU, tokenize="none", smooth_method="none", force=True
    )
    return {
        "bleu": bleu,
        "bleu_lc": functools.partial(bleu, lowercase=True),
        "bleu_intl": functools.partial(bleu, tokenize="intl"),
        "bleu_intl_lc": functools.partial(
            bleu, tokenize="intl", lowercase=True
        ),
        "bleu_tok": multi_bleu,
        "bleu_compound_split": multi_bleu,
        "chrf": _Chrf,
        "ter": _Ter,
    }


def _preparation(key, language, tokenized):
    """What is done to a line before its convention's metric, and its name."""
    if key not in ("bleu_tok", "bleu_compound_split"):
        return str, ""
    if tokenized:
        text, tokenize, split = "tokenized", str, moses.split_hyphens
    else:
        text = f"moses-{language}|sacremoses:{metadata.version('sacremoses')}"
        tokenize = moses.tokenizer(language)
        split = moses.compound_splitter(language)
    if key == "bleu_tok":
        return tokenize, f"|text:{text}"
    return split, f"|text:{text}|hyphens:split"


def _exact_match(hypotheses, references, samples):
    matches = sum(
        hypothesis in candidates
        for hypothesis, *candidates in zip(hypotheses, *references, strict=True)
    )
    total = len(hypotheses)
    signature = f"nrefs:{len(references)}|case:mixed|whole lines"
    spread = None
    if samples > 1:
        # Lines drawn anew match or not: so many out of `total`.
        drawn = np.random.default_rng(0).binomial(
            total, matches / total, samples
        )
        low, high = np.quantile(100 * drawn / total, [0.025, 0.975])
        spread = float(high - low) / 2
    return Score(100 * matches / total, signature, spread)


def describe(
    found: dict[str, Score], language: str = "en", tokenized: bool = False
) -> str:
    """The sheet for people: a line a convention, then how to check each."""
    lines = []
    for key, meaning in CONVENTIONS.items():
        value, _, spread = found[key]
        shown = "" if spread is None else f"± {spread:.2f}"
        lines.append(f"{value:8.2f} {shown:7}  {key:20} {meaning}")
    if tokenized:
        lines.append(
            "The text is tokenized: bleu_tok, of these tokens, is the one to "
            "compare with others."
        )
    lines.append("")
    checks = CHECKS_OF_TOKENS if tokenized else CHECKS
    for key in CONVENTIONS:
        check = checks[key].replace("{language}", language)
        lines += [f"{key}: {found[key].signature}", f"    {check}"]
    return "\n".join(lines)
