"""NumPy's functions on tensors: recorded where there is a rule, evaluated where there is nothing to record, else refused.

A value never leaves the tape unnoticed: whatever NumPy does with a tracked tensor gives its value with its gradient, or an
error that names the remedy.
"""

import cmath
import inspect
import io
import math
import operator
import warnings

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.core.primitive import CONSTANTS, FUNCTIONS, REFUSED, UFUNCS

rng = np.random.default_rng(0)
M = rng.uniform(0.5, 1.5, (3, 3))


def leaf(data):
    return tg.tensor(data, requires_grad=True)


def plain(value):
    """What NumPy would have returned."""
    if isinstance(value, tg.Tensor):
        return value.detach().numpy()
    if isinstance(value, tuple | list):
        return (
            type(value)(plain(v) for v in value)
            if not hasattr(value, "_make")
            else type(value)(*map(plain, value))
        )
    return value


def agree(result, expected):
    if isinstance(expected, tuple | list):
        assert len(result) == len(expected)
        for r, e in zip(result, expected, strict=True):
            agree(r, e)
        return
    r, e = np.asarray(plain(result)), np.asarray(expected)
    assert r.shape == e.shape and r.dtype == e.dtype, (r, e)
    np.testing.assert_allclose(r, e, rtol=1e-12)


def tensors_in(value):
    if isinstance(value, tg.Tensor):
        return [value]
    return [t for v in value for t in tensors_in(v)] if isinstance(value, tuple | list) else []


# ------------------------------------------------------------------------------------------------ ufuncs


@pytest.mark.parametrize(
    "ufunc", [f for f in UFUNCS if getattr(np, f.__name__, None) is f], ids=lambda f: f.__name__
)
def test_a_ufunc_with_a_rule_is_recorded(ufunc):
    """On tensors, with arrays and numbers on either side, and as `tg.<name>`."""
    op = UFUNCS[ufunc].primitive if hasattr(UFUNCS[ufunc], "primitive") else None
    domains = op.domains if op and len(op.domains) == ufunc.nin else None
    shape = (3, 3) if ufunc.signature else (3,)
    if domains:
        operands = [d.sample(rng, shape) for d in domains]
    else:
        operands = [rng.uniform(0.2, 0.9, shape) for _ in range(ufunc.nin)]
    if ufunc.signature:  # vecdot, matvec, ...: the last axes are its own
        operands = [
            rng.uniform(0.2, 0.9, (3,) * part.count(",") + (3,) if part.strip("()") else ())
            for part in ufunc.signature.split("->")[0].replace("),(", ")|(").split("|")
        ]
    try:
        expected = ufunc(*operands)
    except TypeError:
        operands[-1] = np.array([1, 2, 3])  # ldexp takes an integer there
        expected = ufunc(*operands)
    for i, x in enumerate(operands):
        if x.dtype.kind != "f":
            continue
        for others in (
            operands,
            [o if o.ndim == 0 or k == i else tg.tensor(o) for k, o in enumerate(operands)],
        ):
            arguments = [*others]
            arguments[i] = leaf(x)
            for function in (ufunc, UFUNCS[ufunc]):
                result = function(*arguments)
                agree(result, expected)
                assert any(t.requires_grad for t in tensors_in(result)), function
    untracked = ufunc(*(tg.tensor(x) for x in operands))
    agree(untracked, expected)
    assert not any(t.requires_grad for t in tensors_in(untracked))


@pytest.mark.parametrize(
    "left",
    [
        np.ones(3),
        np.float64(2.0),
        np.float32(2.0),
        np.int64(2),
        np.complex128(2j),
        np.ones((2, 3)),
        np.bool_(True),
        np.array(2.0),
        [1.0, 2.0, 3.0],
    ],
    ids=repr,
)
def test_what_stands_on_the_left_does_not_matter(left):
    x = np.array([1.0, 2.0, 3.0])
    w = leaf(x)
    for function in (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow):
        expected = function(np.asarray(left), x)
        result = function(left, w)
        assert isinstance(result, tg.Tensor) and result.requires_grad
        agree(result, expected)
        w.grad = None
        np.sum(np.real(result)).backward()
        assert w.grad is not None and w.grad.shape == (3,)
    for function in (operator.lt, operator.eq, operator.ne):
        agree(function(left, w), function(np.asarray(left), x))


