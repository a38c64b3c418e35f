"""The program form: order by brute force, derivatives by complex steps, and faults that must be found.

Functions go through `mode="form"`, which refuses where it would otherwise hand over to the generated adjoint.
"""

import contextlib
import itertools
import math
import os
import re
import subprocess
import sys
from unittest import mock

import numba
import numpy as np
import pytest

import tapegrad as tg
from tapegrad.core import checking
from tapegrad.errors import CheckedAccessError, NotDifferentiable
from tapegrad.llvm import jit
from tapegrad.native import formed
from tapegrad.program import compiling, order, residuals, running
from tapegrad.program.affine import affine
from tapegrad.program.arrays import Builder
from tapegrad.program.form import Access, Buffer, Range, Site, Store
from tapegrad.program.passes import PASSES, fusion, products, scope, staging
from tests import programs_random as programs
from tests.seeds import seeds

TRAPS = {
    "shift up": "x[1:] = x[:-1] * 2.0",
    "shift down": "x[:-1] = x[1:] * x[:-1]",
    "both ways at once": "x[1:-1] = x[2:] * x[:-2]",
    "reversed onto itself": "x[:] = x[::-1] * x",
    "transposed onto itself": "m[:] = m.T * m",
    "reads what it wrote": "for i in range(1, n):\n    x[i] = x[i] * x[i - 1]",
    "downwards": "for i in range(n - 1, 0, -1):\n    x[i - 1] = x[i] * x[i - 1]",
    "triangle": "for i in range(n):\n    for j in range(i):\n        m[i, j] = m[i, j] * m[j, i] + m[j, j]",
    "triangle downwards": "for i in range(n - 1, -1, -1):\n    for j in range(i, n):\n        m[i, j] -= m[j, i] * m[i, i]",
    "read after overwriting": "y[:] = x * x\nx[:] = y * 3.0\ny[:] = x * y",
    "a number overwritten twice": "s = x[0]\nfor i in range(n):\n    s = s * x[i]\n    y[i] = s * s\n    s = 0.3 * s + 0.1",
    "local number": "for i in range(n):\n    t = x[i] * x[i]\n    x[i] = t * y[i]\n    t = t * x[i]\n    y[i] = t * t",
    "local row": "for t in range(3):\n    r = x * y\n    x[1:] += 0.1 * r[:-1] * r[1:]\n    y[:] = r * x",
    "local row in parts": "for t in range(3):\n    r = np.zeros(n)\n    r[1:] = x[1:] * y[:-1]\n    r[0] = y[0]\n    y[:] = r * r\n    x[:] = x * r",
    "kept between turns": "b = x * 1.0\nfor t in range(3):\n    for i in range(n):\n        b[i] = b[i] * y[i]\n        y[i] = b[i] * x[i]",
    "one element": "x[2] = x[2] * x[2]\nx[2] = x[2] * x[2]",
    "update by itself": "x[1:] += x[:-1] * x[1:]",
    "product into itself": "x[:] = m @ x\nx[:] = x @ m\ny += x * y",
    "overlapping product": "x[1:3] -= m[1:3, :2] @ x[0:2]\nx[0:2] -= m[:2, :2] @ x[0:2]",
    "running maximum": "s = x[0]\nfor i in range(1, n):\n    s = max(s, x[i])\ny[:] = y * s",
    "extremes of rows": "for i in range(n):\n    m[i, :] = np.exp(m[i, :] - np.max(m[i])) * np.min(m[:, i])",
    "minimum in place": "for k in range(n):\n    for i in range(n):\n        for j in range(n):\n            m[i, j] = min(m[i, j], m[i, k] + m[k, j])",
    "minimum of arrays": "for k in range(n):\n    m[:] = np.minimum(m, m[:, k][:, None] + m[k, :])",
    "sum used again": "for i in range(n):\n    s = np.sum(m[i, :] * x)\n    y[i] = s * s\n    m[i, :] = m[i, :] / s",
    "loops that never run": "for i in range(3, 3):\n    x[i] = x[i] * 5.0\nfor i in range(n, 2):\n    y[i] = 0.0",
    "constants stop it": "x[:] = 1.0\ny[1:] = x[:-1] * y[1:]\nx[0] = y[1]",
    "column and row": "for k in range(n):\n    m[:, k] = m[:, k] * m[k, :]",
    "index as a number": "for i in range(n):\n    x[i] = x[i] * (i + 1) - n * y[i] / (i * i + 1)",
    "view under a name": "v = x[1:]\nw = v[::-1]\nw[0] = w[1] * w[2]\nv[0] = v[1] * w[0]",
    "choice by value": "for i in range(n):\n    x[i] = x[i] * y[i] if x[i] > 1.0 else y[i] * y[i]",
    "where": "y[:] = np.where(x > 1.0, x * y, y * y)\nx[:] = np.where(y > 0.0, y, x)",
    "powers and roots": "x[:] = x ** 3 + x ** 0.5 + 1.0 / x\ny[:] = np.log(x) * np.tanh(y)",
    "name of a new array": "r = x + y\nfor t in range(3):\n    r = r * x\nx[:] = r",
    "formula that waits": "t = x[0] * y[0]\nx[0], y[0] = y[0] * t, x[0] + t",
    "array in an outer product": "m[:] = x[:, None] * y[None, :] + m\nm[1] = m[0] * m[1]",
    "two numbers chosen at once": "for i in range(1, n):\n    s = x[i]\n    t = y[i]\n    if x[i] > 1.0:\n        s = s + 1.0\n        t = s * 2.0\n    y[i] = s * t",
    "swapped elements": "x[0], x[1] = x[1], x[0]\nx[2], y[2] = x[2] * y[2], x[2]",
    "formulas under two names": "a, b = x * y, x + y\nx[:] = a\ny[:] = b * x\nx[1:] = a[1:] * b[:-1]",
    "branch by value": "for i in range(n):\n    if x[i] > 1.0:\n        x[i] = x[i] * y[i]\n        y[i] += x[i] * x[i]\n    else:\n        y[i] = y[i] * x[i]\n    x[i] = x[i] * y[i]",
    "branches in branches": "for i in range(1, n):\n    if x[i] > 0.8:\n        if y[i] > 0.0:\n            x[i] = x[i - 1] * y[i]\n        else:\n            x[i - 1] = x[i] * x[i]\n        y[i] = y[i] * x[i]",
    "branch by a loop's variable": "for i in range(n):\n    for j in range(n):\n        if i != j:\n            m[i, j] = m[i, j] * m[j, i]\n        elif i == 0:\n            m[i, j] = x[i] * x[j]",
    "ends of a loop": "for i in range(n - 1, -1, -1):\n    if i == n - 1:\n        x[i] = y[i] * x[0]\n    elif i > 0:\n        x[i] = x[i - 1] * x[i + 1]\n    else:\n        x[i] = x[i] * x[i]",
    "a number that a branch leaves for later turns": "t = 0.5\nfor i in range(n):\n    if x[i] > 1.0:\n        t = x[i] * y[i]\n    y[i] = y[i] * t",
    "a number that one branch makes and another reads": "for i in range(n):\n    if i == 1:\n        t = x[i] * y[i]\n    if i > 1:\n        y[i] = y[i] * t\n        t = t * x[i]",
    "a number that a branch leaves for behind the loop": "for i in range(n):\n    if i < 3 or x[i] > 5.0:\n        t = x[i] * y[i]\n    for j in range(2):\n        if j == i - 1:\n            u = x[j] * y[i]\ny[0] = t * t * u",
    "an index that a condition guards": "for i in range(n):\n    if i >= 2 and x[i] > x[i - 2]:\n        x[i] = x[i - 2] * x[i]\n    if i + 1 == n or x[i] > x[i + 1]:\n        y[i] = y[i] * x[i]",
    "remainders": "for i in range(n):\n    if i % 2 == 0 or i // 3 == 1:\n        x[i] = x[i] * x[0]",
    "branch around arrays": "if x[0] > 1.0:\n    r = x * y\n    x[1:] = r[:-1] * x[1:]\nelse:\n    for i in range(1, n):\n        y[i] = y[i - 1] * x[i]\nm[:] = m * x",
    "flags": "found = False\nfor i in range(n):\n    if found:\n        y[i] = y[i] * x[i]\n    elif x[i] > 1.0:\n        found = True\n        x[i] = x[i] * x[i]",
    "infinite on the other side": "for i in range(n):\n    r = x[i] - 10.0\n    if r > 0.0:\n        y[i] = y[i] * np.sqrt(r) / (r - r)\n    else:\n        y[i] = y[i] * x[i]",
    "division in place": "for i in range(n):\n    for j in range(n):\n        m[i, j] /= 2.0 + m[j, j] * m[j, j]",
    "array of numbers": "for t in range(3):\n    d = np.array([y[1] * x[0], y[0] - x[1], x[2]])\n    y[:3] = y[:3] + 0.1 * d\n    x[:3] = d * y[:3]",
    "rows of numbers": "r = np.array([[x[0], y[1]], [1.0, x[1]]])\nm[:2, :2] = r * m[:2, :2]\nx[:2] = r[1] * x[:2]",
    "identity and diagonals": "m[:] = m * np.eye(n) + np.diag(x) * y + np.identity(n)\ny[:] = np.diag(m) * y\nx[0] = np.trace(m) * x[0]",
    "points of a line": "x[:] = x * np.linspace(x[0], 2.0, n) + np.arange(n) * y",
    "indices in a row": "k = np.arange(1, n)\nfor i in k:\n    y[i] = y[i - 1] * x[i]",
    "from the other end": "r = np.flip(x)\nr[0] = r[1] * y[0]\nx[1] = x[0] * x[n - 1]\nm[:] = np.flipud(m) * np.fliplr(m) + m",
    "rolled onto itself": "r = np.roll(x, 1)\nx[:] = 0.5 * x * np.roll(x, -2) + r\ny[:] = r * x",
    "joined and overwritten": "r = np.concatenate((x[1:], y, x[:1]))\nx[:] = r[:n] * r[n:]\ny[:] = np.append(y[1:] * y[:-1], x[0]) * r[:n]\nm[:2] = np.stack((y, x)) * np.vstack((x, y))",
    "every second": "x[::2] = x[::2] * x[0]\ny[1::2] = x[1::2] * y[1::2]\nx[2::2] += x[:-2:2] * y[2::2]",
    "running sums": "r = np.cumsum(x * y)\nx[:] = r * x\ny[:] = np.cumprod(x) * r",
    "functions written out": "r = np.ediff1d(x * y)\nx[1:] = r * x[:-1]\ny[:3] = np.logspace(x[0], y[1], 3) * 0.1 * y[:3]",
    "products of all": "x[:] = x * np.prod(y)\ny[0] = np.prod(m) * y[0] + np.prod(x - x[1])",
    "differences": "x[1:] = np.diff(x) * x[:-1]\nm[:, 1:] = np.diff(m) * y[1:]",
    "where a mask holds": "k = y < 0.3\ny[k] = x[0] * x[1]\ny[y > 0.8] *= x[2]\ny[y < 0.0] = np.exp(y[y < 0.0])\nx[x < y[::-1]] = y[0]\ny[k] += x[1]",
    "sums where a mask holds": "k = y < 0.3\nx[0] = np.sum(y[k] ** 2) * x[1] + np.sum(np.log(x[x > 0.6]))\ny[:] = y * np.mean(x[x < 1.0])",
    "a mask of what changes": "k = np.logical_and(x > 0.7, x < 1.2)\nx[:] = x * y\nx[k] = x[0] * y[1]\nm[0] = x",
    "indices on a ring": "for i in range(n):\n    y[i] = y[(i + 1) % n] * x[(i - 1) % n] + y[i]\n    x[i] = x[i] * y[i]",
    "halves": "h = n // 2\nfor i in range(h):\n    x[i], x[h + i] = x[h + i] * y[i], x[i]\nif n % 2 == 1:\n    y[0] = y[0] * x[n - 1]",
    "where a loop ended": "for i in range(1, n):\n    y[i] = y[i - 1] * x[i]\nx[0] = y[i] * x[i - 1]",
    "products of matrices": "m[:] = m @ m.T * 0.3\nx[:] = (m @ m)[0] * x",
    "product for each end of a row": "for i in range(n):\n    m[i, i:] = 0.2 * m[:, i] @ m[:, i:]",
    "below zero on a ring": "for i in range(n):\n    for j in range(n):\n        m[i, j] = m[i - 1, j] * m[(i + 1) % n, j - 2] * 0.5\n    y[i] = x[i - 2] * x[i]",
    "one row for all": "r = np.zeros(n)\nfor i in range(n):\n    for j in range(n):\n        r[j] = m[i, j] * x[j]\n    for j in range(n):\n        m[i, j] = r[j] * r[(j + 1) % n]\nfor i in range(n):\n    for j in range(n):\n        r[j] = y[j] * m[j, i]\n    x[i] = x[i] * r[0] * r[n - 1]",
    "one row, read behind": "r = np.zeros(n)\nfor i in range(n):\n    for j in range(n):\n        r[j] = m[i, j] * x[j]\n    y[i] = r[i] * r[0]\nx[:] = r * x",
    "one row, read where no pass wrote": "r = x * y\nfor i in range(n):\n    for j in range(1, n):\n        r[j] = m[i, j] * r[j - 1]\n    y[i] = r[n - 1] * y[i]",
    "one number in two loops": "s = x[0]\nfor i in range(n):\n    s = y[i]\n    for j in range(n):\n        s = s + m[i, j] * x[j]\n    y[i] = 0.1 * s * s\n    for j in range(n):\n        s = x[j] * y[j]\n        m[i, j] = s * m[i, j]",
    "sums beside each other": "for i in range(n):\n    for j in range(n):\n        s = y[j]\n        for k in range(n):\n            s += m[i, k] * m[j, k]\n            y[k] += 0.1 * m[i, k] * x[j]\n        x[j] += 0.1 * np.tanh(s)",
    "products into halves": "r = np.zeros((n, n))\nfor i in range(n):\n    for j in range(i):\n        for k in range(n):\n            r[i, j] += m[i, k] * m[j, k]\n            r[j, i] += 0.5 * m[k, i] * m[k, j] / (1.0 + x[i] ** 2)\nm[:] = r * m",
    "a name for two things": "for i in range(n):\n    p = n - 1 - i\n    x[p] = x[p] * y[i]\nfor p in range(n):\n    y[p] = y[p] * x[p]",
    "a triangle in place": "for i in range(n):\n    for k in range(i + 1, n):\n        for j in range(n):\n            m[i, j] += 0.3 * m[k, i] * m[k, j]\n    for j in range(n):\n        m[i, j] = m[i, j] * x[j]",
    "a triangle in place, downwards": "for i in range(n - 1, -1, -1):\n    for j in range(n):\n        for k in range(i):\n            m[i, j] += 0.3 * m[k, j] * m[i, k] * x[k]\n    y[i] = y[i] * m[i, 0]",
    "updated again and again": "for t in range(2):\n    for i in range(n):\n        y[i] = y[i] * x[i]\n        for k in range(n):\n            y[i] += 0.1 * x[k] * m[k, i]\n        y[i] = y[i] * y[i] * 0.2\n        for k in range(n):\n            x[i] = 0.9 * x[i] * y[k]",
    "updated and read between": "for i in range(n):\n    for k in range(n):\n        y[i] += 0.1 * x[k]\n        x[k] = x[k] * y[i]\n    y[i] += m[i, i]\n    m[i, i] = y[i] * y[i]\n    y[i] = y[i] * 0.5 + x[i]\n    y[i] += x[0]",
    "kept before a loop that may not run": "for i in range(n):\n    for k in range(i, n - 2):\n        y[i] += x[k] * y[i + 1]\n    for k in range(2):\n        for j in range(n - 1):\n            y[j] = y[j] * 0.7 + x[i]\n    x[i] = x[i] * y[n - 1 - i]",
    "a value read between two stores": "for i in range(n):\n    y[i] = y[i] * x[i]\n    m[i, :] = m[i, :] * y[i]\n    y[i] = y[i] * 0.5 + x[i]\n    m[:, i] += y[i] * y[0]\n    y[i] = x[i] * 0.3\n    x[:] = x * 0.9\n    y[i] = y[i] + x[i]",
    "quotients of neighbours": "for t in range(2):\n    y[1:-1] = x[1:-1] / (x[2:] + x[:-2])\n    x[1:-1] = np.exp(-(y[2:] - y[:-2]) ** 2) * x[1:-1]\nm[1:-1] = m[1:-1] / (m[2:] + m[:-2])",
    "quotients of what changes": "for i in range(1, n - 1):\n    x[i] = x[i - 1] / (1.0 + x[i + 1] * x[i])\n    y[i] = x[i] / (x[i - 1] + x[i + 1])\n    for j in range(1, n):\n        m[i, j] = y[j] / (m[i, j] + m[i - 1, j - 1]) + np.exp(-m[i + 1, j] * y[j - 1])",
    "a linear system": "y[:] = np.linalg.solve(m + 3.0 * np.eye(n), x) * y\nx[:] = y * x",
    "systems for several columns": "m[:] = np.linalg.solve(m + 3.0 * np.eye(n), m.T * x)",
    "systems of what changes": "a = m + 3.0 * np.eye(n)\nfor t in range(3):\n    x[:] = np.linalg.solve(a, x * y)\n    a *= 0.8\n    a[t, 0] += x[1]\n    y[:] = np.linalg.solve(a.T, y + x)\nm[:] = a * m",
    "systems that grow": "for i in range(1, n):\n    y[:i] = np.linalg.solve(m[:i, :i] + 3.0 * np.eye(i), x[:i] * y[:i])\n    m[i, :i] = y[:i]",
    "inverses that grow": "a = 0.3 * m + 2.0 * np.eye(n)\nfor i in range(1, n):\n    m[:i, :i] += 0.1 * np.linalg.inv(a[:i, :i]) * x[i]\n    y[i] = np.linalg.slogdet(a[i:, i:])[1] * np.linalg.det(0.5 * a[:i, :i])\n    a[i - 1] *= 0.9",
    "factors that grow": "a = 0.1 * (m @ m.T) + np.eye(n)\nfor i in range(1, n):\n    for j in range(i):\n        m[j:i, j:i] = 0.5 * np.linalg.cholesky(a[j:i, j:i]) + 0.1 * np.linalg.solve(a[j:i, j:i], m[j:i, j:i])\n    a[i, i] += x[i]",
    "an inverse": "m[:] = np.linalg.inv(m + 3.0 * np.eye(n)) * m\nx[:] = np.linalg.inv(m + 2.0 * np.eye(n)) @ x",
    "determinants": "x[0] = np.linalg.det(m + 2.0 * np.eye(n)) * 0.01\nm[:] = m * x[1]\ny[1] = np.linalg.slogdet(m + 3.0 * np.eye(n))[1] * np.linalg.slogdet(m[:2, :2])[0] * y[0]",
    "the factor of a positive matrix": "for t in range(2):\n    m[:] = np.linalg.cholesky(0.3 * (m @ m.T) + 2.0 * np.eye(n))\n    m[0] = m[0] * x",
    "systems on one side of a branch": "a = m + 3.0 * np.eye(n)\nfor i in range(n):\n    if x[i] > 0.9:\n        y[:] = np.linalg.solve(a, x + y) * y[i]\n    else:\n        x[i] = x[i] * y[i]\nif x[0] > 100.0:\n    x[:] = np.linalg.solve(a - a, x)",
    "systems until it is enough": "k = 0\nwhile k < 4 and np.sum(x * x) > 0.3:\n    x[:] = np.linalg.solve(m + 2.0 * np.eye(n), x * y + x)\n    k += 1",
    "a filter": "a = 0.3 * m + np.eye(n)\nz = x * 1.0\np = np.eye(n)\nfor t in range(3):\n    p = a @ p @ a.T + np.eye(n)\n    s = p + np.diag(x)\n    g = np.linalg.solve(s, p)\n    z = z + g @ (y - z)\n    p = p - g @ p\nx[:] = z\nm[:] = 0.2 * p",
    "numbers bound at once, in pieces": "for i in range(n):\n    a, b = x[0], y[1]\n    for j in range(n):\n        if j != i:\n            a, b = 0.5 * a * x[j] - b * y[j], 0.5 * a * y[j] + b * x[j]\n    x[i] = 0.3 * x[i] + 0.1 * a * b",
    "elements bound at once, in pieces": "for i in range(n):\n    if i > 1:\n        x[i], y[i] = x[i] * x[i] - y[i] * y[0], x[i] * y[i - 1]\n    else:\n        y[i], x[i] = x[i] * y[i] + y[0], y[i] * x[2]",
    "numbers bound at once, as arrays are exchanged": "p, q = x[0], y[0]\nfor t in range(5):\n    p, q = 0.5 * p + q, q - 0.3 * p\n    y[1:] = x[:-1] * p + q\n    x, y = y, x\ny[0] = p * q",
    "the shorter of two": "for a, b in zip(x, x[1:]):\n    y[0] = y[0] * a + b",
}  # fmt: skip


