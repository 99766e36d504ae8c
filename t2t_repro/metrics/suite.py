"""Suites of metrics, and the names of the metrics of this package."""

from typing import NamedTuple

from t2t_repro import errors, registry
from t2t_repro.metrics.metric import Metric

TRANSLATION = (
    "bleu",
    "bleu_lc",
    "bleu_intl",
    "bleu_intl_lc",
    "bleu_tok",
    "bleu_compound_split",
    "chrf",
    "ter",
    "exact_match",
    "length_ratio",
)
PARSING = (
    "bracketing_f1",
    "bracketing_precision",
    "bracketing_recall",
    "bracketing_exact_match",
    "unbalanced_trees",
    "miscounted_trees",
)
# {name: (module and class in this package, summary)}
_TARGETS = {
    "bleu": ("translation.Bleu", "sacreBLEU, cased, detokenized"),
    "bleu_lc": ("translation.BleuLc", "the same, lowercased"),
    "bleu_intl": (
        "translation.BleuIntl",
        "international tokenization (t2t-bleu)",
    ),
    "bleu_intl_lc": ("translation.BleuIntlLc", "the same, lowercased"),
    "bleu_tok": ("translation.BleuTok", "Moses tokenization (multi-bleu)"),
    "bleu_compound_split": (
        "translation.BleuCompoundSplit",
        "Moses tokenization, hyphens split "
        "(get_ende_bleu.sh, the paper's en-de)",
    ),
    "chrf": ("chrf.Chrf", "chrF2"),
    "ter": ("ter.Ter", "TER, lower is better"),
    "exact_match": (
        "exact_match.ExactMatch",
        "% of lines that equal the reference",
    ),
    "length_ratio": (
        "translation.LengthRatio",
        "tokens of the system / of the reference",
    ),
    "bracketing_f1": (
        "parsing.F1",
        "labelled bracketing, EVALB with COLLINS.prm",
    ),
    "bracketing_precision": ("parsing.Precision", "its precision"),
    "bracketing_recall": ("parsing.Recall", "its recall"),
    "bracketing_exact_match": (
        "parsing.ExactMatch",
        "% of trees without a difference",
    ),
    "unbalanced_trees": (
        "parsing.UnbalancedTrees",
        "% of trees whose brackets were repaired",
    ),
    "miscounted_trees": (
        "parsing.MiscountedTrees",
        "% of trees with tags for more or fewer words",
    ),
}
# Keys of validation.json and of evaluate's JSON line that are not metrics.
RESERVED = (
    "step",
    "loss",
    "perplexity",
    "accuracy",
    "signature",
    "headline",  # a value of --early_stopping_metric
)
for _name, (_target, _summary) in _TARGETS.items():
    registry.metrics.declare(_name, f"{__package__}.{_target}", _summary)


class Suite(NamedTuple):
    """The metrics that score a text, and the properties of the text."""

    names: tuple[str, ...] = TRANSLATION
    language: str = "en"
    tokenized: bool = False

    @property
    def headline(self) -> str:
        """The first metric; for tokenized text "bleu_tok" replaces "bleu".

        sacreBLEU's own tokenizer would tokenize such text again.
        """
        first = self.names[0]
        replaced = self.tokenized and first == "bleu"
        return "bleu_tok" if replaced and "bleu_tok" in self.names else first

    def check(self, problem: str) -> None:
        """Raise a UserError unless the names are those of a problem's metrics.

        Args:
            problem: name of the problem, for errors.
        """
        if not isinstance(self.names, tuple) or not all(
            isinstance(name, str) for name in self.names
        ):
            raise errors.UserError(
                f"metrics of the problem {problem!r} must be a tuple of names, "
                'such as ("exact_match", "bleu") or ("exact_match",); got '
                f"{self.names!r}."
            )
        if not self.names:
            raise errors.UserError(
                f"The problem {problem!r} names no metric; the first of "
                '`metrics` is the headline, as in ("exact_match",).'
            )
        for name in self.names:
            registry.metrics[name]  # UserError if unknown
            if name in RESERVED:
                raise errors.UserError(
                    f"A metric cannot be named {name!r}, which validation.json "
                    "or evaluate's JSON line uses for something else. Rename "
                    "it."
                )

    def build(self) -> dict[str, Metric]:
        """Build the metrics by name, in their order.

        Raises:
            UserError: a name is unknown, or not that of a Metric class.
        """
        subclass = registry.metrics.subclass
        return {
            name: subclass(name, Metric)(  # type: ignore[type-abstract]
                self.language, self.tokenized
            )
            for name in self.names
        }
