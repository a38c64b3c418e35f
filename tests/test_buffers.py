"""Functions that join tracked numbers by NumPy, or fill its buffers: they run as copies that make tensors, and nothing else is different."""

import dataclasses
import functools
import gc
import inspect
import threading
import types
import weakref

import numpy as np
import numpy as xp
import pytest
from numpy import array as together
from numpy import zeros as nothing

import tapegrad as tg
from tapegrad.compiler import tracing
from tapegrad.face.adoption import adopted, adoptions

X = np.array([0.5, -0.3, 0.8])


def square(x):
    y = np.zeros(3)
    for i in range(3):
        y[i] = x[i] * x[i]
    return y


def test_a_buffer_that_is_filled():
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(square(x)))(X), 2 * X)
    assert type(square(X)) is np.ndarray


def test_derivatives_of_a_compiled_function_fill_them_too():
    compiled = tg.compile(square)
    np.testing.assert_allclose(tg.jvp(compiled, (X,), (X,))[1], 2 * X * X)
    np.testing.assert_allclose(tg.jacobian(compiled)(X), np.diag(2 * X))
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(compiled(x)))(X), 2 * X)


MAKERS = {
    "zeros": lambda: np.zeros(3),
    "ones": lambda: np.ones((3,)),
    "empty": lambda: np.empty(3, dtype=float),
    "full": lambda: np.full(3, 2.0),
    "ndarray": lambda: np.ndarray(3),
    "ndarray by shape": lambda: np.ndarray((3,), float),
    "zeros_like": lambda: np.zeros_like(np.ones(3)),
    "full_like": lambda: np.full_like(X, 1.0),
    "a row of eye": lambda: np.eye(3)[1],
    "identity": lambda: np.identity(3)[0],
    "array of a list": lambda: np.array([0.0] * 3),
    "array of an array": lambda: np.array(X),
    "copy": lambda: np.copy(X),
    "asarray of a list": lambda: np.asarray([1.0, 2.0, 3.0]),
    "another name": lambda: xp.zeros(3),
    "a name of its own": lambda: nothing(3),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(
    "of", [tg.grad, lambda f: tg.compile(tg.grad(f))], ids=["grad", "compiled"]
)
def test_makers(make, of):
    def f(x):
        y = make()
        y[:] = 0.0
        y[1:] += x[1:] ** 3
        y[0] = x[0] * x[1]
        return np.sum(y)

    np.testing.assert_allclose(of(f)(X), [X[1], X[0] + 3 * X[1] ** 2, 3 * X[2] ** 2])


def test_arrays_of_tracked_numbers():
    def f(x):
        y = np.array([x[0], 2.0 * x[1], 3.0])
        z = np.asarray([y, y])
        z[0] = np.array(x) * np.asarray(x)
        return np.sum(z)

    np.testing.assert_allclose(tg.grad(f)(X), 2 * X + [1.0, 2.0, 0.0])


def test_whole_numbers_and_truth_values_stay_arrays():
    kinds = []

    def f(x):
        where = np.zeros(3, int)
        mask = np.ones(3, bool)
        y = np.zeros(3)
        where[0] = 2
        y[where[0]] = x[0]
        kinds.extend(map(type, (where, mask, y)))
        return np.sum(y[mask])

    np.testing.assert_allclose(tg.grad(f)(X), [1.0, 0.0, 0.0])
    assert kinds == [np.ndarray, np.ndarray, tg.Tensor]


def depth(x, n):
    y = np.zeros(1)
    y[0] = x[n] if n == 0 else x[n] * depth(x, n - 1)[0]
    return y


def test_recursion():
    expected = [X[1] * X[2], X[0] * X[2], X[0] * X[1]]
    np.testing.assert_allclose(tg.grad(lambda x: depth(x, 2)[0])(X), expected)


def _of_another_module():
    module = types.ModuleType("somebody")
    exec(
        "import numpy as np\ndef fill(x):\n    y = np.zeros(3)\n    y[:] = x * x\n    return y\n",
        vars(module),
    )
    return module


somebody = _of_another_module()


def test_helpers_of_other_modules():
    f = somebody.fill
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(somebody.fill(x)))(X), 2 * X)
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(f(x)))(X), 2 * X)


def test_functions_of_enclosing_functions():
    def inner(x):
        y = np.empty(3)
        y[...] = np.exp(x)
        return y

    def outer(x):
        def innermost(v):
            z = np.zeros(3)
            z[::-1] = inner(v)
            return z

        return np.sum(innermost(x) * np.arange(3))

    np.testing.assert_allclose(tg.grad(outer)(X), np.exp(X) * [2, 1, 0])


