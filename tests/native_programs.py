"""Functions as people write them for Numba, for the tests of native derivatives.

They stand in a module of their own because pytest rewrites the assertions of test modules, which Numba could not compile. Each takes one
array and returns a number; IDIOMS have derivatives, REFUSED are refused with an error.
"""

from __future__ import annotations

import math
from collections import namedtuple

import numba
import numpy as np
from numba.typed import List

import tapegrad as tg

X = np.array([0.3, 1.7, -0.45, 0.9, -1.2])
Pair = namedtuple("Pair", ["first", "second"])
TABLE = np.array([0.5, -1.0, 2.0, 0.25, 1.5])
PLACES = np.array([3, 1, 1])
SCALE = 1.3


def for_with_break(x):
    s = 0.0
    for i in range(x.size):
        if x[i] > 1.5:
            break
        s += x[i] ** 3
    return s


def return_from_a_nested_loop(x):
    for i in range(x.size):
        s = 0.0
        for j in range(i + 1):
            s += x[j] * x[i]
            if s > 2.0:
                return s * x[j]
    return s * x[0]


def continue_and_else(x):
    s = 0.0
    for i in range(x.size):
        if x[i] < 0:
            continue
        s += x[i] * x[i]
    else:
        s *= x[0]
    return s


def while_true(x):
    y = x[0] * x[0] + 1.0
    z = 1.0
    while True:
        new = 0.5 * (z + y / z)
        if abs(new - z) < 1e-14:
            break
        z = new
    return new


def newton_with_line_search(x):
    z = x[0]
    for _ in range(20):
        f = z * z * z - x[1] * x[1] - 1.0
        d = 3.0 * z * z + 0.1
        step = 1.0
        while True:
            new = z - step * f / d
            if abs(new * new * new - x[1] * x[1] - 1.0) < abs(f) or step < 1e-3:
                break
            step *= 0.5
        z = new
        if abs(f) < 1e-12:
            break
    return z * z


def loop_variable_afterwards(x):
    s = 0.0
    for i in range(3):
        s += x[i] * x[i]
    return s * x[i] * i


def loop_variable_reused(x):
    s = 0.0
    for i in range(4):
        i = i % 3
        s += x[i] * x[i + 1]
    for i in range(4, 0, -2):
        s *= x[i]
    return s


def slices(x):
    y = np.zeros(x.size)
    y[1:-1] = x[1:-1] * x[:-2]
    z = y[1:]
    z[0] = z[1] * x[0]
    y[:2] += x[3:]
    return np.sum(y * y * x)


def overlapping_copy(x):
    y = x * x
    y[1:] = y[:-1]
    return np.sum(y * x)


def transposed_and_reshaped(x):
    a = np.outer(x, x * x)
    b = a.T
    b[1, 0] = x[2]
    c = a.reshape(25)
    c[3] *= x[1]
    return np.sum(a * np.arange(25.0).reshape(5, 5)) + a[0, 1] * b[2, 2]


def row_views(x):
    a = np.zeros((3, x.size))
    for i in range(3):
        row = a[i]
        for j in range(x.size):
            row[j] = x[j] * (i + 1.0)
        row *= x[i]
    s = 0.0
    for row in a:
        s += row[0] * row[1] + np.sum(row)
    return s


def swapped_buffers(x):
    u = x.copy()
    w = np.zeros_like(x)
    for _ in range(3):
        for i in range(1, x.size - 1):
            w[i] = u[i] + 0.3 * (u[i + 1] * u[i - 1] - u[i])
        u, w = w, u
    return np.sum(u * u * x)


def rotated_buffers(x):
    """Three buffers change places, in every pass; one of them in turn is made anew."""
    a, b, c = x.copy(), x * x, np.sin(x)
    for t in range(5):
        for i in range(x.size):
            c[i] = 0.3 * a[i] * b[i] + 0.5 * c[i]
        a, b, c = b, c, a
        if t == 2:
            c = a * 0.5
    return np.sum(a * b) + c[1] * x[0]


def swapped_sometimes(x):
    """Under a condition, in a loop that is left early, and once more behind it."""
    u, w = x.copy(), x * 2.0
    for t in range(6):
        if x[t % 5] > 0.0:
            u, w = w, u
            w[t % 5] *= u[(t + 1) % 5]
        else:
            u[0] += w[1] * w[1]
        if u[0] > 40.0:
            break
        held = u
        u = w
        w = held * 1.5
    u, w = w, u
    return np.sum(u * w) + held[2] ** 2


