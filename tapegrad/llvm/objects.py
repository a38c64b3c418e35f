"""Functions of LLVM IR that look at objects of Python's and NumPy's.

`Text` is the text of one such function. The places of fields are those of CPython and of NumPy 2 on computers of 64 bits; `jit.entry_works`
looks at objects of this process before any such function is made.
"""

from __future__ import annotations

from collections.abc import Sequence

H = object.__basicsize__
DATA, ND, DIMS, BASE, DESCR, FLAGS, WEAK = H, H + 8, H + 16, H + 32, H + 40, H + 48, H + 56
"""Where NumPy's array object has its fields."""


class Text:
    """The text of one function, which looks at objects of Python's."""

    def __init__(self, head: str, named: set[str]) -> None:
        """An empty function; `named` collects the objects from outside that it names."""
        self.lines = [head, "entry:"]
        self.named = named
        self.count = 0

    def say(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def let(self, text: str) -> str:
        """The name of what an instruction computes."""
        self.count += 1
        self.say(f"%e{self.count} = {text}")
        return f"%e{self.count}"

    def mark(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def demand(self, condition: str, otherwise: str = "slow") -> None:
        """Go on where a condition holds, else at a label."""
        self.count += 1
        self.say(f"br i1 {condition}, label %on{self.count}, label %{otherwise}")
        self.mark(f"on{self.count}")

    def avoid(self, condition: str, then: str) -> None:
        """Go on where a condition does not hold, else at a label."""
        self.count += 1
        self.say(f"br i1 {condition}, label %{then}, label %on{self.count}")
        self.mark(f"on{self.count}")

    def outside(self, name: str) -> str:
        """An object from outside."""
        self.named.add(name)
        return f"@{name}"

    def equal(self, x: str, y: str | int, kind: str = "ptr") -> str:
        return self.let(f"icmp eq {kind} {x}, {y}")

    def dense(self, array: str, axes: int, descr: str) -> str:
        """Whether an array has so many axes and this dtype, is contiguous and aligned."""
        flags = self.let(f"and i32 {self.field(array, FLAGS, 'i32')}, 257")
        return self.all(
            [
                self.equal(self.field(array, ND, "i32"), axes, "i32"),
                self.equal(flags, 257, "i32"),
                self.equal(self.field(array, DESCR), descr),
            ]
        )

    def all(self, conditions: Sequence[str]) -> str:
        whole = conditions[0]
        for condition in conditions[1:]:
            whole = self.let(f"and i1 {whole}, {condition}")
        return whole

    def inside(self, base: str, offset: int) -> str:
        """The address so many bytes behind another."""
        return self.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    def field(self, base: str, offset: int, kind: str = "ptr") -> str:
        """What an object has at an offset."""
        return self.let(f"load {kind}, ptr {self.inside(base, offset)}")

    def place(self, base: str, i: int, kind: str = "ptr") -> str:
        """The address of an item."""
        return self.let(f"getelementptr {kind}, ptr {base}, i64 {i}")

    def item(self, base: str, i: int, kind: str = "ptr") -> str:
        return self.let(f"load {kind}, ptr {self.place(base, i, kind)}")
