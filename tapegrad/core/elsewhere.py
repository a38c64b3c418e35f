"""What other libraries call it, and which of them cannot take a tensor: answers for who comes from there.

`told` answers a name that is not here, `tg.pmap` or `tg.sigmoid`. A row says what to write instead, or why there is no such
thing. Names that one of our modules has (`tg.erf` is `tg.special.erf`) need no row: they are looked up. Nothing here is a public
name: `hasattr(tg, "pmap")` stays False. `met` names the function of SciPy, or another library of compiled code, that has
asked a tracked tensor for its plain numbers.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import FrameType
from typing import Any

MODULES = (
    "special",
    "linalg",
    "fft",
    "signal",
    "integrate",
    "interpolate",
    "ndimage",
    "spatial",
    "spatial.distance",
    "autograd",
    "optim",
    "optim.lr_scheduler",
    "sparse",
    "sparse.linalg",
    "autograd.graph",
    "autograd.functional",
    "autograd.forward_ad",
)
"""Where a name may be, apart from the top."""

# fmt: off
INSTEAD = {
    # transforms
    "pmap":            "there is no pmap: tg.compile(tg.vmap(f)) is one loop, tapegrad.dask sums a loss over partitions on many cores",
    "jit":             "write tg.compile(f) for whole NumPy programs, tg.njit for loops in the style of Numba",
    "jacfwd":          'write tg.jacobian(f, mode="forward")',
    "jacrev":          'write tg.jacobian(f, mode="reverse")',
    "grad_and_value":  "write tg.value_and_grad(f), which returns the value first",
    "value_and_gradient": "write tg.value_and_grad(f)",
    "derivative":      "write tg.grad(f) for a function of one number, tg.elementwise_grad(f) for one of arrays",
    "Derivative":      "write tg.elementwise_grad(f)",
    "Gradient":        "write tg.grad(f)",
    "Jacobian":        "write tg.jacobian(f)",
    "Hessian":         "write tg.hessian(f)",
    "custom_vjp":      "subclass tg.autograd.Function, with forward and backward",
    "custom_jvp":      "subclass tg.autograd.Function, with forward and jvp",
    "defvjp":          "subclass tg.autograd.Function, with forward and backward",
    "stop_gradient":   "write t.detach()",
    "detach":          "write t.detach()",
    "remat":           "write tg.checkpoint(f)",
    "lax":             "at the top are tg.scan, tg.map, tg.associative_scan, tg.fori_loop, tg.while_loop, tg.cond and tg.switch",
    "func":            "the transforms are at the top: tg.grad, tg.vjp, tg.jvp, tg.linearize, tg.jacobian, tg.hessian, tg.vmap",
    "tree_map":        "use optree.tree_map, or a comprehension",
    "custom_gradient": "subclass tg.autograd.Function, with forward and backward",
    "make_jaxpr":      "write tg.compile(f), call it, and print its .source; print(tg.current_tape()) shows what is recorded now",
    "tree_util":       "transforms take trees as they are; use optree.tree_map, or a comprehension",
    "tree":            "transforms take trees as they are; use optree.tree_map, or a comprehension",
    "extend":          "subclass tg.autograd.Function, with forward and backward",
    "misc":            "transforms, solvers and optimisers take trees as they are: nothing is flattened by hand",
    "test_util":       "write tg.check_gradient(f, x).assert_ok()",
    "prange":          "write numba.prange in a function of tg.njit(parallel=True)",
    "jnp":             "write import tapegrad.numpy as jnp, or NumPy itself, whose functions take tensors",
    # checking, solving
    "check_grad":      "write tg.check_gradient(f, x), or with gradient=g for one of your own",
    "check_grads":     "write tg.check_gradient(f, x).assert_ok()",
    "approx_fprime":   "write tg.grad(f)(x), which is exact; tg.check_gradient(f, x) measures",
    "leastsq":         "write tg.least_squares(f, x0)",
    "fsolve":          "write tg.root(f, x0)",
    # PyTorch
    "load":            "write np.load(file); the state of an optimizer goes through state_dict() and load_state_dict()",
    "utils":           "there is no DataLoader: index arrays, as x[rng.permutation(n)[:64]]; tg.optim.clip_grad_norm_ clips, "
                       "tg.checkpoint saves memory",
    "randperm":        "write np.random.default_rng().permutation(n)",
    "cross_entropy":   "write -np.mean(tg.special.log_softmax(t, axis=1)[np.arange(n), labels])",
    "nn":              "there are no layers: write the model with NumPy's functions, and tg.Parameter; tg.special has softmax, "
                       "log_softmax and expit, tg.optim.clip_grad_norm_ clips",
    "functional":      "there are no layers: write the model with NumPy's functions; tg.special has softmax, log_softmax and expit",
    "randn_like":      "write tg.randn(*t.shape)",
    "rand_like":       "write tg.rand(*t.shape)",
    "FloatTensor":     "write tg.tensor(data, dtype=np.float32)",
    "DoubleTensor":    "write tg.tensor(data), whose numbers are float64 unless the data say otherwise",
    "LongTensor":      "write tg.tensor(data, dtype=np.int64)",
    "BoolTensor":      "write tg.tensor(data, dtype=bool)",
    "cuda":            "arrays live in main memory: there is no GPU",
    "device":          "arrays live in main memory: there is no GPU",
    "relu":            "write t.relu(), or np.maximum(t, 0), whose slope at 0 is a half",
    "sigmoid":         "write t.sigmoid() or tg.special.expit(t)",
    "lgamma":          "write tg.special.gammaln(t)",
    "norm":            "write np.linalg.norm(t)",
    "logdet":          "write np.linalg.slogdet(t)[1]",
    "matrix_exp":      "write tg.linalg.expm(t)",
    "repeat_interleave": "write np.repeat(t, n, axis=...)",
    "topk":            "write np.sort(t)[..., ::-1][..., :k], or t[places] with places from np.argsort",
    "trapz":           "write np.trapezoid(y, x)",
    "view_as_real":    "write np.stack([z.real, z.imag], axis=-1)",
    "view_as_complex": "write t[..., 0] + 1j * t[..., 1]",
    "is_tensor":       "write isinstance(t, tg.Tensor)",
    "set_default_dtype": "numbers are float64 unless an array, or dtype=, says otherwise",
    "Variable":        "write tg.tensor(data, requires_grad=True)",
    "variable":        "write tg.tensor(data, requires_grad=True)",
    "get_default_dtype": "numbers are float64 unless an array, or dtype=, says otherwise",
    "set_default_tensor_type": "numbers are float64 unless an array, or dtype=, says otherwise",
    "Generator":       "draw with NumPy's Generator, np.random.default_rng(seed)",
    "seed":            "write tg.manual_seed(n) for tg.randn and tg.rand, np.random.default_rng(n) for NumPy's Generator",
    "Size":            "shapes are tuples: write t.shape",
    "Module":          "there are no layers: write the model with NumPy's functions, and tg.Parameter",
    "conv2d":          "write tg.signal.convolve or tg.ndimage.correlate",
    "distributions":   "write tg.stats.norm.logpdf(x, loc, scale) and its neighbours; tg.stats.norm.rvs draws",
    "sparse_coo_tensor": "write tg.sparse.coo_array((values, (rows, columns)), shape)",
    "broadcast_tensors": "write tg.broadcast_arrays(t, u)",
    "GradientTape":    "write tg.grad(f), or tensors with requires_grad=True and backward()",
    "random":          "draw with NumPy's Generator, or tg.randn, tg.rand and tg.randint for tensors",
    "normal":          "draw with NumPy's Generator, or tg.randn for tensors",
    "PRNGKey":         "there are no keys: draw with NumPy's Generator",
    "scipy":           "write tg.special, tg.stats, tg.linalg, tg.fft; its solvers are tg.minimize, tg.least_squares and tg.root",
    "math":            "NumPy's functions are at the top, as in tg.sin",
}
# fmt: on


AREAS = {
    "scipy.integrate": "tg.integrate has its integrals and solvers of initial and boundary value problems; write others with NumPy's "
    "functions (a Python loop, tg.scan), or as a loop in tg.njit",
    "scipy.interpolate": "tg.interpolate has cubic and B-splines, tables on lines and grids, radial bases and triangulations",
    "scipy.optimize": "tg.minimize, tg.least_squares, tg.root, tg.root_scalar and others in tg.optimize give SciPy's solvers their "
    "derivatives, and what they find is differentiable; tg.custom_root takes any other solver",
    "scipy.stats": "tg.stats has the distributions whose density has a formula, statistics of samples and tests made of them; ranks have "
    "no derivative",
    "scipy.signal": "tg.signal has convolutions, filters, their design, spectra and resampling; write others with NumPy's functions, "
    "tg.fft and tg.scan",
    "scipy.ndimage": "tg.ndimage has filters, grey morphology, splines and geometric transforms; write others with NumPy's functions",
    "scipy.spatial": "tg.spatial has distances, KDTree and rotations; where the result is no function of numbers, give it t.detach()",
    "scipy.sparse": "A @ x, x @ A, x * A and x + A take tensors as they are; else make the matrix with tg.sparse.csr_array(A), and solve "
    "with tg.sparse.linalg",
    "pandas": "Take the values out: df.to_numpy() @ w, s.to_numpy() * w",
    "matplotlib": "Pictures need no gradient: give it t.detach()",
}
"""What to do instead of calling functions of a library's part."""

