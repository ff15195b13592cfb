"""The report's HTML: one file that asks nothing of any other host. Decides nothing; prints the model."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

from harness.report.model import ReportModel, build
from harness.report.text import Json

if TYPE_CHECKING:
    from jinja2 import Environment

# Inside a script element only these could end it or open a comment, or break a line of old JavaScript.
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def render(results: Json, series: Json) -> str:
    """The report of one run as the text of an HTML file.

    Pure: the same input gives the same text. The headline, the front and all tables are there without JavaScript;
    the charts are drawn by plotly, which travels inside the page, compressed.

    Args:
        results: The content of results.json.
        series: Series for plots; any part may be absent.
    """
    return _page(build(results, series))


def _page(model: ReportModel) -> str:
    from markupsafe import Markup

    env = _environment()
    script = _asset(env, "page.js")
    charts = {figure.id: figure.spec for figure in model.figures}
    source, packed = _plotly() if charts else ("", "")
    hashes = " ".join(f"'sha256-{_sha256(text)}'" for text in (script, source) if text)
    return env.get_template("page.html.j2").render(
        m=model,
        policy=f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        style=Markup(_asset(env, "page.css")),
        script=Markup(script),
        charts=Markup(_json(charts)),
        plotly=Markup(packed),
    )


@cache
def _environment() -> Environment:
    """The templates, compiled once."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    def breakable(text: str) -> Markup:
        """A name that may wrap after a plus."""
        return Markup(str(escape(text)).replace("+", "+<wbr>"))

    loader = PackageLoader("harness.report")
    env = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    env.filters["breakable"] = breakable
    return env


def _asset(env: Environment, name: str) -> str:
    """A style sheet or script of the package, as it will stand in the page."""
    assert env.loader is not None
    return env.loader.get_source(env, name)[0].strip()


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(value: Any) -> str:
    """Strict JSON that cannot leave its script element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return "".join(_UNSAFE.get(char, char) for char in text)


@cache
def _plotly() -> tuple[str, str]:
    """plotly.js as it will run, and the same deflated and in base64 as it travels (a third of the size)."""
    from plotly.offline import get_plotlyjs

    source = str(get_plotlyjs())
    return source, base64.b64encode(zlib.compress(source.encode(), 9)).decode()
