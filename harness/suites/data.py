"""Finds the data of the built-in suites. Knows no suite.

Installed, they lie in the package as ``harness/_suites``; in a source checkout, beside it as ``suites``.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from harness.errors import InputError
from harness.suite_settings import SUITES


def suite_file(name: str) -> Traversable:
    """A built-in suite's file or folder.

    Args:
        name: Path under ``suites``, with forward slashes, e.g. ``"fidelity/text.txt"``.

    Raises:
        InputError: If there is no such file in this installation.
    """
    package = files("harness")
    for root in (package / "_suites", package / ".." / "suites"):
        found = root.joinpath(*name.split("/"))
        if found.is_file() or found.is_dir():
            return found
    raise InputError(f"suites/{name}: not in this installation; reinstall harness, or run it from its checkout")


@cache
def suite_yaml(name: str) -> Any:
    """The parsed ``suite.yaml`` of a built-in suite. Shared between callers: read it, never change it."""
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(suite_file(f"{name}/suite.yaml").read_text(encoding="utf-8"))


def suites_digest() -> str:
    """sha256 (hex) of every built-in suite's prompts and texts; what only describes them (``.md``) does not count."""
    digest = hashlib.sha256()
    for name in SUITES:
        for file in sorted(suite_file(name).iterdir(), key=lambda file: file.name):
            if not file.name.endswith(".md"):
                digest.update(f"{name}/{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