FOREIGN = {
    "pint": ("Quantity", "has a unit, which its derivative would have to carry: pass q.magnitude, and put units on the result"),
    "astropy": ("Quantity", "has a unit, which its derivative would have to carry: pass q.value, and put units on the result"),
    "polars": ("Series", "is no array of NumPy's: pass s.to_numpy()"),
    "torch": ("Tensor", "is no array of NumPy's: pass t.detach().numpy(). Code written for PyTorch is wrapped by tg.from_torch(f)"),
    "jax": ("Array", "is no array of NumPy's: pass np.asarray(x). Code written for JAX is wrapped by tg.from_jax(f)"),
    "jaxlib": ("Array", "is no array of NumPy's: pass np.asarray(x). Code written for JAX is wrapped by tg.from_jax(f)"),
    "tensorflow": ("Tensor", "is no array of NumPy's: pass t.numpy()"),
    "cupy": ("ndarray", "lives on a GPU: pass x.get()"),
}  # fmt: skip
"""Libraries whose values look like arrays, with what to pass instead: as they are they would lose their units, or fail far from here."""


PLACES = {
    "scipy.signal": "argrelextrema argrelmax argrelmin find_peaks find_peaks_cwt peak_prominences peak_widths",
    "scipy.ndimage": "binary_closing binary_dilation binary_erosion binary_fill_holes binary_hit_or_miss binary_opening "
    "binary_propagation distance_transform_bf distance_transform_cdt distance_transform_edt find_objects label maximum_position "
    "minimum_position value_indices watershed_ift",
    "scipy.spatial": "Delaunay HalfspaceIntersection Voronoi tsearch",
    "scipy.spatial.distance": "dice hamming jaccard rogerstanimoto russellrao sokalsneath yule",
    "scipy.stats": "ansari brunnermunzel cumfreq ecdf epps_singleton_2samp fligner friedmanchisquare kendalltau kruskal ks_1samp ks_2samp "
    "kstest mannwhitneyu median_test mode mood percentileofscore rankdata ranksums relfreq somersd spearmanr spearmanrho tiecorrect "
    "weightedtau wilcoxon",
    "scipy.linalg": "bandwidth ishermitian issymmetric",
}
"""Functions of SciPy's that find places, ranks, counts or labels: steps of what they are given, whose slope is 0 wherever there is one."""

