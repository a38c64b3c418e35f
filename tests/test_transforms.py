"""Transforms: derivatives of functions are right, of the kind of what went in, and compose to any order.

The oracle is a formula where there is one, else the complex step (exact to rounding for analytic functions of real
arguments), else the other mode.
"""

import collections
import copy
import gc
import itertools
import pickle
import warnings

import numpy as np
import optree
import pytest

import tapegrad as tg
from tests.seeds import seeds

rng = np.random.default_rng(0)
X = rng.uniform(0.3, 1.5, 4)
A = rng.standard_normal((3, 4))


def complex_step(f, x):
    """Jacobian of an analytic f at real x: im f(x + ih) / h has no cancellation."""
    h = 1e-30
    x = np.asarray(x, dtype=float)
    columns = []
    for i in np.ndindex(x.shape):
        z = x.astype(complex)
        z[i] += 1j * h
        columns.append(np.imag(f(z)) / h)
    return np.moveaxis(
        np.array(columns).reshape(x.shape + np.shape(columns[0])), range(x.ndim), range(-x.ndim, 0)
    )


# Each maps an array of 4 positive numbers; written in NumPy, so that the oracle runs the same text.
SCALAR = {
    "polynomial": lambda x: np.sum(x**3) - x[0] * x[1],
    "rosenbrock": lambda x: np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2),
    "transcendental": lambda x: np.sum(np.sin(x) * np.exp(-x) + np.log(x) / x),
    "norm": lambda x: np.sqrt(np.sum(x * x)),
    "quadratic form": lambda x: x @ (A.T @ A) @ x,
    "product": lambda x: np.prod(x) + np.mean(np.cumsum(x) ** 2),
    "logistic": lambda x: np.sum(np.log1p(np.exp(A @ x))),
    "loop with branches": lambda x: _newton(x),
}
VECTOR = {
    "elementwise": lambda x: np.tanh(x) * 2,
    "wide": lambda x: (A @ x) ** 2,
    "tall": lambda x: np.concatenate([x, np.sin(x), x[:1] * x[1:2]]),
    "matrix": lambda x: x[:, None] * np.cos(x)[None, :],
    "slices": lambda x: np.stack([x[::-1], x * x[0]])[:, 1:],
    "scan": lambda x: np.cumsum(np.exp(x)),
}


def _newton(x):
    """Python control flow on values: a branch and a loop whose length depends on the data."""
    y = x
    while np.real(np.sum(y)) < 40.0:
        y = y * 1.5 if np.real(y[0]) > 1.0 else y * 2.0 + x
    return np.sum(y * y)


