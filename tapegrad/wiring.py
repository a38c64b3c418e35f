"""The wiring: rooms that are loaded when they are first asked give their functions to the rooms below (see `seams`).

What is loaded with `import tapegrad` gives its own functions where they are defined: ops, `inplace` and `autograd`.
"""

from __future__ import annotations

from typing import Any

from .core import seams


def _replay() -> Any:
    from . import replay

    return replay


def _quick_loops() -> Any:
    from .replay import quick_loops

    return quick_loops


def _array_namespace() -> Any:
    from . import array_api

    return array_api


def _met_sparse(name: str, x: Any, y: Any) -> Any:
    from .sparse.arrays import met

    return met(name, x, y)


def _assembled(*args: Any) -> Any:
    from .sparse.arrays import assembled

    return assembled(*args)


def _sparse_derivatives() -> Any:
    from .sparse import derivatives

    return derivatives


def _noncentral(name: str) -> Any:
    from . import stats

    return getattr(stats, name)


def _looped(*args: Any, **settings: Any) -> Any:
    from .compiler.iteration import looped

    return looped(*args, **settings)


def _differentiable(f: Any) -> Any:
    from .native.function import differentiable

    return differentiable(f)


def _sourced(*args: Any) -> Any:
    from .native.sourced import Sourced

    return Sourced(*args)


seams.give(
    replay=_replay,
    quick_loops=_quick_loops,
    array_namespace=_array_namespace,
    met_sparse=_met_sparse,
    assembled=_assembled,
    sparse_derivatives=_sparse_derivatives,
    noncentral=_noncentral,
    looped=_looped,
    differentiable=_differentiable,
    sourced=_sourced,
)
