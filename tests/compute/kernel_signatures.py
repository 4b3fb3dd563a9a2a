"""Compiles every kernel for a GPU that need not be there; run as a script, outside the interpreter.

The interpreter runs kernels as Python and forgives what the compiler does not.
"""

import importlib
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

NORM = {"weight": "*fp32", "means": "*fp32", "inverses": "*fp32", "seed": "*i64", "count": "i32"}
NORM |= {"threshold": "i32", "grow": "fp32"}
NORM_SHAPE = {"WIDTH": 384, "BLOCK": 512, "ROWS": 4, "BIAS": True, "DROP": True}
TILES = {"texts": "*i32", "tiles": "*i32", "seed": "*i64", "scale": "fp32", "threshold": "i32"}
TILES |= {"grow": "fp32"}
TILE_SHAPE = {"HEADS": 12, "SIZE": 32, "BLOCK": 32, "TILE": 64, "DROP": True}
STRIPS = {"parts": "*fp32", "n_labels": "i32", "n_queries": "i32"}
STRIP_SHAPE = {"SOFTPLUS": True, "ROWS": 16, "COLS": 128, "STRIP": 256}
MAXIMA = {"bias": "*fp32", "maxima": "*fp32", "best": "*fp32", "n_query_tiles": "i32"}
MAXIMA |= {"n_labels": "i32"}
MAXIMA_SHAPE = {"TILE_Q": 128, "TILE_L": 256, "DEEP": 64, "DIM": 384, "WIDE": 128, "FEW": 8}
MAXIMA_SHAPE |= {"GROUPS": True, "INTERPRETED": False}
ROWS = {"touched": "*i32", "mean_scale": "*fp32", "square_scale": "*fp32", "rows": "*i64"}
ROWS |= {"ids": "*i64", "values": "*fp32", "step": "i32", "key": "i64"}
ROW_SHAPE = {"DIM": 256, "BLOCK": 256, "STEP": 0.1, "SHARE": 0.9}

KERNELS = {
    "compute.kernels.fused_norm:_forward": [
        ("*bf16", NORM | {"eps": "fp32", "bias": "*fp32", "shift": "*fp32"}, NORM_SHAPE),
    ],
    "compute.kernels.fused_norm:_backward": [("*bf16", NORM | {"partial": "*fp32"}, NORM_SHAPE)],
    "compute.kernels.fused_norm:_again": [
        (
            "*bf16",
            {name: NORM[name] for name in ("weight", "means", "inverses", "count")}
            | {"shift": "*fp32"},
            {name: NORM_SHAPE[name] for name in ("WIDTH", "BLOCK", "ROWS")},
        ),
    ],
    "compute.kernels.tile_attention:_forward": [("*bf16", TILES, TILE_SHAPE)],
    "compute.kernels.tile_attention:_backward": [("*bf16", TILES, TILE_SHAPE)],
    "compute.kernels.fused_feed_forward:_gelu_backward": [
        (
            "*bf16",
            {"partial": "*fp32", "count": "i32", "width": "i32"},
            {"ROWS": 16, "COLUMNS": 128},
        ),
    ],
    "compute.kernels.text_sum:_sum": [
        (
            "*fp32",
            {"hidden": "*bf16", "offsets": "*i64", "width": "i32"},
            {"ROWS": 8, "COLUMNS": 128},
        ),
    ],
    "compute.kernels.label_kernels:_summarise": [
        ("*bf16", STRIPS, STRIP_SHAPE),
        ("*fp32", STRIPS, STRIP_SHAPE | {"SOFTPLUS": False}),
    ],
    "compute.kernels.label_kernels:_slopes": [
        (
            "*fp32",
            STRIPS | {"scores": scores, "slopes": "*bf16"},
            STRIP_SHAPE | {"SOFTPLUS": softplus, "SUMMARY": summary},
        )
        for scores, softplus, summary in (
            ("*fp32", True, True),
            ("*bf16", True, False),
            ("*fp32", False, False),
        )
    ],
    "index.kernels:_maxima_tiled": [
        ("*bf16", MAXIMA, MAXIMA_SHAPE),
        ("*fp8e4nv", MAXIMA, MAXIMA_SHAPE | {"DEEP": 128}),
    ],
    "index.kernels:_maxima_persistent": [
        (
            "tensordesc<bf16[128,64]>",
            MAXIMA | {"labels": "tensordesc<bf16[256,64]>", "n_tiles": "i32"},
            MAXIMA_SHAPE | {"PROGRAMS": 132},
        ),
        (
            "tensordesc<bf16[128,64]>",
            MAXIMA | {"labels": "tensordesc<bf16[256,64]>", "n_tiles": "i32"},
            MAXIMA_SHAPE | {"PROGRAMS": 132, "DIM": 64, "GROUPS": False},
        ),
        (
            "tensordesc<fp8e4nv[128,128]>",
            MAXIMA | {"labels": "tensordesc<fp8e4nv[256,128]>", "n_tiles": "i32"},
            MAXIMA_SHAPE | {"PROGRAMS": 132, "DEEP": 128},
        ),
    ],
    "index.kernels:_candidate_scores": [
        (
            kind,
            {"groups": "*i64", "scores": "*fp32", "width": "i32", "n_labels": "i32", "dim": "i32"},
            {"MANY": 32, "DEEP": 128, "WIDE": 128, "FEW": 8},
        )
        for kind in ("*fp32", "*bf16")
    ],
    "compute.kernels.row_kernel:_update": [
        (
            "fp32",
            ROWS | {"vectors": "*fp32", "mean": "*fp32", "square": "*fp32"},
            ROW_SHAPE | {"ROUNDED": False, "CODED": False},
        ),
        (
            "fp32",
            ROWS | {"vectors": "*bf16", "mean": "*i8", "square": "*u8"},
            ROW_SHAPE | {"ROUNDED": True, "CODED": True},
        ),
    ],
}
"""Each kernel's variants: the type of arguments not named, types of those named, constants."""


def main() -> None:
    for place, variants in KERNELS.items():
        module, name = place.split(":")
        kernel = getattr(importlib.import_module(f"umpteen.{module}"), name)
        for other, named, constants in variants:
            signature = {argument: other for argument in kernel.arg_names}
            signature |= named | dict.fromkeys(constants, "constexpr")
            source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
            triton.compile(source, target=GPUTarget("cuda", 90, 32))
        sys.stdout.write(f"{place}\n")


if __name__ == "__main__":
    main()
