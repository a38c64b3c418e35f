"""Stores in place, inside transforms and `tg.compile`, also over what a rule has saved: as if each store had made a new array.

Each case is a pair of functions of one vector, one with stores in place and one without. They must agree in value and in every derivative,
whatever engine computes it; the one without is checked against differences, once.
"""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import tracing
from tapegrad.core import overwriting, storage

CASES = {}


def case(functional):
    """Decorator: the function with stores, whose like without is given."""

    def note(stores):
        CASES[stores.__name__] = (stores, functional)
        return stores

    return note


def _smooth(u, rounds):
    for _ in range(rounds):
        m = u[1:-1]
        u = np.concatenate([u[:1], m + 0.2 * (u[2:] - 2 * m + u[:-2]) - 0.1 * m * m * m, u[-1:]])
    return u


@case(lambda x: _smooth(x, 4))
def a_slice_that_was_cubed(x):
    u = x.copy()
    for _ in range(4):
        m = u[1:-1]
        u[1:-1] = m + 0.2 * (u[2:] - 2 * m + u[:-2]) - 0.1 * m * m * m
    return u


@case(lambda x: np.concatenate([[x[0] * 5.0], x[1:]]) * x * np.sin(x))
def a_whole_array_then_one_entry(x):
    u = x * 1.0
    y = u * np.sin(u)
    u[0] = u[0] * 5.0
    return u * y


def _entries(x, a, b, c):
    """What the stores of the cases with entries leave: of x, with three entries replaced."""
    return np.stack([x[0], a, b, x[3], x[4], c])


@case(lambda x: _entries(x, x[0] * x[1], x[0] * x[1] * x[2], x[3]) ** 2 * np.sin(x) * x[1])
def entries_that_are_read_between(x):
    u = x.copy()
    before = u[1]
    u[1] = u[0] * u[1]
    u[2] = u[1] * u[2]
    u[-1] = u[3]
    return u * u * np.sin(x) * before


@case(lambda x: x * x + _entries(x, x[0], x[2], 0.5 * x[5]) ** 3)
def entries_that_a_product_saved(x):
    u = x.copy()
    y = u * u
    u[1] = u[0]
    u[5] = 0.5 * u[5]
    return y + u * u * u


@case(lambda x: _entries(x, x[3] * 2.0, 4.0 * x[3], x[5]) * (x[3] * 2.0 + 4.0 * x[3]))
def entries_that_a_living_view_shows(x):
    u = x.copy()
    part = u[1:3]
    u[1] = u[3] * 2.0
    u[2] = u[1] * 2.0
    return u * np.sum(part)


@case(
    lambda x: (
        np.stack([x[0] * 0 + 2.0, x[0] * 0 + 3.0, x[1] * 0 - 0.5, x[3], x[4] * 0 + 7.0, x[0]]) * x
    )
)
def constants_of_any_kind_in_entries(x):
    u = x.copy()
    u[5] = u[0]
    seven = np.array([7.0])
    u[0], u[1], u[2] = 2, np.float64(3.0), tg.tensor(-0.5)
    u[4] = tg.tensor(seven)[0]
    seven[0] = 1.0
    return u * x


@case(lambda x: x[1] * x[4] * np.concatenate([x[3:], x[:3] + x[1]]))
def truth_values_are_no_whole_numbers(x):
    m = x.copy().reshape(2, 3)
    one = m[0, 1] * m[1, 1]
    first = m[True, 1]
    m[True, 0] = m[0] + m[0, 1]
    return one * np.concatenate([first.reshape(3), m[0]])


@case(lambda x: np.exp(x) * x * 3 + 1)
def a_result_that_its_rule_reads(x):
    e = np.exp(x)
    y = e * x
    e[...] = 3.0
    return y * e + 1


@case(lambda x: (x * x)[::-1] * x + x[::-1] ** 2)
def a_saved_view_written_through_the_base(x):
    u = x * 1.0
    v = u[::-1]
    y = v * v
    z = y * x
    u *= u  # v shows the squares from here on
    return z + v


@case(lambda x: np.concatenate([x[:2] ** 3, np.cos(x[2:])]) + np.sum(x[1:4] ** 2))
def a_base_written_through_overlapping_views(x):
    u = x + 0.0
    a, b = u[:4], u[1:]
    s = np.sum(a[1:] * b[:3])
    a *= a * a
    b[1:] = np.cos(x[2:])
    return u + s


