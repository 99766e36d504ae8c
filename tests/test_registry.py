"""Names: duplicates, misses, parents, and the definitions of --usr_dir."""

import dataclasses
import linecache
import pathlib
import re
import sys

import pytest

from t2t_repro import errors, hparam, registry


@pytest.fixture
def usr_dir(tmp_path, registries):
    return tmp_path


def first():
    """Return nothing."""


def second():
    """Return nothing, too."""


@pytest.mark.parametrize(
    ("value", "part"), [(errors.UserError, errors.__file__), (second, "")]
)
def test_second_definition_of_a_name_is_refused(value, part):
    things = registry.Registry("thing")
    for _ in range(2):  # as by a module that is loaded again
        things.register("a")(first)
    message = f"thing 'a' .*{part}.*already defined.*another name"
    with pytest.raises(errors.UserError, match=message):
        things.register("a")(value)
    assert things["a"].value is first


def test_what_is_no_subclass_is_refused():
    things = registry.Registry("thing")
    things.register("a")(errors.UserError)
    things.register("b")(first)
    assert things.subclass("a", Exception) is errors.UserError
    for name, base in (("a", OSError), ("b", Exception)):
        message = f"'{name}' of .* must be a subclass of .*{base.__name__}; got"
        with pytest.raises(errors.UserError, match=message):
            things.subclass(name, base)


def test_unknown_name_suggests_near_names_and_lists_all():
    things = registry.Registry("thing")
    with pytest.raises(errors.UserError, match="'a'. None is known before"):
        things["a"]
    for name in ("base", "big"):
        things.register(name)(first)
    with pytest.raises(errors.UserError) as raised:
        things["bgi"]
    assert str(raised.value) == (
        "Unknown thing 'bgi'. Did you mean 'big'? Known: base, big. If it is "
        "your own, name its folder with --usr_dir."
    )


def test_hparams_set_is_built_from_its_parent(monkeypatch):
    sets = registry.HParamsSets("hparams set")
    monkeypatch.setattr(registry, "hparams_sets", sets)
    root = hparam.DecodeHParams()
    change = dataclasses.replace
    sets.register("root")(lambda: root)
    sets.register("child", parent="root")(lambda p: change(p, beam_size=2))
    sets.register("leaf", parent="child")(lambda p: change(p, alpha=1.0))
    assert registry.build_hparams("leaf") == change(root, beam_size=2, alpha=1)
    assert registry.build_hparams("root") == root
    sets.register("orphan", parent="rot")(lambda parent: parent)
    with pytest.raises(errors.UserError, match="Unknown hparams set 'rot'"):
        registry.build_hparams("orphan")
    sets.register("own", parent="own")(lambda parent: parent)
    with pytest.raises(errors.UserError, match="before: own, own. One must"):
        registry.build_hparams("own")
    sets.register("forgetful", parent="root")(lambda parent: None)
    with pytest.raises(errors.UserError, match="'forgetful' .* returns None"):
        registry.build_hparams("forgetful")
    sets.register("typo", parent="root")(lambda p: change(p, baem_size=1))
    with pytest.raises(errors.UserError, match="no hparam. .* mean beam_size"):
        registry.build_hparams("typo")


def test_hparams_set_that_changes_its_parent_is_refused(monkeypatch):
    sets = registry.HParamsSets("hparams set")
    sets.register("base")(registry.hparams_sets["base"].value)
    monkeypatch.setattr(registry, "hparams_sets", sets)
    message = "'wide' of .*test_registry.py: cannot assign .*'num_heads'. Ret"

    @sets.register("wide", parent="base")
    def wide(parent):
        parent.num_heads = 16
        return parent

    with pytest.raises(errors.UserError, match=message):
        registry.build_hparams("wide")


@pytest.mark.parametrize(
    "kind", [registry.problems, registry.hparams_sets, registry.models]
)
def test_decorator_without_a_name_is_refused(kind):
    with pytest.raises(TypeError, match=r'register\("NAME"\) above first'):
        kind.register(first)


def test_set_for_the_size_of_a_corpus_is_found():
    sets = registry.HParamsSets("hparams set")
    for name, sizes in (
        ("few", range(100)),
        ("many", range(1_000, 10_000)),
        ("many_more", range(1_000, 10_000)),
        ("any", None),
    ):
        sets.register(name, corpus_pairs=sizes)(first)
    for name, pairs, better in (
        ("few", 99, None),
        ("many", 99, "few"),
        ("few", 1_000, "many"),
        ("many_more", 1_000, None),  # suits as well as the first
        ("few", 100, None),  # no set does
        ("any", 99, None),
        ("unknown", 99, None),
    ):
        assert sets.better_suited(name, pairs) == better, (name, pairs)


def test_names_are_literals_in_their_files_and_have_a_summary():
    kinds = (*registry.problems, *registry.hparams_sets, *registry.models)
    for entry in (*kinds, *registry.metrics):
        assert entry.summary, entry.file
        text = pathlib.Path(entry.file).read_text("utf-8")
        if isinstance(entry, registry.Declared):  # beside its settings
            paths = (
                *pathlib.Path("hparams").glob("*.py"),
                pathlib.Path("t2t_repro/metrics/metric.py"),
            )
            texts = [path.read_text("utf-8") for path in paths]
            assert any(f'"{entry.name}"' in text for text in texts)
        else:
            assert f'"{entry.name}"' in text


@pytest.mark.parametrize("name", ["absent", "file.py"])
def test_usr_dir_that_is_not_a_folder_is_refused(usr_dir, name):
    (usr_dir / "file.py").write_text("")
    path = usr_dir / name
    with pytest.raises(errors.UserError, match=re.escape(f"got {path}, ")):
        registry.load_definitions(path)


def test_summary_lists_names_first_lines_and_files(usr_dir):
    (usr_dir / "mine.py").write_text(
        "from t2t_repro import registry\n"
        "@registry.hparams_sets.register('mine_set', parent='base')\n"
        "def define(parent):\n"
        "    'Summary of mine_set.\\n\\nAnd more of it.'\n"
    )
    registry.load_definitions(usr_dir)
    text = registry.summary()
    lines = text.splitlines()
    place = lines.index(f"  {'mine_set':24} Summary of mine_set.")
    assert lines[place + 1].strip() == str(usr_dir / "mine.py")
    headings = [line for line in lines if not line.startswith(" ")]
    assert headings[:3] == ["problems:", "hparams sets:", "models:"]
    assert "X_rev" in lines[-1]


def test_definition_of_a_notebook_has_its_module_as_file(monkeypatch):
    monkeypatch.setattr(registry.metrics, "_entries", {})
    # That of a notebook has no file.
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    typed = type("Typed", (), {"__module__": "__main__", "__doc__": "Mine."})
    registry.metrics.register("typed")(typed)
    assert registry.metrics["typed"].file == "__main__"
    for cell in ("1.py", "2.py"):  # a function that is defined again
        lines = ["def mine():\n", "    pass\n"]
        monkeypatch.setitem(linecache.cache, cell, (24, None, lines, cell))
        names = {"__name__": "__main__"}
        exec(compile("".join(lines), cell, "exec"), names)
        registry.metrics.register("mine")(names["mine"])
    assert registry.metrics["mine"].file == "__main__"
