"""The page of runs: its parts, its layout, and its stored scores."""

import html.parser
import itertools
import pathlib

import pytest
from chromium import needs_chromium, visit

from t2t_repro import errors, prepare
from t2t_repro.metrics.metric import Suite
from t2t_repro.models import seq2seq
from t2t_repro.reports import attention_maps, page, reporting
from t2t_repro.runs.run import Run

SETTINGS = {
    "problem": "made_up",
    "hparams_set": "base",
    "hparams": {"hidden_size": 512, "pos": "sinusoids"},
    "random_seed": 1,
    "manifest_sha256": "feed",
    "hardware": ["8 replicas", "one CPU", "8 replicas"],
    "command_lines": [
        "/home/me/t2t_repro/trainer.py --problem=made_up",
        "/usr/bin/t2t-trainer --problem=made_up",
    ],
    "versions": {"python": "3.11.7"},
}
MANIFEST = {
    "languages": ["en", "de"],
    "vocabulary": {"size": 8000, "sha256": "cafe"},
    "sources": {"train": [{"name": "train.en", "url": None}]},
    "splits": {
        "train": {
            "read": 1200,
            "kept": 1190,
            "dropped": {"empty_side": 10, "length_ratio": 0},
            "tokens": {"inputs": 30_000, "targets": 32_000},
        }
    },
}
RUN = page.RunSummary(
    name="one",
    settings=SETTINGS,
    headline="bleu",
    curves={
        "validation/bleu": [(10, 3.0), (20, 27.25)],
        "checkpoints/test": [(10, 20.0), (20, 25.5)],
    },
    cost=seq2seq.TrainingCost(20, 63_045_632, 3.3e18, 5025.0, None),
    manifest=MANIFEST,
    scores={
        "test": {
            "bleu": 27.5,
            "ter": 44,
            "new_one": 3,
            "checkpoints": ["ckpt-5", "ckpt-6"],
            "decode_hparams": {"beam_size": 4, "return_beams": False},
            "plus_minus": {"bleu": 0.5, "ter": None},
            "by_length": [{"longest": 10, "bleu": 41.0}, {"longest": None}],
            "against": {"base": {"bleu": 27.3}},
            "published": [],
            "nothing": None,
        }
    },
    samples={
        "test": reporting.rank_samples(
            ["<b>in</b>"], ["the cat"], ["the dog"], Suite()
        )
    },
    drawings={
        "test": [page.OutputDrawing("line 1", "<svg>a</svg>", "<svg>b</svg>")]
    },
    checkpoint="ckpt-20",
    attention=[
        attention_maps.SentencePlots(
            "in",
            "out",
            [],
            {"Kind": [attention_maps.LayerPlot("Kind 1", "Alt", b"png")]},
        )
    ],
    no_attention="",
)
NEW_RUN = RUN._replace(
    name="two",
    settings=SETTINGS | {"hparams": {"hidden_size": 128, "pos": "sinusoids"}},
    curves={},
    cost=seq2seq.TrainingCost(0, 1000, None, None, None),
    manifest=None,
    scores={},
    samples={},
    drawings={},
    checkpoint=None,
    attention=[],
    no_attention="there is no checkpoint yet",
)


VOID = {"meta", "img", "link", "br", "wbr"}


