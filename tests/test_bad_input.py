"""Bad calls of every public function: which error, what it says, and that nothing is half done afterwards.

A row is a call and what its message must contain: the phrase that tells a user what is wrong or what to do. Where
NumPy's own words are clear they are left alone.
"""

import gc
import types
import warnings

import numpy as np
import pytest
import scipy.sparse

import tapegrad as tg
from tapegrad.core import tape
from tapegrad.help import names


def leaf(data=(1.0, 2.0, 3.0), **kwargs):
    return tg.tensor(np.array(data), requires_grad=True, **kwargs)


class Bad:
    """Operands for the rows, made anew for each."""

    def __init__(self):
        self.w = leaf()
        self.y = self.w * self.w
        self.m = leaf(np.eye(2))
        self.c = tg.ones(3)
        self.i = tg.arange(3)


CONSTRUCTION = {
    "Tensor of data": (lambda b: tg.Tensor([1.0]), TypeError, r"Write tg.tensor\(data\)"),
    "Tensor of sizes": (lambda b: tg.Tensor(2, 3), TypeError, r"tg.zeros\(2, 3\)"),
    "None": (lambda b: tg.tensor(None), TypeError, "nothing in it is None or text"),
    "text": (lambda b: tg.tensor("a"), TypeError, "numbers and booleans"),
    "list of text": (lambda b: tg.tensor(["1", "2"]), TypeError, "numbers and booleans"),
    "dict": (lambda b: tg.tensor({"a": 1}), TypeError, "numbers and booleans"),
    "set": (lambda b: tg.tensor({1, 2}), TypeError, "numbers and booleans"),
    "generator": (lambda b: tg.tensor(i for i in range(3)), TypeError, "numbers and booleans"),
    "objects": (lambda b: tg.tensor(np.array([1, None])), TypeError, "numbers and booleans"),
    "dates": (lambda b: tg.tensor(np.datetime64("2020")), TypeError, "numbers and booleans"),
    "ragged": (lambda b: tg.tensor([[1.0], [1.0, 2.0]]), ValueError, "inhomogeneous"),
    "dtype unknown": (lambda b: tg.tensor([1.0], dtype="nope"), TypeError, "nope"),
    "dtype object": (lambda b: tg.tensor([1.0], dtype=object), TypeError, "numbers and booleans"),
    "ints to require grad": (
        lambda b: tg.tensor([1, 2], requires_grad=True),
        RuntimeError,
        "floating point and complex.*astype",
    ),
    "bools to require grad": (
        lambda b: tg.tensor(True, requires_grad=True),
        RuntimeError,
        "floating point and complex",
    ),
    "masked array": (
        lambda b: tg.tensor(np.ma.masked_array([1.0, 2.0], [0, 1])),
        TypeError,
        r"no mask.*filled\(0.0\)",
    ),
    "masked array shared": (
        lambda b: tg.from_numpy(np.ma.masked_array([1.0, 2.0], [0, 1])),
        TypeError,
        "np.where",
    ),
    "requires_grad as text": (
        lambda b: tg.tensor(1.0, requires_grad="no"),
        TypeError,
        "True or False",
    ),
    "requires_grad_ as text": (lambda b: b.c.requires_grad_("no"), TypeError, "True or False"),
    "zeros that require None": (
        lambda b: tg.zeros(2, requires_grad=None),
        TypeError,
        "True or False",
    ),
    "tracked": (lambda b: tg.tensor(b.y), TypeError, "detach"),
    "tracked in a list": (lambda b: tg.tensor([b.y[0], 1.0]), TypeError, "tg.stack"),
    "as_tensor None": (lambda b: tg.as_tensor(None), TypeError, "None or text"),
    "as_tensor text": (lambda b: tg.as_tensor(["a"]), TypeError, "None or text"),
    "from_numpy list": (lambda b: tg.from_numpy([1.0]), TypeError, "tg.as_tensor"),
    "from_numpy tensor": (lambda b: tg.from_numpy(b.w), TypeError, "tg.as_tensor"),
    "from_numpy objects": (
        lambda b: tg.from_numpy(np.array([None])),
        TypeError,
        "numbers and booleans",
    ),
    "zeros of text": (lambda b: tg.zeros("3"), TypeError, r"tg.zeros\(2, 3\)"),
    "zeros of a float": (lambda b: tg.zeros(2.0), TypeError, "made of integers"),
    "zeros of floats": (lambda b: tg.zeros(2.5, 3), TypeError, "made of integers"),
    "zeros of None": (lambda b: tg.zeros(None), TypeError, "made of integers"),
    "zeros of a float tensor": (lambda b: tg.zeros(b.c), TypeError, "made of integers"),
    "negative length": (lambda b: tg.ones(-1), ValueError, "negative dimensions"),
    "full without a value": (lambda b: tg.full((2,)), TypeError, "fill_value"),
    "full of text": (lambda b: tg.full((2,), "a"), TypeError, "numbers and booleans"),
    "full of a vector": (lambda b: tg.full((2,), b.w), ValueError, "broadcast"),
    "eye of a float": (lambda b: tg.eye(2.5), TypeError, "integer"),
    "arange of nothing": (lambda b: tg.arange(), TypeError, "stop"),
    "arange of tracked": (lambda b: tg.arange(b.w[0]), TypeError, "detach"),
    "linspace of a negative number": (lambda b: tg.linspace(0, 1, -1), ValueError, "non-negative"),
    "linspace of text": (lambda b: tg.linspace("a", 1), TypeError, ""),
    "zeros_like None": (lambda b: tg.zeros_like(None), TypeError, "numbers and booleans"),
    "ones_like ints to require grad": (
        lambda b: tg.ones_like(b.i, requires_grad=True),
        RuntimeError,
        "astype",
    ),
    "randn of text": (lambda b: tg.randn("a"), TypeError, "made of integers"),
    "randn with a bad seed": (lambda b: tg.randn(2, rng="x"), TypeError, "SeedSequence"),
    "randint without room": (lambda b: tg.randint(5, 2), ValueError, "low >= high"),
}

OPS = {
    "shapes that do not broadcast": (lambda b: b.w + tg.ones(2), ValueError, "broadcast"),
    "array that does not broadcast": (lambda b: np.ones(2) * b.w, ValueError, "broadcast"),
    "None as an operand": (lambda b: b.w + None, TypeError, "unsupported operand"),
    "text as an operand": (lambda b: b.w * "a", TypeError, ""),
    "None to a function": (lambda b: tg.add(b.w, None), TypeError, "tensor, an array or a number"),
    "text to a function": (lambda b: tg.sin("a"), TypeError, ""),
    "object array": (lambda b: b.w * np.array([1.0, 2.0, None]), TypeError, "objects"),
    "object array of numbers": (
        lambda b: b.w * np.array([1.0, 2.0, 3.0], dtype=object),
        TypeError,
        "objects",
    ),
    "matrix": (lambda b: b.m * matrix(), TypeError, r"np.asarray\(matrix\)"),
    "matrix on the left": (lambda b: matrix() * b.m, TypeError, r"np.asarray\(matrix\)"),
    "masked array": (
        lambda b: b.w * np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0]),
        TypeError,
        "filled",
    ),
    "grad by a masked array": (
        lambda b: tg.grad(np.sum)(np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0])),
        TypeError,
        "hidden entries would count",
    ),
    "masked array to a function": (
        lambda b: np.where(b.w > 1, b.w, np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0])),
        TypeError,
        "filled",
    ),
    "too many operands": (lambda b: tg.sin(b.w, b.w), TypeError, "positional argument"),
    "too few operands": (lambda b: tg.add(b.w), TypeError, "missing"),
    "an unknown keyword": (lambda b: np.sin(b.w, foo=1), TypeError, "foo"),
    "PyTorch's keyword": (lambda b: b.w.std(dim=0), TypeError, "write std.*ddof=1"),
    "matmul of lengths that differ": (lambda b: b.w @ tg.ones(2), ValueError, "mismatch"),
    "matmul by a number": (lambda b: b.w @ 2.0, ValueError, "dimensions"),
    "matmul of a number": (lambda b: 2.0 @ b.w, ValueError, "dimensions"),
    "dot of lengths that differ": (lambda b: tg.dot(b.w, tg.ones(2)), ValueError, ""),
    "tensordot": (lambda b: tg.tensordot(b.w, tg.ones(2), 1), ValueError, "lengths differ"),
    "axis out of range": (lambda b: b.w.sum(axis=3), IndexError, "axis 3 is out of bounds"),
    "axis as text": (
        lambda b: b.w.mean(axis="x"),
        TypeError,
        "axis='x', but that is a whole number",
    ),
    "axis as a float": (
        lambda b: b.w.sum(axis=0.0),
        TypeError,
        "axis=0.0, but that is a whole number",
    ),
    "axis twice": (lambda b: b.m.sum(axis=(0, 0)), ValueError, "duplicate"),
    "max of nothing": (lambda b: leaf([]).max(), ValueError, "no identity"),
    "reshape to another size": (lambda b: b.w.reshape(2, 2), ValueError, "cannot reshape"),
    "reshape by text": (lambda b: b.w.reshape("a"), TypeError, "a tuple of whole numbers"),
    "reshape in an order of memory": (
        lambda b: b.m.reshape(4, order="A"),
        ValueError,
        "order 'C' or 'F'",
    ),
    "flatten backwards": (lambda b: b.m.flatten(1, 0), ValueError, "the first one first"),
    "flatten out of range": (lambda b: b.m.flatten(5), ValueError, "existing axes"),
    "transpose": (lambda b: b.w.transpose(1, 0), ValueError, "axes"),
    "swapaxes": (lambda b: b.w.swapaxes(0, 1), IndexError, "out of bounds"),
    "squeeze": (lambda b: b.w.squeeze(0), ValueError, "not equal to one"),
    "expand": (lambda b: b.w.expand(2, 2), ValueError, "broadcast"),
    "expand_dims": (lambda b: tg.expand_dims(b.w, 5), IndexError, "out of bounds"),
    "stack of nothing": (lambda b: tg.stack([]), ValueError, "at least one"),
    "stack of shapes that differ": (
        lambda b: tg.stack([b.w, tg.ones(2)]),
        ValueError,
        "same shape",
    ),
    "stack of a number": (lambda b: tg.stack(3), TypeError, "iterable"),
    "concatenate of nothing": (lambda b: tg.concatenate([]), ValueError, "at least one"),
    "concatenate with None": (lambda b: tg.concatenate([b.w, None]), TypeError, "tg.concatenate"),
    "concatenate of ranks that differ": (
        lambda b: tg.concatenate([b.w, b.m]),
        ValueError,
        "dimensions",
    ),
    "split unevenly": (lambda b: tg.split(b.w, 2), ValueError, "array_split"),
    "split into nothing": (lambda b: tg.split(b.w, 0), ValueError, "larger than 0"),
    "unbind a number": (lambda b: tg.unbind(tg.tensor(1.0)), ValueError, "0-d"),
    "where of text": (lambda b: b.w.where("sum", b.w), TypeError, "numbers and booleans"),
    "einsum of a digit": (lambda b: tg.einsum("f4", b.m), ValueError, "one letter for each axis"),
    "einsum of other axes": (
        lambda b: tg.einsum("ijk", b.m),
        ValueError,
        "one letter for each of its axes",
    ),
    "idct of another type": (
        lambda b: tg.fft.idct(b.w, type=7),
        ValueError,
        "choose among 1, 2, 3, 4",
    ),
    "diagonal of a vector": (lambda b: b.w.diagonal(), ValueError, "between two axes"),
    "diagonal of an axis that is not there": (
        lambda b: tg.diagonal(b.m, 0, 5),
        IndexError,
        "axis1: axis 5",
    ),
    "eigvalsh of two matrices": (
        lambda b: tg.linalg.eigvalsh(b.m, np.eye(2)),
        ValueError,
        "a second matrix",
    ),
    "logm of a number": (lambda b: tg.linalg.logm(-1), ValueError, "square matrix"),
    "sqrtm of a number": (lambda b: tg.linalg.sqrtm(3), ValueError, "square matrix"),
    "lstsq of a number": (
        lambda b: tg.linalg.lstsq(b.m, -7),
        np.linalg.LinAlgError,
        "0-dimensional",
    ),
    "vecdot of nothing": (lambda b: tg.linalg.vecdot(None, b.w), TypeError, "given None as x1"),
    "exponential_ of rate 0": (lambda b: tg.zeros(2).exponential_(0), ValueError, "greater than 0"),
    "slogdet of a number": (lambda b: tg.linalg.slogdet(3), ValueError, "two-dimensional"),
    "masked_scatter_ of a number": (
        lambda b: b.c.masked_scatter_(True, 3),
        RuntimeError,
        "1 elements for 3 places",
    ),
    "a method without its argument": (
        lambda b: b.w.narrow(0, 1),
        TypeError,
        r"Tensor.narrow\(\) missing.*'length'",
    ),
    "a method in place without its argument": (
        lambda b: b.c.igamma_(),
        TypeError,
        r"Tensor.igamma_\(\) missing",
    ),
    "an edge of an array": (
        lambda b: tg.autograd.graph.get_gradient_edge(np.ones(2)),
        TypeError,
        "pass a tensor",
    ),
    "where of two": (lambda b: tg.where(b.w > 1, b.w), (TypeError, ValueError), ""),
    "astype unknown": (lambda b: b.w.astype("nope"), TypeError, "nope"),
    "astype object": (lambda b: b.w.astype(object), TypeError, "numbers and booleans"),
    "renorm of order 0": (lambda b: b.w.renorm(0, 0, 1.0), RuntimeError, "positive"),
    "splint of too few knots": (
        lambda b: tg.interpolate.splint(0, 1, ([], [], 3)),
        ValueError,
        "at least 8",
    ),
    "transform along an axis that is not there": (
        lambda b: tg.fft.ifft(b.w, dim=3),
        IndexError,
        "axis=3",
    ),
    "limits without two bounds": (
        lambda b: tg.stats.tmean(b.w, (0, 9), inclusive=""),
        ValueError,
        "not enough values",
    ),
    "whole numbers to a negative power": (
        lambda b: tg.power(0, -1),
        ValueError,
        "negative integer powers",
    ),
    "take out of range": (lambda b: tg.take(b.w, [7]), IndexError, "out of bounds"),
    "diff of negative order": (lambda b: tg.diff(b.w, n=-1), ValueError, "non-negative"),
    "cumsum": (lambda b: tg.cumsum(b.w, axis=2), IndexError, "out of bounds"),
    "ragged join": (lambda b: tg.array([b.w, [1.0]]), ValueError, "same shape"),
    "join with None": (lambda b: tg.array([b.w, None]), TypeError, ""),
    "logsumexp": (lambda b: tg.logsumexp(b.w, axis=4), IndexError, "out of bounds"),
}