def _rows(x, f):
    m = np.reshape(np.outer(x, x), (6, 6))
    return f(m)


@case(
    lambda x: _rows(
        x,
        lambda m: np.stack([m[:, 0]] + [np.cumprod(m, axis=1)[:, j] for j in range(1, 6)], axis=1),
    )
)
def columns(x):
    m = np.outer(x, x)
    for j in range(1, 6):
        m[:, j] = m[:, j - 1] * m[:, j]
    return m


@case(lambda x: np.stack([x[i] * x for i in (0, 4, 2, 3, 1, 5)]) ** 2)
def a_swap_of_rows(x):
    m = np.outer(x, x)
    s = m * m
    m[1], m[4] = m[4].copy(), m[1].copy()
    t = m * m
    s[...] = t
    return s


@case(lambda x: np.sin(x) ** 2 * np.where(x > 0, 2 * x, x) * np.where(x > 0, 2.0, 1.0))
def a_mask(x):
    u = x * 1.0
    s = np.sin(u)
    y = s * s * u
    u[u > 0] = 2 * u[u > 0]
    where = u > 0
    y = y * np.where(where, 4.0, 1.0)
    s[where] = 0.0
    return y + 0 * s


@case(
    lambda x: (
        np.sum(x[[4, 0, 0]] ** 2) + np.concatenate([[x[0] * 2], x[1:4], [x[4] * 2], x[5:]]) ** 3
    )
)
def index_arrays(x):
    u = x.copy()
    where = np.array([4, 0])
    s = np.sum(u[[4, 0, 0]] ** 2)
    p = u[where]
    u[where] = p * 2
    where[:] = 3  # the index is taken as it was
    return s + u**3


@case(lambda x: x**2 * 7 + np.sum(x**2) * 0.0)
def what_was_saved_before_a_copy(x):
    u = x.copy()
    v = u.copy()
    y = u * v
    u[:] = 7.0
    v[:] = 0.0
    return y * u + v


@case(lambda x: np.tanh(x) * np.cos(2 * x) + x)
def a_custom_function(x):
    u = x * 2.0
    y = _Cosine.apply(u) * np.tanh(x)
    u[...] = x
    return y + u