def handed_on(x):
    """What was new becomes old, and older; two names may hold one array."""
    oldest, old = x.copy(), x * x
    for t in range(4):
        new = old * 0.5
        for i in range(x.size):
            new[i] += oldest[i] * old[i] * 0.1
        oldest = old
        old = new
        if t == 2:
            oldest = new
            oldest[0] *= 2.0
    return np.sum(old * oldest) + new[1]


def swapped_in_nests(x):
    u, w = np.outer(x, x), np.zeros((5, 5))
    for t in range(3):
        for _ in range(2 + t % 2):
            for i in range(5):
                for j in range(5):
                    w[i, j] = u[i, j] * 0.5 + u[j, i] * u[i, i] * 0.1
            u, w = w, u
        w[t, 0] = u[0, t] ** 2
        u, w = w, u
    return np.sum(u * w)


def loops_of_one_name(x):
    """What the inner loop left under the name is read behind it, in the passes of the outer one."""
    s = 0.0
    for v in range(1, 0, -1):
        for v in range(2):
            s += x[v] * 0.5
        s += x[v + 1] * (v - 0.25)
    for k in range(3):
        s += x[k] * k
        for k in range(1, 3):
            s += 0.1 * x[k]
        else:
            s *= x[k] * 0.5 + k
    return s


def insertion_sort(x):
    y = x.copy()
    for i in range(1, y.size):
        key = y[i]
        j = i - 1
        while j >= 0 and y[j] > key:
            y[j + 1] = y[j]
            j -= 1
        y[j + 1] = key
    return y[0] * y[1] + y[-1] ** 2


def cholesky_in_loops(x):
    n = 4
    a = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            a[i, j] = math.exp(-0.5 * (x[i] - x[j]) ** 2)
        a[i, i] += 1.0
    factor = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            s = a[i, j]
            for k in range(j):
                s -= factor[i, k] * factor[j, k]
            factor[i, j] = math.sqrt(s) if i == j else s / factor[j, j]
    return np.sum(np.log(factor[:, 0] ** 2 + 1.0)) + factor[3, 3]


def linear_algebra(x):
    a = np.eye(5) * 3.0
    for i in range(5):
        a[i, (i + 1) % 5] = x[i]
    b = np.linalg.solve(a, x)
    c = np.linalg.inv(a) @ b
    spd = np.dot(a, a.T)
    factor = np.linalg.cholesky(spd)
    return np.dot(b, c) + np.linalg.det(a) * 0.01 + np.trace(factor) + np.linalg.norm(x)


def reductions(x):
    a = np.outer(x, x) + 1.0
    return (
        np.sum(a, axis=0)[1] * np.mean(x)
        + np.max(x) * np.min(x)
        + np.prod(x)
        + np.var(x) * np.std(a)
        + a.sum(axis=1)[2]
    )


def array_functions(x):
    y = np.where(x > 0, x * x, -x) + np.maximum(x, 0.5) * np.cumsum(x)
    z = np.concatenate((y[:2], x, y[2:]))
    z = np.sort(z)
    w = np.stack((x, y))
    return (
        np.sum(np.diff(z) ** 2)
        + np.sum(w * w)
        + np.clip(x, -1.0, 1.0).sum()
        + np.roll(y, 2)[0] * y[0]
    )


def several_index_arrays(x):
    """Elements of a matrix at places from tables, some from the end, some named twice."""
    rows, columns = np.array([0, 1, -1, 0]), np.array([1, -2, 0, 1])
    a = x[:4].copy().reshape(2, 2)
    y = a[rows, columns]
    a[columns[:2], rows[:2]] = x[1] * x[1]
    return np.sum(a * a) + np.sum(y * y)


def gathers(x):
    index = np.array([3, 1, 1, 0])
    y = x[index] * 2.0
    z = np.zeros(5)
    z[index] = y * y
    return np.sum(y * y * y) + np.sum(z * x)


def tuples(x):
    state = (x[0], x[1])
    for _ in range(5):
        state = (state[0] + 0.1 * state[1], state[1] - 0.1 * state[0])
    p = (state, x[2])
    (a, b), c = p
    return a * b + c * state[0]


