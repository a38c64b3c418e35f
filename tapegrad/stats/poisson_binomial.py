"""The number of successes in trials of different probabilities: SciPy's `poisson_binom`, differentiable by the probabilities.

The masses of all counts are the coefficients of the product of (1 - p + p x) over the trials, by one recurrence in which nothing is
subtracted: each mass, and each sum of masses, keeps its digits. It takes n steps on n + 1 numbers, where n is the number of trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import special
from ..core.storage import as_array
from ..core.tensor import value_of, wrap
from ..errors import NotDifferentiable
from ..ops.composing import holds_tensor, holds_tracked
from ..ops.joining import concatenate, gathered
from .discrete import Counts
from .quadrature import called, plain
from .univariate import _rounded, doubled, followed, where_valid, wrapped_all


class PoissonBinomial(Counts):
    """The distribution of the number of successes; the last axis of `p` goes through the trials.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda p: tg.stats.poisson_binom.pmf(1, p))(np.array([0.2, 0.5]))
    array([0. , 0.6])
    """

    def __init__(self) -> None:
        super().__init__("poisson_binom", "p", lambda p: (p >= 0) & (p <= 1), "")

    def _values(self, args: Any, named: Any) -> tuple[Any, Any]:
        tracked = lambda v: gathered(v) if isinstance(v, list | tuple) else v  # noqa: E731
        p, loc = self._bound([tracked(v) for v in args], {n: tracked(v) for n, v in named.items()})
        p = gathered(p)
        if np.ndim(p) == 0:
            raise ValueError(
                f"{self} was given p={p!r}, but p is an array whose last axis goes through the trials: p=[0.2, 0.5]."
            )
        return p, loc

    def _plainly(self, what: str, given: Sequence[Any], p: Any, loc: Any, **settings: Any) -> Any:
        """SciPy's result."""
        theirs = getattr(self.scipy, what)
        found = called(lambda *a: theirs(*a, **settings), *map(value_of, (*given, p, loc)))
        if not holds_tensor([*given, p, loc]):
            return _rounded(found, [p])
        return wrapped_all(found) if isinstance(found, tuple) else wrap(_rounded(found, [p]))

    def _function(self, what: str, k: Any, args: Any, named: Any) -> Any:
        """pmf, cdf, sf or their logarithms at counts k, from all masses."""
        p, loc = self._values(args, named)
        if not followed([k, p, loc]):
            return self._plainly(what, [k], p, loc)
        (wide,) = doubled([p])
        n = np.shape(wide)[-1]
        at = np.expand_dims(as_array(plain(k), float) - plain(loc), -1)  # no derivative by counts
        counts = np.arange(n + 1.0)
        masses = self._masses(wide)
        chosen = {"pmf": counts == at, "cdf": counts <= np.floor(at), "sf": counts > np.floor(at)}
        base = what.removeprefix("log")
        total = np.sum(np.where(chosen[base], masses, 0.0), axis=-1)
        if what != base:
            none = plain(total) == 0
            total = np.where(none, -np.inf, np.log(np.where(none, 1.0, total)))
        return _rounded(self._where_valid(total, wide, at[..., 0]), [p])

    def _where_valid(self, value: Any, p: Any, *given: Any) -> Any:
        valid = as_array(np.all(self.valid(plain(p)), axis=-1))
        return where_valid(value, valid, [np.sum(p, axis=-1), *given])

    @staticmethod
    def _masses(p: Any) -> Any:
        """Masses of 0, 1, ..., n along the last axis."""
        nothing = np.zeros((*np.shape(p)[:-1], 1))
        masses = nothing + 1.0
        for i in range(np.shape(p)[-1]):
            q = p[..., i : i + 1]
            masses = concatenate([masses * (1 - q), nothing], axis=-1) + concatenate(
                [nothing, masses * q], axis=-1
            )
        return masses

    def _moment(self, what: str, args: Any, named: Any) -> Any:
        p, loc = self._values(args, named)
        if not followed([p, loc]):
            return self._plainly(what, [], p, loc)
        (wide,) = doubled([p])
        if what == "mean":
            found = np.sum(wide, axis=-1) + loc
        elif what == "entropy":
            found = np.sum(special.entr(self._masses(wide)), axis=-1)
        else:
            found = np.sum(wide * (1 - wide), axis=-1)
            found = np.sqrt(found) if what == "std" else found
        return _rounded(self._where_valid(found, wide), [p])

    def _steps(
        self, what: str, given: Sequence[Any], args: Any, named: Any, **settings: Any
    ) -> Any:
        p, loc = self._values(args, named)
        if holds_tracked([*given, p, loc]):
            raise NotDifferentiable(
                f"{self}.{what} was given a tracked tensor, but counts move in steps: their derivative is 0 or undefined. Pass p.detach(), "
                "or differentiate an expectation over the pmf."
            )
        return self._plainly(what, given, p, loc, **settings)

    def support(self, *args: Any, **named: Any) -> Any:
        """The least and the largest count."""
        p, loc = self._values(args, named)
        return loc + 0.0, loc + np.shape(p)[-1]

    def stats(self, *args: Any, moments: str = "mv", **named: Any) -> Any:
        """Mean and variance, as `moments` names them by m and v."""
        if not moments or set(moments) - {"m", "v"}:
            raise NotDifferentiable(
                f"{self}.stats was asked for the moments {moments!r}, but mean and variance have formulas alone. Ask for moments='mv', or "
                "sum over the pmf."
            )
        found = tuple(self._moment({"m": "mean", "v": "var"}[m], args, named) for m in moments)
        return found[0] if len(found) == 1 else found


poisson_binom = PoissonBinomial()

__all__ = ["poisson_binom"]