class _Cosine(tg.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.cos(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return -g * np.sin(x)


@case(lambda x: np.sin(x * x) * x + 2 * x)
def a_store_inside_a_checkpoint(x):
    def inside(u):
        v = u * 1.0
        w = v * v
        v[...] = np.sin(w)
        return v * u

    u = x * 1.0
    y = tg.checkpoint(inside)(u)
    u += u  # the argument that the second run is given
    return y + u


@case(lambda x: np.sin(x) * x[::-1] + x)
def what_a_checkpoint_closes_over(x):
    v = x[::-1] * 1.0
    y = tg.checkpoint(lambda u: np.sin(u) * v)(x)
    v[:] = v[::-1] * 1.0  # the same numbers in another order
    return y + v


@case(lambda x: np.stack([x**2 * 2**k for k in range(4)]).sum(0) + 16 * x)
def a_loop_that_writes_after_each_use(x):
    u = x * 1.0
    total = 0.0
    for _ in range(4):
        total = total + u * x
        u *= 2.0
    return total + u


@case(lambda x: np.cumprod(x) + np.sum(x * x))
def entries_of_one_vector(x):
    u = x.copy()
    s = np.dot(u, u)
    for i in range(1, len(u)):
        u[i] = u[i - 1] * u[i]
    return u + s


@case(lambda x: np.reshape(np.reshape(x, (2, 3)).T * 3, 6) * x[0] + x[1] ** 2)
def a_transpose_of_a_reshape(x):
    u = x.copy()
    m = u.reshape(2, 3).T
    q = m[1, 0] ** 2 - m[0, 0] * m[0, 0] + x[0] ** 2
    a = u[0] * 1.0
    m[...] = m * 3
    return np.reshape(m, 6) * a + q


@case(lambda x: x * x + x**4 + np.zeros(6))
def two_entries_saved_one_array(x):
    u = x * 1.0
    y = u * u
    z = y * y
    y[2:] = 0.0
    u[:] = 0.0
    return x * x + z + y * 0 + u


@case(lambda x: x * np.sum(x) + np.sum(x) ** 2)
def an_array_without_axes(x):
    s = np.sum(x, keepdims=True)[0, ...]
    y = x * s
    z = s * s
    s[...] = 1.0
    return y + z * s


# ------------------------------------------------------------------------------- what ufuncs and functions write


@case(lambda x: np.minimum(x * 2.0, np.cos(x)) * np.cos(x))
def out_is_an_operand(x):
    a = x * 2.0
    b = np.cos(x)
    np.minimum(a, b, out=a)
    return a * b


@case(lambda x: np.where(x > 0, 1 / (2 * x), 5.0) ** 2)
def out_where_a_mask_holds(x):
    a = x * 2.0
    out = x * 0 + 5.0
    np.divide(1.0, a, out=out, where=x > 0)
    return out * out


@case(lambda x: np.stack([x[0] * x[1] * x[2] * x[4], x[1], x[2] * x[3], x[3], -x[4], x[5]]))
def at_places_named_several_times(x):
    a = x * 1.0
    np.multiply.at(a, [0, 0, 2, 0], x[1:5])
    np.negative.at(a, [3, 3, 4])
    return a


@case(
    lambda x: np.stack(
        [x[0], np.maximum(np.maximum(x[1], x[3]), x[5]), np.maximum(x[2], x[4]), *x[3:]]
    )
)
def at_by_a_maximum(x):
    a = x * 1.0
    np.maximum.at(a, [1, 2, 1], x[3:])
    return a


@case(lambda x: np.stack([x[0] + x[1], x[1] - x[2] - x[3], *x[2:]]))
def at_by_sums(x):
    a = x * 1.0
    np.add.at(a, 0, x[1])
    np.subtract.at(a, [1, 1], x[2:4])
    return a


def _step_by_step(x):
    logs, quotients = [x[0]], [x[0]]
    for i in range(1, 6):
        logs.append(np.log(np.exp(logs[-1]) + np.exp(x[i])))
        quotients.append(quotients[-1] / x[i])
    difference = x[0] - x[1] - x[2] - x[3] - x[4] - x[5]
    return difference * np.sqrt(np.sum(x**2)) + np.stack(logs) + np.stack(quotients)


@case(_step_by_step)
def reductions_and_running_results(x):
    return (
        np.subtract.reduce(x) * np.hypot.reduce(x)
        + np.logaddexp.accumulate(x)
        + np.divide.accumulate(x)
    )


@case(lambda x: np.cumsum(x) * np.sum(x * x))
def functions_with_out(x):
    a = x * 1.0
    np.cumsum(a, out=a)
    total = x[:1] * 0
    np.sum(x * x, out=total, axis=0, keepdims=True)
    return a * total


@case(lambda x: (x + 1) * x[2] * x)
def settings_of_ufuncs(x):
    return np.add(x, 1, dtype=np.float64) * np.multiply.outer(x, x)[2]


@case(
    lambda x: (
        np.concatenate([x[:1], x[1:] + x[:-1]]) * np.concatenate([x[:1], x[1:] + x[:-1]])[::-1]
    )
)
def out_overlaps_its_operands(x):
    a = x * 1.0
    np.add(a[1:], a[:-1], out=a[1:])
    np.multiply(a, a[::-1], out=a)
    return a


@case(lambda x: _rows(x, lambda m: np.where(m > 0.5, -1.0, np.concatenate([x[None], (m @ m)[1:]]))))
def copies_into(x):
    m = np.outer(x, x)
    out = np.empty_like(m)
    np.matmul(m, m, out=out)
    np.copyto(out[0], x)
    np.copyto(out, -1.0, where=m > 0.5)
    return out


ENGINES = {
    "sweep": lambda f, x: tg.grad(f)(x),
    "compiled": lambda f, x: tg.compile(tg.grad(f))(x),
    "jvp": lambda f, x: np.array([tg.jvp(f, (x,), (e,))[1] for e in np.eye(len(x))]),
    "linearize": lambda f, x: np.array([tg.linearize(f, x)[1](e) for e in np.eye(len(x))]),
    "jacobian": lambda f, x: tg.jacobian(f, mode="forward")(x),
    "hessian": lambda f, x: tg.hessian(f)(x),
    "reverse over reverse": lambda f, x: tg.jacobian(tg.grad(f), mode="reverse")(x),
    "compiled hvp": lambda f, x: tg.compile(tg.hvp(f))(x, np.cos(x)),
}

POINT = np.array([0.4, -0.7, 1.1, 0.3, -0.2, 0.9])
WEIGHTS = np.sin(np.arange(1.0, 50.0))


def _losses(name):
    def loss(f):
        def value(x):
            y = f(x)
            return np.sum(np.reshape(y * y + y, -1) * WEIGHTS[: y.size])

        return value

    return [loss(f) for f in CASES[name]]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("how", ENGINES)
def test_stores_are_as_good_as_new_arrays(name, how):
    with_stores, without = _losses(name)
    if how in ("hessian", "reverse over reverse", "compiled hvp") and name == "a_custom_function":
        pytest.skip("a Function's own backward is differentiated in test_function.py")
    np.testing.assert_allclose(
        ENGINES[how](with_stores, POINT), ENGINES[how](without, POINT), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("name", CASES)
def test_the_forms_without_stores_are_right(name):
    """The value by plain NumPy, the gradient by differences."""
    with_stores, without = _losses(name)
    assert np.isclose(float(tg.vjp(with_stores, POINT)[0]), float(without(POINT)), rtol=1e-12)
    steps = 1e-6 * np.eye(len(POINT))
    differences = [(without(POINT + h) - without(POINT - h)) / 2e-6 for h in steps]
    np.testing.assert_allclose(tg.grad(without)(POINT), differences, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_replay(name):
    before = tg.engine()
    try:
        tg.set_engine("replay")
    except RuntimeError as error:
        pytest.skip(str(error))
    try:
        with_stores, without = _losses(name)
        np.testing.assert_allclose(
            tg.grad(with_stores)(POINT), tg.grad(without)(POINT), rtol=1e-10, atol=1e-12
        )
    finally:
        tg.set_engine(before)


def test_a_compiled_program_serves_other_inputs():
    with_stores, without = _losses("a_slice_that_was_cubed")
    compiled = tg.compile(tg.grad(with_stores))
    for k in range(3):
        np.testing.assert_allclose(compiled(POINT + k), tg.grad(without)(POINT + k), rtol=1e-10)
    ((program,),) = compiled.programs.by_key.values()
    assert not program.guards


def test_each_value_is_copied_once(monkeypatch):
    """However many entries saved it, and however often it is written to; what is not written to is not copied."""
    copied = []
    old = storage.old
    monkeypatch.setattr(storage, "old", lambda value: copied.append(np.shape(value)) or old(value))

    def f(x):
        u = np.outer(x, x)
        y = u[:2] * u[:2] + np.sin(u[:2]) + u[4:] * u[4:]
        for _ in range(3):
            u[1] = 0.0
        return np.sum(y) + np.sum(u)

    tg.grad(f)(POINT)
    assert copied == [(2, 6)]


def test_a_loop_of_stores_looks_at_each_entry_a_bounded_number_of_times(monkeypatch):
    looked = []
    place = overwriting._place
    monkeypatch.setattr(overwriting, "_place", lambda *given: looked.append(1) or place(*given))

    def f(x):
        rows = [x * 1.0 for _ in range(10)]
        total = 0.0
        for _ in range(20):
            for u in rows:
                total = total + u * u
                u *= 0.9
        return np.sum(total)

    expected = 2 * 10 * POINT * np.sum(0.81 ** np.arange(20))
    np.testing.assert_allclose(tg.grad(f)(POINT), expected)
    assert len(looked) < 5 * 200


@pytest.mark.long
def test_a_traced_loop_of_stores_holds_no_copy_for_each(monkeypatch):
    """The memory of a store is the one before it, unless somebody looks at that: then it is a copy, once."""
    copied = []
    stored = tracing._stored
    monkeypatch.setattr(tracing, "_stored", lambda x, *given: copied.append(1) or stored(x, *given))

    def f(x):
        u = np.outer(x, x)
        for k in range(40):
            u[k % 6, k % 5] = x[k % 6] * u[k % 6, k % 4]
            if k == 20:
                view = u[2:4]
        return np.sum(u * u) + np.sum(view)

    compiled = tg.compile(tg.value_and_grad(f))
    value, gradient = compiled(POINT)
    assert 0 < len(copied) < 30
    expected, other = tg.value_and_grad(f)(POINT)
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    np.testing.assert_allclose(gradient, other, rtol=1e-12)


@pytest.mark.long
def test_versions_of_a_traced_array_that_are_read_later():
    """Walks backwards and forwards, entry by entry, find each version as it was: by a store of one entry, of a row, and of a part."""

    def f(x):
        u = np.outer(x, x)
        seen = []
        for k in range(2):
            seen += [np.sin(u), u[k], u[:, 1:3] * u[0, k]]
            u[k, 1] = u[k, 0] * x[k]
            seen.append(u * u)
            u[k] = u[k - 1] * x
            u[1:3, k : k + 2] = 0.5 * u[:2, :2]
        return sum(np.sum(s * s) for s in seen) + np.sum(u)

    step = np.sin(POINT + 1.0)
    expected = f(POINT + 1e-30j * step).imag * 1e30
    both = tg.compile(tg.value_and_grad(f))
    for k in range(2):
        value, gradient = both(POINT * (1 + k))
        np.testing.assert_allclose(value, f(POINT * (1 + k)), rtol=1e-13)
        if not k:
            np.testing.assert_allclose(gradient @ step, expected, rtol=1e-12)


def test_outside_of_transforms_the_error_names_the_context():
    x = tg.tensor(POINT, requires_grad=True)
    y = x * 1
    z = y * y
    y[0] = 0.0
    with pytest.raises(tg.GraphError, match="allow_mutation_on_saved_tensors"):
        z.sum().backward()


def test_what_was_recorded_outside_is_kept_from_a_store_in_a_transform():
    x = tg.tensor(POINT, requires_grad=True)
    y = x * 1
    z = y * y

    def f(w):
        y[...] = 0.0
        return np.sum(w * w)

    tg.grad(f)(POINT)
    z.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * POINT)


def test_an_empty_saved_value_is_not_overwritten():
    """The last product of a triangular loop has no terms."""

    def f(a, b):
        b = b * 1.0
        for i in range(3):
            b[i] += a[i + 1 :, i] @ b[i + 1 :]
        b *= 2.0
        return np.sum(b * b)

    a, b = np.sin(np.arange(9.0)).reshape(3, 3), np.cos(np.arange(6.0)).reshape(3, 2)
    by_a, by_b = tg.grad(f, argnums=(0, 1))(a, b)
    out = b + np.tril(a, -1).T @ b
    np.testing.assert_allclose(by_a, np.tril(8 * b @ out.T, -1), rtol=1e-12)
    np.testing.assert_allclose(by_b, 8 * (np.eye(3) + np.tril(a, -1)) @ out, rtol=1e-12)


def test_saved_tensors_hooks():
    def f(x):
        u = x * 1.0
        with tg.autograd.graph.save_on_cpu():
            y = u * u
        u[...] = 1.0
        return np.sum(y * u)

    np.testing.assert_allclose(tg.grad(f)(POINT), 2 * POINT)


def test_an_entry_with_hooks():
    def f(x):
        u = x * 1.0
        y = u * u
        y.grad_fn.register_hook(lambda before, after: None)
        u[...] = 1.0
        return np.sum(y * u)

    np.testing.assert_allclose(tg.grad(f)(POINT), 2 * POINT)


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda x: np.add(x, 1.0, out=np.zeros(6)), tg.GradientLost, "tg.zeros"),
        (lambda x: np.add(x, 1.0, out=tg.zeros(5)), ValueError, "result's shape"),
        (lambda x: np.sum(x, out=tg.zeros(2)), ValueError, "result's shape"),
        (lambda x: np.add(x, 1.0, out=tg.zeros(6, dtype=int)), TypeError, "does not cast"),
        (lambda x: np.add(x, 1.0, dtype=int), TypeError, "casting rule"),
        (lambda x: np.add.at(np.zeros(3), [0], x[0]), tg.GradientLost, "tg.zeros"),
    ],
)
def test_what_cannot_be_written_says_what_to_write(call, error, told):
    x = tg.tensor(POINT, requires_grad=True)
    with pytest.raises(error, match=told):
        call(x)


def test_no_warning_comes_from_where_a_mask_says_no():
    x = tg.tensor([0.0, 2.0], requires_grad=True)
    y = np.divide(1.0, x, out=tg.zeros(2), where=x > 0)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0.0, -0.25])
