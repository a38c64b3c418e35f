"""Gradients that get lost on the way from an argument to a value: transforms warn, and what would lose one raises."""

import io
import pickle
import warnings

import numpy as np
import pytest

import tapegrad as tg

X = np.array([1.5, 2.5])
W = tg.tensor(2.0, requires_grad=True)

TRANSFORMS = {
    "grad": lambda f, **s: tg.grad(f, **s)(X),
    "value_and_grad": lambda f, **s: tg.value_and_grad(f, **s)(X),
    "jacobian": lambda f, **s: tg.jacobian(f, **s)(X),
    "forward": lambda f, **s: tg.jacobian(f, mode="forward", **s)(X),
    "reverse": lambda f, **s: tg.jacobian(f, mode="reverse", **s)(X),
    "hessian": lambda f, **s: tg.hessian(f, **s)(X),
    "hvp": lambda f, **s: tg.hvp(f, **s)(X, X),
    "vjp": lambda f, **s: tg.vjp(f, X, **s)[1](1.0),
    "jvp": lambda f, **s: tg.jvp(f, (X,), (X,), **s),
    "linearize": lambda f, **s: tg.linearize(f, X, **s)[1](X),
    "grad of grad": lambda f, **s: tg.grad(lambda x: np.sum(tg.grad(f, **s)(x)))(X),
    "compiled": lambda f, **s: tg.compile(tg.grad(f, **s))(X),
    "of compiled": lambda f, **s: tg.grad(tg.compile(f), **s)(X),
    "compiled Hessian": lambda f, **s: tg.compile(tg.hessian(f, **s))(X),
}
INDEPENDENT = {
    "detached": lambda x: np.sum(np.sin(x.detach())),
    "a constant": lambda x: 3.0,
    "another variable": lambda x: W * W,
    "of comparisons": lambda x: np.sum(np.where(x > 0, 1.0, 2.0)),
}
DEPENDENT = {
    "linear": lambda x: np.sum(3 * x),
    "quadratic": lambda x: np.sum(3 * x * x),
    "flat": lambda x: np.sum(np.floor(x)),
    "times zero": lambda x: np.sum(x * 0.0),
    "of another, too": lambda x: W * W + x[0],
}


