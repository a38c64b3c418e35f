"""`tg.fft`: Fourier, cosine and sine transforms, under the names of np.fft and scipy.fft.

NumPy's are the same as `np.fft.f(tensor)`. SciPy's own names ask tensors what to do where this module is its backend:

    with scipy.fft.set_backend(tg.fft):
        scipy.fft.dct(t)
"""

from __future__ import annotations

import sys
from typing import Any

from .core import elsewhere
from .ops.fourier import (
    dct,
    dctn,
    dst,
    dstn,
    fft,
    fft2,
    fftfreq,
    fftn,
    fftshift,
    hfft,
    idct,
    idctn,
    idst,
    idstn,
    ifft,
    ifft2,
    ifftn,
    ifftshift,
    ihfft,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftfreq,
    rfftn,
)

__ua_domain__ = "numpy.scipy.fft"


def __ua_function__(method: Any, args: Any, kwargs: Any) -> Any:
    """SciPy's hook for backends: one call of a function of scipy.fft."""
    function = globals().get(method.__name__) if method.__name__ in __all__ else None
    if function is None:
        return NotImplemented
    # These are SciPy's alone, and ask for nothing that could be seen in the result.
    settings = {k: v for k, v in kwargs.items() if k not in ("overwrite_x", "workers", "plan")}
    from scipy.fft import skip_backend

    with skip_backend(sys.modules[__name__]):
        return function(*args, **settings)


__all__ = [
    "dct", "dctn", "dst", "dstn", "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "idct", "idctn", "idst", "idstn", "ifft",
    "ifft2", "ifftn", "ifftshift", "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip


__getattr__ = elsewhere.absent(__name__)


def __dir__() -> list[str]:
    return __all__
