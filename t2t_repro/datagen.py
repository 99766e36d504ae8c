"""Makes the data of a problem: vocabulary, encoded splits, manifest.

python -m t2t_repro.datagen --problem=multi30k_ende
"""

from absl import flags

from t2t_repro import common_flags, prepare

common_flags.define_datagen_flags()
flags.adopt_module_key_flags(common_flags)


def main():
    prepare.prepare(
        common_flags.problem(),
        common_flags.data_dir(),
        common_flags.raw_dir(),
        common_flags.num_workers(),
        common_flags.verify(),
    )


if __name__ == "__main__":
    common_flags.run(main)