def source(statements):
    body = "".join(f"    {line}\n" for line in statements.split("\n"))
    return f"def f(x, y, m):\n    n = x.shape[0]\n{body}    return np.sum(x * x) + np.sum(y * y * y) + np.sum(m * m * x)\n"


def arguments(n):
    r = np.random.default_rng(n)
    return [r.uniform(0.5, 1.5, n), r.uniform(-1, 1, n), r.uniform(0.2, 1, (n, n))]


def engine(text, args):
    """What the form has for a text, and no other engine."""
    function = tg.njit(mode="form")(programs.defined(text))
    places = tuple(i for i, a in enumerate(args) if programs.floats(a))
    return function.variant(tuple(args)).derived(places)


def fault(derived, text, args):
    """What is wrong with value and gradients, or an empty string; None where they are too steep to be compared."""
    with np.errstate(all="ignore"):
        value, along = programs.slopes(text, args)
        if not np.all(np.abs([value, *along]) < 1e5):
            return None
        found, gradients = derived.run(tuple(args), (1.0,))
    assert derived._other is None, "the form handed over to the generated adjoint"
    if not np.isclose(found, value, rtol=1e-9, atol=1e-11):
        return f"value {found} is {value}"
    arrays = [a for a in args if programs.floats(a)]
    for g, a, slope in zip(gradients, arrays, along, strict=True):
        mine = np.sum(g * programs.direction(a))
        if not np.isclose(mine, slope, rtol=1e-8, atol=1e-10 * max(1, np.abs(g).max())):
            return f"derivative {mine} is {slope}"
    return ""


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", TRAPS)
def test_traps(name):
    """One compilation serves all lengths, and the arguments stay as they were."""
    text = source(TRAPS[name])
    derived = engine(text, arguments(5))
    for n in (5, 4, 7):
        args = arguments(n)
        before = [a.copy() for a in args]
        assert fault(derived, text, args) == ""
        assert all(np.array_equal(a, b) for a, b in zip(args, before, strict=True))