class Model:
    def __init__(self, k):
        self.k = k
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        y = np.zeros(3)
        y[:2] = self.k * x[:2] ** 2
        return np.sum(y)

    def run(self, x):
        return self(x)


def test_methods_partials_and_callable_objects():
    model = Model(2.0)
    expected = [4 * X[0], 4 * X[1], 0.0]
    np.testing.assert_allclose(tg.grad(model)(X), expected)
    np.testing.assert_allclose(tg.grad(model.__call__)(X), expected)
    assert model.calls == 2
    f = functools.partial(lambda k, x: np.sum(k * square(x)), 3.0)
    np.testing.assert_allclose(tg.grad(f)(X), 6 * X)


def test_a_function_runs_once_and_keeps_its_state():
    seen = []

    def f(x, scale=2.0, *, log=seen):
        y = np.zeros(3)
        y[:] = scale * x
        log.append(len(log))
        f.calls += 1
        return np.sum(y)

    f.calls = 0
    for _ in range(3):
        np.testing.assert_allclose(tg.grad(f)(X), [2.0, 2.0, 2.0])
    assert seen == [0, 1, 2] and f.calls == 3
    f.__defaults__ = (5.0,)
    np.testing.assert_allclose(tg.grad(f)(X), [5.0, 5.0, 5.0])
    compiled = tg.compile(lambda x: f(x))
    assert np.isclose(compiled(X), 5 * X.sum())


def helper(x):
    y = np.zeros(3)
    y[:] = x
    return y


def _grown(x):
    rows = []
    for v in x:
        rows.append(v * v + (rows[-1] if rows else 0.0))
    return np.mean(rows)


@np.vectorize
def shrunk(u, by):
    if u > by:
        return u * u - by
    return u + by if u < -by else 0.0


@np.vectorize(otypes=[float], excluded=["power"])
def filled(u, power=2):
    y = np.zeros(2)
    y[0], y[1] = u, 3.0
    return y @ y**power if u > 0 else u - 1


solved = np.vectorize(np.linalg.solve, signature="(n,n),(n)->(n)")
two = np.vectorize(lambda u, v: (u * v, u if u > 0.6 else v**2))


def _numbered(x):
    total = 0.0
    for (i, j), v in np.ndenumerate(np.outer(x, x)):
        total += (i - 2 * j) * v**2
    return total


def _placed(x):
    a = np.zeros((3, 3))
    a[range(2), range(1, 3)] = x[1:] ** 2
    a[range(3)] += x[range(2, -1, -1)]
    return a[:, range(0, 3, 2)]


