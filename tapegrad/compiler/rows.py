"""Rows along other axes: the nests of a large intermediate result that go through it block by block, whichever axis that takes.

The schedule's groups run over first axes. Of what is reduced over its first axis and then read again, entry by entry (softmax over
classes that come first, mixtures whose components do), each entry would wait for all rows, and the whole of it would have memory.
Along another axis the same nests may need a few rows at a time. So axes that nests read entry by entry from one another are *families*;
with each family as rows the schedule is made again, and the one that needs least memory is kept, if that is far less.

Invariant: any choice of axes is right (the schedule groups only what reads its own rows); a family says which are worth trying.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

LARGE = 1 << 22
"""Bytes of memory for intermediate results from which other axes are tried: more than the second-level cache holds."""

LESS = 0.5
"""Part of that memory that other axes may need at most."""

CACHED = 1 << 18
"""Bytes that pass from nest to nest for a block of rows: a part of the second-level cache, through which other arrays go too."""

ADJACENT = 64
"""Entries one after the other in a block at least: of narrow columns each line of memory is read several times."""

SHORTEST = 64
"""Rows of a family at least: fewer make no blocks."""

MOST_FAMILIES = 3
"""Families tried at most."""

Axis = tuple[int, int]
"""Number of a nest, and which of its axes."""


def families(
    spaces: Sequence[tuple[int, ...]], links: Iterable[tuple[Axis, Axis]]
) -> list[dict[int, int]]:
    """Axes that go together, as number of a nest -> its axis; those first whose nests have most entries."""
    joined: dict[Axis, Axis] = {}

    def first(axis: Axis) -> Axis:
        while axis in joined:
            axis = joined[axis]
        return axis

    found: dict[Axis, dict[int, int]] = {}
    for one, other in links:
        a, b = first(one), first(other)
        if a != b:
            joined[a] = b
    for nest, space in enumerate(spaces):
        for axis, length in enumerate(space):
            if length >= SHORTEST:
                found.setdefault(first((nest, axis)), {}).setdefault(nest, axis)
    others = [family for family in found.values() if any(family.values()) and len(family) > 1]
    others.sort(key=lambda family: -sum(math.prod(spaces[nest]) for nest in family))
    return others[:MOST_FAMILIES]