CONSTANTS = {
    "scipy.signal": "besselap buttap buttord cheb1ap cheb1ord cheb2ap cheb2ord check_COLA check_NOLA choose_conv_method "
    "closest_STFT_dual_window correlation_lags czt_points ellipap ellipord firls firwin2 firwin_2d iircomb iirdesign kaiser_atten "
    "kaiser_beta kaiserord max_len_seq remez savgol_coeffs unit_impulse",
    "scipy.ndimage": "generate_binary_structure iterate_structure",
    "scipy.interpolate": "generate_knots",
    "scipy.integrate": "lebedev_rule newton_cotes",
    "scipy.linalg": "dft fiedler_companion hadamard helmert hilbert invhilbert invpascal pascal",
    "scipy.special": "ai_zeros bei_zeros beip_zeros ber_zeros bernoulli berp_zeros bi_zeros erf_zeros euler factorial2 factorialk "
    "fresnel_zeros fresnelc_zeros fresnels_zeros jn_zeros jnjnp_zeros jnp_zeros jnyn_zeros kei_zeros keip_zeros kelvin_zeros ker_zeros "
    "kerp_zeros mathieu_even_coef mathieu_odd_coef stirling2 y0_zeros y1_zeros y1p_zeros yn_zeros ynp_zeros roots_legendre roots_chebyt "
    "roots_chebyu roots_chebyc roots_chebys roots_jacobi roots_laguerre roots_genlaguerre roots_hermite roots_hermitenorm "
    "roots_gegenbauer roots_sh_legendre roots_sh_chebyt roots_sh_chebyu roots_sh_jacobi",
    "scipy.fft": "fhtoffset get_workers next_fast_len prev_fast_len set_workers",
    "scipy.optimize": "Bounds LinearConstraint NonlinearConstraint OptimizeResult OptimizeWarning show_options",
}
"""Functions of SciPy's whose results are constants of a model: made of orders, sizes and settings."""


