"""Programs with complex numbers, for tests: functions of a complex array of five and a real one of five; Python runs them as they are."""

from __future__ import annotations

import cmath

import numpy as np

TABLE = np.array([1 + 2j, -0.5j, 0.3 + 0j])


def scalars(z, x):
    s = 0.0
    w = 1.0 + 0j
    for k in range(z.size):
        w = w * z[k] + x[k] / (z[k] - 3.0)
        w -= 2j * z[k].conjugate() * x[0]
        if abs(w) > 4.0:
            w = w / abs(w)
        s += w.real * w.imag + abs(z[k] ** 2)
        s -= (z[k] ** -3).real * 0.1 + (-z[k]).imag
    return s + abs(w)


def functions(z, x):
    s = 0.0
    for v in z:
        w = np.exp(v) + np.sqrt(v + x[1]) * np.log(v) - np.sin(v) / np.cos(v)
        w += cmath.tanh(v) * cmath.cosh(v) + cmath.sinh(x[2] * v) - np.tan(v)
        s += np.angle(w) + np.abs(w) + cmath.phase(v) * (v**0.7).real
    return s


def iterated(z, x):
    """While loops, written elements, conditions on complex numbers, constants."""
    out = np.zeros(z.size, dtype=np.complex128)
    total = 0.0
    for i in range(z.size):
        c = z[i] * x[i]
        v = 0j
        n = 0
        while abs(v) < 2.0 and n < 12:
            v = v * v + c
            n += 1
        out[i] = v * TABLE[n % 3]
        out[i] += x[i]
        total += n
    for i in range(1, z.size):
        out[i] *= out[i - 1] + 1j
    return np.sum(out).real * 0.01 + total * abs(out[2]) ** 0.5


def arrays(z, x):
    """Whole-array expressions, views, parts that are written."""
    w = z * x + np.exp(1j * x) / (2.0 + z)
    w[1:3] = z[:2].conj() * 2.0
    r = w.real
    r[0] = x[0] * x[1]
    u = np.conj(w[::-1]) - z
    u[4] = 0.5
    m = np.outer(x, x) * 1j + 2.0 + 0.1 * np.outer(z, x)
    y = np.dot(m, u)
    q = np.where(x > 0.0, y, np.copy(z))
    return np.sum(np.abs(q)) + np.sum(w.imag * x) + np.vdot(u, z).real + y[3].imag


def written(z, x):
    """An argument that is written; a helper; swaps; names bound anew by real numbers."""
    a, b = 0.5, 1j
    for k in range(z.size):
        z[k] = z[k] * z[k] + x[k]
        a, b = b * z[k], a
        z[k] -= a * 0.1
    return (a * np.conj(b)).real + np.sum(z.real * z.imag)


def conditions(z, x):
    """Elements in conditions, at places that are computed."""
    w = np.conj(z) * 0.5
    c = 1.0j
    for k in range(z.size):
        if c.real > abs(w[4 - k % 3]) - 0.3:
            c += w[k] * z[4 - k]
            w[k] = c * x[k]
    return np.sum(w.real * x) + np.sum(w.imag * w.real) + c.imag


def linear(z, x):
    """Equations, an inverse and determinants; those of no, one and two rows, and in the end that of a singular matrix."""
    a = np.outer(z, x) + np.diag(z + 2.0)
    w = np.linalg.solve(a[:3, :3].copy(), a[:3, 3:].copy())
    b = np.linalg.inv(a[1:4, 1:4].copy())
    s = np.sum(np.abs(np.linalg.solve(a, z))) + np.sum(w.real * w.imag) + np.sum(b.imag * x[:3])
    for n in range(6):
        if n == 5:
            a[2] = 2.0 * a[0] - a[4]
        s += np.linalg.det(a[:n, :n].copy()).imag * (1.0 + n)
    return s


PROGRAMS = [scalars, functions, iterated, arrays, written, conditions, linear]