OPS |= {
    f"special.{name} of a size by which it takes steps": (
        call,
        ValueError,
        "would not end for long",
    )
    for name, call in {
        "eval_legendre": lambda b: tg.special.eval_legendre(2**31, b.w),
        "assoc_laguerre": lambda b: tg.special.assoc_laguerre(b.w, 2**31),
        "eval_hermite": lambda b: tg.special.eval_hermite(np.array([1, 2**40]), b.w[:2]),
        "hyperu": lambda b: tg.special.hyperu(1e12, 0.5, b.w),
        "polygamma": lambda b: tg.special.polygamma(1, -1e9 * b.w - 0.5),
    }.items()
}

OPS["solve for a number"] = (
    lambda b: tg.linalg.solve(b.m, 1j), ValueError, "not enough dimensions"
)  # fmt: skip

INDEXING = {
    "text": (lambda b: b.w["a"], IndexError, "only integers, slices"),
    "float": (lambda b: b.w[1.0], IndexError, "only integers, slices"),
    "float array": (lambda b: b.w[np.array([0.5])], IndexError, "integer"),
    "float tensor": (lambda b: b.w[tg.tensor([0.0])], IndexError, r"astype\(tg.int64\)"),
    "out of range": (lambda b: b.w[5], IndexError, "out of bounds"),
    "array out of range": (lambda b: b.w[[0, 7]], IndexError, "out of bounds"),
    "too many": (lambda b: b.w[0, 0], IndexError, "too many indices"),
    "mask of another length": (
        lambda b: b.w[np.array([True, False])],
        IndexError,
        "boolean index did not match",
    ),
    "two ellipses": (lambda b: b.m[..., ...], IndexError, "ellipsis"),
    "store out of range": (lambda b: b.c.__setitem__(5, b.w[0]), IndexError, "out of bounds"),
    "store a shape that does not fit": (
        lambda b: tg.zeros(2).__setitem__(slice(None), b.w),
        ValueError,
        "broadcast",
    ),
    "store text": (lambda b: b.c.__setitem__(0, "a"), ValueError, "float"),
    "store into a leaf": (
        lambda b: b.w.__setitem__(0, 1.0),
        RuntimeError,
        "leaf Variable.*no_grad",
    ),
    "store tracked into ints": (
        lambda b: b.i.__setitem__(0, b.w[0]),
        RuntimeError,
        "make the buffer a float tensor",
    ),
    "store into read-only memory": (
        lambda b: tg.broadcast_to(b.c, (2, 3)).__setitem__(0, 1.0),
        ValueError,
        "read-only.*clone",
    ),
    "in place on a leaf": (lambda b: b.w.__iadd__(1.0), RuntimeError, "leaf Variable.*clone"),
    "in place to another shape": (
        lambda b: b.y.__iadd__(np.ones((2, 3))),
        RuntimeError,
        "out of place",
    ),
    "in place to another dtype": (lambda b: b.y.__imul__(1j), RuntimeError, "out of place"),
}

BACKWARD = {
    "backward of a constant": (
        lambda b: b.c.sum().backward(),
        RuntimeError,
        "does not require grad.*requires_grad=True",
    ),
    "backward of a vector": (
        lambda b: b.y.backward(),
        RuntimeError,
        "only for scalar outputs.*gradient=",
    ),
    "backward of a complex number": (
        lambda b: (b.y.sum() * 1j).backward(),
        RuntimeError,
        "real part",
    ),
    "gradient of another shape": (
        lambda b: b.y.backward(np.ones(2)),
        RuntimeError,
        "Mismatch in shape",
    ),
    "complex gradient of a real value": (
        lambda b: b.y.backward(1j * np.ones(3)),
        RuntimeError,
        "real part",
    ),
    "inputs empty": (lambda b: b.y.sum().backward(inputs=[]), RuntimeError, "cannot be empty"),
    "inputs of numbers": (lambda b: b.y.sum().backward(inputs=[3]), TypeError, "tg.tensor"),
    "inputs untracked": (
        lambda b: b.y.sum().backward(inputs=[b.c]),
        RuntimeError,
        "does not require grad",
    ),
    "grad of a number": (lambda b: tg.autograd.grad(3.0, b.w), TypeError, "tg.tensor"),
    "grad by a number": (lambda b: tg.autograd.grad(b.y.sum(), 3.0), TypeError, "tg.tensor"),
    "grad by nothing": (lambda b: tg.autograd.grad(b.y.sum(), []), RuntimeError, "cannot be empty"),
    "grad by what was not used": (
        lambda b: tg.autograd.grad(b.y.sum(), b.m),
        RuntimeError,
        "allow_unused=True",
    ),
    "grad with too many cotangents": (
        lambda b: tg.autograd.grad([b.y.sum()], b.w, [None, None]),
        RuntimeError,
        "one .or None. per tensor",
    ),
    "retain_grad of a constant": (lambda b: b.c.retain_grad(), RuntimeError, "requires_grad=False"),
    "requires_grad off on a result": (lambda b: b.y.requires_grad_(False), RuntimeError, "detach"),
    "grad set to a number": (lambda b: setattr(b.w, "grad", 1.0), TypeError, "Tensor or None"),
    "grad set to another shape": (
        lambda b: setattr(b.w, "grad", tg.ones(2)),
        RuntimeError,
        "must agree",
    ),
    "grad set to another dtype": (
        lambda b: setattr(b.w, "grad", tg.ones(3, dtype=np.float32)),
        RuntimeError,
        "astype",
    ),
    "data set to text": (lambda b: setattr(b.w, "data", "a"), RuntimeError, "astype"),
    "item of many": (lambda b: b.w.item(), RuntimeError, "cannot be converted to Scalar"),
    "float of many": (lambda b: float(tg.ones(2)), RuntimeError, "cannot be converted to Scalar"),
    "float of tracked": (lambda b: float(b.w[0]), TypeError, r"detach\(\)"),
    "numpy of tracked": (lambda b: b.w.numpy(), TypeError, "detach"),
    "truth of many": (lambda b: bool(b.w), RuntimeError, r"t.any\(\)"),
    "an attribute of its own": (lambda b: setattr(b.w, "foo", 1), AttributeError, "foo"),
    "a batch of no cotangents": (
        lambda b: tg.autograd.grad(b.y, b.w, [], is_grads_batched=True),
        RuntimeError,
        "the first axis of each",
    ),
    "a batch that is a number": (
        lambda b: tg.autograd.grad(b.y, b.w, [np.float64(1)], is_grads_batched=True),
        RuntimeError,
        "the first axis of each",
    ),
    "batches of two lengths": (
        lambda b: tg.autograd.grad(
            [b.y, b.y], b.w, [np.ones((2, 3)), np.ones((1, 3))], is_grads_batched=True
        ),
        RuntimeError,
        "all with the same first length",
    ),
}


def matrix():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return np.matrix([[1.0, 2.0], [3.0, 4.0]])


def returns_none(x):
    x * x


