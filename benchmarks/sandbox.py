"""Every attack on the sandbox, and what it costs a program: ``python -m benchmarks.sandbox``.

Prints a table and, as its last line, ``{"benchmark", "figures", "goals", "holds"}``; exits 0 if every attack failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from rich.console import Console
from rich.table import Table

from benchmarks.attacks import ATTACKS, fault, host, launch
from benchmarks.ratios import paired_ratio
from harness import sandbox

ROUNDS = 20
PROGRAM = "print(sum(range(1000)))"


def cost() -> dict[str, object]:
    """Seconds of a small Python program in the sandbox over those without it, in turn."""
    inside, outside = [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        sandbox.run(["/usr/bin/python3", "program.py"], {"program.py": PROGRAM})
        between = time.perf_counter()
        subprocess.run(["/usr/bin/python3", "-c", PROGRAM], check=True, capture_output=True)
        inside.append(between - began)
        outside.append(time.perf_counter() - between)
    ordered, bare = sorted(inside), sorted(outside)
    return {
        "seconds_median": ordered[ROUNDS // 2],
        "bare_seconds_median": bare[ROUNDS // 2],
        "ratio": paired_ratio(inside, outside),
    }


def main() -> int:
    """Run all attacks; 0 if all failed, 1 if one got through, 2 where nothing can be run."""
    console = Console(width=110)
    if (why := sandbox.refusal()) is not None:
        Console(stderr=True).print(why, highlight=False)
        print(json.dumps({"benchmark": "sandbox", "figures": {}, "goals": {"breaches": 0}, "holds": False}))
        return 2
    table = Table("attack", "ended by", "seconds", "processes left", "outcome")
    breaches = []
    with host() as place:
        for attack in ATTACKS:
            ran = launch(attack, place)
            found = fault(attack, ran, place)
            breaches += [f"{attack.name}: {found}"] if found else []
            left = "none" if ran.gone else "SOME"
            table.add_row(attack.name, ran.limit or f"itself ({ran.code})", f"{ran.seconds:.2f}", left, found or "held")
    console.print(table)
    figures = {"attacks": len(ATTACKS), "held": len(ATTACKS) - len(breaches), "breaches": breaches, "cost": cost()}
    holds = not breaches
    print(json.dumps({"benchmark": "sandbox", "figures": figures, "goals": {"breaches": 0}, "holds": holds}))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
