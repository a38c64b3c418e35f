"""A function's source as one program of the form, for arrays of known shapes and settings of known values.

What `tg.njit` reads of a Numba function is read here of any function of the user's, its helpers included, so that `tg.compile` need not
record a long program entry by entry (`compiler/sources.py`). Nothing is compiled by Numba: its types alone are asked.

Invariant: shapes are numbers, so every index is proved to be in bounds; what is not lies outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numba
import numpy as np

from ..program.affine import affine
from ..program.arrays import Outside
from ..program.form import Program, loops
from . import forming, inference, pairs, settling
from .lowering import is_plain, lower


class Sourced:
    """A function's programs, all alike; raises Outside, or what lowering and Numba's types raise, where it has none."""

    def __init__(self, f: Any, given: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        """Read `f`, whose parameters are arrays and numbers of float64 like those `given`, and settings that are `fixed`."""
        if not is_plain(f):
            raise Outside("The function is wrapped by another.")
        tree = lower(f, fixed=fixed)
        kinds, returns = inference.infer(tree, tuple(map(numba.typeof, given.values())))
        self.typed = settling.Typed(tree, kinds, returns)
        pairs.dissolve(self.typed)
        program = self.typed.program
        if len(program.params) != len(given):
            raise Outside("A parameter is no array or number of floats.")
        shapes = [np.shape(x) for x in given.values()]
        self.parameters = [
            forming.Parameter(n, self.typed.types[n], tuple(map(affine, shape)) or None)
            for n, shape in zip(program.params, shapes, strict=True)
        ]
        found = forming.formed(self.typed, self.parameters)
        if found.written:
            raise Outside("The function writes to an argument.")
        if found.program.assumptions or found.periods:
            raise Outside("Sizes are not known.")
        if any(s.call or (s.until and s.until.claims) for s in loops(found.program.body)):
            raise Outside("Something is asked as the program runs, which has no error to raise.")
        if len(found.given) != len(given) or not program.results:
            raise Outside("There is no result, or a parameter that nothing may read.")
        self.results = len(program.results)
        self.alone = not program.returns_tuple
        self.constants: Sequence[np.ndarray] = [program.scope[name] for name in found.constants]
        """Arrays that the function has from outside: inputs of the program behind those of its parameters."""

    def program(self) -> Program:
        """The program, made anew."""
        return forming.formed(self.typed, self.parameters).program