TRANSFORMS = {
    "None is no function": (lambda b: tg.grad(None)(1.0), TypeError, "pass a function"),
    "a tensor is no function": (lambda b: tg.jacobian(b.w)(1.0), TypeError, "pass a function"),
    "grad without return": (lambda b: tg.grad(returns_none)(1.0), TypeError, "end with a return"),
    "value_and_grad without return": (
        lambda b: tg.value_and_grad(returns_none)(1.0),
        TypeError,
        "end with a return",
    ),
    "jacobian without return": (
        lambda b: tg.jacobian(returns_none)(1.0),
        TypeError,
        "end with a return",
    ),
    "vjp without return": (lambda b: tg.vjp(returns_none, 1.0), TypeError, "end with a return"),
    "jvp without return": (
        lambda b: tg.jvp(returns_none, (1.0,), (1.0,)),
        TypeError,
        "end with a return",
    ),
    "hessian without return": (
        lambda b: tg.hessian(returns_none)(1.0),
        TypeError,
        "end with a return",
    ),
    "hvp without return": (
        lambda b: tg.hvp(returns_none)(1.0, 1.0),
        TypeError,
        "end with a return",
    ),
    "grad of a vector": (lambda b: tg.grad(lambda x: x)(np.ones(2)), TypeError, "jacobian.*np.sum"),
    "grad of a constant vector": (
        lambda b: tg.grad(lambda x: np.ones(2))(np.ones(2)),
        TypeError,
        "jacobian",
    ),
    "grad of a complex value": (lambda b: tg.grad(lambda x: x * 1j)(1.0), TypeError, "np.real"),
    "grad of text": (lambda b: tg.grad(lambda x: "a")(1.0), TypeError, "Return one number"),
    "grad of a list": (lambda b: tg.grad(lambda x: [x])(1.0), TypeError, "has_aux=True"),
    "grad of a pair": (lambda b: tg.grad(lambda x: (x, 1))(1.0), TypeError, "has_aux=True"),
    "grad of grad of a vector": (
        lambda b: tg.grad(tg.grad(lambda x: np.sum(x * x)))(np.ones(2)),
        TypeError,
        "jacobian",
    ),
    "jacobian of text": (
        lambda b: tg.jacobian(lambda x: "a")(1.0),
        TypeError,
        "tensors, arrays and numbers",
    ),
    "vjp of text": (lambda b: tg.vjp(lambda x: {"a": x, "b": "text"}, 1.0), TypeError, "aux"),
    "grad of a comparison": (lambda b: tg.grad(lambda x: x > 1)(2.0), TypeError, "bool.*no slope"),
    "grad of a check": (
        lambda b: tg.grad(lambda x: np.allclose(x, 1.0))(2.0),
        TypeError,
        "bool.*no slope",
    ),
    "grad of a position": (lambda b: tg.grad(np.argmax)(np.ones(2)), TypeError, "int64.*no slope"),
    "grad of a count": (
        lambda b: tg.value_and_grad(lambda x: np.sum(x > 0))(np.ones(2)),
        TypeError,
        "int64.*smooth",
    ),
    "no argument": (lambda b: tg.grad(lambda: 1.0)(), TypeError, "argnums"),
    "argument by keyword": (lambda b: tg.grad(lambda x: x)(x=1.0), TypeError, "by position"),
    "argnums out of range": (lambda b: tg.grad(lambda x: x, 1)(1.0), TypeError, "Set argnums"),
    "argnums too negative": (lambda b: tg.jacobian(lambda x: x, -2)(1.0), TypeError, "Set argnums"),
    "argnums text": (lambda b: tg.grad(lambda x: x, "x")(1.0), TypeError, "positions of arguments"),
    "argnums float": (
        lambda b: tg.grad(lambda x: x, 0.0)(1.0),
        TypeError,
        "positions of arguments",
    ),
    "argnums twice": (lambda b: tg.grad(lambda x: x, (0, -1))(1.0), ValueError, "name each once"),
    "argument text": (lambda b: tg.grad(lambda x: 1.0)("a"), TypeError, "only numbers and arrays"),
    "argument object": (
        lambda b: tg.grad(lambda x: 1.0)(object()),
        TypeError,
        "only numbers and arrays",
    ),
    "argument object array": (
        lambda b: tg.grad(lambda x: 1.0)(np.array([None])),
        TypeError,
        "only numbers and arrays",
    ),
    "text in a pytree": (lambda b: tg.grad(lambda x: x[0])((1.0, "a")), TypeError, "argnums"),
    "has_aux without a pair": (
        lambda b: tg.grad(lambda x: x, has_aux=True)(1.0),
        TypeError,
        "leave has_aux out",
    ),
    "has_aux with a triple": (
        lambda b: tg.grad(lambda x: (x, 1, 2), has_aux=True)(1.0),
        TypeError,
        "pair",
    ),
    "jacobian mode": (
        lambda b: tg.jacobian(lambda x: x, mode="fwd"),
        ValueError,
        "'auto', 'reverse' or 'forward'",
    ),
    "jacobian not holomorphic": (
        lambda b: tg.jacobian(np.abs)(1j),
        TypeError,
        "real and imaginary part",
    ),
    "hvp of another shape": (
        lambda b: tg.hvp(lambda x: np.sum(x * x))(np.ones(2), np.ones(3)),
        ValueError,
        "must agree",
    ),
    "hvp of text": (
        lambda b: tg.hvp(lambda x: np.sum(x * x))(np.ones(2), "a"),
        ValueError,
        "looks like its primal",
    ),
    "cotangent of another shape": (
        lambda b: tg.vjp(np.sin, np.ones(3))[1](np.ones(2)),
        ValueError,
        "must agree",
    ),
    "cotangent of another structure": (
        lambda b: tg.vjp(lambda x: (x, x), 1.0)[1](1.0),
        ValueError,
        "arranged as f returned",
    ),
    "cotangent of other keys": (
        lambda b: tg.vjp(lambda x: {"a": x}, 1.0)[1]({"b": 1.0}),
        ValueError,
        "arranged as f returned",
    ),
    "cotangent None": (
        lambda b: tg.vjp(lambda x: x, 1.0)[1](None),
        ValueError,
        "arranged as f returned",
    ),
    "cotangent text": (
        lambda b: tg.vjp(lambda x: x, 1.0)[1]("a"),
        ValueError,
        "given str.*arranged as f returned",
    ),
    "cotangent complex": (lambda b: tg.vjp(np.sin, 1.0)[1](1j), ValueError, "real part"),
    "jvp without tuples": (
        lambda b: tg.jvp(np.sin, 1.0, 1.0),
        TypeError,
        r"jvp\(f, \(x,\), \(v,\)\)",
    ),
    "jvp with too few tangents": (
        lambda b: tg.jvp(np.sin, (1.0,), ()),
        ValueError,
        "one tangent per primal",
    ),
    "tangent of another shape": (
        lambda b: tg.jvp(np.sin, (np.ones(2),), (np.ones(3),)),
        ValueError,
        "must agree",
    ),
    "tangent of another structure": (
        lambda b: tg.jvp(lambda d: d["a"], ({"a": 1.0},), (1.0,)),
        ValueError,
        "looks like its primal",
    ),
    "tangent None": (
        lambda b: tg.jvp(np.sin, (1.0,), (None,)),
        ValueError,
        "looks like its primal",
    ),
    "tangent complex": (lambda b: tg.jvp(np.sin, (1.0,), (1j,)), ValueError, "real part"),
    "linearize without return": (
        lambda b: tg.linearize(returns_none, 1.0),
        TypeError,
        "end with a return",
    ),
    "linear map of too few tangents": (
        lambda b: tg.linearize(np.multiply, 1.0, 2.0)[1](1.0),
        ValueError,
        "given 1 tangents, but its function had 2 primals",
    ),
    "linear map of another structure": (
        lambda b: tg.linearize(lambda d: d["a"], {"a": 1.0})[1](1.0),
        ValueError,
        "looks like its primal",
    ),
    "linear map of another shape": (
        lambda b: tg.linearize(np.sin, np.ones(2))[1](np.ones(3)),
        ValueError,
        "must agree",
    ),
    "linear map of a complex tangent": (
        lambda b: tg.linearize(np.sin, 1.0)[1](1j),
        ValueError,
        "real part",
    ),
    "a function that leaves the tape": (
        lambda b: tg.grad(lambda x: np.float64(x) ** 2)(1.0),
        TypeError,
        "detach",
    ),
    "a function with math": (
        lambda b: tg.grad(lambda x: __import__("math").sin(x))(1.0),
        TypeError,
        "np.sin",
    ),
    "a function with a plain number": (
        lambda b: tg.grad(lambda x: np.float64(x) * 2)(1.0),
        TypeError,
        "tg.stack",
    ),
    "a function with np.zeros": (
        lambda b: tg.grad(lambda x: np.zeros(2).__setitem__(0, x))(1.0),
        TypeError,
        r"test_bad_input.py:\d+ stores a tensor.*tg.zeros",
    ),
    "jvp of a function with np.zeros": (
        lambda b: tg.jvp(lambda x: np.zeros(2).__setitem__(0, x), (1.0,), (1.0,)),
        TypeError,
        "tg.zeros",
    ),
    "a function that fails": (lambda b: tg.grad(lambda x: [][0])(1.0), IndexError, "list index"),
    "a missing rule": (
        lambda b: tg.grad(lambda x: np.sum(np.histogram_bin_edges(x)))(np.ones(2)),
        TypeError,
        "histogram",
    ),
}

SETTINGS = {
    "engine unknown": (lambda b: tg.set_engine("gpu"), ValueError, "'auto', 'sweep', 'replay'"),
    "engine None": (lambda b: tg.set_engine(None), ValueError, "'auto'"),
    "mode on a class": (lambda b: tg.no_grad()(int), TypeError, "Decorate the methods"),
    "set_grad_enabled by a word": (lambda b: tg.set_grad_enabled("no"), TypeError, "True or False"),
    "inference_mode by a word": (lambda b: tg.inference_mode("no"), TypeError, "True or False"),
    "set_detect_anomaly by a word": (
        lambda b: tg.autograd.set_detect_anomaly("no"),
        TypeError,
        "True or False",
    ),
    "set_grad_enabled without a mode": (lambda b: tg.set_grad_enabled(), TypeError, "mode"),
}


def nothing(*args):
    """Forgets to return."""


def overwrites(x):
    x[0] = 5.0
    return np.sum(x)


def square_sum(x):
    return np.sum(x * x)


def minus(t, y):
    return -y


def adds_up(carry, x):
    return carry + x, None


ONES, NAN = np.ones(3), np.array([1.0, np.nan, 1.0])


def descends(**settings):
    return lambda b: tg.minimize(square_sum, ONES, **settings)


def optimizer():
    return tg.optim.SGD([tg.Parameter(ONES)], lr=0.1)


