"""The graph as PyTorch shows it: views (tape, slot) made when somebody asks, never stored on the tape.

A `Node` holds the slot object of an entry, which keeps the entry alive as a tensor would. Two views of one entry are
equal. `AccumulateGrad` is the view of a leaf.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import primitive, sweep
from ..errors import GraphError
from ..tape import FREED, IN0, OP, OUT, STRIDE, Leaf, Slot, locate
from ..tensor import Tensor, new


class Node:
    """View of one entry: how a tensor was made, and from what.

    >>> import tapegrad as tg
    >>> x = tg.tensor(2.0, requires_grad=True)
    >>> (x * 3).grad_fn
    <MulBackward0>
    """

    __slots__ = ("_name", "_slot")

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        code, k = self._entry()
        self._name = primitive.entry_name(code[k : k + STRIDE])

    def _entry(self) -> tuple[list[Any], int]:
        place = locate(self._slot)
        if place is None:
            raise GraphError(sweep.SECOND_TIME)
        tape, position = place
        return tape.code, position * STRIDE

    def name(self) -> str:
        """Name of the backward operation, such as "MulBackward0"."""
        return self._name

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """For each operand, the view of what made it and its output number; (None, 0) for constants.

        >>> import tapegrad as tg
        >>> x = tg.tensor(2.0, requires_grad=True)
        >>> (x * 3).grad_fn.next_functions
        ((<AccumulateGrad>, 0), (None, 0))
        """
        code, k = self._entry()
        if code[k + OP] == FREED:
            raise GraphError(sweep.SECOND_TIME)
        nodes = sweep.operands(code, k)
        arity = primitive.OPS[code[k + OP]].arity
        nodes = nodes if type(code[k + IN0]) is tuple else nodes[:arity]
        return tuple((None if node is None else node_of(node), 0) for node in nodes)

    def __repr__(self) -> str:
        return f"<{self._name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and other._slot == self._slot

    def __hash__(self) -> int:
        return hash((Node, self._slot))


class AccumulateGrad:
    """View of a leaf: where a walk ends and `.grad` grows."""

    __slots__ = ("_leaf",)

    def __init__(self, leaf: Leaf) -> None:
        self._leaf = leaf

    def name(self) -> str:
        """Always "AccumulateGrad"."""
        return "AccumulateGrad"

    @property
    def next_functions(self) -> tuple[()]:
        """Nothing comes before a leaf."""
        return ()

    @property
    def variable(self) -> Tensor:
        """The leaf tensor that receives the gradient."""
        t = self._leaf.tensor()
        if t is None:
            # The user dropped the tensor; the leaf owns its value and gradient, so the tensor can be made again.
            import weakref

            t = new(Tensor)
            t._data = self._leaf.data
            t._node = self._leaf
            self._leaf.tensor = weakref.ref(t)
        return t

    def __repr__(self) -> str:
        return "<AccumulateGrad>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccumulateGrad) and other._leaf is self._leaf

    def __hash__(self) -> int:
        return hash((AccumulateGrad, id(self._leaf)))


class GradientEdge(NamedTuple):
    """A place where a gradient can be asked: a node and the number of one of its outputs."""

    node: Any
    output_nr: int = 0

    @property
    def _node(self) -> Any:
        return self.node._slot if isinstance(self.node, Node) else self.node._leaf

    def _value(self) -> Any:
        if isinstance(self.node, AccumulateGrad):
            return self.node._leaf.data
        code, k = self.node._entry()
        if code[k + OP] == FREED:
            raise GraphError(sweep.SECOND_TIME)
        return code[k + OUT]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the gradient that flows along this edge."""
        return self._value().shape

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the gradient that flows along this edge."""
        return self._value().dtype

    @property
    def size(self) -> int:
        """Number of elements of the gradient that flows along this edge."""
        return self._value().size


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge that stands for a tensor's gradient; keeps the graph, but not the tensor's value."""
    if tensor._node is None:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients."
        )
    return GradientEdge(node_of(tensor._node), tensor.output_nr)


def node_of(node: Any, output_nr: int = 0) -> Any:
    """The view of a slot or a leaf."""
    return AccumulateGrad(node) if type(node) is Leaf else Node(node)


__all__ = ["AccumulateGrad", "GradientEdge", "Node", "get_gradient_edge"]