JOINERS = {
    "vectorize": lambda x: shrunk(x[:, None] * x, np.array([0.1, 0.4, 0.2])),
    "vectorize with a buffer": lambda x: filled(x, power=3) + filled(u=x[0]),
    "vectorize whole rows": lambda x: solved(np.multiply.outer(x, np.eye(2) + 0.1), x[:2]),
    "vectorize two results": lambda x: np.stack(two(x, x[::-1] + 1)),
    "vectorize inside": lambda x: np.vectorize(lambda u, k: u**2 if u > k else -u)(x, 0.4),
    "lexsort": lambda x: np.array([v**2 for v in x])[np.lexsort([x, np.round(x / 9)])],
    "lexsort of a tuple": lambda x: np.array([v**2 for v in x])[np.lexsort((x, -x))],
    "ndenumerate": lambda x: _numbered(x) * x,
    "ranges of places": lambda x: _placed(x),
    "array": lambda x: np.array([x[0] * x[1], x[2]]),
    "rows": lambda x: np.array([[x[0], 1.0], (2.0, x[1] * x[2])]),
    "of a tensor": lambda x: np.array(x) ** 2,
    "of comprehensions": lambda x: np.array([np.array([v, v * w]) for v in x for w in x]),
    "more axes": lambda x: np.array([x[0] * x[1]], ndmin=3),
    "asarray": lambda x: np.asarray(x, float) ** 2,
    "asanyarray": lambda x: np.asanyarray([x * x[0], x]),
    "ascontiguousarray": lambda x: np.ascontiguousarray(np.outer(x, x).T[::2]),
    "asfortranarray": lambda x: np.asfortranarray([x * x[0], x]),
    "full": lambda x: np.full((2, 2), x[0] * x[1]),
    "full_like": lambda x: np.full_like(X, x[0] * x[1]),
    "fromiter": lambda x: np.fromiter((v * v for v in x), float),
    "r_": lambda x: np.r_[x[0], 1.0, x[1:] ** 2],
    "c_": lambda x: np.c_[x, x * x],
    "another name": lambda x: xp.array([x[0] ** 2]),
    "a name of its own": lambda x: together([x[0] ** 2, x[1]]),
    "a sum of a list": lambda x: np.sum([v * v for v in x]),
    "a product of lists": lambda x: np.dot([x[0], x[1]], [x[2], 2.0]),
    "a ufunc of a list": lambda x: np.maximum([x[0], x[1] * x[2]], 0.1),
    "a reduction of a list": lambda x: np.multiply.reduce(np.exp([x[0], x[1]])),
    "a norm of a list": lambda x: np.linalg.norm([x[0], x[1]]),
    "a system in lists": lambda x: np.linalg.solve([[x[0], 1.0], [0.5, x[1]]], [x[2], 2.0]),
    "a transform of a list": lambda x: np.abs(np.fft.rfft([x[0], x[1], x[2], 1.0])),
    "a list that grows": lambda x: _grown(x),
    "lists in a stack": lambda x: np.stack([[x[0], x[1]], [x[1] * x[2], 1.0]]),
    "lists in a concatenation": lambda x: np.concatenate([[x[0]], [1.0, 2.0], x * x]),
    "lists in a block": lambda x: np.block([[x[0], x[1]], [1.0, x[2]]]),
    "lists in einsum": lambda x: np.einsum("i,i->i", [x[0], x[1]], [1.0, 2.0]),
    "a number": lambda x: (
        x * (2.0 if np.isscalar(x[0]) else 3.0) * (5.0 if np.isscalar(x) else 7.0)
    ),
    "lists of parts": lambda x: np.concatenate([x[:2] ** 2, [x[0], x[2]]]),
    "an array by its class": lambda x: x * x if isinstance(x, np.ndarray) else 0 * x,
}


@pytest.mark.parametrize("f", JOINERS.values(), ids=JOINERS)
def test_joiners(f):
    """What NumPy gives for numbers, with the derivative of differences, in each way to differentiate and compiled."""
    y = tg.vjp(f, X)[0]
    assert y.dtype == f(X).dtype
    np.testing.assert_array_equal(y, f(X))
    v = np.array([1.0, -2.0, 0.5])
    slope = (f(X + 1e-6 * v) - f(X - 1e-6 * v)) / 2e-6
    np.testing.assert_allclose(tg.jvp(f, (X,), (v,))[1], slope, atol=1e-9)
    np.testing.assert_allclose(tg.jacobian(f)(X) @ v, slope, atol=1e-9)
    total = tg.grad(lambda x: np.sum(f(x) ** 2))
    compiled = tg.compile(total)
    for x in (X, X + 1, X - 1):
        np.testing.assert_allclose(total(x) @ v, np.sum(2 * f(x) * tg.jvp(f, (x,), (v,))[1]))
        np.testing.assert_allclose(compiled(x), total(x))
    assert isinstance(f(X), np.ndarray | np.float64)


def test_functions_of_copies_are_numpys():
    """What stands for a function where lists are made is equal to it, has its attributes, and takes whole numbers as they are."""
    known = {np.sin: 1.0, np.linalg.norm: 2.0}

    def f(x):
        rows = [x[0], x[1]]
        assert np.sin == xp.sin and np.sin.nin == 1 and np.add.outer(x, x).shape == (3, 3)
        assert np.reshape(x, (tg.tensor(3), 1)).shape == (3, 1) and np.sum([1.0, 2.0]) == 3.0
        assert not isinstance(np.cos([1.0]), tg.Tensor)
        return np.sum(rows) * known[np.sin] * known[np.linalg.norm] + sum(map(np.square, x))

    np.testing.assert_allclose(tg.grad(f)(X), 2 * X + [2.0, 2.0, 0.0])


def test_vectorize_has_the_dtype_of_the_first_result():
    """NumPy's rule, by which a function that returns 0 first gives whole numbers; an array without entries tells no dtype."""
    f = np.vectorize(lambda u: 0 if u > 1 else u * 2.0)
    y = tg.vjp(lambda x: f(x), np.array([2.0, 0.5]))[0]
    assert y.dtype == int and y.tolist() == f(np.array([2.0, 0.5])).tolist() == [0, 1]
    with pytest.raises(ValueError, match="size 0"):
        tg.vjp(lambda x: shrunk(x, 1.0), np.ones(0))
    assert tg.vjp(lambda x: filled(x), np.ones(0))[0].shape == (0,)