# fmt: off
LOOPS = {
    "scan of a number": (lambda b: tg.scan(3, 0.0, ONES), TypeError, "scan was asked of int.*pass a function"),
    "scan without a pair": (lambda b: tg.scan(lambda c, x: c, 0.0, ONES), TypeError, "write `return carry, y`"),
    "scan without return": (lambda b: tg.scan(nothing, 0.0, ONES), TypeError, "returned NoneType"),
    "scan that grows": (lambda b: tg.scan(lambda c, x: (np.append(c, x), x), ONES, ONES), ValueError, "carry of shapes"),
    "scan over nothing": (lambda b: tg.scan(adds_up, 0.0), ValueError, "as `length`"),
    "scan over a number": (lambda b: tg.scan(adds_up, 0.0, 1.0), ValueError, "first axis"),
    "scan over two lengths": (lambda b: tg.scan(adds_up, 0.0, (ONES, ONES[:2])), ValueError, "of equal length"),
    "scan with half a step at once": (lambda b: tg.scan(adds_up, 0.0, ONES, unroll=0.5), ValueError, "number of steps from 1"),
    "map of a number": (lambda b: tg.map(3, ONES), TypeError, "map was asked of int.*pass a function"),
    "map over a number": (lambda b: tg.map(abs, 1.0), ValueError, "map was given .* first axis"),
    "map over two lengths": (lambda b: tg.map(adds_up, (ONES, ONES[:2])), ValueError, "Give xs of equal length.$"),
    "map to masked arrays": (lambda b: tg.map(lambda x: np.ma.masked_array([x, x], [0, 1]), ONES), TypeError, "masked array was given"),
    "vmap over a masked array": (lambda b: tg.vmap(abs)(np.ma.masked_array([ONES], [[0, 1, 0]])), TypeError, "hidden entries would count"),
    "map without return": (lambda b: tg.map(nothing, ONES), TypeError, "end with a return"),
    "vmap of a number": (lambda b: tg.vmap(3), TypeError, "vmap was asked of int.*pass a function"),
    "vmap of a number's entries": (lambda b: tg.vmap(abs)(1.0), ValueError, r"0 in in_axes, but an argument of shape \(\)"),
    "vmap along no axis": (lambda b: tg.vmap(abs, None)(ONES), ValueError, "no entries"),
    "vmap along another axis": (lambda b: tg.vmap(abs, 1)(ONES), ValueError, "has no such axis.*None for what all entries share"),
    "vmap along a word": (lambda b: tg.vmap(abs, ("x",))(ONES), ValueError, "'x' in in_axes"),
    "vmap over two lengths": (lambda b: tg.vmap(adds_up)(ONES, ONES[:2]), ValueError, r"axis 0 of \(3,\), axis 0 of \(2,\)"),
    "vmap with too few axes": (lambda b: tg.vmap(adds_up, (0,))(ONES, ONES), ValueError, "in_axes for 1 arguments, but called with 2"),
    "vmap with axes of another tree": (lambda b: tg.vmap(abs, ({"a": 0},))([ONES]), ValueError, "a pytree that begins like it"),
    "vmap to no axis": (lambda b: tg.vmap(abs, 0, None)(ONES), ValueError, "None in out_axes"),
    "vmap to another axis": (lambda b: tg.vmap(abs, 0, 1)(ONES), ValueError, r"stacked results of shape \(3,\)"),
    "vmap without return": (lambda b: tg.vmap(nothing)(ONES), TypeError, "end with a return"),
    "associative_scan of a number": (lambda b: tg.associative_scan(3, ONES), TypeError, "pass a function"),
    "associative_scan over a number": (lambda b: tg.associative_scan(np.add, 1.0), ValueError, "along that axis"),
    "associative_scan over a list of numbers": (lambda b: tg.associative_scan(np.add, [1.0, 2.0]), ValueError, "along that axis"),
    "associative_scan over nothing": (lambda b: tg.associative_scan(np.add, None), ValueError, "no arrays"),
    "associative_scan over another axis": (lambda b: tg.associative_scan(np.add, ONES, axis=1), ValueError, "axis=1"),
    "associative_scan over two lengths": (lambda b: tg.associative_scan(adds_up, (ONES, ONES[:2])), ValueError, "of equal length"),
    "associative_scan that shrinks": (lambda b: tg.associative_scan(lambda p, q: p[:0], ONES), ValueError, "looks like either argument"),
    "associative_scan without return": (lambda b: tg.associative_scan(nothing, ONES), ValueError, "looks like either argument"),
    "associative_scan that writes": (lambda b: tg.associative_scan(lambda p, q: p.sub_(q), b.c * 1), ValueError, "writes to what it is given"),
    "switch without branches": (lambda b: tg.switch(0, [], 1.0), ValueError, "no branches"),
    "switch of numbers": (lambda b: tg.switch(0, [1.0]), TypeError, "pass a function"),
    "switch by a half": (lambda b: tg.switch(0.5, [abs, abs], 1.0), TypeError, r"counts branches.*int\(\)"),
    "switch by an answer": (lambda b: tg.switch(True, [abs, abs], 1.0), TypeError, r"tg\.cond"),
    "switch by nothing": (lambda b: tg.switch(None, [abs, abs], 1.0), TypeError, "counts branches"),
    "switch by several": (lambda b: tg.switch(np.arange(3), [abs, abs], 1.0), ValueError, r"tg\.where"),
    "fori_loop with no step at once": (lambda b: tg.fori_loop(0, 2, abs, 1.0, unroll=0), ValueError, "number of steps from 1"),
    "fori_loop to a half": (lambda b: tg.fori_loop(0, 2.5, lambda i, c: c, 1.0), TypeError, "whole numbers"),
    "fori_loop to text": (lambda b: tg.fori_loop("a", 2, lambda i, c: c, 1.0), TypeError, "whole numbers"),
    "fori_loop to nan": (lambda b: tg.fori_loop(0, np.nan, lambda i, c: c, 1.0), TypeError, "whole numbers"),
    "odeint of numbers": (lambda b: tg.odeint(1.0, 1.0, [0.0, 1.0]), TypeError, "pass a function"),
    "quad of a number": (lambda b: tg.integrate.quad(1.0, 0, 1), TypeError, "quad was asked of float"),
    "quad_vec of a number": (lambda b: tg.integrate.quad_vec(1.0, 0, 1), TypeError, "quad_vec was asked of float"),
    "nquad of a number": (lambda b: tg.integrate.nquad(1.0, [(0, 1)]), TypeError, "nquad was asked of float"),
    "fixed_quad of a number": (lambda b: tg.integrate.fixed_quad(1.0, 0, 1), TypeError, "fixed_quad was asked of float"),
    "quad of a vector": (lambda b: tg.integrate.quad(lambda x: b.c * x, 0, 1), ValueError, "quad_vec"),
    "quad without return": (lambda b: tg.integrate.quad(lambda x: None, 0, 1), TypeError, "end with a return"),
    "solve_ivp of numbers": (lambda b: tg.integrate.solve_ivp(1.0, (0, 1), ONES), TypeError, "pass a function"),
    "solve_ivp over one time": (lambda b: tg.integrate.solve_ivp(minus, (1.0,), ONES), ValueError, "the first and the last"),
    "solve_ivp from text": (lambda b: tg.integrate.solve_ivp(minus, (0, 1), "a"), TypeError, "y0 without numbers"),
    "solve_ivp by another method": (lambda b: tg.integrate.solve_ivp(minus, (0, 1), ONES, "RK5"), ValueError, "one of RK23.*Tsit5"),
    "solve_ivp without return": (lambda b: tg.integrate.solve_ivp(lambda t, y: None, (0, 1), ONES), TypeError, "end with a return"),
    "solve_ivp to another shape": (lambda b: tg.integrate.solve_ivp(lambda t, y: ONES[:2], (0, 1), {"a": ONES}), ValueError, "structure"),
    "solve_ivp of one argument": (lambda b: tg.integrate.solve_ivp(minus, (0, 1), ONES, args=3.0), TypeError, "it is a tuple"),
    "solve_ivp, a mass matrix of another size": (lambda b: tg.integrate.solve_ivp(minus, (0, 1), ONES, "BDF", mass_matrix=np.eye(2)), ValueError, "a row for each equation"),
    "solve_ivp, a mass matrix by an explicit method": (lambda b: tg.integrate.solve_ivp(minus, (0, 1), ONES, mass_matrix=np.eye(3)), ValueError, "Radau and BDF alone"),
    "solve_ivp, compiled by a word": (lambda b: tg.integrate.solve_ivp(minus, (0, 1), ONES, compile="yes"), ValueError, "once it pays"),
    "solve_ivp, another adjoint": (lambda b: tg.integrate.solve_ivp(minus, (0, 1), ONES, adjoint="backsolve"), ValueError, "\"discrete\".* or \"continuous\""),
    "solve_ivp, an event of text": (lambda b: tg.integrate.solve_ivp(minus, (0, 1), ONES, events="a"), TypeError, "pass a function"),
    "cond of nothing": (lambda b: tg.cond(None, abs, abs, 1.0), TypeError, "forget its return"),
    "cond of text": (lambda b: tg.cond("yes", abs, abs, 1.0), TypeError, "a number or a boolean"),
    "cond of a function": (lambda b: tg.cond(lambda: False, abs, abs, 1.0), TypeError, "a number or a boolean"),
    "cond of a sequence": (lambda b: tg.cond((False,), abs, abs, 1.0), TypeError, "a number or a boolean"),
    "while_loop with a sequence of answers": (lambda b: tg.while_loop(lambda x: (False,), abs, 1.0), TypeError, "a number or a boolean"),
    "fori_loop without return": (lambda b: tg.fori_loop(0, 2, nothing, 1.0), TypeError, "end with a return"),
    "fori_loop of a number": (lambda b: tg.fori_loop(0, 2, 3, 1.0), TypeError, "pass a function"),
    "while_loop without an answer": (lambda b: tg.while_loop(nothing, abs, 1.0), TypeError, "test of while_loop returned None"),
    "while_loop with many answers": (lambda b: tg.while_loop(lambda c: c > 0, abs, ONES), ValueError, r"\.any\(\) or \.all\(\)"),
    "while_loop without return": (lambda b: tg.while_loop(lambda c: c < 3, nothing, 1.0), TypeError, "end with a return"),
    "cond of an array": (lambda b: tg.cond(ONES > 0, abs, abs, ONES), ValueError, "tg.where"),
    "cond of numbers": (lambda b: tg.cond(True, 1, 2), TypeError, "pass a function"),
}