def absent(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module under SciPy's names: an AttributeError that says why a name of SciPy's is not there, and what to do."""
    theirs = module.replace("tapegrad", "scipy", 1)

    def missing(name: str) -> Any:
        """Raise AttributeError for a name that the module lacks."""
        message = f"module {module!r} has no attribute {name!r}"
        if not name.startswith("_") and hasattr(import_module(theirs), name):
            why = _settled(theirs, name)
            if not why:
                detached = "or give it t.detach().numpy() where no gradient is wanted"
                why = f"has no derivative here. {AREAS.get(theirs, SOLE)}; {detached}"
            message += f": {theirs}.{name} {why}."
        raise AttributeError(message)

    return missing


def _settled(place: str, name: str) -> str:
    """Why a function of SciPy's has no derivative at all, and what to do; "" of any other."""
    if name in PLACES.get(place, "").split():
        return (
            "finds places, ranks or counts, which have no derivative. Give it t.detach().numpy(); what is computed from the entries at the "
            "places that it finds, t[places], is differentiable"
        )
    if name in CONSTANTS.get(place, "").split():
        return "makes constants, which stand beside tensors as they are: call it with plain numbers"
    return ""


UNITS = frozenset({"pint", "astropy"})
"""Libraries whose values have units, and which take tensors as they are."""


def library_of(value: object) -> str:
    """The library of `FOREIGN` that a value belongs to; "" for any other value."""
    library = type(value).__module__.partition(".")[0]
    return library if library in FOREIGN else ""


def foreign(value: object) -> str:
    """A value of another library's in words, with what to pass instead; "" for any other value.

    >>> foreign(1.0)
    ''
    """
    library = library_of(value)
    if not library:
        return ""
    kind, why = FOREIGN[library]
    what = type(value).__name__
    return f"a {library} {what if what != 'ArrayImpl' else kind}, which {why}"


def refuse_foreign(value: object, name: str) -> None:
    """Raise TypeError for a value of another library's, which `name` was asked to differentiate by."""
    if what := foreign(value):
        raise TypeError(f"{name} was asked to differentiate by {what}.")


def refuse_units(value: object, what: str) -> None:
    """Raise TypeError for a value with a unit, which would be lost; `what` says whose value it is."""
    if library_of(value) in UNITS:
        raise TypeError(f"{what} is {foreign(value)}.")


def foreign_at(error: BaseException) -> str:
    """What to add to an error that another library raised about a tensor, which it does not take; "" where that is not known."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    library = "" if at is None else str(at.tb_frame.f_globals.get("__name__")).partition(".")[0]
    if "must be Tensor, not Tensor" in str(error):
        library = "torch"
    if library not in FOREIGN.keys() - UNITS:
        return ""
    kind, why = FOREIGN[library]
    return f"{library} takes no tensors of tapegrad, and a {library} {kind} {why}."


COMPUTES = "computes with plain numbers"

SOLE = "Write it with NumPy's functions, or as a tg.autograd.Function with a backward of its own"


def told(name: str, known: list[str]) -> str:
    """What to say of a name that the top of the library does not have; `known` are those that it has.

    >>> told("jacfwd", [])
    'write tg.jacobian(f, mode="forward")'
    >>> told("erf", [])
    'write tg.special.erf'
    >>> told("minimise", ["minimize"])
    'did you mean tg.minimize?'
    """
    if name in INSTEAD:
        return INSTEAD[name]
    if name.startswith("_") or find_spec(f"tapegrad.{name}") is not None:
        return ""  # asked by machinery, not by a person: `from .. import vecmath` asks first, and imports then
    for module in MODULES:
        place = import_module(f"tapegrad.{module}")
        if name in getattr(place, "__all__", vars(place)) and callable(getattr(place, name)):
            return f"write tg.{module}.{name}"
    of_tensors = getattr(import_module("tapegrad").Tensor, name, None)
    if of_tensors is not None:
        method = callable(of_tensors)
        return (
            f"it is a method: write t.{name}(...)"
            if method
            else f"it is of tensors: write t.{name}"
        )
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.75)
    return f"did you mean {' or '.join(f'tg.{c}' for c in close)}?" if close else ""


def met(frame: FrameType | None) -> str:
    """Who, above this frame, has asked for plain numbers, and what to write instead; "" where that is no library we know."""
    while frame is not None and _root(frame) in ("tapegrad", "numpy", "copy"):
        if frame.f_globals.get("__name__", "").startswith("tapegrad.interop."):
            return (
                ""  # a solver of ours called the user's function: SciPy, further up, has not asked
            )
        if kind := _of_polynomials(frame):
            return f"{kind} {COMPUTES}. {_POLYNOMIALS}"
        frame = frame.f_back
    root = _root(frame)
    if root not in ("scipy", "matplotlib", "pandas"):
        return ""
    frames = []
    while frame is not None and _root(frame) == root:
        frames.append(frame)
        frame = frame.f_back
    place, name = next(filter(None, map(_public, reversed(frames))), (root, ""))
    called = f"{place}.{name}" if name else place
    for module in (
        "linalg",
        "fft",
        "special",
        "stats",
        "signal",
        "integrate",
        "interpolate",
        "ndimage",
        "spatial",
        "spatial.distance",
        "sparse",
        "sparse.linalg",
    ):
        if place != f"scipy.{module}" or (module == "sparse" and "." in name):
            continue  # methods of sparse matrices have no namesakes
        ours = import_module(f"tapegrad.{module}")
        listed = getattr(ours, "__all__", vars(ours))
        if name.partition(".")[0] in listed:
            return f"{called} {COMPUTES}: write tg.{module}.{name}"
        if module == "sparse" and f"{name.removesuffix('_matrix')}_array" in listed:
            return f"{called} {COMPUTES}: write tg.sparse.{name.removesuffix('_matrix')}_array"
    if why := _settled(place, name):
        return f"{called} {why}"
    area = AREAS.get(place) or AREAS.get(place.rpartition(".")[0]) or AREAS.get(root, SOLE)
    return f"{called} {COMPUTES}. {area}"


_POLYNOMIALS = (
    "np.polyval(c, x), polyder, polyint, polymul, polyadd, roots and polyfit take tensors, with the highest power first; "
    "write series of other polynomials by their recurrence"
)


def _of_polynomials(frame: FrameType) -> str:
    """The class or module of NumPy's polynomials whose code a frame runs; "" for any other frame."""
    module = str(frame.f_globals.get("__name__"))
    if module.startswith("numpy.polynomial."):
        return module
    kind = type(frame.f_locals.get("self"))
    return "np.poly1d" if (kind.__module__, kind.__name__) == ("numpy", "poly1d") else ""


def _root(frame: FrameType | None) -> str:
    return "" if frame is None else str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _public(frame: FrameType) -> tuple[str, str] | None:
    """The public module of a library's function and its name there; None of what is not public."""
    wrapped = frame.f_locals.get("f")  # in SciPy's wrappers: arrays are converted before it runs
    own = (str(frame.f_globals["__name__"]), frame.f_code.co_name)
    inner = (getattr(wrapped, "__module__", None) or "", getattr(wrapped, "__name__", ""))
    for module, name in (own, inner):
        for depth in (2, 3):  # scipy.linalg, scipy.sparse.linalg
            place = ".".join(p for p in module.split(".")[:depth] if not p.startswith("_"))
            known = vars(sys.modules[place]) if place in sys.modules else {}
            if place.partition(".")[0] == _root(frame) and name in known:
                return place, name
    inside = ".".join(p for p in own[0].split(".")[:2] if not p.startswith("_"))
    name = own[1]
    owner = type(frame.f_locals.get("self")).__name__.removesuffix("_gen")
    for place in (inside, _root(frame)):  # pandas.Series is made in pandas.core
        if owner in vars(sys.modules[place]):
            made = name in ("__init__", "__call__")
            return place, owner if made else f"{owner}.{name}"
    return None
