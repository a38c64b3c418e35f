"""What tapegrad costs, beside other libraries and beside gradients written by hand.

`workloads` holds the programs, `peers` the ways to differentiate them, `measure` the way a figure
is taken. `pytest bench` times with pytest-benchmark, `pytest bench --benchmark-disable` only checks
the answers, and `python -m bench.ratios` prints the figures that the guide quotes.

Everything is timed on one thread. The libraries read their limits once, when they are first
imported, so the limits are set here, in the module that every way into this folder imports first.
"""

import os
import sys

THREAD_LIMITS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "TAPEGRAD_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}
for _name, _limit in THREAD_LIMITS.items():
    # Numba reads its limit again and again, and refuses another one once it has begun.
    if _name != "NUMBA_NUM_THREADS" or "numba" not in sys.modules:
        os.environ.setdefault(_name, _limit)
