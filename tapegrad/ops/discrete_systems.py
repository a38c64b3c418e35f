"""Linear systems in discrete time, x[i + 1] = A x[i] + B u[i] and y[i] = C x[i] + D u[i], and what turns one form of a system into another,
under SciPy's names.

A system is that of state_space.py with the length of a step behind it: (num, den, dt), (zeros, poles, gain, dt) or (A, B, C, D, dt). Runs are
the recurrence of that module; `cont2discrete` makes the steps of a system in continuous time, differentiable by dt too.

Invariant: where no argument is a tensor SciPy's own function runs. Times are constants.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.storage import StandIn
from ..errors import NotDifferentiable
from .calculus import inexact
from .composing import holds_tracked, raw, scipys
from .matrix_functions import expm
from .responses import _power_series, _radians, freqz_zpk, proper
from .state_space import _state_space, linear_recurrence, transferred

_scipys = scipys("scipy.signal")


# ------------------------------------------------------------------------------------------------------ other forms


@_scipys
def tf2ss(num: Any, den: Any) -> tuple[Any, Any, Any, Any]:
    """Matrices A, B, C and D of a system num / den, in SciPy's controller form; differentiable by both.

    Raises ValueError where num is of a higher order than den.

    >>> import tapegrad as tg
    >>> tg.signal.tf2ss([1.0], tg.tensor([2.0, 6.0]))[0]
    tensor([[-3.]])
    """
    return _state_space((num, den), "tf2ss")


@_scipys
def zpk2ss(z: Any, p: Any, k: Any) -> tuple[Any, Any, Any, Any]:
    """Matrices A, B, C and D of a system of zeros z, poles p and gain k; differentiable by all.

    >>> import tapegrad as tg
    >>> tg.signal.zpk2ss([], tg.tensor([-3.0]), 2.0)[2]
    tensor([[2.]])
    """
    return _state_space((z, p, k), "zpk2ss")


@_scipys
def tf2zpk(b: Any, a: Any) -> tuple[Any, Any, Any]:
    """Zeros, poles and gain of a system b / a; differentiable by both where roots are simple.

    >>> import tapegrad as tg
    >>> tg.signal.tf2zpk([1.0], tg.tensor([1.0, -0.5]))[1]
    tensor([0.5])
    """
    b, a = proper(b, a, "tf2zpk", order=False)
    return np.roots(b), np.roots(a), b[0] / a[0]


def _characteristic(A: Any) -> Any:
    """Coefficients of det(s − A), the highest power first (Faddeev and LeVerrier): smooth where eigenvalues meet, unlike these."""
    n = np.shape(A)[0]
    unit = np.eye(n)
    found: list[Any] = [1.0 + 0.0 * A[0, 0] if n else 1.0]
    power = 0.0 * A
    for k in range(1, n + 1):
        power = A @ power + found[-1] * unit
        found.append(-np.trace(A @ power) / k)
    return np.stack(found)


@_scipys
def ss2tf(A: Any, B: Any, C: Any, D: Any, input: int = 0) -> tuple[Any, Any]:
    """Coefficients (outputs, n + 1) and (n + 1,) of the system with these matrices, from one of its inputs; differentiable by all four.

    >>> import tapegrad as tg
    >>> tg.signal.ss2tf(tg.tensor([[-3.0]]), [[1.0]], [[2.0]], [[0.0]])
    (tensor([[0., 2.]]), tensor([1., 3.]))
    """
    A, B, C, D = _state_space((A, B, C, D), "ss2tf")
    if not -1 < input < np.shape(B)[1]:
        raise ValueError("System does not have the input specified.")
    b, d = B[:, input], D[:, input]
    den = _characteristic(A)
    rows = [_characteristic(A - np.outer(b, C[k])) + (d[k] - 1) * den for k in range(np.shape(C)[0])]  # fmt: skip
    return np.stack(rows), den


@_scipys
def ss2zpk(A: Any, B: Any, C: Any, D: Any, input: int = 0) -> tuple[Any, Any, Any]:
    """Zeros, poles and gain of the system of one output with these matrices, from one of its inputs.

    >>> import tapegrad as tg
    >>> tg.signal.ss2zpk(tg.tensor([[-3.0]]), [[1.0]], [[2.0]], [[0.0]])[2]
    tensor(2.)
    """
    num, den = ss2tf(A, B, C, D, input)
    if np.shape(num)[0] != 1:
        raise ValueError(
            f"ss2zpk was given a system of {np.shape(num)[0]} outputs, each of which has zeros of its own: take a row of C and D for each."
        )
    values = raw(num)[0]
    if isinstance(values, StandIn):
        raise NotDifferentiable(
            "ss2zpk was asked inside a compiled program, where how many zeros there are depends on values. Use ss2tf."
        )
    size = np.finfo(values.dtype).eps * np.max(np.abs(values), initial=0.0) * 16 * len(values)
    first = np.flatnonzero(np.abs(values) > size)  # what is left of cancelled powers is rounding
    num = num[0, first[0] if len(first) else -1 :]
    return np.roots(num), np.roots(den), num[0]


METHODS = ("gbt", "bilinear", "tustin", "euler", "forward_diff", "backward_diff", "zoh", "foh", "impulse")  # fmt: skip


@_scipys
def cont2discrete(system: Any, dt: Any, method: str = "zoh", alpha: Any = None) -> tuple[Any, ...]:
    """A system in continuous time as one of steps dt, with dt behind it; differentiable by the system, by dt and by alpha.

    `method` is SciPy's: inputs that stay ("zoh") or go straight ("foh") between steps, "impulse", "gbt" with alpha, and its cases
    "bilinear", "euler" and "backward_diff". The result has the form of the system. Raises ValueError for another method.

    >>> import numpy as np, tapegrad as tg
    >>> kept = lambda dt: tg.signal.cont2discrete(([[-2.0]], [[1.0]], [[1.0]], [[0.0]]), dt)[0][0, 0]
    >>> round(float(tg.grad(kept)(0.5) / (-2 * np.exp(-1.0))), 9)
    1.0
    """
    size = len(system) if isinstance(system, tuple | list) else 0
    A, B, C, D = _state_space(system, "cont2discrete")
    (n, m), unit = np.shape(B), np.eye(np.shape(B)[0])
    if method not in METHODS:
        raise ValueError(f"Unknown transformation method '{method}'")
    if method == "gbt" and (alpha is None or not 0 <= raw(alpha) <= 1):
        raise ValueError("cont2discrete by 'gbt' asks for alpha, a number from 0 to 1.")
    if method == "zoh":
        whole = expm(np.concatenate([np.concatenate([A, B], axis=1) * dt, np.zeros((m, n + m))]))
        found = whole[:n, :n], whole[:n, n:], C, D
    elif method == "foh":
        rows = np.concatenate([np.concatenate([A, B], axis=1) * dt, np.zeros((2 * m, n + m))])
        late = np.concatenate([np.zeros((n, m)), np.eye(m), np.zeros((m, m))])
        whole = expm(np.concatenate([rows, late], axis=1))
        kept, first, last = whole[:n, :n], whole[:n, n : n + m], whole[:n, n + m :]
        found = kept, first - last + kept @ last, C, D + C @ last
    elif method == "impulse":
        if not isinstance(raw(D), StandIn) and not np.allclose(raw(D), 0):
            raise ValueError("Impulse method is only applicable to strictly proper systems")
        kept = expm(A * dt)
        found = kept, kept @ B * dt, C, C @ B * dt
    else:
        alpha = {"gbt": alpha, "euler": 0.0, "forward_diff": 0.0, "backward_diff": 1.0}.get(method, 0.5)  # fmt: skip
        ahead = unit - alpha * dt * A
        kept, fed = np.linalg.solve(ahead, unit + (1.0 - alpha) * dt * A), np.linalg.solve(ahead, dt * B)  # fmt: skip
        seen = np.transpose(np.linalg.solve(np.transpose(ahead), np.transpose(C)))
        found = kept, fed, seen, D + alpha * (C @ fed)
    if size == 2:
        return (*ss2tf(*found), dt)
    if size == 3:
        return (*ss2zpk(*found), dt)
    return (*found, dt)


# -------------------------------------------------------------------------------------------------------------- runs


def _discrete(system: Any, name: str) -> tuple[tuple[Any, ...], Any]:
    """(parts, dt) of a system in discrete time."""
    from scipy import signal

    if isinstance(system, signal.lti):
        raise AttributeError(f"{name} can only be used with discrete-time dlti systems.")
    if isinstance(system, signal.dlti):
        for parts in (("A", "B", "C", "D"), ("zeros", "poles", "gain"), ("num", "den")):
            if all(hasattr(system, part) for part in parts):
                return tuple(getattr(system, part) for part in parts), system.dt
    if not isinstance(system, tuple | list) or len(system) not in (3, 4, 5):
        raise ValueError(
            f"{name} was given a system that is neither of (num, den, dt), (zeros, poles, gain, dt) and (A, B, C, D, dt)."
        )
    dt = system[-1]
    if holds_tracked(dt) or isinstance(raw(dt), StandIn):
        raise NotDifferentiable(
            f"{name} was given a dt that is differentiated, but it only names the times. Make the system by tg.signal.cont2discrete, "
            "differentiable by dt, and give dt.detach() here."
        )
    return tuple(system[:-1]), raw(dt)


def _between(u: Any, t: np.ndarray, times: np.ndarray) -> Any:
    """Inputs at other times, straight between those that are given."""
    if len(t) < 2:
        raise ValueError("dlsim was given one time: give two or more, or leave times out.")
    at = np.clip(np.searchsorted(t, times, "right") - 1, 0, len(t) - 2)
    part = ((times - t[at]) / (t[at + 1] - t[at]))[:, None]
    return u[at] * (1 - part) + u[at + 1] * part


@_scipys
def dlsim(system: Any, u: Any, t: Any = None, x0: Any = None) -> tuple[Any, ...]:
    """Times and outputs (and states, of a system of matrices) in discrete time for inputs u; differentiable by the system, u and x0.

    `u` is (steps,) or (steps, inputs). With times `t`, constants, inputs between them go straight and steps end at the last.

    >>> import numpy as np, tapegrad as tg
    >>> last = lambda a: tg.signal.dlsim((tg.stack([a])[None], [[1.0]], [[1.0]], [[0.0]], 1.0), np.ones(4))[1][-1, 0]
    >>> tg.grad(last)(0.5)  # of 1 + a + a²
    2.0
    """
    parts, dt = _discrete(system, "dlsim")
    A, B, C, D = _state_space(parts, "dlsim")
    n, inputs = np.shape(B)
    u = np.atleast_1d(inexact(u))
    u = u[:, None] if np.ndim(u) == 1 else u
    if t is None:
        steps = np.shape(u)[0]
        times = np.linspace(0.0, (steps - 1) * dt, steps)
    else:
        if holds_tracked(t) or isinstance(raw(t), StandIn):
            raise NotDifferentiable(
                "dlsim was given times that are differentiated, but its steps are of one length. Give t.detach()."
            )
        t = np.atleast_1d(np.asarray(raw(t)))
        steps = int(np.floor(t[-1] / dt)) + 1
        times = np.linspace(0.0, t[-1], steps)
    if np.ndim(u) != 2 or np.shape(u)[1] != inputs or (t is not None and len(t) != np.shape(u)[0]):
        raise ValueError(
            f"dlsim was given inputs of shape {np.shape(u)}, but the system has {inputs} inputs: give a row for each time."
        )
    if t is not None:
        u = _between(u, t, times)
    first = np.zeros(n) if x0 is None else np.broadcast_to(np.squeeze(inexact(x0)), (n,))
    fed = u[:-1] @ np.transpose(B)
    x = linear_recurrence(np.concatenate([first[None], fed]), np.transpose(A))
    y = x @ np.transpose(C) + u @ np.transpose(D)
    return (times, y, x) if len(parts) == 4 else (times, y)


def _responses(system: Any, x0: Any, t: Any, n: Any, name: str) -> tuple[Any, tuple[Any, ...]]:
    """Times, and for each input the outputs where that input alone is a step, or an impulse."""
    parts, dt = _discrete(system, name)
    A, B, C, D = _state_space(parts, name)
    count = 100 if n is None else n
    t = np.linspace(0, count * dt, count, endpoint=False) if t is None else np.asarray(raw(t))
    found = []
    for i in range(np.shape(B)[1]):
        u = np.zeros((len(t), np.shape(B)[1]))
        u[: len(t) if name == "dstep" else 1, i] = 1.0
        times, y, _ = dlsim.__wrapped__((A, B, C, D, dt), u, t, x0)  # type: ignore[attr-defined]
        found.append(y)
    return times, tuple(found)


@_scipys
def dstep(system: Any, x0: Any = None, t: Any = None, n: Any = None) -> tuple[Any, tuple[Any, ...]]:
    """Times, and for each input the outputs where that input is 1 from the beginning; differentiable by the system and x0.

    >>> import tapegrad as tg
    >>> tg.signal.dstep((tg.tensor([1.0]), [1.0, -0.5], 1.0), n=4)[1][0][:, 0]
    tensor([0.  , 1.  , 1.5 , 1.75])
    """
    return _responses(system, x0, t, n, "dstep")


@_scipys
def dimpulse(system: Any, x0: Any = None, t: Any = None, n: Any = None) -> tuple[Any, tuple[Any, ...]]:  # fmt: skip
    """Times, and for each input the outputs where that input is 1 at the first time alone; differentiable by the system and x0.

    >>> import tapegrad as tg
    >>> tg.signal.dimpulse((tg.tensor([1.0]), [1.0, -0.5], 1.0), n=4)[1][0][:, 0]
    tensor([0.  , 1.  , 0.5 , 0.25])
    """
    return _responses(system, x0, t, n, "dimpulse")


@_scipys
def dfreqresp(system: Any, w: Any = None, n: int = 10000, whole: bool = False) -> tuple[Any, Any]:
    """Frequencies in radians per step and the complex response; differentiable by the system and by frequencies that are given.

    >>> import numpy as np, tapegrad as tg
    >>> loudness = lambda a: np.abs(tg.signal.dfreqresp(([1.0], np.stack([1.0, -a]), 1.0), [0.0])[1])[0]
    >>> tg.grad(loudness)(0.5)  # of 1 / (1 - a)
    4.0
    """
    parts, _ = _discrete(system, "dfreqresp")
    asked = n if w is None else w
    if len(parts) == 3:
        return freqz_zpk(*parts, asked, whole)
    w = _radians(asked, whole, 2 * np.pi)
    z = np.exp(1j * w)
    if len(parts) == 2:
        num, den = proper(*parts, "dfreqresp")
        return w, _power_series(num[::-1], z) / _power_series(den[::-1], z)
    return w, transferred(_state_space(parts, "dfreqresp"), z, "dfreqresp")


@_scipys
def dbode(system: Any, w: Any = None, n: int = 100) -> tuple[Any, Any, Any]:
    """Frequencies in radians per time, magnitude in decibels and phase in degrees; differentiable as `dfreqresp`.

    >>> import numpy as np, tapegrad as tg
    >>> decibels = lambda a: tg.signal.dbode(([1.0], np.stack([1.0, -a]), 1.0), [0.0])[1][0]
    >>> round(float(tg.grad(decibels)(0.5) * np.log(10) / 20), 9)
    2.0
    """
    w, y = dfreqresp(system, w, n)
    phase = np.unwrap(np.angle(y)) * (180.0 / np.pi)
    return w / _discrete(system, "dbode")[1], 20.0 * np.log10(np.abs(y)), phase


__all__ = [
    "cont2discrete", "dbode", "dfreqresp", "dimpulse", "dlsim", "dstep", "ss2tf", "ss2zpk", "tf2ss", "tf2zpk", "zpk2ss",
]  # fmt: skip
