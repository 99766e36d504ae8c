"""Filters: the pairs that each of them keeps."""

import pytest

from t2t_repro import errors, registry
from t2t_repro.text.pair_filters import PairFilter

GOOD = ("a good day", "ein guter Tag")


def build(name, value=None, languages=("en", "de")):
    cls = registry.pair_filters[name].value
    return cls(cls.default if value is None else value, languages)


@pytest.mark.parametrize(
    ("name", "value", "bad"),
    [
        ("max_characters", 13, ("a good day", "ein guter Tag.")),
        ("max_words", 3, ("a b c d", "a")),
        ("character_ratio", 1.5, ("aaaa", "bb")),
        ("character_ratio", None, ("", "b")),
        ("word_ratio", 2, ("a b c", "abc")),
        ("letters", None, ("a + b = 12", "ein guter Tag")),
        ("letters", None, ("", "ein guter Tag")),
        ("script", None, ("a good day", "хороший день")),
        ("web", None, ("a good day", "ein<BR />guter Tag")),
        ("web", None, ("a <a href='x'>good</a> day", "ein guter Tag")),
        ("web", None, ("a good&nbsp;day", "ein guter Tag")),
        ("web", None, ("a good day", "ein guter \ufffd")),
        ("web", None, ("a good day", "<a " + "= " * 100_000 + "<b>")),
        ("different", None, (" A  good day", "a good day")),
    ],
)
def test_filter_drops_bad_pair_and_keeps_good_one(name, value, bad):
    built = build(name, value)
    assert not built.keep(bad)
    assert not bad[0] or built.keep(GOOD)


def test_script_is_that_of_the_language_and_ignores_other_signs():
    built = build("script", 1, ("ru", "ja"))
    assert built.keep(("день 12!", "日本のテレビー。"))
    assert built.keep(("день", "ｺﾝﾆﾁﾊ、人々〆"))
    assert not built.keep(("день", "Ｂ"))
    assert not built.keep(("day", "日本"))
    assert not built.keep(("день", "day"))
    assert build("script", 1).keep(("cafe\u0301", "12"))
    with_codes = build("script", 1, ("rus", "sr-Latn-RS"))
    assert with_codes.keep(("день", "dan"))
    assert build("script", 1, ("srp_Cyrl", "en")).keep(("дан", "day"))
    assert build("script", 1, ("cmn", "mkd")).keep(("日", "дан"))
    assert build("script", 1, ("pus", "chv")).keep(("ورځ", "кун"))
    with pytest.raises(errors.UserError, match="the script 'goth' of got_Goth"):
        build("script", 1, ("got_Goth", "en"))
    assert not with_codes.keep(("day", "dan"))
    assert not with_codes.keep(("день", "дан"))


def test_language_drops_certain_other_languages_only():
    pytest.importorskip("py3langid")
    built = build("language", None, ("en", "deu_Latn"))
    french = "Les enfants jouent dans le jardin de leur grand-mère."
    german = "Die Kinder spielen im Garten ihrer Großmutter."
    english = "The children are playing in their grandmother's garden."
    assert built.keep((english, german))
    assert not built.keep((english, french))
    assert not built.keep((german, english))
    assert built.keep(("A man.", "Ein Mann."))  # uncertain
    norwegian = "Jeg vet ikke hva jeg skal gjøre i morgen."
    built = build("language", None, ("en", "nob_Latn"))
    assert built.keep((english, norwegian))
    assert not built.keep((english, german))


def test_language_that_py3langid_lacks_is_user_error():
    pytest.importorskip("py3langid")
    with pytest.raises(errors.UserError, match="knows; got xx. Known: .*en"):
        build("language", None, ("en", "xx")).keep(GOOD)


def test_filter_without_keep_is_user_error():
    with pytest.raises(errors.UserError, match="PairFilter has no keep"):
        PairFilter(None, ("en", "de")).keep(GOOD)