def without(seed):
    """Every second program with some passes left out: each is right without the others."""
    chance = np.random.default_rng(seed)
    return [name for name in PASSES if seed % 2 and chance.random() < 0.3]


def told(seed, author=programs.Author, least=5):
    """What is wrong with one random program."""
    text, args = author(seed).text(), programs.arguments(seed, least)
    if author is programs.Indexed:
        args += programs.indices(seed, args[0].size)
    left = without(seed)
    known = formed.prepared
    with mock.patch.object(formed, "prepared", lambda p, more=(): known(p, [*left, *more])):
        found = fault(engine(text, args), text, args)
    return f"{found} (seed {seed}, without {left})\n{text}" if found else found


@pytest.mark.long(but=2)
@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    assert not told(seed)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("seed", range(6))
def test_random_programs_that_leave_loops(seed):
    """Those that lie outside have a name that is another index in each iteration."""
    try:
        assert not told(seed, programs.Leaving)
    except NotDifferentiable as why:
        assert "in each turn" in str(why)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("seed", (4, 21, 27, 96, 99, 105, 109, 113))
def test_random_programs_that_bind_several_at_once(seed):
    """Those that lie outside have an index that is out of bounds."""
    try:
        assert not told(seed, programs.Together)
    except NotDifferentiable as why:
        assert "out of bounds" in str(why)


SHORTEST = 9


@contextlib.contextmanager
def long_arrays():
    """Arrays are long in proofs, as they are where a program is made for known lengths, and a few iterations are many."""

    def prepared(p, without=()):
        sizes = dict.fromkeys(n for b in p.inputs for n in b.extents if n.terms)
        known = [*p.assumptions, *(n - SHORTEST for n in sizes)]
        return compiling.prepared(p.of(p.body, assumptions=known), without)

    with (
        mock.patch.object(formed, "prepared", prepared),
        mock.patch.multiple(fusion, LONG=2, LONG_AROUND=2),
        mock.patch.multiple(staging, LONG=2, LEAST=1),
    ):
        yield


@pytest.mark.long(but=8)
@pytest.mark.parametrize("name", TRAPS)
def test_traps_of_long_arrays(name):
    text, args = source(TRAPS[name]), [0.7 * a for a in arguments(SHORTEST)]
    with long_arrays():
        assert fault(engine(text, args), text, args) == ""


STENCILS = {
    "three": "for t in range(3):\n    y[1:-1] = x[:-2] * x[1:-1] + x[2:]\n    x[1:-1] = y[:-2] - y[2:] * x[1:-1]",
    "in place": "for t in range(3):\n    x[1:-1] += 0.1 * (x[:-2] - 2.0 * x[1:-1] + x[2:]) * x[1:-1] * y[1:-1]",
    "kept once": "for t in range(3):\n    a = x[1:-1] - x[:-2]\n    b = x[2:] - x[1:-1]\n    x[1:-1] = x[1:-1] - 0.2 * x[1:-1] * np.where(x[1:-1] > 1.0, a, b) + y[1:-1] * (b - a)",
    "of what is computed again": "for t in range(3):\n    a = x[1:] * x[:-1]\n    b = a[1:] * a[:-1]\n    c = b * y[1:-1]\n    x[1:-1] = x[1:-1] * 0.5 + c\n    y[2:-2] = y[2:-2] + 0.1 * c[1:-1]",
    "again in the middle": "for t in range(3):\n    a = x * y\n    x[1:-1] = x[1:-1] + 0.1 * a[:-2] * a[2:]\n    b = x * a\n    y[1:] = y[1:] + 0.1 * b[:-1] * b[1:]\n    x[0] = b[0] * a[1]",
    "again, overwritten twice": "for t in range(3):\n    a = x * x\n    x[1:] = x[1:] * 0.9 + 0.1 * a[:-1] * y[1:]\n    x[:-1] = x[:-1] + 0.1 * a[1:] * a[:-1]",
    "again, added to what is written earlier": "for t in range(3):\n    a = m[0] * m[1]\n    b = np.sin(x)\n    a[1:] = a[1:] + b[:-1] * b[1:]\n    x[1:] = x[1:] + 0.1 * a[1:] * a[:-1]",
    "read behind": "for t in range(3):\n    a = np.tanh(x) * y\n    x[1:-1] = x[1:-1] + 0.1 * a[2:] * a[:-2]\n    y[:] = y + 0.1 * a * a",
    "plane": "for t in range(3):\n    m[1:-1, 1:-1] = m[1:-1, 1:-1] + 0.1 * (m[2:, 1:-1] * m[:-2, 1:-1] - m[1:-1, 2:] + m[1:-1, :-2] * x[1:-1])",
    "two planes": "a = m * 1.0\nfor t in range(3):\n    a[1:-1, 1:-1] = 0.2 * (m[1:-1, 1:-1] + m[1:-1, :-2] + m[1:-1, 2:] + m[2:, 1:-1] + m[:-2, 1:-1])\n    m[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] * a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])",
    "rows of a residual": "for t in range(3):\n    x[:] = 0.5 * x + 0.5 * np.tanh(m @ x + y)",
    "copies": "a = x.copy()\nb = a[::-1].copy()\na[1:] = b[:-1] * a[1:]\nc = a.copy()\na[:] = a * c\nx[:] = c * b * a",
    "copies in a loop": "a = x * 0.0\nfor t in range(3):\n    a[:] = x\n    x[1:] = a[:-1] * y[1:]\n    a[1:] = a[1:] * x[:-1]\n    y[:] = a * y",
    "zero in parts": "a = x * y\na[2:4] = 0.0\nfor t in range(3):\n    a[1:-1] += 0.1 * x[:-2]\n    y[1:-1] += 0.1 * a[1:-1] * a[2:]\n    a[1:-1] = 0.0",
    "zero, then something": "a = x * 0.0\nfor t in range(3):\n    a[1:-1] += 0.1 * y[2:]\n    x[:] = x + 0.1 * a * y\n    a[1:-1] = 0.0\n    a[2:5] = x[2:5] * y[:3]",
    "zero again": "a = x * 0.0\nfor t in range(3):\n    a[1:-1] += x[:-2] * y[2:]\n    x[1:-1] += 0.1 * a[1:-1] * a[2:]\n    a[1:-1] = 0.0",
}  # fmt: skip


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", STENCILS)
def test_stencils(name):
    """As one program for all short lengths, and as one for long arrays."""
    text = source(STENCILS[name])
    derived = engine(text, arguments(SHORTEST))
    for n in (80, SHORTEST, SHORTEST + 3):
        args = [0.7 * a for a in arguments(n)]
        assert fault(derived, text, args) == ""
    assert len(derived.programs) == 1 + bool(derived._candidates)
    with long_arrays():
        assert fault(engine(text, args), text, args) == ""


TEXTS = """
import hashlib, sys
left = [object() for _ in range(int(sys.argv[1]))]  # other addresses
from tests import test_program as tests
for name in ("kept once", "of what is computed again", "plane"):
    derived = tests.engine(tests.source(tests.STENCILS[name]), tests.arguments(80))
    derived.run(tuple(tests.arguments(80)), (1.0,))
    (program,) = derived.programs.values()
    print(hashlib.sha1(program.compiled.text.encode()).hexdigest())
"""


@pytest.mark.long
def test_programs_have_one_text_in_every_process():
    """Machine code on disk is found by the text: no order of a set is in it."""
    told = {
        subprocess.run(
            [sys.executable, "-c", TEXTS, str(97 * seed)],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in (1, 2, 3)
    }  # fmt: skip
    assert len(told) == 1


@pytest.mark.long(but=2)
@pytest.mark.parametrize("seed", range(0, 12, 2))
def test_random_programs_of_long_arrays(seed):
    with long_arrays():
        assert not told(seed, least=SHORTEST)


def judged(seed):
    """The same of a program with indices that are read from arrays; None where it lies outside, or its indices go to the other engine."""
    with mock.patch.object(formed.ByForm, "other", property(lambda _: _handed_over())):
        try:
            return told(seed, programs.Indexed)
        except (NotDifferentiable, HandedOver):
            return None


class HandedOver(Exception):
    pass


def _handed_over():
    raise HandedOver


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 16, 8))
def test_random_programs_with_indices_read_from_arrays(first):
    found = [judged(seed) for seed in range(first, first + 8)]
    assert not any(found), found
    assert found.count("") >= 2


def never(*_, **__):
    return False


FAULTS = {
    "nothing is kept": lambda: mock.patch.object(residuals.Residuals, "need", lambda *_: None),
    "no accesses meet": lambda: mock.patch.object(order.Order, "meet", never),
    "any loops are joined and cut": lambda: mock.patch.object(fusion, "reordered", never),
    "all loops are parallel": lambda: mock.patch.object(scope, "carried", never),
}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name, monkeypatch):
    """Planted mistakes give wrong numbers: these tests can fail."""
    monkeypatch.setattr(jit, "LIMIT", jit.VECTORISED)  # which is what takes loops as told
    with FAULTS[name]():
        for text in map(source, TRAPS.values()):
            args = arguments(24)  # longer than any vector
            if fault(engine(text, args), text, args):
                return
    raise AssertionError(f"no trap finds that {name}")


NEEDING = [
    "rolled onto itself",
    "running sums",
    "where a mask holds",
    "indices on a ring",
    "every second",
    "products of matrices",
]


@pytest.mark.parametrize("name", seeds(NEEDING))
def test_each_of_them_needs_what_is_kept(name):
    text, args = source(TRAPS[name]), arguments(9)
    with FAULTS["nothing is kept"]():
        assert fault(engine(text, args), text, args)


# ------------------------------------------------------------------------------------------------ order


def test_order_agrees_with_trying_every_iteration():
    """What is refuted never happens; what happens is never refuted."""
    chance = np.random.default_rng(0)
    buffer = Buffer("b", (affine("n"),))
    refuted = 0
    for _ in range(150):
        c = chance.integers(-2, 3, 8)
        i = Range("i", affine(int(c[0])), affine("n") + int(c[1]))
        j = Range("j", affine("i") * int(c[2] % 2), affine("n"), int(c[3] % 2) * 2 - 1)
        a, b = (
            affine("i") * int(p) + affine("j") * int(q) + int(r) for p, q, r in (c[2:5], c[5:8])
        )
        store = Store(Access(buffer, (a,)), None)
        places = [
            Site((i, j), (), (0, 0, k), Access(buffer, (e,)), bool(k), store, None)
            for k, e in enumerate((a, b))
        ]
        claimed = order.Order([], ["n"]).precedes(*places)
        happens = False
        for n in range(6):
            turns = []
            for u in range(i.lo.at({}), i.hi.at({"n": n})):
                inner = range(j.lo.at({"i": u}), n)
                turns += [{"i": u, "j": v} for v in (inner if j.step > 0 else reversed(inner))]
            for (p, s), (q, t) in itertools.product(enumerate(turns), repeat=2):
                happens = happens or (p <= q and a.at(s) == b.at(t))
        assert claimed or not happens
        refuted += not claimed
    assert refuted > 20