def test_nditer_is_refused_in_words():
    with pytest.raises(tg.errors.GradientLost, match="ndenumerate"):
        tg.grad(lambda x: sum(v * v for v in np.nditer(x)))(X)
    assert tg.grad(lambda x: sum(v * v for v in np.nditer(X)) * x)(2.0) == np.sum(X**2)


def test_types_of_what_is_joined():
    single = np.float32(0.5)
    for rest in (single, 1.0, 1, True, 1j, X[0]):
        y = tg.vjp(lambda x, rest=rest: np.array([x, rest]), single)[0]
        assert y.dtype == np.array([single, rest]).dtype
    assert tg.vjp(lambda x: np.array([x, 1.0], np.float32), 2.0)[0].dtype == np.float32
    with pytest.raises(ValueError, match="shape|inhomogeneous"):
        tg.grad(lambda x: np.sum(np.array([x, x[:2]])))(X)


def test_what_joins_only_makes_arrays_as_ever():
    def f(x, u):
        made = np.array([1.0, 2.0, 3.0]), np.zeros(3), np.asarray(u), np.full(3, 2.0)
        assert [type(a) for a in made] == [np.ndarray] * 4 and np.asarray(u) is u
        return np.sum(np.array([*x]) * sum(made))

    np.testing.assert_allclose(tg.grad(f)(X, np.ones(3)), [4.0, 5.0, 6.0])


class Decay:
    scale = 2.0

    def at(self, t, rate):
        return np.array([self.scale * np.exp(-rate * u) for u in t])

    def filled(self, t, rate):
        y = np.zeros(len(t))
        for i, u in enumerate(t):
            y[i] = self.scale * np.exp(-rate * u)
        return y

    __call__ = at


def oscillator(t, y, k):
    return np.array([y[1], -k * y[0]])


T = np.linspace(0.0, 2.0, 9)
THROUGH = {
    "curve_fit": lambda: tg.curve_fit(lambda t, k: np.array([2 * np.exp(-k * u) for u in t]), T, 2 * np.exp(-1.5 * T), 1.0)[0][0],
    "curve_fit of a method": lambda: tg.curve_fit(Decay().at, T, 2 * np.exp(-1.5 * T), 1.0)[0][0],
    "curve_fit of an object": lambda: tg.curve_fit(Decay(), T, 2 * np.exp(-1.5 * T), 1.0)[0][0],
    "curve_fit of a partial": lambda: tg.curve_fit(functools.partial(Decay.at, Decay()), T, 2 * np.exp(-1.5 * T), 1.0)[0][0],
    "curve_fit of what fills": lambda: tg.curve_fit(Decay().filled, T, 2 * np.exp(-1.5 * T), 1.0)[0][0],
    "least_squares": lambda: tg.least_squares(lambda p: np.array([p[0] - 1.5, p[1] * p[0]]), np.ones(2)).x[0],
    "minimize": lambda: tg.minimize(lambda p: np.sum(np.array([p[0] - 1.5, p[1] * p[0]]) ** 2), np.ones(2)).x[0],
    "root": lambda: tg.root(lambda p: np.array([p[0] - p[1], p[1] ** 2 - 2.25]), np.ones(2)).x[0],
    "root in a gradient": lambda: tg.grad(lambda k: tg.root(lambda p: np.array([p[0] - k * p[1], p[1] - 1.5]), np.ones(2)).x[0])(1.0),
    "check_gradient": lambda: 1.5 * tg.check_gradient(lambda p: np.array([p[0], p[1] * p[0]]), np.ones(2)).ok,
    "functional": lambda: float(tg.autograd.functional.jacobian(lambda p: np.array([p, 1.5 * p]), tg.tensor(2.0))[1]),
    "gradcheck": lambda: 1.5 * tg.autograd.gradcheck(lambda p: np.array([p, 1.5 * p]), tg.tensor(2.0, requires_grad=True)),
}  # fmt: skip


@pytest.mark.parametrize("run", THROUGH.values(), ids=THROUGH)
def test_functions_that_solvers_are_given(run):
    assert float(run()) == pytest.approx(1.5, abs=1e-6)


