"""Trains a model: generates data that is missing, goes on where it stopped.

python -m t2t_repro.trainer --problem=wmt14_ende --hparams_set=big
"""

from absl import flags

from t2t_repro import common_flags
from t2t_repro.training import job, options

common_flags.define_datagen_flags()
common_flags.define_fields(options.Options)
flags.adopt_module_key_flags(common_flags)


def main():
    return job.train(
        common_flags.problem(),
        common_flags.hparams(),
        common_flags.output_dir(),
        common_flags.values_of(options.Options),
        job.Data(
            common_flags.data_dir(),
            common_flags.raw_dir(),
            common_flags.num_workers(),
            common_flags.verify(),
        ),
        common_flags.hparams_set(),
    )


if __name__ == "__main__":
    common_flags.run(main)
