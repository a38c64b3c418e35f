"""Colourings of a matrix's columns: columns of one colour are found together, by one product of the matrix with a vector.

`columns`: no row has two entries in columns of one colour (Curtis, Powell and Reid 1974), so a product shows each entry. `star`: of a
symmetric matrix an entry may be read from its mirror image, so fewer colours do: neighbours differ, and no path of four vertices has
two colours (Gebremedhin, Manne and Pothen 2005, What Color Is Your Jacobian?, algorithm 4.1).

Data: CSR arrays `indptr`, `indices`; a colouring is a number for each column. Both are greedy, and give few colours, not always the fewest.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np


def columns(pattern: Any) -> np.ndarray:
    """A colour for each column of a sparse matrix of SciPy's, such that columns of one colour share no row."""
    by_columns = pattern.tocsc()
    taken = [0] * pattern.shape[0]  # per row the colours of its columns, as bits
    rows = by_columns.indices.tolist()
    colours = np.zeros(pattern.shape[1], int)
    for j, (a, b) in enumerate(pairwise(by_columns.indptr.tolist())):
        forbidden = 0
        mine = rows[a:b]
        for r in mine:
            forbidden |= taken[r]
        bit = ~forbidden & (forbidden + 1)
        for r in mine:
            taken[r] |= bit
        colours[j] = bit.bit_length() - 1
    return colours


def star(pattern: Any) -> np.ndarray:
    """A colour for each column of a symmetric pattern, such that each entry, or its mirror image, stands alone of its colour in its row."""
    indptr, indices = pattern.indptr.tolist(), pattern.indices.tolist()
    neighbours = [[w for w in indices[a:b] if w != v] for v, (a, b) in enumerate(pairwise(indptr))]
    colours = [-1] * pattern.shape[0]
    counts: list[dict[int, int]] = [
        {} for _ in colours
    ]  # per vertex, how many neighbours have a colour
    for v, near in enumerate(neighbours):
        forbidden = set()
        for w in near:
            if colours[w] >= 0:
                forbidden.add(colours[w])
                twice = colours[w]
                for x in neighbours[w]:
                    # A path v, w, x, y of the colours c, colours[w], c, colours[w] is what must not be.
                    if colours[x] >= 0 and counts[x][twice] > 1:
                        forbidden.add(colours[x])
            else:
                forbidden.update(counts[w])
        chosen = 0
        while chosen in forbidden:
            chosen += 1
        colours[v] = chosen
        for w in near:
            counts[w][chosen] = counts[w].get(chosen, 0) + 1
    return np.array(colours, int)


def readable(rows: np.ndarray, cols: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """For each entry, whether no other of its row stands in a column of the same colour."""
    if not len(rows):
        return np.zeros(0, bool)
    keys = rows.astype(np.int64) * (int(colours.max()) + 1) + colours[cols]
    _, places, count = np.unique(keys, return_inverse=True, return_counts=True)
    return count[places] == 1


__all__ = ["columns", "readable", "star"]