def test_parts_of_a_system_are_one_system():
    """Rows that share no name are asked apart: what is refuted has no solution, and a part alone is refuted as with the others."""
    chance = np.random.default_rng(1)
    refuted = 0
    for _ in range(300):
        groups = (("a", "b"), ("c",))
        rows = []
        for names in groups:
            for _ in range(chance.integers(1, 4)):
                c = chance.integers(-2, 3, len(names) + 1)
                total = sum(
                    (affine(x) * int(k) for x, k in zip(names, c, strict=False)), affine(int(c[-1]))
                )
                rows.append((total, chance.random() < 0.3))
        equal, least = ([r for r, is_equal in rows if is_equal == want] for want in (True, False))
        values = itertools.product(range(-4, 5), repeat=3)
        exists = any(
            all(r.at(v) == 0 for r in equal) and all(r.at(v) >= 0 for r in least)
            for v in (dict(zip("abc", x, strict=True)) for x in values)
        )
        claimed = order.feasible(equal, least)
        assert claimed or not exists
        assert claimed == all(
            order.feasible(
                [r for r in equal if r.names() <= {*names}],
                [r for r in least if r.names() <= {*names}],
            )
            for names in groups
        )
        refuted += not claimed
    assert 30 < refuted < 270


# ------------------------------------------------------------------------------------------ what it is given


def one(function, mode="form"):
    return tg.njit(mode=mode)(function)


@pytest.mark.long
@pytest.mark.parametrize("dtype", seeds([np.float64, np.float32]))
def test_several_results_and_dtypes(dtype):
    r = np.random.default_rng(1)
    x, y = r.random((4, 3)).astype(dtype), r.random(3).astype(dtype)

    def f(a, b):
        c = a.copy()
        for i in range(1, c.shape[0]):
            c[i] += c[i - 1] * b
        return np.sum(c * c), c[:, 0] * b[0], b

    found = []
    for mode in ("form", "adjoint"):
        native = one(f, mode)
        outs, pull = tg.vjp(lambda a, b, native=native: native(a, b), x, y)
        found.append((outs, pull((dtype(1.5), np.arange(4, dtype=dtype), np.ones(3, dtype)))))
    tolerance = 1e-11 if dtype is np.float64 else 1e-5
    for mine, theirs in zip(found[0], found[1], strict=True):
        for p, q in zip(mine, theirs, strict=True):
            assert np.asarray(p).dtype == np.asarray(q).dtype
            assert np.allclose(p, q, rtol=tolerance)


@pytest.mark.long
def test_arguments_of_any_layout():
    x = np.random.default_rng(2).random((6, 8))

    def f(a):
        s = 0.0
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                s += a[i, j] * a[i, j] * (i + 1)
        return s

    want = 2 * x * np.arange(1, 7)[:, None]
    locked = x.copy()
    locked.flags.writeable = False
    for given in (x, np.asfortranarray(x), locked, np.repeat(x, 2, axis=1)[:, ::2]):
        assert np.allclose(tg.grad(one(f))(given), want)
    assert tg.grad(one(f))(np.zeros((0, 3))).shape == (0, 3)


def test_indices_out_of_bounds_go_to_the_other_engine():
    """A negative index means another element in Numba, and what was not proved is checked before anything is written."""

    def f(x, k):
        s = 0.0
        for i in range(x.shape[0]):
            for j in range(2):
                s += x[k] * x[i] * (j + 1)
        return s

    native, x = one(f), np.arange(1.0, 6.0)
    want = tg.grad(one(f, "adjoint"))(x, -1)
    assert np.allclose(tg.grad(native)(x, 0), 3 * (np.full(5, x[0]) + [np.sum(x), 0, 0, 0, 0]))
    assert native.latest._other is None
    assert np.allclose(tg.grad(native)(x, -1), want)
    assert native.latest._other is not None


@pytest.mark.long
def test_sizes_for_which_a_function_raises_go_to_the_other_engine():
    def f(x, k):
        if k < 2 or x.size < 3:
            raise ValueError("too short")
        s = 0.0
        for i in range(1, k):
            s += x[i] * x[i - 1]
        return s

    def g(x):
        if x.size < 3:
            raise ValueError("too short")
        return np.sum(x[:3] * x[:3])

    x = np.arange(1.0, 6.0)
    native = one(g)
    assert np.allclose(tg.grad(native)(x), [2, 4, 6, 0, 0])
    for function, given in ((native, (x[:2],)), (one(f, "auto"), (x, 1))):
        with pytest.raises(ValueError, match="too short"):
            tg.grad(function)(*given)


def test_a_sum_of_choices_is_a_sum():
    """`s` gets something on each side: additions, which registers may gather in any order, so the loop has vectors."""

    def f(x):
        s = 0.0
        for i in range(x.size):
            if -1.0 < x[i] and x[i] < 1.0:
                s += 0.5 * x[i] * x[i]
            else:
                s += abs(x[i]) - 0.5
        return s

    native, x = one(f), np.linspace(-3.0, 3.0, 9)
    value, found = tg.value_and_grad(native)(x)
    assert np.isclose(value, f(x)) and np.allclose(found, np.clip(x, -1, 1))
    assert "s += where(" in native.adjoint_source
    assert "in parallel" in str(native.latest.latest.ready.program)


@pytest.mark.long
def test_what_a_branch_does_not_do_has_no_gradient():
    """A cotangent of 0 stays 0 on the side that is not taken, however infinite its partial; ties are as on the side that is."""

    def f(x):
        s = 0.0
        for i in range(x.size):
            if x[i] > 0.0:
                s += np.sqrt(x[i]) * np.log(x[i])
            else:
                s += x[i] * 2.0
        return s

    x = np.array([-1.0, 0.0, 4.0, np.inf])
    mine, theirs = (tg.grad(one(f, mode))(x) for mode in ("form", "adjoint"))
    assert np.array_equal(mine[:2], [2.0, 2.0])
    assert np.allclose(mine, theirs, equal_nan=True)


def test_shared_memory_is_refused_as_ever():
    def f(x, y):
        for i in range(1, x.shape[0]):
            x[i] = x[i - 1] * y[i]
        return np.sum(x)

    x = np.arange(1.0, 6.0)
    native = one(f)
    for _ in range(2):
        assert tg.grad(native)(x, x.copy()).shape == x.shape
        with pytest.raises(NotDifferentiable, match="shares memory"):
            tg.grad(native, argnums=(0, 1))(x, x)
        with pytest.raises(NotDifferentiable, match="shares memory"):
            tg.grad(native)(x, x)


@pytest.mark.long
def test_what_lies_outside_is_told_by_line():
    def f(x):
        s = 0.0
        for i in range(x.shape[0]):
            s += np.sort(x)[i] * x[i]
        return s

    with pytest.raises(NotDifferentiable, match=r"outside the program form:\n.*np.sort"):
        tg.grad(one(f))(np.ones(3))


@pytest.mark.long
def test_cotangents_of_zero_stay_zero():
    def f(x, y):
        for i in range(x.shape[0]):
            y[i] = np.sqrt(x[i]) if x[i] > 0.0 else x[i]
        return np.sum(y * y)

    x = np.array([0.0, 4.0, -1.0])
    assert np.allclose(tg.grad(one(f))(x, np.ones(3)), [0.0, 1.0, -2.0])

    def g(x):
        r = np.sqrt(x)
        return np.sum(np.where(x > 0.0, r, 0.0)) + np.sum(np.zeros(3) * x)

    assert np.allclose(tg.grad(one(g))(np.array([0.0, 4.0, 1.0])), [0.0, 0.25, 0.5])


def test_the_side_that_is_not_taken_may_be_infinite(monkeypatch):
    """Its cotangent is left out behind the last product: no program has to be run again, guarded."""

    def limited(q):
        face = q.copy()
        for i in range(1, q.size - 1):
            left, right = q[i] - q[i - 1], q[i + 1] - q[i]
            if left * right > 0.0:
                face[i] += 0.3 * (2.0 * left * right / (left + right))
        return np.sum(face * face)

    def clipped(x):
        s = 0.0
        for i in range(x.size):
            s += np.sqrt(x[i]) if x[i] > 0.0 else -(1.0 / x[i] if x[i] < 0.0 else x[i] * 3.0)
        return s

    monkeypatch.setattr(formed._Program, "_guard", never)
    q = np.array([0.3, 0.3, 0.3, 0.7, 0.9, 0.7, 0.5, 0.5, 0.5])
    np.testing.assert_allclose(tg.grad(one(limited))(q), tg.grad(limited)(q), rtol=1e-13)
    x = np.array([4.0, -2.0, 0.0])
    np.testing.assert_allclose(tg.grad(one(clipped))(x), [0.25, 0.25, -3.0])


def test_ties_share():
    def f(x):
        return np.max(x) * 2.0 - np.min(x) + np.sum(np.maximum(x, 1.0))

    x = np.array([1.0, 1.0, 1.0])
    assert np.allclose(tg.grad(one(f))(x), 2 / 3 - 1 / 3 + 0.5)


@pytest.mark.long
def test_which_way_a_function_goes(monkeypatch):
    """What lies in the form goes by it, unless the environment says no; a few numbers alone, and what lies outside, say why not."""

    def nest(x):
        y = x * x
        for i in range(1, y.size):
            y[i] += y[i - 1]
        return np.sum(y)

    def early(x):
        s = 0.0
        for i in range(x.size):
            s += x[i] ** 3
            if s > 1e3:
                break
        return s

    def number(a):
        return a * a * a

    def rare(x):
        s = 0.0
        for i in range(x.size):
            if x[i] > 1e3:
                s += np.exp(np.sin(x[i]))
            else:
                s += x[i] * x[i] * x[i]
        return s

    x = np.arange(1.0, 5.0)
    want = tg.grad(one(nest, "adjoint"))(x)
    function = one(nest, "auto")
    assert np.allclose(tg.grad(function)(x), want)
    assert function.explain().startswith("engine: form")
    function = one(early, "auto")
    assert np.allclose(tg.grad(function)(x), 3 * x * x)
    assert function.explain().startswith("engine: form")
    for other, at in ((number, 2.0), (rare, x)):
        function = one(other, "auto")
        assert np.allclose(tg.grad(function)(at), 3 * at * at)
        assert function.explain().startswith("engine: adjoint")
        assert "the program form does not have it" in function.explain()
    monkeypatch.setenv("TAPEGRAD_FORM", "0")
    function = one(nest, "auto")
    assert np.allclose(tg.grad(function)(x), want)
    assert function.explain().startswith("engine: adjoint")


@pytest.mark.long
def test_a_fault_of_the_form_is_told_and_not_met(monkeypatch):
    """In mode auto another engine has the function; asked for the form, and in checked mode, the fault is raised."""

    def f(x):
        return np.sum(x * x)

    def faulty(*_):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(formed, "differentiated", faulty)
    x = np.arange(3.0)
    function = one(f, "auto")
    assert np.allclose(tg.grad(function)(x), 2 * x)
    assert "a fault of tapegrad" in function.explain()
    for mode, checks in (("form", False), ("auto", True)):
        with checking.checked() if checks else contextlib.nullcontext():
            with pytest.raises(ZeroDivisionError):
                tg.grad(one(f, mode))(x)


def test_the_gradient_alone_leaves_the_value_out():
    def total(x):
        s = 0.0
        for i in range(x.size):
            s += np.sin(x[i]) * x[i]
        return s

    x, want = np.linspace(0.1, 2.0, 7), lambda x: np.sin(x) + x * np.cos(x)
    alone = one(total)
    for _ in range(3):  # the second call is by a shortcut
        assert np.allclose(tg.grad(alone)(x), want(x), rtol=1e-14)
    assert not alone.latest.valued and "returns result" not in alone.adjoint_source
    value, found = tg.value_and_grad(alone)(x)
    assert np.isclose(value, np.sum(np.sin(x) * x)) and np.allclose(found, want(x))
    assert alone.latest.valued
    assert np.allclose(tg.grad(alone)(x), want(x)) and not alone.latest.valued


