"""Fourier transforms: np.fft whole, and the cosine and sine transforms of scipy.fft.

All are linear, so the JVP is the transform itself, and the VJP its adjoint. The adjoint of a DFT is the inverse DFT
with the factor on the other side: that of fft(norm="backward") is ifft(norm="forward"), and "ortho" is its own. A
real transform keeps half of a Hermitian spectrum, whose inner entries stand for two: they are halved or doubled on the
way back. Cropping and zero padding (n=, s=) are undone after that. Those of the cosine and sine transforms follow from
Q⁻¹ = Qᵀ of the orthogonal ones (Makhoul 1980), up to the weight of the one or two entries that `orthogonalize` scales.

Invariant: every rule is written in the transforms themselves, so it is recorded like any op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from ..core.primitive import call, primitive
from ..core.tensor import Tensor, wrap
from ..errors import chosen
from .arranging import roll
from .composing import composed
from .joining import concatenate

_OPPOSITE = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def _there_and_back(name: str) -> str:
    """The example of a transform or of its inverse: one undoes the other."""
    name = name.removeprefix("i")
    return (
        "\n\n>>> import numpy as np, tapegrad as tg\n>>> x = tg.tensor(np.arange(8.0).reshape(2, 4))\n"
        f">>> np.allclose(tg.fft.i{name}(tg.fft.{name}(x)), x)\nTrue\n"
    )


def opposite(norm: str | None) -> str:
    """The norm of the adjoint: the factor on the other side."""
    return chosen(_OPPOSITE, norm, "a Fourier transform", "norm")


def resized(x: Any, n: int, axis: int) -> Any:
    """Cut, or padded with zeros at the end, to length n along an axis."""
    shape = np.shape(x)
    if shape[axis] == n:
        return x
    if shape[axis] > n:
        return x[(slice(None),) * (axis % len(shape)) + (slice(n),)]
    missing = list(shape)
    missing[axis] = n - shape[axis]
    return concatenate([x, np.zeros(missing, x.dtype)], axis)


def _scaled_at(x: Any, places: tuple[int, ...], factor: float, axis: int) -> Any:
    """x with a factor on some entries along an axis."""
    weights = np.ones(np.shape(x)[axis], np.real(np.zeros(0, x.dtype)).dtype)
    weights[list(places)] = factor
    return x * np.reshape(weights, (-1,) + (1,) * (np.ndim(x) - axis % np.ndim(x) - 1))


# ---------------------------------------------------------------------------------------------- one axis


def _half(g: Any, n: int, axis: int, factor: float) -> Any:
    """Half a spectrum of length n with a factor on the entries that stand for two."""
    last = np.shape(g)[axis]
    ends = (0,) if n % 2 else (0, last - 1)
    return _scaled_at(g * factor, ends, 1 / factor, axis) if last else g


def adjoint_fft(g: Any, before: int, n: int, axis: int, norm: str | None) -> Any:
    return resized(np.fft.ifft(g, axis=axis, norm=opposite(norm)), before, axis)


def adjoint_ifft(g: Any, before: int, n: int, axis: int, norm: str | None) -> Any:
    return resized(np.fft.fft(g, axis=axis, norm=opposite(norm)), before, axis)


def adjoint_rfft(g: Any, before: int, n: int, axis: int, norm: str | None) -> Any:
    g = _half(g, n, axis, 0.5)
    return resized(np.fft.irfft(g, n, axis, norm=opposite(norm)), before, axis)


def adjoint_irfft(g: Any, before: int, n: int, axis: int, norm: str | None) -> Any:
    g = np.fft.rfft(g, axis=axis, norm=opposite(norm))
    return resized(_half(g, n, axis, 2.0), before, axis)


_SAMPLES = [
    call((4,)),
    call((3, 5), axis=0),
    call((2, 3), n=5, axis=-1),
    call((5,), n=3),
    call((4,), n=5, norm="ortho"),
    call((3,), norm="forward"),
    call((1,)),
]


def _one_axis(of: Any, adjoint: Callable[..., Any], backward: str, told: str) -> Any:
    """Declare a transform along one axis."""
    halved = of is np.fft.irfft

    def rule(g, x_shape, *, n=None, axis=-1, norm=None):
        before = x_shape[axis]
        if n is None:
            n = 2 * (before - 1) if halved else before
        return adjoint(g, before, n, axis, norm)

    rule.__name__ = of.__name__
    rule.__doc__ = told + _there_and_back(of.__name__)
    return primitive(of, linear=True, pattern="along", backward=backward, samples=_SAMPLES[: 6 if halved else 7], holomorphic=False)(rule)  # fmt: skip


fft = _one_axis(
    np.fft.fft,
    adjoint_fft,
    "FftC2C",
    "Discrete Fourier transform along an axis, of n entries (cut or padded with zeros).",
)
ifft = _one_axis(np.fft.ifft, adjoint_ifft, "FftC2C", "Inverse of `fft` along an axis.")
rfft = _one_axis(
    np.fft.rfft,
    adjoint_rfft,
    "FftR2C",
    "Fourier transform of real entries along an axis: the half of it that tells the rest.",
)
irfft = _one_axis(
    np.fft.irfft,
    adjoint_irfft,
    "FftC2R",
    "Inverse of `rfft` along an axis: n real entries, by default an even number.",
)


# --------------------------------------------------------------------------------------------- several axes
#
# NumPy transforms the axes one after the other, the last one first (irfftn, last). The adjoint goes back in
# the opposite order; each step needs the length its axis had before.


def cooked(shape: tuple[int, ...], s: Any, axes: Any, halved: bool) -> tuple[list[int], list[int]]:
    """Length and axis of each step, as NumPy reads s and axes."""
    if axes is None:
        axes = range(len(shape)) if s is None else range(-len(s), 0)
    axes = [normalize_axis_index(axis, len(shape)) for axis in axes]
    lengths = [shape[axis] for axis in axes] if s is None else list(s)
    if s is None and halved:
        lengths[-1] = 2 * (shape[axes[-1]] - 1)
    # -1 stands for the length there is; NumPy reads it so for the half spectrum of irfftn too.
    return [shape[axis] if n == -1 else int(n) for n, axis in zip(lengths, axes, strict=True)], axes


def _several_axes(
    of: Any, axes_default: Any, step: Callable[..., Any], last: Callable[..., Any], told: str
) -> Any:
    """Declare a transform along several axes: `last` is the adjoint along the last of them, `step` along the others."""
    halved = last is adjoint_irfft
    samples = [
        call((3, 4)),
        call((2, 3, 4), axes=(0, 2)),
        call((3, 4), s=(4, 3), axes=(-2, -1)),
        call((2, 3, 4), s=(5, 5), axes=(1, 0), norm="ortho"),
        call((3, 3), axes=(1,), norm="forward"),
    ]

    def rule(g, x_shape, *, s=None, axes=axes_default, norm=None):
        """The adjoint of a transform over several axes: that of each axis, in the reverse order."""
        lengths, axes = cooked(x_shape, s, axes, halved)
        steps = list(zip(lengths, axes, strict=True))
        order = [*range(len(steps))] if halved else [*range(len(steps))][::-1]
        shape = list(x_shape)
        before = {}
        for i in order:
            n, axis = steps[i]
            before[i] = shape[axis]
            # The input of a half spectrum's step has n // 2 + 1 entries, but it is the last one.
            shape[axis] = n // 2 + 1 if last is adjoint_rfft and i == len(steps) - 1 else n
        for i in reversed(order):
            n, axis = steps[i]
            adjoint = last if i == len(steps) - 1 else step
            g = adjoint(g, before[i], n, axis, norm)
        return g

    rule.__name__ = of.__name__
    rule.__doc__ = told + _there_and_back(of.__name__)
    backward = {adjoint_rfft: "FftR2C", adjoint_irfft: "FftC2R"}.get(last, "FftC2C")
    return primitive(of, linear=True, backward=backward, samples=samples, holomorphic=False)(rule)


_TOLD = {
    "fft": "Fourier transform along {} axes, each of the length in s (cut or padded with zeros).",
    "ifft": "Inverse of `{}`.",
    "rfft": "Fourier transform of real entries along {} axes: of the last one the half that tells the rest.",
    "irfft": "Inverse of `{}`: real entries, along the last axis an even number by default.",
}

fftn = _several_axes(np.fft.fftn, None, adjoint_fft, adjoint_fft, _TOLD["fft"].format("all or some"))  # fmt: skip
fft2 = _several_axes(np.fft.fft2, (-2, -1), adjoint_fft, adjoint_fft, _TOLD["fft"].format("two"))
ifftn = _several_axes(np.fft.ifftn, None, adjoint_ifft, adjoint_ifft, _TOLD["ifft"].format("fftn"))
ifft2 = _several_axes(np.fft.ifft2, (-2, -1), adjoint_ifft, adjoint_ifft, _TOLD["ifft"].format("fft2"))  # fmt: skip
rfftn = _several_axes(np.fft.rfftn, None, adjoint_fft, adjoint_rfft, _TOLD["rfft"].format("all or some"))  # fmt: skip
rfft2 = _several_axes(np.fft.rfft2, (-2, -1), adjoint_fft, adjoint_rfft, _TOLD["rfft"].format("two"))  # fmt: skip
irfftn = _several_axes(np.fft.irfftn, None, adjoint_ifft, adjoint_irfft, _TOLD["irfft"].format("rfftn"))  # fmt: skip
irfft2 = _several_axes(np.fft.irfft2, (-2, -1), adjoint_ifft, adjoint_irfft, _TOLD["irfft"].format("rfft2"))  # fmt: skip


@composed(np.fft.hfft, "a")
def hfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Any:
    """Fourier transform of a signal with Hermitian symmetry, whose spectrum is real, from half of it.

    >>> import tapegrad as tg
    >>> tg.fft.hfft(tg.ones(3)).shape
    (4,)
    """
    return irfft(np.conj(a), n, axis, opposite(norm))


@composed(np.fft.ihfft, "a")
def ihfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Any:
    """Inverse of `hfft`: half of a Hermitian signal, from its real spectrum.

    >>> import tapegrad as tg
    >>> tg.fft.ihfft(tg.ones(4)).shape
    (3,)
    """
    return np.conj(rfft(a, n, axis, opposite(norm)))


def _shifts(x: Any, axes: Any, sign: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    ndim = np.ndim(x)
    axes = (
        tuple(range(ndim))
        if axes is None
        else normalize_axis_tuple(axes, ndim, allow_duplicate=True)
    )
    half = tuple(np.shape(x)[axis] // 2 for axis in axes)
    return tuple(sign * n for n in half), axes


@composed(np.fft.fftshift, "x")
def fftshift(x: Any, axes: Any = None) -> Any:
    """The zero frequency moved to the middle.

    >>> import tapegrad as tg
    >>> tg.fft.fftshift(tg.tensor([0.0, 1.0, 2.0]))
    tensor([2., 0., 1.])
    """
    return roll(x, *_shifts(x, axes, 1))


@composed(np.fft.ifftshift, "x")
def ifftshift(x: Any, axes: Any = None) -> Any:
    """Inverse of `fftshift`, for odd lengths too.

    >>> import tapegrad as tg
    >>> tg.fft.ifftshift(tg.tensor([0.0, 1.0, 2.0]))
    tensor([1., 2., 0.])
    """
    return roll(x, *_shifts(x, axes, -1))


# -------------------------------------------------------------------------------- cosine and sine transforms


def _transform(name: str) -> Callable[..., Any]:
    """scipy.fft's transform of that name, imported when it is first used."""

    def transform(x, kind, n=None, axis=-1, norm=None, orthogonalize=None):
        from scipy import fft

        axis = normalize_axis_index(axis, np.ndim(x))
        of = functools.partial(getattr(fft, name), type=kind, n=n, axis=axis, norm=norm)
        if np.iscomplexobj(x) and orthogonalize is not None:
            # SciPy (1.17 at least) forgets `orthogonalize` where x is complex.
            return of(np.real(x), orthogonalize=orthogonalize) + 1j * of(
                np.imag(x), orthogonalize=orthogonalize
            )
        return of(x, orthogonalize=orthogonalize)

    transform.__name__ = name
    return transform


