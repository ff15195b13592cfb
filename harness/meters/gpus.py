"""Which GPUs this process may use, and what the energy of one covers. Asks no library."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Superchips whose counter covers the module: GPU, processor and memory.
MODULES = ("GH200", "GB200", "GB300")
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU this process may use."""

    handle: Any
    uuid: str
    name: str
    memory_bytes: int | None


class Unmeasured(Exception):
    """A GPU may be used whose energy can't be told from others', in words."""


def words_of(gpu: Gpu) -> str:
    """What a GPU's energy covers."""
    whole = any(name in gpu.name for name in MODULES)
    return f"{gpu.name}, the whole module with its processor" if whole else f"{gpu.name}, the whole board"


def choose(every: Sequence[Gpu], env: Mapping[str, str]) -> tuple[tuple[Gpu, ...], str]:
    """The GPUs that CUDA_VISIBLE_DEVICES names, and why there are none.

    CUDA reads the list up to its first invalid entry. Its numbers follow speed unless CUDA_DEVICE_ORDER is PCI_BUS_ID,
    while NVML's follow the bus; where the GPUs differ a number could be another GPU, so it is refused.

    Raises:
        Unmeasured: It names a part of a GPU, or numbers unlike GPUs.
    """
    listed = env.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return tuple(every), "" if every else "no NVIDIA GPU"
    mixed = len({gpu.name for gpu in every}) > 1 and env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in listed.split(",")):
        if entry.startswith("MIG"):
            raise Unmeasured(
                f"CUDA_VISIBLE_DEVICES names {entry}, a part of a GPU; NVML counts energy of whole ones only"
            )
        if _NUMBER.fullmatch(entry):
            if mixed:
                raise Unmeasured(
                    "unlike GPUs, numbered in CUDA_VISIBLE_DEVICES: use UUIDs or CUDA_DEVICE_ORDER=PCI_BUS_ID"
                )
            match = every[int(entry) : int(entry) + 1]
        else:
            match = [gpu for gpu in every if entry and gpu.uuid.startswith(entry)]
        if len(match) != 1 or match[0] in chosen:
            break
        chosen.append(match[0])
    return tuple(chosen), "" if chosen else f"CUDA_VISIBLE_DEVICES={listed!r} leaves no GPU visible"