@pytest.mark.long
def test_complex_numbers():
    def f(z, w):
        out = np.empty(z.size, np.complex128)
        for i in range(1, z.size):
            out[i] = z[i] * z[i - 1] + w * z[i].conjugate()
        out[0] = z[0] / w
        return out

    r = np.random.default_rng(3)
    z, w = r.normal(size=4) + 1j * r.normal(size=4), 0.3 + 0.8j
    g = r.normal(size=4) + 1j * r.normal(size=4)
    found = []
    for mode in ("form", "adjoint"):
        out, pull = tg.vjp(one(f, mode), z, w)
        found.append([out, *pull(g)])
    for mine, theirs in zip(*found, strict=True):
        assert np.allclose(mine, theirs, rtol=1e-13)


def test_text_has_as_many_words_as_there_are_formulas():
    """A formula that stands at two places is printed once: squares of squares have no text of 2**40 words."""

    def f(x):
        t = x[0]
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        t = t * t
        return t  # fmt: skip

    native = one(f)
    assert tg.grad(native)(np.ones(1)) == 2.0**30
    assert len(native.adjoint_source) < 10_000


@pytest.mark.long
def test_whole_numbers_by_what_may_be_zero():
    """Numba gives 0 there, and floats give NaN: a divisor is positive in the form, or another engine has the call."""

    def f(x, k):
        s = 0.0
        for i in range(x.shape[0]):
            if i % k == 0:
                s += x[i] ** 2
            elif i // k > 0:
                s -= x[i]
        return s

    function, x = one(f), np.arange(1.0, 8.0)
    for k in (3, 0, 2, 0):
        value, slopes = tg.value_and_grad(function)(x, k)
        squared = np.arange(7) % k == 0 if k else np.full(7, True)
        assert value == function(x, k)
        assert np.array_equal(slopes, np.where(squared, 2 * x, -1.0 * (np.arange(7) >= k)))


def test_checked_mode_tells_of_an_access_that_leaves_its_buffer():
    def f(x, k):
        s = 0.0
        for i in range(k):
            for j in range(2):
                s += x[i] * x[i] * (j + 1)
        return s

    x = np.arange(1.0, 4.0)
    with checking.checked(), mock.patch.object(Builder, "claim", lambda *_: None):
        function = one(f)
        assert np.allclose(tg.grad(function)(x, 3), 6 * x)
        with pytest.raises(CheckedAccessError, match=r"left a buffer at x\["):
            tg.grad(function)(x, 4)


def test_it_prints_as_the_statements_it_is_made_of():
    def f(x):
        y = x * x
        y[1:] = y[:-1] * 3.0
        return np.sum(y)

    native = one(f)
    tg.value_and_grad(native)(np.ones(4))
    wanted = r"y\[(i\.\d+) \+ 1\] = \(y\[\1\] \* 3\)  for \1 in 0 \.\. n1 - 1\n"
    assert re.search(wanted, native.adjoint_source)
    assert native.explain().startswith("engine: form")


def schedule(f, *args):
    """The loops of a gradient, as they are written."""
    with mock.patch.object(formed, "prepared", wraps=formed.prepared) as spy:
        made = []
        spy.side_effect = lambda *a: made.append(compiling.prepared(*a)) or made[-1]
        tg.value_and_grad(one(f), tuple(range(len(args))))(*args)
    return re.sub(r"\.\d+", "", str(made[0].program))


def test_what_a_loop_writes_anew_is_not_filled_with_zeros():
    def outer(a, x):
        y = np.zeros(a.shape[0])
        for i in range(a.shape[0]):
            for j in range(x.size):
                y[i] += a[i, j] * x[j]
        return np.sum(y * y)

    a, x = np.ones((3, 4)), np.ones(4)
    assert "d_a[" in schedule(outer, a, x)
    assert not re.search(r"d_a\[.*\] = 0\n", schedule(outer, a, x))

    def some_rows(a, x):
        s = 0.0
        for i in range(a.shape[0] - 1):
            for j in range(x.size):
                s += a[i, j] * x[j]
        return s * s

    assert re.search(r"d_a\[.*\] = 0\n", schedule(some_rows, a, x))
    assert np.all(tg.grad(one(some_rows))(a, x)[-1] == 0.0)


def grown_in_parts(x):
    """Columns that grow, of which a turn writes the head and then the rest."""
    total = 0.0
    for k in range(2, x.size):
        z = np.empty((k, 1))
        z[0, 0] = x[0]
        z[1:, 0] = x[1:k] * x[0]
        total += np.sum(z * z * z)
    return total


def test_cotangents_of_what_grows_begin_at_zero():
    """All of their memory, where no store of a turn takes the whole of it: which had a loop's variable outside of the loop."""
    x = np.linspace(0.4, 1.3, 9)
    f = tg.njit(grown_in_parts, mode="form")
    for n in (9, 5, 3, 2):
        _, gradient = tg.value_and_grad(f, allow_unused=True)(x[:n])
        step = [grown_in_parts_of(x[:n] + 1e-30j * d) for d in np.eye(n)]
        assert np.allclose(gradient, np.imag(step) * 1e30, rtol=1e-13, atol=0)


def grown_in_parts_of(x):
    """The same in NumPy, of complex numbers."""
    return sum(x[0] ** 3 + np.sum((x[1:k] * x[0]) ** 3) for k in range(2, x.size))


def test_loops_are_joined_past_short_ones_that_stand_between():
    def both(a, x, y):
        u, v = np.zeros(a.shape[0]), y.copy()
        for i in range(a.shape[0]):
            for j in range(x.size):
                u[i] += a[i, j] * x[j]
        for j in range(x.size):
            v[j] *= 2.0
        for i in range(a.shape[0]):
            for j in range(x.size):
                v[j] += a[i, j] * x[j]
        return np.sum(u * u) + np.sum(v * v)

    def as_arrays(a, x, y):
        return np.sum((a @ x) ** 2) + np.sum((2.0 * y + np.sum(a, 0) * x) ** 2)

    a, x = np.arange(12.0).reshape(3, 4), np.arange(4.0)
    found = schedule(both, a, x, x)
    assert len(re.findall(r"for \w+ in 0 \.\. n1:\n", found)) == 2  # one forward, one back
    for k in range(3):
        got = tg.grad(one(both), k)(a, x, x + 1.0)
        np.testing.assert_allclose(got, tg.grad(as_arrays, k)(a, x, x + 1.0), rtol=1e-13)


def test_what_is_dear_and_several_loops_compute_is_computed_once():
    def ratios(x):
        s = 0.0
        y = np.zeros(x.size)
        for _ in range(2):
            for i in range(1, x.size - 1):
                y[i] += np.exp(x[i - 1] * x[i + 1]) / (x[i - 1] + x[i] * x[i + 1])
            for i in range(1, x.size - 1):
                s += y[i] * y[i]
        return s

    x = np.linspace(0.5, 1.0, 7)
    found = schedule(ratios, x)
    first, *others = re.split(r"for .*:\n", found[found.index("shared[i_2 - 1] = ") :])
    assert "exp(" in first and len(others) == 2
    assert all("shared" in x and "exp(" not in x and " / " not in x for x in others)
    np.testing.assert_allclose(tg.grad(one(ratios))(x), tg.grad(ratios)(x), rtol=1e-13)


def test_elementary_functions_stay_in_an_innermost_loop():
    def layer(w, x):
        h = np.tanh(x)
        s = 0.0
        for i in range(x.size):
            for j in range(x.size):
                s += w[i, j] * h[i]
        return s * s

    found = schedule(layer, np.ones((3, 3)), np.ones(3))
    assert re.search(r"in parallel:\n(.*\n)?.*h\[.*\] = tanh\(x\[", found)


@pytest.mark.long
@pytest.mark.parametrize("rows", [100, 300])
def test_large_gradients_lie_in_memory_that_nobody_holds(rows):
    """A result is never written to by a later call while it, or a view of it, is held."""
    gradient = tg.grad(one(lambda a: np.sum(a * a)))
    tg.native.release_memory()
    a = np.random.default_rng(0).random((rows, 200))
    held = [gradient(k * a) for k in range(3)]
    views = [gradient(k * a)[::7] for k in range(3, 6)]
    locked = gradient(6 * a)
    locked.flags.writeable = False
    del locked
    for k in range(3):
        gradient((7 + k) * a)
        tg.value_and_grad(one(lambda a: np.sum(a)))(a)
    for k, g in enumerate(held):
        assert np.array_equal(g, 2 * k * a)
    for k, g in enumerate(views, 3):
        assert np.array_equal(g, (2 * k * a)[::7])
    assert gradient(a).flags.writeable
    large = rows * 1600 >= running.RECYCLED
    where = gradient(a).ctypes.data
    assert not large or gradient(a).ctypes.data == where
    assert tg.native.kept_bytes() <= running.KEPT
    tg.native.release_memory()
    assert tg.native.kept_bytes() == 0


def added_at(x, w, at):
    y = np.zeros(x.size)
    for i in range(at.size):
        y[at[i]] += x[at[i]] * x[i] * w[i]
    return np.sum(y * y)


def written_at(x, w, at):
    y = x.copy()
    for i in range(at.size):
        y[at[i]] = y[at[i]] * y[i] * w[i]
    return np.sum(y * y)


def sparse_product(data, x, starts, columns):
    y = np.zeros(starts.size - 1)
    for i in range(starts.size - 1):
        for k in range(starts[i], starts[i + 1]):
            y[i] += data[k] * x[columns[k]]
    return np.sum(y * y)


def indexed(kind):
    """Functions with indices that are read from arrays, and arguments: ties, a row of no entries."""
    rng = np.random.default_rng(0)
    x, w = rng.uniform(0.5, 1.5, (2, 7))
    starts = np.cumsum([0, 2, 0, 3, 1, 0, 4, 1]).astype(kind)
    at, columns = (rng.integers(0, 7, count).astype(kind) for count in (7, 11))
    product = rng.normal(size=11), x, starts, columns
    return [(added_at, (x, w, at)), (written_at, (x, w, at)), (sparse_product, product)]


def apart(f, args):
    """How far the gradient is from complex steps."""
    _, found = tg.value_and_grad(tg.njit(mode="form")(f), (0, 1))(*args)
    worst = 0.0
    for place in (0, 1):
        for k in range(args[place].size):
            moved = [a + 0j if a.dtype == float else a for a in args]
            moved[place][k] += 1e-30j
            with mock.patch.object(np, "zeros", lambda n, real=np.zeros: real(n, complex)):
                worst = max(worst, abs(f(*moved).imag / 1e-30 - found[place][k]))
    return worst


@pytest.mark.long
@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_indices_read_from_arrays(kind, monkeypatch):
    def refused(_):
        raise AssertionError("the call went to the generated adjoint")

    monkeypatch.setattr(formed.ByForm, "other", property(refused))
    for f, args in indexed(kind):
        assert apart(f, args) < 1e-11, f.__name__
    f, (x, w, at) = indexed(kind)[0]
    assert apart(f, (x, w, at[:0])) == 0.0


@pytest.mark.parametrize("beyond", [-1, 7])
def test_indices_read_from_arrays_that_do_not_fit_go_to_the_other_engine(beyond):
    f, (x, w, at) = indexed(np.int64)[0]
    gradient = tg.value_and_grad(tg.njit(mode="form")(f), (0, 1))
    at[3] = beyond
    asked = []

    class Asked(Exception):
        pass

    def other(_):
        asked.append(beyond)
        raise Asked

    with mock.patch.object(formed.ByForm, "other", property(other)), pytest.raises(Asked):
        gradient(x, w, at)
    assert asked == [beyond]


