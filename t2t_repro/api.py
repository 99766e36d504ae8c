"""Models from Python: train, load, translate, score, evaluate and export.

import t2t_repro

model = t2t_repro.load("run")
print(model.translate(["Two dogs play in the snow."])[0].text)
"""

import functools
import pathlib
import signal
from collections.abc import Iterable, Mapping
from typing import Any

from t2t_repro import errors, fields, registry
from t2t_repro.decoding.score import AttentionTrace, AttentionTracer
from t2t_repro.decoding.translate import Translator
from t2t_repro.decoding.translation import Translation
from t2t_repro.evaluation import evaluation
from t2t_repro.io import files, storage
from t2t_repro.models.seq2seq import AttentionWeights
from t2t_repro.problem import Problem, build_problem
from t2t_repro.runs import checkpoint_files, run_json
from t2t_repro.runs.run import Checkpoints, Run
from t2t_repro.serving import client, exporting, limits, version_folders
from t2t_repro.text import parallel_files
from t2t_repro.training import job
from t2t_repro.training.options import Options

# Exported models from Python: translate, score and show attention.


class ExportedModel:
    """Exported model, whose search has the settings of its export."""

    def __init__(self, folder: pathlib.Path):
        """Load a version, or the newest version of an export folder."""
        self._client = client.LocalClient(folder)

    def translate(
        self,
        lines: Iterable[str],
        n_best: int = 1,
        target_language: str = "",
        distinct: bool = False,
    ) -> list[Translation]:
        """Translate lines.

        Args:
            lines: one sentence each. Longer ones than max_input_length are
                cut, as TensorFlow Serving cuts them.
            n_best: translations of each line, at most the export's beams.
            target_language: of a many-to-many model, as for Model.
            distinct: whether to drop, before the n best are chosen, beams with
                the text of a better one.

        Returns:
            The translations of each line, best first.
        """
        lines = require_lines(lines)
        signature = "n_best" if n_best > 1 else "serving_default"
        lines = self._client.add_tags(lines, target_language)
        translations = []
        for outputs in self._run(signature, lines):
            # [B], or [B, W] of n_best.
            texts = outputs["outputs"].reshape(len(outputs["outputs"]), -1)
            scores = outputs["scores"].reshape(texts.shape)
            require_beams(n_best, texts.shape[1])
            translations += [
                Translation.of_beams([text.decode() for text in row], beams)
                for row, beams in zip(texts, scores.tolist(), strict=True)
            ]
        if distinct:
            translations = [found.distinct() for found in translations]
        return [found.best(n_best) for found in translations]

    def score(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        target_language: str = "",
    ) -> list[float]:
        """Return the log-probability of a given translation of each source."""
        sources, targets = require_pairs(sources, targets)
        sources = self._client.add_tags(sources, target_language)
        return [
            score
            for outputs in self._run("score", sources, targets)
            for score in outputs["scores"].tolist()
        ]

    def attention(self, line: str, target_language: str = "") -> AttentionTrace:
        """Translate a line, and return the cross-attention weights.

        They are the mean of the heads, as one head: [layers, 1, T, L].
        """
        lines = require_lines([line])
        (line,) = self._client.add_tags(lines, target_language)
        (outputs,) = self._run("attention", [line])
        source, target = (
            [piece.decode() for piece in outputs[f"{side}_pieces"][0]]
            for side in ("source", "target")
        )
        weights = AttentionWeights(
            encoder=None, decoder=None, cross=outputs["weights"][0][:, None]
        )
        (text,) = outputs["outputs"]
        return AttentionTrace(line, text.decode(), source, target, weights)

    def _run(self, signature, *columns):
        """Yield the outputs of batches of rows."""
        rows = list(zip(*columns, strict=True))
        texts = [" ".join(row) for row in rows]
        done = 0
        for batch in limits.split(texts, limits.Limits()):
            part = rows[done : done + len(batch)]
            yield self._client.run(signature, *zip(*part, strict=True))
            done += len(batch)