class Reader(html.parser.HTMLParser):
    """Open elements, levels of headings, links, images and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.open, self.levels, self.ids, self.links = [], [], [], []
        self.images, self.text = [], ""
        self.feed(text.replace("<wbr>", ""))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("h1", "h2", "h3", "h4"):
            self.levels.append(int(tag[1]))
        if tag == "img":
            self.images.append(attributes)
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag == "a":
            self.links.append(attributes["href"])

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += f" {data}"


def text_of(*runs):
    return " ".join(Reader(page.render(runs)).text.split())


@pytest.mark.parametrize("runs", [[RUN], [NEW_RUN], [RUN, NEW_RUN]])
def test_page_is_well_formed_and_accessible(runs):
    reader = Reader(page.render(runs))
    assert not reader.open
    assert reader.levels[0] == 1 and reader.levels.count(1) == 1
    for above, level in itertools.pairwise(reader.levels):
        assert level <= above + 1
    assert reader.links
    assert {link.removeprefix("#") for link in reader.links} <= set(reader.ids)
    for picture in reader.images:
        assert picture["alt"] == "Alt"
        assert picture["src"] == "data:image/png;base64,cG5n"


def test_page_runs_no_scripts_and_loads_nothing():
    """A metric of somebody else may draw any SVG."""
    text = page.render([RUN])
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}'
    assert text.index(meta) < text.index("<title>")


def test_page_shows_everything_of_a_run():
    text = text_of(RUN)
    for part in (
        "base on made_up one, trained for 20 steps.",
        "Parameters 63,045,632",
        "as in Table 3 65,000,000",
        "FLOPs, counted 3.30e18",
        "Time of the steps 1 h 23 min",
        "Validation sacreBLEU of a sample, the last 27.25",
        "train 1,200 1,190 30,000 32,000 10 empty side",
        "bleu sacreBLEU, cased, detokenized: publish this one. 27.50 ± 0.50",
        "44.00 new_one 3.00 Signature, checkpoints and search checkpoints "
        "ckpt-5, ckpt-6 decode hparams beam_size 4, return_beams False "
        "by length longest bleu 10 41.00 – – against name bleu base 27.30 "
        "Parameters and cost",
        "<b>in</b>",
        "test: line 1, drawn a ours b reference",
        "cafe",
        "t2t trainer --problem=made_up t2t-trainer --problem=made_up",
    ):
        assert part in text, part
    assert "sacreBLEU of checkpoints, test." in page.render([RUN])


@pytest.mark.parametrize("steps", [0, 5])
def test_page_of_an_import_says_where_the_model_is_from(steps):
    origin = {"system": "marian", "name": "opus", "sha256": {"a.npz": "beef"}}
    settings = SETTINGS | {"imported_from": origin, "manifest_sha256": ""}
    run = NEW_RUN._replace(
        settings=settings, cost=NEW_RUN.cost._replace(steps=steps)
    )
    text = text_of(run)
    assert "The model was imported from marian: opus" in text
    assert "a.npz beef" in text and "missing or has changed" not in text
    trained = ", trained for 5 steps." if steps else "."
    assert f"base on made_up two, imported from marian{trained}" in text


def test_page_states_what_is_missing():
    text = text_of(NEW_RUN)
    for part in (
        "The data of the run is missing or has changed",
        "feed",
        "No curves",
        "No scores yet",
        "No translations yet",
        "No pictures: there is no checkpoint yet.",
    ):
        assert part in text, part
    assert "FLOPs, counted" not in text


def test_several_runs_stand_side_by_side_with_equal_facts_once():
    text = text_of(RUN, NEW_RUN._replace(scores={"test": {"ter": 41.0}}))
    assert "2 runs side by side: one, two." in text
    assert "sacreBLEU, test 27.50 –" in text
    assert "27.50 ± 0.50 – ter Edits" in text
    assert "the reference. 44.00 41.00 new_one 3.00 –" in text
    glance = text[text.index("At a glance") : text.index("Training data")]
    differing, equal = glance.split("Equal in all runs: 4")
    assert "hidden_size 512 128" in differing
    assert "Seed 1 Computed on 8 replicas; one CPU" in equal
    assert text.count("pos sinusoids") == 1
    settings = text[text.rindex("Hyperparameters") :]
    assert settings.index("hidden_size 512 128") < settings.index("pos")


def with_seed(seed, bleu):
    return RUN._replace(
        name=f"base_seed_{seed}",
        settings=SETTINGS
        | {
            "random_seed": seed,
            "options": {"random_seed": seed, "eval_every": 5},
            "command_lines": [],
        },
        scores={"test": {"bleu": bleu, "chrf": 50.0, "sha256": "beef" * 16}},
    )


def test_runs_that_differ_in_their_seed_share_a_column():
    text = text_of(with_seed(1, 27.0), with_seed(2, 29.0), NEW_RUN)
    assert "3 runs side by side: base_seed (2 seeds), two." in text
    assert "Seed 1, 2 1" in text
    assert "sacreBLEU, test 28.00 (27.00 to 29.00) –" in text
    each = text[text.index("Results of each run") :]
    assert "sacreBLEU, test 27.00 29.00 –" in each
    assert "50.00 –" in text  # equal numbers of a column: one figure
    alone = text_of(with_seed(1, 27.0), with_seed(2, 29.0))
    differing, equal = alone.partition("Equal in all runs")[::2]
    assert "Seed 1, 2 " in differing and "28.00 (27.00 to 29" in differing
    assert "chrF, test 50.00" in equal.partition("Results of each run")[0]
    unscored = with_seed(2, 0.0)._replace(scores={})
    text = text_of(with_seed(1, 27.0), unscored, NEW_RUN)
    assert "sacreBLEU, test 27.00 (1 of 2 seeds) –" in text
    assert "(2 seeds)" not in text_of(with_seed(1, 27.0), with_seed(1, 29.0))


@needs_chromium
def test_compared_runs_fit_screen_and_phone(chromium, tmp_path):
    """In the dark, too, the page has no white paper."""
    file = tmp_path / "index.html"
    runs = [with_seed(1, 27.0), with_seed(2, 29.0), NEW_RUN]
    file.write_text(page.render(runs), "utf-8")
    columns = (
        "getComputedStyle(document.querySelector('.side'))"
        ".gridTemplateColumns.split(' ').length"
    )

    async def test(browser):
        for width, expected in ((1280, 2), (390, 1)):
            await browser.resize(width)
            assert await browser.value("document.body.scrollWidth") <= width
            assert await browser.value(columns) == expected
            await browser.value(
                "for (const each of document.querySelectorAll('details'))"
                " each.open = true"
            )
            wide = "[...document.querySelectorAll('table')].filter("
            wide += "table => table.scrollWidth > innerWidth).length"
            assert await browser.value(wide) == 0
        await browser.prefer_dark()
        background = "getComputedStyle(document.body).backgroundColor"
        assert await browser.value(background) != "rgb(255, 255, 255)"

    visit(chromium, file.as_uri(), test)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (12345, "12,345"), (39.5678, "39.57"), (0.02498, "0.025")]
    + [
        (0.0, "0.00"),
        (8.75e9, "8.75e9"),
        (float("nan"), "nan"),
        (True, "True"),
    ],
)
def test_number_is_readable(value, text):
    assert page.number(value) == text


def test_report_is_without_data_that_cannot_be_reached(monkeypatch, capsys):
    def fail(data_dir, problem):
        raise errors.UserError(f"Cannot access {data_dir}.")

    monkeypatch.setattr(prepare, "data_folder", fail)
    settings = {"data_dir": "s3://b", "manifest_sha256": "ab"}
    run = Run(pathlib.Path("run"), settings, None, None)
    assert reporting._open_data(run, None) == (None, None)
    message = "The report is without the data. Cannot access s3://b.\n"
    assert capsys.readouterr().err == message
    with pytest.raises(errors.UserError, match="access given"):
        reporting._open_data(run, "given")
