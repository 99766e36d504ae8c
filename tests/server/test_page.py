"""The server's page: its files, and its behavior in a headless Chromium."""

import asyncio
import json
import pathlib
import re
import shutil
import subprocess
import types

import pytest
from chromium import needs_chromium, visit

from t2t_repro.server import monitoring, rest
from t2t_repro.serving import requests

STATIC = pathlib.Path(rest.__file__).parent / "static"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(not NODE, reason="no Node")


def test_page_has_the_models_name(server):
    status, page = server.http("GET", "/")
    assert status == 200
    assert b'<meta name="model" content="t2t">' in page
    assert b"$" not in page
    for name in re.findall(rb'(?:href|src)="(\w+\.\w+)"', page):
        path = STATIC / name.decode()
        assert server.http("GET", f"/{path.name}") == (200, path.read_bytes())


def test_page_escapes_the_models_name():
    handlers = rest.Handlers(
        types.SimpleNamespace(
            name='"><b>', limits=requests.Limits(), metrics=monitoring.Metrics()
        )
    )
    page = asyncio.run(handlers.page(None)).text
    assert '<meta name="model" content="&quot;&gt;&lt;b&gt;">' in page
    assert "<b>" not in page


def test_ids_in_script_exist_in_page():
    page = (STATIC / "index.html").read_text("utf-8")
    script = (STATIC / "page.js").read_text("utf-8")
    ids = set(re.findall(r'\bid="([\w-]+)"', page))
    assert set(re.findall(r'\bbyId\("([\w-]+)"\)', script)) <= ids
    assert set(re.findall(r'\bfor="([\w-]+)"', page)) <= ids
    assert set(re.findall(r'aria-describedby="([\w-]+)"', page)) <= ids


def call_script(function, *arguments):
    """Return the result of a function of the page's script, run by Node."""
    script = (STATIC / "page.js").read_text("utf-8")
    (source,) = re.findall(
        rf"^function {function}\(.*?^\}}", script, re.M | re.S
    )
    values = ", ".join(map(json.dumps, arguments))
    result = subprocess.run(
        [NODE, "-p", f"{source}; JSON.stringify({function}({values}))"],
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=60,
    )
    return json.loads(result.stdout)


@needs_node
@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ("▁two ▁dog s </s>", ["two", "dogs", "(end)"]),
        ("two_ dogs_ <EOS>", ["two_", "dogs_", "(end)"]),
        ("two dogs </s> play <pad>", ["two", "dogs", "</s>", "play", "(end)"]),
        ("▁a <0xC3> <0xA4> <EOS>", ["aä", "(end)"]),
        ("</s>", ["(end)"]),
        ("▁ 两只 狗 <0xE3> <0x80> <0x82> </s>", ["两只", "狗", "。", "(end)"]),
        ("▁two 狗 s ▁ok ay </s>", ["two", "狗", "s", "okay", "(end)"]),
    ],
)
def test_pieces_are_joined_to_words_only_if_marked(pieces, expected):
    pieces = pieces.split()
    found = call_script("words", pieces)
    assert [word["text"] for word in found] == expected
    indices = [index for word in found for index in word["pieces"]]
    assert indices == list(range(len(pieces)))
    assert call_script("words", []) == []


@needs_node
def test_page_omits_beams_without_an_output():
    assert call_script("countOutputs", [-1.5, -5e8, -1e9, -1e9]) == 2
    assert call_script("countOutputs", [-1e9, -1e9]) == 1


def text_of(identifier):
    return f"document.getElementById('{identifier}').textContent"


DONE = "document.querySelector('#picture svg, #error:not([hidden])') != null"


@needs_node
def test_mean_is_that_of_the_chosen_layer_and_head():
    layers = [[[[0, 1]], [[1, 3]]], [[[4, 4]], [[3, 0]]]]  # [2, H=2, 1, 2]
    assert call_script("meanOf", layers, "", "") == [[2, 2]]
    assert call_script("meanOf", layers, "0", "") == [[0.5, 2]]
    assert call_script("meanOf", layers, "", "1") == [[2, 1.5]]
    assert call_script("meanOf", layers, "1", "0") == [[4, 4]]


@needs_chromium
def test_typed_sentence_is_translated(server, local, chromium):
    sentence = "two birds sing"
    expected = local("n_best", inputs=[sentence])

    async def test(browser):
        assert await browser.value("document.activeElement.id") == "text"
        await browser.call("Input.insertText", text=sentence)
        await browser.press("Enter")
        await browser.until(DONE)
        texts = [text.decode() for text in expected["outputs"][0]]
        assert await browser.value(text_of("best")) == texts[0]
        items = await browser.value(
            "[...document.querySelectorAll('#hypotheses li')].map("
            "item => ['bdi', 'data'].map(tag => item.querySelector(tag)))"
            ".map(([text, score]) => [text.textContent, score.value])"
        )
        assert [text for text, _ in items] == texts
        assert [float(score) for _, score in items] == pytest.approx(
            expected["scores"][0].tolist(), rel=1e-4
        )
        cells = await browser.value(
            "document.querySelectorAll('#picture rect title').length"
        )
        assert cells and cells % 4 == 0  # three words and the end
        subwords = "document.getElementById('units').value = 'subwords', "
        await browser.value(
            f"{subwords} document.getElementById('units').onchange()"
        )
        pieces = local("attention", inputs=[sentence])["source_lengths"][0]
        labels = "document.querySelectorAll('#picture text[transform]').length"
        assert await browser.value(labels) == pieces
        heads = "document.getElementById('head').length"
        assert await browser.value(heads) == 3  # two, and their mean
        assert "version 2" in await browser.value(text_of("model"))
        host = f"http://127.0.0.1:{server.ports.rest}/"
        assert browser.urls
        assert all(url.startswith((host, "data:")) for url in browser.urls), (
            browser.urls
        )

    visit(chromium, f"http://127.0.0.1:{server.ports.rest}/", test)


@needs_chromium
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("model=other", "Servable not found for request: Latest(other)"),
        # The discard protocol's port: browsers refuse to connect.
        ("server=http://127.0.0.1:9", "No answer from http://127.0.0.1:9: "),
    ],
)
def test_error_is_shown(server, chromium, query, words):
    async def test(browser):
        await browser.until(DONE)
        assert words in await browser.value(text_of("error"))
        page = await browser.value("document.body.innerText")
        assert page.count(words) == 1

    url = f"http://127.0.0.1:{server.ports.rest}/?{query}&text=a"
    visit(chromium, url, test)


@needs_chromium
def test_hostile_text_is_never_markup(server, chromium):
    """The words in the drawing come from the user."""

    async def test(browser):
        await browser.until(DONE)
        assert await browser.value("window.bad") is None
        assert "<img" in await browser.value(text_of("picture"))

    hostile = "<img/src=x/onerror=bad=1>"
    url = f"http://127.0.0.1:{server.ports.rest}/?text={hostile}"
    visit(chromium, url, test)
