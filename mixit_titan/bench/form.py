"""The keys that a bench.json must have when it is read back."""

from mixit_titan.json_form import COUNT

_SHAPE = {key: COUNT for key in ("width", "layers", "heads", "hidden", "vocab", "seq_len")}
_ROW = {"variant": str, "ratio": float, "tokens_per_s": float}
COMPARED = {
    "settings": {
        **{"shape": _SHAPE, "seq_len?": COUNT, "batch": COUNT, "dtype": str, "compile": bool},
        **{"ac": str, "ranks": COUNT, "frozen": str, "chunks?": COUNT, "microbatches?": COUNT},
    },
    "variants": [_ROW],
    "standard_to_plain?": {"ratio": float},
}
"""What a comparison needs, which the first versions also wrote."""
MEASURED = COMPARED | {
    "interleaved": bool,
    "environment": {"threads": COUNT, "clock": str},
    "variants": [
        _ROW
        | {key: [float] for key in ("tokens_per_s_quartiles", "ratio_interval")}
        | {key: float for key in ("limit", "share_of_limit", "samples_per_s", "tflops_per_rank")}
        | {"phase_seconds": {"*": float}, "peak_memory_bytes": COUNT}
        | {"cpu_seconds_per_second": float, "tokens_per_s_per_rank?": [float]}
        | {key: (float, None) for key in ("mfu", "compile_seconds", "ratio_by_cpu_time")}
    ],
}
"""What a report needs."""