@pytest.mark.parametrize("method", ["RK45", "DOP853", "BDF"])
def test_right_hand_sides_as_they_are_written_for_scipy(method):
    """y = cos(sqrt(k) t), by k at k = 2 and t = 1."""
    end = lambda k: tg.integrate.solve_ivp(oscillator, (0.0, 1.0), np.array([1.0, 0.0]), method, args=(k,), rtol=1e-9, atol=1e-10).y[0, -1]  # fmt: skip  # noqa: E731
    expected = -np.sin(np.sqrt(2.0)) / (2 * np.sqrt(2.0))
    assert float(tg.grad(end)(2.0)) == pytest.approx(expected, abs=1e-6)


@dataclasses.dataclass
class Scaled:
    by: float

    def __call__(self, x):
        rows = [v * self.by for v in x]
        same = self == Scaled(self.by) and self.__class__ is Scaled and type(self) is Scaled
        assert (
            type(rows) is list and isinstance(Scaled, type) and type("made", (), {}) is not Scaled
        )
        return np.sum(rows) * (1.0 if same else 100.0)


SCALED = Scaled(2.0)


@pytest.mark.parametrize("f", [Scaled(2.0), lambda x: SCALED(x)], ids=["object", "named"])
def test_objects_of_copied_methods_are_of_their_class(f):
    """A method that asks what it belongs to goes the way that it goes without a derivative."""
    value, slope = tg.value_and_grad(f)(X)
    assert value == f(X)
    np.testing.assert_allclose(slope, 2.0)


class Oscillator:
    k = 2.0

    def slope(self, t, y):
        rate = np.zeros(2)
        rate[0] = y[1]
        rate[1] = -self.k * y[0]
        return rate


@pytest.mark.parametrize(
    "fun", [lambda t, y: np.array([y[1], -2.0 * y[0]]), Oscillator().slope], ids=["joins", "fills"]
)
def test_jacobians_that_integrators_take_by_themselves(fun):
    """Outside of transforms: a stiff method differentiates the right-hand side, and a compiled one traces it."""
    times = np.array([0.5, 1.0])
    exact = np.cos(np.sqrt(2.0) * times)
    for method, compile in (("Radau", False), ("BDF", False), ("RK45", True)):
        found = tg.integrate.solve_ivp(
            fun,
            (0.0, 1.0),
            [1.0, 0.0],
            method,
            t_eval=times,
            rtol=1e-9,
            atol=1e-10,
            compile=compile,
        )
        np.testing.assert_allclose(found.y[0], exact, atol=1e-6)


def test_names_that_are_bound_anew(monkeypatch):
    g = tg.grad(lambda x: np.sum(helper(x)))
    np.testing.assert_allclose(g(X), np.ones(3))
    monkeypatch.setitem(globals(), "helper", lambda x: 2 * square(x))
    np.testing.assert_allclose(g(X), 4 * X)
    monkeypatch.setitem(globals(), "factor", 7.0)
    h = tg.grad(lambda x: np.sum(factor * square(x)))
    np.testing.assert_allclose(h(X), 14 * X)
    monkeypatch.setitem(globals(), "factor", 1.0)
    np.testing.assert_allclose(h(X), 2 * X)


def test_what_was_no_function_of_the_users_may_become_one(monkeypatch):
    """A closure of the same code, or a global that is bound anew: the copy was that for a function of a library, which needs none."""

    def through(f):
        return lambda x: np.sum(f(x))

    def named(x):
        return np.sum(np.array([step(x)[0], x[1]]))

    for f in (np.exp, square, np.exp, square):
        want = np.exp(X) if f is np.exp else 2 * X
        np.testing.assert_allclose(tg.grad(through(f))(X), want)
        monkeypatch.setitem(globals(), "step", f)
        np.testing.assert_allclose(tg.grad(named)(X), [want[0], 1, 0])


step = None


def test_only_what_fills_or_joins_arrays_is_copied():
    def no_store(x):
        return np.sum(np.zeros(3) + x)

    def no_maker(x):
        y = x * 2
        y[0] = 1.0
        return np.sum(y)

    assert adopted(no_store) is no_store and adopted(no_maker) is no_maker
    assert adopted(square) is not square and adopted(square).__code__ is square.__code__
    assert adopted(tg.sin) is tg.sin and adopted(np.sin) is np.sin and adopted(len) is len
    assert adoptions(no_store) == []
    (told,) = adoptions(square)
    assert told.startswith("square (") and "test_buffers.py" in told


def test_a_copy_is_the_function():
    copy = adopted(square)
    assert copy.__code__ is square.__code__ and inspect.getsource(copy) == inspect.getsource(square)
    assert (copy.__name__, copy.__module__, copy.__dict__) == (
        square.__name__,
        square.__module__,
        square.__dict__,
    )
    assert type(copy(X)) is np.ndarray  # outside of transforms it makes arrays


