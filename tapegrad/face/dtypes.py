"""NumPy's dtypes and constants under tapegrad's name, so that a script needs one import."""

from numpy import (
    bool_,
    complex64,
    complex128,
    e,
    euler_gamma,
    float32,
    float64,
    inf,
    int8,
    int16,
    int32,
    int64,
    nan,
    newaxis,
    pi,
    uint8,
    uint16,
    uint32,
    uint64,
)

__all__ = [
    "bool_", "complex64", "complex128", "e", "euler_gamma", "float32", "float64", "inf", "int8", "int16", "int32", "int64",
    "nan", "newaxis", "pi", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip

TORCHS_NAMES = {
    "bool": bool_, "cdouble": complex128, "cfloat": complex64, "double": float64, "float": float32, "int": int32, "long": int64,
}  # fmt: skip
"""PyTorch's other names of dtypes: `tg.double`."""
