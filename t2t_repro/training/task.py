"""Task of a training run: the settings of a model, and what it learns from."""

from collections.abc import Mapping
from typing import NamedTuple

from t2t_repro.data.batch_plan import Plan
from t2t_repro.data.corpus import Corpus
from t2t_repro.data.subword_sampling import SubwordSampler
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.metrics.metric import Suite
from t2t_repro.text.vocabulary_pair import Vocabularies


class Task(NamedTuple):
    """Settings of a model and the data that it learns from."""

    hparams: HParams
    vocabularies: Vocabularies
    plan: Plan  # batches of corpora["train"]
    corpora: Mapping[str, Corpus]  # "train" and "validation"
    search: DecodeHParams = DecodeHParams()  # of the validation sample
    suite: Suite = Suite()  # the problem's metrics
    sampler: SubwordSampler | None = None  # of training text
    # {"en-de": validation pairs} of a many-to-many problem, in order.
    directions: Mapping[str, int] = {}
