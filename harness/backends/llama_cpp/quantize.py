"""Makes a GGUF of another weight precision with llama.cpp's own quantiser. Knows no cache."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from harness.backends.llama_cpp.gguf import Header, read_header
from harness.errors import InputError, did_you_mean

# type: (llama.cpp's number, bits per weight of the matrices)
FILE_TYPES: dict[str, tuple[int, float]] = {
    "f32": (0, 32), "f16": (1, 16), "bf16": (32, 16), "q8_0": (7, 8.5), "q6_k": (18, 6.57),
    "q5_k_m": (17, 5.7), "q5_k_s": (16, 5.5), "q5_1": (9, 6.0), "q5_0": (8, 5.5), "q4_k_m": (15, 4.9),
    "q4_k_s": (14, 4.6), "q4_1": (3, 5.0), "q4_0": (2, 4.5), "iq4_nl": (25, 4.5), "iq4_xs": (30, 4.3),
    "q3_k_l": (13, 4.3), "q3_k_m": (12, 4.0), "q3_k_s": (11, 3.5), "iq3_m": (27, 3.7), "iq3_s": (26, 3.5),
    "iq3_xs": (22, 3.3), "q2_k": (10, 3.2), "q2_0": (41, 2.25), "tq2_0": (37, 2.06), "tq1_0": (36, 1.69),
}  # fmt: skip
NEED_IMPORTANCE = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m", "iq3_xxs", "q2_k_s")
FLOAT_TYPES = ("f32", "f16", "bf16")
_NAMES = {number: name for name, (number, _) in FILE_TYPES.items()}
_OTHER_NAMES = {
    19: "iq2_xxs",
    20: "iq2_xs",
    21: "q2_k_s",
    23: "iq3_xxs",
    24: "iq1_s",
    28: "iq2_s",
    29: "iq2_m",
    31: "iq1_m",
    38: "mxfp4_moe",
}


def check_type(type_name: str) -> str:
    """The type in lower case. Raises InputError if llama.cpp has none of that name or needs an importance matrix."""
    name = type_name.lower()
    if name in NEED_IMPORTANCE:
        raise InputError(
            f"weights: {name} needs an importance matrix, which is not made here; "
            "give a ready GGUF of that type, or use q2_k"
        )
    if name not in FILE_TYPES:
        raise InputError(f"weights: unknown {type_name!r}; {did_you_mean(name, FILE_TYPES)}")
    return name


def file_type(header: Header) -> str:
    """Weight precision of a file: what its header declares, else the type of most of its weights."""
    return (_NAMES | _OTHER_NAMES).get(header.metadata.get("general.file_type", -1), header.main_kind)


def estimate_bytes(header: Header, type_name: str) -> int:
    """Upper estimate of the file that quantising gives.

    Embedding and output matrices keep at least 8.5 bits; rows that do not divide into blocks of 256 fall back to a
    larger type, up to 6 bits for types below that.
    """
    bits = FILE_TYPES[type_name][1]
    total = 0.0
    for tensor in header.tensors:
        wide = tensor.name in ("token_embd.weight", "output.weight")
        total += tensor.elements * max(bits, 8.5 if wide else min(bits * 2, 6.0)) / 8
    return int(total * 1.02) + 8 * 1024**2


def quantise(src: str | Path, dst: str | Path, type_name: str, threads: int) -> None:
    """Write ``src`` to ``dst`` in another precision; from quantised weights too. Atomic: ``dst`` is whole or absent.

    Raises:
        InputError: If the type is unknown or needs an importance matrix, or llama.cpp refuses.
    """
    from harness.backends.llama_cpp.library import library, muted

    name, dst = check_type(type_name), Path(dst)
    read_header(src)
    low = library()
    params = low.llama_model_quantize_default_params()
    params.ftype, params.nthread = FILE_TYPES[name][0], threads
    params.allow_requantize, params.pure = True, False
    partial = dst.with_name(f"{dst.name}.{os.getpid()}.part")
    try:
        with muted():
            code = low.llama_model_quantize(str(src).encode(), str(partial).encode(), ctypes.byref(params))
        if code != 0:
            raise InputError(
                f"{src}: llama.cpp cannot quantise it to {name} (code {code}); choose another type or a float source"
            )
        read_header(partial)
        partial.replace(dst)
    finally:
        partial.unlink(missing_ok=True)