def named_tuples(x):
    p = Pair(x[0] * x[1], x[2])
    q = Pair(p.second * p.first, p[0])
    return q.first * q.second + p.second


def reserved_names(x):
    out, g, y, nf = 0.0, 1.0, 2.0, 0.5
    x_bar = x[0] * 2.0
    for i in range(x.size):
        out += x[i] * x[i] * g * y
        g = g * 0.9 + x[i] * nf
    return out * g + x_bar * nf


def early_return_by_type(x, weights=None):
    if weights is None:
        return x[0] * x[1]
    return np.sum(x * weights)


def views_of_constants(x):
    a = x[:, None] * x[None, :]
    return np.sum(a * np.arange(25.0).reshape(5, 5))


def chained_aliases(x):
    y = x.copy()
    z = y
    z += 1.0
    z *= x
    y[1:] = y[:-1] * 2.0
    y[:] = y[::-1]
    a = y if x[0] > 0 else z
    a[0] = x[1] * x[2]
    return np.sum(y * z)


def cyclic_buffers(x):
    a, b, c = x.copy(), x * 2.0, x * 3.0
    for _ in range(4):
        for i in range(x.size):
            c[i] = a[i] * b[i] + 0.1 * c[i]
        a, b, c = b, c, a
    return np.sum(a * b) + np.sum(c)


def ternaries_and_flags(x):
    s = 0.0
    ok = False
    for i in range(x.size):
        s += x[i] ** 2 if x[i] > 0 else -3.0 * x[i]
        ok = ok or (s > 1.0 and x[i] < 0)
        if ok:
            s = s * 0.9
    return s


def chained_comparisons(x):
    s = 0.0
    for v in x:
        if 0.0 < v < 1.0:
            s += v
        elif v >= 1.0:
            s += v**2
        else:
            s -= v
    return s


def whole_numbers(x):
    s = 0.0
    counts = np.zeros(3, np.int64)
    for i in range(x.size):
        k = int(abs(x[i]) * 3) % x.size
        counts[k % 3] += 1
        s += x[k] * x[i] * counts[k % 3] + (x[i] - math.floor(x[i])) ** 2
    return s


def closures_and_globals(x):
    factor = 2.0

    def scaled(v, by=1):
        return v * factor * by

    s = 0.0
    for i in range(x.size):
        s += TABLE[i] * np.sin(x[i]) * SCALE * np.pi
    return s + x[0] ** 2 * factor


@numba.njit
def writes(y, p):
    for k in range(y.size):
        y[k] = y[k] * p + math.sin(p)


@numba.njit
def makes(y):
    z = np.empty_like(y)
    for k in range(y.size):
        z[k] = math.exp(y[k])
    return z, z[0] * 2.0


@tg.njit
def sign_dependent(v):
    if v > 0:
        return v * v
    return -v


def helpers(x):
    y = x.copy()
    writes(y, x[0])
    writes(y[1:3], x[1])
    z, first = makes(y)
    s = 0.0
    for v in z:
        s += sign_dependent(v - 1.0)
    return s + first


def apply_twice(f, v):
    return f(f(v))


apply_jitted = numba.njit(apply_twice)


def functions_as_arguments(x):
    return apply_jitted(sign_dependent, x[1]) + x[0]


def rebinding_in_loops(x):
    y = x * 0.5
    for i in range(3):
        y = y + 0.1 * np.tanh(y * x[i])
        w = np.empty(x.size)
        for j in range(x.size):
            w[j] = y[j] ** (i + 1)
        y = w.copy() if i == 1 else y * 1.0
    return np.sum(y * w)


def powers(x):
    return (
        x[0] ** 2
        + x[1] ** 1.5
        + x[0] ** x[1]
        + 2.0 ** x[2]
        + x[3] ** -2
        + x[4] ** 3
        + (x[0] * x[1]) ** 0
    )


def powers_bound_again(x):
    """The reverse takes a power as it was, not what its name means behind the line."""
    d = (0.5 + abs(x[1])) ** 1.3
    d *= math.tanh(x[0])
    for i in range(3):
        d = (1.0 + abs(d)) ** 0.7
        if d > 1.1:
            d = d * x[i]
        d = d - x[i + 1] * d * d
    return d


