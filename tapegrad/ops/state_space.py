"""Linear systems in continuous time, x' = A x + B u and y = C x + D u: their runs and their frequency responses, under SciPy's names.

A system is (num, den), (zeros, poles, gain) or (A, B, C, D), as in SciPy, of numbers or tensors; the first two are made into the
third, in SciPy's controller form. A run takes exact steps, of a matrix exponential (`expm`); the op here is the recurrence of these steps,
whose adjoint is the same recurrence backwards in time.

Invariant: where no argument is a tensor SciPy's own function runs. Times are constants, equally spaced.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.primitive import call, conj, primitive
from ..core.storage import StandIn, as_array
from ..errors import NotDifferentiable
from .calculus import inexact
from .composing import holds_tracked, raw, scipys
from .matrix_functions import expm
from .responses import _coefficients, _power_series, proper, zpk2tf

_scipys = scipys("scipy.signal")


def _recurrence(f: Any, m: Any) -> np.ndarray:
    f, m = as_array(f), as_array(m)
    y = np.array(f, np.result_type(f, m))
    for i in range(1, len(y)):
        y[i] += y[i - 1] @ m
    return y


def _backwards(g: Any, m: Any) -> Any:
    return linear_recurrence(g[::-1], conj(np.transpose(m)))[::-1]


def _recurrence_matrix(g, y, out):
    """Cotangent of the matrix: what came out of a step times the cotangent of what the next one gave."""
    return np.transpose(conj(out[:-1])) @ _backwards(g, y)[1:]


def _recurrence_tangent(given, values, out):
    """The same recurrence, fed with ḟ[i] + y[i - 1] Ṁ."""
    (df, dm), m = given, values[1]
    if dm is not None:
        moved = np.concatenate([np.zeros_like(out[:1]), out[:-1] @ dm])
        df = moved if df is None else df + moved
    return linear_recurrence(df, m)


@primitive(
    _recurrence,
    _recurrence_matrix,
    name="linear_recurrence",
    jvp=_recurrence_tangent,
    samples=[
        call((4, 2), (2, 2)),
        call((1, 2), (2, 2)),
        call((5, 1), (1, 1)),
        call((3, 0), (0, 0)),
    ],
)
def linear_recurrence(g, y):
    """y[0] = f[0], y[i] = y[i - 1] M + f[i], for the rows of f."""
    return _backwards(g, y)


# ---------------------------------------------------------------------------------------------------------- systems


def _parts(system: Any, name: str) -> tuple[Any, ...]:
    """The 2, 3 or 4 parts of a system, numbers or tensors."""
    from scipy import signal

    if isinstance(system, signal.dlti):
        raise AttributeError(f"{name} can only be used with continuous-time systems.")
    if isinstance(system, signal.lti):
        system = system.to_ss()
        return system.A, system.B, system.C, system.D
    if not isinstance(system, tuple | list) or len(system) not in (2, 3, 4):
        raise ValueError(
            f"{name} was given a system that is neither of (num, den), (zeros, poles, gain) and (A, B, C, D)."
        )
    return tuple(system)


def _state_space(system: Any, name: str) -> tuple[Any, Any, Any, Any]:
    """A, B, C and D of a system, matrices of fitting shapes."""
    parts = _parts(system, name)
    if len(parts) == 4:
        A, B, C, D = (inexact(part) for part in parts)
        A, B, C, D = (np.reshape(m, (1, -1)) if np.ndim(m) < 2 else m for m in (A, B, C, D))
        n, inputs, outputs = np.shape(A)[0], np.shape(B)[1], np.shape(C)[0]
        wanted = ((n, n), (n, inputs), (outputs, n), (outputs, inputs))
        if tuple(np.shape(m) for m in (A, B, C, D)) != wanted:
            told = ", ".join(str(np.shape(m)) for m in (A, B, C, D))
            raise ValueError(
                f"{name} was given matrices A, B, C and D of shapes {told}, but they are (n, n), (n, m), (p, n) and (p, m)."
            )
        return A, B, C, D
    num, den = zpk2tf(*parts) if len(parts) == 3 else parts
    num, den = proper(num, den, name)
    num, den = num / den[0], den / den[0]
    K = np.shape(den)[0]
    num = np.concatenate([np.zeros(K - np.shape(num)[0]), num])
    D = np.reshape(num[0], (1, 1))
    if K == 1:
        return np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)), D
    A = np.concatenate([-den[None, 1:], np.eye(K - 2, K - 1)])
    C = num[None, 1:] - num[0] * den[None, 1:]
    return A, np.eye(K - 1, 1), C, D


def _times(T: Any, A: Any, n: Any, name: str) -> Any:
    """Times as plain numbers: those that are given, or SciPy's for this A."""
    if T is not None:
        if holds_tracked(T) or isinstance(raw(T), StandIn):
            raise NotDifferentiable(
                f"{name} was given times that are differentiated, but its steps are of one length and have no derivative by single times. "
                "Multiply the matrices A and B by a tracked factor instead, or use tg.integrate.solve_ivp."
            )
        return np.atleast_1d(np.asarray(raw(T)))
    if isinstance(raw(A), StandIn):
        raise NotDifferentiable(
            f"{name} was asked to choose times inside a compiled program, which depend on the system's values. Give T as an array."
        )
    slowest = np.min(np.abs(np.real(np.linalg.eigvals(raw(A)))))
    return np.linspace(0.0, 7 / (slowest or 1.0), 100 if n is None else n)