def test_copies_keep_no_function_alive():
    def f(x):
        y = np.zeros(3)
        y[:] = x
        return np.sum(y) if len(x) else f(x)

    tg.grad(f)(X)
    ref = weakref.ref(f)
    del f
    gc.collect()
    assert ref() is None


def test_what_a_function_closes_over_is_not_kept_alive():
    def made(values, inner):
        return lambda x: np.sum(inner(x) * values)

    values = np.ones(3)
    f = made(values, lambda x: x * 2)
    np.testing.assert_allclose(tg.grad(f)(X), [2.0, 2.0, 2.0])
    refs = weakref.ref(values), weakref.ref(f)
    del f, values
    gc.collect()
    assert [ref() for ref in refs] == [None, None]
    for inner, slope in ((lambda x: x * 3, 3 * np.ones(3)), (square, 2 * X), (np.sin, np.cos(X))):
        np.testing.assert_allclose(tg.grad(made(np.ones(3), inner))(X), slope)


def test_other_threads_see_nothing():
    inside, out = threading.Event(), threading.Event()

    def f(x):
        y = np.zeros(3)
        y[:] = x
        inside.set()
        assert out.wait(20)
        return np.sum(y)

    t = threading.Thread(target=lambda: tg.grad(f)(X))
    t.start()
    assert inside.wait(20)
    assert type(square(X)) is np.ndarray and type(np.zeros(2)) is np.ndarray
    out.set()
    t.join()


def test_opting_out():
    with tg.plain_buffers(), pytest.raises(tg.GradientLost, match="tg.zeros"):
        tg.grad(lambda x: np.sum(square(x)))(X)
    tg.grad(lambda x: np.sum(square(x)))(X)
    joined = tg.grad(lambda x: np.sum(np.array([x[0], x[1] ** 2])))
    with tg.plain_buffers(), pytest.raises(tg.GradientLost, match="tg.stack"):
        joined(X)
    np.testing.assert_allclose(joined(X), [1.0, 2 * X[1], 0.0])


count = 0


def counts(x):
    global count
    count += 1
    y = np.zeros(3)
    y[:] = x
    return np.sum(y)


def test_a_function_that_binds_globals_runs_as_it_is():
    with pytest.raises(tg.GradientLost, match="tg.zeros"):
        tg.grad(counts)(X)
    assert count == 1


def test_a_constant_argument_may_be_copied_but_not_written_to():
    def f(x, u):
        v = u.copy()
        v[0] = x[0]
        return np.sum(v * v)

    u = np.ones(3)
    np.testing.assert_allclose(tg.grad(f)(X, u), [2 * X[0], 0.0, 0.0])
    assert u.tolist() == [1.0, 1.0, 1.0]

    def g(x, u):
        u = u if len(u) else u.copy()
        u[0] = x[0]
        return np.sum(u)

    with pytest.raises(ValueError, match="read-only"):
        tg.grad(g)(X, u)
    assert u.tolist() == [1.0, 1.0, 1.0]


START = np.array([2.0, -1.0, 0.5])
TABLE = np.linspace(0, 1, 6).reshape(2, 3)[:, ::-1]


def _from_a_global(x):
    y = START.copy()
    y *= x
    y[1:] += x[: len(START) - 1] ** START.ndim * START.max()
    return y


def _from_a_default(x, start=np.array([1.0, 2.0, 3.0]), *, table=TABLE):  # noqa: B008  an array as settings often are
    y, z = start.copy(), table.flatten()
    y[0] = x[0] * z[1]
    z[:3] -= x
    return y @ z[::2] * x


def _from_a_converted_table(x):
    y = TABLE.astype(float, order="F")
    y[0] = x**2
    return np.cumsum(y.ravel()) * y.sum()


def _of_a_factory(start):
    def f(x):
        y = start.copy()
        y[x > 0] = x[x > 0] ** 2
        return y * x

    return f


SOURCES = {
    "a global": _from_a_global,
    "defaults": _from_a_default,
    "a converted table": _from_a_converted_table,
    "a closure": _of_a_factory(np.array([3.0, 4.0, 5.0])),
}


@pytest.mark.parametrize("f", SOURCES.values(), ids=SOURCES)
def test_copies_of_constants_are_buffers(f):
    test_joiners(f)