PAIR = (1.5, 2.5)


def joined_tuples(x):
    """Each element of the sum of two tuples is an element of one of them."""
    alone = (x[0],) + (x[1],)
    several = alone + (x[2] * x[0], x[3]) + PAIR
    return alone[1] * several[2] + several[0] * several[5] - several[3] * several[4]


def math_functions(x):
    s = 0.0
    for v in x:
        s += (
            math.atan(v)
            + math.log1p(v * v)
            + math.expm1(v)
            + math.sinh(v)
            - math.cosh(v)
            + math.erf(v)
        )
        s += (
            math.hypot(v, 1.0)
            + math.atan2(v, 2.0)
            + math.fabs(v)
            + math.log10(v * v + 1)
            + math.copysign(v, -1.0)
        )
        s += (
            math.asin(v / 2) * math.acos(v / 3)
            + math.tan(v / 2)
            + np.log2(v * v + 1)
            + np.cbrt(v + 3)
            + v % 0.7
        )
    return s


def enumerate_and_zip(x):
    s = 0.0
    for i, v in enumerate(x):
        s += i * v * v
    for a, b in zip(x, x[::-1]):
        s += a * b * b
    for i, (a, b) in enumerate(zip(x[1:], x)):
        s += i * a / (b * b + 1)
    for i, j in np.ndindex(2, 2):
        s += x[i + j] ** 2
    return s


def running_maximum(x):
    best = -1e300
    for v in x:
        square = v * v
        if square > best:
            best = square
    return max(best, x[0], x[1]) + min(x[0], x[3]) * best


def single_precision(x):
    y = np.empty(x.size, np.float32)
    for i in range(x.size):
        y[i] = x[i] * x[i]
    s = np.float32(0.0)
    for i in range(x.size):
        s += y[i] * np.float32(0.5)
    return float(s)


def fill_and_augment(x):
    y = np.zeros((2, 5))
    y.fill(x[0])
    y[1] = x
    y *= 2.0
    y -= x
    y[0] /= 3.0
    return np.sum(y * y)


def pruned(x, extra=None):
    s = x[0] * x[1]
    if extra is not None:
        s += extra[0]
    return s


def raises_when_wrong(x):
    if x.size < 2:
        raise ValueError("too short")
    assert x[0] < 100.0
    return x[0] * x[1]


def arrays_of_literals(x):
    a = np.array([x[0], 2.0, x[1] * x[2]])
    b = np.array([[x[0], 1.0], [x[3], x[4]]])
    return np.sum(a * a) + b[0, 0] * b[1, 1] + np.dot(b, b)[0, 0]


def masks_of_arrays(x):
    y = x * x
    s = np.sum(y * y) + np.sum(x[x > 0] ** 2)
    m = y > 0.3
    y[m] = y[m] * x[m]
    y[y > 0.5] = x[0]
    y[y < 0.5] *= x[1]
    y[m] += x[: m.sum()] * y[m]
    return s + np.sum(y * y)


def places_of_arrays(x):
    m = x * x > 0.3
    a = np.outer(x, x)
    b = a[PLACES] * 2.0
    a[PLACES] = b * b
    a[PLACES, 0] = x[2]
    a[2, PLACES] *= x[PLACES]
    a[m, 1:3] = x[0]
    return np.sum(a * a * a) + np.sum(b[0] * x)


def made_and_overwritten(x):
    v = np.tanh(x * x)
    v += np.tanh(x)
    w = np.exp(x)
    w[0] = x[1]
    return v[0] * v[4] + np.sum(w * w)


def index_read_from_what_is_stored(x):
    y = np.array([2.0, 0.0, 1.0]) * 1.0
    z = np.zeros(3)
    k = int(y[0])
    y[k] = x[0] * x[1]
    z[int(y[1])] = y[2] * x[2]
    y[1] = 2.5 * x[1]
    return y[2] * z[0] + y[1] * y[0]


def names_reused(x):
    s = 0.0
    for v in x:
        v = v * v
        s += v
        for v in range(2):
            s += v * x[v]
    for k in range(3):
        for k in x[:k]:  # noqa: B020  that is the point
            s *= k
    for k, v in enumerate(x[::2]):
        if v < 0.0:
            break
        s += v * x[k]
        k = v * 0.5
    else:
        return s * x[0]
    for v in x[3:3]:
        k = v
    del v
    return s * k


