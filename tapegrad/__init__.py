"""Automatic differentiation for NumPy code: a flat tape, PyTorch's autograd, and JIT-compiled walks."""

from importlib import import_module as _import_module
from sys import modules as _modules

from . import autograd, fft, linalg, ops, wiring
from .autograd.anomaly_mode import debug_nans, is_anomaly_check_nan_enabled, is_anomaly_enabled
from .check import check_op
from .core import checking
from .core.executors import begin as _choose_engine
from .core.executors import engine, set_engine
from .core.handlers import held_back as _held_back
from .core.logs import begin as _listen
from .core.logs import set_log_level
from .core.mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .core.processor import limit_numba as _limit_numba
from .core.tape import Tape
from .core.tape import current as current_tape
from .core.tensor import Parameter, Tensor, as_tensor, from_dlpack, from_numpy, tensor
from .core.version import VERSION as __version__
from .errors import (
    CheckedAccessError,
    GradcheckError,
    GradientLost,
    GraphError,
    IndependentValue,
    NotDifferentiable,
    NotFinite,
    TapegradError,
    TraceError,
)
from .face import dispatch, dtypes, methods, mutators
from .face.buffers import plain_buffers
from .face.creation import *
from .face.dtypes import *
from .transforms.derivatives import (
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    linearize,
    value_and_grad,
    vjp,
)

_listen()
_choose_engine()
_limit_numba()  # no module of ours has imported Numba yet

# Names that are defined above stay: tg.zeros_like makes tensors and knows requires_grad, NumPy's does not.
globals().update({name: f for name, f in ops.public_names().items() if name not in globals()})


# Names whose modules load when they are first used: a program that fits nothing does not wait for the fitters.
_LAZY = {
    "associative_scan": ".transforms.loops",
    "check_adjoint": ".check.gradients",
    "check_gradient": ".check.gradients",
    "checkpoint": ".transforms.loops",
    "checkpointed": ".native",
    "compile": ".compiler",
    "cond": ".transforms.loops",
    "curve_fit": ".interop.scalar_solvers",
    "custom_fixed_point": ".interop.own_solvers",
    "custom_linear_solve": ".interop.own_solvers",
    "custom_root": ".interop.own_solvers",
    "dask": "",
    "deriv": ".interop.hips",
    "elementwise_grad": ".interop.hips",
    "fixed_point": ".interop.scalar_solvers",
    "fori_loop": ".transforms.loops",
    "from_jax": ".interop.xla",
    "from_torch": ".interop.pytorch",
    "get_num_threads": ".compiler.team",
    "grad_and_aux": ".interop.hips",
    "grad_named": ".interop.hips",
    "hessian_tensor_product": ".interop.hips",
    "hessian_vector_product": ".interop.hips",
    "holomorphic_grad": ".interop.hips",
    "integrate": "",
    "interpolate": "",
    "least_squares": ".interop.solvers",
    "make_ggnvp": ".interop.hips",
    "make_hvp": ".interop.hips",
    "make_jvp": ".interop.hips",
    "make_vjp": ".interop.hips",
    "map": ".transforms.loops",
    "minimize": ".interop.solvers",
    "minimize_scalar": ".interop.scalar_solvers",
    "multigrad_dict": ".interop.hips",
    "numpy": "",
    "make_dot": ".autograd.drawing",
    "native": "",
    "ndimage": "",
    "njit": ".native",
    "njit_vjp": ".native",
    "odeint": ".interop.fixed_steps",
    "optim": "",
    "profile": ".help.profiling",
    "optimize": "",
    "root": ".interop.solvers",
    "root_scalar": ".interop.scalar_solvers",
    "scan": ".transforms.loops",
    "set_num_threads": ".compiler.team",
    "signal": "",
    "sparse": "",
    "spatial": "",
    "special": "",
    "stats": "",
    "switch": ".transforms.loops",
    "tensor_jacobian_product": ".interop.hips",
    "to_jax": ".interop.xla",
    "to_torch": ".interop.pytorch",
    "vector_jacobian_product": ".interop.hips",
    "vmap": ".transforms.batching",
    "while_loop": ".transforms.loops",
}


_NUMPYS = frozenset(
    "ogrid mgrid ix_ r_ c_ s_ index_exp indices diag_indices tril_indices triu_indices mask_indices ndindex ndenumerate nditer "
    "broadcast finfo iinfo errstate seterr geterr printoptions set_printoptions get_printoptions dtype generic number integer "
    "signedinteger unsignedinteger inexact floating complexfloating int_ intp intc uint single half float16 longdouble isscalar "
    "issubdtype isdtype promote_types fromfunction fromiter hanning hamming blackman bartlett kaiser ufunc asarray asanyarray "
    "ascontiguousarray asfortranarray ndarray True_ False_ testing bitwise_not bitwise_left_shift bitwise_right_shift "
    "ScalarType poly1d".split()
)
"""Names of NumPy's that programs for `import tapegrad as np` use, and that are no functions of tensors."""


def _numpys(name: str) -> object:
    from . import numpy
    from .face import buffers

    if name in buffers.CONVERTERS:
        return buffers.converting(name, lambda made, a: as_tensor(made))
    return buffers.ndarray if name == "ndarray" else getattr(numpy, name)


def __getattr__(name: str) -> object:
    """A public name of a module that is loaded now."""
    if (
        name in dtypes.TORCHS_NAMES
    ):  # never stored: `from tapegrad import *` must not take Python's float away
        return dtypes.TORCHS_NAMES[name]
    if name in _NUMPYS:  # nor are these stored, for the same reason
        return _numpys(name)
    if name not in _LAZY:
        # Imported here: it is needed for names that are not there, and by who mistypes one.
        from .core.elsewhere import told

        hint = told(name, __dir__())
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(
            f"{message}: {hint.removesuffix('?')}{'?' if hint.endswith('?') else '.'}"
            if hint
            else message
        )
    place = __name__ + (_LAZY[name] or f".{name}")
    if place in _modules:
        module = _import_module(place)
    else:
        with _held_back():  # an interrupted import may leave half of Numba or SciPy
            module = _import_module(place)
    value = getattr(module, name) if _LAZY[name] else module
    if name != "map":  # nor is Python's map taken away
        globals()[name] = value
    return value


_PUBLIC_MODULES = {
    "autograd", "check", "dask", "fft", "integrate", "interpolate", "linalg", "native", "ndimage", "numpy", "optim", "optimize",
    "signal", "sparse", "spatial", "special", "stats",
}  # fmt: skip


def __dir__() -> list[str]:
    """The public names; modules that only the library itself uses are left out."""
    module = type(autograd)
    internal = {
        name
        for name, value in globals().items()
        if (name.startswith("_") and not name.endswith("__"))
        or (isinstance(value, module) and name not in _PUBLIC_MODULES)
    }
    return sorted({*globals(), *_LAZY} - internal)


# A star import takes what is loaded: `from tapegrad import *` does not wait for Numba.
__all__ = [name for name in __dir__() if name in globals() and not name.startswith("_")]
