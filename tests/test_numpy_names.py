"""`import tapegrad as np`: array programs find NumPy's names and signatures there."""

import itertools

import numpy
import pytest

import tapegrad as np
import tapegrad.linalg

X = numpy.array([1.0, 2.0, 3.0])

MADE = {
    "zeros, dtype by position": (lambda np: np.zeros(3, float), "f8"),
    "zeros of a tuple": (lambda np: np.zeros((2, 3), int), "i8"),
    "ones": (lambda np: np.ones(3, "float32"), "f4"),
    "order": (lambda np: np.zeros((2, 3), float, "F"), "f8"),
    "by name": (lambda np: np.ones(shape=(2,), dtype=float), "f8"),
    "full": (lambda np: np.full(3, 2, float), "f8"),
    "eye": (lambda np: np.eye(3, 4, 1), "f8"),
    "identity": (lambda np: np.identity(3), "f8"),
    "tri": (lambda np: np.tri(3, k=-1), "f8"),
    "linspace": (lambda np: np.linspace(0, 1, 4, endpoint=False), "f8"),
    "zeros_like": (lambda np: np.zeros_like(numpy.ones(3), shape=(2,)), "f8"),
}


@pytest.mark.parametrize("make", [m for m, _ in MADE.values()], ids=MADE)
def test_makers(make):
    ours, theirs = make(np), make(numpy)
    assert isinstance(ours, np.Tensor) and ours.dtype == theirs.dtype
    numpy.testing.assert_array_equal(ours.numpy(), theirs)
    assert ours.strides == theirs.strides


def test_entries_of_any_value():
    for t in (
        np.empty(3, float),
        np.empty((3,), dtype=float),
        np.ndarray(3),
        np.ndarray((3,), float),
    ):
        assert t.shape == (3,) and t.dtype == numpy.float64 and isinstance(t, np.ndarray)
    assert isinstance(X, np.ndarray) and not isinstance(3.0, np.ndarray)
    assert not isinstance(np.tensor(X)[0], np.ndarray)


PROGRAMS = {
    "outer": lambda np, x: np.add.outer(x, x) * np.subtract.outer(x, x * 2),
    "reduce": lambda np, x: np.add.reduce(x) * np.minimum.reduce(x * x),
    "accumulate": lambda np, x: np.add.accumulate(x) * np.logaddexp.accumulate(x),
    "places": lambda np, x: np.multiply.outer(x, x)[np.ix_([0, 2], [1, 2])] * np.mgrid[0:2, 0:2][0],
    "joined": lambda np, x: np.r_[x, 1.0] * np.c_[x, x].shape[1],
    "indices": lambda np, x: np.outer(x, x)[np.triu_indices(3)] * np.finfo(float).eps ** 0,
    "asarray": lambda np, x: np.asarray(x) * np.float64(3.0) + np.pi,
}


@pytest.mark.parametrize("f", PROGRAMS.values(), ids=PROGRAMS)
def test_programs(f):
    expected = f(numpy, X)
    found = f(np, np.tensor(X, requires_grad=True))
    numpy.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-14)
    gradient = np.grad(lambda x: numpy.sum(f(np, x) ** 2))(X)
    for i, step in enumerate(1e-6 * numpy.eye(3)):
        difference = (
            numpy.sum(f(numpy, X + step) ** 2) - numpy.sum(f(numpy, X - step) ** 2)
        ) / 2e-6
        assert numpy.isclose(gradient[i], difference, rtol=1e-6)


def test_in_place():
    def f(x):
        y = np.ones(3)
        np.add.at(y, [0, 0, 2], x)
        np.multiply.at(y, [1], x[1])
        return (y * y).sum()

    numpy.testing.assert_allclose(np.grad(f)(X), [8.0, 12.0, 8.0])


def test_a_star_import_takes_no_name_of_pythons():
    space = {}
    exec("from tapegrad import *", space)
    assert not {"dtype", "testing", "generic", "number"} & space.keys()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "name", [n for n in dir(np) if isinstance(getattr(numpy, n, None), numpy.ufunc)]
)
def test_numbers_of_pythons_are_numpys(name):
    """A function of Python's numbers has NumPy's value and dtype, or NumPy's error: Python's own power of -2 and 0.5 is complex."""
    ufunc = getattr(numpy, name)
    numbers = (
        0,
        1,
        2,
        -1,
        3,
        0.0,
        -0.0,
        0.5,
        -2.0,
        float("inf"),
        float("nan"),
        True,
        1j,
        -1 + 0j,
        2**40,
    )
    for operands in itertools.product(numbers, repeat=ufunc.nin):
        try:
            theirs = ufunc(*operands)
        except (TypeError, ValueError) as error:
            with pytest.raises(type(error)):
                getattr(np, name)(*operands)
            continue
        ours = getattr(np, name)(*operands)
        numpy.testing.assert_array_equal(ours, theirs, err_msg=f"{name}{operands}")
        assert numpy.result_type(ours[0] if ufunc.nout > 1 else ours) == numpy.result_type(
            theirs[0] if ufunc.nout > 1 else theirs
        )