IDIOMS = [
    f
    for f in list(globals().values())
    if getattr(f, "__code__", None) and f.__code__.co_varnames[:1] == ("x",)
]


def vector_functions(x):
    y = np.flip(x * x)
    y[0] = x[1]
    e = np.expand_dims(x * 2.0, 1)
    e[2, 0] = x[0] * x[1]
    c = np.arange(15.0)
    s = np.sum(y * x) + np.sum(e * c[:10].reshape(5, 2)) + np.sum(np.flipud(np.outer(x, x)) * x)
    s += np.sum(np.cumprod(x) * c[:5]) + np.ptp(x) * np.median(x) + np.median(x[:4] * x[1])
    s += np.sum(np.convolve(x, y[:3]) ** 2) + np.sum(np.cross(x[:3], y[2:]) * x[1:4])
    s += np.sum(np.append(x, y) ** 2) + np.sum(np.append(x, x[1] * x[2]) ** 3)
    return s + np.sum(np.repeat(x * x, 3) * c)


def tables_and_spectra(x):
    knots = np.array([-2.0, -1.0, 0.1, 0.7, 3.0])
    moved = knots + 0.1 * x
    s = np.interp(x[0] * x[1], moved, x * x) ** 2 + np.sum(np.interp(x * x - 0.5, knots, x) * x)
    s += np.sum(np.interp(x, moved, knots) ** 2)
    a = np.outer(x, x) + np.diag(np.arange(5.0) + x * x)
    w, v = np.linalg.eigh(a)
    sign, size = np.linalg.slogdet(a + np.outer(x, np.arange(5.0)))
    s += np.sum(w * w * x) + np.sum(v[:, 1] ** 2 * x) + size * sign
    return s + np.linalg.eigvalsh(a)[2] * v[0, 0] ** 2


# ------------------------------------------------------------------------------------ loops with snapshots


FEW = 2


def numbers_over_time(x):
    a, b, last = x[0], x[1], 0.0
    p = a * b
    for _ in tg.checkpointed(range(11), snapshots=3):
        a, b = a + 0.1 * b * x[2], b - 0.1 * math.sin(a)
        if b > 0.5:
            last = b * a
    return a * b + last * p


def buffers_over_time(x):
    u = x.copy()
    w = np.zeros_like(x)
    s = np.sum(u * u)
    for _ in tg.checkpointed(range(7), snapshots=FEW):
        for i in range(1, x.size - 1):
            w[i] = u[i] + 0.3 * (u[i + 1] * u[i - 1] - u[i]) * x[0]
        u, w = w, u
    return np.sum(u * u * x) + w[1] * s


def arrays_over_time(x):
    y = x * 0.5
    z = y
    for t in tg.checkpointed(range(1, 12, 2), snapshots=FEW):
        old = y
        y = y + 0.1 * np.tanh(y * x[t % 5])
        z = old * y
        if t == 5:
            keep = y.copy()
        if t == 9:
            z = y
    return np.sum(y * z) + np.sum(keep * x)


def left_early(x):
    y = x.copy()
    counts = np.zeros(3, np.int64)
    for t in tg.checkpointed(range(20), snapshots=4):
        y *= 0.9
        y[t % 5] += np.sum(y) * x[1] * 0.1
        counts[t % 3] += 1
        if y[0] * y[0] > 0.25:
            break
        y[counts[0] % 5] *= 1.1
    return np.sum(y * y * x) + t


def several_loops(x):
    a, b, c = x.copy(), x * 2.0, x * 3.0
    for _ in tg.checkpointed(range(8), snapshots=3):
        d = a * b + 0.1 * c
        a, b, c = b, c, d
    q = np.sum(a * b)
    for _ in tg.checkpointed(range(0), snapshots=3):
        a = a * b
    for _ in tg.checkpointed(range(1), snapshots=1):
        a = a * b
    return q + np.sum(c * a)


def bound_anew_behind(x):
    """What passes read, and what their derivative alone would not ask for, is bound and written anew behind the loop."""
    y = x.copy()
    a = x[0]
    s = x[1]
    for t in tg.checkpointed(range(5), snapshots=2):
        s = s * s * 0.3 + a + y[t]
    a = x[2] * 2.0
    y[2] = 5.0 * s
    y[1] = x[0]
    return s * a * y[2] + y[1]


