"""Images by the order of what stands in a window, and statistics of labelled regions, under SciPy's names.

A window's entries are the image moved by each of its offsets; the largest, the smallest or one in their order is taken. Which one it is
jumps where two are equal: there the largest and the smallest share the derivative, as `np.max` has it. Grey morphology adds heights to
windows. Regions are constants; their statistics are sums over them.

Invariant: where no argument is a tensor SciPy's own function runs; its windows, edges and origins are ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..errors import NotDifferentiable
from .calculus import inexact
from .composing import holds_tensor, scipys
from .images import _axes, _demand_no_output, _each, _filter_mode, _origin
from .indexing import scatter
from .stencils import reach

_scipys = scipys("scipy.ndimage")

PADS = {"reflect": "symmetric", "mirror": "reflect", "constant": "constant", "nearest": "edge", "wrap": "wrap"}  # fmt: skip
"""NumPy's names for how an image goes on beyond its edges."""


class _Window:
    """Where a window reaches: its footprint, origins and edges, for an image of as many axes."""

    def __init__(
        self,
        x: Any,
        size: Any,
        footprint: Any,
        mode: Any,
        cval: Any,
        origin: Any,
        axes: Any,
        turned: bool = False,
        of: Any = None,
    ) -> None:
        """The window of an image, by its size, its footprint or the shape of a structure; `turned` is reversed, as dilation takes it."""
        ndim = np.ndim(x)
        along = _axes(axes, ndim)
        if along != sorted(along):
            raise NotDifferentiable(
                f"an ndimage filter of a tensor was given axes={axes}, but where they fall SciPy's filters turn their windows in several ways. "
                "Give axes in increasing order."
            )
        if footprint is None and size is None and of is None:
            raise RuntimeError("no footprint or filter size provided")
        if holds_tensor(footprint):
            raise NotDifferentiable(
                "an ndimage filter was given a footprint that is a tensor, but which entries count is a constant. Pass footprint.numpy()."
            )
        if footprint is None:
            shape = [
                int(n) for n in (_each(size, len(along), "size") if of is None else np.shape(of))
            ]
            marks = np.ones(shape, bool)
        else:
            marks = np.asarray(footprint, bool)
        if marks.ndim != len(along):
            raise RuntimeError(f"footprint.ndim ({marks.ndim}) must match len(axes) ({len(along)})")
        if not marks.any():
            raise ValueError("All-zero footprint is not supported.")
        origins = [
            _origin(n, o)
            for n, o in zip(marks.shape, _each(origin, len(along), "origin"), strict=True)
        ]
        if turned:
            marks = marks[(slice(None, None, -1),) * marks.ndim]
            origins = [-o - (n % 2 == 0) for n, o in zip(marks.shape, origins, strict=True)]
        self.along, self.marks, self.origins, self.mode, self.cval = (
            along,
            marks,
            origins,
            mode,
            cval,
        )
        self.modes = [_filter_mode(m) for m in _each(mode, len(along), "mode")]

    def moved(self, x: Any, heights: Any = None) -> list[Any]:
        """The image moved by each offset of the window, with the height there added, if there are heights."""
        shape = np.shape(x)
        for axis, n, origin, mode in zip(
            self.along, self.marks.shape, self.origins, self.modes, strict=True
        ):
            width = [(0, 0)] * len(shape)
            width[axis] = reach(n, origin)
            if any(width[axis]):
                if mode != "constant":
                    x = np.pad(x, width, mode=PADS[mode])  # type: ignore[call-overload]
                elif holds_tensor(self.cval):
                    x = np.pad(x - self.cval, width) + self.cval
                else:
                    x = np.pad(x, width, constant_values=self.cval)
        found = []
        for place in itertools.product(*map(range, self.marks.shape)):
            if self.marks[place]:
                part = [slice(None)] * len(shape)
                for axis, start in zip(self.along, place, strict=True):
                    part[axis] = slice(start, start + shape[axis])
                entry = x[tuple(part)]
                found.append(entry if heights is None else entry + heights[place])
        return found


