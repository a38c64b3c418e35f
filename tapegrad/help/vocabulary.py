"""The vocabulary as data: what becomes of the derivative of every public function of NumPy and scipy.special.

Each name is in exactly one bucket: *differentiable*, *constant* (its result carries no derivative), *refused* (a tracked
tensor raises; there is a reason) or *not of arrays* (there is nothing to follow). Buckets are read from the
registries, so the table that `python -m tapegrad vocabulary` prints, and the guide shows, is never typed by hand; only
names that reach no registry, because they take no arrays or do not ask tensors what to do, are written down here.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from ..core.primitive import CONSTANTS, FUNCTIONS, REFUSED, UFUNCS

NAMESPACES = ("numpy", "numpy.linalg", "numpy.fft", "scipy.special")
BUCKETS = ("differentiable", "constant", "refused", "not of arrays")


class Entry(NamedTuple):
    """What becomes of a function: its bucket, and why, where that is not plain."""

    bucket: str
    reason: str = ""


# fmt: off
NOT_OF_ARRAYS = {
    "numpy": {
        "makes arrays from numbers and shapes":
            "arange bartlett blackman diag_indices empty eye full hamming hanning identity indices kaiser mask_indices ones tri "
            "tril_indices triu_indices zeros fromfunction",
        "converts to a plain array, which Tensor.__array__ refuses while a gradient would be lost":
            "array asanyarray asarray asarray_chkfinite ascontiguousarray asfortranarray asmatrix bmat require from_dlpack",
        "reads and writes files and buffers":
            "frombuffer fromfile fromiter fromregex fromstring genfromtxt load loadtxt",
        "prints":
            "base_repr binary_repr format_float_positional format_float_scientific info typename get_printoptions printoptions "
            "set_printoptions",
        "asks for types and properties of objects":
            "isdtype isfortran isscalar issubdtype iterable mintypecode promote_types",
        "computes with dates":
            "busday_count busday_offset datetime_as_string datetime_data is_busday",
        "configures NumPy, or makes functions and iterators":
            "frompyfunc nested_iters get_include getbufsize geterr geterrcall setbufsize seterr seterrcall show_config show_runtime "
            "test add_docstring add_newdoc add_newdoc_ufunc disp safe_eval in1d deprecate",
    },
    "numpy.linalg": {"runs NumPy's tests": "test"},
    "numpy.fft": {"runs NumPy's tests": "test", "makes arrays from numbers": "fftfreq rfftfreq"},
    "scipy.special": {
        "configures SciPy": "geterr seterr errstate test",
        "takes whole numbers, which have no derivative":
            "bernoulli euler stirling2 ai_zeros bei_zeros beip_zeros ber_zeros berp_zeros bi_zeros erf_zeros fresnel_zeros "
            "fresnelc_zeros fresnels_zeros jn_zeros jnjnp_zeros jnp_zeros jnyn_zeros kei_zeros keip_zeros kelvin_zeros ker_zeros "
            "kerp_zeros y0_zeros y1_zeros y1p_zeros yn_zeros ynp_zeros roots_legendre roots_chebyt roots_chebyu roots_chebyc "
            "roots_chebys roots_jacobi roots_laguerre roots_genlaguerre roots_hermite roots_hermitenorm roots_gegenbauer "
            "roots_sh_legendre roots_sh_chebyt roots_sh_chebyu roots_sh_jacobi p_roots t_roots u_roots c_roots s_roots j_roots "
            "l_roots la_roots h_roots he_roots cg_roots ps_roots ts_roots us_roots js_roots",
        "makes a polynomial from its degree":
            "legendre chebyt chebyu chebyc chebys jacobi laguerre genlaguerre hermite hermitenorm gegenbauer sh_legendre sh_chebyt "
            "sh_chebyu sh_jacobi",
    },
}
# Functions that are no ufuncs and turn tensors into arrays, which raises.
REFUSED_BY_NAME = {
    "it counts with whole numbers: gamma(x + 1), binom and poch are differentiable":
        "comb factorial2 factorialk perm",
    "it computes a sequence of functions at a plain number":
        "lmbda lqmn lqn lpmn clpmn lpn pbdn_seq pbdv_seq pbvv_seq riccati_jn riccati_yn "
        "mathieu_even_coef mathieu_odd_coef obl_cv_seq pro_cv_seq",
    "it is an ellipsoidal harmonic, for which no rule is declared": "ellip_harm ellip_harm_2 ellip_normal",
    "no rule is declared for it: use eval_legendre, eval_jacobi and sph_harm_y":
        "assoc_legendre_p assoc_legendre_p_all legendre_p legendre_p_all sph_harm_y_all sph_legendre_p "
        "sph_legendre_p_all",
}
# fmt: on


@cache
def entries(namespace: str) -> dict[str, Entry]:
    """Every public function of a namespace, by name: its bucket and the reason.

    Raises LookupError for a function that is in no bucket, or in two.

    >>> entries("numpy")["sin"].bucket, entries("scipy.special")["elliprd"].bucket
    ('differentiable', 'refused')
    """
    module = import_module(namespace)
    if namespace == "scipy.special":
        import_module("tapegrad.special")
    found = {}
    for name in sorted(dir(module)):
        of = getattr(module, name)
        if not name.startswith("_") and callable(of) and not isinstance(of, type):
            (found[name],) = _buckets(namespace, name, of)
    return found


def _buckets(namespace: str, name: str, of: Any) -> list[Entry]:
    """The buckets a function is in: one, or LookupError."""
    here = []
    if _hashable(of) and (of in FUNCTIONS or of in UFUNCS):
        here.append(Entry("differentiable"))
    if _hashable(of) and of in CONSTANTS:
        here.append(Entry("constant"))
    if _hashable(of) and of in REFUSED:
        here.append(Entry("refused", REFUSED[of]))
    for reason, names in NOT_OF_ARRAYS[namespace].items():
        if name in names.split():
            here.append(Entry("not of arrays", reason))
    if namespace == "scipy.special" and not isinstance(of, np.ufunc):
        for reason, names in REFUSED_BY_NAME.items():
            if name in names.split():
                here.append(Entry("refused", reason))
        if not here and hasattr(import_module("tapegrad.special"), name):
            here.append(Entry("differentiable", "as tg.special." + name))
    if len(here) != 1:
        which = " and ".join(e.bucket for e in here) or "in no bucket"
        raise LookupError(
            f"{namespace}.{name} is {which}, but a public function is in exactly one bucket: declare a rule for it, "
            "add it to CONSTANTS, or refuse it with a reason (tapegrad.core.primitive.refuse)."
        )
    return here


def _hashable(of: Any) -> bool:
    return getattr(type(of), "__hash__", None) is not None


def table() -> str:
    """The vocabulary in Markdown: counts, and the names of each bucket, folded away."""
    lines = [
        f"Of NumPy {np.__version__} and SciPy {import_module('scipy').__version__}:",
        "",
        "| namespace | " + " | ".join(BUCKETS) + " |",
        "| --- |" + " ---: |" * len(BUCKETS),
    ]
    for namespace in NAMESPACES:
        counts = [sum(e.bucket == b for e in entries(namespace).values()) for b in BUCKETS]
        lines.append(f"| `{namespace}` | " + " | ".join(map(str, counts)) + " |")
    for namespace in NAMESPACES:
        of = entries(namespace)
        lines += ["", "<details>", f"<summary>{namespace}</summary>", ""]
        for bucket in BUCKETS:
            by_reason: dict[str, list[str]] = {}
            for name, entry in of.items():
                if entry.bucket == bucket:
                    reason = entry.reason if bucket in ("refused", "not of arrays") else ""
                    by_reason.setdefault(reason, []).append(name)
            if by_reason:
                lines += [f"*{bucket[0].upper()}{bucket[1:]}*:"]
                for reason, names in sorted(by_reason.items()):
                    told = f" ({reason})" if reason else ""
                    lines.append(f"- {' '.join(f'`{n}`' for n in names)}{told}")
                lines.append("")
        lines += ["</details>"]
    return "\n".join(lines)


__all__ = ["BUCKETS", "NAMESPACES", "Entry", "entries", "table"]
