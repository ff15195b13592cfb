"""MMLU's questions: where they come from, and which of them are asked. Knows no engine and no prompt."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.suites.data import suite_file

_logger = logging.getLogger(__name__)
# datasets and lm-eval draw bars of their own, one for every task; read when tqdm is first imported.
os.environ.setdefault("TQDM_DISABLE", "1")


@dataclass(frozen=True, slots=True)
class MmluData:
    """Where MMLU's questions come from.

    Attributes:
        kind: "hub" (cais/mmlu), "folder" (the same layout on disk) or "sample" (ours, not MMLU).
        path: Hub name, folder or file.
        label: What the score is called wherever it is shown.
    """

    kind: str
    path: str
    label: str

    @property
    def is_sample(self) -> bool:
        """Whether the score is of our own sample and not of MMLU."""
        return self.kind == "sample"


HUB = "cais/mmlu"


def find_mmlu(folder: str | None, environment: Mapping[str, str]) -> MmluData:
    """Choose the data: the folder given, then HARNESS_DATA, then the hub; our sample where none can be had.

    Raises:
        InputError: If a folder was given and holds no MMLU.
    """
    for source, base in (("--data", folder), ("HARNESS_DATA", environment.get("HARNESS_DATA"))):
        if not base:
            continue
        if (found := folder_in(base)) is not None:
            return MmluData("folder", str(found), "MMLU")
        if source == "--data":
            raise InputError(
                f"--data {base}: found no MMLU there; expected mmlu/cais_mmlu/all/*.parquet as in the hub's cais/mmlu"
            )
    if hub_reachable():
        return MmluData("hub", HUB, "MMLU")
    return MmluData("sample", str(suite_file("mmlu/sample.jsonl")), "MMLU-format sample (not MMLU)")


def folder_in(base: str) -> Path | None:
    """The folder in the layout of the hub's ``cais/mmlu`` in or below a folder of data; None where there is none."""
    candidates = (Path(base) / "mmlu" / "cais_mmlu", Path(base) / "cais_mmlu", Path(base))
    return next((found for found in candidates if (found / "all").is_dir()), None)


def hub_reachable(timeout_s: float = 3.0) -> bool:
    """Whether ``cais/mmlu`` can be had: from the hub's cache on this machine, or from the hub now."""
    from urllib.request import Request, urlopen

    from huggingface_hub import constants, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(HUB, "all/test-00000-of-00001.parquet", repo_type="dataset"), str):
        return True
    if constants.is_offline_mode():
        return False
    try:
        with urlopen(Request(f"{constants.ENDPOINT}/api/datasets/{HUB}", method="HEAD"), timeout=timeout_s):
            return True
    except OSError as error:
        _logger.info("%s is out of reach: %s", constants.ENDPOINT, error)
        return False


def load_mmlu(data: MmluData) -> tuple[dict[str, Any], str]:
    """Questions by subject, and a digest of them.

    Returns:
        ``({subject: datasets.DatasetDict with splits test and dev}, sha256)``.

    Raises:
        InputError: The folder or the hub's copy cannot be read, or holds something else.
    """
    import datasets

    datasets.disable_progress_bars()
    if data.is_sample:
        whole: Any = datasets.DatasetDict()
        rows = [json.loads(line) for line in Path(data.path).read_text(encoding="utf-8").split("\n") if line]
        for split in ("test", "dev"):
            whole[split] = datasets.Dataset.from_list([row for row in rows if row["split"] == split])
    else:
        whole = _dataset(data)
    digest = hashlib.sha256()
    by_subject: dict[str, dict[str, list[int]]] = {}
    for split in ("test", "dev"):
        for question, choices, answer in zip(
            whole[split]["question"], whole[split]["choices"], whole[split]["answer"], strict=True
        ):
            digest.update(json.dumps([question, list(choices), answer]).encode())
        for index, subject in enumerate(whole[split]["subject"]):
            by_subject.setdefault(subject, {"test": [], "dev": []})[split].append(index)
    parts = {
        subject: datasets.DatasetDict({split: whole[split].select(indices) for split, indices in splits.items()})
        for subject, splits in sorted(by_subject.items())
    }
    return parts, digest.hexdigest()


def _dataset(data: MmluData) -> Any:
    """MMLU from a folder or the hub."""
    import datasets

    try:
        whole = datasets.load_dataset(data.path, "all")
    except Exception as error:  # the library raises its own, pyarrow's, the hub client's and the system's errors
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{data.path}: cannot be read as MMLU ({reason}); expected the hub's cais/mmlu") from error
    for split in ("test", "dev"):
        missing = {"question", "choices", "answer", "subject"} - set(
            whole[split].column_names if split in whole else ()
        )
        if missing:
            raise InputError(
                f"{data.path}: no {', '.join(sorted(missing))} in split {split}; expected the hub's cais/mmlu"
            )
    return whole


def pick(sizes: Mapping[str, int], per_subject: int | None, seed: int) -> dict[str, list[int]]:
    """Balanced subset, the same for every variant.

    Args:
        sizes: Test questions of each subject.
        per_subject: How many of each, None for all.
        seed: Of the draw. A larger subset contains the smaller one of the same seed.

    Returns:
        ``{subject: sorted question numbers}``.

    >>> pick({"a": 3}, None, 0)
    {'a': [0, 1, 2]}
    """
    chosen = {}
    for subject, size in sizes.items():
        order = list(range(size))
        random.Random(f"{seed}/{subject}").shuffle(order)
        chosen[subject] = sorted(order if per_subject is None else order[:per_subject])
    return chosen
