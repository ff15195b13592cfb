"""Where the time goes: a sampled profile of another benchmark, native frames included, as a table and a flame graph.

``python -m benchmarks.where --inside Scorer.run benchmarks.scoring --subjects 1`` runs the benchmark under py-spy
(``pip install py-spy``) and prints, of the time below the function named, the share inside llama.cpp's decode by the
kernel at work, and the share of everything else by the Python function. ``--flame FILE.svg`` draws it as well.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

ENGINE = ("llama_decode", "llama_synchronize")
Stack = tuple[list[str], int]


def stacks(raw: str) -> list[Stack]:
    """py-spy's raw lines: frames from the outermost on, and how often the stack was seen.

    >>> stacks("main (a.py:1);f (b.so) 3")
    [(['main (a.py:1)', 'f (b.so)'], 3)]
    """
    found = []
    for line in raw.splitlines():
        frames, _, count = line.rpartition(" ")
        found.append((frames.split(";"), int(count)))
    return found


def name(frame: str) -> str:
    """A frame's function, without the place and a C++ signature.

    >>> name("Context.decode (harness/library.py:148)"), name("0x7f12 (libc.so.6)")
    ('Context.decode', 'libc.so.6')
    """
    function, _, place = frame.rpartition(" (")
    return place.rstrip(")") if function.startswith("0x") else re.split(r"[(<]", function)[0]


def shares(found: Iterable[Stack], inside: str) -> tuple[Counter[str], Counter[str], int]:
    """Samples in the engine by kernel and outside of it by Python function, below the function ``inside``.

    Returns:
        ``(engine, rest, samples)``.
    """
    engine: Counter[str] = Counter()
    rest: Counter[str] = Counter()
    for frames, count in found:
        names = [name(frame) for frame in frames]
        if inside not in names:
            continue
        below = frames[names.index(inside) :]
        if any(name(frame) in ENGINE for frame in below):
            engine[name(below[-1])] += count
        else:
            rest[next(name(frame) for frame in reversed(below) if ".py:" in frame)] += count
    return engine, rest, engine.total() + rest.total()


def record(command: list[str], form: str, out: Path) -> None:
    """Run the command under py-spy; its own output goes to stderr."""
    spy = [sys.executable, "-m", "py_spy"] if not _on_path() else ["py-spy"]
    line = [*spy, "record", "--native", "--rate", "200", "--format", form, "--output", str(out), "--", *command]
    subprocess.run(line, check=False, stdout=sys.stderr)
    if not out.exists():
        raise SystemExit("py-spy made no profile; its message is above (it needs ptrace, and pip install py-spy)")


def _on_path() -> bool:
    from shutil import which

    return which("py-spy") is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inside", default="Scorer.run", help="Python function that is looked into")
    parser.add_argument("--flame", type=Path, help="draw a flame graph too: runs the benchmark once more")
    parser.add_argument("module")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    command = [sys.executable, "-m", args.module, *args.rest]
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "profile.raw"
        record(command, "raw", raw)
        engine, rest, n = shares(stacks(raw.read_text()), args.inside)
    if args.flame:
        record(command, "flamegraph", args.flame)
    if not n:
        raise SystemExit(f"{args.inside} was never seen at work; name a function that the benchmark calls")
    table = Table("where", "share", title=f"{args.module}: time below {args.inside}, n={n} samples")
    table.add_row("[bold]llama.cpp[/bold]", f"{engine.total() / n:.1%}")
    for kernel, count in engine.most_common(8):
        table.add_row(f"  {kernel}", f"{count / n:.1%}")
    table.add_row("[bold]everything else[/bold]", f"{rest.total() / n:.1%}")
    for function, count in rest.most_common(8):
        table.add_row(f"  {function}", f"{count / n:.1%}")
    Console(width=110).print(table)
    figures = {"samples": n, "engine_share": engine.total() / n}
    goals = {"engine_share": 0.95}
    holds = figures["engine_share"] >= goals["engine_share"]
    print(json.dumps({"benchmark": "where", "figures": figures, "goals": goals, "holds": holds}))
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
