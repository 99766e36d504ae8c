"""SentencePiece's vocabularies: byte pair encoding and the unigram model.

Byte fallback spells what the vocabulary lacks in bytes, so no text is unknown;
SentencePiece needs an id for unknown text all the same, which is 2.

Text is normalised by SentencePiece's default rule, nmt_nfkc: "½" is read and
written as "1⁄2", "…" as "...", and any space as a plain one.
"""

import io

import sentencepiece

from t2t_repro import errors
from t2t_repro.text.vocabulary import EOS, PAD, Vocabulary

_UNKNOWN = 2
_LEARN_IT = (
    "Learn it with --byte_fallback=true --pad_id=0 --eos_id=1 --unk_id=2 "
    "--bos_id=-1."
)


class SentencePiece(Vocabulary):
    """A vocabulary file of SentencePiece, of any of its algorithms."""

    algorithm = ""  # SentencePiece's model_type
    graph_class = "t2t_repro.serving.sentence_piece_graph.SentencePieceGraph"
    max_line_length = 4192  # bytes, SentencePiece's max_sentence_length

    def __init__(self, model: bytes):
        """Parse a serialised SentencePiece model.

        Raises:
            UserError: not a model, PAD and EOS are not 0 and 1, or it has no
                pieces for bytes.
        """
        super().__init__(model)
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        # ValueError: its message about a damaged one is not always UTF-8.
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
    def learn(cls, lines, vocab_size, split_by_unicode_script=True):
        """Learn a vocabulary of exactly `vocab_size` ids."""
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.Train(
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type=cls.algorithm,
                vocab_size=vocab_size,
                pad_id=PAD,
                eos_id=EOS,
                unk_id=_UNKNOWN,
                bos_id=-1,
                byte_fallback=True,
                split_by_unicode_script=split_by_unicode_script,
                max_sentence_length=cls.max_line_length,
                minloglevel=2,  # errors only: its progress goes to stderr
            )
        except (RuntimeError, ValueError) as error:  # ValueError: no 32 bits
            raise errors.UserError(
                f"Cannot learn a vocabulary of {vocab_size} subwords from this "
                f"text: {_reason(error)}. (Of vocab_size, 256 are bytes, 3 are "
                "special, and each character of the text is one; most of the "
                "rest are pieces that come again in it.)"
            ) from error
        return cls(model.getvalue())

    @property
    def size(self):
        return self._processor.GetPieceSize()

    @property
    def unknown(self):
        return self._processor.unk_id()

    def encode(self, lines):
        return self._processor.Encode(list(lines), add_eos=True, num_threads=1)

    def join(self, rows):
        return self._processor.Decode(rows) if rows else []  # "" for []

    def pieces(self, ids):
        return self._processor.IdToPiece(list(ids))


class Bpe(SentencePiece):
    """Byte pair encoding: the pieces that most frequent pairs merge into."""

    algorithm = "bpe"


class Unigram(SentencePiece):
    """Unigram model: the pieces under which the text is likeliest."""

    algorithm = "unigram"


def _reason(error):
    """Return why SentencePiece cannot learn.

    It says "INTERNAL: src/trainer_interface.cc(744) [(condition)] Reason."
    """
    reason = str(error).rpartition("] ")[2].rstrip(".") or str(error)
    return "It is empty" if "sentences_.empty()" in reason else reason