COMPILED = {
    "compile of a number": (lambda b: tg.compile(3), TypeError, "pass a function"),
    "compile, static by name": (lambda b: tg.compile(square_sum, static_argnums="x"), TypeError, "position of an argument"),
    "compiled, an argument overwritten": (lambda b: tg.compile(overwrites)(ONES), TypeError, r"x = x.copy\(\)"),
    "compiled, grad of a vector": (lambda b: tg.compile(tg.grad(np.sin))(ONES), TypeError, "jacobian"),
    "compiled, random": (lambda b: tg.compile(lambda x: x * tg.randn(3))(ONES), TypeError, "pass them as arguments"),
    "compiled, array of objects": (lambda b: tg.compile(square_sum)(np.array([None])), TypeError, "dtype object"),
    "compiled, report of nothing": (lambda b: tg.compile(square_sum).report(), ValueError, "call the function once"),
    "njit of a number": (lambda b: tg.njit(3), TypeError, "no Python function"),
    "native, nothing to explain": (lambda b: tg.njit(nothing).explain(), TypeError, "Differentiate it once"),
    "vectorize of a number": (lambda b: tg.vectorize(3), TypeError, "pass a function"),
    "hvp of a number": (lambda b: tg.hvp(3), TypeError, "pass a function"),
    "elementwise_grad of a number": (lambda b: tg.elementwise_grad(3), TypeError, "pass a function"),
    "hessian_vector_product, no vector": (lambda b: tg.hessian_vector_product(square_sum)(ONES), TypeError, "last, a vector"),
    "hessian_vector_product of a number": (lambda b: tg.hessian_vector_product(3), TypeError, "pass a function"),
    "vector_jacobian_product, no cotangent": (lambda b: tg.vector_jacobian_product(np.sin)(ONES), TypeError, "last, a cotangent"),
    "vector_jacobian_product of a number": (lambda b: tg.vector_jacobian_product(3), TypeError, "pass a function"),
    "tensor_jacobian_product of another shape": (lambda b: tg.tensor_jacobian_product(np.sin)(np.ones((3, 2)), np.ones(2)), ValueError, r"shape \(3,\), or that of the whole value"),
    "hessian_tensor_product of a number": (lambda b: tg.hessian_tensor_product(3), TypeError, "pass a function"),
    "deriv of a number": (lambda b: tg.deriv(3), TypeError, "pass a function"),
    "deriv by an argument that is not there": (lambda b: tg.deriv(np.sin, 1)(1.0), TypeError, "by argument 1.*by position"),
    "grad_named by no argument": (lambda b: tg.grad_named(square_sum, "y"), ValueError, "arguments are x: name one"),
    "grad_and_aux of a number": (lambda b: tg.grad_and_aux(3), TypeError, "pass a function"),
    "grad_and_aux without a pair": (lambda b: tg.grad_and_aux(square_sum)(ONES), TypeError, "pair"),
    "make_hvp of a number": (lambda b: tg.make_hvp(3), TypeError, "pass a function"),
    "make_ggnvp of a number": (lambda b: tg.make_ggnvp(3), TypeError, "pass a function"),
    "multigrad_dict of a number": (lambda b: tg.multigrad_dict(3), TypeError, "pass a function"),
}

SOLVERS = {
    "minimize of a number": (lambda b: tg.minimize(3, ONES), TypeError, "pass a function"),
    "minimize without return": (lambda b: tg.minimize(nothing, ONES), TypeError, "end with a return"),
    "minimize a vector": (lambda b: tg.minimize(np.sin, ONES), ValueError, "sum them, or use least_squares"),
    "minimize from nan": (lambda b: tg.minimize(square_sum, NAN), ValueError, r"x0\[1\] is nan or inf"),
    "minimize from nothing": (lambda b: tg.minimize(square_sum, np.zeros(0)), ValueError, "nothing to solve for"),
    "minimize from text": (lambda b: tg.minimize(square_sum, "a"), TypeError, "only numbers"),
    "minimize from complex": (lambda b: tg.minimize(square_sum, 1j * ONES), TypeError, "real and imaginary parts"),
    "minimize where nan": (lambda b: tg.minimize(lambda x: np.sum(x) * np.nan, ONES), ValueError, "start where it is finite"),
    "minimize, x overwritten": (lambda b: tg.minimize(overwrites, ONES.copy()), RuntimeError, r"clone\(\)"),
    "minimize, method": (descends(method="foo"), ValueError, "choose among bfgs"),
    "minimize, bounds": (descends(bounds=(1,)), ValueError, r"a pair \(low, high\)"),
    "minimize outside": (descends(bounds=(2, 3)), ValueError, "start inside"),
    "minimize, constraints": (descends(constraints=3), TypeError, "NonlinearConstraint"),
    "minimize, options": (descends(options=3), TypeError, "it is a dict"),
    "minimize, a constraint of a number": (descends(constraints={"type": "eq", "fun": 3}), TypeError, "a function of the unknowns"),
    "minimize, a constraint without return": (descends(constraints={"type": "eq", "fun": nothing}), TypeError, "end with a return"),
    "minimize, compile": (descends(compile="maybe"), ValueError, "once it pays"),
    "minimize, callback": (descends(callback=3), TypeError, "pass a function"),
    "least_squares of nothing": (lambda b: tg.least_squares(lambda x: x[:0], ONES), ValueError, "nothing to fit"),
    "root of too few": (lambda b: tg.root(lambda x: x[:2], ONES), ValueError, "2 equations for 3 unknowns"),
    "root_scalar of a number": (lambda b: tg.root_scalar(3, bracket=(0, 1)), TypeError, "pass a function"),
    "root_scalar, one sign": (lambda b: tg.root_scalar(lambda x: x * x + 1, bracket=(0, 1)), ValueError, "different signs"),
    "root_scalar of a vector": (lambda b: tg.root_scalar(lambda x: ONES, bracket=(0, 1)), ValueError, "sum them"),
    "brentq of a number": (lambda b: tg.optimize.brentq(3, 0, 1), TypeError, "pass a function"),
    "brentq, one sign": (lambda b: tg.optimize.brentq(lambda x: x * x + 1, 0, 1), ValueError, "different signs"),
    "newton of a number": (lambda b: tg.optimize.newton(3, 1.0), TypeError, "pass a function"),
    "newton from nan": (lambda b: tg.optimize.newton(np.cos, np.nan), ValueError, "start from finite numbers"),
    "newton from complex": (lambda b: tg.optimize.newton(np.cos, 1j), TypeError, "real and imaginary parts"),
    "fsolve of a number": (lambda b: tg.optimize.fsolve(3, 1.0), TypeError, "pass a function"),
    "fsolve of too few": (lambda b: tg.optimize.fsolve(lambda x: x[:2], ONES), TypeError, "mismatch between the input and output shape"),
    "companion of one coefficient": (lambda b: tg.linalg.companion(leaf([1.0])), ValueError, "2 or more"),
    "nnls of another length": (lambda b: tg.optimize.nnls(b.m, leaf([1.0])), ValueError, "ncompatible dimensions"),
    "nnls of complex": (lambda b: tg.optimize.nnls(1j * np.eye(2), b.w), TypeError, "real and imaginary parts"),
    "lsq_linear, bounds": (lambda b: tg.optimize.lsq_linear(np.eye(2), leaf([1.0, 2.0]), (1.0, 0.0)), ValueError, "strictly less"),
    "minimize_scalar of a number": (lambda b: tg.minimize_scalar(3), TypeError, "pass a function"),
    "fixed_point of a number": (lambda b: tg.fixed_point(3, 1.0), TypeError, "pass a function"),
    "NativeFunction of a number": (lambda b: tg.native.NativeFunction(3), TypeError, r"write tg.njit\(f\)"),
    "matvec of vectors": (lambda b: tg.matvec(b.w, b.w), ValueError, "matrices by vectors"),
    "matvec of a number": (lambda b: tg.matvec(b.m, 3), ValueError, "np.matmul takes either"),
    "vecmat of vectors": (lambda b: tg.vecmat(b.w, b.w), ValueError, "vectors by matrices"),
    "insert into None": (lambda b: np.insert(None, 1, b.w), TypeError, "pass an array"),
    "piecewise without conditions": (lambda b: np.piecewise(b.w, [], [np.sin]), ValueError, "no conditions"),
    "fixed_point by no method": (lambda b: tg.fixed_point(np.cos, 0.5, method=b.w), ValueError, "'del2' and 'iteration'"),
    "linprog of a number": (lambda b: tg.optimize.linprog([1.0, 2.0], True, [1.0]), ValueError, "a row for each condition"),
    "fftshift along no axis": (lambda b: tg.fft.fftshift(b.w, axes=2), np.exceptions.AxisError, "axis 2"),
    "fftshift along truths": (lambda b: tg.fft.fftshift(b.w, axes=np.array([True])), TypeError, "integer"),
    "squareform of a function": (lambda b: tg.spatial.distance.squareform(np.sin), TypeError, "holds no numbers"),
    "squareform of objects": (lambda b: tg.spatial.distance.squareform(np.array([None] * 3)), TypeError, "distances are numbers"),
    "squareform forced by None": (lambda b: tg.spatial.distance.squareform(b.w, None), TypeError, "'tovector'"),
    "milp with a number as constraints": (lambda b: tg.optimize.milp([1.0, 2.0], constraints=3.0), ValueError, "a scipy.optimize.LinearConstraint"),
    "milp with one bound": (lambda b: tg.optimize.milp([1.0, 2.0], bounds=(0,)), ValueError, "a tuple \\(lb, ub\\)"),
    "milp of nothing": (lambda b: tg.optimize.milp([]), ValueError, "at least one element"),
    "linprog with one bound": (lambda b: tg.optimize.linprog([1.0, 2.0], bounds=(0,)), ValueError, "a list with a pair for each"),
    "linprog of nothing": (lambda b: tg.optimize.linprog([]), ValueError, "one number for each unknown"),
    "ttest_rel along no axis": (lambda b: tg.stats.ttest_rel((None, None), b.w, axis=7), np.exceptions.AxisError, "axis 7"),
    "lfilter of a number": (lambda b: tg.signal.lfilter(leaf(1.0), [1.0], 1.0), np.exceptions.AxisError, "axis -1"),
    "sosfilt along no axis": (lambda b: tg.signal.sosfilt(np.ones((1, 6)), b.w, axis=3), np.exceptions.AxisError, "axis 3"),
    "a spline of a number": (lambda b: tg.interpolate.make_interp_spline([], 0.5), np.exceptions.AxisError, "axis 0"),
    "interp1d along no axis": (lambda b: tg.interpolate.interp1d([1.0, 2.0], leaf([1.0, 2.0]), axis=3), np.exceptions.AxisError, "axis 3"),
    "spline_filter1d along no axis": (lambda b: tg.ndimage.spline_filter1d(b.w, axis=1), np.exceptions.AxisError, "axis 1"),
    "gaussian_filter along no axis": (lambda b: tg.ndimage.gaussian_filter(b.w, 1.0, axes=(1,)), np.exceptions.AxisError, "axis 1"),
    "fixed_point of another shape": (lambda b: tg.fixed_point(lambda x: x[:2], ONES), ValueError, "must agree"),
    "custom_root of a number": (lambda b: tg.custom_root(3, 1.0, np.sin), TypeError, "pass a function"),
    "custom_root, solve": (lambda b: tg.custom_root(np.sin, 1.0, 3), TypeError, "pass a function"),
    "custom_fixed_point of a number": (lambda b: tg.custom_fixed_point(3, 1.0, np.sin), TypeError, "pass a function"),
    "custom_linear_solve of a matrix": (lambda b: tg.custom_linear_solve(np.eye(2), np.ones(2), np.sin), TypeError, "pass a function"),
    "custom_linear_solve, another shape": (lambda b: tg.custom_linear_solve(np.sin, np.ones(2), lambda f, b: b[:1]), ValueError, "returned shape"),
    "custom_root, another tree": (lambda b: tg.custom_root(np.sin, 1.0, lambda f, x: [x, x]), ValueError, "another structure"),
    "profile of a number": (lambda b: tg.profile(3), TypeError, "with tg.profile"),
    "a log level of another name": (lambda b: tg.set_log_level("loud"), ValueError, "debug, info, warning, error"),
    "a log level of another kind": (lambda b: tg.set_log_level([]), TypeError, "a name or a number"),
    "curve_fit of a number": (lambda b: tg.curve_fit(3, ONES, ONES), TypeError, "pass a function"),
    "curve_fit, how many parameters": (lambda b: tg.curve_fit(lambda t, *p: t, ONES, ONES), ValueError, "give p0"),
    "SGD of nothing": (lambda b: tg.optim.SGD([], lr=0.1), ValueError, "empty parameter list"),
    "SGD of arrays": (lambda b: tg.optim.SGD([ONES], lr=0.1), TypeError, "use tg.Parameter"),
    "SGD of one tensor": (lambda b: tg.optim.SGD(tg.Parameter(ONES), lr=0.1), TypeError, r"write \[params\]"),
    "SGD, rate": (lambda b: tg.optim.SGD([tg.Parameter(ONES)], lr=-1), ValueError, "at least 0"),
    "LBFGS without a closure": (lambda b: tg.optim.LBFGS([tg.Parameter(ONES)]).step(), TypeError, "needs a closure"),
    "SGD, another's state": (lambda b: optimizer().load_state_dict({}), TypeError, r"state_dict\(\) returned"),
    "clip arrays": (lambda b: tg.optim.clip_grad_norm_([ONES], 1.0), TypeError, "pass tensors"),
    "clip to text": (lambda b: tg.optim.clip_grad_norm_([tg.Parameter(ONES)], "a"), TypeError, "it is a number"),
    "clip below 0": (lambda b: tg.optim.clip_grad_norm_([tg.Parameter(ONES)], -1), ValueError, "at least 0"),
    "schedule by text": (lambda b: tg.optim.lr_scheduler.ExponentialLR(optimizer(), "a"), TypeError, "gamma='a'"),
    "schedule by a number": (lambda b: tg.optim.lr_scheduler.LambdaLR(optimizer(), 0.5), TypeError, "a function of the epoch"),
    "schedule of a number": (lambda b: tg.optim.lr_scheduler.StepLR(3, 1), TypeError, "not an Optimizer"),
    "schedule of no step": (lambda b: tg.optim.lr_scheduler.StepLR(optimizer(), 0), ValueError, "at least 1"),
}