def _flat(
    x: Any,
    size: Any,
    footprint: Any,
    mode: Any,
    cval: Any,
    origin: Any,
    axes: Any,
    pick: Callable[..., Any],
    turned: bool = False,
) -> Any:
    """The largest or smallest entry in each window; of a box, axis by axis."""
    window = _Window(x, size, footprint, mode, cval, origin, axes, turned)
    if not window.marks.all() or len(set(window.modes)) > 1:
        return pick(np.stack(window.moved(x)), axis=0)
    for axis, n, start in zip(window.along, window.marks.shape, window.origins, strict=True):
        if n > 1:
            x = pick(np.stack(_Window(x, n, None, mode, cval, start, axis).moved(x)), axis=0)
    return x


def _extreme(name: str, pick: Any, told: str) -> tuple[Any, Any]:
    """The filter of any number of axes, and the one along an axis."""

    def whole(
        input: Any, size: Any = None, footprint: Any = None, output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
        origin: Any = 0, *, axes: Any = None,
    ) -> Any:  # fmt: skip
        """The extreme entry of each window."""
        _demand_no_output(output)
        return _flat(inexact(input), size, footprint, mode, cval, origin, axes, pick)

    def along(
        input: Any,
        size: int,
        axis: int = -1,
        output: Any = None,
        mode: str = "reflect",
        cval: Any = 0.0,
        origin: int = 0,
    ) -> Any:
        """The extreme entry of each window along one axis."""
        _demand_no_output(output)
        return _flat(inexact(input), int(size), None, mode, cval, origin, axis, pick)

    for function, suffix, where in (
        (whole, "", "each window"),
        (along, "1d", "each window along an axis"),
    ):
        function.__name__ = function.__qualname__ = f"{name}_filter{suffix}"
        function.__doc__ = f"The {told} entry of {where}; equal ones share its derivative."
    return _scipys(whole), _scipys(along)


maximum_filter, maximum_filter1d = _extreme("maximum", np.max, "largest")
minimum_filter, minimum_filter1d = _extreme("minimum", np.min, "smallest")


def _ranked(
    input: Any,
    rank: Callable[[int], int],
    size: Any,
    footprint: Any,
    output: Any,
    mode: Any,
    cval: Any,
    origin: Any,
    axes: Any,
) -> Any:
    """The entry of a rank; the rank may depend on the number of the window's entries."""
    _demand_no_output(output)
    x = inexact(input)
    parts = _Window(x, size, footprint, mode, cval, origin, axes).moved(x)
    place = rank(len(parts))
    if not 0 <= place < len(parts):
        raise RuntimeError("rank not within filter footprint size")
    return np.sort(np.stack(parts), axis=0)[place]


@_scipys
def rank_filter(
    input: Any, rank: int, size: Any = None, footprint: Any = None, output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
    origin: Any = 0, *, axes: Any = None,
) -> Any:  # fmt: skip
    """The entry of each window that has `rank` smaller ones; a negative rank counts from the largest.

    >>> import numpy as np, tapegrad as tg
    >>> tg.ndimage.rank_filter(tg.tensor([3.0, 1.0, 2.0]), 0, size=3)
    tensor([1., 1., 1.])
    """
    return _ranked(
        input,
        lambda n: rank + n if rank < 0 else rank,
        size,
        footprint,
        output,
        mode,
        cval,
        origin,
        axes,
    )


@_scipys
def percentile_filter(
    input: Any, percentile: float, size: Any = None, footprint: Any = None, output: Any = None, mode: Any = "reflect",
    cval: Any = 0.0, origin: Any = 0, *, axes: Any = None,
) -> Any:  # fmt: skip
    """The entry of each window that stands at a percentile of it; a negative one counts from 100.

    >>> import tapegrad as tg
    >>> tg.ndimage.percentile_filter(tg.tensor([3.0, 1.0, 2.0]), 100, size=3)
    tensor([3., 3., 2.])
    """
    share = percentile + 100.0 if percentile < 0 else percentile
    if not 0 <= share <= 100:
        raise RuntimeError("invalid percentile")
    place = lambda n: n - 1 if share == 100 else int(float(n) * share / 100.0)
    return _ranked(input, place, size, footprint, output, mode, cval, origin, axes)