_INVERSE_TYPE = {1: 1, 2: 3, 3: 2, 4: 4}

_REAL_SAMPLES = [
    *(call((4,), kind=kind) for kind in (1, 2, 3, 4)),
    call((2, 3), kind=2, n=4, axis=0),
    call((5,), kind=3, n=3, norm="forward"),
    *(call((3,), kind=kind, norm="ortho") for kind in (1, 2, 3)),
    *(call((3,), kind=kind, norm="ortho", orthogonalize=False) for kind in (1, 2, 3)),
    *(call((3,), kind=kind, orthogonalize=True) for kind in (1, 2, 3)),
]


def _weighted(g: Any, places: tuple[int, ...], factor: float, axis: int, settings: Any) -> Any:
    """g with a factor on the entries that `orthogonalize` would have scaled, if it did not."""
    norm, orthogonalize = settings
    orthogonal = norm == "ortho" if orthogonalize is None else orthogonalize
    return g if orthogonal or not places else _scaled_at(g, places, factor, axis)


def _trigonometric(name: str, first: dict[int, tuple[int, ...]]) -> Any:
    """Declare a cosine or sine transform; `first` are the entries that its types 1 and 2 weigh apart in the result."""

    def rule(g, x_shape, *, kind, n=None, axis=-1, norm=None, orthogonalize=None):
        settings = norm, orthogonalize
        inverse = _INVERSE_TYPE[kind]
        g = _weighted(g, first.get(kind, ()), 2.0, axis, settings)
        # The inverse with the factor on the other side is the transform of the inverse type with the same norm.
        g = op(g, inverse, None, axis, norm, orthogonalize)
        g = _weighted(g, first.get(inverse, ()), 0.5, axis, settings)
        return resized(g, x_shape[axis], axis)

    rule.__name__ = name
    rule.__doc__ = f"SciPy's {name} of one type ({name[1:]}-I to IV) along an axis."
    op = primitive(_transform(name), linear=True, pattern="along", samples=_REAL_SAMPLES)(rule)

    def public(x, type=2, n=None, axis=-1, norm=None, overwrite_x=False, workers=None, orthogonalize=None):  # fmt: skip
        chosen(_INVERSE_TYPE, type, name, "type")
        return op(x, type, n, axis, norm, orthogonalize)

    public.__name__ = public.__qualname__ = name
    public.primitive = op.primitive
    return public