def warned(call):
    """Warnings of a call, each of which must name this file."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    told = [w for w in seen if issubclass(w.category, tg.IndependentValue)]
    assert all(w.filename == __file__ for w in told)
    return len(told)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_value_that_does_not_depend_on_the_argument_warns_once(name):
    transform = TRANSFORMS[name]
    for what, f in INDEPENDENT.items():
        assert warned(lambda f=f: transform(f)) == 1, what
        assert warned(lambda f=f: transform(f, allow_unused=True)) == 0, what
    for what, f in DEPENDENT.items():
        assert warned(lambda f=f: transform(f)) == 0, what


def test_all_arguments_count_together():
    first = lambda x, y, z: np.sum(x)  # noqa: E731
    for argnums in ((0, 1), (1, 0, 2)):
        assert warned(lambda a=argnums: tg.grad(first, argnums=a)(X, X, X)) == 0
    for mode in ("forward", "reverse"):
        assert warned(lambda m=mode: tg.jacobian(first, (0, 1), mode=m)(X, X, X)) == 0
        assert warned(lambda m=mode: tg.jacobian(first, (1, 2), mode=m)(X, X, X)) == 1
    with pytest.warns(tg.IndependentValue, match="arguments 1, 2 of f"):
        tg.hessian(first, argnums=(1, 2))(X, X, X)
    with pytest.warns(tg.IndependentValue, match="argument 1 of f"):
        tg.grad(first, 1)(X, X, X)
    assert warned(lambda: tg.vjp(first, X, X, X)[1](1.0)) == 0
    assert warned(lambda: tg.jvp(first, (X, X, X), (X, X, X))) == 0
    # Of a pytree some leaf must be used; of nothing, nothing is missed.
    assert warned(lambda: tg.grad(lambda p: np.sum(p["a"]))({"a": X, "b": X})) == 0
    assert warned(lambda: tg.grad(lambda p: 2.0)({"a": X, "b": X})) == 1
    assert warned(lambda: tg.grad(lambda p: 2.0)({})) == 0
    assert warned(lambda: tg.grad(lambda x: 2.0)(X[:0])) == 0
    assert warned(lambda: tg.jacobian(lambda x: x[:0])(X)) == 0


def test_counts_and_constant_components_are_no_reason():
    assert warned(lambda: tg.grad(lambda x: 0)(X)) == 0
    assert warned(lambda: tg.jacobian(lambda x: np.argsort(x))(X)) == 0
    assert warned(lambda: tg.jacobian(lambda x: (x[0], 1.0, np.argmax(x)))(X)) == 0


def test_constant_derivatives_are_no_reason():
    square = lambda x: x * x  # noqa: E731
    assert warned(lambda: tg.grad(tg.grad(tg.grad(tg.grad(square))))(3.0)) == 0
    assert warned(lambda: tg.grad(lambda w: tg.grad(lambda x: w + x)(3.0))(2.0)) == 0
    assert warned(lambda: tg.grad(lambda w: tg.grad(lambda x: w * w)(3.0))(2.0)) == 1
    once = lambda x: tg.autograd.grad(3 * x, x, create_graph=True)[0]  # noqa: E731
    assert warned(lambda: tg.grad(once)(3.0)) == 0
    assert warned(lambda: tg.vmap(tg.grad(lambda v: 3 * v))(X)) == 0


def test_what_uses_transforms_does_not_warn():
    assert warned(lambda: tg.check_gradient(lambda x: 3.0, X)) == 0
    assert warned(lambda: tg.root(lambda x: 3 * x - 1, X)) == 0
    f = lambda x: np.sum((x - 1) ** 2)  # noqa: E731
    for method in ("trust-exact", "bfgs", "nelder-mead"):
        assert warned(lambda m=method: tg.minimize(f, X, method=m)) == 0


@pytest.mark.parametrize("engine", ["adjoint", "overload"])
def test_native_functions(engine):
    mode = {} if engine == "adjoint" else {"mode": engine}
    constant = tg.njit(**mode)(lambda x: 3.0)
    first = tg.njit(**mode)(lambda x, y: np.sum(x))
    flat = tg.njit(**mode)(lambda x: np.floor(x[0]) * 1.0)
    assert warned(lambda: tg.grad(flat)(X)) == warned(lambda: tg.grad(first)(X, X)) == 0
    if engine == "overload":  # it runs, and does not know what a number was made from
        return
    assert warned(lambda: tg.grad(constant)(X)) == 1
    assert warned(lambda: tg.grad(first, argnums=(0, 1))(X, X)) == 0
    assert warned(lambda: tg.grad(first, argnums=1)(X, X)) == 1
    assert warned(lambda: tg.grad(first, argnums=1, allow_unused=True)(X, X)) == 0
    assert warned(lambda: tg.jacobian(first, argnums=1)(X, X)) == 1
    assert warned(lambda: tg.jvp(constant, (X,), (X,))) == 1
    value, (by_x, by_y) = tg.value_and_grad(first, argnums=(0, 1))(X, X)
    assert value == 4.0 and by_x.tolist() == [1.0, 1.0] and by_y.tolist() == [0.0, 0.0]


# -------------------------------------------------------------------------------------------- leaving the tape


def through_a_file(write, read):
    def f(x):
        file = io.BytesIO()
        write(file, x)
        file.seek(0)
        return np.sum(read(file)) * x[1]

    return f


LEAVING = {
    "item": lambda x: x[0].item() * x[1],
    "item of a place": lambda x: x.item(0) * x[1],
    "tolist": lambda x: sum(x.tolist()) * x[1],
    "tobytes": lambda x: np.sum(np.frombuffer(x.tobytes())) * x[1],
    "pickle": lambda x: np.sum(pickle.loads(pickle.dumps(x))) * x[1],
    "save": through_a_file(np.save, np.load),
    "savez": through_a_file(lambda b, x: np.savez(b, a=x), lambda b: np.load(b)["a"]),
    "savetxt": through_a_file(np.savetxt, np.loadtxt),
}


@pytest.mark.parametrize("name", LEAVING)
def test_inside_a_transform_numbers_do_not_leave_the_tape(name):
    f = LEAVING[name]
    for transform in (tg.grad, tg.jacobian, lambda f: lambda x: tg.jvp(f, (x,), (x,))):
        with pytest.raises(tg.GradientLost, match=r"detach\(\)"):
            transform(f)(X)
    assert np.isfinite(f(X))


def test_outside_a_transform_they_are_pytorchs():
    t = tg.tensor([1.5, 2.5], requires_grad=True)
    assert t.tolist() == [1.5, 2.5] and t[0].item() == 1.5 and len(t.tobytes()) == 16
    file = io.BytesIO()
    np.save(file, t)
    assert file.tell() > 16


def test_printing_inside_a_transform_works():
    said = []

    def f(x):
        y = np.sum(x * x)
        said.append(f"{y:.2f} {y} {x} {np.array2string(x)}")
        with tg.no_grad():
            said.append(y.item())
        return y

    np.testing.assert_array_equal(tg.grad(f)(X), 2 * X)
    assert said[0].startswith("8.50 8.5 tensor(") and said[1] == 8.5


def test_text_made_by_a_remainder_is_never_refused():
    said = []

    def f(x):
        y = np.sum(x * x)
        said.append("%.2f and %d" % (y, x[0]))  # noqa: UP031  what is tested
        line = "%g"
        line %= y
        said.append(line)
        return y

    np.testing.assert_array_equal(tg.grad(f)(X), 2 * X)
    assert said == ["8.50 and 1", "8.5"]
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(x) * (float(x[0]) % 2.0))(X), [5.5, 1.5])


def test_plain_numbers_are_given_out_for_printing_only(capsys):
    """What nobody but people gets is no lost gradient; the same expression elsewhere is."""

    def prints(x):
        y = np.sum(x * x)
        print(float(y), round(y.item(), 1), "%.1f" % float(y), sep="; ")  # noqa: UP031  what is tested
        print("; ".join(f"{float(v):.2f}" for v in x))
        return y

    def keeps(x):
        print(k := x[0].item())
        return k * np.sum(x)

    def hands_on(x):
        print(np.sqrt(x[0].item()))
        return np.sum(x)

    np.testing.assert_array_equal(tg.grad(prints)(X), 2 * X)
    assert capsys.readouterr().out == "8.5; 8.5; 8.5\n1.50; 2.50\n"
    for f in (keeps, hands_on):
        with pytest.raises(tg.GradientLost):
            tg.grad(f)(X)


# ------------------------------------------------------------------------------------------------ steps of optimisers


def descent(steps, p, **settings):
    """Steps of an optimiser on p |w|², a hyperparameter p and where they end."""
    w = tg.tensor([1.0, 2.0], requires_grad=True)
    optimizer = steps([w], lr=0.1, **settings)

    def closure():
        optimizer.zero_grad()
        loss = p * (w * w).sum()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    return (w * w).sum()


OPTIMISERS = ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS"]


@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps_of_optimisers_are_refused_where_they_depend_on_what_is_differentiated(name):
    steps = getattr(tg.optim, name)
    with pytest.raises(tg.GradientLost, match="backward"):
        tg.grad(lambda p: descent(steps, p) * p)(0.5)
    with pytest.raises(tg.GradientLost, match="backward"):
        tg.jvp(lambda p: descent(steps, p) * p, (0.5,), (1.0,))
    # What does not depend on it is a constant, and may be computed by any means.
    expected = float(descent(steps, 0.5).detach())
    assert tg.grad(lambda p: descent(steps, 0.5).detach() * p)(0.5) == expected


def test_recorded_gradients_and_learning_rates_do_not_enter_a_step():
    def recorded(p):
        w = tg.tensor([1.0, 2.0], requires_grad=True)
        optimizer = tg.optim.SGD([w], lr=0.1)
        (p * (w * w).sum()).backward(create_graph=True)
        optimizer.step()
        return (w * w).sum() * p

    def clipped(p):
        w = tg.tensor([1.0, 2.0], requires_grad=True)
        (p * (w * w).sum()).backward(create_graph=True)
        tg.optim.clip_grad_norm_([w], 1.0)
        return w.grad.sum()

    def scheduled(p):
        w = tg.tensor([1.0, 2.0], requires_grad=True)
        optimizer = tg.optim.SGD([w], lr=0.1)
        tg.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: p)
        (w * w).sum().backward()
        optimizer.step()
        return (w * w).sum() * p

    for f, what in ((recorded, r"\.grad"), (clipped, "clipping"), (scheduled, "lr")):
        with pytest.raises(tg.GradientLost, match=what):
            tg.grad(f)(0.5)
    rate = tg.tensor(0.5, requires_grad=True)
    with pytest.raises(tg.GradientLost, match="lr"):
        scheduled(rate)


def test_gradients_inside_a_transform_are_recorded_or_refused():
    def inner(p, record):
        w = tg.tensor(3.0, requires_grad=True)
        (g,) = tg.autograd.grad(p * w**2, w, create_graph=record)
        return (w - 0.1 * g) ** 2

    p, h = 0.5, 1e-6
    slope = tg.grad(lambda p: inner(p, True))(p).detach()  # tracked by w
    plain = lambda p: (3.0 - 0.1 * 2 * p * 3.0) ** 2  # noqa: E731
    np.testing.assert_allclose(slope, (plain(p + h) - plain(p - h)) / (2 * h), rtol=1e-6)
    with pytest.raises(tg.GradientLost, match="create_graph=True"):
        tg.grad(lambda p: inner(p, False) * p)(p)
    square = lambda x: x * x  # noqa: E731
    by = tg.autograd.functional.jacobian
    with pytest.raises(tg.GradientLost, match=r"functional\.jacobian"):
        tg.grad(lambda x: by(square, x) * x)(3.0)
    with pytest.raises(tg.GradientLost, match=r"autograd\.grad"):
        tg.grad(lambda p: by(lambda x: p * x, tg.tensor(3.0)) * p)(3.0)
    assert tg.grad(lambda x: by(square, x, create_graph=True) * x)(3.0) == 12.0
    assert tg.grad(lambda x: by(square, x.detach()) * x)(3.0) == 6.0


# ------------------------------------------------------------------------------------------------ solvers


def later(p):
    """A function that reads p away from its start at 5 only."""
    return lambda x: np.sum((x - (p if np.any(x != 5.0) else 2.0)) ** 2)


SOLVERS = {
    "minimize": lambda p: tg.minimize(later(p), 5.0),
    "without a gradient": lambda p: tg.minimize(later(p), 5.0, method="nelder-mead"),
    "least_squares": lambda p: tg.least_squares(
        lambda x: np.atleast_1d(x - (p if np.any(x != 5.0) else 2.0)), 5.0
    ),
    "root": lambda p: tg.root(lambda x: x - (p if np.any(x != 5.0) else 2.0), 5.0),
    "a constraint": lambda p: tg.minimize(
        lambda x: x * x, 5.0, constraints={"type": "ineq", "fun": lambda x: x - 1.0 if x == 5.0 else x - p}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SOLVERS)
def test_solvers_look_further_than_the_start(name):
    solve = SOLVERS[name]
    assert abs(tg.grad(lambda p: solve(p).x * p)(2.0) - 4.0) < 1e-2
    assert abs(tg.jvp(lambda p: solve(p).x * p, (2.0,), (1.0,))[1] - 4.0) < 1e-2
    assert abs(solve(2.0).x - 2.0) < 1e-3
