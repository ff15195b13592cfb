"""The last lines of a sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.run.sweep import _verdict


def test_the_verdict_names_a_variant_whose_speculation_changed_the_text(tmp_path: Path) -> None:
    audit: dict[str, Any] = {"value": 1.0, "reasons": []}
    results: dict[str, Any] = {
        "preset": "quick",
        "decision": {"reason": "Deploy f16."},
        "quiet": {"sentence": "The machine was quiet."},
        "variants": [{"name": "f16+draft", "metrics": {"audit_identical": audit}}],
    }
    file = tmp_path / "results.json"
    file.write_text(json.dumps(results))
    assert _verdict(tmp_path) == "Deploy f16.\nThe machine was quiet."
    audit["reasons"] = ["lossy_speculation"]
    results["preset"] = "smoke"
    file.write_text(json.dumps(results))
    assert _verdict(tmp_path).splitlines() == [
        "Provisional, from a smoke run. Deploy f16.",
        "The machine was quiet.",
        "FAULT: f16+draft: speculation changed the text by more than rounding can; do not deploy.",
    ]
