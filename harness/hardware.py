"""Memory systems by name: bandwidth, size and where the figures come from. Reads a packaged table, measures nothing."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from harness.errors import HarnessError, InputError, one_line
from harness.settings import Model
from harness.yaml_tree import Refused, read

GIB = 1 << 30
MOST_DEVICES = 1024
NEAR = 5  # names told where one was not found
# Vendors round: 273 GB/s for 256 bits at 8533 MT/s is 273.06.
ROUNDING = 0.005
_COUNTED = re.compile(r"(\d{1,9})\s*[x×*]\s*(.+)", re.IGNORECASE)

Positive = Annotated[float, Field(gt=0)]


class Bus(Model):
    """Width in bits, and millions of transfers per second."""

    bits: Annotated[int, Field(gt=0)]
    mt_s: Positive

    @property
    def gb_s(self) -> float:
        """``bits / 8 x MT/s``, in 10^9 bytes per second."""
        return self.bits / 8 * self.mt_s / 1e3


class Source(Model):
    """Where figures are published: a vendor's page, or a public database where the vendor has none."""

    title: Annotated[str, Field(min_length=1)]
    url: Annotated[str, Field(pattern=r"^https://\S+$")]


class Entry(Model):
    """One device as the table has it."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    label: Annotated[str, Field(min_length=1)]
    memory_gb: Positive
    bandwidth_gb_s: Positive
    source: str
    bus: Bus | None = None
    up_to: bool = False
    calculated: bool = False


class Table(Model):
    """The file."""

    version: Literal[1]
    sources: dict[str, Source]
    hardware: tuple[Annotated[Entry, Field()], ...] = Field(strict=False)


@dataclass(frozen=True, slots=True)
class Hardware:
    """A memory system; of several devices the sum, as ideal tensor parallelism would use it.

    Attributes:
        name, label: For the command line, and for people.
        bandwidth_bytes_per_s: Theoretical peak.
        memory_bytes: Of the device, or the most that is offered where ``up_to``.
        calculated: Whether the peak is calculated from bus width and transfer rate.
        source, url: Where the figures are published.
        count: Devices.
    """

    name: str
    label: str
    bandwidth_bytes_per_s: float
    memory_bytes: float
    up_to: bool
    calculated: bool
    source: str
    url: str
    count: int = 1


@cache
def table() -> dict[str, Hardware]:
    """Every entry by name, in the file's order.

    Raises:
        HarnessError: The packaged file is damaged; a line for each fault.
    """
    return parse(files("harness").joinpath("hardware.yaml").read_text(encoding="utf-8"))


def parse(text: str) -> dict[str, Hardware]:
    """The entries of a table's text. Raises HarnessError, a line for each fault."""
    try:
        tree = read(text)
        found = Table.model_validate(tree.value)
    except Refused as refusal:
        raise HarnessError(one_line(f"hardware.yaml:{refusal.line}: {refusal.message}")) from refusal
    except ValidationError as error:
        raise HarnessError("\n".join(_lines(error))) from error
    faults = [f"hardware.yaml:{line}: {message}" for _, line, message in tree.findings]
    faults += [f"hardware.yaml: {fault}" for fault in _faults(found)]
    if faults:
        raise HarnessError("\n".join(map(one_line, faults)))
    return {entry.name: _hardware(entry, found.sources[entry.source]) for entry in found.hardware}


def _lines(error: ValidationError) -> Iterator[str]:
    for detail in error.errors(include_url=False):
        yield one_line(f"hardware.yaml: {'.'.join(map(str, detail['loc']))}: {detail['msg']}")


def _faults(table: Table) -> Iterator[str]:
    for name, n in Counter(_plain(entry.name) for entry in table.hardware).items():
        if n > 1:
            yield f"{name}: {n} entries of this name; one each"
    for entry in table.hardware:
        if entry.source not in table.sources:
            yield f"{entry.name}: source {entry.source!r} is not among sources"
        if entry.calculated and entry.bus is None:
            yield f"{entry.name}: calculated without a bus; give its bits and mt_s"
        if entry.bus and abs(entry.bus.gb_s / entry.bandwidth_gb_s - 1) > ROUNDING:
            yield f"{entry.name}: {entry.bandwidth_gb_s:g} GB/s, but its bus gives {entry.bus.gb_s:.1f}"
    unused = set(table.sources) - {entry.source for entry in table.hardware}
    if unused:
        yield f"sources that nothing names: {', '.join(sorted(unused))}"


def _hardware(entry: Entry, source: Source) -> Hardware:
    return Hardware(
        name=entry.name,
        label=entry.label,
        bandwidth_bytes_per_s=entry.bandwidth_gb_s * 1e9,
        memory_bytes=entry.memory_gb * GIB,
        up_to=entry.up_to,
        calculated=entry.calculated,
        source=source.title,
        url=source.url,
    )


def choose(texts: Iterable[str], known: dict[str, Hardware] | None = None) -> list[Hardware]:
    """Devices as asked for: names, several in a text with commas, each maybe with a count (``4xh100-sxm``).

    Case, spaces, dashes and underscores do not count.

    Raises:
        InputError: An unknown name or a count out of range.

    >>> [h100, two] = choose(["h100-sxm, 2x RTX 4090"])
    >>> h100.bandwidth_bytes_per_s / 1e12, two.name, two.bandwidth_bytes_per_s / 1e9
    (3.35, '2xrtx4090', 2016.0)
    """
    known = table() if known is None else known
    plain = {_plain(name): entry for name, entry in known.items()}
    found: dict[str, Hardware] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        counted = _COUNTED.fullmatch(part)
        count, name = (int(counted[1]), counted[2]) if counted else (1, part)
        entry = plain.get(_plain(name))
        if entry is None:
            raise InputError(
                f"--hardware: unknown {part!r}; `harness plan --hardware list` names all{_near(name, known)}"
            )
        if not 1 <= count <= MOST_DEVICES:
            raise InputError(f"--hardware: {count} devices in {part!r}; expected 1 to {MOST_DEVICES}; lower the count")
        one = _times(entry, count)
        found[one.name] = one
    return list(found.values())


def _near(name: str, known: Iterable[str]) -> str:
    """Closing words of the error: all names would fill the screen, so only near ones are told."""
    names = list(known)
    plain = _plain(name)
    near = [other for other in names if plain and plain in _plain(other)][:NEAR]
    near = near or difflib.get_close_matches(plain, names, n=1)
    return f". Did you mean {' or '.join(map(repr, near))}?" if near else ""


def _times(one: Hardware, count: int) -> Hardware:
    if count == 1:
        return one
    return replace(
        one,
        name=f"{count}x{one.name}",
        label=f"{count} x {one.label}",
        bandwidth_bytes_per_s=count * one.bandwidth_bytes_per_s,
        memory_bytes=count * one.memory_bytes,
        count=count,
    )


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).lower()