def _steps(A: Any, B: Any, dt: Any, interp: bool) -> tuple[Any, Any, Any]:
    """(M, P, Q) of x[i] = x[i - 1] M + u[i - 1] P + u[i] Q: blocks of one exponential (Van Loan 1978)."""
    n, m = np.shape(B)
    rows = [np.concatenate([A * dt, B * dt], axis=1), np.zeros((m, n + m))]
    if not interp:
        whole = np.transpose(expm(np.concatenate(rows)))
        return whole[:n, :n], whole[n:, :n], np.zeros((m, n))
    unit = np.concatenate([np.zeros((n, m)), np.eye(m), np.zeros((m, m))])
    above = np.concatenate([*rows, np.zeros((m, n + m))])
    whole = np.transpose(expm(np.concatenate([above, unit], axis=1)))
    late = whole[n + m :, :n]
    return whole[:n, :n], whole[n : n + m, :n] - late, late


def _is_nothing(U: Any) -> bool:
    """Whether inputs are zeros, known and without a derivative."""
    return not (holds_tracked(U) or isinstance(raw(U), StandIn) or np.any(raw(U)))


@_scipys
def lsim(system: Any, U: Any, T: Any, X0: Any = None, interp: bool = True) -> tuple[Any, Any, Any]:
    """Times, outputs and states of a linear system for inputs U at equally spaced times T; differentiable by the system, U and X0.

    `U` is (times,) or (times, inputs), 0 or None for none; between times it goes straight, or with `interp=False` stays as it was.
    Outputs (times, outputs) and states (times, n) lose axes of length 1.

    >>> import numpy as np, tapegrad as tg
    >>> T = np.linspace(0.0, 1.0, 11)
    >>> decayed = lambda k: tg.signal.lsim(([1.0], np.stack([1.0, k])), 0, T, X0=[1.0])[1][-1]
    >>> round(float(tg.grad(decayed)(2.0) / -np.exp(-2.0)), 9)
    1.0
    """
    A, B, C, D = _state_space(system, "lsim")
    T = _times(T, A, None, "lsim")
    n, steps = np.shape(A)[0], np.size(T)
    if np.ndim(T) != 1 or not steps:
        raise ValueError("T must be a rank-1 array, of one time or more.")
    if T[0] < 0:
        raise ValueError("Initial time must be nonnegative")
    dt = T[1] - T[0] if steps > 1 else 0.0
    if not np.allclose(np.diff(T), dt):
        raise ValueError("Time steps are not equally spaced.")
    first = np.zeros(n) if X0 is None else np.broadcast_to(inexact(X0), (n,))
    if T[0] > 0:  # nothing goes in before
        first = first @ np.transpose(expm(A * T[0]))
    if U is None or _is_nothing(U):
        fed = np.zeros((steps - 1, n))
        M = np.transpose(expm(A * dt))
        direct: Any = 0.0
    else:
        U = np.atleast_1d(inexact(U))
        U = U[:, None] if np.ndim(U) == 1 else U
        if np.shape(U) != (steps, np.shape(B)[1]):
            raise ValueError(
                f"lsim was given inputs of shape {np.shape(U)}, but there are {steps} times and {np.shape(B)[1]} inputs: a row of U for each time."
            )
        M, before, after = _steps(A, B, dt, interp)
        fed = U[:-1] @ before + U[1:] @ after
        direct = U @ np.transpose(D)
    x = linear_recurrence(np.concatenate([first[None], fed]), M)
    return T, np.squeeze(x @ np.transpose(C) + direct), np.squeeze(x)


@_scipys
def impulse(system: Any, X0: Any = None, T: Any = None, N: Any = None) -> tuple[Any, Any]:
    """Times and the response of a linear system of one input to an impulse; differentiable by the system and the first state X0.

    Times that are not given (N of them) are SciPy's, and constants. What D sends on at once is left out, as in SciPy.

    >>> import numpy as np, tapegrad as tg
    >>> late = lambda k: tg.signal.impulse(([1.0], np.stack([1.0, k])), T=np.array([0.0, 1.0]))[1][1]
    >>> round(float(tg.grad(late)(2.0) / -np.exp(-2.0)), 9)
    1.0
    """
    A, B, C, D = _state_space(system, "impulse")
    if np.shape(B)[1] != 1:
        raise ValueError(
            f"impulse was given a system of {np.shape(B)[1]} inputs: take a column of B and D for each."
        )
    first = B[:, 0] if X0 is None else B[:, 0] + np.reshape(inexact(X0), -1)
    T = _times(T, A, N, "impulse")
    return T, lsim((A, B, C, D), 0.0, T, first, interp=False)[1]


