"""Programs with parallel loops, for tests: what passes share, in every form, and what cannot be shared.

Each is a function of one array of seven numbers; Python runs it as it is.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from tapegrad.native import checkpointed

PLACES = np.array([3, 3, 0, 6, 1, 3, 0])


def all_read_one(x):
    """Every pass reads x[0], and a number; sums, one of them in a branch, and a count."""
    s, t, count = 0.5, 0.0, 0
    a = x[1] * 2.0
    y = np.empty_like(x)
    for i in prange(x.size):
        v = math.sin(x[i] * a)
        y[i] = v * x[0]
        s += y[i] * v
        if v > 0.3:
            t -= v * a
            count += 1
    return s * t + count * np.sum(y)


def neighbours(x):
    """A stencil over time, buffers swapped."""
    u, w = x.copy(), x.copy()
    for _ in range(3):
        for i in prange(1, x.size - 1):
            w[i] = u[i] + 0.1 * (u[i - 1] - 2 * u[i] + u[i + 1]) * (1 + u[i] * u[i])
        u, w = w, u
    return np.sum(u * u)


def rows(x):
    """Rows of a matrix as views, written in place; its neighbours are another array's."""
    m, out = np.outer(x, x[:4]), np.zeros((7, 4))
    for i in prange(1, 6):
        row = m[i]
        for j in range(4):
            row[j] = row[j] * x[j] + 0.5
            if row[j] > 0.4:
                row[j] *= row[j - 1]
        for j in range(1, 3):
            out[i, j] = np.sum(row) * x[i - 1] * x[i + 1]
    return np.sum(out * out) + np.sum(m)


def loops_of_any_length(x):
    """Passes that keep as much as their values say."""
    out = np.zeros(x.size)
    for i in prange(x.size):
        v = abs(x[i]) + 0.05
        n = 0
        while v < 2.0:
            if n % 2 == 0:
                v = v * v + v
            else:
                v = v + math.sin(v)
            n += 1
        work = np.empty(3)
        for k in range(3):
            work[k] = v * x[k]
            v = work[k] - 0.1 * v
        out[i] = np.sum(np.sin(work)) + v
    return np.sum(out * x)


@njit
def blended(a, b):
    return np.tanh(a * b), a[0] * b


def gathered(x):
    """Elements at places from a table; a helper's arrays; whole arrays."""
    s = 0.0
    for i in prange(x.size):
        row, first = blended(x, x[PLACES[i]])
        s = s + np.dot(row, x) + first
    return s


def in_place(x):
    """What the loop writes was needed before, and is again behind it."""
    y = np.sin(x)
    s = np.sum(y * y)
    s *= y[2]
    total = s * s
    for i in prange(1, 7):
        y[i] = y[i] * x[0]
        y[i] += x[i] ** 2
        total += y[i] ** 3
    y *= y[1]
    return total * s + np.sum(y * x)


