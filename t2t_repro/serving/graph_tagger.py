"""Tags of languages in an exported graph."""

import tensorflow as tf

from t2t_repro.text.languages import (
    DIRECTED,
    SOURCE,
    TARGET,
    DirectionTagger,
    Tagger,
)

# A tag of the target alone, with the groups of DIRECTED; also in RE2's syntax.
_TAGGED = r"(?s)^\s*<()2([\pL\pN_]+)>(?:\s+(.*))?$"
_BLANK = r"[\s\pZ]*"


class GraphTagger:
    """A tagger of languages.py for tensors: it adds tags to lines, or checks.

    Lines may also be given their languages beside the text, one for each.
    """

    def __init__(self, tagger: Tagger | DirectionTagger):
        """Store what the tagger knows."""
        source, _, target = tagger.language.rpartition("-")
        self._defaults = [target]
        self._pattern = _TAGGED
        if isinstance(tagger, DirectionTagger):
            self._defaults.append(source or tagger.source)
            self._pattern = DIRECTED
        self._known = tagger.languages
        self.names = [TARGET, SOURCE][: len(self._defaults)]

    def __call__(self, lines: tf.Tensor, *languages: tf.Tensor) -> tf.Tensor:
        """Return lines [B] with tags; blank ones without a text.

        Args:
            lines: strings [B].
            *languages: strings [B] for each of `names`; "": that of the tag,
                or else the default.

        Raises:
            InvalidArgumentError: a language is missing, or the model does not
                know it.
        """
        if not languages:
            languages = tuple(tf.fill(tf.shape(lines), "") for _ in self.names)
        chosen = [
            tf.where(given == "", default, given)
            for given, default in zip(languages, self._defaults, strict=True)
        ]
        has_tag = tf.strings.regex_full_match(lines, self._pattern)
        own = [self._group(lines, i) for i in (2, 1)][: len(chosen)]
        # With a target, an unknown tag is text, as in "<2nd> place".
        is_known = tf.reduce_all(
            [self._is_known(each) | (each == "") for each in own], axis=0
        )
        has_tag &= is_known | (chosen[0] == "")
        texts = tf.where(has_tag, self._group(lines, 3), lines)
        is_blank = tf.strings.regex_full_match(texts, _BLANK)
        codes = [
            tf.where(has_tag & (tag != ""), tag, other)
            for tag, other in zip(own, chosen, strict=True)
        ]
        checks = [
            self._require_known(name, code, is_blank)
            for name, code in zip(self.names, codes, strict=True)
        ]
        source = codes[1] if len(codes) > 1 else ""
        with tf.control_dependencies(checks):
            tagged = tf.strings.join(["<", source, "2", codes[0], "> ", texts])
            return tf.where(is_blank, "", tagged)

    def _group(self, lines, number):
        """Return a group of the pattern in lines [B] that match it."""
        return tf.strings.regex_replace(lines, self._pattern, rf"\{number}")

    def _is_known(self, codes):
        return tf.reduce_any(codes[:, None] == tf.constant(self._known), axis=1)

    def _require_known(self, name, codes, is_blank):
        is_wrong = ~(self._is_known(codes) | is_blank)
        return tf.debugging.Assert(
            ~tf.reduce_any(is_wrong),
            [
                f"The {name} of a sentence, in a tag or an input of its own, "
                "must be one that the model knows; got",
                tf.boolean_mask(codes, is_wrong),
            ],
        )
