"""What docs/hparams.md shows as definitions of a user, for tests."""

import re

from processes import ROOT


def register(module):
    """Execute a module of the page, which registers what it defines."""
    page = (ROOT / "docs" / "hparams.md").read_text("utf-8")
    block = rf"```python\n# definitions/{module}.py\n(.*?)```"
    (code,) = re.findall(block, page, re.S)
    exec(code, {"__name__": module})