@pytest.mark.parametrize(
    ("name", "call", "same_as"),
    [
        ("add.reduce", lambda x: np.add.reduce(x), lambda x: np.sum(x, axis=0)),
        (
            "add.reduce axis",
            lambda x: np.add.reduce(x, axis=1, keepdims=True),
            lambda x: np.sum(x, axis=1, keepdims=True),
        ),
        ("add.reduce all", lambda x: np.add.reduce(x, axis=None), lambda x: np.sum(x)),
        ("add.reduce axes", lambda x: np.add.reduce(x, (0, 1)), lambda x: np.sum(x)),
        (
            "add.reduce by position",
            lambda x: np.add.reduce(x, 1, None, None, True),
            lambda x: np.sum(x, axis=1, keepdims=True),
        ),
        ("multiply.reduce", lambda x: np.multiply.reduce(x, axis=1), lambda x: np.prod(x, axis=1)),
        ("maximum.reduce", lambda x: np.maximum.reduce(x, axis=None), lambda x: np.max(x)),
        ("minimum.reduce", lambda x: np.minimum.reduce(x), lambda x: np.min(x, axis=0)),
        ("add.accumulate", lambda x: np.add.accumulate(x, axis=1), lambda x: np.cumsum(x, axis=1)),
        ("multiply.outer", lambda x: np.multiply.outer(x, x[0]), lambda x: x[:, :, None] * x[0]),
        (
            "subtract.outer",
            lambda x: np.subtract.outer([1.0, 2.0], x),
            lambda x: np.array([1.0, 2.0])[:, None, None] - x,
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_methods_of_ufuncs_are_the_functions_they_stand_for(name, call, same_as):
    agree(call(tg.tensor(M)), call(M))
    value, pull = tg.vjp(call, M)
    expected, pull_expected = tg.vjp(same_as, M)
    agree(value, call(M))
    u = rng.standard_normal(np.shape(expected))
    np.testing.assert_allclose(pull(u)[0], pull_expected(u)[0], rtol=1e-13)


def right_or_refused(word, call):
    """NumPy's value with its derivative, or an error that names what cannot be; rules may grow, silence may not."""
    try:
        result = call(leaf(M))
    except TypeError as error:
        assert word in str(error), error
        return
    agree(result, call(M))
    assert result.requires_grad
    v = rng.standard_normal((3, 3))
    gradient = tg.grad(lambda x: np.sum(call(x)))(M)
    difference = (np.sum(call(M + 1e-5 * v)) - np.sum(call(M - 1e-5 * v))) / 2e-5
    assert abs(np.sum(gradient * v) - difference) < 1e-6 * (1 + abs(difference)), word


@pytest.mark.parametrize(
    ("word", "call"),
    [
        ("where", lambda x: np.add(x, x, where=M > 0)),
        ("dtype", lambda x: np.add(x, 1, dtype=np.float64)),
        ("casting", lambda x: np.add(x, 1, casting="unsafe")),
        ("initial", lambda x: np.maximum.reduce(x, initial=0.9)),
        ("where", lambda x: np.add.reduce(x, where=M > 1)),
        ("logaddexp.reduce", lambda x: np.logaddexp.reduce(x)),
        ("subtract.accumulate", lambda x: np.subtract.accumulate(x)),
        ("reduceat", lambda x: np.add.reduceat(x, [0, 2])),
        ("power.outer", lambda x: np.power.outer(x, x)),
        ("where", lambda x: np.sum(x, where=M > 1)),
        ("dtype", lambda x: np.sum(x, dtype=np.float64)),
        ("initial", lambda x: np.max(x, initial=1.1)),
        ("where", lambda x: np.mean(x, where=M > 0.8)),
        ("mode", lambda x: np.take(x, [5], axis=0, mode="wrap")),
        ("deg", lambda x: np.angle(x * (1 + 1j), deg=True)),
        ("prepend", lambda x: np.diff(x, prepend=0.0)),
        ("dtype", lambda x: np.concatenate([x, x], dtype=np.float64)),
        ("correction", lambda x: np.var(x, correction=1)),
    ],
)
def test_a_setting_is_obeyed_or_refused_by_name(word, call):
    right_or_refused(word, call)


def test_an_unbuffered_store_adds_up_or_is_refused():
    w = leaf([1.0, 2.0, 3.0])
    target = tg.zeros(3)
    np.add.at(target, [0, 1, 1], w)
    agree(target, np.array([1.0, 5.0, 0.0]))
    (target * np.array([1.0, 10.0, 100.0])).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), [1.0, 10.0, 10.0])
    with pytest.raises(TypeError, match="tracked"):
        np.add.at(np.zeros(3), [0, 1, 1], w)
    product = tg.full(3, 2.0)
    np.multiply.at(product, [0, 1, 1], w)
    agree(product, np.array([2.0, 12.0, 2.0]))
    matrix = tg.zeros(2, 3)
    np.add.at(matrix[0], [0, 1, 1], w)  # a view: the matrix is written to
    w.grad = None
    (matrix * np.array([[1.0, 10.0, 100.0]])).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), [1.0, 10.0, 10.0])


