"""Metrics of translations, compared with n-grams counted by hand."""

import math
import os
import pathlib
import sys
from importlib import metadata

import pytest
from forked import ok
from processes import run_program

from t2t_repro import errors
from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import TRANSLATION, Suite

BIN = pathlib.Path(sys.executable).parent
# evaluate prints these keys in this order, on which its users rely.
KEYS = (
    "bleu bleu_lc bleu_intl bleu_intl_lc bleu_tok bleu_compound_split chrf ter "
    "exact_match length_ratio signature"
).split()
BLEUS = KEYS[:6]
LOWERCASED = ["bleu_lc", "bleu_intl_lc"]


def values(hypotheses, references, language="en", tokenized=False):
    """Compute the JSON line of evaluate."""
    suite = Suite(language=language, tokenized=tokenized)
    result = scores.score(suite, hypotheses, references)
    return scores.values_and_signature(suite.build(), result)


def bleu_by_hand(matches, totals, brevity=1.0):
    """Compute BLEU from n-gram matches and totals, n = 1 to 4."""
    logs = [math.log(m / t) for m, t in zip(matches, totals, strict=True)]
    return 100 * brevity * math.exp(sum(logs) / 4)


def test_keys_are_those_of_evaluate_in_order():
    assert list(values(["a b c d"], [["a b c d"]])) == KEYS
    assert [*TRANSLATION, "signature"] == KEYS


def test_only_sacrebleu_conventions_smooth():
    # As above without the other line: no 4-gram of 4 matches. Smoothing
    # takes half a match; multi-bleu gives 0.
    found = values(["the cat the cat on the mat"], [["the cat sat on the mat"]])
    expected = bleu_by_hand((5, 3, 1, 0.5), (7, 6, 5, 4))
    for key in ("bleu", "bleu_lc", "bleu_intl", "bleu_intl_lc"):
        assert found[key] == pytest.approx(expected), key
    assert found["bleu_tok"] == found["bleu_compound_split"] == 0


def test_case_matters_except_in_lowercased_metrics():
    result = values(["The Cat sat on THE mat"], [["the cat sat on the mat"]])
    # Cased: sat, on, mat of 6; sat-on of 5; none of 4 and 3.
    for key in ("bleu", "bleu_intl"):
        expected = bleu_by_hand((3, 1, 0.5, 0.25), (6, 5, 4, 3))
        assert result[key] == pytest.approx(expected), key
    for key in LOWERCASED:
        assert result[key] == pytest.approx(100), key
    assert result["exact_match"] == 0


def test_only_compound_split_and_intl_split_hyphens():
    result = values(
        ["this is a well-known old man sat down here"],
        [["this is a well-trained old man sat down here"]],
    )
    # 9 tokens, all but well-known match: this is a; old man sat down here.
    unsplit = bleu_by_hand((3 + 5, 2 + 4, 1 + 3, 2), (9, 8, 7, 6))
    # 11 tokens, all but known match: this is a well - ; old man sat down here.
    split = bleu_by_hand((5 + 5, 4 + 4, 3 + 3, 2 + 2), (11, 10, 9, 8))
    assert split > unsplit
    for key in ("bleu", "bleu_lc", "bleu_tok"):
        assert result[key] == pytest.approx(unsplit), key
    for key in ("bleu_compound_split", "bleu_intl", "bleu_intl_lc"):
        assert result[key] == pytest.approx(split), key


@pytest.mark.parametrize(
    "hypotheses, references, counts",
    [
        (
            ["a"] * 1234,
            [["a"] * 1234, ["a"] * 3],
            "1,234 references, 3 references, 1,234 translations",
        ),
        ([], [[]], "0 references, 0 translations"),
    ],
)
def test_different_or_zero_lines_are_errors(hypotheses, references, counts):
    with pytest.raises(errors.UserError, match=f"same number.*got {counts}"):
        values(hypotheses, references)


def test_signature_of_each_metric_has_its_settings():
    lines = ["so it is ."]
    result = scores.score(Suite(language="de"), lines, [lines])
    starts = {
        "bleu": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:",
        "bleu_intl_lc": "nrefs:1|case:lc|eff:no|tok:intl|smooth:exp|version:",
        "chrf": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:",
        "ter": "nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|",
        "exact_match": "nrefs:1|case:mixed|whole lines",
        "length_ratio": "nrefs:1|case:mixed|eff:no|tok:13a|",
    }
    for key in ("bleu_tok", "bleu_compound_split"):
        starts[key] = "nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:"
    for key, start in starts.items():
        assert result[key].signature.startswith(start), key
    moses = f"|text:moses-de|sacremoses:{metadata.version('sacremoses')}"
    assert result["bleu_tok"].signature.endswith(moses)
    split = result["bleu_compound_split"].signature
    assert split.endswith(f"{moses}|hyphens:split")


