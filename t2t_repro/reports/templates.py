"""Templates of pages and drawings: the files *.j2 beside this module."""

from collections.abc import Callable, Mapping
from typing import Any

import jinja2


def render(
    name: str, filters: Mapping[str, Callable] | None = None, /, **values: Any
) -> str:
    """Render a template. Values are escaped; a missing one is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("t2t_repro.reports", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= filters or {}
    return environment.get_template(name).render(**values)