def shifted(x):
    """Indices that are known when it runs only."""
    start = int(x.size // 7)
    y = np.ones(x.size)
    for i in prange(start, x.size):
        k = i - 1
        y[k] = y[k] * x[i] + x[k] * x[k]
    for i in prange(start - 1, x.size):
        y[i] *= x[i - 1] * x[i]
    return np.sum(y)


def over_time_twice(x):
    """Reused names; a loop without passes; sums of whole numbers; a shared loop in a branch of a loop."""
    y = x.copy()
    best = 0
    for t in range(4):
        if t % 2:
            for i in prange(x.size):
                v = y[i] * x[t]
                y[i] = v + x[i]
                best += int(v > 0.2)
        else:
            for i in prange(x.size, 3):
                y[i] = 0.0
            v = y[t]
            y[t] = v * v
    return np.sum(y) * best


def from_snapshots(x):
    """A shared loop in one over time that goes back from snapshots."""
    u, w = x.copy(), x.copy()
    total = 0.0
    for _ in checkpointed(range(5), snapshots=2):
        for i in prange(1, x.size - 1):
            w[i] = u[i] + 0.1 * u[i - 1] * u[i + 1] * w[i]
            total += w[i] * x[0]
        u, w = w, u
    return np.sum(u * u) * total


def products_and_extrema(x):
    """In branches and inner loops, from either side, some passes without any; over time, and beside a sum."""
    p, low, high, s = 0.5, x[2], -9.0, 0.0
    for _ in range(2):
        for i in prange(1, x.size):
            v = math.sin(x[i] * x[0])
            if v > 0.05:
                p *= v * 3.0
                p = x[1] * p * 2.0
            for j in range(3):
                low = min(v * x[j], low)
            high = max(high, v * x[i])
            s += v
        x = x * high
    return p * s + low * high


def products_with_zeros(x):
    p, q = 1.0, 1.0
    for i in prange(x.size):
        p = p * (x[i] - x[3])
        q *= (x[i] - x[3]) * (x[i] - x[4])
    return p + q * x[0] + x[1]


SHARED = [
    products_and_extrema,
    products_with_zeros,
    from_snapshots,
    all_read_one,
    neighbours,
    rows,
    loops_of_any_length,
    gathered,
    in_place,
    shifted,
    over_time_twice,
]


# ----------------------------------------------------------------------------------- loops of one thread


def one_place(x):
    y = np.zeros(2)
    for i in prange(x.size):
        y[0] += x[i] * x[0]
        y[1] = x[i]
    return y[0] * y[1]


def product_that_is_read(x):
    p = 1.0
    s = 0.0
    for i in prange(x.size):
        p *= 1.0 + x[i]
        s += p
    return s


def handed_on(x):
    last = x[0]
    s = 0.0
    for i in prange(x.size):
        s += last * x[i]
        last = x[i]
    return s


def left_early(x):
    s = 0.0
    for i in prange(x.size):
        if x[i] > 100.0:
            break
        s += x[i] * x[i]
    return s


def permuted(x):
    y = np.zeros(x.size)
    for i in prange(x.size):
        y[PLACES[i]] = x[i] * x[i]
    return np.sum(y)


def read_behind(x):
    v = 0.0
    for i in prange(x.size):
        v = x[i] * x[0]
    return v


def other_elements(x):
    y = x.copy()
    for i in prange(1, x.size):
        y[i] = y[i - 1] * x[i]
    return y[6] + y[3]


def sums_that_are_read(x):
    s = 0.0
    t = 0.0
    for i in prange(x.size):
        s += x[i]
        t += s * x[i]
    return t


ALONE = {
    one_place: "y is written, and not only at",
    product_that_is_read: "p goes from pass to pass",
    handed_on: "last goes from pass to pass",
    left_early: "it may be left before its end",
    permuted: "y is written, and not only at",
    read_behind: "v is read behind the loop",
    other_elements: "y is written, and not only at",
    sums_that_are_read: "s goes from pass to pass",
}
"""Loops that passes cannot share, with what `explain` says of them."""


def one_under_two_names(x):
    """The buffers are one array: a test sees that when it runs."""
    u = x.copy()
    w = u
    if x[0] > 100.0:
        w = x.copy()
    for i in prange(1, x.size - 1):
        w[i] = u[i] + u[i - 1] * u[i + 1]
    return np.sum(u * u)


def of_all_kinds(x):
    """Neighbours over time, then passes that all read one element."""
    u, w = x.copy(), x.copy()
    for _ in range(3):
        for i in prange(1, x.size - 1):
            w[i] = u[i] + 0.1 * (u[i - 1] - 2 * u[i] + u[i + 1]) * (1 + u[i] * u[i])
        u, w = w, u
    s, t, high = 0.0, 0.0, -1.0
    for i in prange(x.size):
        v = math.sin(u[i] * u[1])
        w[i] = w[i] * v
        high = max(high, w[i])
        if v > 0.3:
            t -= v
        while v < 0.7:
            v = v * v + 0.1 + abs(v)
        s += w[i] * v
    return s * t * high