def test_a_constant_that_changes_is_read_anew():
    """In place, and bound anew, compiled or not; copies are the function's own."""
    start = np.array([1.0, 2.0, 3.0])

    def f(x):
        y = start.copy()
        y[0] *= x
        return np.sum(y) * x

    compiled = tg.compile(tg.value_and_grad(f))
    for change in (lambda: None, lambda: start.__imul__(2.0), lambda: start.__setitem__(0, 7.0)):
        change()
        for run in (compiled, tg.value_and_grad(f)):
            assert run(3.0) == (f(3.0), 6 * start[0] + start[1] + start[2])
    start = np.array([5.0])
    for run in (compiled, tg.value_and_grad(f)):
        assert run(3.0) == (45.0, 30.0)


def test_a_constant_that_is_also_used_as_it_is_stays_an_array():
    def f(x):
        y = START.copy()
        y[0] = x
        return np.sum(y * START)

    with pytest.raises(tg.errors.GradientLost, match=r"np\.copy"):
        tg.grad(f)(2.0)


def test_kinds():
    def f(x):
        y = np.zeros(3)
        assert isinstance(y, np.ndarray) and isinstance(x, np.ndarray)
        assert not isinstance(y[0], np.ndarray) and np.float64 is xp.float64
        assert issubclass(type(y), np.ndarray)
        y[:] = x
        return np.sum(y), y, np.ones(2)

    _, (y, ones) = _with_aux(f)
    assert type(y) is np.ndarray and type(ones) is np.ndarray


def _with_aux(f):
    def g(x):
        total, *rest = f(x)
        return total, tuple(rest)

    return tg.grad(g, has_aux=True)(X)


def test_a_helper_that_is_bound_anew_on_the_way():
    def inner(x):
        return x * x

    def f(x):
        nonlocal inner
        y = np.zeros(3)
        y[:] = inner(x)
        inner = np.exp
        return np.sum(y)

    np.testing.assert_allclose(tg.grad(f)(X), 2 * X)
    assert inner is np.exp
    np.testing.assert_allclose(tg.grad(f)(X), np.exp(X))


class Pendulum:
    def __init__(self, length):
        self.length = length
        self.seen = []

    def slope(self, z):
        dz = np.empty(2)
        dz[0] = z[1]
        dz[1] = -np.sin(z[0]) / self.length
        return dz

    def path(self, z0):
        self.seen.append(self)
        z = np.zeros((4, 2))
        z[0] = z0
        for i in range(3):
            z[i + 1] = z[i] + 0.1 * self.slope(z[i])
        return z

    def __len__(self):
        return 1


class Damped(Pendulum):
    def slope(self, z):
        dz = np.zeros(2)
        dz[0] = z[1]
        dz[1] -= np.sin(z[0]) / self.length + 0.1 * z[1]
        return dz


PENDULUM = Damped(2.0)


def swing(z):
    return np.sum(PENDULUM.path(z) ** 2)


def _of_one_part(x, w):
    w.real[0] = x[0] * x[1]


def _of_both(x, w):
    w.real = x
    w.imag *= x[2]


def _of_a_name(x, w):
    part = w[1:].imag
    part[0] += x[0] ** 2
    w[2] = x[1] * 1j


def _of_a_reversed_row(x, w):
    w[None].T[::-1].imag[1, 0] = x[1]


def _with_infinity(x, w):
    w.imag[1] = np.inf * x[1]
    w.real[1] = x[0]
    w.imag[1] = x[2]


@pytest.mark.parametrize("n", [3, 60_000])  # arrays above tracing.PUT_OFF are computed later
@pytest.mark.parametrize(
    "store", [_of_one_part, _of_both, _of_a_name, _of_a_reversed_row, _with_infinity]
)
def test_stores_into_parts_of_complex_buffers(store, n):
    """A compiled program refused them, and lost them in large arrays; forward mode lost what follows the first, or raised."""

    def f(x):
        w = np.zeros(x.size, complex)
        w[:] = x * (1 - 2j)
        store(x, w)
        return np.sum((np.abs(w) ** 2)[:3] * np.array([1.0, 2.0, 3.0]))

    x, v = np.linspace(0.5, 2.0, n), np.zeros(n)
    v[:3] = 0.3, -0.7, 1.1
    expected = (f(x + 1e-6 * v) - f(x - 1e-6 * v)) / 2e-6
    for g in (f, tg.compile(f)):
        assert g(x) == pytest.approx(f(x), rel=1e-14)
        assert tg.grad(g)(x) @ v == pytest.approx(expected, rel=1e-8)
        assert tg.jvp(g, (x,), (v,))[1] == pytest.approx(expected, rel=1e-8)
    assert tg.compile(tg.grad(f))(x) @ v == pytest.approx(expected, rel=1e-8)


