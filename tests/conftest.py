"""Shared by all tests: where external data lies, and no environment of the user's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A deadline would fail tests on a busy machine.
settings.register_profile("harness", deadline=None)
settings.load_profile("harness")


@pytest.fixture(scope="session")
def harness_data() -> Path:
    """The folder of external data sets; skips where there is none."""
    folder = os.environ.get("HARNESS_DATA")
    if not folder:
        pytest.skip("HARNESS_DATA is not set")
    if not Path(folder).is_dir():
        pytest.skip(f"HARNESS_DATA={folder} is not a folder")
    return Path(folder)


@pytest.fixture
def write_config(tmp_path: Path):
    """Write a variants.yaml of the given text and return its path."""

    def write(text: str, name: str = "variants.yaml") -> Path:
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return file

    return write
