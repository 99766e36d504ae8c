"""Makes the data of a problem: vocabulary, encoded splits, manifest.

python -m t2t_repro.datagen --problem=multi30k_ende
"""

from absl import flags

from t2t_repro import common_flags, prepare
from t2t_repro.data import manifest

common_flags.define_raw_data_flags()
_VERIFY = flags.DEFINE_bool(
    "verify", False, "Compare every file of existing data with its checksum."
)
flags.adopt_module_key_flags(common_flags)


def main():
    problem = common_flags.problem()
    folder = prepare.prepare(
        problem,
        common_flags.data_dir(),
        common_flags.raw_dir(),
        common_flags.num_workers(),
    )
    if _VERIFY.value:
        manifest.verify(folder)
        print(f"Every file in {folder} is as it was written.")


if __name__ == "__main__":
    common_flags.run(main)
