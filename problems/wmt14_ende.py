"""WMT14 English-German, the paper's first task (section 5.1)."""

from t2t_repro.problems.tfds_translate import WMT14, FromTfds
from t2t_repro.registry import problems


@problems.register("wmt14_ende")
class Wmt14EnDe(FromTfds):
    """WMT14 English to German: 4.5 million pairs, 37,000 subwords.

    The validation split is newstest2013, the test split newstest2014 with 3,003
    lines, both from sacreBLEU.
    """

    stored_languages = ("en", "de")
    tfds_name = "wmt14_translate/de-en"
    test_sets = {"validation": "wmt13", "test": "wmt14/full"}
    data_page = "https://www.statmt.org/wmt14/translation-task.html"
    data_citation = WMT14
    vocab_size = 37_000  # section 5.1