CHECKS = {
    "check of a number": (lambda b: tg.check_gradient(3, ONES), TypeError, "pass the function first"),
    "check without return": (lambda b: tg.check_gradient(nothing, ONES), TypeError, "end with a return"),
    "check without a point": (lambda b: tg.check_gradient(square_sum), TypeError, "was given no point"),
    "check, gradient by position": (lambda b: tg.check_gradient(square_sum, ONES, np.sin), TypeError, "write gradient=g"),
    "check, jac": (lambda b: tg.check_gradient(square_sum, ONES, jac=np.sin), TypeError, "write gradient=g"),
    "check, tol": (lambda b: tg.check_gradient(square_sum, ONES, tol=1e-3), TypeError, "write digits=6"),
    "check, a misspelt setting": (lambda b: tg.check_gradient(square_sum, ONES, metod="taylor"), TypeError, "keyword argument 'metod'$"),
    "check_adjoint of matrices": (lambda b: tg.check_adjoint(np.eye(3), np.eye(3), ONES), TypeError, "write lambda v: A @ v"),
    "check at nan": (lambda b: tg.check_gradient(square_sum, NAN), ValueError, "a point of finite numbers"),
    "check at nothing": (lambda b: tg.check_gradient(square_sum, np.zeros(0)), ValueError, "nothing to differentiate by"),
    "check, x overwritten": (lambda b: tg.check_gradient(overwrites, ONES.copy()), ValueError, r"x = x.copy\(\)"),
    "check, gradient without return": (lambda b: tg.check_gradient(square_sum, ONES, gradient=nothing), TypeError, "end with a return"),
    "check, gradient of another shape": (lambda b: tg.check_gradient(square_sum, ONES, gradient=ONES[:2]), ValueError, "shape of what it belongs to"),
    "check, digits": (lambda b: tg.check_gradient(square_sum, ONES, digits="a"), TypeError, "it is a number"),
    "check, directions": (lambda b: tg.check_gradient(square_sum, ONES, directions=1.5), ValueError, "at least one"),
    "check, hessian": (lambda b: tg.check_gradient(square_sum, ONES, method="taylor", hessian=3), TypeError, "returns the matrix"),
    "check, argnums": (lambda b: tg.check_gradient(square_sum, ONES, argnums=4), TypeError, "counted from 0"),
    "check of text": (lambda b: tg.check_gradient(lambda x: "a", ONES), TypeError, "only numbers"),
    "check where inf": (lambda b: tg.check_gradient(lambda x: np.sum(x) * np.inf, ONES), ValueError, "where the value is finite"),
    "check_adjoint without return": (lambda b: tg.check_adjoint(nothing, nothing, ONES), TypeError, "end with a return"),
    "check_adjoint, shape": (lambda b: tg.check_adjoint(lambda v: v, lambda w: w[:2], ONES), ValueError, "check x and y"),
    "check_adjoint without a point": (lambda b: tg.check_adjoint(np.sin, np.sin), TypeError, "needs x"),
    "check, method": (lambda b: tg.check_gradient(square_sum, ONES, method="foo"), ValueError, "choose among auto"),
    "check_adjoint of numbers": (lambda b: tg.check_adjoint(3, 4, ONES), TypeError, "two functions"),
    "check_adjoint of nothing": (lambda b: tg.check_adjoint(np.sin, np.sin, np.zeros(0)), ValueError, "no adjoint to check"),
    "check_op of a number": (lambda b: tg.check_op(3), TypeError, "no declared op"),
    "check_op, law": (lambda b: tg.check_op(np.sin, only=["foo"]), ValueError, "choose among value, derivative"),
    "make_dot of an array": (lambda b: tg.make_dot(ONES), RuntimeError, "nothing is recorded"),
}

OTHERS = {
    "clamp": (lambda b: tg.clamp(b.w, "a"), TypeError, ""),
    "cat of a number": (lambda b: tg.cat(3), TypeError, "iterable"),
    "div by None": (lambda b: tg.div(b.w, None), TypeError, "a tensor, an array or a number"),
    "mul by text": (lambda b: tg.mul(b.w, "a"), TypeError, ""),
    "neg of None": (lambda b: tg.neg(None), TypeError, "a tensor, an array or a number"),
    "sub of another shape": (lambda b: tg.sub(b.w, np.ones(2)), ValueError, "broadcast"),
    "mm of another shape": (lambda b: tg.mm(b.w, np.ones(2)), ValueError, "mismatch"),
    "scatter out of range": (lambda b: tg.scatter(b.w, [5, 1, 2], (3,)), IndexError, "out of bounds"),
    "rand of text": (lambda b: tg.rand("a"), TypeError, "made of integers"),
    "manual_seed of text": (lambda b: tg.manual_seed("a"), TypeError, "SeedSequence"),
    "no thread": (lambda b: tg.set_num_threads(0), ValueError, "from 1 on"),
    "threads by text": (lambda b: tg.set_num_threads("a"), TypeError, "integer"),
    "from_jax of a number": (lambda b: tg.from_jax(3), TypeError, "pass a function"),
    "from_torch of a number": (lambda b: tg.from_torch(3), TypeError, "pass a function"),
    "to_jax of a number": (lambda b: tg.to_jax(3), TypeError, "pass a function"),
    "to_torch of a number": (lambda b: tg.to_torch(3), TypeError, "pass a function"),
    "holomorphic_grad of a number": (lambda b: tg.holomorphic_grad(3)(1.0), TypeError, "pass a function"),
    "make_vjp of a number": (lambda b: tg.make_vjp(3)(1.0), TypeError, "pass a function"),
    "make_jvp of a number": (lambda b: tg.make_jvp(3)(1.0), TypeError, "pass a function"),
    "njit_vjp of a number": (lambda b: tg.njit_vjp(3, 4), TypeError, "no Python function"),
    "checkpoint of a number": (lambda b: tg.checkpoint(1.0), TypeError, "function"),
    "checkpointed without snapshots": (lambda b: tg.checkpointed(range(3)), TypeError, "snapshots"),
    "Adagrad, rate": (lambda b: tg.optim.Adagrad([tg.Parameter(ONES)], lr=-1), ValueError, "at least 0"),
    "Adam, betas": (lambda b: tg.optim.Adam([tg.Parameter(ONES)], betas=(2, 1)), ValueError, "below 1"),
    "AdamW, eps": (lambda b: tg.optim.AdamW([tg.Parameter(ONES)], eps=-1), ValueError, "at least 0"),
    "RMSprop, alpha": (lambda b: tg.optim.RMSprop([tg.Parameter(ONES)], alpha=-1), ValueError, "at least 0"),
    "Optimizer of a number": (lambda b: tg.optim.Optimizer(3, {}), TypeError, r"write \[tensor\]"),
    "clip values of arrays": (lambda b: tg.optim.clip_grad_value_([ONES], 1.0), TypeError, "pass tensors"),
    "clip values to text": (lambda b: tg.optim.clip_grad_value_([tg.Parameter(ONES)], "a"), TypeError, "it is a number"),
    "factor above one": (lambda b: tg.optim.lr_scheduler.ConstantLR(optimizer(), 2.0), ValueError, "at most 1"),
    "a line from zero": (lambda b: tg.optim.lr_scheduler.LinearLR(optimizer(), 0.0), ValueError, "above 0.0"),
    "power in words": (lambda b: tg.optim.lr_scheduler.PolynomialLR(optimizer(), 5, "a"), TypeError, "power='a'"),
    "factor by a number": (lambda b: tg.optim.lr_scheduler.MultiplicativeLR(optimizer(), 0.5), TypeError, "a function of the epoch"),
    "cycle in a mode": (lambda b: tg.optim.lr_scheduler.CyclicLR(optimizer(), 0.1, 0.2, mode="a"), ValueError, "mode is invalid"),
    "restarts after nothing": (lambda b: tg.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer(), 0), ValueError, "counts epochs"),
    "a sequence of nothing": (lambda b: tg.optim.lr_scheduler.SequentialLR(optimizer(), [], []), ValueError, "at least one"),
    "a chain of numbers": (lambda b: tg.optim.lr_scheduler.ChainedScheduler([3]), TypeError, "has no optimizer"),
    "cosine of no epoch": (lambda b: tg.optim.lr_scheduler.CosineAnnealingLR(optimizer(), 0), ValueError, "at least 1"),
    "one milestone": (lambda b: tg.optim.lr_scheduler.MultiStepLR(optimizer(), 3), TypeError, "list of epochs"),
    "one cycle of no length": (lambda b: tg.optim.lr_scheduler.OneCycleLR(optimizer(), 0.1), ValueError, "total_steps"),
    "plateau, mode": (lambda b: tg.optim.lr_scheduler.ReduceLROnPlateau(optimizer(), mode="a"), ValueError, "choose 'min' or 'max'"),
    "plateau of None": (lambda b: tg.optim.lr_scheduler.ReduceLROnPlateau(optimizer()).step(None), TypeError, "it is a number"),
    "a schedule without a rate": (lambda b: tg.optim.lr_scheduler.LRScheduler(optimizer()), NotImplementedError, "gives no rate"),
}
# fmt: on