def hoisted(x, w, at):
    s = 0.0
    for i in range(x.size):
        for k in range(i, at.size):
            s += x[at[i]] * w[k] * x[k]
    return s


def turned(m, w, starts):
    s = 0.0
    for j in range(m.shape[0]):
        for o in range(j, starts.size - 1):
            for i in range(starts[j], starts[j + 1]):
                s += m[i, o] * m[i, o] * w[o]
    return s


@pytest.mark.long
@pytest.mark.parametrize("f", [hoisted, turned])
def test_indices_that_a_loop_without_turns_would_read_are_not_read(f):
    """They are behind the end of their array: what moves out of such a loop must exist without it."""
    r, at = np.random.default_rng(0), np.array([0, 2, 4])
    x = r.random(5) if f is hoisted else r.random((5, 5))
    with checking.checked():
        mine, theirs = (
            tg.value_and_grad(one(f, mode), (0, 1))(x, np.arange(5.0), at)
            for mode in ("form", "adjoint")
        )
        with mock.patch.object(order.Order, "exists", lambda *_: True):
            with pytest.raises(CheckedAccessError):
                tg.grad(one(f))(x, np.arange(5.0), at)
    assert np.isclose(mine[0], theirs[0])
    for p, q in zip(mine[1], theirs[1], strict=True):
        assert np.allclose(p, q)


def test_faults_with_indices_read_from_arrays_are_found():
    f, args = indexed(np.int64)[1]
    real = compiling.gradient
    with mock.patch.object(compiling, "gradient", lambda p, w, s, keep=True: real(p, w, s, False)):
        assert apart(f, args) > 1e-3
    with mock.patch.object(order.Order, "meet", lambda *_, **__: False):
        assert apart(f, args) > 1e-3


def test_branches_whose_choice_nobody_reads():
    def f(x, q):
        u = np.zeros(6)
        for i in range(1, 5):
            c = x[i - 1]
            if x[i] > 0.5:
                c = x[i + 1] if x[i - 1] > 0.2 else x[i]  # noqa: F841  that is what is tried
            u[i] = q * x[i]
        return np.sum(u * u)

    x = np.linspace(0.1, 1.0, 6)
    found = tg.grad(tg.njit(mode="form")(f), (0, 1))(x, 0.5)
    inside = np.array([0, 1, 1, 1, 1, 0])
    np.testing.assert_allclose(found[0], 2 * 0.25 * x * inside, rtol=1e-15)
    np.testing.assert_allclose(found[1], 2 * 0.5 * np.sum((x * inside) ** 2), rtol=1e-15)


def test_a_contiguous_array_is_the_array_itself():
    """np.ascontiguousarray copies only what is not in C order, here as in Numba."""

    def f(x):
        v = -x
        w = np.ascontiguousarray(v)
        w[0] = 2.5 * w[1] + 1.0
        return np.sum(v * v * v) + np.sum(w * w)

    x = np.linspace(0.2, 0.9, 4)
    value, gradient = tg.value_and_grad(tg.njit(f, mode="form"))(x)
    np.testing.assert_allclose(value, f(x), rtol=1e-15)
    v = np.array([1.0 - 2.5 * x[1], -x[1], -x[2], -x[3]])
    expected = -(3 * v**2 + 2 * v)
    expected[1] += 2.5 * expected[0]
    expected[0] = 0.0
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)


# ------------------------------------------------------------------------------------------ names of arrays


def wave(x, c, steps):
    """Three arrays change their names in a ring."""
    old, now, new = x.copy(), x * 0.7, x * 0.0
    for t in range(1, steps):
        for i in range(1, x.size - 1):
            new[i] = 2 * now[i] - old[i] + c * t * now[i] * (now[i + 1] - 2 * now[i] + now[i - 1])
        old, now, new = now, new, old
    return np.sum(now * now) + old[1] * new[2]


def to_and_fro(x, c, steps):
    """Two arrays change places in a loop upwards, then in one downwards."""
    u, w = x.copy(), x * 2.0
    for _ in range(steps):
        w[1:] = u[:-1] * w[1:] + c * u[1:]
        w, u = u, w
    for t in range(steps - 1, -1, -1):
        for i in range(x.size):
            w[i] = w[i] * c + u[i] * 0.1 * t
        u, w = w, u
    return np.sum(u) * np.sum(w[1:] * w[:-1])


@pytest.mark.long
@pytest.mark.parametrize("f", [wave, to_and_fro])
def test_names_that_exchange_arrays_in_a_loop(f):
    x, c = np.linspace(0.5, 1.0, 5), 0.3
    gradient = tg.value_and_grad(one(f), (0, 1))
    for steps in range(8):
        value, (by_x, by_c) = gradient(x, c, steps)
        assert np.isclose(value, f(x, c, steps), rtol=1e-13)
        moved = [f(x + 1e-30j * e, c, steps).imag / 1e-30 for e in np.eye(x.size)]
        assert np.allclose(by_x, moved, rtol=1e-12, atol=1e-13)
        assert np.isclose(by_c, f(x + 0j, c + 1e-30j, steps).imag / 1e-30, rtol=1e-12, atol=1e-13)


def five_times(x):
    """How often is a constant."""
    u, w = x.copy(), x * 0.5
    for t in range(5):
        w[1:] += u[:-1] * (t + x[0])
        u, w = w, u
    return np.sum(u * w)


def views_of_one_name(x):
    """A name is another view in each loop."""
    m = np.outer(x, x + 1.0)
    s = x[0] * 0.0
    for i in range(x.size):
        row = m[i]
        row[0] *= row[1]
        s += row[0]
    for i in range(x.size - 1, -1, -1):
        row = m[i]
        s += row[1] * row[0]
    for j in range(x.size):
        row = m[:, 0]
        s += row[j] * j
    return s


def second_name(x):
    w, u = x.copy(), x * 2.0
    s = np.sum(u)
    u, _ = w, 1.0
    w[0] = 5.0 * x[1]
    return u[0] * x[1] + s


def second_name_of_a_part(x):
    w, u = x.copy(), x * 2.0
    s = np.sum(u)
    u, _ = w[1:], 1.0
    w[1] = 5.0 * x[1] * x[2]
    return u[0] * x[1] + s


def handed_on(x):
    """No name is stored to, so a copy is as good as the array."""
    now, old = x.copy(), x * 0.5
    for _ in range(4):
        new = np.sin(now) * x + old
        old = now
        now = new
    return np.sum(now * old)


def made_anew_after_views(x):
    """Views of the array that a turn makes anew are not read any more by then."""
    p = x * 0.0
    for _ in range(4):
        d = x * 0.0
        d[:-1] += p[:-1] * x[1:]
        d[1:] -= p[:-1]
        p = (p + 0.2 * x + d) / (1.0 + 0.1 * p * p)
    return np.sum(p * p) + p[1] * x[2]


def copy_given_up(x):
    """What a turn makes and stores to goes to another name, and is not read again."""
    a = x * 1.0
    for k in range(2):
        b = a.copy()
        b[k] = a[k] * 2.0 + a[k + 1] * x[0]
        a = b
    return np.sum(a * a)


def filled_by_loops(x):
    """A turn fills a new array element by element, which then takes the place of the old one."""
    a = x * 1.0
    for _ in range(3):
        b = np.empty_like(x)
        b[0], b[-1] = a[0] * x[1], a[-1]
        for i in range(1, x.size - 1):
            b[i] = a[i] + 0.3 * (a[i - 1] - x[i] * a[i + 1])
        a = b
    return np.sum(a * a) * x[0]


def two_filled_in_pieces(x):
    a, c = x * 1.0, x * 0.5
    for _ in range(3):
        b, d = np.empty_like(x), np.zeros_like(x)
        for i in range(x.size):
            s = a[(i + 1) % x.size] * c[i]
            if i > 0:
                s += a[i - 1]
            b[i] = 0.4 * s
            d[i] = c[i] * x[i] + b[i]
        a, c = b, d
    return np.sum(a * c) + c[0]


def filled_under_two_names(x):
    """A name that is not read any more does not hold its array."""
    a = x * 1.0
    for k in range(2):
        b = a * x
        part = b[1:]
        part[0] = a[k] * 2.0
        a = b
    return np.sum(a * a)


def stored_to_behind(x):
    a = x * 1.0
    for k in range(2):
        b = np.empty_like(x)
        for i in range(x.size):
            b[i] = a[i] * x[i]
        a = b
        for i in range(1, x.size):
            b[i] = a[i - 1] + x[k]
    return np.sum(a * a)


def stored_to_by_a_part(x):
    a = x * 1.0
    for k in range(2):
        b = a * x
        part = b[1:]
        a = b
        part[0] = 3.0 * x[k]
    return np.sum(a * a)


def one_array_for_two(x):
    a, c = x * 1.0, x * 2.0
    for k in range(2):
        b = a * x
        for i in range(x.size):
            b[i] += c[i]
        a, c = b, b
        a[k] = x[k + 1] * 3.0
    return np.sum(a * c) + c[0] * x[1]


def read_in_the_next_turn(x):
    a, b = x * 1.0, x * 2.0
    for k in range(3):
        if k > 0:
            b[0] = b[1] * x[2]
        else:
            b = a * x
        a = b
    return np.sum(a * a)


def copy_not_given_up(x):
    """A store behind a second name shows in the first."""
    a = x * 1.0
    c = x * 2.0
    for k in range(2):
        b = a * x
        c = b
        a = b
        a[k] = 3.0 * x[k + 1]
    return np.sum(a * c) + c[0] * x[1]


@pytest.mark.parametrize(
    "f",
    [
        five_times,
        views_of_one_name,
        second_name,
        second_name_of_a_part,
        handed_on,
        made_anew_after_views,
        copy_given_up,
        filled_by_loops,
        two_filled_in_pieces,
        filled_under_two_names,
    ],
)
def test_a_second_name_of_an_array_is_the_array(f):
    x = np.array([1.0, 2.0, 3.0])
    value, gradient = tg.value_and_grad(one(f))(x)
    assert np.isclose(value, f(x), rtol=1e-14)
    moved = [f(x + 1e-30j * e).imag / 1e-30 for e in np.eye(3)]
    assert np.allclose(gradient, moved, rtol=1e-13)


@pytest.mark.parametrize(
    "f",
    [
        copy_not_given_up,
        stored_to_behind,
        stored_to_by_a_part,
        one_array_for_two,
        read_in_the_next_turn,
    ],
)
def test_a_store_behind_a_second_name_shows_in_the_first(f):
    x = np.array([1.0, 2.0, 3.0])
    value, gradient = tg.value_and_grad(tg.njit(f))(x)
    assert np.isclose(value, f(x), rtol=1e-14)
    moved = [f(x + 1e-30j * e).imag / 1e-30 for e in np.eye(3)]
    assert np.allclose(gradient, moved, rtol=1e-13)


def test_a_view_that_the_last_iteration_leaves_lies_outside():
    """It moves with the loop's variable, which has no value behind the loop."""

    def f(m):
        s = 0.0
        for i in range(m.shape[0]):
            row = m[i]
            s += row[0] * row[0]
        return s + row[1] * row[1]

    m = np.arange(6.0).reshape(3, 2)
    with pytest.raises(NotDifferentiable, match="row has no value here"):
        tg.grad(one(f))(m)


