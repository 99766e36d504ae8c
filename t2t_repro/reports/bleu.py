"""The score sheet: every convention in which translations are scored.

Numbers of different conventions cannot be compared: on one WMT14 en-de
output they differ by 1.5 BLEU. So all are shown, each with its signature.
"""

import re
from collections.abc import Sequence

import sacremoses
from sacrebleu import significance
from sacrebleu.metrics import BLEU, CHRF, TER

from t2t_repro import errors

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


def score_sheet(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    language: str = "en",
) -> dict:
    """Scores a system's output in every convention.

    Args:
        hypotheses: [lines] detokenized text.
        references: one or more lists of [lines].
        language: of the text, for Moses tokenization.

    Returns:
        CONVENTIONS' keys in their order, then "signature" of "bleu".

    Raises:
        UserError: the line counts differ, or there is no line.
    """
    _require_same_counts(hypotheses, *references)
    bleu = BLEU()
    main = bleu.corpus_score(hypotheses, references)
    return {
        "bleu": main.score,
        "bleu_lc": _score(BLEU(lowercase=True), hypotheses, references),
        "bleu_intl": _score(BLEU(tokenize="intl"), hypotheses, references),
        "bleu_intl_lc": _score(
            BLEU(tokenize="intl", lowercase=True), hypotheses, references
        ),
        "bleu_tok": _tokenized(_moses(language), hypotheses, references),
        "bleu_compound_split": _tokenized(
            _compound_split(language), hypotheses, references
        ),
        "chrf": _score(CHRF(), hypotheses, references),
        "ter": _score(TER(), hypotheses, references),
        "exact_match": _exact_match(hypotheses, references),
        "length_ratio": main.sys_len / max(main.ref_len, 1),
        "signature": str(bleu.get_signature()),
    }


def corpus_bleu(
    hypotheses: Sequence[str], references: Sequence[str]
) -> tuple[float, str]:
    """The sheet's "bleu" alone, against one reference, and its signature."""
    _require_same_counts(hypotheses, references)
    metric = BLEU()
    score = metric.corpus_score(hypotheses, [references]).score
    return score, str(metric.get_signature())


def _require_same_counts(*texts):
    counts = [len(lines) for lines in texts]
    if len(set(counts)) > 1 or not counts[0]:
        raise errors.UserError(
            "Translations and references must have the same number of lines, "
            f"at least one; got {' and '.join(f'{n:,}' for n in counts)}."
        )


def _score(metric, hypotheses, references):
    return metric.corpus_score(hypotheses, references).score


def _tokenized(tokenize, hypotheses, references):
    """BLEU of text that is tokenized already, as multi-bleu.perl has it."""
    hypotheses, *references = (
        [tokenize(line) for line in lines]
        for lines in (hypotheses, *references)
    )
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    return _score(metric, hypotheses, references)


def _moses(language):
    tokenizer = sacremoses.MosesTokenizer(lang=language)
    return lambda line: tokenizer.tokenize(line, return_str=True)


def _compound_split(language):
    """The steps of tensor2tensor's get_ende_bleu.sh before multi-bleu."""
    normalizer = sacremoses.MosesPunctNormalizer()
    tokenize = _moses(language)

    def split(line):
        tokens = tokenize(normalizer.replace_unicode_punct(line))
        return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokens)

    return split


def _exact_match(hypotheses, references):
    matches = sum(
        hypothesis in candidates
        for hypothesis, *candidates in zip(hypotheses, *references, strict=True)
    )
    return 100 * matches / len(hypotheses)


def describe(sheet: dict) -> str:
    """The sheet for people: a line a convention."""
    lines = [
        f"{sheet[key]:8.2f}  {key:20} {meaning}"
        for key, meaning in CONVENTIONS.items()
    ]
    return "\n".join([*lines, f"signature: {sheet['signature']}"])


def compare(hypotheses, baseline, references) -> str:
    """Paired bootstrap test of BLEU against another system's output.

    Raises:
        UserError: the line counts differ.
    """
    _require_same_counts(hypotheses, baseline, *references)
    test = significance.PairedTest(
        [("baseline", list(baseline)), ("system", list(hypotheses))],
        {"BLEU": BLEU(references=references)},
        references=None,
        test_type="bs",
        n_samples=1000,
    )
    _, scores = test()
    before, after = scores["BLEU"]
    # sacreBLEU counts differences above the observed one: of none, p = 0.001.
    p_value = 1.0 if after.score == before.score else after.p_value
    return (
        f"BLEU {after.score:.2f} against {before.score:.2f} of the baseline, "
        f"p = {p_value:.4f} (paired bootstrap, 1,000 samples)"
    )