# What NumPy and SciPy would say of these in words of their own code.
WORDS = {
    "fft of a word": (lambda b: tg.fft.fft(b.w, n="x"), TypeError, "fft was given n='x', but that is a whole number or None: write one"),
    "fftn of words": (lambda b: tg.fft.fftn(b.w, s=["x"], axes=[0]), TypeError, "s=.* a tuple of whole numbers"),
    "fftn along a fraction": (lambda b: tg.fft.fftn(b.w, axes=1.5), TypeError, "axes=1.5"),
    "fft of a list": (lambda b: np.fft.fft(b.w, n=[1]), TypeError, r"n=\[1\]"),
    "dct of a word": (lambda b: tg.fft.dct(b.w, type="x"), ValueError, "choose among 1, 2, 3, 4"),
    "polygamma of a word": (lambda b: tg.special.polygamma("x", b.w), TypeError, "n='x', but that is a whole number"),
    "cumsum along a word": (lambda b: np.cumsum(b.w, axis="x"), TypeError, "axis='x'"),
    "roll by nothing": (lambda b: np.roll(b.w, None), TypeError, ""),
    "backward of a word": (lambda b: b.y.backward("x"), TypeError, r"made of numbers: pass a tensor or an array of shape \(3,\)"),
    "backward of words": (lambda b: b.y.backward(["x"]), TypeError, "made of numbers"),
    "numbers as hooks": (lambda b: tg.autograd.graph.saved_tensors_hooks(3, 4), TypeError, "pass a function pack_hook"),
    "one number as a hook": (lambda b: tg.autograd.graph.saved_tensors_hooks(abs, 4), TypeError, "pass a function unpack_hook"),
    "convolve by a list": (lambda b: np.convolve(b.w, b.w, [1]), ValueError, "choose among"),
    "cov of one weight": (lambda b: np.cov(b.m, fweights=1), RuntimeError, "fweights has 0 axes.*pass 2 numbers"),
    "trim_zeros by number": (lambda b: np.trim_zeros(b.w, trim=1), TypeError, "write 'f'"),
    "make_dot of a list": (lambda b: tg.make_dot(b.y, [b.w]), TypeError, "pass a dict"),
    "triangular and a number": (lambda b: tg.linalg.solve_triangular(b.m, 2.0), ValueError, "not enough dimensions"),
    "factors and a number": (lambda b: tg.linalg.lu_solve((b.m, [0, 1]), 2.0), ValueError, "not enough dimensions"),
    "triangular of a list": (lambda b: tg.linalg.solve_triangular(b.m, b.m, trans=[1]), ValueError, "0 or 'N'"),
    "hankel of a number": (lambda b: tg.linalg.hankel(b.w, -1), ValueError, "takes vectors"),
    "companion of a number": (lambda b: tg.linalg.companion(3), ValueError, "takes vectors"),
    "circulant of a number": (lambda b: tg.linalg.circulant(3), ValueError, "takes vectors"),
    "solve_circulant by a number": (lambda b: tg.linalg.solve_circulant(b.w, 3.0), ValueError, "takes vectors"),
    "expm_frechet of a number": (lambda b: tg.linalg.expm_frechet(1.0, b.m), np.linalg.LinAlgError, "square"),
    "rfftn along no axis": (lambda b: tg.fft.rfftn(b.m, axes=tg.zeros(0)), TypeError, "a tuple of whole numbers"),
    "leslie by a number": (lambda b: tg.linalg.leslie(b.w, 0.5), ValueError, "one less than the length of f"),
    "Riccati's equation of a number": (lambda b: tg.linalg.solve_continuous_are(0.0, b.m, b.m, b.m), ValueError, "these are matrices"),
    "nnls by a number": (lambda b: tg.optimize.nnls(np.eye(2), 1.0), ValueError, "a matrix and a vector"),
    "detrend at a word": (lambda b: tg.signal.detrend(b.w, bp="x"), TypeError, "write whole numbers"),
    "bilinear of a matrix": (lambda b: tg.signal.bilinear(b.m, b.w), ValueError, "they are vectors"),
    "bilinear at no rate": (lambda b: tg.signal.bilinear(b.w, b.w, None), ValueError, "one number"),
    "bilinear_zpk of many zeros": (lambda b: tg.signal.bilinear_zpk(b.w, [-1.0], 1.0, 1.0), ValueError, "at least as many poles"),
    "convolution_matrix of a number": (lambda b: tg.linalg.convolution_matrix(tg.tensor(1.0), 2), ValueError, "at least one number"),
    "fourier_shift by too many": (lambda b: tg.ndimage.fourier_shift(b.m, [1.0, 2.0, 3.0]), RuntimeError, "length equal to input rank"),
    "fmin_l_bfgs_b of a value alone": (
        lambda b: tg.optimize.fmin_l_bfgs_b(lambda x: np.sum(x * b.w), np.ones(3)), TypeError, "approx_grad=True"
    ),
    "coherence with a number": (lambda b: tg.signal.coherence(b.w, 1.0), ValueError, "at least one axis"),
    "matmul_toeplitz of no vector": (lambda b: tg.linalg.matmul_toeplitz((), b.w), ValueError, "not enough values"),
    "bessel of a norm that is a number": (lambda b: tg.signal.bessel(2, 0.5, norm=tg.tensor(1.0)), TypeError, "norm="),
    "lsim of no system": (lambda b: tg.signal.lsim(b.w, 0, [0.0, 1.0]), ValueError, "neither of"),
    "lsim of an improper system": (lambda b: tg.signal.lsim((b.w, [1.0, 2.0]), 0, [0.0, 1.0]), ValueError, "Improper"),
    "lsim of matrices that do not fit": (lambda b: tg.signal.lsim((b.m, b.m, b.m, b.w), 0, [0.0, 1.0]), ValueError, "but they are"),
    "lsim at uneven times": (lambda b: tg.signal.lsim((b.m,) * 4, 0, [0.0, 1.0, 3.0]), ValueError, "equally spaced"),
    "lsim before the beginning": (lambda b: tg.signal.lsim((b.m,) * 4, 0, [-1.0, 0.0]), ValueError, "nonnegative"),
    "lsim with an input too few": (lambda b: tg.signal.lsim((b.m,) * 4, b.w, [0.0, 1.0]), ValueError, "a row of U"),
    "lsim at tracked times": (lambda b: tg.signal.lsim((b.m,) * 4, 0, b.w), tg.NotDifferentiable, "solve_ivp"),
    "impulse into two inputs": (lambda b: tg.signal.impulse((b.m,) * 4), ValueError, "take a column"),
    "step of a system of text": (lambda b: tg.signal.step((b.w,)), ValueError, "neither of"),
    "freqresp of two outputs": (lambda b: tg.signal.freqresp((b.m,) * 4, [1.0]), ValueError, "SISO"),
    "bode of two outputs": (lambda b: tg.signal.bode((b.m,) * 4, [1.0]), ValueError, "SISO"),
    "iirfilter of a band by number": (lambda b: tg.signal.iirfilter(2, b.w[0] / 9, btype=3), TypeError, "a word"),
    "butter with a tensor for output": (lambda b: tg.signal.butter(2, b.w[0] / 9, output=b.w), TypeError, "a word"),
    "NdBSpline of a list of knots": (lambda b: tg.interpolate.NdBSpline([b.w], b.w, 1), ValueError, "a tuple of vectors"),
    "NdBSpline of falling knots": (lambda b: tg.interpolate.NdBSpline((b.w[::-1],), b.w, 0), ValueError, "non-decreasing"),
    "NdBSpline of many degrees": (lambda b: tg.interpolate.NdBSpline((b.w,), b.w, (0, 0)), ValueError, "one degree, or as many"),
    "NdBSpline of few coefficients": (lambda b: tg.interpolate.NdBSpline((b.w,), b.w, 0), ValueError, "need 2 for k=0"),
    "NdBSpline of a number": (lambda b: tg.interpolate.NdBSpline((b.w,), 1.0, 0), ValueError, "at least 1-dimensional"),
    "NdBSpline at three numbers": (lambda b: tg.interpolate.NdBSpline((b.w,) * 2, b.m, 0)(b.w), ValueError, "function of 2 variables"),
    "NdBSpline of a negative order": (lambda b: tg.interpolate.NdBSpline((b.w,) * 2, b.m, 0)(b.w[:2], nu=(-1, 0)), ValueError, "at least 0"),
    "NdPPoly of few axes": (lambda b: tg.interpolate.NdPPoly(b.w, (b.w,)), ValueError, "dimensions"),
    "NdPPoly of falling places": (lambda b: tg.interpolate.NdPPoly(b.m, (b.w[::-1],)), ValueError, "not in increasing order"),
    "NdPPoly of one place": (lambda b: tg.interpolate.NdPPoly(b.m, (b.w[:1],)), ValueError, "at least 2 points"),
    "NdPPoly of more boxes": (lambda b: tg.interpolate.NdPPoly(b.m, (b.w[:2],)), ValueError, "number of intervals"),
    "NdPPoly at two numbers": (lambda b: tg.interpolate.NdPPoly(b.m, (b.w,))([b.w[:2], b.w[1:]]), ValueError, "function of 1 variables"),
    "NdPPoly of few orders": (lambda b: tg.interpolate.NdPPoly(b.m, (b.w,)).derivative((1, 1)), ValueError, "an order for each"),
    "NdPPoly over no box": (lambda b: tg.interpolate.NdPPoly(b.m, (b.w,)).integrate(3.0), ValueError, "correct length"),
    "make_lsq_spline of a knot": (lambda b: tg.interpolate.make_lsq_spline(b.w, b.w, True), ValueError, "they are a vector"),
    "shgo within numbers": (lambda b: tg.optimize.shgo(np.sum, 2147483648), ValueError, "a pair for each"),
    "dual_annealing within nothing": (lambda b: tg.optimize.dual_annealing(np.sum, np.ones((3, 0))), ValueError, "a pair for each"),
    "piecewise by a dict": (lambda b: tg.piecewise(b.w, {"a": 1.0}, [0.0]), TypeError, "their order counts"),
    "splder of numbers": (lambda b: tg.interpolate.splder(tg.tensor([1, 2, 3])), ValueError, "as splrep returns it"),
    "directed_hausdorff of a number": (lambda b: tg.spatial.distance.directed_hausdorff(b.w, 1), ValueError, "a row for each point"),
    "fourier_gaussian of a number": (lambda b: tg.ndimage.fourier_gaussian(3.0, b.w[0]), np.exceptions.AxisError, "axis -1"),
    "ConvexHull of matrices": (lambda b: tg.spatial.ConvexHull(np.ones((2, 2, 2)), True), ValueError, "a row for each point"),
    "direct within a pair": (lambda b: tg.optimize.direct(np.sum, (0.0, 1.0)), ValueError, "a pair for each"),
    "fixed_point without steps": (lambda b: tg.fixed_point(np.cos, 0.5, maxiter=-1), ValueError, "from 1 on"),
    "linprog with a word": (lambda b: tg.optimize.linprog([1.0], options="x"), TypeError, "pass a dict"),
    "root by number": (lambda b: tg.root(np.sin, 0.5, method=1), ValueError, "choose 'hybr'"),
    "grad with a word for aux": (lambda b: tg.grad(np.sum, has_aux="no"), TypeError, "True or False"),
    "grad with a word for unused": (lambda b: tg.grad(np.sum, allow_unused="no"), TypeError, "True or False"),
    "vjp with a word for aux": (lambda b: tg.vjp(np.sum, np.ones(2), has_aux="no"), TypeError, "True or False"),
}  # fmt: skip

