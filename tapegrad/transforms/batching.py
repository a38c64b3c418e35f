"""vmap: a function of single entries, for all entries along an axis of what it is given.

It is `map` (loops.py) with axes of the user's choice: f runs once for each entry and its results are stacked, so whatever f does
is right by itself, branches, derivatives and custom Functions too. As ordinary Python that takes a call of f for each entry;
inside `tg.compile` one entry is traced, and all of them are a loop of machine code.

Invariant: the result is that of a loop in Python over the entries.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..errors import demand_callable
from ..face.adoption import adopted_inside
from .derivatives import NAMESPACE, _flatten, _optree, _unflatten, is_compiled
from .loops import mapped

Tree = Any
P = ParamSpec("P")
R = TypeVar("R")


def vmap(f: Callable[P, R], in_axes: Any = 0, out_axes: Any = 0) -> Callable[P, R]:
    """f for each entry along an axis of its arguments: the results, stacked.

    `in_axes` is the axis of the arguments that holds the entries, None where all entries have the whole of it: one for all arguments, or a
    tuple of one for each, which may be a pytree like the beginning of its argument. Arguments by keyword have their entries along
    the first axis, as in JAX. `out_axes` is the axis of the results that the entries get, or a pytree of such. Of no entries the
    results are empty: f runs once, on zeros, to see their shapes. Raises ValueError where axes are of different lengths, or are
    not there.

    f runs once for each entry: `tg.compile(tg.vmap(f))` makes one loop of machine code of that, and NumPy's functions on whole arrays
    need no `vmap`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.vmap(np.dot)(np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 2)))
    array([3., 7.])
    >>> def loss(w, x, y): return (w @ x - y) ** 2
    >>> x, y = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([0.0, 1.0, 3.0])
    >>> tg.compile(tg.vmap(tg.grad(loss), in_axes=(None, 0, 0)))(np.array([0.0, 1.0]), x, y)  # the gradient of each record
    array([[ 0.,  0.],
           [ 0.,  0.],
           [-2., -4.]])
    """
    demand_callable(f, "vmap")
    if is_compiled(f):
        key = ("vmap", repr((in_axes, out_axes)))
        return f.derived(lambda g: vmap(g, in_axes, out_axes), key)  # type: ignore[attr-defined]

    @functools.wraps(f, updated=())
    def over_all(*args: Any, **kwargs: Any) -> Tree:
        """Call `f` on all entries along the axes of the arguments, and move the axis of entries to its place in the results."""
        leaves, structure = _flatten((args, kwargs))
        axes = _of_arguments(in_axes, args)
        axes += [0] * (len(leaves) - len(axes))
        along = [i for i, axis in enumerate(axes) if axis is not None]
        if not along:
            raise ValueError(
                "vmap was given no entries: in_axes is None for each argument, or there are none. Give an axis of at least one of them."
            )
        entries = [_moved(leaves[i], axes[i], 0, axes[i], "in_axes") for i in along]
        if len({np.shape(x)[0] for x in entries}) > 1:
            told = ", ".join(f"axis {axes[i]} of {np.shape(leaves[i])}" for i in along)
            raise ValueError(
                f"vmap was given entries along {told}, which are not as many. Give arguments of as many entries, and None in in_axes for "
                "what all of them share."
            )

        run = adopted_inside(f)

        def one(entry: Sequence[Any]) -> Tree:
            given = list(leaves)
            for i, x in zip(along, entry, strict=True):
                given[i] = x
            args, kwargs = _unflatten(structure, given)
            return run(*args, **kwargs)

        results = mapped("vmap", one, entries, False)
        if type(out_axes) is int and not out_axes:
            return results
        found, structure_of_results = _flatten(results)
        places = _fitting("out_axes", out_axes, results)
        return _unflatten(
            structure_of_results,
            [_moved(y, 0, axis, axis, "out_axes") for y, axis in zip(found, places, strict=True)],
        )

    return over_all


def _of_arguments(in_axes: Any, args: tuple[Any, ...]) -> list[Any]:
    """The axis of each leaf of the arguments."""
    if not isinstance(in_axes, tuple | list):
        in_axes = (in_axes,) * len(args)
    if len(in_axes) != len(args):
        raise ValueError(
            f"vmap was given in_axes for {len(in_axes)} arguments, but called with {len(args)}. Give one axis, or None, for each."
        )
    return [
        axis
        for chosen, x in zip(in_axes, args, strict=True)
        for axis in _fitting("in_axes", chosen, x)
    ]


def _fitting(name: str, axes: Any, tree: Tree) -> list[Any]:
    """The axis of each leaf of a tree, of which `axes` has the beginning."""
    leaves, structure = _flatten(tree)
    if axes is None or isinstance(axes, int):
        return [axes] * len(leaves)
    optree, tree = _optree(), _unflatten(structure, leaves)
    try:
        broadcast = optree.broadcast_prefix(axes, tree, none_is_leaf=True, namespace=NAMESPACE)
    except ValueError:
        raise ValueError(
            f"vmap was given {name} {axes!r}, which are arranged in another way than what they are axes of. Give one axis for all of it, "
            "or a pytree that begins like it."
        ) from None
    whole = optree.tree_leaves(tree, none_is_leaf=True, namespace=NAMESPACE)
    return [axis for axis, x in zip(broadcast, whole, strict=True) if x is not None]


def _moved(x: Any, source: int, target: int, chosen: Any, name: str) -> Any:
    """An array with an axis in another place, of which the user has chosen one."""
    dims = np.ndim(x)
    try:
        there = -dims <= operator.index(chosen) < dims
    except TypeError:
        there = False
    if not there:
        what = "the stacked results" if name == "out_axes" else "an argument"
        instead = ", or None for what all entries share" if name == "in_axes" else ""
        raise ValueError(
            f"vmap was given {chosen!r} in {name}, but {what} of shape {np.shape(x)} has no such axis. Give one that it has{instead}."
        )
    return x if source % dims == target % dims else np.moveaxis(x, source, target)


__all__ = ["vmap"]
