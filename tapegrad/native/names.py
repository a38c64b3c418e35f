"""What a name in the user's source refers to: NumPy's, math's and Python's functions by their one canonical text.

The rules and the generated code know functions by that text ("np.sin", "math.sin", "abs"), however the user imported them.
"""

from __future__ import annotations

import builtins
import cmath
import functools
import inspect
import math
from types import ModuleType
from typing import Any

import numpy as np
from numba.core.registry import cpu_target

from . import special

MISSING = object()
"""What `resolve` returns for something that is not known before the program runs."""

RESERVED = frozenset(
    "np math floats ints nf ni accumulate carry shares snapshot_distance fitted push_array pop_array put_places grown grown_ints "
    "interp_back cofactors eigenvalues_back singular_values_back left_vectors_back right_vectors_back orthogonal_back "
    "pinv_back cut_pinv_back eigenvectors_back "
    "turns counted referred unless_zero strong strong_all strong_quotient strong_quotient_all has_nan "
    "select scatter_back scatter_sum gather_back spread sorted_back ranked others_product cholesky_back and or not if else "
    "while for in is def return True False None lambda class with as try except raise assert pass del from import global nonlocal yield "
    "async await range len abs min max int float bool round sum pow divmod print tuple list enumerate zip prange part shared separate "
    "in_float32 in_float64 clear chunk_count in_order at least zeros_like zeros_of digamma trigamma digamma_rise special".split()
)
"""Names that generated code uses for itself."""

BUILTINS = tuple(
    """abs min max int float bool round len range enumerate zip pow divmod sum complex print isinstance tuple list reversed sorted slice
    hash str""".split()
)

PURE = frozenset(
    """np.all np.any np.argmax np.argmin np.argsort np.searchsorted np.isnan np.isinf np.isfinite np.count_nonzero np.nonzero
    np.flatnonzero np.allclose np.array_equal np.isclose np.signbit np.less np.greater np.equal np.not_equal np.less_equal
    np.greater_equal np.logical_and np.logical_or np.logical_not np.logical_xor np.digitize np.shape np.size np.ndim np.iinfo
    np.finfo np.isscalar np.histogram np.tri np.left_shift np.right_shift np.bitwise_and np.bitwise_or np.bitwise_xor np.invert
    np.gcd np.lcm np.hanning np.hamming np.blackman np.bartlett np.kaiser np.intp np.int64 np.int32 np.int16 np.int8 np.uint8
    np.uint16 np.uint32 np.bool_ np.int_ np.isin np.round np.around np.triu_indices np.tril_indices np.isreal np.iscomplex np.tile
    np.linalg.matrix_rank np.roots np.indices np.uint64 np.argpartition math.floor math.ceil math.trunc math.isnan math.isinf
    math.isfinite math.gcd math.factorial math.comb math.perm np.argwhere np.isposinf np.isneginf np.iscomplexobj np.isrealobj
    np.nanargmax np.nanargmin np.tril_indices_from np.triu_indices_from np.bitwise_invert np.bitwise_not np.bitwise_left_shift
    np.bitwise_right_shift np.broadcast_shapes np.complex128 complex cmath.exp cmath.log cmath.sqrt cmath.sin cmath.cos cmath.tan
    cmath.sinh cmath.cosh cmath.tanh cmath.phase int bool len round isinstance tuple""".split()
)
"""Functions without a rule that only compute: they may be evaluated again. Where active values go in, more is asked (see activity)."""


def resolve_attribute(value: Any, name: str) -> Any:
    try:
        return getattr(value, name)
    except AttributeError:
        return MISSING


@functools.cache
def _canonical_names() -> dict[int, tuple[Any, str]]:
    """Of each function of NumPy, math, cmath and Python its name in programs, by identity."""
    names: dict[int, tuple[Any, str]] = {}
    spaces: list[tuple[Any, str]] = [
        (np, "np"),
        (np.linalg, "np.linalg"),
        (np.random, "np.random"),
        (math, "math"),
        (cmath, "cmath"),
    ]
    for space, prefix in spaces:
        # `dir` names modules too that NumPy imports when they are asked for.
        for name, value in vars(space).items():
            if name.startswith("_") or name in ("bool8", "long", "ulong"):
                continue
            if value is None or isinstance(value, ModuleType) or not callable(value):
                continue
            known = names.get(id(value))
            if known is None or getattr(value, "__name__", "") == name:
                names[id(value)] = (value, f"{prefix}.{name}")
    for name in BUILTINS:
        value = getattr(builtins, name)
        names[id(value)] = (value, name)
    from .runtime import SCOPE

    names |= {id(value): (value, name) for name, value in SCOPE.items() if name != "np"}
    names[id(SCOPE["prange"])] = (SCOPE["prange"], "range")
    return names


def canonical(value: Any) -> str | None:
    """The text of a function of NumPy, math, Python or `scipy.special`; None for any other object."""
    found = _canonical_names().get(id(value))
    return special.text_of(value) if found is None else found[1]


def is_jitable(value: Any) -> bool:
    """Whether a Python function may be called in jitted code as it is, by Numba's `register_jitable`."""
    if not inspect.isfunction(value):
        return False
    cpu_target.typing_context.refresh()  # what was registered since the last compilation
    try:
        kind = cpu_target.typing_context.resolve_value_type(value)
    except ValueError:
        return False
    return any(
        getattr(getattr(t, "_overload_func", None), "__qualname__", "").startswith(
            "register_jitable."
        )
        for t in getattr(kind, "templates", ())
    )


def is_prange(value: Any) -> bool:
    """Whether an object is Numba's prange."""
    module = getattr(type(value), "__module__", "") + str(getattr(value, "__module__", ""))
    return getattr(value, "__name__", None) == "prange" and "numba" in module