# ------------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize("name", SCALAR)
def test_grad_is_the_complex_step(name):
    f = SCALAR[name]
    value, gradient = tg.value_and_grad(f)(X)
    np.testing.assert_allclose(value, f(X), rtol=1e-14)
    np.testing.assert_allclose(gradient, complex_step(f, X), rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(tg.grad(f)(X), gradient)


@pytest.mark.parametrize("name", SCALAR)
def test_hessian_and_hvp_are_differences_of_the_complex_step(name):
    """Oracle: central differences of the complex step; and all ways to a Hessian agree."""
    f = SCALAR[name]
    H = tg.hessian(f)(X)
    v = rng.standard_normal(4)
    np.testing.assert_allclose(tg.hvp(f)(X, v), H @ v, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(H, H.T, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(H, tg.jacobian(tg.grad(f), mode="reverse")(X), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(
        H, tg.jacobian(tg.jacobian(f, mode="forward"), mode="reverse")(X), rtol=1e-9, atol=1e-10
    )
    step = 1e-5
    for i in range(4):
        e = np.eye(4)[i] * step
        difference = (complex_step(f, X + e) - complex_step(f, X - e)) / (2 * step)
        np.testing.assert_allclose(H[i], difference, rtol=1e-4, atol=1e-5 * np.abs(H).max())


@pytest.mark.parametrize("name", VECTOR)
def test_jacobian_reverse_equals_forward_equals_the_complex_step(name):
    f = VECTOR[name]
    expected = complex_step(f, X)
    for mode in ("reverse", "forward", "auto"):
        J = tg.jacobian(f, mode=mode)(X)
        assert J.shape == np.shape(f(X)) + X.shape
        np.testing.assert_allclose(J, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", VECTOR)
def test_vjp_and_jvp_are_adjoint_and_agree_with_the_jacobian(name):
    f = VECTOR[name]
    J = complex_step(f, X)
    y, pull = tg.vjp(f, X)
    np.testing.assert_allclose(y, f(X), rtol=1e-14)
    for _ in range(2):
        u, v = rng.standard_normal(np.shape(y)), rng.standard_normal(4)
        (pulled,) = pull(u)
        value, pushed = tg.jvp(f, (X,), (v,))
        np.testing.assert_allclose(value, y, rtol=1e-15)
        np.testing.assert_allclose(pulled, np.tensordot(u, J, u.ndim), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(pushed, J @ v, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(np.sum(u * pushed), pulled @ v, rtol=1e-10)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_orders_compose(order):
    """Derivatives of x·exp(2x): formula (2ⁿ x + n 2ⁿ⁻¹) exp(2x), by all orders of the modes."""

    def f(x):
        return x * np.exp(2 * x)

    def forward(f):
        return lambda x: tg.jvp(f, (x,), (1.0,))[1]

    def pulled(f):
        return lambda x: tg.vjp(f, x)[1](1.0)[0]

    x = 0.3
    expected = (2.0**order * x + order * 2.0 ** (order - 1)) * np.exp(2 * x)
    for modes in itertools.product((tg.grad, forward, pulled, tg.jacobian), repeat=order):
        g = f
        for mode in modes:
            g = mode(g)
        np.testing.assert_allclose(g(x), expected, rtol=1e-12)


def test_mixed_nesting_on_arrays():
    """Third derivatives of Σx⁴ are 24x on the diagonal; grad in jvp in jacobian and the rest of the ways there."""
    x, v, w = X, rng.standard_normal(4), rng.standard_normal(4)

    def f(x):
        return np.sum(x**4)

    third = np.zeros((4, 4, 4))
    third[range(4), range(4), range(4)] = 24 * x
    ways = {
        "jacobian of jvp of grad": lambda: tg.jacobian(lambda x: tg.jvp(tg.grad(f), (x,), (v,))[1])(
            x
        ),
        "jvp of jacobian of grad": lambda: tg.jvp(tg.jacobian(tg.grad(f)), (x,), (v,))[1],
        "jacobian of grad of hvp": lambda: np.stack(
            [tg.grad(lambda x, i=i: tg.hvp(f)(x, v)[i])(x) for i in range(4)]
        ),
        "jacobian of hvp": lambda: tg.jacobian(lambda x: tg.hvp(f)(x, v))(x),
        "hessian of jvp": lambda: tg.hessian(lambda x: tg.jvp(f, (x,), (v,))[1])(x),
        "jacobian of vjp": lambda: tg.jacobian(lambda x: tg.vjp(tg.grad(f), x)[1](v)[0])(x),
    }
    for way, result in ways.items():
        np.testing.assert_allclose(result(), third @ v, rtol=1e-10, atol=1e-12, err_msg=way)
    np.testing.assert_allclose(tg.jacobian(tg.hessian(f))(x), third, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        tg.grad(lambda x: w @ tg.hvp(f)(x, v))(x), third @ v @ w, rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(
        tg.grad(lambda v: w @ tg.hvp(f)(x, v))(v), tg.hessian(f)(x) @ w, rtol=1e-10, atol=1e-12
    )


WAYS = {
    "grad": lambda f: tg.grad(f),
    "value_and_grad": lambda f: lambda x: tg.value_and_grad(f)(x)[1],
    "reverse": lambda f: tg.jacobian(f, mode="reverse"),
    "forward": lambda f: tg.jacobian(f, mode="forward"),
    "jvp": lambda f: lambda x: tg.jvp(f, (x,), (1.0,))[1],
    "linearize": lambda f: lambda x: tg.linearize(f, x)[1](1.0),
    "vjp": lambda f: lambda x: tg.vjp(f, x)[1](1.0)[0],
}


def by_argument(f, variable, way):
    """The derivative by one of two arguments, chosen by argnums (or a tangent of 0 for the other)."""
    k = "xy".index(variable)
    return {
        "grad": tg.grad(f, k),
        "value_and_grad": lambda x, y: tg.value_and_grad(f, k)(x, y)[1],
        "reverse": tg.jacobian(f, k, mode="reverse"),
        "forward": tg.jacobian(f, k, mode="forward"),
        "jvp": lambda x, y: tg.jvp(f, (x, y), (1.0 - k, 0.0 + k))[1],
        "linearize": lambda x, y: tg.linearize(f, x, y)[1](1.0 - k, 0.0 + k),
        "vjp": lambda x, y: tg.vjp(f, x, y)[1](1.0)[k],
    }[way]


def by_closure(f, variable, way):
    """The same, of a function of one argument that closes over the other."""
    if variable == "x":
        return lambda x, y: WAYS[way](lambda z: f(z, y))(x)
    return lambda x, y: WAYS[way](lambda z: f(x, z))(y)


@pytest.mark.parametrize("seed", seeds(range(40), 8))
def test_any_nesting_of_partial_derivatives_is_the_polynomials(seed):
    """Up to three derivatives by either variable, in any mode, by argument or closure, at floats, tensors and leaves."""
    rng = np.random.default_rng(seed)
    c = rng.integers(-3, 4, (5, 5)).astype(float)

    def f(x, y):
        return sum(c[i, j] * x**i * y**j for i in range(5) for j in range(5))

    def exact(variables, x, y):
        d = c
        for v in variables:
            d = np.polynomial.polynomial.polyder(d, axis="xy".index(v))
        return np.polynomial.polynomial.polyval2d(x, y, d)

    variables = [str(v) for v in rng.choice(["x", "y"], rng.integers(1, 4))]
    g = f
    for v in variables:
        style = by_argument if rng.random() < 0.5 else by_closure
        g = style(g, v, str(rng.choice(list(WAYS))))
    x, y = map(float, rng.uniform(-1, 1, 2))
    expected = exact(variables, x, y)
    at_floats, at_tensors = g(x, y), g(tg.tensor(x), tg.tensor(y))
    assert (
        isinstance(at_floats, float)
        and isinstance(at_tensors, tg.Tensor)
        and not at_tensors.requires_grad
    )
    np.testing.assert_allclose([at_floats, at_tensors.item()], expected, rtol=1e-9, atol=1e-9)
    w, v = tg.tensor(x, requires_grad=True), tg.tensor(y, requires_grad=True)
    at_leaves = g(w, v)
    np.testing.assert_allclose(at_leaves.item(), expected, rtol=1e-9, atol=1e-9)
    if at_leaves.requires_grad:
        at_leaves.backward()
    for t, name in ((w, "x"), (v, "y")):
        gradient = 0.0 if t.grad is None else t.grad.item()
        np.testing.assert_allclose(gradient, exact([*variables, name], x, y), rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------------------- perturbations stay apart

D = {
    "grad": tg.grad,
    "jvp": lambda f: lambda x: tg.jvp(f, (x,), (1.0,))[1],
    "linearize": lambda f: lambda x: tg.linearize(f, x)[1](1.0),
    "vjp": lambda f: lambda x: tg.vjp(f, x)[1](1.0)[0],
    "jacobian": tg.jacobian,
    "forward jacobian": lambda f: tg.jacobian(f, mode="forward"),
}


@pytest.mark.parametrize("outer", D)
@pytest.mark.parametrize("inner", D)
def test_no_perturbation_confusion(outer, inner):
    """The classic: d/dx (x · d/dy (x + y)) is 1; who mixes up the two perturbations gets 2."""
    do, di = D[outer], D[inner]
    assert do(lambda x: x * di(lambda y: x + y)(1.0))(1.0) == 1.0
    assert do(lambda x: x * di(lambda y: x * y)(2.0))(3.0) == 6.0
    assert do(lambda x: di(lambda y: x * y * y)(x))(3.0) == 12.0
    assert do(lambda x: x * di(lambda y: y * di(lambda z: x * y * z)(1.0))(x))(2.0) == 24.0
    f = do(lambda x: di(lambda y: np.sin(x) * y)(x) * di(lambda y: y**2 * x)(2.0))
    assert abs(f(0.7) - 4 * (np.sin(0.7) + 0.7 * np.cos(0.7))) < 1e-14
    # Manzyuk et al.: a function that returns a function, differentiated by its own result.
    shift = do(lambda x: di(lambda f_of: x * f_of)(x) * x)
    assert shift(5.0) == 10.0


def test_results_of_nested_transforms_are_of_the_kind_that_went_in():
    """An inner derivative that depends on the outer argument must not leave tensors in a computation of floats."""
    for outer, inner in itertools.product(D.values(), repeat=2):
        result = outer(lambda x: x * inner(lambda y: x * y * y)(1.0))(1.0)
        assert isinstance(result, float) and result == 4.0
    y, pull = tg.vjp(np.sin, np.zeros(2))
    assert type(tg.grad(lambda c: pull(c)[0].sum())(np.ones(2))) is np.ndarray
    assert (
        type(tg.grad(lambda v: tg.jvp(np.sin, (np.zeros(2),), (v,))[1].sum())(np.ones(2)))
        is np.ndarray
    )
    assert type(tg.jvp(lambda c: pull(c)[0], (np.ones(2),), (np.ones(2),))[1]) is np.ndarray


# ------------------------------------------------------------------------------------------------ arguments


def f3(a, b, c):
    return a * b**2 * c


@pytest.mark.parametrize(
    ("argnums", "expected"),
    [
        (0, 9.0),
        (1, 12.0),
        (2, 18.0),
        (-1, 18.0),
        (-3, 9.0),
        (np.int64(1), 12.0),
        ((0, 2), (9.0, 18.0)),
        ((1,), (12.0,)),
        ([2, 0], (18.0, 9.0)),
        ((-1, 1), (18.0, 12.0)),
        ((), ()),
    ],
    ids=repr,
)
def test_argnums_chooses_the_arguments(argnums, expected):
    assert tg.grad(f3, argnums)(2.0, 3.0, 1.0) == expected
    assert tg.jacobian(f3, argnums)(2.0, 3.0, 1.0) == expected
    value, gradient = tg.value_and_grad(f3, argnums)(2.0, 3.0, 1.0)
    assert value == 18.0 and gradient == expected


@pytest.mark.parametrize("way", [lambda f: f, tg.compile], ids=["eager", "compiled"])
def test_copies_inside_a_transform_are_tracked(way):
    """Of its arguments, too: they stand for arrays, whose copies are no new variables."""

    def f(p):
        kept = copy.deepcopy(p)
        p["a"] = p["a"] * 3.0
        return np.sum(kept["a"] ** 2) + np.sum(copy.copy(p["a"]) * kept["b"])

    at = {"a": np.array([1.0, 2.0]), "b": np.array([5.0, 7.0])}
    g = way(tg.grad(f))(dict(at))
    np.testing.assert_array_equal(g["a"], 2 * at["a"] + 3 * at["b"])
    np.testing.assert_array_equal(g["b"], 3 * at["a"])
    with pytest.raises(tg.GradientLost, match="would not be connected"):
        tg.grad(lambda x: pickle.loads(pickle.dumps(x)) * 1.0)(2.0)


@pytest.mark.parametrize("transform", [tg.grad, tg.value_and_grad, tg.jacobian, tg.hessian])
def test_argnum_is_the_name_in_hips_autograd(transform):
    f = lambda a, b: a**2 * b**3  # noqa: E731
    assert transform(f, argnum=1)(2.0, 3.0) == transform(f, 1)(2.0, 3.0)
    with pytest.raises(TypeError, match="two names of one setting"):
        transform(f, 1, argnum=1)


def test_hessian_of_several_outputs_has_their_axes_first():
    """As in JAX and HIPS autograd: a slice for each output is the Hessian of that output."""
    f = lambda x: np.tanh(A @ x) * x[0]  # noqa: E731
    H = tg.hessian(f)(X)
    assert H.shape == (*f(X).shape, *X.shape, *X.shape)
    for i in np.ndindex(f(X).shape):
        np.testing.assert_allclose(H[i], tg.hessian(lambda x, i=i: f(x)[i])(X), rtol=1e-14)
    two = tg.hessian(lambda p: {"a": p[0] ** 2 * p[1], "b": p[1]})((X, 2.0))
    np.testing.assert_array_equal(two["a"][1][0], np.diag(2 * X))
    assert not two["b"][0][0].any() and not two["b"][1][1]


def test_hessian_of_several_arguments_is_a_tuple_of_tuples():
    H = tg.hessian(lambda a, b: a**2 * b, (0, 1))(2.0, 3.0)
    assert H == ((6.0, 4.0), (4.0, 0.0))
    H = tg.hessian(lambda a, b: np.sum(a**2) * b, (0, 1))(np.ones(2), 3.0)
    np.testing.assert_array_equal(H[0][0], 6 * np.eye(2))
    np.testing.assert_array_equal(H[0][1], [2.0, 2.0])
    np.testing.assert_array_equal(H[1][0], [2.0, 2.0])


def test_keyword_arguments_pass_through():
    f = tg.value_and_grad(lambda x, scale=1.0, *, power: scale * x**power)
    assert f(3.0, power=2) == (9.0, 6.0)
    assert f(3.0, 2.0, power=3) == (54.0, 54.0)
    assert f(3.0, scale=2.0, power=3) == (54.0, 54.0)
    assert tg.hvp(lambda x, a, b=1.0: a * b * x**3)(2.0, 1.0, 3.0, b=2.0) == 72.0


def test_a_transform_looks_like_its_function():
    def f(x):
        """Its documentation."""
        return x * x

    for transform in (tg.grad, tg.value_and_grad, tg.jacobian, tg.hessian, tg.hvp):
        assert transform(f).__doc__ == "Its documentation." and transform(f).__wrapped__ is not None
    assert tg.grad(np.sin)(0.0) == 1.0  # a ufunc has no __name__ of the usual kind


def test_has_aux_hands_on_what_is_not_differentiated():
    def f(x):
        return x * x, {"three": x * 3, "text": "as it is", "none": None, "list": [x, 1]}

    gradient, aux = tg.grad(f, has_aux=True)(2.0)
    assert gradient == 4.0 and aux == {
        "three": 6.0,
        "text": "as it is",
        "none": None,
        "list": [2.0, 1],
    }
    assert isinstance(aux["three"], float) and not isinstance(aux["three"], tg.Tensor)
    (value, aux), gradient = tg.value_and_grad(f, has_aux=True)(tg.tensor(2.0))
    assert (
        isinstance(aux["three"], tg.Tensor)
        and not aux["three"].requires_grad
        and value == gradient == 4.0
    )
    y, pull, aux = tg.vjp(f, 2.0, has_aux=True)
    assert (y, pull(1.0), aux["three"]) == (4.0, (4.0,), 6.0)
    y, along, aux = tg.jvp(f, (2.0,), (1.0,), has_aux=True)
    assert (y, along, aux["three"]) == (4.0, 4.0, 6.0)
    for mode in ("reverse", "forward"):
        slope, aux = tg.jacobian(f, has_aux=True, mode=mode)(2.0)
        assert (slope, aux["three"], aux["text"]) == (4.0, 6.0, "as it is")
        assert isinstance(aux["three"], float) and not isinstance(aux["three"], tg.Tensor)
    (curvature,), aux = tg.hessian(f, (0,), has_aux=True)(tg.tensor(2.0))
    assert curvature[0] == 2.0 and aux["three"].tolist() == 6.0 and not aux["three"].requires_grad
    with pytest.raises(TypeError, match="has_aux=True says that f returns a pair"):
        tg.jacobian(lambda x: x * x, has_aux=True)(2.0)


@pytest.mark.filterwarnings("ignore::tapegrad.IndependentValue")
def test_aux_stays_connected_to_what_is_differentiated_outside():
    """`aux` that depends on an outer argument only: cut off, its derivative would be 0 without a word."""
    for way in (
        lambda a: tg.value_and_grad(lambda x: (x * x, a * 3), has_aux=True)(2.0)[0][1],
        lambda a: tg.grad(lambda x: (x * x, [a]), has_aux=True)(2.0)[1][0] * 3,
        lambda a: tg.vjp(lambda x: (x * x, a * 3), 2.0, has_aux=True)[2],
        lambda a: tg.jvp(lambda x: (x * x, a * 3), (2.0,), (1.0,), has_aux=True)[2],
        lambda a: tg.jacobian(lambda x: (x * x, a * 3), has_aux=True, mode="reverse")(2.0)[1],
        lambda a: tg.jacobian(lambda x: (x * x, a * 3), has_aux=True, mode="forward")(2.0)[1],
        lambda a: tg.hessian(lambda x: (x * x, x * a * 3), has_aux=True)(1.0)[1],
        lambda a: tg.jacobian(lambda x: (x * x, x * 3), has_aux=True)(a)[1],
        lambda a: tg.vjp(lambda x: a * 3, 2.0)[0],
        lambda a: tg.vjp(lambda x: (x, a), 2.0)[0][1] * 3,
        lambda a: tg.jvp(lambda x: a, (2.0,), (1.0,))[0] * 3,
        lambda a: tg.value_and_grad(lambda x: a)(2.0)[0] * 3,
        lambda a: tg.vjp(lambda x: x * a, 3.0)[0],
        lambda a: tg.vjp(lambda x: x * a, 2.0)[1](3.0)[0],
        lambda a: tg.grad(lambda x: x * a)(2.0) * 3,
        lambda a: tg.jacobian(lambda x: x * a * 3)(np.ones(2)).sum() / 2,
    ):
        assert tg.grad(way)(1.0) == 3.0
        w = tg.tensor(1.0, requires_grad=True)
        way(w).backward()
        assert w.grad == 3.0


# ------------------------------------------------------------------------------------------------ pytrees

Point = collections.namedtuple("Point", "x y")


def test_arguments_and_gradients_are_pytrees():
    trees = {
        "dict": ({"b": 2.0, "a": 3.0}, lambda t: t["a"] * t["b"], {"b": 3.0, "a": 2.0}),
        "tuple": ((2.0, 3.0), lambda t: t[0] * t[1], (3.0, 2.0)),
        "list": ([2.0, 3.0], lambda t: t[0] * t[1], [3.0, 2.0]),
        "namedtuple": (Point(2.0, 3.0), lambda t: t.x * t.y, Point(3.0, 2.0)),
        "nested": (
            {"p": Point(2.0, [3.0]), "q": (4.0,)},
            lambda t: t["p"].x * t["p"].y[0] * t["q"][0],
            {"p": Point(12.0, [8.0]), "q": (6.0,)},
        ),
        "ordered": (
            collections.OrderedDict(b=2.0, a=3.0),
            lambda t: t["a"] * t["b"],
            collections.OrderedDict(b=3.0, a=2.0),
        ),
        "with None": ({"a": 2.0, "b": None}, lambda t: t["a"] ** 2, {"a": 4.0, "b": None}),
        "empty": ({"a": 2.0, "b": ()}, lambda t: t["a"] ** 2, {"a": 4.0, "b": ()}),
    }
    for name, (tree, f, expected) in trees.items():
        gradient = tg.grad(f)(tree)
        assert gradient == expected and type(gradient) is type(tree), name
        y, pull = tg.vjp(f, tree)
        assert pull(1.0) == (expected,), name
        tangent = optree.tree_map(lambda _: 1.0, tree)
        assert tg.jvp(f, (tree,), (tangent,))[1] == sum(optree.tree_leaves(expected)), name


def test_classes_registered_with_optree_are_pytrees():
    @optree.dataclasses.dataclass(namespace="tapegrad")
    class Pair:
        a: float
        b: float
        name: str = optree.dataclasses.field(default="kept", pytree_node=False)

    gradient = tg.grad(lambda p: p.a**2 * p.b)(Pair(2.0, 3.0, "mine"))
    assert gradient == Pair(12.0, 4.0, "mine")
    y, pull = tg.vjp(lambda x: Pair(x, x * x), 3.0)
    assert y == Pair(3.0, 9.0) and pull(Pair(1.0, 2.0)) == (13.0,)
    value, _ = tg.value_and_grad(lambda p: p.a * p.b)(Pair(tg.tensor(2.0), tg.tensor(3.0)))
    assert isinstance(value, tg.Tensor)


def test_leaves_of_several_kinds_keep_theirs():
    given = {
        "float": 2.0,
        "int": 3,
        "array": np.ones(2),
        "float32": np.float32([1, 2]),
        "tensor": tg.ones(2),
        "scalar": np.float64(2.0),
    }
    gradient = tg.grad(lambda t: sum(np.sum(v * v) for v in t.values()))(given)
    assert (
        type(gradient["float"]) is float
        and type(gradient["int"]) is float
        and gradient["int"] == 6.0
    )
    assert type(gradient["array"]) is np.ndarray and gradient["float32"].dtype == np.float32
    assert (
        isinstance(gradient["tensor"], tg.Tensor)
        and not gradient["tensor"].requires_grad
        and isinstance(gradient["scalar"], float)
    )


def test_jacobian_of_pytrees_has_the_outputs_structure_then_the_inputs():
    def f(t):
        return {"u": t["a"] * t["b"], "v": (np.sum(t["a"]), t["b"] ** 2)}

    at = {"a": np.array([1.0, 2.0]), "b": 3.0}
    for mode in ("forward", "reverse"):
        J = tg.jacobian(f, mode=mode)(at)
        np.testing.assert_array_equal(J["u"]["a"], 3 * np.eye(2))
        np.testing.assert_array_equal(J["u"]["b"], [1.0, 2.0])
        np.testing.assert_array_equal(J["v"][0]["a"], [1.0, 1.0])
        assert J["v"][0]["b"] == 0.0 and J["v"][1]["b"] == 6.0
        np.testing.assert_array_equal(J["v"][1]["a"], [0.0, 0.0])
    H = tg.hessian(lambda t: np.sum(t["a"] ** 2) * t["b"])(at)
    np.testing.assert_array_equal(H["a"]["a"], 6 * np.eye(2))
    np.testing.assert_array_equal(H["a"]["b"], [2.0, 4.0])
    np.testing.assert_array_equal(H["b"]["a"], [2.0, 4.0])


def test_values_of_vjp_and_jvp_may_be_pytrees():
    y, pull = tg.vjp(lambda x, y: {"sum": x + y, "parts": [x * y, 7.0]}, 2.0, 3.0)
    assert y == {"sum": 5.0, "parts": [6.0, 7.0]}
    assert pull({"sum": 1.0, "parts": [2.0, 100.0]}) == (7.0, 5.0)
    value, along = tg.jvp(lambda x: (x, x**2, 7.0), (3.0,), (1.0,))
    assert value == (3.0, 9.0, 7.0) and along == (1.0, 6.0, 0.0)


# ------------------------------------------------------------------------------------------------ kinds


@pytest.mark.parametrize(
    "transform",
    [
        tg.grad,
        lambda f: lambda x: tg.value_and_grad(f)(x)[1],
        tg.jacobian,
        lambda f: (
            lambda x: tg.vjp(f, x)[1](np.ones((), x.dtype if hasattr(x, "dtype") else float))[0]
        ),
    ],
    ids=["grad", "value_and_grad", "jacobian", "vjp"],
)
def test_kinds_in_are_kinds_out(transform):
    def f(x):
        return np.sum(x * x)

    for x in (2.0, np.float64(2.0), 2):
        assert isinstance(transform(f)(x), float)
    for dtype in (np.float32, np.float64):
        g = transform(f)(np.ones(3, dtype))
        assert type(g) is np.ndarray and g.dtype == dtype and g.flags.writeable
        assert transform(f)(dtype(2.0)).dtype == dtype
        t = transform(f)(tg.ones(3, dtype=dtype))
        assert isinstance(t, tg.Tensor) and t.dtype == dtype and not t.requires_grad
    np.testing.assert_array_equal(transform(f)(np.array([1, 2])), [2.0, 4.0])
    np.testing.assert_array_equal(transform(f)(np.array(3.0)), 6.0)


def test_values_are_of_the_kind_that_went_in():
    value, _ = tg.value_and_grad(lambda x: np.sum(x))(np.ones(2))
    assert isinstance(value, float) and not isinstance(value, tg.Tensor)
    value, _ = tg.value_and_grad(lambda x: np.sum(x))(tg.ones(2))
    assert isinstance(value, tg.Tensor) and not value.requires_grad
    y, _ = tg.vjp(lambda x: x * 2, np.float32([1, 2]))
    assert type(y) is np.ndarray and y.dtype == np.float32
    y, t = tg.jvp(lambda x: x * 2, (np.float32([1, 2]),), (np.ones(2),))
    assert type(y) is type(t) is np.ndarray and y.dtype == t.dtype == np.float32


def test_ints_are_points_of_the_real_line():
    assert tg.grad(lambda x: x**2)(3) == 6.0
    assert tg.grad(lambda x: x / 2)(True) == 0.5
    np.testing.assert_array_equal(
        tg.jacobian(lambda x: x**2)(np.array([1, 2], np.int8)), [[2.0, 0.0], [0.0, 4.0]]
    )
    assert tg.jvp(lambda x: x**2, (3,), (1,)) == (9.0, 6.0)


@pytest.mark.filterwarnings("ignore::tapegrad.IndependentValue")
def test_a_function_that_does_not_depend_on_its_argument_has_derivative_zero():
    w = tg.tensor(2.0)
    for f in (
        lambda x: 3.0,
        lambda x: np.float64(3),
        lambda x: np.ones(()),
        lambda x: 5,
        lambda x: tg.ones(()),
        lambda x: w * w,
        lambda x: np.sum(np.argmax(x) * 1.0),
        lambda x: x.detach().sum(),
    ):
        np.testing.assert_array_equal(tg.grad(f)(np.ones(3)), np.zeros(3))
        for mode in ("forward", "reverse"):
            np.testing.assert_array_equal(tg.jacobian(f, mode=mode)(np.ones(3)), np.zeros(3))
        np.testing.assert_array_equal(tg.hessian(f)(np.ones(3)), np.zeros((3, 3)))
        np.testing.assert_array_equal(tg.vjp(f, np.ones(3))[1](1.0)[0], np.zeros(3))
        assert tg.jvp(f, (np.ones(3),), (np.ones(3),))[1] == 0.0
    assert tg.grad(lambda x, y: y * y, (0, 1))(1.0, 3.0) == (0.0, 6.0)


@pytest.mark.parametrize("mode", ["forward", "reverse", "auto"])
def test_empty_and_scalar_shapes(mode):
    J = tg.jacobian
    assert J(lambda x: x * 2, mode=mode)(np.zeros(0)).shape == (0, 0)
    assert J(lambda x: np.sum(x) * np.ones(2), mode=mode)(np.zeros((0, 3))).shape == (2, 0, 3)
    assert J(lambda x: np.zeros((2, 0)) * x, mode=mode)(1.0).shape == (2, 0)
    assert J(lambda x: x * 2, mode=mode)(np.array(1.0)).shape == ()
    assert tg.grad(lambda x: np.sum(x))(np.zeros((0, 2))).shape == (0, 2)
    assert tg.hessian(lambda x: np.sum(x**2))(np.zeros(0)).shape == (0, 0)
    blocks = J(lambda p: p[1], mode=mode)((np.zeros(0), np.zeros((0, 3))))
    assert [b.shape for b in blocks] == [(0, 3, 0), (0, 3, 0, 3)]


# ------------------------------------------------------------------------------------------------ complex numbers


def test_complex_gradients_follow_pytorch():
    """The gradient of a real L at z = a + ib is dL/da + i dL/db."""
    assert tg.grad(lambda z: np.abs(z) ** 2)(1 + 2j) == 2 + 4j
    assert tg.grad(lambda z: np.real(z))(1 + 2j) == 1
    assert tg.grad(lambda z: np.imag(z))(1 + 2j) == 1j
    z = np.array([1 + 2j, -0.5j])
    g = tg.grad(lambda z: np.sum(np.real(np.exp(z) * np.conj(z))))(z)
    for k, direction in itertools.product(range(2), (1.0, 1.0j)):
        step = 1e-6 * direction * np.eye(2)[k]
        f = lambda z: np.sum(np.real(np.exp(z) * np.conj(z)))  # noqa: E731
        difference = (f(z + step) - f(z - step)) / 2e-6
        part = g[k].real if direction == 1.0 else g[k].imag
        np.testing.assert_allclose(part, difference, rtol=1e-8)
    assert (
        g.dtype == np.complex128
        and tg.grad(lambda z: np.sum(np.abs(z)))(z.astype(np.complex64)).dtype == np.complex64
    )


def test_the_jacobian_of_a_holomorphic_function_is_its_derivative():
    z = np.array([1 + 2j, -0.5j])
    for mode in ("forward", "reverse"):
        np.testing.assert_allclose(
            tg.jacobian(lambda z: z**2 * np.exp(z), mode=mode)(z),
            np.diag((2 * z + z**2) * np.exp(z)),
            rtol=1e-13,
        )
        assert abs(tg.jacobian(lambda z: z**3, mode=mode)(1 + 2j) - 3 * (1 + 2j) ** 2) < 1e-13


def test_the_jacobian_of_a_complex_value_of_real_arguments_is_complex():
    """One walk with cotangent 1 sees the real part only."""
    for mode in ("forward", "reverse"):
        J = tg.jacobian(lambda x: np.exp(1j * x) * x, mode=mode)(X)
        np.testing.assert_allclose(J, np.diag((1 + 1j * X) * np.exp(1j * X)), rtol=1e-13)
        Jz, Ja = tg.jacobian(lambda z, a: z**2 * a, (0, 1), mode=mode)(
            np.array([1j, 2.0]), np.array([3.0, 4.0])
        )
        np.testing.assert_allclose(Jz, np.diag([6j, 16.0]), rtol=1e-14)
        np.testing.assert_allclose(Ja, np.diag([-1.0 + 0j, 4.0]), rtol=1e-14)


def test_the_jacobian_of_a_function_that_is_not_holomorphic_is_refused():
    for f in (lambda z: np.abs(z) ** 2, np.conj, np.real, lambda z: z * np.imag(z)):
        for mode in ("forward", "reverse"):
            with pytest.raises(
                tg.NotDifferentiable, match="needs a holomorphic function.*real and imaginary part"
            ):
                tg.jacobian(f, mode=mode)(1 + 2j)
    J = tg.jacobian(lambda z: z.astype(np.complex64) * 2)(1 + 2j)
    assert J == 2


def test_real_gradients_flow_through_complex_values():
    def power(x):
        return np.sum(np.abs(np.exp(1j * np.cumsum(x)) + x) ** 2)

    g = tg.grad(power)(X)
    assert g.dtype == np.float64
    for i in range(4):
        step = 1e-6 * np.eye(4)[i]
        np.testing.assert_allclose(g[i], (power(X + step) - power(X - step)) / 2e-6, rtol=1e-7)


# --------------------------------------------------------------------------------------- what stays connected


def test_closures_over_tracked_tensors_stay_tracked():
    w = tg.tensor([2.0, 3.0], requires_grad=True)
    x = np.array([1.0, 4.0])

    def f(x):
        return np.sum(w * x**2)

    results = {
        "grad": (lambda: tg.grad(f)(x).sum(), 2 * x),
        "value": (lambda: tg.value_and_grad(f)(x)[0], x**2),
        "vjp": (lambda: tg.vjp(f, x)[1](1.0)[0].sum(), 2 * x),
        "vjp value": (lambda: tg.vjp(f, x)[0], x**2),
        "jvp": (lambda: tg.jvp(f, (x,), (np.ones(2),))[1], 2 * x),
        "jacobian": (lambda: tg.jacobian(f)(x).sum(), 2 * x),
        "forward": (lambda: tg.jacobian(f, mode="forward")(x).sum(), 2 * x),
        "hessian": (lambda: tg.hessian(f)(x).sum(), np.full(2, 2.0)),
        "hvp": (lambda: tg.hvp(f)(x, np.ones(2)).sum(), np.full(2, 2.0)),
    }
    for name, (result, expected) in results.items():
        w.grad = None
        y = result()
        assert y.requires_grad, name
        y.backward()
        np.testing.assert_allclose(w.grad.numpy(), expected, err_msg=name)


def test_tracked_arguments_stay_tracked():
    """A tensor that requires grad goes in: its derivative comes out as part of the outer graph."""
    w = tg.tensor([1.0, 2.0], requires_grad=True)
    y = tg.grad(lambda x: np.sum(x**3))(w * 2.0)
    y.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 12 * 2 * w.detach().numpy())
    w.grad = None
    g = tg.grad(lambda x: np.sum(x * w))(
        w
    )  # by the argument only; the closure is a constant of the inner derivative
    g.sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), [1.0, 1.0])


def test_a_training_loop_may_use_transforms():
    """The result of `grad` at a leaf is a plain value under no_grad, and nothing accumulates anywhere."""
    w = tg.tensor([3.0, -2.0], requires_grad=True)
    for _ in range(50):
        with tg.no_grad():
            w -= 0.1 * tg.grad(lambda x: np.sum(x * x))(w)
    assert np.abs(w.detach().numpy()).max() < 1e-3 and w.grad is None


def test_pullbacks_may_be_called_again_and_in_any_order():
    y1, pull1 = tg.vjp(np.sin, X)
    y2, pull2 = tg.vjp(np.exp, X)
    for pull, J in ((pull2, np.exp(X)), (pull1, np.cos(X)), (pull2, np.exp(X)), (pull1, np.cos(X))):
        np.testing.assert_allclose(pull(np.ones(4))[0], J)
    gc.collect()
    np.testing.assert_allclose(pull1(2 * np.ones(4))[0], 2 * np.cos(X))


def test_a_pullback_outlives_the_arrays_it_was_made_of():
    """The caller may overwrite the argument, the value and a cotangent: nothing of them is shared with the tape."""
    x = np.zeros(3)
    y, pull = tg.vjp(np.exp, x)
    x[:] = 100.0
    y[:] = 100.0
    u = np.ones(3)
    (g,) = pull(u)
    g[:] = 100.0
    np.testing.assert_array_equal(pull(u)[0], np.ones(3))
    np.testing.assert_array_equal(u, np.ones(3))
    x = np.ones(3)
    y, pull, aux = tg.vjp(lambda x: (x * x, x), x, has_aux=True)
    aux[:] = 100.0
    np.testing.assert_array_equal(pull(u)[0], np.full(3, 2.0))
    v = np.ones(3)
    along = tg.jvp(lambda x: x + 1, (np.zeros(3),), (v,))[1]
    along += 1
    np.testing.assert_array_equal(v, np.ones(3))


def test_big_arrays_are_locked_only_while_a_transform_needs_them():
    x = np.ones(5000)
    tg.grad(lambda x: np.sum(x * x))(x)
    x[:] = 2.0
    y, pull = tg.vjp(lambda x: x * x, x)
    with pytest.raises(ValueError, match="read-only"):
        x[:] = 3.0
    np.testing.assert_array_equal(pull(np.ones(5000))[0], np.full(5000, 4.0))
    y[:] = 0.0
    del pull
    x[:] = 3.0


def test_tracked_cotangents_and_tangents_are_differentiated_by():
    c = tg.tensor([1.0, 2.0], requires_grad=True)
    x = np.array([0.5, 1.5])
    y, pull = tg.vjp(np.sin, x)
    (g,) = pull(c)
    (g * g).sum().backward()
    np.testing.assert_allclose(c.grad.numpy(), 2 * np.cos(x) ** 2 * c.detach().numpy())
    c.grad = None
    along = tg.jvp(np.sin, (x,), (c,))[1]
    (along**2).sum().backward()
    np.testing.assert_allclose(c.grad.numpy(), 2 * np.cos(x) ** 2 * c.detach().numpy())
    # An op whose forward mode is the transposed reverse mode takes part.
    c.grad = None
    tg.jvp(np.prod, (np.array([2.0, 5.0]),), (c,))[1].backward()
    np.testing.assert_allclose(c.grad.numpy(), [5.0, 2.0])


# ------------------------------------------------------------------------------------------------ linearize


@pytest.mark.parametrize("name", VECTOR)
def test_a_linearisation_is_the_jacobian_and_runs_the_function_once(name):
    runs = []

    def f(x):
        runs.append(x)
        return VECTOR[name](x)

    before = len(tg.current_tape())
    y, along = tg.linearize(f, X)
    J = complex_step(VECTOR[name], X)
    for v in (np.ones(4), X, -3 * X, np.zeros(4)):
        np.testing.assert_allclose(along(v), J @ v, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(y, VECTOR[name](X))
    assert len(runs) == 1 and len(tg.current_tape()) == before
    assert type(y) is np.ndarray and type(along(X)) is np.ndarray
    compiled = tg.compile(along)
    for v in (np.ones(4), X, -3 * X):
        np.testing.assert_allclose(compiled(v), J @ v, rtol=1e-12, atol=1e-12)


def linearised(x, v):
    """Depends on the point and on both tangents."""
    y, along = tg.linearize(lambda x: np.sin(x) * x[0], x)
    return np.sum(along(v) * along(np.cos(v) * x)) + y @ v


def linearised_by_hand(x, v):
    def along(t):
        return np.cos(x) * t * x[0] + np.sin(x) * t[0]

    return np.sum(along(v) * along(np.cos(v) * x)) + (np.sin(x) * x[0]) @ v


@pytest.mark.parametrize("engine", ["eager", "compiled"])
def test_a_linearisation_is_differentiated_by_its_point_and_by_tangents(engine):
    made = tg.compile if engine == "compiled" else lambda f: f
    for by in (0, 1):
        at = [X, 1.0 / X]

        def of(z, by=by):
            return linearised_by_hand(*at[:by], z, *at[by + 1 :])

        expected = complex_step(of, at[by])
        for way in (tg.grad(linearised, by), tg.jacobian(linearised, by, mode="forward")):
            np.testing.assert_allclose(made(way)(*at), expected, rtol=1e-12)
        np.testing.assert_allclose(
            made(tg.hessian(linearised, by))(*at),
            tg.hessian(linearised_by_hand, by)(*at),
            rtol=1e-10,
        )
    with tg.autograd.forward_ad.dual_level():
        dual = tg.autograd.forward_ad.make_dual(tg.tensor(X), tg.tensor(X))
        tangent = tg.autograd.forward_ad.unpack_dual(linearised(dual, at[1])).tangent
    expected = complex_step(lambda z: linearised_by_hand(z, at[1]), X) @ X
    np.testing.assert_allclose(tangent.detach(), expected, rtol=1e-12)


def test_linearisations_have_pytrees_and_aux():
    def f(p, s):
        return {"y": p["a"] * s, "z": (np.sum(p["b"][0] + p["b"][1]) * s, 2.0)}, p["a"] + 1

    p = {"a": X, "b": (X, X)}
    y, along, aux = tg.linearize(f, p, 3.0, has_aux=True)
    np.testing.assert_array_equal(aux, X + 1)
    np.testing.assert_array_equal(y["y"], 3 * X)
    t = along({"a": np.ones(4), "b": (X, 0 * X)}, 2.0)
    np.testing.assert_allclose(t["y"], 3 + 2 * X)
    np.testing.assert_allclose(t["z"][0], 3 * X.sum() + 2 * 2 * X.sum())
    assert t["z"][1] == 0
    assert tg.linearize(lambda x: 5.0, 1.0, allow_unused=True)[1](1.0) == 0


def test_a_linearisation_outlives_the_arrays_it_was_made_of():
    x, v = np.zeros(3), np.ones(3)
    y, along = tg.linearize(np.exp, x)
    x[:] = y[:] = 100.0
    np.testing.assert_array_equal(along(v), np.ones(3))
    along(v)[:] = 100.0
    w = tg.tensor(np.ones(3), requires_grad=True)
    for f in (lambda x: x + 1, lambda x: x + w):
        t = tg.linearize(f, np.zeros(3))[1](v)
        t += 1
        np.testing.assert_array_equal(v, np.ones(3))


def test_a_linearisation_by_tracked_tensors_stays_tracked():
    w = tg.tensor([2.0, 3.0], requires_grad=True)
    ways = {
        "by its argument": lambda: tg.linearize(lambda x: x**3, w * 1),
        "by its closure": lambda: tg.linearize(lambda x: x * w**2, w.detach().numpy()),
    }
    for way, made in ways.items():
        w.grad = None
        y, along = made()
        tg.current_tape().sweep()
        power, factor = (2, 3) if way == "by its argument" else (2, 1)
        for k in (1.0, 2.0):
            expected = k * factor * np.array([2.0, 3.0]) ** power
            np.testing.assert_allclose(along(np.full(2, k)).detach(), expected)
            with tg.no_grad():
                plain = along(np.full(2, k))
            np.testing.assert_allclose(plain, expected)
            assert not plain.requires_grad
        (along(np.ones(2)) + y).sum().backward()
        by_w = 6 * 2 + 3 * 4.0, 6 * 3 + 3 * 9.0
        if way == "by its closure":
            by_w = 2 * 2 + 2 * 4.0, 2 * 3 + 2 * 9.0
        np.testing.assert_allclose(w.grad.numpy(), by_w)


def test_values_of_what_is_tracked_are_connected_at_once():
    """Without a call of the pullback or of the linear map."""
    for transform in (tg.vjp, tg.linearize):
        w = tg.tensor(2.0, requires_grad=True)
        transform(lambda x: x**3, w)[0].backward()
        assert w.grad == 12.0


def test_tangents_of_what_was_overwritten():
    """Inside a transform they are those of the value that was there; outside, they are refused."""

    def f(x):
        y = np.exp(x)
        z = np.sin(y)
        y *= 2
        return z

    slopes = np.cos(np.exp(X)) * np.exp(X)
    np.testing.assert_allclose(tg.jvp(f, (X,), (X,))[1], slopes * X, rtol=1e-13)
    np.testing.assert_allclose(tg.linearize(f, X)[1](X), slopes * X, rtol=1e-13)
    np.testing.assert_allclose(tg.jacobian(f, mode="forward")(X), np.diag(slopes), rtol=1e-13)
    w = tg.tensor(X, requires_grad=True)
    y, along = tg.linearize(np.exp, w * 1)
    along(X)
    y *= 2
    with pytest.raises(tg.GraphError, match="modified by an inplace operation"):
        along(X)


def test_tangents_of_what_was_freed_are_refused():
    w = tg.tensor(X, requires_grad=True)
    for f in (lambda x: np.sin(x) ** 3, lambda x: np.sum(np.sin(x) * x) * 1.0):
        y, along = tg.linearize(f, w)
        before = along(X)
        y.sum().backward(retain_graph=True)
        np.testing.assert_array_equal(along(X).detach(), before.detach())
        y.sum().backward()
        with pytest.raises(tg.GraphError, match="retain_graph=True"):
            along(X)

    def walked_within(x, k):
        y = np.sin(x) ** 2
        z = np.sum(y)
        with tg.no_grad():  # its gradients are not recorded
            z.backward()
        return (x * 2, y + 1, z)[k]

    np.testing.assert_array_equal(tg.jvp(lambda x: walked_within(x, 0), (X,), (X,))[1], 2 * X)
    for k in (1, 2):
        with pytest.raises(tg.GraphError, match="retain_graph=True"):
            tg.jvp(lambda x, k=k: walked_within(x, k), (X,), (X,))


# ------------------------------------------------------------------------------------------------ state


def test_transforms_work_in_any_mode_and_leave_it():
    f = SCALAR["transcendental"]
    expected = tg.grad(f)(X), tg.hessian(f)(X)
    for mode in (tg.no_grad, tg.enable_grad, tg.inference_mode):
        with mode():
            before = tg.is_grad_enabled(), tg.is_inference_mode_enabled()
            np.testing.assert_array_equal(tg.grad(f)(X), expected[0])
            np.testing.assert_array_equal(tg.hessian(f)(X), expected[1])
            w = tg.tensor(X, requires_grad=True)
            assert tg.grad(f)(w).requires_grad == tg.is_grad_enabled()
            assert (tg.is_grad_enabled(), tg.is_inference_mode_enabled()) == before


def test_a_pullback_called_under_no_grad_gives_plain_values():
    w = tg.tensor(3.0, requires_grad=True)
    _, pull = tg.vjp(lambda x: x * x * w, 2.0)
    with tg.no_grad():
        assert pull(1.0) == (12.0,) and type(pull(1.0)[0]) is float and not tg.is_grad_enabled()
    (g,) = pull(1.0)
    g.backward()
    assert w.grad == 4.0


def test_a_transform_can_be_used_again_after_its_function_raised():
    calls = []

    def f(x):
        calls.append(x)
        if len(calls) % 2:
            raise ValueError("every other time")
        return np.sum(x * x)

    gradient = tg.grad(f)
    tape = tg.current_tape()
    for _ in range(3):
        with pytest.raises(ValueError, match="every other time"):
            gradient(X)
        np.testing.assert_array_equal(gradient(X), 2 * X)
        assert tg.current_tape() is tape and tg.is_grad_enabled()


def test_a_function_may_switch_modes_without_consequences():
    def f(x):
        tg.set_grad_enabled(False)
        return x * x

    assert tg.grad(f, allow_unused=True)(3.0) == 0.0 and tg.is_grad_enabled()


def test_functions_may_write_into_buffers():
    def f(x):
        out = tg.zeros(4)
        for i in range(4):
            out[i] = x[i] * x[i - 1]
        out[0] *= 2.0
        out += x
        return out.sum()

    def plainly(x):
        return np.sum(x * np.roll(x, 1)) + x[0] * x[3] + np.sum(x)

    np.testing.assert_allclose(tg.grad(f)(X), complex_step(plainly, X), rtol=1e-13)
    np.testing.assert_allclose(
        tg.jvp(f, (X,), (np.ones(4),))[1], complex_step(plainly, X).sum(), rtol=1e-13
    )
    np.testing.assert_allclose(tg.hessian(f)(X) @ X, tg.hvp(f)(X, X), rtol=1e-13)


def test_a_function_may_not_write_into_its_argument():
    """The argument is the caller's array; nested transforms pass it on as a view, which is no way around."""

    def f(x):
        x[0] = 5.0
        return np.sum(x * x)

    def g(x):
        x += 1.0
        return np.sum(x * x)

    x = np.ones(3)
    t = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for function in (f, g):
        for transform in (
            tg.grad(function),
            tg.hessian(function),
            tg.grad(lambda x: np.sum(tg.grad(function)(x))),
            lambda x: tg.hvp(function)(x, x),
        ):
            for argument in (x, t):
                with pytest.raises(RuntimeError, match=r"in-place|view of|clone"):
                    transform(argument)
    np.testing.assert_array_equal(x, np.ones(3))
    np.testing.assert_array_equal(t.detach().numpy(), [1.0, 2.0, 3.0])


def test_inputs_are_not_changed_and_may_be_read_only():
    x = X.copy()
    x.flags.writeable = False
    v = np.ones(4)
    v.flags.writeable = False
    for f in SCALAR.values():
        tg.grad(f)(x), tg.hvp(f)(x, v), tg.jvp(f, (x,), (v,)), tg.vjp(f, x)[1](1.0)
    np.testing.assert_array_equal(x, X)
    assert not x.flags.writeable


def test_a_long_loop_is_differentiated():
    def f(x):
        y = x
        for _ in range(3000):
            y = y + 0.001 * np.sin(y)
        return y

    y, slope = 0.7, 1.0
    for _ in range(3000):
        y, slope = y + 0.001 * np.sin(y), slope * (1 + 0.001 * np.cos(y))
    assert abs(tg.grad(f)(0.7) - slope) < 1e-9 * slope
    assert abs(tg.jvp(f, (0.7,), (1.0,))[1] - slope) < 1e-9 * slope


def test_gradients_at_many_points_do_not_depend_on_what_came_before():
    f = tg.grad(SCALAR["loop with branches"])
    points = [rng.uniform(0.3, 3.0, 4) for _ in range(5)]
    first = [f(p) for p in points]
    for p, g in reversed(list(zip(points, first, strict=True))):
        np.testing.assert_array_equal(f(p), g)


def test_a_list_where_f_wants_an_array_is_explained() -> None:
    """The error is f's own; a note says what a list is to a transform. Lists that f takes as lists are no error."""
    assert tg.grad(lambda xs: xs[0] * xs[1])([2.0, 3.0]) == [3.0, 2.0]
    with pytest.raises(tg.GradientLost) as caught:
        tg.grad(lambda x: np.sin(x).sum())([1.0, 2.0])
    assert "pass np.array" in caught.value.__notes__[0]
    with pytest.raises(ValueError, match="mine") as mine:
        tg.grad(lambda x: _raise(ValueError("mine")))(np.ones(2))
    assert not hasattr(mine.value, "__notes__")


def _raise(error: Exception) -> None:
    raise error


# ------------------------------------------------------------------------- many directions in one push


MODELS_OF_NUMBERS = {
    "decay": lambda a, b, c, t: a * np.exp(-b * t) + c,
    "peak": lambda a, b, c, t: a * np.exp(-(((t - b) / c) ** 2)),
    "picked": lambda a, b, c, t: np.stack([a, b, c])[1:] * 2.0 - a,
    "product": lambda a, b, c, t: np.outer(t, t)[:, :2] @ np.stack([a * b, c]),
    "ties": lambda a, b, c, t: np.maximum(a * t, b) + np.abs(c - 0.4) * np.floor(t),
    "poles": lambda a, b, c, t: np.where(t > 0, a / np.where(t > 0, t, 1.0), b) * c,
}


@pytest.mark.parametrize("name", MODELS_OF_NUMBERS)
def test_directions_of_numbers_go_together(name):
    """A Jacobian by several numbers, by one vector, and row by row in reverse mode are the same."""
    f, t = MODELS_OF_NUMBERS[name], np.linspace(0.0, 2.0, 7)
    point = (1.5, 0.7, 0.4)
    together = tg.jacobian(f, (0, 1, 2), mode="forward")(*point, t)
    rows = tg.jacobian(f, (0, 1, 2), mode="reverse")(*point, t)
    whole = tg.jacobian(lambda p: f(p[0], p[1], p[2], t), mode="forward")(np.array(point))
    np.testing.assert_allclose(np.stack(together, axis=-1), np.stack(rows, axis=-1), rtol=1e-14)
    np.testing.assert_allclose(whole, np.stack(rows, axis=-1), rtol=1e-14)


def test_directions_go_together_in_trees_and_shapes():
    tree = {"a": np.array([[1.0, 2.0]]), "b": 3.0, "c": np.zeros((0, 2))}

    def f(p):
        return {"x": np.sum(p["a"], axis=0) * p["b"], "y": p["b"] + np.sum(p["c"])}

    forward = tg.jacobian(f, mode="forward")(tree)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.IndependentValue)
        reverse = tg.jacobian(f, mode="reverse")(tree)
    for row in ("x", "y"):
        for column in tree:
            np.testing.assert_array_equal(forward[row][column], reverse[row][column])
            assert np.shape(forward[row][column]) == np.shape(reverse[row][column])


def test_blocks_of_a_jacobian_share_no_memory():
    first, second = tg.jacobian(lambda x: (x + 1.0, x + 2.0), mode="forward")(np.ones(3))
    first[...] = 7.0
    np.testing.assert_array_equal(second, np.eye(3))
    (a, b), _ = tg.jacobian(lambda x, y: (x + y, x), (0, 1), mode="forward")(1.0, 2.0)
    assert a == b == 1.0


def test_inputs_that_lead_nowhere_are_told_where_none_is_used():
    used, unused = tg.jacobian(lambda x, y: np.stack([x, 2 * x]), (0, 1), mode="forward")(1.0, 2.0)
    np.testing.assert_array_equal(used, [1.0, 2.0])
    np.testing.assert_array_equal(unused, [0.0, 0.0])
    zero, _ = tg.jacobian(lambda x, y: np.stack([0.0 * x, y]), (0, 1), mode="forward")(1.0, 2.0)
    np.testing.assert_array_equal(zero, [0.0, 0.0])  # it is used, if only by nought
    with pytest.warns(tg.IndependentValue):
        tg.jacobian(lambda x, y: np.ones(2), (0, 1), mode="forward")(1.0, 2.0)


@pytest.mark.parametrize("x", [np.float32, np.float64])
@pytest.mark.parametrize("y", [np.float32, np.float64, np.complex64, np.complex128])
def test_blocks_of_a_jacobian_have_the_precision_of_their_argument(x, y):
    def f(a, b):
        return (a * b).astype(y) * 2.0

    given = np.arange(1.0, 3.0, dtype=x), np.float64(0.5)
    both = [tg.jacobian(f, (0, 1), mode=mode)(*given) for mode in ("forward", "reverse")]
    single = np.result_type(x, np.complex64) if np.dtype(y).kind == "c" else np.dtype(x)
    for blocks in both:
        assert blocks[0].dtype == single
        assert blocks[1].dtype == np.result_type(np.float64, single if single.kind == "c" else x)
    for forward, reverse in zip(*both, strict=True):
        np.testing.assert_allclose(forward, reverse, rtol=1e-6)


@pytest.mark.parametrize("axis", [0, -1, None])
@pytest.mark.parametrize("keepdims", [False, True])
def test_a_number_is_summed_along_its_axis_in_all_directions(axis, keepdims):
    """NumPy lets a number have the axes 0 and -1; several directions go through such a sum together."""

    def f(x):
        return np.add.reduce(x[0] * x[1], axis=axis, keepdims=keepdims)

    x = np.array([2.0, 3.0, 5.0])
    for mode in ("forward", "reverse"):
        np.testing.assert_array_equal(tg.jacobian(f, mode=mode)(x), [3.0, 2.0, 0.0])
    np.testing.assert_array_equal(
        tg.hessian(f)(x), [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    )