def _reversed_copy(x):
    y = x[0, ::-1].copy()
    y[0] = 2.0
    y[1:-1] = y[2:] * y[:-2]
    return y, y


def _transposed(x):
    y = x * 2
    t = y.T
    t[0] = 1.0
    t[1:-1] = t[2:] * t[:-2]
    y[3] *= y[1]
    return y, t


def _axes_moved(x):
    y = np.sin(x)
    t, m = np.swapaxes(y, 0, 1)[::-1], np.moveaxis(y, 0, 1)
    t[0] = y[0, 0]
    m[1:3] *= t[1:3]
    t[2] = 0.5
    return m, t


@pytest.mark.parametrize("entries", [2, 50_000])
@pytest.mark.parametrize("program", [_reversed_copy, _transposed, _axes_moved])
def test_stores_follow_a_store_through_a_rearranged_view(program, entries, monkeypatch):
    """In arrays that were not computed yet a second store was refused: the first had made the array a view of its view."""
    monkeypatch.setattr(tracing, "PUT_OFF", entries)

    def f(x):
        y, t = program(x)
        return np.sum(y**2) + np.sum(t * np.cos(y))

    x, v = (np.random.default_rng(i).uniform(0.5, 1.5, (4, 4)) for i in range(2))
    expected = (f(x + 1e-6 * v) - f(x - 1e-6 * v)) / 2e-6
    value, slope = tg.compile(tg.value_and_grad(f))(x)
    assert value == pytest.approx(f(x), rel=1e-14)
    assert np.sum(slope * v) == pytest.approx(expected, rel=1e-8)


def test_what_is_not_written_through_a_view_is_refused():
    """NumPy's einsum shows the diagonal itself; a compiled program has copies of its entries, and the write was lost."""

    def f(x):
        w = np.zeros((2, 2))
        w[:] = x
        np.einsum("ii->i", w)[0] = x[0, 0] * x[0, 1]
        return np.sum(w**2)

    def broadcast(x):
        w = np.zeros(60_000)
        w[0] = x[0, 0]
        np.broadcast_to(w, (2, 60_000))[0, 0] = x[0, 1]
        return np.sum(w)

    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_allclose(tg.grad(f)(x), [[8.0, 8.0], [6.0, 8.0]])
    with pytest.raises(ValueError, match="read-only"):
        tg.compile(f)(x)
    with pytest.raises(ValueError, match="read-only"):
        broadcast(x)
    with pytest.raises(tg.TraceError, match="shares"):
        tg.compile(broadcast)(x)
    with pytest.raises(TypeError, match="imaginary part to set"):
        tg.tensor([1.0]).imag = 2.0


def test_methods_of_objects():
    z = np.array([0.4, -0.2])
    here = Damped(2.0)
    steps = 1e-6 * np.eye(2)
    expected = [(swing(z + h) - swing(z - h)) / 2e-6 for h in steps]
    PENDULUM.seen.clear()
    for f in (swing, lambda z: np.sum(here.path(z) ** 2)):
        np.testing.assert_allclose(tg.grad(f)(z), expected, rtol=1e-8)
        np.testing.assert_allclose(tg.compile(tg.grad(f))(z), expected, rtol=1e-8)
    jacobian = tg.jacobian(here.path)(z)
    np.testing.assert_allclose(
        np.einsum("ij,ijk->k", 2 * here.path(z), jacobian), expected, rtol=1e-8
    )
    assert all(PENDULUM == p for p in PENDULUM.seen) and isinstance(PENDULUM.seen[0], Damped)
    here.length = 3.0
    assert not np.allclose(tg.grad(lambda z: np.sum(here.path(z) ** 2))(z), expected)
    assert type(here.path(z)) is np.ndarray and type(here.slope) is types.MethodType


def test_attributes_that_methods_set():
    class Counted(Damped):
        def path(self, z0):
            self.calls = getattr(self, "calls", 0) + 1
            z = np.zeros((2, 2))
            z[0] = z0
            z[1] = self.slope(z0)
            return z

    counted = Counted(2.0)
    for k in range(3):
        tg.grad(lambda z: np.sum(counted.path(z)))(np.array([0.4, -0.2]))
        assert counted.calls == k + 1
    counted.calls = 7
    tg.jacobian(counted.path)(np.array([0.4, -0.2]))
    assert counted.calls == 8 and vars(counted).keys() == {"length", "seen", "calls"}
