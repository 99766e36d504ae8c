"""WMT14 English-French, the paper's second task (section 5.1)."""

from t2t_repro.problems.wmt14 import WMT14, FromTfds
from t2t_repro.registry import problems


@problems.register("wmt14_enfr")
class Wmt14EnFr(FromTfds):
    """WMT14 English to French: 40.8 million pairs, 32,000 subwords.

    The paper has 36 million pairs after a cleaning that it does not describe.
    Here all pairs are kept that max_length allows, and datagen prints their
    number. The validation split is newstest2013, the test split newstest2014
    with 3,003 lines, both from sacreBLEU.
    """

    stored_languages = ("en", "fr")
    tfds_name = "wmt14_translate/fr-en"
    test_sets = {"validation": "wmt13", "test": "wmt14/full"}
    data_page = "https://www.statmt.org/wmt14/translation-task.html"
    data_citation = WMT14
    vocab_size = 32_000  # section 5.1
