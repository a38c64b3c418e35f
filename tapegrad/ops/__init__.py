"""The vocabulary: every op once, by family.

To add an op, add one declaration to the family it belongs to:

    cot = elementwise(..., lambda out: -1 - out * out)          # elementary.py

    @primitive(np.roll, linear=True, samples=[call((4,), shift=1)])
    def roll(g, *, shift, axis=None):                           # arranging.py
        return np.roll(g, -shift, axis)

    @composed(np.ediff1d, "ary")                                # calculus.py: no rule needed, being made of ops
    def ediff1d(ary):
        return ary.ravel()[1:] - ary.ravel()[:-1]

The declaration gives the value, both modes, all higher derivatives, the compiled kernel, the documentation row, `tg.<name>`
and `np.<name>` on tensors, and the generated tests. Only if the op has a kink, a pole or a tie does it need one more
row, by hand, in `tests/test_special_values.py`. `tg.check_op(op)` runs the laws on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import seams
from ..core.primitive import CONSTANTS, FUNCTIONS, UFUNCS
from . import (
    arranging,
    calculus,
    composing,
    constants,
    elementary,
    fourier,
    indexing,
    joining,
    linear_algebra,
    linear_systems,
    matrix_functions,
    products,
    reductions,
    selection,
    shaping,
    statistics,
)

seams.give(
    array=joining.array,
    astype=shaping.astype,
    copy=shaping.copy,
    gathered=joining.gathered,
    holds_tensor=composing.holds_tensor,
    strong_product=elementary.strong_product,
)


def public_names() -> dict[str, Any]:
    """What `tg.<name>` offers: NumPy's name for every function with a rule or a constant result, and our own additions."""
    names: dict[str, Any] = {f.__name__: f for f in CONSTANTS if getattr(np, f.__name__, None) is f}
    of: Any
    for of, function in {**FUNCTIONS, **UFUNCS}.items():
        if getattr(np, of.__name__, None) is of:
            names[of.__name__] = function
    # NumPy's aliases of ufuncs are ops here too.
    for alias in ("abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "conj", "concat", "mod", "permute_dims", "pow", "true_divide"):  # fmt: skip
        of = getattr(np, alias)
        names[alias] = UFUNCS.get(of) or FUNCTIONS[of]
    names |= {
        "array": joining.array, "cat": joining.concatenate,
        "clamp": elementary.clip, "clip": elementary.clip, "flatten": shaping.flatten, "logsumexp": reductions.logsumexp,
        "mm": products.matmul, "scatter": indexing.scatter, "sub": elementary.subtract,
        "mul": elementary.multiply, "div": elementary.divide, "neg": elementary.negative, "unbind": joining.unbind, "save": constants.save,
        "unstack": joining.unstack, "vectorize": calculus.vectorize,
    }  # fmt: skip
    return names


__all__ = [
    "arranging", "calculus", "composing", "constants", "elementary", "fourier", "indexing", "joining", "linear_algebra",
    "linear_systems", "matrix_functions", "products", "public_names", "reductions", "selection", "shaping", "statistics",
]  # fmt: skip
