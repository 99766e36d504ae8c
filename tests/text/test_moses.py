"""Moses tokenization, compared with the output of its scripts."""

import pytest

from t2t_repro.text import moses


@pytest.mark.parametrize(
    ("language", "line", "tokens"),
    [
        ("de", 'Er sagt: "Ja!"', "Er sagt : &quot; Ja ! &quot;"),
        ("en", "It's well-known, isn't it?")
        + ("It &apos;s well-known , isn &apos;t it ?",),
        ("fr", "l'art d'aujourd'hui", "l&apos; art d&apos; aujourd&apos; hui"),
        ("ga", "D'imigh", "D&apos; imigh"),
        ("ca", "L'home col·legi·", "L&apos; home col·legi ·"),
        ("fi", "EU:n ja 20:een: 3:4", "EU:n ja 20:een : 3 : 4"),
        # Abbreviations and ordinals keep their full stop within a line.
        ("de", "Am 26. Mai um z.B. acht.", "Am 26. Mai um z.B. acht ."),
        ("de", "auf Gate 24.", "auf Gate 24 ."),
        ("en", "at 11.30 a.m.", "at 11.30 a.m ."),
        ("en", "and so on...", "and so on ..."),
        ("en", "  two   spaces  ", "two spaces"),
        ("en", "", ""),
        # Letters of perl, of any script.
        ("de", "Spiel 大乱闘ス한국 हिन्दी x̂", "Spiel 大乱闘ス한국 हिन ् दी x ̂"),
    ],
)
def test_tokenizer_equals_tokenizer_perl(language, line, tokens):
    assert moses.tokenizer(language)(line) == tokens


@pytest.mark.parametrize(
    ("line", "tokens"),
    [
        ("der EU-Plan.", "der EU ##AT##-##AT## Plan ."),
        ("Ost-West-Plan", "Ost ##AT##-##AT## West ##AT##-##AT## Plan"),
        ("eins - zwei", "eins - zwei"),
        # The script's matches do not overlap, and match bytes.
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("vis-à-vis", "vis ##AT##-##AT## à ##AT##-##AT## vis"),
        # Unicode punctuation becomes ASCII before tokenization.
        ("so，ja！", "so , ja !"),
        ("„Nein“", "„ Nein &quot;"),
    ],
)
def test_compound_splitter_equals_get_ende_bleu(line, tokens):
    assert moses.compound_splitter("de")(line) == tokens


def test_split_hyphens_does_not_tokenize():
    text = moses.split_hyphens("der EU-Plan &quot; Nr. 1. &quot;")
    assert text == "der EU ##AT##-##AT## Plan &quot; Nr. 1. &quot;"


@pytest.mark.parametrize(
    ("language", "line", "tokens"),
    [
        ("de", "Zwei Männer, ÜBEN.", "zwei männer , üben ."),
        ("en", "A man’s “red” T-shirt…")
        + ("a man &apos;s &quot; red &quot; t-shirt ...",),
        # normalize-punctuation.perl moves a full stop out of the quotes that
        # end a German line, and treats ’ as a quote unless ASCII letters
        # surround it.
        ("de", 'Er sagt: "Ja."', "er sagt : &quot; ja &quot; ."),
        ("fr", "À l’œuvre.", "à l &quot; œuvre ."),
        # The Moses of 2017, which made Multi30k's files.
        ("de", "Ein Bus der Linie A.", "ein bus der linie a."),
    ],
)
def test_lowercase_tokenizer_equals_scripts_of_2017(language, line, tokens):
    assert moses.lowercase_tokenizer(language)(line) == tokens