@pytest.mark.long
def test_lengths_have_names_of_their_own():
    """No parameter and no loop is called as a length or a cotangent is, whatever the user calls it."""

    def parameter(x, n1):
        return np.sum(x * x) * n1

    def loops(x, n0):
        y = np.zeros(n0)
        for n0 in range(3):
            for n1 in range(x.size):
                y[n0 + 1] += x[n1] * x[n1] * n0
        return np.sum(y)

    def weighted(x, seed_result_0):
        return np.sum(x * x * seed_result_0)

    x = np.arange(1.0, 6.0)
    with mock.patch.object(formed.ByForm, "other", property(lambda _: 1 / 0)):
        value, by_x = tg.value_and_grad(one(weighted))(x, x)
    assert value == 225.0
    assert np.array_equal(by_x, 2 * x * x)
    gradient = tg.value_and_grad(one(parameter))
    for n in (3, 5, 7):
        value, by_x = gradient(x, n)
        assert value == 55.0 * n
        assert np.array_equal(by_x, 2 * x * n)
    value, by_x = tg.value_and_grad(one(loops, "auto"))(x, 4)
    assert value == 165.0
    assert np.array_equal(by_x, 6 * x)


def every_other(x, c, start):
    """Steps of two and three, upwards and downwards, of lengths and of an argument."""
    y = x * c
    for i in range(start, x.size - 1, 2):
        y[i] = y[i - 1] * x[i] + y[i + 1]
    for i in range(x.size - 1, 0, -3):
        y[i] *= y[i - 1] * c
    for _ in range(0, start, 2):
        y *= 1.5
    return np.sum(y * y)


def through_time(x, c, steps):
    """The number of steps is the length of an array."""
    u, w = np.full(4, c), np.full(4, 0.5) * c
    for t in range(x.shape[0]):
        for i in range(1, 4):
            w[i] = u[i] + c * (u[i - 1] - u[i]) * x[t]
        u, w = w, u
    return np.sum(u * w) * steps


@pytest.mark.long
@pytest.mark.parametrize("f", [every_other, through_time])
def test_loops_that_take_a_length_apart(f):
    c = 0.7
    gradient = tg.value_and_grad(one(f), (0, 1))
    for n, k in ((2, 1), (3, 1), (4, 2), (5, 1), (6, 3), (7, 2), (8, 4), (1, 1)):
        x = np.linspace(0.5, 1.0, n)
        value, (by_x, by_c) = gradient(x, c, k)
        complex_full = mock.patch.object(np, "full", lambda n, c: np.zeros(n) + c)
        with complex_full:
            assert np.isclose(value, f(x, c, k), rtol=1e-13)
            moved = [f(x + 1e-30j * e, c + 0j, k).imag / 1e-30 for e in np.eye(n)]
            along = f(x + 0j, c + 1e-30j, k).imag / 1e-30
        assert np.allclose(by_x, moved, rtol=1e-12, atol=1e-13)
        assert np.isclose(by_c, along, rtol=1e-12, atol=1e-13)


# ------------------------------------------------------------------------- loops that end by a condition, and jumps


def halley(x, n):
    y, d, k = x, 1.0, 0
    while abs(d) > 1e-13:
        d = (y * y * y - x) / (3.0 * y * y)
        y = y - d
        k += 1
    return y * k


def turned_away(x, n):
    s = 0.0
    for i in range(2 * n):
        if s > 7.0:
            return s * s
        s = s + x * i
    return -s


def steps_of_their_own(y, n):
    t, h, taken = 0.0, 0.3, 0
    while t < 2.0:
        if t + h > 2.0:
            h = 2.0 - t
        a = -y * y
        b = -((y + h * a) ** 2)
        if abs(0.5 * h * (b - a)) < 0.01:
            t += h
            y = y + 0.5 * h * (a + b)
            taken += 1
            h = h * 1.3
        else:
            h = h * 0.5
    return y * taken


def halved(a, n):
    lo, hi = 0.0, 4.0
    for _ in range(60):
        m = 0.5 * (lo + hi)
        if m * m * m > a:
            hi = m
        else:
            lo = m
        if hi - lo < 1e-3:
            break
    return lo * a + hi * a * a


def escaped(x, n):
    s = 0.0
    for i in range(x.shape[0]):
        z, last = 0.0, 0
        for k in range(30):
            last = k
            z = z * z + x[i] * 0.4
            if z * z > 4.0:
                break
        while z > 1.0:
            z = z * 0.7
        s += z * x[i] + last
    return s


def nested_until(x, n):
    s, i = 0.0, 0
    while s < 40.0:
        w = x[0] + s * 0.01
        while w < 6.0:
            w = w * x[1] + 0.1
            if w > 5.5:
                break
        s += w
        i += 1
    return s + w * i


def relaxed(x, n):
    u = x.copy()
    r = 1.0
    while r > 1e-5:
        r = 0.0
        for i in range(1, u.shape[0] - 1):
            v = 0.5 * (u[i - 1] + u[i + 1] * u[i] / u[i])
            r += (v - u[i]) ** 2
            u[i] = v
    return np.sum(u**3)


def settled(x, n):
    y = x.copy()
    for _ in range(100):
        y = 0.5 * y + np.cos(y) * x[0]
        if np.sum(y * y) < 0.6:
            break
    return np.sum(y)


def read_on(x, n):
    s, i = 0.0, 0
    while i < x.shape[0] and x[i] > 0.0:
        s = s * 0.5 + x[i] * x[i]
        i += 1
    return s


def rows_left(x, n):
    s = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[0]):
            if x[j] > 1.0 + i:
                continue
            s += x[i] * x[j] ** 2
            if s > 30.0:
                return s * s
        s *= 1.1
    return s


def worth_a_jump(x, n):
    z, s = np.zeros(x.shape[0]), 0.0
    for i in range(x.shape[0]):
        if x[i] > 1.0:
            r = 1.0
            for j in range(n):
                r = r * np.exp(x[i] * 0.1 * j)
            z[i:] += x[i:] * r
        elif x[i] > 0.5:
            z[i] = np.log(x[i]) * s
            s += np.sin(z[i])
        s *= x[i]
    return np.sum(z * z) + s


def overwritten_until(x, n):
    k = 0
    while x[0] < 50.0 and k < 40:
        for i in range(1, x.shape[0]):
            x[i] = x[i] * x[i - 1] * 0.5 + 0.1
        x[0] = x[-1] * x[0] + 1.0
        k += 1
    return x[0] + x[1] * k


NUMBERS = [
    (halley, 2.0),
    (turned_away, 1.3),
    (turned_away, 0.01),
    (steps_of_their_own, 1.5),
    (halved, 2.0),
]
ARRAYS = [
    escaped,
    nested_until,
    relaxed,
    settled,
    read_on,
    rows_left,
    worth_a_jump,
    overwritten_until,
]
X = np.array([0.9, 1.3, 0.6, 2.1, 0.3])


@pytest.mark.parametrize("f, x", NUMBERS + [(f, X) for f in ARRAYS])
def test_loops_that_end_by_a_condition(f, x, monkeypatch):
    """The derivative is that of the iterations which run: they are the same in a neighbourhood of the arguments."""
    monkeypatch.setenv("TAPEGRAD_CHECK", "1")
    with mock.patch.object(checking, "on", lambda: True):
        value, gradient = tg.value_and_grad(one(f))(np.array(x) if np.ndim(x) else x, 4)
    assert np.isclose(value, f(np.array(x), 4), rtol=1e-12)
    h = 1e-6
    for k in np.ndindex(np.shape(x)):
        d = np.zeros(np.shape(x))
        d[k] = h
        slope = (f(np.array(x + d), 4) - f(np.array(x - d), 4)) / (2 * h)
        # Differences of second order, of sums that are rounded at 1e-16 and divided by h.
        assert np.isclose(np.asarray(gradient)[k], slope, rtol=1e-6, atol=1e-7)


def counted(x, limit):
    s, k = x, 0
    while k < limit:
        s = s * s * 0.5 + 0.4
        k += 1
    return s


def test_the_room_for_what_iterations_keep_grows():
    """Calls of few iterations and of many give what a loop over a range gives, in any order of the calls."""

    def ranged(x, limit):
        s = x
        for _ in range(int(limit)):
            s = s * s * 0.5 + 0.4
        return s

    native = tg.value_and_grad(one(counted))
    for limit in (3.5, 2000.0, 0.0, 1.0, 65.0, 2000.0):
        h = 1e-6
        n = int(np.ceil(limit))
        slope = (ranged(0.7 + h, n) - ranged(0.7 - h, n)) / (2 * h)
        value, gradient = native(0.7, limit)
        assert np.isclose(value, ranged(0.7, n)) and np.isclose(gradient, slope, atol=1e-8)


def test_a_condition_that_is_nan_ends_a_loop():
    def f(x):
        s = x
        while s < 10.0:
            s = np.sqrt(s - 2.0) * 4.0
        return s * x

    value, gradient = tg.value_and_grad(one(f))(1.0)
    assert np.isnan(value) and np.isnan(gradient)


def test_an_index_below_zero_in_such_a_loop_goes_to_the_other_engine():
    """Whether an index fits is found as the program runs."""

    def f(x):
        k, e = 2, 0.0
        while e < 8.0:
            e = e * 0.5 + x[k] * x[k]
            k -= 1
        return e

    native = tg.grad(one(f))
    for x in (np.array([1.0, 3.5, 1.0, 0.5]), np.array([0.1, 3.0, 0.3, 9.0])):
        slopes = [(f(x + d) - f(x - d)) / 2e-6 for d in 1e-6 * np.eye(4)]
        assert np.allclose(native(x), slopes)


def test_float32_in_loops_that_end_by_a_condition():
    def f(x):
        s = np.zeros_like(x)
        k = 0
        while k < 30:
            s = s * np.float32(0.5) + x * x
            k += 1
            if s[0] > 3.0:
                break
        return np.sum(s)

    x = np.array([1.5, 0.3], dtype=np.float32)
    value, gradient = tg.value_and_grad(one(f))(x)
    assert gradient.dtype == np.float32
    assert np.isclose(value, f(x)) and np.allclose(gradient, 3.0 * x, rtol=1e-6)


# ------------------------------------------------------------------------- what functions have besides arrays of floats

WEIGHTS = np.array([0.5, -1.0, 2.0, 0.25, 1.5])
PLACES = np.array([3, 1, 1, 4, 0])


def weighted_from_outside(x):
    s = 0.0
    for i in range(WEIGHTS.size):
        s += WEIGHTS[i] * x[PLACES[i]] ** 3
    return s + np.sum(WEIGHTS * x * x)


def gathered(x):
    y = x * x
    r = y[PLACES] * x
    y[1:] = r[:-1] * y[PLACES[1:]]
    m = np.outer(x, y)[PLACES]
    return np.sum(y * y[PLACES]) + np.sum(m * m)


def flagged(x):
    flags = np.array([1.0, 0.0, 1.0, 1.0, 0.0])
    return chosen(x, flags > 0.5)


@numba.njit
def chosen(x, flags):
    s = 0.0
    for i in range(x.size):
        if flags[i]:
            s += x[i] ** 3
    return s


def normal(x):
    s = 0.0
    for i in range(x.size):
        s += x[i] * math.erf(x[i]) - math.erfc(x[i] * x[i])
    return s


def moments(x):
    r = x * x
    return np.var(x) * np.std(r) + np.ptp(r)


def lengths(x):
    """Of vectors and parts that grow; the numbers are rounded to whole ones besides."""
    q, s = x / np.linalg.norm(x), 0.0
    for i in range(x.size):
        s += np.linalg.norm(x[: i + 1]) ** 3 * q[i] + x[i] * np.round(3.0 * x[i])
    return s + np.linalg.norm(np.outer(q, x))


