"""The HTML file as a whole: well formed, closed to the outside, safe with hostile texts, the same every time."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest

from harness.report.page import render

VOID = {"meta", "link", "br", "wbr", "hr", "img", "input"}
HOSTILE = """</script><script>alert("x'1")</script><!--]]>`${a}&amp;"'"""


class Outline(HTMLParser):
    """Start tags in order, texts, attributes; fails on a tag that is not closed in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def text(self, *skip: str) -> str:
        return " ".join(" ".join(data for tag, data in self.texts if tag not in ("script", "style", *skip)).split())


def outline(page: str) -> Outline:
    parser = Outline()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def scripts(page: str) -> list[tuple[str, str]]:
    """Attributes and content of every script element."""
    return re.findall(r"<script([^>]*)>(.*?)</script>", page, flags=re.S)


def policy(page: str) -> str:
    found = [value for tag, name, value in outline(page).attributes if (tag, name) == ("meta", "content")]
    return next(value for value in found if value and value.startswith("default-src"))


def spoil(value: Any, names: set[str], suffix: str, key: str = "") -> Any:
    """Every free text of a run with ``suffix``; what the report reads as a key stays."""
    kept = {"objectives", "unit", "better", "reasons", "objective", "quality_key", "status", "kv", "speculate"}
    if isinstance(value, dict):
        return {k + suffix if k in names else k: spoil(v, names, suffix, k) for k, v in value.items()}
    if isinstance(value, list):
        return [spoil(item, names, suffix, key) for item in value]
    return value + suffix if isinstance(value, str) and key not in kept else value


def test_the_page_is_well_formed_and_says_the_verdict(results: Any, series: Any) -> None:
    page = outline(render(results, series))
    text = page.text()
    assert "Deploy q8_0" in text
    assert "125 ± 2 decode tokens/s, 1.33x the reference (f16)" in text
    assert page.tags.count("h1") == 1


def test_the_same_run_gives_the_same_page(results: Any, series: Any) -> None:
    again = json.loads(json.dumps(results)), json.loads(json.dumps(series))
    assert render(results, series) == render(*again)


def test_nothing_is_asked_of_another_host(results: Any, series: Any) -> None:
    page = render(results, series)
    assert not re.search(r"""(?:src|href|action|data|poster|srcset)\s*=\s*["']?\s*(?:https?:|//)""", page, flags=re.I)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|sendBeacon|\bimport\(|EventSource", page)
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(outline(page).tags)
    rules = dict(part.split(" ", 1) for part in policy(page).split("; "))
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    assert "unsafe" not in rules["script-src"]


def test_the_policy_admits_exactly_the_pages_own_scripts(results: Any, series: Any) -> None:
    page = render(results, series)
    by_attribute = {attributes.strip(): content for attributes, content in scripts(page)}
    plotly = zlib.decompress(base64.b64decode(by_attribute['type="text/plain" id="plotly"'])).decode()
    assert "plotly.js v" in plotly[:200]
    hashes = [base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in (by_attribute[""], plotly)]
    assert re.findall(r"'sha256-([^']+)'", policy(page)) == hashes


def test_hostile_texts_change_no_element(results: Any, series: Any) -> None:
    names = {v["name"] for v in results["variants"]}
    tame = "x" * len(HOSTILE)
    bad = render(spoil(results, names, HOSTILE), spoil(series, names, HOSTILE))
    good = render(spoil(results, names, tame), spoil(series, names, tame))
    attacked, calm = outline(bad), outline(good)
    assert attacked.tags == calm.tags
    assert [(tag, name) for tag, name, _ in attacked.attributes] == [(tag, name) for tag, name, _ in calm.attributes]
    assert f"q8_0{HOSTILE}" in attacked.text().replace(" ", "")
    assert len(scripts(bad)) == len(scripts(good)) == 3


def test_hostile_texts_stay_texts_in_the_charts(results: Any, series: Any) -> None:
    names = {v["name"] for v in results["variants"]}
    page = render(spoil(results, names, HOSTILE), spoil(series, names, HOSTILE))
    packed = next(content for attributes, content in scripts(page) if "charts" in attributes)
    assert "<" not in packed and ">" not in packed and "&" not in packed
    drawn = {trace["name"] for trace in json.loads(packed)["fig-ttft"]["data"]}
    assert 'f16&lt;/script&gt;&lt;script&gt;alert("x\'1")&lt;/script&gt;&lt;!--]]&gt;`${a}&amp;amp;"\'' in drawn


def test_a_missing_value_shows_a_dash_with_its_reason(results: Any, series: Any) -> None:
    page = render(results, series)
    cell = next(cell for cell in re.findall(r"<td.*?</td>", page, flags=re.S) if "not streamed" in cell)
    assert '<span class="v">—</span>' in cell
    assert 'title="TTFT: all text arrived in one read, so only the end-to-end time is valid"' in cell
    assert ">None<" not in page and ">nan<" not in page


def test_without_script_everything_but_the_charts_is_there(results: Any, series: Any) -> None:
    page = render(results, series)
    still = page[: page.index('<script type="application/json"')]
    assert still.count('<svg class="plot') == 4  # the front wide and narrow, and two views
    assert "TTFT by prompt length, one line per variant. At 2,048 tokens from" in still
    for heading in ("The front", "All variants", "Speculation", "Claims, checked here", "Conditions and validity"):
        assert f"<h2>{heading}</h2>" in still


def test_headings_descend_one_level_at_a_time(results: Any, series: Any) -> None:
    levels = [int(tag[1]) for tag in outline(render(results, series)).tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))


def test_tables_have_captions_and_scopes_and_images_have_words(results: Any, series: Any) -> None:
    page = render(results, series)
    tables = re.findall(r"<table.*?</table>", page, flags=re.S)
    assert len(tables) > 5
    assert all("<caption>" in table for table in tables)
    assert all("scope=" in cell for table in tables for cell in re.findall(r"<th\b[^>]*>", table))
    assert all("aria-label=" in tag for tag in re.findall(r"<[^>]*role=\"img\"[^>]*>", page))


def test_ids_are_unique_and_links_lead_somewhere(results: Any, series: Any) -> None:
    found = outline(render(results, series)).attributes
    ids = [value for _, name, value in found if name == "id"]
    assert len(ids) == len(set(ids))
    assert {value[1:] for tag, name, value in found if (tag, name) == ("a", "href") and value} <= set(ids)


def test_thirty_variants_stay_small(thirty: Any) -> None:
    assert len(render(*thirty).encode()) < 3_000_000


def test_an_empty_run_says_so() -> None:
    bare = {"run_id": "r", "variants": [], "fronts": [], "decision": {"choice": None, "reason": ""}}
    page = render(bare, {})
    assert "No variant qualifies" in outline(page).text()
    assert 'id="plotly"' not in page
    assert len(page) < 100_000


@pytest.mark.parametrize("gone", ["suites", "claims", "conditions", "machine", "fronts", "decision"])
def test_a_run_without_a_part_still_gives_a_page(results: Any, series: Any, gone: str) -> None:
    del results[gone]
    assert "All variants" in outline(render(results, series)).text()


def test_importing_the_page_imports_nothing_heavy() -> None:
    code = "import sys, harness.report.page; print({'plotly', 'jinja2', 'pandas', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
