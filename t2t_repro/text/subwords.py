"""Subwords: a SentencePiece vocabulary shared by both languages.

PAD is 0 and EOS is 1; there is no BOS. Byte fallback spells what the
vocabulary lacks in bytes, so no text is unknown; SentencePiece wants an id
for unknown text all the same, and 2 is it.

Text is normalised by SentencePiece's default rule, nmt_nfkc: "½" is read and
written as "1⁄2", "…" as "...", and any space as a plain one.
"""

import hashlib
import io
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
import sentencepiece

from t2t_repro import errors

PAD = 0
EOS = 1
LONGEST_LEARNED = 4192  # bytes, SentencePiece's max_sentence_length
_LEARN_IT = (
    "Learn it with --byte_fallback=true --pad_id=0 --eos_id=1 --unk_id=2 "
    "--bos_id=-1."
)
# A model may spell in bytes what ends a line, or a field of it.
_SPACES = str.maketrans("\t\n\r", "   ")


class Subwords:
    """Encodes text to ids that end in EOS, and back."""

    def __init__(self, model: bytes):
        """Takes a serialised SentencePiece model.

        Raises:
            UserError: not a model, PAD and EOS are not 0 and 1, or what it
                has no piece for would be unknown.
        """
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        # ValueError: what it says of a damaged one is not always UTF-8.
        except (RuntimeError, ValueError) as error:
            raise errors.UserError(
                f"This is not a SentencePiece model ({len(model)} bytes): "
                f"{error}."
            ) from error
        special = (self._processor.pad_id(), self._processor.eos_id())
        if special != (PAD, EOS):
            raise errors.UserError(
                f"A vocabulary must have PAD {PAD} and EOS {EOS}; got "
                f"{special[0]} and {special[1]}. {_LEARN_IT}"
            )
        if not any(map(self._processor.IsByte, range(self.size))):
            raise errors.UserError(
                "A vocabulary must spell in bytes what it has no piece for; "
                f"this one has none of its {self.size:,} for them. {_LEARN_IT}"
            )

    @classmethod
    def load(cls, path):
        """Reads a vocabulary file; a bad one is named."""
        path = pathlib.Path(path)
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise errors.UserError(
                f"Cannot read the vocabulary {path}: {error.strerror}."
            ) from error
        except errors.UserError as error:
            raise errors.UserError(
                f"Cannot use the vocabulary {path}. {error}"
            ) from error

    @property
    def size(self) -> int:
        """V."""
        return self._processor.GetPieceSize()

    @property
    def sha256(self) -> str:
        """Tells this vocabulary from any other."""
        return hashlib.sha256(self.model).hexdigest()

    def encode(
        self, lines: Sequence[str], num_threads: int = 1
    ) -> list[list[int]]:
        """Lines -> ids of each, EOS last."""
        return self._processor.Encode(
            list(lines), add_eos=True, num_threads=num_threads
        )

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Ids of each line, up to the first EOS -> lines; PAD is dropped.

        What comes is one line: tabs and line ends that were spelled in bytes
        are spaces.
        """
        rows = [_text_ids(row) for row in ids]
        lines = self._processor.Decode(rows) if rows else []  # "" for []
        return [line.translate(_SPACES) for line in lines]

    @property
    def unknown(self) -> int:
        """The id that SentencePiece wants for unknown text."""
        return self._processor.unk_id()

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Ids of a line -> how the vocabulary spells each, EOS too."""
        return self._processor.IdToPiece(list(ids))


def _text_ids(row):
    """[5, 6, 1, 0, 0] -> [5, 6]."""
    ids = [int(i) for i in row]
    if EOS in ids:
        ids = ids[: ids.index(EOS)]
    return [i for i in ids if i != PAD]


def learn(
    lines: Iterable[str],
    vocab_size: int,
    split_by_unicode_script: bool = True,
) -> Subwords:
    """Learns a BPE vocabulary of exactly `vocab_size` ids from `lines`.

    The same lines give the same vocabulary.

    Args:
        lines: text.
        vocab_size: V.
        split_by_unicode_script: False: a subword may have both letters and
            signs, as "(NP" has.

    Raises:
        UserError: too little text for a vocabulary of this size.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            pad_id=PAD,
            eos_id=EOS,
            unk_id=2,
            bos_id=-1,
            byte_fallback=True,
            split_by_unicode_script=split_by_unicode_script,
            max_sentence_length=LONGEST_LEARNED,
            minloglevel=2,  # errors only: its progress goes to stderr
        )
    except (RuntimeError, ValueError) as error:  # ValueError: no 32 bits
        # "INTERNAL: src/trainer_interface.cc(744) [(condition)] Reason."
        reason = str(error).rpartition("] ")[2].rstrip(".") or str(error)
        if "sentences_.empty()" in reason:
            reason = "It is empty"
        raise errors.UserError(
            f"Cannot learn a vocabulary of {vocab_size} subwords from this "
            f"text: {reason}. (Of vocab_size, 256 are bytes, 3 are special, "
            "and each character of the text is one; most of the rest are "
            "pieces that come again in it.)"
        ) from error
    return Subwords(model.getvalue())


class Sample:
    """At most `size` of the lines offered, each as likely as any other.

    One pass, and the memory of what is kept: Vitter's reservoir, algorithm R.
    Lines so long that SentencePiece would not learn from them are passed over.
    """

    def __init__(self, size: int, seed: int = 0):
        self.lines: list[str] = []
        self.offered = 0
        self._size = size
        self._random = np.random.Generator(np.random.Philox(key=seed))

    def offer(self, lines: Sequence[str]):
        """Draws from the next lines."""
        lines = [line for line in lines if len(line) <= LONGEST_LEARNED]
        numbers = self.offered + np.arange(len(lines))
        places = self._random.integers(numbers + 1)
        self.offered += len(lines)
        for line, place in zip(lines, places.tolist(), strict=True):
            if len(self.lines) < self._size:
                self.lines.append(line)
            elif place < self._size:
                self.lines[place] = line