def test_settings_that_say_what_numpy_does_anyway_are_accepted():
    w = leaf(M)
    np.testing.assert_array_equal(
        plain(
            np.sin(w, out=None, where=True, casting="same_kind", order="K", dtype=None, subok=True)
        ),
        np.sin(M),
    )
    calls = [
        lambda x: np.sum(
            x,
            axis=None,
            dtype=None,
            out=None,
            keepdims=np._NoValue,
            initial=np._NoValue,
            where=np._NoValue,
        ),
        lambda x: np.sum(x, 0, None, None, True),
        lambda x: np.mean(x, 1, None, None),
        lambda x: np.max(x, axis=0, out=None, keepdims=True),
        lambda x: np.prod(x, 0, None, None),
        lambda x: np.cumsum(x, 0, None, None),
        lambda x: np.var(x, 0, None, None, 1, True),
        lambda x: np.std(x, axis=0, dtype=None, out=None, ddof=1, keepdims=True),
        lambda x: np.clip(x, 0.7, 1.2, out=None),
        lambda x: np.clip(x, min=0.7, max=None),
        lambda x: np.dot(x, x, out=None),
        lambda x: np.outer(x, x, out=None),
        lambda x: np.take(x, [0, 1], 0, None, "raise"),
        lambda x: np.trace(x, 0, 0, 1, None, None),
        lambda x: np.concatenate([x, x], 1, None, dtype=None, casting="same_kind"),
        lambda x: np.stack([x, x], axis=1, out=None, dtype=None, casting="same_kind"),
        lambda x: np.vstack([x, x], dtype=None),
        lambda x: np.reshape(x, (9,), "C"),
        lambda x: np.reshape(x, shape=(9,), order="F", copy=None),
        lambda x: np.broadcast_to(x, (2, 3, 3), subok=False),
        lambda x: np.copy(x, order="K", subok=False),
        lambda x: np.angle(x, deg=False),
        lambda x: np.swapaxes(x, axis1=0, axis2=1),
        lambda x: np.diff(x, n=1, axis=0, prepend=np._NoValue),
        lambda x: np.add.reduce(x, axis=0, dtype=None, out=None, keepdims=False),
    ]
    for call in calls:
        result = call(w)
        assert result.requires_grad, inspect.getsource(call)
        agree(result, call(M))
        agree(call(tg.tensor(M)), call(M))


@pytest.mark.parametrize(
    "call",
    [
        lambda x, out: np.sin(x, out=out),
        lambda x, out: np.add(x, 1, out),
        lambda x, out: np.add(x, 1, out=(out,)),
        lambda x, out: np.sum(x, axis=1, out=out[0]),
        lambda x, out: np.sum(x, 0, None, out[0]),
        lambda x, out: np.clip(x, 0, 1, out=out),
        lambda x, out: np.dot(x, x, out=out),
        lambda x, out: np.concatenate([x[:1], x[1:]], out=out),
        lambda x, out: np.add.reduce(x, out=out[0]),
        lambda x, out: operator.iadd(out, x),
        lambda x, out: operator.imul(out, x),
        lambda x, out: operator.imatmul(out, x),
        lambda x, out: np.copyto(out, x),
        lambda x, out: np.put(out, [0], x[0, 0]),
        lambda x, out: np.maximum(out, x, out=out),
    ],
)
def test_a_tracked_result_is_not_written_into_a_plain_array(call):
    out = np.zeros((3, 3))
    with pytest.raises(TypeError, match="(?s)tracked"):
        call(leaf(M), out)
    np.testing.assert_array_equal(out, np.zeros((3, 3)))
    expected = np.zeros((3, 3))
    call(M, expected)
    call(tg.tensor(M), out)
    np.testing.assert_array_equal(out, expected)