@pytest.mark.parametrize("language", ["fr", "fr_XX", "fra_Latn"])
def test_tokens_of_moses_are_those_of_the_language_whatever_its_code(language):
    metric = Suite(("bleu_tok",), language).build()["bleu_tok"]
    assert metric.prepare("L'été.") == "L&apos; été ."  # English: L &apos;été
    assert metric.check.startswith("tokenizer.perl -l fr;")


def test_tokenized_text_is_not_tokenized_again():
    # Tokenized anew, "&apos;s" would be three tokens and "Nr." two.
    hypotheses = ["it &apos;s Nr. 1-2 ok"]
    references = ["it &apos;s Nr. 1-3 ok"]
    suite = Suite(language="de", tokenized=True)
    result = scores.score(suite, hypotheses, [references])
    assert result["bleu_tok"].value == 0  # of 2 runs of four, none matches
    assert result["bleu_tok"].signature.endswith("|text:tokenized")
    for name in ("bleu_tok", "bleu_compound_split"):  # perl's words
        prepared = suite.build()[name].prepare("100\xa0000\u3000x \x85 ok")
        assert len(prepared.split()) == 3
    # it 's Nr. 1 - / 2 ok: 5 + 1 of 7, 4 of 6, 3 of 5, 2 of 4
    assert result["bleu_compound_split"].value == pytest.approx(
        bleu_by_hand((6, 4, 3, 2), (7, 6, 5, 4))
    )


@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [(["abcdef", "zz"], ["abcdef", "yy"]), (["x", "a"], ["", "a"])],
)
def test_bootstrap_includes_samples_without_a_match(hypotheses, references):
    measured = scores.score(Suite(), hypotheses, [references], samples=50)
    assert measured["chrf"].plus_minus > 0
    assert measured["ter"].plus_minus > 0


# A sentence of each language without spaces, and one that differs in a word.
UNSPACED = {
    "zh": ("我们今天去公园散步，天气很好。", "我们今天去公园散步，天气不好。"),
    "yue_Hant": ("我哋今日去公園散步。", "我哋聽日去公園散步。"),
    "th": ("วันนี้เราไปเดินเล่นที่สวน", "วันนี้เราไปเดินเล่นที่บ้าน"),
    "lo": ("ມື້ນີ້ພວກເຮົາໄປສວນ", "ມື້ນີ້ພວກເຮົາໄປຕະຫຼາດ"),
    "my": ("ယနေ့ကျွန်တော်တို့ပန်းခြံသွားသည်", "ယနေ့ကျွန်တော်တို့ဈေးသွားသည်"),
    "khm_Khmr": ("ថ្ងៃនេះយើងទៅសួន", "ថ្ងៃនេះយើងទៅផ្សារ"),
}


@pytest.mark.parametrize("language", UNSPACED)
def test_metrics_of_language_without_spaces_measure_parts_of_lines(language):
    reference, other = UNSPACED[language]
    references = [reference] * 3
    same = values(references, [references], language)
    near = values([reference, other, other], [references], language)
    for key in [*BLEUS, "chrf"]:
        assert same[key] == pytest.approx(100), key
        assert 20 < near[key] < 99, key
    assert same["ter"] == 0 and 0 < near["ter"] < 60
    shorter = values([line[:-5] for line in references], [references], language)
    assert 0.4 < shorter["length_ratio"] < 1


@pytest.mark.parametrize(
    ("language", "key"), [("zh", "bleu"), ("zh", "ter"), ("th", "bleu_intl_lc")]
)
def test_check_of_language_without_spaces_gives_the_same_value(
    language, key, tmp_path
):
    lines = UNSPACED[language]
    for name, text in (("OUT", lines[::-1]), ("REF", lines)):
        (tmp_path / name).write_text("\n".join(text), "utf-8")
    check = Suite(language=language).build()[key].check
    *steps, command = check.replace("sacrebleu", "sacrebleu -b -w 4").split(";")
    files = "for file in OUT REF; do {} < $file > $file.tok; done".format
    script = "\n".join([*map(files, steps), command])
    path = {"PATH": f"{BIN}:{os.environ['PATH']}"}
    done = run_program("sh", "-c", script, cwd=tmp_path, env=path)
    expected = values(lines[::-1], [lines], language)[key]
    assert float(ok(done)) == pytest.approx(expected, abs=6e-5)
