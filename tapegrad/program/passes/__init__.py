"""The passes over loops, in order. Each takes and gives loops that mean the same; each can be left out.

forward      what is copied is read where it came from
products     sums over three long loops that are products of matrices are taken out of their loops, for BLAS
stage        what is added at several shifted places goes through a row of memory
distribute   a loop for each store, wherever order allows
interchange  rows innermost
straighten   loops that may run either way run upwards
rotate       what an iteration leaves zero is set to zero as the next one begins
split        three pieces where one iteration alone stands in the way of vectors
fuse         loops over the same buffers become one
share        what is dear and several loops in a row compute is computed once
first_write  zero and a sum is an assignment; stores that nothing reads go
contract     temporaries of one iteration lose the loop's extent
promote      sums and constants of an innermost loop in registers
prove        loops whose iterations are independent say so; nothing is moved any more

Every pass asks order anew of the program that it finds; none trusts what another one proved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..affine import Affine
from ..form import Program
from ..grouping import without_dead
from . import fusion, products
from .contraction import contracted, first_writes
from .forwarding import forwarded
from .fusion import distributed, fused
from .interchange import interchanged
from .parallel import proved, straightened
from .products import multiplied
from .registers import promoted
from .rotation import rotated
from .scope import Scope
from .sharing import shared
from .splitting import pieces
from .staging import staged

PASSES: dict[str, Callable[[list[Any], Scope], list[Any]]] = {
    "forward": forwarded,
    "products": multiplied,
    "stage": staged,
    "distribute": distributed,
    "interchange": interchanged,
    "straighten": straightened,
    "rotate": rotated,
    "split": pieces,
    "fuse": fused,
    "share": shared,
    "first_write": first_writes,
    "contract": contracted,
    "promote": promoted,
    "prove": proved,
}


def candidates(program: Program) -> list[tuple[Affine, ...]]:
    """What passes do for large extents alone: for each, the numbers that are none of them below zero where it may be done."""
    return [*products.candidates(program), *fusion.candidates(program)]


def claims(of: Sequence[Affine], sizes: dict[str, int]) -> tuple[Affine, ...]:
    """What holds of a candidate at these sizes, each at least 0: that all extents are large, or that one of them is small."""
    excess = [e.at(sizes) for e in of]
    return tuple(of) if min(excess) >= 0 else (of[excess.index(min(excess))] * -1 - 1,)


def optimised(program: Program, without: Collection[str] = ()) -> Program:
    """The program after all passes but those named `without`."""
    scope = Scope(program)
    for name, rewrite in PASSES.items():
        if name not in without:
            scope.count(program.body)
            program = program.of(rewrite(program.body, scope))
            if name == "first_write":
                program = without_dead(program)
    return program