@_scipys
def step(system: Any, X0: Any = None, T: Any = None, N: Any = None) -> tuple[Any, Any]:
    """Times and the response of a linear system to an input that is 1 from the beginning; differentiable by the system and X0.

    Times that are not given (N of them) are SciPy's, and constants.

    >>> import numpy as np, tapegrad as tg
    >>> risen = lambda k: tg.signal.step(([1.0], np.stack([1.0, k])), T=np.linspace(0.0, 50.0, 9))[1][-1]
    >>> round(tg.grad(risen)(2.0), 9)  # of 1 / k
    -0.25
    """
    A, B, C, D = _state_space(system, "step")
    T = _times(T, A, N, "step")
    return lsim((A, B, C, D), np.ones(np.shape(T)), T, X0, interp=False)[:2]


@_scipys
def freqresp(system: Any, w: Any = None, n: int = 10000) -> tuple[Any, Any]:
    """Frequencies and the complex response of a linear system of one input and output; differentiable by the system and by a given w.

    Frequencies that are not given (n of them) are SciPy's, and constants.

    >>> import numpy as np, tapegrad as tg
    >>> loudness = lambda k: np.abs(tg.signal.freqresp(([1.0], np.stack([1.0, k])), [0.0])[1])[0]
    >>> tg.grad(loudness)(2.0)
    -0.25
    """
    parts = _parts(system, "freqresp")
    if w is None:
        if any(isinstance(raw(part), StandIn) for part in parts):
            raise NotDifferentiable(
                "freqresp was asked to choose frequencies inside a compiled program, which depend on the system's values. Give w as an array."
            )
        from scipy import signal

        w = signal.freqresp(tuple(raw(inexact(part)) for part in parts), None, n)[0]
    w = np.atleast_1d(inexact(w))
    s = 1j * w
    if len(parts) == 2:
        num, den = (_coefficients(part) for part in parts)
        if np.ndim(num) != 1:
            raise ValueError("freqresp() requires a SISO (single input, single output) system.")
        return w, _power_series(num[::-1], s) / _power_series(den[::-1], s)
    if len(parts) == 3:
        return freqs_zpk(*parts, w)
    return w, transferred(_state_space(system, "freqresp"), s, "freqresp()")


def transferred(matrices: tuple[Any, Any, Any, Any], points: Any, asker: str) -> Any:
    """The transfer function C (s − A)⁻¹ B + D of one input and one output, at some points s; ValueError for a system of more."""
    A, B, C, D = matrices
    if np.shape(D) != (1, 1):
        raise ValueError(f"{asker} requires a SISO (single input, single output) system.")
    resolvent = np.linalg.solve(points[:, None, None] * np.eye(np.shape(A)[0]) - A, B + 0j)
    return (C @ resolvent)[:, 0, 0] + D[0, 0]


@_scipys
def bode(system: Any, w: Any = None, n: int = 100) -> tuple[Any, Any, Any]:
    """Frequencies, magnitude in decibels and phase in degrees of a linear system; differentiable as `freqresp`.

    >>> import numpy as np, tapegrad as tg
    >>> decibels = lambda k: tg.signal.bode(([1.0], np.stack([1.0, k])), [0.0])[1][0]
    >>> round(float(tg.grad(decibels)(2.0) * np.log(10) / 20), 9)
    -0.5
    """
    w, y = freqresp(system, w, n)
    return w, 20.0 * np.log10(np.abs(y)), np.unwrap(np.angle(y)) * (180.0 / np.pi)


@_scipys
def freqs_zpk(z: Any, p: Any, k: Any, worN: Any = 200) -> tuple[Any, Any]:
    """Frequencies and the complex response of an analog filter by zeros, poles and gain; differentiable by all that are given.

    >>> import tapegrad as tg
    >>> abs(tg.signal.freqs_zpk([], tg.tensor([-0.5]), 1.0, [0.0])[1].numpy())
    array([2.])
    """
    if worN is None or isinstance(worN, int | np.integer):
        w: Any = freqresp((z, p, k), None, 200 if worN is None else worN)[0]
    else:
        w = np.atleast_1d(inexact(worN))
    s = (1j * w)[:, None]
    z, p = (np.reshape(inexact(roots), -1) for roots in (z, p))
    return w, inexact(k) * np.prod(s - z, axis=-1) / np.prod(s - p, axis=-1)


__all__ = ["bode", "freqresp", "freqs_zpk", "impulse", "linear_recurrence", "lsim", "step"]
