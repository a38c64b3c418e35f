"""Products of matrices that the program form leaves to BLAS: sums over three loops in every order and layout, triangles, and what stands beside
them, against the same programs of arrays on the tape."""

import math

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.native import inference

RNG = np.random.default_rng(5)


def random(*shape, dtype=np.float64):
    return (RNG.random(shape) - 0.4).astype(dtype)


def triple(order, text, arrays, dtype="float64"):
    """A function of loops over i, j, k in an order, around one line."""
    lines = ["def f(A, B):", "    n, m, r = " + arrays, "    C = np.zeros((n, m), np.DTYPE)"]
    for depth, x in enumerate(order):
        lines.append("    " * (depth + 1) + f"for {x} in range({dict(i='n', j='m', k='r')[x]}):")
    lines += ["    " * 4 + text, "    return np.sum(C * C)"]
    text = "\n".join(lines).replace("DTYPE", dtype) + "\n"
    return inference.load("f", text, {"np": np})


def checked(loops, arrays, args, least=1, wanted=None, rtol=1e-9):
    """Value and gradients of loops by the form with BLAS are those of the text for arrays, on the tape."""
    wanted = tuple(range(len(args))) if wanted is None else wanted
    f = tg.njit(loops, mode="form")
    value, gradients = tg.value_and_grad(f, wanted)(*args)
    other, expected = tg.value_and_grad(arrays, wanted)(*args)
    np.testing.assert_allclose(value, other, rtol=rtol)
    for a, b in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.max(np.abs(b)))
    told = [x for x in f.explain().splitlines() if x.startswith("products of matrices")]
    count = sum(int(x.split(": ")[1]) for x in told)
    assert count >= least, f.explain()
    return f


@pytest.mark.parametrize("order", ["ijk", "ikj", "jik", "jki", "kij", "kji"])
def test_loops_in_any_order(order):
    loops = triple(order, "C[i, j] += A[i, k] * B[k, j]", "A.shape[0], B.shape[1], A.shape[1]")
    checked(loops, lambda a, b: np.sum((a @ b) ** 2), (random(20, 33), random(33, 41)), 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("text", "sizes", "arrays"),
    [
        ("C[i, j] += A[k, i] * B[k, j]", "A.shape[1], B.shape[1], A.shape[0]", lambda a, b: a.T @ b),
        ("C[i, j] -= A[i, k] * B[j, k]", "A.shape[0], B.shape[0], A.shape[1]", lambda a, b: -(a @ b.T)),
        ("C[i, j] += 2.0 * (A[k, i] * B[j, k])", "A.shape[1], B.shape[0], A.shape[0]", lambda a, b: 2.0 * (a.T @ b.T)),
    ],
)  # fmt: skip
def test_layouts(text, sizes, arrays, dtype):
    shapes = {"A[i": (24, 30), "A[k": (30, 24), "B[k": (30, 19), "B[j": (19, 30)}
    first, second = (
        next(s for word, s in shapes.items() if word in text and word[0] == x) for x in "AB"
    )
    args = random(*first, dtype=dtype), random(*second, dtype=dtype)
    rtol = 1e-9 if dtype == np.float64 else 2e-4
    checked(
        triple("ijk", text, sizes, np.dtype(dtype).name),
        lambda a, b: np.sum(arrays(a, b) ** 2),
        args,
        2
        if dtype == np.float32 and "2.0" in text
        else 3,  # with NumPy's 2.0 the value is a sum of float64
        rtol=rtol,
    )


def test_numbers_of_an_iteration():
    """What a pass holds in a number is widened; what stands beside the sum is not lost."""

    def loops(A, B, w, out):
        out = out.copy()
        total = 0.0
        for i in range(A.shape[0]):
            for j in range(B.shape[1]):
                s = out[i, j]
                for k in range(A.shape[1]):
                    s += A[i, k] * B[k, j]
                t = math.tanh(s) * w[j]
                out[i, j] = t
                total += t * s
        return total + np.sum(out * out)

    def arrays(A, B, w, out):
        s = out + A @ B
        t = np.tanh(s) * w
        return np.sum(t * s) + np.sum(t * t)

    args = random(31, 22), random(22, 27), random(27), random(31, 27)
    checked(loops, arrays, args, 3)


