"""Programs in new processes, as a user starts them."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
LIMIT = 1_800  # seconds; a program that takes longer hangs
JAX_ON_CPU = {
    "JAX_PLATFORMS": "cpu",
    # What is compiled runs a few times: a quick compiler pays.
    "XLA_FLAGS": "--xla_backend_optimization_level=0 "
    "--xla_llvm_disable_expensive_passes=true",
}


def run_program(*command, env=None, **settings):
    """Run a program in the folder of the project; return its result as text.

    `env` is added to the environment. Settings are those of subprocess.run().
    """
    return subprocess.run(
        [*map(str, command)],
        env=os.environ | (env or {}),
        capture_output=True,
        encoding="utf-8",
        **{"cwd": ROOT, "timeout": LIMIT} | settings,
    )


def run_python(*arguments, **settings):
    """Run this Python in a new process: see run_program()."""
    return run_program(sys.executable, *arguments, **settings)
