"""A user's script: what a type checker makes of it. Checked by mypy --strict and pyright, and never run.

Each `assert_type` is an expectation; each line that is wrong says which error it has to give, so a type that has become Any is noticed.
"""

from collections.abc import Callable
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import tapegrad as tg

Array = npt.NDArray[np.float64]

# ------------------------------------------------------------------------------------------------ tensors

x = tg.tensor([1.0, 2.0], requires_grad=True)
assert_type(x, tg.Tensor)
assert_type(x + 1.0, tg.Tensor)
assert_type(2.0 * x, tg.Tensor)
assert_type(-(x**2) / 3 - x % 2, tg.Tensor)
assert_type(x @ x, tg.Tensor)
assert_type(x > 0, tg.Tensor)
assert_type(x == x, tg.Tensor)
assert_type(x[0], tg.Tensor)
assert_type(x.T, tg.Tensor)
assert_type(x.shape, tuple[int, ...])
assert_type(x.grad, tg.Tensor | None)
assert_type(x.sum(), tg.Tensor)
assert_type(x.sum(axis=0, keepdims=True), tg.Tensor)
assert_type(x.sum(dim=0, keepdim=True), tg.Tensor)
assert_type(x.reshape(2, 1).mean(0), tg.Tensor)
assert_type(x.sin().exp().log1p(), tg.Tensor)
assert_type(x.add_(1.0), tg.Tensor)
assert_type(x.add(1.0, alpha=2), tg.Tensor)
assert_type(x.clamp(min=0.0), tg.Tensor)
assert_type(x.index_add(0, np.array([0]), x), tg.Tensor)
assert_type(x.chunk(2), tuple[tg.Tensor, ...])
assert_type(x.is_complex(), bool)
assert_type(x.double(), tg.Tensor)
array: np.ndarray = x.detach().numpy()
assert_type(x.backward(), None)
assert_type(len(x), int)
x.sum(axis="first")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
x.summ()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
x.add(1.0, beta=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

# ---------------------------------------------------------------------------------------------- functions

assert_type(tg.sin(x), tg.Tensor)
assert_type(tg.sum(x, axis=0), tg.Tensor)
assert_type(tg.add(1.0, x), tg.Tensor)
assert_type(tg.where(x > 0, x, 0.0), tg.Tensor)
assert_type(tg.stack([x, x]), tg.Tensor)
assert_type(tg.concatenate([x, x], axis=0), tg.Tensor)
assert_type(tg.median(x), tg.Tensor)
assert_type(tg.isnan(x), tg.Tensor)
assert_type(tg.argmax(x), tg.Tensor)
assert_type(tg.zeros(3), tg.Tensor)
assert_type(tg.special.erf(x), tg.Tensor)
assert_type(tg.special.jv(1, x), tg.Tensor)
assert_type(tg.special.logsumexp(x, axis=0), tg.Tensor)
assert_type(tg.special.logsumexp(x, axis=0, return_sign=True), Any)
assert_type(tg.fft.rfft(x), tg.Tensor)
assert_type(tg.linalg.solve(x, x), tg.Tensor)
assert_type(tg.linalg.eigh(x).eigenvectors, tg.Tensor)
sign, logdet = tg.linalg.slogdet(x)
assert_type(logdet, tg.Tensor)
q, r = tg.linalg.qr(x)
assert_type(q, tg.Tensor)
assert_type(tg.pi, float)
weights = tg.zeros(3, dtype=tg.float64)
tg.sin()  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
tg.special.erff(x)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]

# --------------------------------------------------------------------------------------------- transforms


def loss(w: Array, b: float, *, scale: float = 1.0) -> float:
    return float(np.sum(w * b * scale))


def loss_and_note(w: Array, b: float) -> tuple[float, str]:
    return loss(w, b), "fine"


w = np.ones(3)
assert_type(tg.grad(loss)(w, 2.0, scale=3.0), Array)
assert_type(tg.grad(loss, (0, 1))(w, 2.0), tuple[Any, ...])
assert_type(tg.value_and_grad(loss)(w, 2.0), tuple[float, Array])
assert_type(tg.value_and_grad(loss, argnums=(0, 1))(w, 2.0), tuple[float, tuple[Any, ...]])
assert_type(tg.grad(loss_and_note, has_aux=True)(w, 2.0), tuple[Array, str])
assert_type(tg.value_and_grad(loss_and_note, has_aux=True)(w, 2.0), tuple[tuple[float, str], Array])
assert_type(tg.grad(lambda t: t**2)(3.0), Any)
assert_type(tg.vmap(loss)(w, 1.0), float)
assert_type(tg.checkpoint(loss)(w, 1.0), float)
value, pull = tg.vjp(loss, w, 2.0)
assert_type(value, float)
assert_type(pull(1.0), tuple[Any, ...])
assert_type(tg.jvp(loss, (w, 2.0), (w, 0.0)), tuple[float, float])
assert_type(tg.hvp(loss)(w, w, 2.0), Array)
jacobian: Array = tg.jacobian(loss)(w, 2.0)
tg.grad(loss)(w)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
tg.grad(loss)(w, 2.0, scal=1.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
tg.grad(loss)("w", 2.0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# -------------------------------------------------------------------------------------- compiled functions


@tg.compile
def fast(a: Array, n: int) -> Array:
    return a * n


@tg.njit
def native(a: float) -> float:
    return a * a


@tg.njit(parallel=True)
def parallel(a: Array) -> float:
    return float(a[0])


assert_type(fast(w, 2), Array)
assert_type(tg.compile(static_argnums=1)(loss)(w, 1.0), float)
assert_type(native(2.0), float)
assert_type(tg.grad(native)(2.0), float)
assert_type(parallel(w), float)
assert_type(fast.source, str)
fast(w)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
native("2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# ----------------------------------------------------------------------------------- the other modules


def closure() -> tg.Tensor:
    return (x * x).sum()


optimizer = tg.optim.Adam([x], lr=0.1)
optimizer.zero_grad()
closure().backward()
optimizer.step()
solver: Callable[..., Any] = tg.optimize.minimize
found = tg.minimize(loss, w, args=(2.0,))
popt, pcov = tg.curve_fit(lambda t, a, b: a * t + b, w, w)
density = tg.stats.norm.logpdf(x, 0.0, 1.0)
counts = tg.stats.poisson.pmf(3, x)
tg.stats.nrom  # type: ignore[attr-defined]  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
with tg.profile() as profile:
    tg.grad(loss)(w, 2.0)
assert_type(profile.by_op()[0].seconds, float)
assert_type(tg.profile(loss)(w, 2.0), float)

with tg.no_grad(), tg.plain_buffers():
    y = x * 2


@tg.no_grad()
def predict(t: tg.Tensor) -> tg.Tensor:
    return t * 2


assert_type(predict(x), tg.Tensor)


class Square(tg.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Any) -> Any:
        ctx.save_for_backward(t)
        return t * t

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (t,) = ctx.saved_tensors
        return 2 * t * g


squared = Square.apply(x)
report = tg.check_gradient(loss, w, 2.0)
report.assert_ok()