def test_scratch_arrays_and_weights():
    """Attention with one row of scores for all rows; the weights of a row are divided before and multiplied behind the product."""

    def loops(Q, K, V):
        n, d = Q.shape
        s, total = np.zeros(n), 0.0
        for i in range(n):
            norm = 0.0
            for j in range(n):
                s[j] = 0.0
                for k in range(d):
                    s[j] += Q[i, k] * K[j, k]
                s[j] = math.exp(s[j] / math.sqrt(d))
                norm += s[j]
            for k in range(d):
                out = 0.0
                for j in range(n):
                    out += s[j] / norm * V[j, k]
                total += out * out
        return total

    def arrays(Q, K, V):
        p = np.exp(Q @ K.T / np.sqrt(Q.shape[1]))
        return np.sum((p / np.sum(p, axis=1, keepdims=True) @ V) ** 2)

    checked(loops, arrays, (random(40, 18), random(40, 18), random(40, 18)), 7)


def triangle_times(A, B):
    C = np.zeros_like(B)
    for i in range(A.shape[0]):
        for k in range(i):
            for j in range(B.shape[1]):
                C[i, j] += A[i, k] * B[k, j]
    return np.sum(C * C)


@pytest.mark.parametrize("which", ["lower", "upper", "strict", "inner", "rows"])
def test_triangles(which):
    """One loop is bounded by another's variable: both of the result, or one of them of the sum."""
    n, m = 101, 37

    def lower(A, B):
        C = np.zeros((A.shape[0], A.shape[0]))
        for i in range(A.shape[0]):
            for k in range(A.shape[1]):
                for j in range(i + 1):
                    C[i, j] += A[i, k] * B[j, k]
        return np.sum(C * C)

    def upper(A, B):
        C = np.zeros((A.shape[0], A.shape[0]))
        for i in range(A.shape[0] - 1):
            for j in range(i + 1, A.shape[0]):
                s = 0.0
                for k in range(A.shape[1]):
                    s += A[i, k] * B[j, k]
                C[i, j] = s
                C[j, i] = 3.0 * s
        return np.sum(C * C)

    def strict(A, B):
        C = np.zeros((A.shape[0], A.shape[0]))
        for k in range(A.shape[1]):
            for i in range(2, A.shape[0]):
                for j in range(i - 2):
                    C[j, i] += A[i, k] * B[j, k]
        return np.sum(C * C)

    def rows(A, B):
        C = np.zeros_like(B)
        for i in range(A.shape[0]):
            for k in range(i, A.shape[0]):
                for j in range(B.shape[1]):
                    C[k, j] += A[i, k] * B[i, j]
        return np.sum(C * C)

    texts = {
        "lower": (lower, lambda a, b: np.sum(np.tril(a @ b.T) ** 2)),
        "upper": (upper, lambda a, b: 10.0 * np.sum(np.triu(a @ b.T, 1) ** 2)),
        "strict": (strict, lambda a, b: np.sum(np.tril(a @ b.T, -3) ** 2)),
        "inner": (triangle_times, lambda a, b: np.sum((np.tril(a, -1) @ b) ** 2)),
        "rows": (rows, lambda a, b: np.sum((np.triu(a).T @ b) ** 2)),
    }
    loops, arrays = texts[which]
    first = (n, n) if which in ("inner", "rows") else (n, m)
    checked(loops, arrays, (random(*first), random(n, m)), 2)


def test_values_beside_a_triangle_are_not_read():
    """What the triangle leaves out may be infinite."""

    a, b = random(90, 90), random(90, 20)
    a[np.triu_indices(90)] = np.inf
    b[-1] = np.nan
    value, (by_a, by_b) = tg.value_and_grad(tg.njit(triangle_times, mode="form"), (0, 1))(a, b)
    low = np.tril(np.where(np.isinf(a), 0.0, a), -1)
    product = low[:, :-1] @ b[:-1]
    np.testing.assert_allclose(value, np.sum(product**2), rtol=1e-12)
    np.testing.assert_allclose(by_b, 2 * low.T @ product, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        by_a[:, :-1], np.tril(2 * product @ b[:-1].T, -1)[:, :89], rtol=1e-10, atol=1e-12
    )


