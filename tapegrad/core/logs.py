"""The logger `tapegrad`: why a function was traced again, which engine took over, and what was compiled, in how long.

Nothing is said until somebody asks, by `tg.set_log_level("info")`, the environment variable TAPEGRAD_LOG, or Python's own `logging`.
Messages come from places that take milliseconds at least, so that asking whether anybody listens costs nothing that could be seen.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

NAME = "tapegrad"
VARIABLE = "TAPEGRAD_LOG"
LEVELS = ("debug", "info", "warning", "error")


def set_log_level(level: str | int | None) -> None:
    """Let the logger `tapegrad` tell what it has from this level on: "debug", "info", "warning", "error", or a number; None resets it.

    "info" tells of traces, with their reason and time, of derivatives of native functions, and of solvers that compile; "debug" of each
    piece of machine code, too. Where the program has set up no logging, messages go to stderr. The environment variable TAPEGRAD_LOG sets
    the level when tapegrad is imported. Raises ValueError for another name.

    >>> import tapegrad as tg
    >>> tg.set_log_level("warning")
    """
    import logging

    logger = logging.getLogger(NAME)
    if level is None:
        logger.setLevel(logging.NOTSET)
        return
    if isinstance(level, bool) or not isinstance(level, str | int):
        raise TypeError(
            f"set_log_level was given {type(level).__name__}, but a level is a name or a number: write one of {', '.join(LEVELS)}."
        )
    if isinstance(level, str) and level.lower() not in LEVELS:
        raise ValueError(
            f"the log level {level!r} was asked, but there are only {', '.join(LEVELS)}, and numbers: write one of these."
        )
    logger.setLevel(level.upper() if isinstance(level, str) else level)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("tapegrad %(levelname)s: %(message)s"))
        logger.addHandler(handler)


def tell(message: str, *args: object, level: str = "info") -> None:
    """Hand a message to the logger, if the process has loaded Python's logging at all."""
    logging = sys.modules.get("logging")
    if logging is not None:
        logging.getLogger(NAME).log(getattr(logging, level.upper()), message, *args)


@contextmanager
def timed(message: str, *args: object, level: str = "info") -> Iterator[None]:
    """Tell a message when the block has ended well, with the seconds that it took as the last argument."""
    start = time.perf_counter()
    yield
    tell(message, *args, time.perf_counter() - start, level=level)


def begin() -> None:
    """What the environment asks for, when the library is imported."""
    level = os.environ.get(VARIABLE)
    if level:
        try:
            set_log_level(int(level) if level.isdigit() else level)
        except ValueError as problem:
            warnings.warn(f"{VARIABLE}={level}: {problem}", RuntimeWarning, stacklevel=2)


__all__ = ["set_log_level", "tell", "timed"]
