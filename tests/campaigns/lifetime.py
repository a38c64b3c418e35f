"""Lifetime: whatever a user leaves on the graph lives exactly as long as a tensor that needs it.

A trial makes a random graph, leaves objects in every way there is (a Function's ctx, hooks and notes of nodes, hooks of tensors and
leaves, packed values), and drops tensors in random order. The graph is modelled beside it, with derivatives. After each step an object is
alive if and only if the model reaches it from a tensor that is held; derivatives of what is held agree with the model's.
"""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tapegrad as tg
from tests.campaigns.runner import main


class Object:
    """What a user leaves: it can be watched."""

    def __call__(self, *_: Any) -> None: ...


@dataclass
class Node:
    """One tensor in the model: its value, its derivative by each leaf, what it was made of, and the objects left on it."""

    value: float
    slopes: dict[int, float]
    inputs: tuple[int, ...]
    objects: list[weakref.ref[Object]] = field(default_factory=list)


class Scale(tg.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor, thing):
        ctx.thing, ctx.factor = thing, factor
        if factor > 1:
            ctx.save_for_backward(x)
        return x * factor

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None, None


class World:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.model: list[Node] = []
        self.held: dict[int, Any] = {}
        self.touched: set[int] = set()  # what a backward may have given up

    def add(self, t: Any, slopes: dict[int, float], inputs: tuple[int, ...]) -> int:
        number = len(self.model)
        self.model.append(Node(t.item(), slopes, inputs))
        self.held[number] = t
        return number

    def pick(self) -> int:
        return int(self.rng.choice(list(self.held)))

    # ------------------------------------------------------------------------------------------ steps

    def leaf(self) -> None:
        value = float(self.rng.uniform(0.5, 1.5))
        number = len(self.model)
        self.add(tg.tensor(value, requires_grad=True), {number: 1.0}, ())

    def op(self) -> None:
        kind, i, j = int(self.rng.integers(5)), self.pick(), self.pick()
        x, y, a, b = self.held[i], self.held[j], self.model[i], self.model[j]
        if kind < 2:
            t, slopes, inputs = x * 1.25, {k: 1.25 * s for k, s in a.slopes.items()}, (i,)
        elif kind == 2:
            t, slopes = np.sin(x), {k: np.cos(a.value) * s for k, s in a.slopes.items()}
            inputs = (i,)
        else:
            t = x + y if kind == 3 else x * y
            u, v = (1.0, 1.0) if kind == 3 else (b.value, a.value)
            slopes = {
                k: u * a.slopes.get(k, 0.0) + v * b.slopes.get(k, 0.0)
                for k in a.slopes.keys() | b.slopes.keys()
            }
            inputs = (i, j)
        self.add(t, slopes, inputs)

    def function(self) -> None:
        i, thing, factor = self.pick(), Object(), float(self.rng.choice([0.5, 1.5]))
        t = Scale.apply(self.held[i], factor, thing)
        number = self.add(t, {k: factor * s for k, s in self.model[i].slopes.items()}, (i,))
        self.model[number].objects.append(weakref.ref(thing))

    def packed(self) -> None:
        i, thing = self.pick(), Object()
        x, a = self.held[i], self.model[i]
        with tg.autograd.graph.saved_tensors_hooks(lambda t: (t, thing), lambda pair: pair[0]):
            t = x * x
        number = self.add(t, {k: 2 * a.value * s for k, s in a.slopes.items()}, (i,))
        self.model[number].objects.append(weakref.ref(thing))

    def leave(self) -> None:
        i, thing = self.pick(), Object()
        t, way = self.held[i], int(self.rng.integers(5))
        if i in self.touched:
            return
        if way == 0:
            t.register_hook(thing)
        elif t.is_leaf:
            if way < 3:
                t.register_post_accumulate_grad_hook(thing)
            else:
                edge = tg.autograd.graph.get_gradient_edge(t)
                edge.node.register_prehook(thing)
        elif way == 1:
            t.grad_fn.metadata[weakref.ref(thing)] = thing
        elif way == 2:
            t.grad_fn.register_hook(thing)
        else:
            t.grad_fn.register_prehook(thing)
        self.model[i].objects.append(weakref.ref(thing))

    def drop(self) -> None:
        if len(self.held) > 1:
            del self.held[self.pick()]

    def backward(self) -> None:
        i = self.pick()
        try:
            self.held[i].backward()
        except RuntimeError as error:
            assert self.reach([i]) & self.touched and "second time" in str(error), error
        self.touched |= self.reach([i])

    def grad(self) -> str | None:
        i = self.pick()
        reached = self.reach([i])
        if reached & self.touched:
            return None
        for k in reached & self.held.keys():
            if self.held[k].is_leaf:
                (g,) = tg.autograd.grad(self.held[i], self.held[k], retain_graph=True)
                if not np.isclose(g.item(), self.model[i].slopes[k], rtol=1e-9, atol=1e-12):
                    return f"a derivative is {g.item()}, and should be {self.model[i].slopes[k]}"
        return None

    # ------------------------------------------------------------------------------------------ the law

    def reach(self, roots: Any) -> set[int]:
        seen, unseen = set(), list(roots)
        while unseen:
            i = unseen.pop()
            if i not in seen:
                seen.add(i)
                unseen += self.model[i].inputs
        return seen

    def fault(self) -> str | None:
        reached = self.reach(self.held)
        for i, node in enumerate(self.model):
            alive = [ref() is not None for ref in node.objects]
            if i not in reached and any(alive):
                return f"an object lives on after what needed it was dropped: {sum(alive)} at {i}"
            if i in reached and i not in self.touched and not all(alive):
                return f"an object was freed while somebody needs it, at {i}"
        return None


STEPS = ("leaf", *("op",) * 5, "function", "packed", *("leave",) * 2, *("drop",) * 5, "grad", "backward")  # fmt: skip


def trial(rng: np.random.Generator) -> str | None:
    tg.set_engine(str(rng.choice(["sweep", "auto"])))
    gc.disable()
    world = World(rng)
    world.leaf()
    try:
        for _ in range(int(rng.integers(20, 200))):
            step = str(rng.choice(STEPS))
            fault = getattr(world, step)() or world.fault()
            if fault is not None:
                return f"{fault}, after {step}"
    finally:
        gc.enable()
    world.held.clear()
    return world.fault()


if __name__ == "__main__":
    main("lifetime", trial, 1000)
