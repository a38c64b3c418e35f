"""Affine integers: a constant plus whole multiples of loop variables, sizes and elements.

Bounds of loops, extents of buffers and indices of accesses are affine, so that every question about them is one of linear
inequalities (`order`). A whole number that is read from an array stands in an affine one as a name of its own (`Element`), which knows
its place and what bounds it.

Invariant: `terms` is sorted by name and has no zero coefficient, so equal numbers are equal objects of the dataclass. An element has
one value for each value of the names in its index, wherever in the program it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self


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
        """Every name that its value depends on; of an element these are the names in its index."""
        found: set[str] = set()
        for name, _ in self.terms:
            found |= name.names() if isinstance(name, Element) else {name}
        return found

    def elements(self) -> Iterator[Element]:
        """Its elements, and those in their indices."""
        for name, _ in self.terms:
            if isinstance(name, Element):
                yield name
                for a in name.args:
                    yield from a.elements()

    def moves(self, var: str) -> int | None:
        """By how much it moves with a name; None where an element does so by more or less."""
        return None if any(var in e.names() for e in self.elements()) else self[var]

    def replaced(self, values: Mapping[str, Affine]) -> Affine:
        """With numbers in the place of some names."""
        if not any(name in values or isinstance(name, Element) for name, _ in self.terms):
            return self
        total: dict[str, int] = {}
        const = self.const
        for name, c in self.terms:
            value = values.get(name)
            if value is None:
                if isinstance(name, Element):
                    name = name.replaced(values)
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
        parts = [f"{n}" if c == 1 else f"{c}*{n}" for n, c in self.terms]
        whole = " + ".join(parts + ([str(self.const)] if self.const or not parts else []))
        return whole.replace("+ -", "- ").replace("1*", "")


class Element(str):
    """The number at index `args` of `of`, a buffer of whole numbers to which nothing writes, as a name: equal where both are equal.

    `least` and `most`, names too, bound every number of the buffer. The buffer's own name stands first in it, so that the order of terms
    is the same in every process.
    """

    of: Any
    args: tuple[Affine, ...]
    least: Affine
    most: Affine

    def __new__(cls, of: Any, args: tuple[Affine, ...]) -> Self:
        self = super().__new__(cls, f"{of.name};{id(of)}({'; '.join(map(_spelled, args))})")
        self.of, self.args = of, args
        self.least, self.most = (affine(Extreme(of, most)) for most in (False, True))
        return self

    def names(self) -> set[str]:
        return {name for a in self.args for name in a.names()}

    def replaced(self, values: Mapping[str, Affine]) -> Element:
        new = tuple(a.replaced(values) for a in self.args)
        same = all(a is b for a, b in zip(new, self.args, strict=True))
        return self if same else Element(self.of, new)

    def facts(self) -> Iterator[Affine]:
        """What is known of it where it exists: each is at least 0."""
        e = affine(self)
        yield e - self.least
        yield self.most - e

    def claims(self) -> Iterator[Affine]:
        """It exists where each of these is at least 0."""
        for i, n in zip(self.args, self.of.extents, strict=True):
            yield i
            yield n - i - 1

    def __str__(self) -> str:
        return f"{self.of.name}[{', '.join(map(str, self.args))}]"

    def __format__(self, spec: str) -> str:
        return str(self)


class Counted(Element):
    """A number that the program itself finds: how often a loop ran that ends by a condition, how often it had run before, or a place.

    It is not negative, and at most `top` where that is known. Nothing takes it out of the loops around (`claims`).
    """

    top: Affine | None

    def __new__(cls, of: Any, args: tuple[Affine, ...], top: Affine | None = None) -> Self:
        self = super().__new__(cls, of, args)
        self.least, self.top = ZERO, top
        return self

    def replaced(self, values: Mapping[str, Affine]) -> Counted:
        top = None if self.top is None else self.top.replaced(values)
        return Counted(self.of, tuple(a.replaced(values) for a in self.args), top)

    def facts(self) -> Iterator[Affine]:
        yield affine(self)
        if self.top is not None:
            yield self.top - affine(self)

    def claims(self) -> Iterator[Affine]:
        yield affine(-1)


class Extreme(str):
    """The least or the greatest number in a buffer of whole numbers, as a name; of an empty one it is 0, and bounds nothing.

    A call finds it where an assumption of the program has it.
    """

    of: Any
    most: bool

    def __new__(cls, of: Any, most: bool) -> Extreme:
        self = super().__new__(cls, f"{'max' if most else 'min'}({of.name})")
        self.of, self.most = of, most
        return self


def _spelled(a: Affine) -> str:
    return f"{a.const}" + "".join(f"{c:+}{str.__str__(n)}" for n, c in a.terms)


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


def whole(e: Affine) -> bool:
    """Whether it has no elements, so that it is known once sizes and loop variables are."""
    return not any(isinstance(name, Element) for name, _ in e.terms)


ZERO, ONE = affine(0), affine(1)