dct = _trigonometric("dct", {1: (0, -1), 2: (0,)})
dct.__doc__ = """Discrete cosine transform of type 1 to 4 along an axis, with SciPy's arguments (Makhoul 1980).

    >>> import tapegrad as tg
    >>> tg.fft.dct(tg.tensor([1.0, 2.0]), norm="ortho")
    tensor([ 2.12132034, -0.70710678])
    """
dst = _trigonometric("dst", {2: (-1,)})
dst.__doc__ = f"Discrete sine transform of type 1 to 4 along an axis, with SciPy's arguments.{_there_and_back('dst')}"


def _inverse(transform: Any) -> Any:
    def inverse(x, type=2, n=None, axis=-1, norm=None, overwrite_x=False, workers=None, orthogonalize=None):  # fmt: skip
        kind = chosen(_INVERSE_TYPE, type, inverse.__name__, "type")
        return transform(x, kind, n, axis, opposite(norm), orthogonalize=orthogonalize)

    inverse.__name__ = inverse.__qualname__ = f"i{transform.__name__}"
    inverse.__doc__ = f"Inverse of `{transform.__name__}` of that type along an axis.{_there_and_back(transform.__name__)}"
    return inverse


idct = _inverse(dct)
idst = _inverse(dst)


def _along_all(transform: Any) -> Any:
    """The transform of several axes, one after the other."""

    def transforms(x, type=2, s=None, axes=None, norm=None, overwrite_x=False, workers=None, orthogonalize=None):  # fmt: skip
        x = x if isinstance(x, Tensor) else np.asarray(x)
        if axes is None:
            axes = range(x.ndim) if s is None else range(-len(np.atleast_1d(s)), 0)
        axes = np.atleast_1d(axes).tolist()
        lengths = [None] * len(axes) if s is None else np.atleast_1d(s).tolist()
        for n, axis in zip(lengths, axes, strict=True):
            n = None if n == -1 else n
            x = transform(x, type, n, axis, norm, orthogonalize=orthogonalize)
        return x

    transforms.__name__ = transforms.__qualname__ = f"{transform.__name__}n"
    told = f"`{transform.__name__}` along all axes, or those named, of the lengths in s (cut or padded)."
    transforms.__doc__ = told + _there_and_back(transforms.__name__)
    return transforms


dctn, idctn, dstn, idstn = map(_along_all, (dct, idct, dst, idst))


# ------------------------------------------------------------------------------------------ frequencies


def fftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """Frequencies of the entries of `fft`, a tensor, for samples d apart; differentiable by d.

    >>> import tapegrad as tg
    >>> tg.fft.fftfreq(4, d=0.5)
    tensor([ 0. ,  0.5, -1. , -0.5])
    """
    return _frequencies(np.fft.fftfreq, n, d, dtype, device)


def rfftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """Frequencies of the entries of `rfft`, a tensor, for samples d apart; differentiable by d.

    >>> import tapegrad as tg
    >>> tg.grad(lambda d: tg.fft.rfftfreq(4, d)[1])(0.5)
    -1.0
    """
    return _frequencies(np.fft.rfftfreq, n, d, dtype, device)


def _frequencies(of: Any, n: int, d: Any, dtype: Any, device: Any) -> Any:
    if not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(
            f"{of.__name__} was given n={n!r}, but a transform has a number of entries from 1 on: write it first."
        )
    frequencies = (
        wrap(of(n, device=device)) / d if isinstance(d, Tensor) else wrap(of(n, d, device=device))
    )
    return frequencies if dtype is None else frequencies.astype(dtype)