# ------------------------------------------------------------------------------------------------ other functions


def samples():
    for of, function in FUNCTIONS.items():
        op = getattr(function, "primitive", None)
        if op is not None and getattr(np, getattr(of, "__name__", ""), None) is of:
            for i, sample in enumerate(op.samples):
                yield pytest.param(of, op, sample, id=f"{of.__name__}-{i}")


@pytest.mark.parametrize(("of", "op", "sample"), list(samples()))
def test_a_declared_function_is_recorded(of, op, sample):
    domains = (op.domains * len(sample.operands))[: len(sample.operands)]
    arrays = [
        d.sample(rng, s) if type(s) is tuple else np.asarray(s)
        for d, s in zip(sample.domains or domains, sample.operands, strict=True)
    ]
    tensors = [leaf(a) if a.dtype.kind in "fc" else a for a in arrays]
    pack = (lambda xs: (xs,)) if op.variadic and not op.elementwise else tuple
    settings = dict(sample.settings)
    expected = of(*pack(arrays), **settings)
    result = of(*pack(tensors), **settings)
    agree(result, expected)
    assert any(t.requires_grad for t in tensors_in(result))
    agree(of(*pack([tg.tensor(a) for a in arrays]), **settings), expected)


# Calls as users write them, of functions that are made of others as well.
CALLS = {
    "where": lambda x: np.where(x > 1, x, 0.0),
    "where of lists": lambda x: np.where([True, False, True], x, [[1.0], [2.0], [3.0]]),
    "clip": lambda x: np.clip(x, 0.7, 1.2),
    "dot": lambda x: np.dot(x, x),
    "dot of vectors": lambda x: np.dot(x[0], x[1]),
    "dot with a list": lambda x: np.dot([1.0, 2.0, 3.0], x),
    "vdot": lambda x: np.vdot(x, x),
    "inner": lambda x: np.inner(x, x),
    "outer": lambda x: np.outer(x[0], x[1]),
    "tensordot": lambda x: np.tensordot(x, x, axes=([1], [0])),
    "matmul": lambda x: np.matmul(np.ones((2, 3)), x),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "ravel": lambda x: np.ravel(x),
    "transpose": lambda x: np.transpose(x, (1, 0)),
    "moveaxis": lambda x: np.moveaxis(x, 0, -1),
    "expand_dims": lambda x: np.expand_dims(x, (0, 2)),
    "squeeze": lambda x: np.squeeze(x[:1]),
    "hstack": lambda x: np.hstack([x, x[:, 0][:, None]]),
    "vstack": lambda x: np.vstack((x, np.ones(3))),
    "column_stack": lambda x: np.column_stack([x[0], x]),
    "split": lambda x: np.split(x, 3, axis=1),
    "array_split": lambda x: np.array_split(x, 2),
    "diff": lambda x: np.diff(x, axis=0),
    "trace": lambda x: np.trace(x),
    "diagonal": lambda x: np.diagonal(x, 1),
    "take": lambda x: np.take(x, np.array([0, 4])),
    "var": lambda x: np.var(x, axis=0, ddof=1),
    "std": lambda x: np.std(x),
    "mean": lambda x: np.mean(x, axis=(0, 1)),
    "max": lambda x: np.max(x, 0),
    "amax": lambda x: np.amax(x, axis=1),
    "cumsum": lambda x: np.cumsum(x),
    "linspace": lambda x: np.linspace(x[0], x[1], 4),
    "full_like": lambda x: np.full_like(x, 3.0) * x,
    "bincount": lambda x: np.bincount(np.array([0, 2, 2]), weights=x[0]),
    "copy": lambda x: np.copy(x),
    "real": lambda x: np.real(x * 1j + x),
    "sign": lambda x: np.sign(x) * x,
    "linalg.norm": lambda x: np.linalg.norm(x),
    "linalg.solve": lambda x: np.linalg.solve(x + 3 * np.eye(3), np.ones(3)),
    "linalg.inv": lambda x: np.linalg.inv(x + 3 * np.eye(3)),
    "linalg.slogdet": lambda x: np.linalg.slogdet(x + 3 * np.eye(3))[1],
    "sort": lambda x: np.sort(x, axis=1),
    "roll": lambda x: np.roll(x, 1),
    "tile": lambda x: np.tile(x, 2),
    "pad": lambda x: np.pad(x, 1),
    "median": lambda x: np.median(x),
    "interp": lambda x: np.interp(x, [0.0, 1.0, 2.0], [0.0, 5.0, 1.0]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_function_is_recorded_with_numpys_value_and_the_right_derivative(name):
    call = CALLS[name]
    expected = call(M)
    agree(call(tg.tensor(M)), expected)
    result = call(leaf(M))
    agree(result, expected)
    assert all(t.requires_grad for t in tensors_in(result))

    def total(x):
        return sum(
            np.sum(part * np.cos(np.arange(np.size(part)).reshape(np.shape(part))))
            for part in (call(x) if isinstance(expected, list) else [call(x)])
        )

    gradient = tg.grad(total)(M)
    v = rng.standard_normal((3, 3))
    step = 1e-5
    difference = (total(M + step * v) - total(M - step * v)) / (2 * step)
    assert abs(np.sum(gradient * v) - difference) < 1e-6 * (1 + abs(difference))


def test_named_results_keep_their_names():
    for t in (tg.eye(2), leaf(np.diag([1.0, 2.0]))):
        assert np.linalg.eigh(t).eigenvalues.shape == (2,)
        assert np.linalg.slogdet(t).logabsdet.shape == ()
    assert np.linalg.qr(tg.eye(2)).R.shape == (2, 2)


# Those of SciPy, which are declared when the first of them is met, have their tests in test_special.py.
REFUSED_OF_NUMPY = [
    f for f in REFUSED if any(getattr(m, f.__name__, None) is f for m in (np, np.linalg, np.fft))
]


@pytest.mark.parametrize("of", REFUSED_OF_NUMPY, ids=lambda f: f.__name__)
def test_a_refused_function_says_why(of):
    with pytest.raises(tg.NotDifferentiable, match=of.__name__):
        of(leaf([1.0, 2.0])) if of is not np.histogram2d else of(leaf([1.0, 2.0]), np.ones(2))


def public_functions():
    """NumPy's functions that dispatch on their arguments and have neither a rule nor a constant result here."""
    for module in (np, np.linalg, np.fft):
        for name in sorted(dir(module)):
            f = getattr(module, name)
            if (
                not name.startswith("_")
                and isinstance(f, type(np.sum))
                and f not in FUNCTIONS
                and f not in CONSTANTS
            ):
                yield pytest.param(f, id=f"{module.__name__}.{name}")


@pytest.mark.parametrize("of", list(public_functions()))
def test_a_function_without_a_rule_is_refused_on_tracked_tensors_only(of):
    """Whatever its signature: tried with one, two and three tensors, it never returns a value cut off from its gradient."""
    tried = 0
    for arguments in (
        [M],
        [M, M],
        [M[0], M[0]],
        [M[0], M[0], M[0]],
        [[0, 1], M],
        [M, 1],
        [M, 1, 1],
        [M, (1, 2)],
    ):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = of(*arguments)
        except Exception:
            continue
        tracked = [leaf(a) if isinstance(a, np.ndarray) else a for a in arguments]
        try:
            result = of(*tracked)
        except TypeError as error:
            assert isinstance(error, tg.TapegradError), error
            assert "detach" in str(error) or "tg." in str(error)
        else:
            assert (
                all(t.requires_grad for t in tensors_in(result))
                or result is None
                or not tensors_in(result)
            ), of
            if not tensors_in(
                result
            ):  # composed of functions that know tensors, or about shapes only
                assert (
                    isinstance(
                        result, tuple | list | bool | int | np.integer | str | np.dtype | type(None)
                    )
                    or np.asarray(result).dtype.kind in "iub"
                ), (of, result)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = of(*(tg.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments))
        if isinstance(expected, np.ndarray) and expected.dtype.kind in "fciub":
            agree(value, expected)
        tried += 1
    if not tried:
        pytest.skip("not callable with arrays alone")


CONSTANT_CALLS = {
    "argmax": lambda x: np.argmax(x, axis=1),
    "argsort": lambda x: np.argsort(x),
    "nonzero": lambda x: np.nonzero(x > 1),
    "where with one argument": lambda x: np.where(x > 1),
    "isnan": lambda x: np.isnan(x),
    "isfinite": lambda x: np.isfinite(x),
    "allclose": lambda x: np.allclose(x, x),
    "array_equal": lambda x: np.array_equal(x, x),
    "isclose": lambda x: np.isclose(x, 1.0),
    "shape": lambda x: np.shape(x),
    "ndim": lambda x: np.ndim(x),
    "size": lambda x: np.size(x),
    "result_type": lambda x: np.result_type(x, np.float32),
    "iscomplexobj": lambda x: np.iscomplexobj(x),
    "zeros_like": lambda x: np.zeros_like(x),
    "ones_like": lambda x: np.ones_like(x),
    "searchsorted": lambda x: np.searchsorted([0.0, 1.0, 2.0], x),
    "digitize": lambda x: np.digitize(x, [0.0, 1.0, 2.0]),
    "greater": lambda x: np.greater(x, 1),
    "logical_and": lambda x: np.logical_and(x > 0.7, x < 1),
    "all": lambda x: np.all(x > 0),
    "any": lambda x: np.any(x, axis=0),
    "count_nonzero": lambda x: np.count_nonzero(x),
    "signbit": lambda x: np.signbit(x),
    "array2string": lambda x: np.array2string(x),
    "matrix_rank": lambda x: np.linalg.matrix_rank(x),
    "isin": lambda x: np.isin(x, [1.0]),
    "unravel_index": lambda x: np.unravel_index(np.argmax(x), x.shape),
    "bincount": lambda x: np.bincount(np.argmax(x, axis=1)),
    "method argmax": lambda x: x.argmax(),
    "method any": lambda x: (x > 1).any(),
}


@pytest.mark.parametrize("name", CONSTANT_CALLS)
def test_results_that_carry_no_derivative_are_plain(name):
    call = CONSTANT_CALLS[name]
    before = len(tg.current_tape())
    result = call(leaf(M))
    expected = call(M)
    assert not any(t.requires_grad for t in tensors_in(result)) and len(tg.current_tape()) == before
    if isinstance(expected, str | np.dtype):
        assert result == expected
    else:
        agree(result, expected)


def test_files_are_written_from_tracked_tensors():
    file = io.BytesIO()
    np.save(file, leaf(M))
    file.seek(0)
    np.testing.assert_array_equal(np.load(file), M)


def test_a_weighted_count_is_not_taken_for_a_constant():
    """bincount of positions is a count, but weighted it is a sum; a histogram's edges move with its values."""
    w = leaf([1.0, 2.0, 3.0])
    np.bincount([0, 1, 1], weights=w)[1].backward()
    np.testing.assert_array_equal(w.grad.numpy(), [0.0, 1.0, 1.0])
    for call in (lambda: np.histogram_bin_edges(w), lambda: np.histogram2d(w, np.ones(3))):
        with pytest.raises(tg.NotDifferentiable, match="edges"):
            call()


@pytest.mark.parametrize("places", [[], np.arange(0)], ids=["list", "array"])
def test_bincount_of_nothing_is_a_count(places):
    """Where no weight counts, the result has the type of counts, as in NumPy: in every transform and compiled too."""

    def f(w):
        return np.bincount(places, weights=w, minlength=3)

    w = np.ones(0)
    compiled = tg.compile(f)
    for got in (
        f(tg.tensor(w, requires_grad=True)),
        compiled(w),
        compiled(w),
        tg.jvp(f, (w,), (w,), allow_unused=True)[0],
    ):
        assert got.dtype == f(w).dtype == np.intp
        assert np.array_equal(np.asarray(got), f(w))


# ------------------------------------------------------------------------------------------------ leaving the tape

LEAVING = {
    "np.asarray": lambda t: np.asarray(t),
    "np.array": lambda t: np.array(t),
    "np.array of a list": lambda t: np.array([t, t]),
    "np.array of a nested list": lambda t: np.array([[t[0], t[1]], [t[2], 1.0]]),
    "np.asarray with dtype": lambda t: np.asarray(t, dtype=np.float32),
    "np.float64": lambda t: np.float64(t[0]),
    "float": lambda t: float(t[0]),
    "complex": lambda t: complex(t[0]),
    "math.sin": lambda t: math.sin(t[0]),
    "math.floor": lambda t: math.floor(t[0]),
    "cmath.exp": lambda t: cmath.exp(t[0]),
    "store an element": lambda t: operator.setitem(np.zeros(3), 0, t[0]),
    "store a slice": lambda t: operator.setitem(np.zeros(3), slice(None), t),
    "store by mask": lambda t: operator.setitem(np.zeros(3), np.array([True] * 3), t),
    "array += t": lambda t: operator.iadd(np.zeros(3), t),
    "array -= element": lambda t: operator.isub(np.zeros(3), t[0]),
    "np.fromiter": lambda t: np.fromiter(t, float),
    "np.sum of a list": lambda t: np.sum([t[0], t[1]]),
    "np.vectorize": lambda t: np.vectorize(lambda x: x * x)(t),
    "np.frompyfunc": lambda t: np.frompyfunc(lambda x: x * x, 1, 1)(t),
    "tg.tensor": lambda t: tg.tensor(t),
    "numpy()": lambda t: t.numpy(),
    "list of tensors as operand": lambda t: np.ones(2) * np.array([t[0], t[1]]),
    "np.full": lambda t: np.full(3, t[0]),
    "np.copyto": lambda t: np.copyto(np.zeros(3), t),
    "struct": lambda t: memoryview(t),
}


def message_of(error):
    """The message, with those of the errors that NumPy wrapped."""
    parts = []
    while error is not None:
        parts.append(str(error))
        error = error.__cause__ or error.__context__
    return " ".join(parts)


@pytest.mark.parametrize("way", LEAVING)
def test_a_tracked_value_does_not_leave_without_a_word(way):
    t = leaf([0.5, 1.0, 1.5])
    with pytest.raises((TypeError, ValueError)) as caught:
        LEAVING[way](t)
    if way != "struct":
        message = message_of(caught.value)
        assert "detach" in message or "tg.zeros" in message, message
    assert t.grad is None


@pytest.mark.parametrize("way", [w for w in LEAVING if w not in ("struct",)])
@pytest.mark.parametrize("remedy", ["no_grad", "detach", "untracked"])
def test_a_value_leaves_when_no_gradient_is_wanted(way, remedy):
    t = leaf([0.5, 1.0, 1.5])
    if remedy == "no_grad":
        if way == "numpy()":
            pytest.skip("PyTorch's numpy() asks for detach() in every mode")
        with tg.no_grad():
            LEAVING[way](t)
    elif remedy == "detach":
        LEAVING[way](t.detach())
    else:
        LEAVING[way](tg.tensor([0.5, 1.0, 1.5]))


def test_what_left_has_the_values():
    t = leaf([0.5, 1.0, 1.5])
    with tg.no_grad():
        np.testing.assert_array_equal(np.array([t, t * 2]), [[0.5, 1.0, 1.5], [1.0, 2.0, 3.0]])
        array = np.zeros(3)
        array += t
        array[0] = t[2]
        np.testing.assert_array_equal(array, [1.5, 1.0, 1.5])
        assert np.asarray(t, dtype=np.float32).dtype == np.float32
        assert math.sin(t[0]) == math.sin(0.5) and isinstance(np.sin(t), tg.Tensor)
    np.testing.assert_array_equal(np.asarray(t.detach()), t.tolist())
    with pytest.raises(ValueError, match="copy"):
        np.asarray(t.detach(), dtype=np.float32, copy=False)
    assert np.array(t.detach(), copy=True) is not np.asarray(t.detach())


def test_an_array_of_objects_is_not_an_operand():
    w = leaf([1.0, 2.0])
    with pytest.raises(TypeError, match="stack"):
        np.array([w, None], dtype=object)
    for objects in (np.array([1.0, 2.0], dtype=object), np.array([1.0, None], dtype=object)):
        for call in (
            lambda o: w * o,
            lambda o: o + w,
            lambda o: w @ o,
            lambda o: np.add(w, o),
            lambda o: tg.stack([w, o]),
            lambda o: np.concatenate([w, o]),
            lambda o: np.where(w > 1, w, o),
            lambda o: np.dot(w, o),
        ):
            with pytest.raises(TypeError, match="objects|object"):
                call(objects)


def test_arrays_of_other_classes_are_plain_ones(tmp_path):
    """A memory map is an array; the tape keeps a copy of a small one. A matrix as data is one too."""
    mapped = np.memmap(tmp_path / "map", dtype=float, shape=(3,), mode="w+")
    mapped[:] = 2.0
    w = leaf([1.0, 2.0, 3.0])
    y = (w * mapped).sum() + (mapped * w).sum()
    mapped[:] = 7.0
    y.backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.full(3, 4.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        matrix = np.matrix([[1.0, 2.0]])
    for t in (tg.tensor(matrix), tg.as_tensor(matrix), tg.from_numpy(matrix)):
        agree(t * t, np.array([[1.0, 4.0]]))


def test_ufuncs_write_into_untracked_tensors_as_into_arrays():
    t = tg.tensor([1.0, 2.0])
    memory = t.numpy()
    result = np.add(t, 1.0, out=t)
    assert result is t
    np.multiply(np.ones(2), 3.0, out=t)
    np.testing.assert_array_equal(memory, [3.0, 3.0])
    array = np.zeros(2)
    assert np.add(t, 1.0, out=array) is array and array[0] == 4.0
    array += t
    assert array[0] == 7.0


def test_random_generators_and_python_builtins_work_on_untracked_tensors():
    t = tg.tensor([3.0, 1.0, 2.0])
    assert sum(t).item() == 6.0 and max(t).item() == 3.0 and sorted(t)[0].item() == 1.0
    w = leaf([3.0, 1.0, 2.0])
    assert sum(w).requires_grad and max(w).requires_grad
    assert np.random.default_rng(0).choice(t.detach().numpy()) in (1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    "use",
    [
        lambda m, t: m - t,
        lambda m, t: m * t[0],
        lambda m, t: m / t,
        lambda m, t: m.__iadd__(t),
        lambda m, t: m.__setitem__(0, t[0]),
        lambda m, t: np.ma.log(t),
        lambda m, t: np.ma.getdata(t),
        lambda m, t: np.ma.median(t),
        lambda m, t: np.ma.maximum(m, t),
        lambda m, t: np.ma.where(m > 1, t, 0.0),
        lambda m, t: np.ma.concatenate([m, t]),
        lambda m, t: t - m,
    ],
)
def test_masked_arrays_lose_no_gradient(use):
    """numpy.ma takes the plain data of what it meets; an untracked tensor is welcome there."""
    masked = np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])
    with pytest.raises(TypeError, match=r"np\.where\(mask, 0, t\)|MaskedArray"):
        use(masked, tg.tensor([4.0, 5.0, 6.0], requires_grad=True))
    with pytest.raises(TypeError):
        tg.grad(lambda t: np.sum(use(masked, t)))(np.ones(3))
    assert (masked - tg.tensor([1.0, 1.0, 1.0])).tolist() == [0.0, None, 2.0]


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
@pytest.mark.parametrize("settings", [{}, {"axis": 0}, {"axis": -1}, {"include_initial": True}])
def test_cumulative_results_of_a_number_have_one_axis(name, settings):
    f = getattr(np, name)
    x = tg.tensor(3.0, requires_grad=True)
    y = f(x, **settings)
    np.testing.assert_array_equal(y.detach(), f(np.float64(3.0), **settings))
    y.sum().backward()
    assert x.grad.item() == 1.0
    with pytest.raises(np.exceptions.AxisError):
        f(x, axis=1)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
@pytest.mark.parametrize("settings", [{}, {"axis": -1}, {"keepdims": True}, {"axis": None}, {"initial": 2.0}], ids=str)  # fmt: skip
@pytest.mark.parametrize(
    "ufunc", [np.add, np.multiply, np.maximum, np.logaddexp, np.logaddexp2, np.hypot]
)
def test_reductions_of_nothing(ufunc, settings, shape):
    """The identity in NumPy's shape and dtype, or NumPy's error."""

    def answer(x):
        try:
            return ufunc.reduce(x, **settings)
        except ValueError:
            return None

    expected, seen = answer(np.ones(shape)), []
    tg.grad(lambda x: seen.append(answer(x)) or np.sum(x))(np.ones(shape))
    (found,) = seen
    assert (found is None) == (expected is None)
    if expected is not None:
        found = np.asarray(found.detach() if isinstance(found, tg.Tensor) else found)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
