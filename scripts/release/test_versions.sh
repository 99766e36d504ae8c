#!/usr/bin/env bash
# Runs the tests with the lowest and with the highest versions of all packages
# that pyproject.toml admits. Run it before a release, and after changing a bound there.
#
#     scripts/release/test_versions.sh FOLDER [arguments of pytest]
set -euo pipefail
source "${BASH_SOURCE%/*}/../reproduce/functions.sh"
folder=$1
shift

# uv can resolve to the lowest versions; pip cannot.
python3 -m venv "$folder/uv"
"$folder/uv/bin/pip" install --quiet uv

for versions in lowest-direct highest; do
  bin="$folder/$versions/bin"
  python3 -m venv "$folder/$versions"
  "$folder/uv/bin/uv" pip install --quiet --python "$bin/python" \
    --resolution "$versions" --editable '.[dev]'
  say "$versions: $("$bin/pip" list --format=freeze |
    grep -E '^(tensorflow|keras|numpy|jax)(-text)?==' | xargs)"
  touch "$folder/$versions/installed"  # or make would install other versions
  PYTEST_ADDOPTS=${*@Q} make test VENV="$folder/$versions"
done