def require_beams(n_best: int, beam_size: int) -> None:
    """Require that a search has `n_best` outputs."""
    if not 1 <= n_best <= beam_size:
        raise errors.UserError(
            f"n_best must be from 1 to beam_size={beam_size}; got {n_best}. "
            "Say beam_size=…, too, or export with more beams."
        )


def require_lines(lines: Iterable[str]) -> list[str]:
    """Return lines as a list; refuse one string, and what is no string."""
    if isinstance(lines, str):
        raise errors.UserError(
            f"Expected a list of lines; got the string {lines[:80]!r}. Write "
            "it as a list of one line."
        )
    found = list(lines)
    parallel_files.require_text(found)
    return found


def require_pairs(
    sources: Iterable[str], targets: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return sources and targets as lists; refuse other numbers of targets."""
    pairs = require_lines(sources), require_lines(targets)
    counts = tuple(map(len, pairs))
    if counts[0] != counts[1]:
        raise errors.UserError(
            f"Each source needs a target; got {counts[0]:,} sources and "
            f"{counts[1]:,} targets."
        )
    return pairs


Path = str | pathlib.Path
_MAX_SEARCHES = 4  # settings of searches whose graphs a model keeps


class Model:
    """Trained model of a run."""

    def __init__(self, run: Run, checkpoint_path: Checkpoints = None):
        """Load the weights.

        Args:
            run: result of Run.open().
            checkpoint_path: argument of Run.checkpoints().
        """
        self.run = run
        self._checkpoints = run.checkpoints(checkpoint_path)
        self._models = run.models(self._checkpoints)
        # Each traces its search once, and holds copies of some weights.
        self._translator = functools.lru_cache(maxsize=_MAX_SEARCHES)(
            functools.partial(Translator, self._models, run.vocabularies)
        )

    def __repr__(self) -> str:
        names = ", ".join(checkpoint_files.names(self._checkpoints))
        return f"<Model of {self.run.output_dir}: {names}>"

    def translate(
        self,
        lines: Iterable[str],
        n_best: int = 1,
        target_language: str = "",
        **search: Any,
    ) -> list[Translation]:
        """Translate lines.

        Args:
            lines: one sentence each.
            n_best: translations of each line, at most `beam_size`.
            target_language: of a many-to-many model; "": each line begins with
                a tag such as <2de>.
            **search: fields of DecodeHParams, such as beam_size=8; the others
                are those of the problem. With distinct=True, the n best have
                different texts.

        Returns:
            The translations of each line, best first.

        Raises:
            UserError: a setting is unknown or wrong, or a line is longer than
                max_input_length and long_inputs is "refuse".
        """
        lines = require_lines(lines)
        source, _ = self._normalizers(target_language)
        translator = self._translator(
            self._search(search | {"return_beams": n_best > 1}, n_best)
        )
        translations = list(translator.translate(map(source, lines)))
        if translator.refused:
            raise errors.UserError(translator.refused_summary())
        return [found.best(n_best) for found in translations]

    def score(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        target_language: str = "",
    ) -> list[float]:
        """Return the log-probability of a given translation of each source."""
        source, target = self._normalizers(target_language)
        sources, targets = require_pairs(sources, targets)
        pairs = zip(map(source, sources), map(target, targets), strict=True)
        translator = self._translator(self.run.search)
        return [score.total for score in translator.score(pairs)]

    def attention(
        self, line: str, target_language: str = "", **search: Any
    ) -> AttentionTrace:
        """Translate a line, and return the attention weights.

        Raises:
            UserError: the line is blank or too long, or the model has no
                attention.
        """
        tracer = AttentionTracer(
            self._models[0], self.run.vocabularies, self._search(search)
        )
        source, _ = self._normalizers(target_language)
        return tracer.trace(source(*require_lines([line])))

    def evaluate(
        self, test_set: str = "test", **settings: Any
    ) -> evaluation.Evaluation:
        """Translate a test set and score it; the run stores both.

        Args:
            test_set: a split of the problem, or a test set of sacreBLEU.
            **settings: other arguments of evaluation.evaluate().
        """
        return evaluation.evaluate(
            self.run,
            test_set,
            checkpoint_path=self._checkpoints,
            **settings,
        )

    def export(
        self, export_dir: Path | None = None, **settings: Any
    ) -> pathlib.Path:
        """Export the model for TensorFlow Serving, and return its folder.

        Args:
            export_dir: folder of versions; None: `export` in the run.
            **settings: other arguments of exporting.write().
        """
        return exporting.write(
            self.run,
            export_dir,
            checkpoint_path=self._checkpoints,
            **settings,
        )

    def _normalizers(self, target_language):
        return self.run.problem.toward(target_language).normalizers

    def _search(self, changes, n_best=1):
        hparams = fields.override(self.run.search, changes)
        require_beams(n_best, hparams.beam_size)
        return hparams


def load(path: Path, usr_dir: Path | None = None) -> Model | ExportedModel:
    """Load a model from a run, a checkpoint or an export.

    Args:
        path: folder of a run or of an export, or a checkpoint such as
            RUN/checkpoints/ckpt-1500; several, comma-separated, make an
            ensemble. Any of them may be a URL, s3:// or gs://.
        usr_dir: folder of your own definitions; an export needs none.

    Raises:
        UserError: there is no model, or it is damaged.
    """
    folder = storage.local_path(path)
    run_dir, checkpoint_path = folder, None
    if names := storage.names(folder):
        is_run = run_json.RUN in names
        open_folder = (
            checkpoint_files.open_folder
            if is_run
            else version_folders.open_folder
        )
        open_folder(folder)
    if not (folder / run_json.RUN).exists():
        if version_folders.is_saved_model(folder) or (
            folder.is_dir() and version_folders.list_versions(folder)
        ):
            return ExportedModel(folder)
        checkpoint_path = str(path)
        first = storage.local_path(files.split_paths(checkpoint_path)[0])
        run_dir = checkpoint_files.open_folder(first.parent.parent)
    if not (run_dir / run_json.RUN).exists():
        raise errors.UserError(
            f"There is no model in {storage.name_of(folder)}: it has neither "
            f"{run_json.RUN}, as a run, nor versions, as an export, and is "
            "not a checkpoint in a run (RUN/checkpoints/ckpt-1500)."
        )
    registry.load_definitions(usr_dir)
    return Model(Run.open(run_dir), checkpoint_path)


def train(
    problem: str | Problem,
    hparams_set: str,
    output_dir: Path,
    *,
    problem_args: Mapping[str, Any] | None = None,
    hparams: Mapping[str, Any] | None = None,
    usr_dir: Path | None = None,
    data_dir: Path = job.Data.data_dir,
    raw_dir: str | None = None,
    **options: Any,
) -> Model:
    """Train a model, or resume its training, and load it.

    Args:
        problem: a registered name, or a result of build_problem().
        hparams_set: a registered name.
        output_dir: folder of the run.
        problem_args: arguments of the problem.
        hparams: values that differ from the set's.
        usr_dir: folder of your own definitions.
        data_dir: folder of generated data.
        raw_dir: folder of raw files; None: download them.
        **options: fields of training.options.Options, such as train_steps=500.

    Raises:
        UserError: a setting does not fit, or the folder holds another run.
        KeyboardInterrupt: after Ctrl-C, when the last step is saved.
    """
    registry.load_definitions(usr_dir)
    fields.check_keys(Options, options)
    if isinstance(problem, str):
        problem = build_problem(problem, problem_args or {})
    status = job.train(
        problem,
        fields.override(registry.build_hparams(hparams_set), hparams or {}),
        output_dir,
        Options(**options),
        job.Data(data_dir, raw_dir),
        hparams_set,
    )
    if status == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if status:
        raise SystemExit(status)
    return Model(Run.open(output_dir))
