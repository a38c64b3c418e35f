"""Affine integers: a constant plus whole multiples of loop variables and sizes.

Bounds of loops, extents of buffers and indices of accesses are affine, so that every question about them is one of linear
inequalities (`order`).

Invariant: `terms` is sorted by name and has no zero coefficient, so equal numbers are equal objects of the dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """const + sum of coefficient * name.

    >>> print(affine("i") * 2 + 3)
    2*i + 3
    """

    terms: tuple[tuple[str, int], ...]
    const: int
    hashed: int

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Affine) and self.const == other.const and self.terms == other.terms
        )

    def __add__(self, other: Affine | int) -> Affine:
        return _combined(self, affine(other), 1)

    def __sub__(self, other: Affine | int) -> Affine:
        return _combined(self, affine(other), -1)

    def __mul__(self, k: int) -> Affine:
        return _made(tuple((n, c * k) for n, c in self.terms) if k else (), self.const * k)

    def __getitem__(self, name: str) -> int:
        """The coefficient of a name."""
        for n, c in self.terms:
            if n == name:
                return c
        return 0

    def names(self) -> set[str]:
        return {name for name, _ in self.terms}

    def replaced(self, values: Mapping[str, Affine]) -> Affine:
        """With numbers in the place of some names."""
        if not any(name in values for name, _ in self.terms):
            return self
        total: dict[str, int] = {}
        const = self.const
        for name, c in self.terms:
            value = values.get(name)
            if value is None:
                total[name] = total.get(name, 0) + c
                continue
            const += value.const * c
            for n, k in value.terms:
                total[n] = total.get(n, 0) + k * c
        return _gathered(total, const)

    def at(self, sizes: Mapping[str, int]) -> int:
        """Its value where every name has one."""
        return self.const + sum(c * sizes[n] for n, c in self.terms)

    def __str__(self) -> str:
        parts = [n if c == 1 else f"{c}*{n}" for n, c in self.terms]
        whole = " + ".join(parts + ([str(self.const)] if self.const or not parts else []))
        return whole.replace("+ -", "- ").replace("1*", "")


def _made(terms: tuple[tuple[str, int], ...], const: int) -> Affine:
    return Affine(terms, const, hash((terms, const)))


def _gathered(total: dict[str, int], const: int) -> Affine:
    return _made(tuple(sorted(t for t in total.items() if t[1])), const)


def _combined(a: Affine, b: Affine, k: int) -> Affine:
    """a + k * b."""
    if not b.terms:
        return _made(a.terms, a.const + k * b.const) if b.const else a
    total = dict(a.terms)
    for name, c in b.terms:
        total[name] = total.get(name, 0) + k * c
    return _gathered(total, a.const + k * b.const)


def affine(x: Affine | int | str) -> Affine:
    """A whole number, or a name, as an affine integer."""
    if isinstance(x, Affine):
        return x
    return _made(((x, 1),), 0) if isinstance(x, str) else _made((), x)


ZERO, ONE = affine(0), affine(1)