def test_a_cotangent_of_zero_stays_zero():
    """Rows of which nothing is used have gradient 0, however infinite what they are multiplied with."""

    def loops(A, B):
        C = A @ B
        return np.sum(C[:, :10])

    a, b = random(25, 20), random(20, 30)
    b[3, 20] = np.inf
    by_a, by_b = tg.grad(tg.njit(loops, mode="form"), (0, 1))(a, b)
    np.testing.assert_allclose(by_a, np.tile(b[:, :10].sum(1), (25, 1)))
    np.testing.assert_allclose(by_b[:, :10], np.tile(a.sum(0)[:, None], 10))
    assert not by_b[:, 10:].any()


def test_a_scale_of_zero_hides_no_nan():
    def loops(A, B, scale):
        C = np.zeros((A.shape[0], B.shape[1]))
        for i in range(A.shape[0]):
            for j in range(B.shape[1]):
                for k in range(A.shape[1]):
                    C[i, j] += scale * A[i, k] * B[k, j]
        return np.sum(C)

    f = tg.njit(loops, mode="form")
    a, b = random(20, 20), random(20, 20)
    a[3, 4] = np.inf
    assert np.isnan(tg.value_and_grad(f, 1)(a, b, 0.0)[0])
    assert "products of matrices" in f.explain()