def one_logarithm(x):
    s = 0.0
    for i in range(x.size):
        y = x[i] * x[i]
        if y > 0.1:
            y = math.log(y)
        s += y * y
    return s


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "f", [weighted_from_outside, gathered, flagged, normal, moments, lengths, one_logarithm]
)
def test_functions_of_whole_programs(f):
    """They go by the form in mode "auto"; the measure are differences of fourth order, and of gradients for the second derivative."""
    x = np.array([0.3, 1.7, -0.45, 0.9, -1.2])
    native = tg.njit(f)
    value, gradient = tg.value_and_grad(native)(x)
    assert native.explain().startswith("engine: form")
    assert np.isclose(value, f(x), rtol=1e-14)
    d = np.array([0.4, -0.2, 0.7, 0.1, -0.5])

    def slope(g):
        return (8 * (g(1e-3) - g(-1e-3)) - (g(2e-3) - g(-2e-3))) / 12e-3

    assert np.isclose(gradient @ d, slope(lambda t: f(x + t * d)), rtol=1e-8)
    _, bent = tg.jvp(tg.grad(native), (x,), (d,))
    assert np.allclose(bent, slope(lambda t: tg.grad(native)(x + t * d)), rtol=1e-8, atol=1e-9)


def test_equal_numbers_have_no_deviation():
    value, gradient = tg.value_and_grad(one(lambda x: np.std(x) + np.var(x)))(np.ones(3))
    assert value == 0.0
    assert np.array_equal(gradient, np.zeros(3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("part", [-np.inf, -0.97, -0.55, -0.1, 0.0, 0.1, 0.55, 0.97])
def test_lengths_of_any_scale(part, dtype):
    """Where squares are out of range, hypot is taken of one number after another; the slope is the direction, at 0 it is 0."""
    direction = np.array([0.6, 0.0, -0.8])
    scale = dtype(10.0) ** dtype(part * np.log10(np.finfo(dtype).max))
    value, gradient = tg.value_and_grad(one(np_norm))(scale * direction.astype(dtype))
    few = 4 * np.finfo(dtype).eps
    assert np.isclose(value, scale, rtol=few, atol=0.0)
    assert np.allclose(gradient, direction * (scale > 0.0), rtol=0.0, atol=few)


def np_norm(x):
    return np.linalg.norm(x)


@pytest.mark.long
def test_flags_are_an_argument():
    x, flags = np.array([0.3, 1.7, -0.45]), np.array([True, False, True])
    assert np.allclose(tg.grad(one(chosen.py_func))(x, flags), 3 * x * x * flags, rtol=1e-14)


def test_arrays_from_outside_are_those_of_the_first_call():
    """As Numba has them: later stores into them are not seen, and the function cannot store into them."""
    native = one(weighted_from_outside)
    x = np.arange(1.0, 6.0)
    first = tg.grad(native)(x)
    WEIGHTS[0] += 1.0
    try:
        assert np.array_equal(tg.grad(native)(x), first)
    finally:
        WEIGHTS[0] -= 1.0


@pytest.mark.long(but=3)
@pytest.mark.parametrize("name", TRAPS)
def test_traps_with_every_product_by_blas(name, monkeypatch):
    monkeypatch.setattr(products, "LEAST", 1)
    monkeypatch.setattr(products, "STEEP", 1)
    text = source(TRAPS[name])
    derived = engine(text, arguments(5))
    for n in (5, 4, 9):
        assert not fault(derived, text, arguments(n))


@pytest.mark.parametrize("places", [np.array([0, 3]), np.array([0, -1])])
def test_places_that_do_not_fit_go_to_the_other_engine(places):
    """One below zero counts from the end there, in stores too."""

    def read(x, at):
        return np.sum(x[at] ** 2)

    def stored(x, at):
        y = x * x
        y[at] = x[:2]
        return np.sum(y)

    native, x = one(read), np.arange(1.0, 5.0)
    want = np.zeros(4)
    want[places] = 2 * x[places]
    assert np.array_equal(tg.grad(native)(x, places), want)
    assert (native.latest._other is not None) == (places.min() < 0)
    native, want = one(stored), 2 * x
    want[places] = 0.0
    want[:2] += 1.0
    assert np.array_equal(tg.grad(native)(x, places), want)
    assert (native.latest._other is not None) == (places.min() < 0)


def test_the_places_of_a_mask_are_no_mask():
    """How many there are, and which, is known to the other engine."""

    def places(x):
        return np.sum(x * x) * np.flatnonzero(x > 0.5).size

    def elements(x):
        return np.sum(np.cumsum(x[x > 0.5]))

    def others(x):
        return np.sum(x[x > 0.5] * x[x < 0.5])

    for f in (places, elements, others):
        with pytest.raises(NotDifferentiable, match="mask"):
            tg.grad(one(f))(np.arange(3.0))


def _waves(x):
    """An array of whole numbers by the loops' indices, written out, and a product that has them as an operand."""
    s = 0.0
    for i in range(-1, 2):
        for j in range(2):
            k = np.pi / 4 * np.array([i, j, i - j])
            s += np.sum(np.cos(k * x)) * (k @ x)
    return s


def _counted(x):
    s, n = 0.0, 0
    while n < 4:
        k = np.array([n, n + 1])
        n += 1
        s += np.sum(k * x[:2]) * x[0] + x[2] * k[1]
    return s


def _turned_around(x):
    return np.sum(np.flip(np.array([1, 2, 3])) * x) + np.sum(np.array([1, 2, 3])[::-1] * x * x)


def _axes_by_place(x):
    a = np.outer(x, x * x)
    return np.sum(np.sin(np.sum(a, 0))) + np.sum(np.cos(a.sum(1))) + np.sum(a.sum(-1) ** 2)


def _written_over(x):
    v, w, p = x.copy(), np.empty_like(x), x * x
    for _ in range(3):
        v[1:] = v[1:] * 0.9 + v[:-1]
        np.add(v, p, v)
        np.sin(v, w)
        np.multiply(v, w, w)
    return np.sum(v * w)


TAKEN = np.array([2, 0, 1, 2])


def _functions_written_out(x):
    """Of numbers and complex numbers; entries that are taken twice add."""
    z = x + 1j * x * x
    a = np.sum(np.take(x, TAKEN) ** 3) + np.sum(np.take(z, TAKEN).imag * TAKEN)
    return (
        a
        + np.sum(np.cross(x[:3], (x * x)[:3] * x[0]) ** 2)
        + np.sum(np.abs(np.diff(z)) + np.cumprod(z).imag[1:])
    )


def of_the_form(f):
    """The function in the form, at a point where its value and gradient are those of NumPy and of differences."""
    x = np.array([0.7, 1.3, 2.1])
    function = tg.njit(f, mode="form")
    value, gradient = tg.value_and_grad(function)(x)
    assert value == pytest.approx(f(x), rel=1e-13) == function(x)
    step = 1e-6
    for i in range(3):
        h = step * np.eye(3)[i]
        assert gradient[i] == pytest.approx((f(x + h) - f(x - h)) / (2 * step), rel=1e-7)
    return function, x


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "f", [_waves, _functions_written_out, _counted, _turned_around, _axes_by_place, _written_over]
)
def test_whole_numbers_in_arrays_axes_by_place_and_results_written_over(f):
    of_the_form(f)


def _dtypes_by_name(x):
    y = np.zeros(x.shape[-1], dtype=np.float64)
    z = np.empty(x.shape, x.dtype)
    ones = np.ones((x.size,), dtype=float)
    for i in range(x.shape[0]):
        y[i] = x[i] ** 2
        z[i] = 3.0 * y[i] * ones[i]
    w = z.astype(np.float64)
    z[0] = 7.0
    return np.sum(np.full_like(x, 2.0, dtype=np.float64) * w * y) + np.sum(z)


def _axes_of_length_one(x):
    y = np.outer(x, x * x)
    n, m = y.shape
    view = np.reshape(y, (n, 1, m))
    view[1, 0, 2] = 5.0
    t = np.transpose(view * np.reshape(x, (m, 1, 1)), axes=(2, 0, 1))
    y.transpose(1, 0)[0, 1] = 7.0 * x[1]
    return np.sum(t**2 * x.reshape(-1, 1, 1)) + np.sum(y**2)


def _triangles_and_joined_columns(x):
    y = np.outer(x, np.exp(x))
    both = np.hstack((np.triu(y, 1), np.tril(y), y[:, :1] * x[1]))
    again = np.concatenate((y, both[:, 2:6]), axis=-1)
    both[0, 0] = 3.0
    return np.sum(both**2) + np.sum(again[:, 1:6] * both[:, :5])


def _lengths_that_end_a_loop(x):
    y, total = x.copy(), 0.0
    for _ in range(100):
        y = y * x[0] * 1.9
        total += np.sum(y)
        if np.linalg.norm(y) > 50.0:
            break
    return total


@pytest.mark.parametrize(
    "f",
    [_dtypes_by_name, _axes_of_length_one, _triangles_and_joined_columns, _lengths_that_end_a_loop],
)
def test_dtypes_axes_of_length_one_triangles_and_lengths_in_conditions(f):
    """In the form: value, gradient and product with the Hessian, against the recorded function and differences."""
    function, x = of_the_form(f)
    np.testing.assert_allclose(tg.hvp(function)(x, x), tg.hvp(f)(x, x), rtol=1e-10)


def test_a_reshape_that_moves_elements_to_other_axes_goes_to_the_other_engine():
    def f(x, n):
        return np.sum(np.reshape(np.outer(x, x * x)[:2], (n, 2))[0] ** 2)

    x = np.array([0.7, 1.3, 2.1])
    found = tg.grad(tg.njit(f))(x, 3)
    np.testing.assert_allclose(found, tg.grad(f)(x, 3), rtol=1e-12)


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (lambda x: np.sum(np.concatenate((np.array([1, 2]), np.array([3]))) * x), "no float"),
        (lambda x: np.sum(np.cumsum(np.array([1, 2, 3])) * x), "whole numbers by"),
        (lambda x: x[np.array([1, 0, 2])[len(x) - 2]], None),
        (lambda x: np.sum(np.diag(np.array([1, 2, 3])) * x), "no float"),
    ],
)
def test_whole_numbers_outside_the_form_go_to_the_other_engine(f, why):
    """None of these is a fault: all are told by name."""
    x = np.array([0.7, 1.3, 2.1])
    if why:
        with pytest.raises(tg.NotDifferentiable, match=why):
            tg.grad(tg.njit(f, mode="form"))(x)
    function = tg.njit(f)
    expected = [(f(x + h) - f(x - h)) / 2e-6 for h in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(tg.grad(function)(x), expected, rtol=1e-8, atol=1e-8)
    assert "a fault of tapegrad" not in function.explain()


def _added_to_a_part(x):
    v = x.copy()
    np.add(v[1:], v[:-1], v[1:])
    return np.sum(v * v)


def _times_its_row(x):
    a = np.outer(x, x)
    np.multiply(a, a[0], a)
    return np.sum(a)


@pytest.mark.parametrize("f", [_added_to_a_part, _times_its_row])
@pytest.mark.parametrize("mode", ["form", "adjoint"])
def test_results_written_over_another_part_of_an_operand_are_refused(f, mode):
    """Numba goes through them in order, and reads what it has just written."""
    with pytest.raises(tg.NotDifferentiable, match=r"overlapping part|does not promise an order"):
        tg.grad(tg.njit(f, mode=mode))(np.array([0.7, 1.3, 2.1]))