SPARSE = {
    "SciPy's for a compiled function": (
        lambda b: tg.compile(lambda a, x: a @ x)(scipy.sparse.csr_array(np.eye(3)), b.w),
        TypeError,
        r"tg\.sparse\.csr_array",
    ),
    "dense for sparse": (lambda b: tg.sparse.linalg.spsolve(b.m, b.w), TypeError, "csr_array"),
    "number of text": (lambda b: tg.sparse.csr_array("a"), (TypeError, ValueError), "a"),
    "shape of a vector": (lambda b: tg.sparse.csr_array(b.w), ValueError, "two axes"),
    "index outside": (
        lambda b: tg.sparse.csr_array((b.w, [0, 1, 5], [0, 3]), shape=(1, 3)),
        ValueError,
        "places from 0 to 2",
    ),
    "index that is no number": (
        lambda b: tg.sparse.coo_array((b.w, ([0.5, 1.0, 2.0], [0, 1, 2]))),
        TypeError,
        "whole numbers",
    ),
    "lengths": (lambda b: tg.sparse.coo_array((b.w, ([0], [1]))), ValueError, "for each entry"),
    "diagonal too long": (
        lambda b: tg.sparse.diags_array([b.w], offsets=[0], shape=(2, 2)),
        ValueError,
        "2 places",
    ),
    "offsets twice": (
        lambda b: tg.sparse.dia_array((tg.ones(2, 3), [1, 1]), shape=(3, 3)),
        ValueError,
        "none twice",
    ),
    "blocks": (lambda b: tg.sparse.bsr_array((b.w, [0], [0, 1])), ValueError, "matrix for each"),
    "no block in a row": (
        lambda b: tg.sparse.block_array([[tg.sparse.eye_array(1)], [None]]),
        ValueError,
        "no blocks in row 1",
    ),
    "two dense factors": (lambda b: tg.sparse.matmul(b.m, b.m), TypeError, "two dense arrays"),
    "product of other lengths": (
        lambda b: tg.sparse.eye_array(2) @ b.w,
        ValueError,
        "vector of length 2",
    ),
    "product with a number": (lambda b: tg.sparse.eye_array(2) @ 2.0, ValueError, "vector"),
    "right side of another length": (
        lambda b: tg.sparse.linalg.splu(tg.sparse.eye_array(2)).solve(b.w),
        ValueError,
        "2 equations",
    ),
    "pairs of all but none": (
        lambda b: tg.sparse.linalg.eigs(tg.sparse.eye_array(4), 3),
        ValueError,
        "fewer than all but one",
    ),
    "pairs of no square": (
        lambda b: tg.sparse.linalg.eigs(tg.sparse.eye_array(4, 3), 1),
        np.linalg.LinAlgError,
        "as many equations",
    ),
    "left vectors of two matrices": (
        lambda b: tg.sparse.linalg.eigs(
            tg.sparse.eye_array(4), 1, tg.sparse.eye_array(4), left=True
        ),
        ValueError,
        "transposed",
    ),
    "not square": (
        lambda b: tg.sparse.linalg.cg(tg.sparse.eye_array(2, 3), b.w),
        np.linalg.LinAlgError,
        "as many equations",
    ),
    "operator of another shape": (
        lambda b: tg.sparse.linalg.LinearOperator((2, 3), lambda v: v) @ b.w,
        ValueError,
        "vector of length 2",
    ),
    "sparsity that is none": (
        lambda b: tg.jacobian(np.sin, sparsity="all")(b.c),
        ValueError,
        "detect",
    ),
    "pattern of another shape": (
        lambda b: tg.jacobian(np.sin, sparsity=np.eye(2))(np.ones(3)),
        ValueError,
        r"\(2, 2\).*\(3, 3\)",
    ),
    "truth": (lambda b: bool(tg.sparse.eye_array(2)), ValueError, "ambiguous"),
    "power to a dense matrix": (lambda b: tg.sparse.eye_array(2) ** 0, ValueError, "not sparse"),
}


ROWS = [
    pytest.param(*row, id=f"{family}-{name}")
    for family, table in {
        "construction": CONSTRUCTION, "ops": OPS, "indexing": INDEXING, "backward": BACKWARD, "transforms": TRANSFORMS, "settings": SETTINGS,
        "loops": LOOPS, "compiled": COMPILED, "solvers": SOLVERS, "sparse": SPARSE, "words": WORDS, "checks": CHECKS, "others": OTHERS,
    }.items()
    for name, row in table.items()
]  # fmt: skip


@pytest.mark.usefixtures("settled_heap")
@pytest.mark.parametrize(("call", "error", "phrase"), ROWS)
def test_a_bad_call_says_what_is_wrong_and_changes_nothing(call, error, phrase):
    b = Bad()
    # Cycles that earlier tests left behind must not die, and free entries or tapes, in the middle; an entry may hold the next cycle.
    here, engine, before = tg.current_tape(), tg.engine(), -1
    while len(here) != before:
        before = len(here)
        gc.collect()
        here.sweep()
    tapes = len(tape._tapes)
    values = {name: t.detach().numpy().copy() for name, t in vars(b).items()}
    try:
        with pytest.raises(error, match=f"(?s){phrase}"):
            call(b)
    finally:
        assert tg.is_grad_enabled() and not tg.is_inference_mode_enabled()
        assert tg.current_tape() is here and tg.engine() == engine and len(tape._tapes) == tapes
    here.sweep()
    assert len(here) == before and not here.busy
    for name, t in vars(b).items():
        np.testing.assert_array_equal(t.detach().numpy(), values[name])
        assert t.requires_grad == (name in "wym") and (name == "y" or t.grad is None), name
    # The graph from before is whole.
    b.y.sum().backward()
    np.testing.assert_array_equal(b.w.grad.numpy(), 2 * b.w.detach().numpy())


@pytest.mark.parametrize(
    "function",
    [
        tg.sin,
        tg.exp,
        tg.abs,
        tg.sum,
        tg.mean,
        tg.max,
        tg.cumsum,
        tg.reshape,
        tg.transpose,
        tg.ravel,
    ],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize(
    "value",
    [None, "text", object(), {}, [None], ["a"], np.array([None])],
    ids=["None", "text", "object", "dict", "list of None", "list of text", "array of None"],
)
def test_an_op_of_what_is_no_number_is_a_type_error(function, value):
    arguments = (2,) if function is tg.reshape else ()
    try:
        result = function(value, *arguments)
    except (TypeError, ValueError):
        return
    assert not isinstance(result, tg.Tensor)  # NumPy's own answer to what is no tensor


def test_an_error_in_the_middle_of_a_walk_leaves_gradients_alone():
    """A hook, a watch or a rule that raises: leaves reached before it have not been given anything."""
    w, v = leaf(), leaf()
    y = (w * v).sum() + (v * v).sum()
    z = y * 2.0
    retained = w * 3.0
    retained.retain_grad()
    freed = (retained * retained).sum()
    freed.backward()
    w.grad = None
    total = z + (retained * 2.0 * v).sum()  # a part of the graph is gone
    for _ in range(2):
        with pytest.raises(RuntimeError, match="second time"):
            total.backward()
        assert w.grad is None and v.grad is None
    assert not tg.current_tape().busy
    z.backward()
    np.testing.assert_array_equal(v.grad.numpy(), 2 * w.detach().numpy() + 4 * v.detach().numpy())


def test_errors_belong_to_families_that_programs_can_catch():
    assert issubclass(tg.GradientLost, TypeError) and issubclass(tg.NotDifferentiable, TypeError)
    assert issubclass(tg.GradientLost, RuntimeError)  # as PyTorch's t.numpy()
    assert issubclass(tg.GraphError, RuntimeError) and issubclass(tg.GradcheckError, RuntimeError)
    assert all(
        issubclass(e, tg.TapegradError)
        for e in (tg.GradientLost, tg.NotDifferentiable, tg.GraphError, tg.GradcheckError)
    )


WITHOUT_ROW = {
    "they take nothing": "engine current_tape get_num_threads is_grad_enabled is_inference_mode_enabled is_anomaly_enabled "
    "is_anomaly_check_nan_enabled enable_grad inference_mode debug_nans plain_buffers kept_bytes release_memory",
    "errors and results, which the library makes": "CheckedAccessError GradcheckError GradientLost GraphError IndependentValue "
    "NotDifferentiable "
    "NotFinite TapegradError TraceError Tape Tensor AdjointCheck GradientCheck Report NativeFunction",
    "modules": "autograd check fft integrate interpolate linalg lr_scheduler native ndimage numpy optim optimize signal "
    "sparse spatial special stats",
    "tests/test_interop_dask.py has a table of its own": "dask",
}
"""Public names that no row calls, by the reason."""


@pytest.mark.parametrize(
    "place",
    [
        "tapegrad",
        "tapegrad.check",
        "tapegrad.native",
        "tapegrad.optim",
        "tapegrad.optim.lr_scheduler",
    ],
)
def test_every_public_function_has_a_row_or_a_reason(place):
    def named(code):
        inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
        return {*code.co_names, *(n for c in inner for n in named(c))}

    called = {name for row in ROWS for name in named(row.values[0].__code__)}
    excused = {name for names in WITHOUT_ROW.values() for name in names.split()}
    missing = set(names.place(place).own) - called - excused
    assert not missing, f"write a row, or a reason, for {', '.join(sorted(missing))}"


@pytest.mark.parametrize("scalar", [np.float64, np.float32, np.complex128])
def test_a_scalar_type_of_numpys_says_what_converts(scalar):
    """It sees a number at once, and nobody can step in: what keeps the gradient is `astype`."""
    for run in (
        lambda f: f(tg.tensor(2.0, requires_grad=True)),
        lambda f: tg.grad(f)(2.0),
        lambda f: tg.compile(tg.grad(f))(2.0),
    ):
        with pytest.raises(tg.GradientLost, match=r"t\.astype\(np\.float64\)"):
            run(lambda t: scalar(t) * t)
    assert tg.grad(lambda t: t.astype(np.float64) * t)(2.0) == 4.0
