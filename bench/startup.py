"""How long a fresh process takes to its first gradient, cold and warm.

The program is what a newcomer pastes: import the library, differentiate sum(x * sin(x)) at three
numbers, print. Timed is the whole process as the shell sees it, start and exit of Python included:
a library that leaves work to a thread which the exit must wait for has not hidden it. *Cold* means
that tapegrad's directory of compiled kernels is empty; *warm*, that it is the one which earlier
processes filled, so no cache is named.
"""

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from bench import measure

# fmt: off
PROGRAMS = {
    "tapegrad": (
        "import numpy as np, tapegrad as tg",
        "tg.grad(lambda x: (np.sin(x) * x).sum())(np.ones(3))",
    ),
    "autograd": (
        "import autograd.numpy as np; from autograd import grad",
        "grad(lambda x: (np.sin(x) * x).sum())(np.ones(3))",
    ),
    "jax": (
        "import jax, jax.numpy as np; jax.config.update('jax_enable_x64', True)",
        "jax.grad(lambda x: (np.sin(x) * x).sum())(np.ones(3))",
    ),
    "torch": (
        "import torch; x = torch.ones(3, dtype=torch.float64, requires_grad=True)",
        "((x.sin() * x).sum().backward(), x.grad)[1]",
    ),
}
# fmt: on
FILL = "; ".join(
    (PROGRAMS["tapegrad"][0], "tg.set_engine('replay')", PROGRAMS["tapegrad"][1], "print('{}')")
)
EXPECTED = math.sin(1.0) + math.cos(1.0)


def first_gradient(library: str, cache: str | None = None) -> dict[str, float]:
    """Seconds of the whole process, of the import and of the gradient in it; answer asserted."""
    importing, gradient = PROGRAMS[library]
    source = "\n".join(
        (
            "import time, json; start = time.perf_counter()",
            importing,
            "imported = time.perf_counter()",
            f"g = {gradient}",
            "done = time.perf_counter()",
            "print(json.dumps([imported - start, done - imported, *map(float, g)]))",
        )
    )
    whole, (imported, differentiated, *g) = measure.fresh(
        source, {"TAPEGRAD_ENGINE": "auto"} | ({"TAPEGRAD_CACHE_DIR": cache} if cache else {})
    )
    assert all(math.isclose(x, EXPECTED, rel_tol=1e-12) for x in g) and len(g) == 3
    return {"process": whole, "import": imported, "gradient": differentiated}


@contextmanager
def cold_cache() -> Iterator[str]:
    """An empty directory for tapegrad's compiled kernels."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield folder


def fill_cache() -> None:
    """Leave the kernels of the program in tapegrad's own directory: half a minute, the first time."""
    measure.fresh(FILL)