@_scipys
def median_filter(
    input: Any, size: Any = None, footprint: Any = None, output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
    origin: Any = 0, *, axes: Any = None,
) -> Any:  # fmt: skip
    """The entry in the middle of each window's order.

    >>> import numpy as np, tapegrad as tg
    >>> tg.jacobian(lambda x: tg.ndimage.median_filter(x, 3))(np.array([3.0, 1.0, 2.0]))[1]
    array([0., 0., 1.])
    """
    return _ranked(input, lambda n: n // 2, size, footprint, output, mode, cval, origin, axes)


# ------------------------------------------------------------------------------------------- of signals

_of_signals = scipys("scipy.signal")


def _demand_odd(lengths: Any, what: str) -> None:
    if any(n % 2 != 1 for n in lengths):
        raise ValueError(f"{what} of lengths {tuple(lengths)} was given, but each has to be odd.")


@_of_signals
def order_filter(a: Any, domain: Any, rank: int) -> Any:
    """The entry of each window that has `rank` smaller ones; the window is where `domain` is not 0, and zeros go on beyond the edges.

    >>> import numpy as np, tapegrad as tg
    >>> tg.signal.order_filter(tg.tensor([3.0, 1.0, 2.0]), np.ones(3), 2)
    tensor([3., 3., 2.])
    """
    _demand_odd(np.shape(domain), "order_filter: a domain")
    return rank_filter(a, rank, footprint=domain, mode="constant")


@_of_signals
def medfilt(volume: Any, kernel_size: Any = None) -> Any:
    """The median of each window, with `kernel_size` entries along each axis, 3 if that is left out; zeros go on beyond the edges.

    >>> import numpy as np, tapegrad as tg
    >>> tg.jacobian(tg.signal.medfilt)(np.array([3.0, 1.0, 2.0]))
    array([[0., 1., 0.],
           [0., 0., 1.],
           [0., 1., 0.]])
    """
    ndim = max(np.ndim(volume), 1)
    sizes = np.broadcast_to(3 if kernel_size is None else kernel_size, (ndim,)).tolist()
    _demand_odd(sizes, "medfilt: a kernel")
    return rank_filter(np.atleast_1d(volume), int(np.prod(sizes)) // 2, size=sizes, mode="constant")


@_of_signals
def medfilt2d(input: Any, kernel_size: Any = 3) -> Any:
    """`medfilt` of images.

    >>> import tapegrad as tg
    >>> tg.signal.medfilt2d(tg.tensor([[1.0, 2.0], [4.0, 3.0]]), [1, 3])
    tensor([[1., 1.],
            [3., 3.]])
    """
    if np.ndim(input) != 2:
        raise ValueError(
            f"medfilt2d was given an array of {np.ndim(input)} axes, but images have 2: write medfilt."
        )
    return medfilt(input, kernel_size)


# ------------------------------------------------------------------------------------------- grey morphology


def _eroded(
    x: Any,
    dilated: bool,
    size: Any,
    footprint: Any,
    structure: Any,
    mode: Any,
    cval: Any,
    origin: Any,
    axes: Any,
) -> Any:
    """Erosion, or dilation, by a window with or without heights."""
    pick = np.max if dilated else np.min
    if structure is None:
        return _flat(x, size, footprint, mode, cval, origin, axes, pick, dilated)
    heights = inexact(structure)
    window = _Window(x, size, footprint, mode, cval, origin, axes, dilated, of=heights)
    if np.shape(heights) != window.marks.shape:
        raise RuntimeError("structure array has incorrect shape")
    if dilated:
        heights = heights[(slice(None, None, -1),) * np.ndim(heights)]
    return pick(np.stack(window.moved(x, heights if dilated else -heights)), axis=0)


def _morphology(
    name: str, told: str, formula: Callable[[Any, Callable[[Any], Any], Callable[[Any], Any]], Any]
) -> Any:
    """An operation of grey morphology, a formula of the image, its erosion and its dilation."""

    def function(
        input: Any, size: Any = None, footprint: Any = None, structure: Any = None, output: Any = None, mode: Any = "reflect",
        cval: Any = 0.0, origin: Any = 0, *, axes: Any = None,
    ) -> Any:  # fmt: skip
        """The operation; differentiable by image and structure."""
        _demand_no_output(output)
        if size is None and footprint is None and structure is None:
            raise ValueError("size, footprint, or structure must be specified")
        settings = (size, footprint, structure, mode, cval, origin, axes)
        return formula(
            inexact(input),
            lambda x: _eroded(x, False, *settings),
            lambda x: _eroded(x, True, *settings),
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{told}, in windows with or without heights (`structure`); differentiable by both."
    )
    return _scipys(function)


grey_erosion = _morphology(
    "grey_erosion", "The smallest of entries less heights", lambda x, e, d: e(x)
)
grey_dilation = _morphology(
    "grey_dilation", "The largest of entries with heights", lambda x, e, d: d(x)
)
grey_opening = _morphology("grey_opening", "The dilation of the erosion", lambda x, e, d: d(e(x)))
grey_closing = _morphology("grey_closing", "The erosion of the dilation", lambda x, e, d: e(d(x)))
white_tophat = _morphology(
    "white_tophat", "The image less its opening", lambda x, e, d: x - d(e(x))
)
black_tophat = _morphology(
    "black_tophat", "The closing less the image", lambda x, e, d: e(d(x)) - x
)
morphological_gradient = _morphology(
    "morphological_gradient", "The dilation less the erosion", lambda x, e, d: d(x) - e(x)
)
morphological_laplace = _morphology("morphological_laplace", "Dilation and erosion less the image twice", lambda x, e, d: d(x) + e(x) - 2 * x)  # fmt: skip


# ------------------------------------------------------------------------------------------- labelled regions


class _Regions:
    """Which region each entry is in, from 0, or none; and how results for one or several regions look."""

    def __init__(self, x: Any, labels: Any, index: Any) -> None:
        """The regions of an image: all of it, the labels above 0 together, or those of an index, a number or several."""
        if holds_tensor((labels, index)):
            raise NotDifferentiable(
                "regions were given as tensors, but labels are constants. Pass labels.numpy()."
            )
        self.one = labels is None or index is None or np.ndim(index) == 0
        if labels is None:
            if index is not None:
                raise ValueError("index without defined labels")
            self.number = np.zeros(np.shape(x), int)
            self.count = 1
            self.shape: tuple[int, ...] = ()
            return
        labels = np.broadcast_to(np.asarray(labels), np.shape(x))
        if index is None:
            self.number, self.count, self.shape = np.where(labels > 0, 0, -1), 1, ()
            return
        self.shape = np.shape(index)
        asked, back = np.unique(np.asarray(index), return_inverse=True)
        place = np.minimum(np.searchsorted(asked, labels), len(asked) - 1)
        self.number = np.where(asked[place] == labels, place, -1)
        self.count, self._back = len(asked), np.reshape(back, -1)

    def total(self, x: Any) -> Any:
        """Sums over the regions."""
        inside = self.number.ravel() >= 0
        flat = np.reshape(x, -1)[inside]
        return scatter(flat, (self.number.ravel()[inside],), (self.count,))

    @property
    def size(self) -> np.ndarray:
        """How many entries the regions have."""
        return np.bincount(self.number[self.number >= 0], minlength=self.count)

    def each(self, x: Any, statistic: Callable[[Any], Any]) -> Any:
        """A statistic of each region's entries, 0 of an empty one."""
        flat, number = np.reshape(x, -1), self.number.ravel()
        parts = [flat[number == i] for i in range(self.count)]
        return np.stack([statistic(p) if np.shape(p)[0] else np.zeros(()) for p in parts])

    def told(self, found: Any) -> Any:
        """Results of all regions as the caller's index has them."""
        if self.one:
            return found[0]
        return np.reshape(found[self._back], self.shape)


def _statistic(name: str, told: str, formula: Callable[[Any, _Regions], Any]) -> Any:
    """A statistic of an image's entries in labelled regions."""

    def function(input: Any, labels: Any = None, index: Any = None) -> Any:
        """The statistic of all entries, of those labelled above 0, or of each region in `index`."""
        x = inexact(input)
        regions = _Regions(x, labels, index)
        return regions.told(formula(x, regions))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{told} of all entries, of those with labels above 0, or of those with each label in `index`."
    return _scipys(function)


def _variance(x: Any, regions: _Regions) -> Any:
    middle = regions.total(x) / regions.size
    apart = np.where(regions.number >= 0, x - middle[np.maximum(regions.number, 0)], 0.0)
    return regions.total(apart * apart) / regions.size


sum_labels = _statistic("sum_labels", "The sum", lambda x, regions: regions.total(x))
mean = _statistic("mean", "The mean", lambda x, regions: regions.total(x) / regions.size)
variance = _statistic("variance", "The variance", _variance)
standard_deviation = _statistic(
    "standard_deviation", "The standard deviation", lambda x, r: np.sqrt(_variance(x, r))
)
maximum = _statistic("maximum", "The largest", lambda x, regions: regions.each(x, np.max))
minimum = _statistic("minimum", "The smallest", lambda x, regions: regions.each(x, np.min))
median = _statistic("median", "The median", lambda x, regions: regions.each(x, np.median))


@_scipys
def center_of_mass(input: Any, labels: Any = None, index: Any = None) -> Any:
    """The centre of mass, a tuple of coordinates, of all entries, of those with labels above 0, or a list of them for each label in `index`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.ndimage.center_of_mass(x)[0])(np.array([1.0, 1.0, 0.0]))
    array([-0.25,  0.25,  0.75])
    """
    x = inexact(input)
    regions = _Regions(x, labels, index)
    weight = regions.total(x)
    grid = np.ogrid[tuple(slice(n) for n in np.shape(x))]
    along = [regions.told(regions.total(x * g) / weight) for g in grid]
    if regions.one:
        return tuple(along)
    return [tuple(v[i] for v in along) for i in np.ndindex(regions.shape[:1])]


# ------------------------------------------------------------------------------------------- in the frequencies


def _frequencies(x: Any, n: int, axis: int) -> list[np.ndarray]:
    """For each axis the frequencies of an image's Fourier transform: of a real one of n entries along `axis`, if n is not negative."""
    axis = normalize_axis_index(axis, np.ndim(x))
    found = []
    for i, size in enumerate(np.shape(x)):
        f = np.arange(size) / n if n >= 0 and i == axis else np.fft.fftfreq(size or 1)[:size]
        found.append(np.reshape(f, (-1,) + (1,) * (np.ndim(x) - i - 1)))
    return found


def _spectral(
    input: Any, value: Any, n: int, axis: int, output: Any, factor: Callable[[Any, Any], Any]
) -> Any:
    _demand_no_output(output)
    x = inexact(input)
    if np.ndim(value) and np.shape(value) != (np.ndim(x),):
        raise RuntimeError("sequence argument must have length equal to input rank")
    values = [value[i] for i in range(np.ndim(x))] if np.ndim(value) else [value] * np.ndim(x)
    for f, v in zip(_frequencies(x, n, axis), values, strict=True):
        x = x * factor(f, v)
    return x


@_scipys
def fourier_gaussian(
    input: Any, sigma: Any, n: int = -1, axis: int = -1, output: Any = None
) -> Any:
    """A Fourier transform times that of a Gaussian; differentiable by both.

    >>> import tapegrad as tg
    >>> tg.ndimage.fourier_gaussian(tg.ones(3), 0.1).round(3)
    tensor([1.   , 0.978, 0.978])
    """
    factor = lambda f, s: np.exp(-2.0 * (np.pi * s * f) ** 2)
    return _spectral(input, sigma, n, axis, output, factor)


@_scipys
def fourier_shift(input: Any, shift: Any, n: int = -1, axis: int = -1, output: Any = None) -> Any:
    """A Fourier transform of the image moved by `shift`; differentiable by both.

    >>> import numpy as np, tapegrad as tg
    >>> image = lambda s: np.real(np.fft.ifft(tg.ndimage.fourier_shift(np.fft.fft([1.0, 0.0, 0.0]), s)))
    >>> tg.grad(lambda s: image(s)[0])(0.5).__round__(4)
    -1.2092
    """
    return _spectral(input, shift, n, axis, output, lambda f, s: np.exp(-2j * np.pi * s * f))


@_scipys
def fourier_uniform(input: Any, size: Any, n: int = -1, axis: int = -1, output: Any = None) -> Any:
    """A Fourier transform times that of a box; differentiable by both.

    >>> import tapegrad as tg
    >>> tg.ndimage.fourier_uniform(tg.ones(3), 1.0).round(3)
    tensor([1.   , 0.827, 0.827])
    """
    return _spectral(input, size, n, axis, output, lambda f, s: np.sinc(f * s))


__all__ = [
    "black_tophat", "center_of_mass", "fourier_gaussian", "fourier_shift", "fourier_uniform", "grey_closing", "grey_dilation",
    "grey_erosion", "grey_opening", "maximum", "maximum_filter", "maximum_filter1d", "mean", "medfilt", "medfilt2d", "median",
    "median_filter", "minimum", "minimum_filter", "minimum_filter1d", "morphological_gradient", "morphological_laplace", "order_filter",
    "percentile_filter", "rank_filter", "standard_deviation", "sum_labels", "variance", "white_tophat",
]  # fmt: skip
