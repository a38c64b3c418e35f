"""Derivatives of ordinary Numba code: loops, branches, arrays written in place.

lowering   source → program tree, helpers written out, jumps turned into flags
inference  the types that Numba finds for it
webs       names that mean several things told apart
settling   tuples dissolved, every operation with its one meaning
pairs      complex numbers as pairs of real ones
flow       shared memory, activity, what the reverse needs
rules      derivatives of operations; elementwise ones come from `tapegrad.ops`
spelled    functions of NumPy's without a rule, as programs of simpler ones
adjoint    the generated reverse sweep, plain Python
chunks     parallel loops shared among threads
folds      their products and extrema, put together behind them
finishing  its last form, which Numba compiles faster
runtime    what generated code calls
overloading the second engine: the function runs on numbers that record; its numbers are in `carriers`, what operations mean
           on them in `overloads`, how a program comes to use them in `retyping`
pipelines  Numba's compiler as derivatives use it
complaints what Numba says against a program, told of the user's lines
forming    the Numba front end of the program form (`tapegrad.program`): the tree becomes statements over regions
formulas   what its operations compute
formed     derivatives by the form, with the adjoint behind them for what does not fit
directions the same along directions: forward mode, second and third derivatives, with overloading behind them
store      generated code on disk
arguments  what generated code is called with
options    what `tg.njit` may be asked for
function   `tg.njit`: compiled variants, called from Python and from jitted code
entry      a native function on tensors
"""

from ..core import headroom

headroom.numba()  # before the modules below import it

from .function import NativeFunction, kept_bytes, njit, njit_vjp, release_memory  # noqa: E402
from .runtime import checkpointed  # noqa: E402

__all__ = ["NativeFunction", "checkpointed", "kept_bytes", "njit", "njit_vjp", "release_memory"]


def __dir__() -> list[str]:
    return __all__
