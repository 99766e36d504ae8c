"""SentencePiece models as other programs learn them, and their pieces."""

import io

import sentencepiece


def learn(lines, **settings):
    """Return the bytes of a model that SentencePiece's trainer learns."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(lines),
        model_writer=written,
        hard_vocab_limit=False,
        minloglevel=2,
        **settings,
    )
    return written.getvalue()


def pieces(model):
    """Return the pieces of a model by their ids."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.IdToPiece(i) for i in range(len(processor))]
