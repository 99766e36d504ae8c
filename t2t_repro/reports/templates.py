"""Templates of pages and pictures: what lies beside this module as *.j2."""

from collections.abc import Callable, Mapping

import jinja2


def render(
    name: str, filters: Mapping[str, Callable] | None = None, /, **values
) -> str:
    """A template's text; values are escaped, and one that is missing raises."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("t2t_repro.reports", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= filters or {}
    return environment.get_template(name).render(**values)
