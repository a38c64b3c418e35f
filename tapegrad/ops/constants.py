"""Functions whose result carries no derivative: comparisons, counts, positions, properties.

On tensors they are evaluated on the values; array results come back as untracked tensors, as in PyTorch. (Floor, sign
and their like are not here: they have the derivative 0, and are declared so in `elementary`.)
"""

from __future__ import annotations

import functools
import os

import numpy as np

from ..core.primitive import CONSTANTS
from ..core.signatures import show
from ..core.synonyms import numpys

CONSTANTS.update(
    {
        np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal,
        np.logical_and, np.logical_or, np.logical_xor, np.logical_not,
        np.isnan, np.isinf, np.isfinite, np.signbit, np.isnat,
        np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.left_shift, np.right_shift,
        np.gcd, np.lcm, np.bitwise_count,
    }
)  # fmt: skip
CONSTANTS.update(
    {
        np.argmax, np.argmin, np.argsort, np.argwhere, np.nonzero, np.flatnonzero, np.count_nonzero, np.searchsorted,
        np.nanargmax, np.nanargmin, np.argpartition, np.lexsort, np.digitize,
        np.all, np.any, np.allclose, np.isclose, np.array_equal, np.array_equiv, np.isin, np.isreal, np.iscomplex,
        np.isneginf, np.isposinf, np.iscomplexobj, np.isrealobj,
        np.shape, np.ndim, np.size, np.result_type, np.can_cast, np.common_type, np.min_scalar_type,
        np.shares_memory, np.may_share_memory,
        np.zeros_like, np.ones_like, np.empty_like,
        np.array2string, np.array_repr, np.array_str,
        np.linalg.matrix_rank,
        np.ravel_multi_index, np.unravel_index, np.broadcast_shapes, np.tril_indices_from, np.triu_indices_from,
        np.diag_indices_from, np.einsum_path, np.packbits, np.unpackbits, np.save, np.savez, np.savez_compressed,
        np.savetxt,
    }
)  # fmt: skip


@functools.wraps(np.save)
def save(file, arr, allow_pickle=True):
    if not isinstance(file, str | bytes | os.PathLike) and not hasattr(file, "write"):
        raise TypeError(
            f"save was given a {type(file).__name__} where the file's name stands: PyTorch's save(value, file) is NumPy's save(file, array) "
            "here. Write tg.save(file, t), or np.savez(file, **tensors) for a dict of tensors; np.load reads both."
        )
    np.save(file, arr, allow_pickle)


_SETTINGS = {
    "all": lambda self, axis=None, out=None, keepdims=False, *, where=True: None,
    "any": lambda self, axis=None, out=None, keepdims=False, *, where=True: None,
    "argmax": lambda self, axis=None, out=None, *, keepdims=False: None,
    "argmin": lambda self, axis=None, out=None, *, keepdims=False: None,
    "argpartition": lambda self, kth, axis=-1, kind="introselect", order=None: None,
    "argsort": lambda self, axis=-1, kind=None, order=None, *, stable=None: None,
    "nonzero": lambda self: None,
    "searchsorted": lambda self, v, side="left", sorter=None: None,
}
"""The parameters of methods of NumPy's arrays, which are written in C and tell none in some versions."""


def _method(name: str):
    def method(self, *args, **kwargs):
        from ..core.tensor import wrap

        return wrap(getattr(self._value, name)(*args, **numpys(name, kwargs)))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = (
        f"NumPy's {name}, of the values: not differentiable, so the result is not tracked."
    )
    show(method, _SETTINGS[name])
    return method


def _install() -> None:
    from ..core.tensor import Tensor

    for name in _SETTINGS:
        setattr(Tensor, name, _method(name))
    for name in ("and", "or", "xor", "lshift", "rshift"):
        for prefix in ("", "r"):
            setattr(Tensor, f"__{prefix}{name}__", _bitwise(f"__{prefix}{name}__"))
    Tensor.__invert__ = lambda self: np.invert(self)


def _bitwise(name: str):
    def method(self, other):
        from ..core.tensor import Tensor, wrap

        result = getattr(self._value, name)(other._value if isinstance(other, Tensor) else other)
        return result if result is NotImplemented else wrap(result)

    method.__name__ = method.__qualname__ = name
    return method


_install()
