"""L-BFGS: quasi-Newton steps from the last few changes of the gradient, with PyTorch's rules and PyTorch's results.

All parameters count as one vector `x`. A pair (s, y) is a step and the change of the gradient along it; the pairs stand for
the inverse Hessian (J. Nocedal, Math. Comp. 35, 1980), whose product with the gradient takes two loops over them. The line
search is Moré's and Thuente's in the form of Nocedal and Wright, Numerical Optimization, algorithms 3.5 and 3.6, with the
safeguards of Torch's `lswolfe`, so that the sequence of points is PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.mode import enable_grad, no_grad
from .optimizer import Group, Optimizer, store


class LBFGS(Optimizer):
    """L-BFGS on all parameters together; `step(closure)` takes up to `max_iter` iterations. Arguments as `torch.optim.LBFGS`.

    `closure` clears the gradients, computes the loss, calls `backward` and returns the loss. With
    `line_search_fn="strong_wolfe"` steps satisfy the strong Wolfe conditions; without, they have the length `lr`.

    >>> import tapegrad as tg
    >>> x = tg.tensor([-1.0, 2.0], requires_grad=True)
    >>> optimizer = tg.optim.LBFGS([x], line_search_fn="strong_wolfe", max_iter=60)
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    ...     loss.backward()
    ...     return loss
    >>> loss = optimizer.step(closure)
    >>> x.detach().numpy().round(5)
    array([1., 1.])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        """Settings as PyTorch's; complex parameters are refused."""
        settings = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, settings)
        if any(p.dtype.kind == "c" for p in self._params):
            raise TypeError(
                "LBFGS was given complex parameters: optimise their real and imaginary parts."
            )

    def add_param_group(self, param_group: Group) -> None:
        """The one group of all parameters."""
        if self.param_groups:
            raise ValueError(
                "LBFGS doesn't support per-parameter options (parameter groups): it takes all parameters as one vector."
            )
        super().add_param_group(param_group)

    def _validate(self, group: Group) -> None:
        super()._validate(group)
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise ValueError(
                f"only 'strong_wolfe' is supported, not line_search_fn={group['line_search_fn']!r}."
            )

    @property
    def _params(self) -> list[Any]:
        return self.param_groups[0]["params"]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Iterate until a tolerance or a limit is met; returns the loss at the start. Raises TypeError without a closure."""
        if closure is None:
            raise TypeError(
                "LBFGS.step needs a closure that clears the gradients, computes the loss, calls backward and returns the "
                "loss: it evaluates it several times in a step."
            )
        group = self.param_groups[0]
        history = self.state[self._params[0]]
        history.setdefault("func_evals", 0)
        history.setdefault("n_iter", 0)
        first, loss = self._evaluate(closure)
        g = self._gradient()
        evaluations = 1
        history["func_evals"] += 1
        self._opt_called = True
        if _largest(g) <= group["tolerance_grad"]:
            return first
        d, t = history.get("d"), history.get("t")
        ss, ys = history.get("old_stps", []), history.get("old_dirs", [])
        scale, previous = history.get("H_diag", 1.0), history.get("prev_flat_grad")
        iteration = 0
        while iteration < group["max_iter"]:
            iteration += 1
            history["n_iter"] += 1
            if history["n_iter"] == 1:
                d = -g
            else:
                y, s = g - previous, d * t
                curvature = y @ s
                if curvature > 1e-10:
                    ss, ys = [*ss, s], [*ys, y]
                    if len(ss) > group["history_size"]:
                        ss, ys = ss[1:], ys[1:]
                    scale = curvature / (y @ y)
                d = -_inverse_hessian_times(g, ss, ys, scale)
            previous, before = g.copy(), loss
            t = (
                min(1.0, 1.0 / np.abs(g).sum()) * group["lr"]
                if history["n_iter"] == 1
                else group["lr"]
            )
            slope = g @ d
            if slope > -group["tolerance_change"]:
                break
            used = 0
            if group["line_search_fn"] is not None:
                x = self._values()

                def along(
                    t: float, x: np.ndarray = x, d: np.ndarray = d
                ) -> tuple[float, np.ndarray]:
                    self._set(x + t * d)
                    return self._evaluate(closure)[1], self._gradient()

                loss, g, t, used = _strong_wolfe(
                    along, t, d, loss, g, slope, most=group["max_eval"] - evaluations
                )
                self._set(x + t * d)
            else:
                self._set(self._values() + t * d)
                if iteration != group["max_iter"]:
                    loss, g = self._evaluate(closure)[1], self._gradient()
                    used = 1
            evaluations += used
            history["func_evals"] += used
            if (
                evaluations >= group["max_eval"]
                or _largest(g) <= group["tolerance_grad"]
                or _largest(d * t) <= group["tolerance_change"]
                or abs(loss - before) < group["tolerance_change"]
            ):
                break
        history.update(
            d=d,
            t=t,
            old_stps=ss,
            old_dirs=ys,
            H_diag=scale,
            prev_flat_grad=previous,
            prev_loss=before,
        )
        return first

    def _evaluate(self, closure: Callable[[], Any]) -> tuple[Any, float]:
        with enable_grad():
            loss = closure()
        self._demand_untracked()
        if loss is None:
            raise TypeError("the closure returned None: it must return the loss.")
        return loss, float(loss.detach() if hasattr(loss, "detach") else loss)

    def _gradient(self) -> np.ndarray:
        parts = [
            np.zeros(p.size, p.dtype) if p.grad is None else p.grad._array().reshape(-1)
            for p in self._params
        ]
        return np.concatenate(parts)

    def _values(self) -> np.ndarray:
        return np.concatenate([p._array().reshape(-1) for p in self._params])

    def _set(self, x: np.ndarray) -> None:
        start = 0
        with no_grad():
            for p in self._params:
                store(p, x[start : start + p.size].reshape(p.shape))
                start += p.size

    def _loaded(self, name: str, value: Any, p: Any) -> Any:
        if isinstance(value, list):
            return [self._loaded(name, v, p) for v in value]
        if hasattr(value, "detach"):  # PyTorch's
            value = value.detach().numpy()
        return np.array(value) if isinstance(value, np.ndarray) and value.ndim else value


def _largest(a: np.ndarray) -> float:
    return float(np.abs(a).max(initial=0.0))


def _inverse_hessian_times(
    g: np.ndarray, ss: list[np.ndarray], ys: list[np.ndarray], scale: float
) -> np.ndarray:
    """The two loops of Nocedal: the inverse Hessian that the pairs stand for, times a vector."""
    q = g.copy()
    weights = []
    for s, y in zip(reversed(ss), reversed(ys), strict=True):
        weights.append((s @ q) / (y @ s))
        q -= weights[-1] * y
    r = scale * q
    for s, y, weight in zip(ss, ys, reversed(weights), strict=True):
        r += s * (weight - (y @ r) / (y @ s))
    return r


class _Trial:
    """A point on the line: step, value, gradient, slope."""

    __slots__ = ("f", "g", "slope", "t")

    def __init__(self, t: float, f: float, g: np.ndarray, slope: float) -> None:
        self.t, self.f, self.g, self.slope = t, f, g, slope


def _strong_wolfe(
    along: Callable[[float], tuple[float, np.ndarray]],
    t: float,
    d: np.ndarray,
    f: float,
    g: np.ndarray,
    slope: float,
    most: int,
    c1: float = 1e-4,
    c2: float = 0.9,
    smallest: float = 1e-9,
) -> tuple[float, np.ndarray, float, int]:
    """A step with enough decrease (c1) and little enough slope (c2): value, gradient, step, evaluations."""
    width = _largest(d)

    def trial(t: float) -> _Trial:
        value, gradient = along(t)
        return _Trial(t, value, gradient, float(gradient @ d))

    start = _Trial(0.0, f, g, slope)
    previous, here = start, trial(t)
    searched = 0
    found = False
    ends = [start, here]
    # Bracket: walk outwards until the interval must hold a step that satisfies both conditions.
    while searched < most:
        if here.f > f + c1 * here.t * slope or (searched > 1 and here.f >= previous.f):
            ends = [previous, here]
            break
        if abs(here.slope) <= -c2 * slope:
            ends, found = [here], True
            break
        if here.slope >= 0:
            ends = [previous, here]
            break
        limits = (here.t + 0.01 * (here.t - previous.t), here.t * 10)
        t = _cubic_minimum(previous, here, limits)
        previous, here = here, trial(t)
        searched += 1
        ends = [start, here]
    # Zoom: shrink the bracket around its lower end.
    stuck = False
    low, high = (0, 1) if ends[0].f <= ends[-1].f else (1, 0)
    while not found and searched < most:
        left, right = min(e.t for e in ends), max(e.t for e in ends)
        if (right - left) * width < smallest:
            break
        t = _cubic_minimum(ends[0], ends[1])
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:
            if stuck or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        here = trial(t)
        searched += 1
        if here.f > f + c1 * t * slope or here.f >= ends[low].f:
            ends[high] = here
            low, high = (0, 1) if ends[0].f <= ends[1].f else (1, 0)
        else:
            if abs(here.slope) <= -c2 * slope:
                found = True
            elif here.slope * (ends[high].t - ends[low].t) >= 0:
                ends[high] = ends[low]
            ends[low] = here
    best = ends[low] if len(ends) > 1 else ends[0]
    return best.f, best.g, best.t, searched + 1


def _cubic_minimum(a: _Trial, b: _Trial, limits: tuple[float, float] | None = None) -> float:
    """Where the cubic through two points with their slopes is lowest, within limits."""
    low, high = limits or (min(a.t, b.t), max(a.t, b.t))
    with np.errstate(all="ignore"):
        d1 = a.slope + b.slope - 3 * (a.f - b.f) / (a.t - b.t) if a.t != b.t else float("nan")
        square = d1**2 - a.slope * b.slope
        if not square >= 0:
            return (low + high) / 2
        d2 = float(np.sqrt(square))
        near, far = (a, b) if a.t <= b.t else (b, a)
        divisor = far.slope - near.slope + 2 * d2
        if divisor == 0:
            return (low + high) / 2
        t = far.t - (far.t - near.t) * ((far.slope + d2 - d1) / divisor)
    return min(max(t, low), high)