def test_one_function_serves_small_and_large_sizes():
    loops = triple("ikj", "C[i, j] += A[i, k] * B[k, j]", "A.shape[0], B.shape[1], A.shape[1]")
    f = tg.njit(loops, mode="form")
    for n, k, m in (
        (3, 4, 5),
        (40, 50, 60),
        (200, 2, 300),
        (16, 17, 18),
        (1, 1, 1),
        (50, 0, 20),
        (70, 70, 70),
    ):
        a, b = random(n, k), random(k, m)
        value, (by_a, by_b) = tg.value_and_grad(f, (0, 1))(a, b)
        c = a @ b
        np.testing.assert_allclose(value, np.sum(c * c), rtol=1e-11)
        np.testing.assert_allclose(by_a, 2 * c @ b.T, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(by_b, 2 * a.T @ c, rtol=1e-10, atol=1e-10)


def test_products_over_steps():
    """The gradient by a matrix that is used in every step is one product over all steps."""

    def loops(J, start, steps):
        m, new = start.copy(), np.zeros(start.size)
        for _ in range(steps):
            for i in range(m.size):
                s = 0.0
                for j in range(m.size):
                    s += J[i, j] * m[j]
                new[i] = math.tanh(s)
            m, new = new, m
        return np.sum(m * m)

    def arrays(J, start, steps):
        m = start
        for _ in range(steps):
            m = np.tanh(J @ m)
        return np.sum(m * m)

    checked(loops, arrays, (0.3 * random(30, 30), random(30), 36), 1, (0, 1))


@pytest.mark.parametrize("down", [False, True])
def test_triangles_in_place(down):
    """Rows that the sum reads are changed later, or were not yet: they are copied. Where they were changed before, it is no product."""

    def up(A, B):
        B = B.copy()
        for i in range(A.shape[0]):
            for k in range(i + 1, A.shape[0]):
                for j in range(B.shape[1]):
                    B[i, j] += A[k, i] * B[k, j]
        return np.sum(B * B)

    def reads_changed(A, B):
        B = B.copy()
        for i in range(A.shape[0] - 1, -1, -1):
            for k in range(i + 1, A.shape[0]):
                for j in range(B.shape[1]):
                    B[i, j] += A[k, i] * B[k, j]
        return np.sum(B * B)

    a, b = 0.1 * random(70, 70), random(70, 21)
    if down:
        solution = np.linalg.solve(np.eye(70) - np.tril(a, -1).T, b)
        value, (by_a, by_b) = tg.value_and_grad(tg.njit(reads_changed, mode="form"), (0, 1))(a, b)
        bar = np.linalg.solve(np.eye(70) - np.tril(a, -1), 2 * solution)
        np.testing.assert_allclose(value, np.sum(solution**2), rtol=1e-10)
        np.testing.assert_allclose(by_b, bar, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(by_a, np.tril(solution @ bar.T, -1), rtol=1e-9, atol=1e-10)
    else:
        checked(up, lambda a, b: np.sum((b + np.tril(a, -1).T @ b) ** 2), (a, b), 3)


def test_rows_that_two_terms_read_in_place():
    """The first term changes what the second one reads: neither is a product. A factor behind the product is not of the array either."""

    def both(A, B):
        B = B.copy()
        for i in range(A.shape[0]):
            for k in range(i + 1, A.shape[0]):
                for j in range(A.shape[0]):
                    B[i, j] += A[k, i] * B[k, j] + A[j, k] * B[k, i]
        return np.sum(B * B)

    def behind(A, B):
        B = B.copy()
        for i in range(A.shape[0]):
            for k in range(A.shape[0]):
                for j in range(i + 1, A.shape[0]):
                    B[i, j] += A[k, i] * A[k, j] * B[j, i] * B[j, j]
        return np.sum(B * B)

    for f in (both, behind):
        a, b, c, d = 0.2 * random(40, 40), random(40, 40), random(40, 40), random(40, 40)
        value, (by_a, by_b) = tg.value_and_grad(tg.njit(f, mode="form"), (0, 1))(a, b)
        high, low = (f(a + h * c, b + h * d) for h in (1e-6, -1e-6))
        np.testing.assert_allclose(value, f(a, b), rtol=1e-12)
        np.testing.assert_allclose(
            np.sum(by_a * c) + np.sum(by_b * d), (high - low) / 2e-6, rtol=1e-6
        )


def test_quotients():
    """What is divided by in each pass divides the product, behind it or in front."""

    def loops(X, w, v):
        n, d = X.shape
        C = np.zeros((d, d))
        for i in range(n):
            for j in range(d):
                for k in range(d):
                    C[j, k] += X[i, j] * X[i, k] / n / v[j]
                    C[k, j] -= X[i, j] / w[i] * X[i, k]
        return np.sum(C * C)

    def arrays(X, w, v):
        C = X.T @ X / len(X) / v[:, None] - (X / w[:, None]).T @ X
        return np.sum(C * C)

    checked(loops, arrays, (random(30, 21), 1.5 + random(30), 1.5 + random(21)), 3)


def test_second_derivatives():
    def loops(A, B):
        return np.sum(np.tanh(A @ B))

    a, b, along = random(20, 24), random(24, 17), random(20, 24)
    f = tg.njit(loops, mode="form")
    _, found = tg.jvp(lambda x: tg.grad(f)(x, b), (a,), (along,))
    _, expected = tg.jvp(lambda x: tg.grad(loops)(x, b), (a,), (along,))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_sums_that_are_no_products():
    """Steps that read what earlier ones changed cannot be one product."""

    def in_place(A, B):
        A = A.copy()
        for k in range(A.shape[0]):
            for i in range(A.shape[0]):
                for j in range(A.shape[1]):
                    A[i, j] += 0.01 * A[i, k] * B[k, j]
        return np.sum(A * A)

    n = 20
    f = tg.njit(in_place, mode="form")
    args = random(n, n), 0.2 * random(n, n)
    value, gradients = tg.value_and_grad(f, (0, 1))(*args)
    step = 1e-6
    assert np.isclose(value, in_place(*args), rtol=1e-12)
    for which in (0, 1):
        along = random(n, n)
        high, low = (
            in_place(*(a + s * step * along if i == which else a for i, a in enumerate(args)))
            for s in (1, -1)
        )
        np.testing.assert_allclose(
            np.sum(gradients[which] * along), (high - low) / (2 * step), rtol=1e-6
        )
    assert "products" not in f.explain()