def bound_before_too(x):
    """Values that lines before the loop need in reverse, under names that each pass binds anew."""
    d = x[0] * x[1]
    y = np.sin(x)
    b = np.sum(y * y) * math.sin(d * d)
    for t in tg.checkpointed(range(4), snapshots=2):
        d = x[t] * b
        y = x * d
    return b * d + y[1]


def snapshots_within(x):
    """Loops with snapshots in a plain loop."""
    total = 0.0
    u = x.copy()
    for k in range(3):
        s, a = x[k], x[k + 1] * 0.5
        for _ in tg.checkpointed(range(7 - k), snapshots=2):
            s = s * s * 0.3 + a
            u = u * s + 0.1 * np.sin(u)
            if s > 50.0:
                break
        total += s * u[k]
    return total


def snapshots_within_snapshots(x):
    total = 0.0
    w = x.copy()
    for k in tg.checkpointed(range(6), snapshots=2):
        s = x[k % 5]
        w[k % 5] *= 1.1
        for t in tg.checkpointed(range(4 + k), snapshots=3):
            s = s * s * 0.3 + w[t % 5]
            w[t % 5] = w[t % 5] * 0.9 + 0.05 * s
        total += s * total + w[2]
    return total


OVER_TIME = [numbers_over_time, buffers_over_time, arrays_over_time, left_early, several_loops, bound_anew_behind, bound_before_too, snapshots_within, snapshots_within_snapshots]  # fmt: skip


def drawn_over_time(x):
    s = x[0]
    for _ in tg.checkpointed(range(8), snapshots=3):
        s = s * np.random.normal()
    return s


def view_over_time(x):
    y = x * 2.0
    row = y[1:]
    for _ in tg.checkpointed(range(8), snapshots=3):
        y = y * row[0]
        row = y[1:]
    return row[0]


def draws(x, n=5):
    np.random.seed(3)
    s = 0.0
    for i in range(n):
        s += x[i] * np.random.normal()
    return s * x[0]


# ----------------------------------------------------------------------------------------------- what is refused


@numba.njit
def recursive(v, n):
    if n == 0:
        return v
    return recursive(v * 0.5, n - 1)


def lists(x):
    kept = []
    for v in x:
        kept.append(v)
    return kept[0]


def recursion(x):
    return recursive(x[0], 3)


def complex_values(x):
    z = x[0] * 1j
    return abs(z)


def unknown_function(x):
    return np.sum(np.abs(np.roots(x)))


def drawn_with_active_scale(x):
    return np.random.normal(x[0], 1.0)


def update_by_a_part_of_itself(x):
    y = x * 2.0
    y[1:] += y[:-1]
    return y[4]


def generator_expression(x):
    return sum(v for v in x)


def flat_iterator(x):
    s = 0.0
    for v in np.nditer(np.outer(x, x)):
        s += v.item()
    return s


def typed_list(x):
    values = List()
    for v in x:
        values.append(v * v)
    return values[0]


def list_of_numbers(x):
    values = [x[0], x[1]]
    values[0] = x[2]
    return values[0] * values[1]


def dictionary(x):
    d = {0: x[0]}
    return d[0] * 2.0


def tried(x):
    try:
        s = x[0] * 2.0
    except Exception:
        s = 0.0
    return s


def copied_to(x):
    y = np.zeros(5)
    np.copyto(y, x)
    return np.sum(y)


def reinterpreted(x):
    y = x.view(np.int64)
    return x[0] * y[0]


def digits(x):
    m, e = math.frexp(x[0])
    return m * e


def tuple_of_arrays(x):
    both = (x * 2.0, x * 3.0)
    s = 0.0
    for k in range(2):
        s += both[k][0]
    return s


def middle(x):
    return np.median(x)


REFUSED = [drawn_over_time, view_over_time, flat_iterator, typed_list, list_of_numbers, dictionary, tried, copied_to, reinterpreted, digits, tuple_of_arrays, lists, recursion, unknown_function, drawn_with_active_scale, update_by_a_part_of_itself, generator_expression]  # fmt: skip
