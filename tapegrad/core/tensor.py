"""Tensor: a NumPy array (or scalar) and a node that says where it came from.

`_value` is the value: an ndarray, or a NumPy scalar where NumPy's own operation gave one (0-d results: NumPy computes
with those ten times faster). `_node` is None (not tracked), a slot (result of a recorded op), or a `Leaf`
(requires grad, made by the user). Everything rare lives in `_extra`, which is unset on most tensors.

Invariant: a tracked tensor has an inexact dtype. Operators, ufuncs and methods that record are not written here:
each declaration in `ops/` adds its own (see primitive.py).
"""

from __future__ import annotations

import copy
import itertools
import operator
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..errors import GradientLost, demand_bool
from . import seams, storage
from .frames import collects, dispatches_on, is_own, searches
from .mode import INFERENCE, is_grad_enabled
from .tape import BIG, RECORDER, Leaf, current

if TYPE_CHECKING:
    from ..autograd.graph import Node
    from .attached import Attached
else:
    Attached = object

new = object.__new__
_ASKING = frozenset(("abc", "functools", "typing", f"{__name__.partition('.')[0]}.face.kinds"))
"""Modules that ask for a class in the name of the code that calls them."""

set_class = vars(object)["__class__"].__set__
"""Gives an object another class, past properties named `__class__`."""

Device = "cpu"


class Tensor(Attached):
    """An array that remembers how it was computed. Make one with `tg.tensor`.

    >>> import tapegrad as tg
    >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
    >>> y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([2., 4.])

    What it holds, in NumPy's words:

    >>> a = tg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> a.shape, a.ndim, a.size, a.dtype.name, a.itemsize, a.nbytes, a.strides, a.device
    ((2, 3), 2, 6, 'float64', 8, 48, (24, 8), 'cpu')
    >>> a.T.shape, a.mT.shape, a.real is a, a.imag.max().item(), a.flat[4].item()
    ((3, 2), (3, 2), True, 0.0, 5.0)
    >>> a.t().shape, a.permute(1, 0).shape, a.unsqueeze(0).shape, a[:1].expand(2, -1).shape
    ((3, 2), (3, 2), (1, 2, 3), (2, 3))

    Where it stands in the graph, in PyTorch's words:

    >>> x.requires_grad, x.is_leaf, x.grad_dtype.name
    (True, True, 'float64')
    >>> y.grad_fn, y.is_leaf, y.output_nr, y.retains_grad
    (<SumBackward0>, False, 0, False)
    """

    __slots__ = ("__weakref__", "_extra", "_node", "_value", "_view")

    _value: Any
    _node: Any
    _extra: dict[str, Any]
    _view: tuple[
        Tensor, int, Any
    ]  # unset on most tensors: parent, op and settings of a view (see views.py)

    # NumPy's operators hand over to ours even when the array stands on the left.
    __array_priority__ = 1000
    # Nor does a pandas Series on the left turn a tensor into an array: DataFrame's priority is 4000.
    __pandas_priority__ = 5000

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """An empty tensor, as PyTorch's; `new` and `blank` make those that are filled at once."""
        if (args or kwargs) and cls.__init__ is object.__init__:
            raise TypeError(
                f"{cls.__name__}() was given arguments, but data and sizes look alike there (PyTorch's Tensor(2, 3) has no values yet, "
                "Tensor([2, 3]) has two). Write tg.tensor(data), or tg.zeros(2, 3)."
            )
        t = new(cls)
        t._value = np.zeros(0)
        t._node = None
        return t

    # ------------------------------------------------------------------------------------ what it holds

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes, as NumPy's."""
        return self._value.shape

    @shape.setter
    def shape(self, value: Any) -> None:
        raise AttributeError(
            f"t.shape = {value!r} was asked, but a tensor keeps its shape (NumPy deprecates setting it): write t = t.reshape({value!r})."
        )

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._value.ndim

    @property
    def size(self) -> int:
        """Number of elements (NumPy's meaning; `numel()` is the same)."""
        # NumPy lets numbers of Python's alone keep single precision, not classes of them.
        return int(self._value.size)

    @property
    def dtype(self) -> np.dtype:
        """NumPy dtype of the elements."""
        return self._value.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self._value.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._value.dtype.itemsize

    @property
    def device(self) -> str:
        """Where the elements live: always "cpu"."""
        return Device

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from an element to the next along each axis."""
        return self._value.strides

    def numel(self) -> int:
        """Number of elements.

        >>> import tapegrad as tg
        >>> tg.ones(2, 3).numel()
        6
        """
        return self._value.size

    def dim(self) -> int:
        """Number of axes.

        >>> import tapegrad as tg
        >>> tg.ones(2, 3).dim()
        2
        """
        return self._value.ndim

    # ------------------------------------------------------------------------------------ autograd's side

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded; set it on leaves."""
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Start (or stop) recording operations on this tensor; returns it.

        Raises RuntimeError for integer dtypes, and for a result of recorded operations that is to stop.

        >>> import tapegrad as tg
        >>> tg.zeros(2).requires_grad_()
        tensor([0., 0.], requires_grad=True)
        """
        node = self._node
        demand_bool(requires_grad, "requires_grad")
        if requires_grad:
            if node is None:
                if self._value.dtype.kind not in "fc":
                    raise RuntimeError(
                        "only Tensors of floating point and complex dtype can require gradients, but this one has "
                        f"dtype {self._value.dtype}. Convert it first: t.astype(tg.float64)."
                    )
                if isinstance(self, InferenceTensor) and RECORDER.get() is not INFERENCE:
                    raise RuntimeError(
                        "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed. "
                        "Take a clone() of it."
                    )
                self._array()
                # Switched off and on again it is the same leaf: what was recorded before still ends there.
                self._node = leaf = self._pop("leaf") or Leaf(self._value, self)
                leaf.data = self._value
                leaf.grad = self._pop("grad")
                if (
                    self._value.nbytes > BIG
                ):  # entries keep the leaf, and a sweep may have to free it
                    current().weigh(self._value.nbytes)
        elif type(node) is Leaf:
            self._node = None
            self._put("leaf", node)
            if node.grad is not None:
                self._put("grad", node.grad)
        elif node is not None:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables, but this tensor is the result of "
                f"{self.grad_fn.name()}. If you want to use a computed variable in a subgraph that doesn't require "
                "differentiation use var_no_grad = var.detach()."  # type: ignore[union-attr]
            )
        return self

    @property
    def is_leaf(self) -> bool:
        """True unless the tensor is the result of a recorded operation."""
        return self._node is None or type(self._node) is Leaf

    @property
    def grad(self) -> Tensor | None:
        """The gradient accumulated by backward, in this tensor's dtype; None before the first one."""
        node = self._node
        if type(node) is Leaf:
            return node.grad
        grad = self._get("grad")
        if grad is None and node is not None and not self.retains_grad:
            import warnings

            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute "
                "won't be populated during backward. If you indeed want it, call .retain_grad() on this tensor "
                "before backward; if you meant a leaf, access that one instead.",
                UserWarning,
                stacklevel=2,
            )
        return grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        """Set the gradient; an error for another type, shape or dtype."""
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"assigned grad expected to be a Tensor or None but got {type(value).__name__}: write tg.tensor(g) for an array g."
                )
            if value is self:
                raise RuntimeError("can't assign Variable as its own grad: assign a clone().")
            if value.shape != self.shape:
                raise RuntimeError(
                    f"assigned grad has shape {value.shape}, but the tensor has shape {self.shape}: they must agree."
                )
            if value.dtype != self.dtype:
                raise RuntimeError(
                    f"assigned grad has dtype {value.dtype}, but the tensor has dtype {self.dtype}: use astype."
                )
        if type(self._node) is Leaf:
            self._node.grad = value
        else:
            self._put("grad", value)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def grad_dtype(self) -> np.dtype:
        """Dtype of this leaf's gradient: always its own."""
        if not self.is_leaf:
            raise RuntimeError("grad_dtype can only be accessed on leaf tensors.")
        return self.dtype

    @grad_dtype.setter
    def grad_dtype(self, value: Any) -> None:
        if not self.is_leaf:
            raise RuntimeError("grad_dtype can only be set on leaf tensors.")
        if value is not None and np.dtype(value) != self.dtype:
            raise RuntimeError(
                f"grad_dtype = {np.dtype(value)} was asked for a tensor of dtype {self.dtype}, but a gradient has the dtype of what it "
                "belongs to: convert the tensor with astype, or the gradient afterwards."
            )

    @property
    def grad_fn(self) -> Node | None:
        """A view of the entry that made this tensor, such as <MulBackward0>; None for leaves."""
        if self.is_leaf:
            return None
        return seams.node_of(self._node)

    @property
    def output_nr(self) -> int:
        """Which output of its operation this tensor is; 0 unless the operation has several."""
        return self._get("output_nr", 0)

    @property
    def retains_grad(self) -> bool:
        """Whether backward keeps the gradient of this non-leaf tensor in `.grad`."""
        return self._get("retains_grad", False)

    def retain_grad(self) -> None:
        """Let backward store this non-leaf tensor's gradient in `.grad`; nothing to do on a leaf.

        >>> import tapegrad as tg
        >>> x = tg.tensor(3.0, requires_grad=True)
        >>> y = x * x
        >>> y.retain_grad()
        >>> (2 * y).backward()
        >>> y.grad, y.retains_grad
        (tensor(2.), True)
        """
        if self._node is None:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False.")
        if not self.is_leaf and not self.retains_grad:
            from .executors import retain

            retain(self)
            self._put("retains_grad", True)

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add the gradient of this tensor to `.grad` of the leaves it was computed from.

        `gradient` (this tensor's shape) weighs the elements of a non-scalar; `retain_graph` keeps saved values
        for another walk; `create_graph` records the walk itself, for higher derivatives; `inputs` limits
        which tensors receive a gradient. Raises RuntimeError where the graph cannot be walked.

        >>> import tapegrad as tg
        >>> x = tg.tensor(3.0, requires_grad=True)
        >>> (x**2).backward()
        >>> x.grad
        tensor(6.)
        """
        seams.backward(self, gradient, retain_graph, create_graph, None, inputs)

    def detach(self) -> Tensor:
        """A tensor that shares memory with this one and is not tracked: gradients stop here.

        >>> import tapegrad as tg
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> tg.sum(x * x.detach()).backward()
        >>> x.grad
        tensor([1., 2.])
        """
        t = new(Tensor)
        t._value = self._array()
        t._node = None
        return t

    def detach_(self) -> Tensor:
        """Cut this tensor off from the graph that made it; returns it.

        >>> import tapegrad as tg
        >>> y = tg.tensor(3.0, requires_grad=True) ** 2
        >>> y.detach_().requires_grad
        False
        """
        if self._is_view():
            raise RuntimeError(
                "Can't detach views in-place: the tensor that this one is a view of would still be tracked. Use detach() instead."
            )
        if type(self._node) is Leaf:
            return self.requires_grad_(False)
        self._node = None
        return self

    @property
    def data(self) -> Tensor:
        """The value without the graph, sharing memory: as `detach()`.

        >>> import tapegrad as tg
        >>> w = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> w.data -= 1.0
        >>> w
        tensor([0., 1.], requires_grad=True)
        """
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        array = value._array() if isinstance(value, Tensor) else np.asarray(value)
        if type(self._node) is Leaf:
            if array.dtype.kind not in "fc":
                raise RuntimeError(
                    f"a tensor that requires grad cannot hold data of dtype {array.dtype}: use astype."
                )
            self._node.data = array
        self._value = array

    def is_inference(self) -> bool:
        """Whether the tensor was made under inference_mode.

        >>> import tapegrad as tg
        >>> with tg.inference_mode():
        ...     tg.ones(2).is_inference()
        True
        """
        return isinstance(self, InferenceTensor)

    @property
    def _version(self) -> int:
        """How often its memory was overwritten in place."""
        return storage.version(self._value)

    @property
    def _base(self) -> Tensor | None:
        """The tensor whose memory this view shows; None if this is no view."""
        from .views import base_of

        return base_of(self) if self._is_view() else None

    def _is_view(self) -> bool:
        """Whether this tensor shows the memory of another one."""
        return hasattr(self, "_view")

    # ------------------------------------------------------------------------------------ leaving the tape

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The value as a NumPy array that shares memory; refused while a gradient would be lost.

        >>> import tapegrad as tg
        >>> tg.tensor([1.0, 2.0], requires_grad=True).detach().numpy()
        array([1., 2.])
        """
        if self._node is not None and not force:
            raise GradientLost(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead: the array would not be "
                "tracked, and its gradient would be lost."
            )
        return self._array()

    def item(self, *args: Any) -> Any:
        """The one element as a Python number, or the one at the index that is given; the gradient stops there.

        Inside a transform a tensor stands for an array, and code for arrays means to go on with the number: GradientLost, as for tolist
        and tobytes. There `t.detach().item()` stops the gradient, and `t[()]` is the number with its gradient.
        """
        self._refuse_inside("t.item()", "t[i], t[()] or t.sum()")
        if args:
            return self._value.item(*args)
        return self._number()

    def _number(self) -> Any:
        if self._value.size != 1:
            raise RuntimeError(
                f"a Tensor with {self._value.size} elements cannot be converted to Scalar: index it, or use tolist()."
            )
        return self._value.item()

    def tolist(self) -> Any:
        """The elements as nested Python lists; the gradient stops there. Inside a transform: GradientLost, as for `item`."""
        self._refuse_inside("t.tolist()", "list(t)")
        return self._value.tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """The elements' memory as bytes; the gradient stops there. Inside a transform: GradientLost, as for `item`."""
        self._refuse_inside("t.tobytes()", "t.copy()")
        return self._value.tobytes(order)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if gives_way(sys._getframe(1)):
            made = np.empty((), object)
            made[()] = self
            return made
        self._refuse_to_leave("np.asarray(t) (or storing t into a plain ndarray)")
        if copy is False and dtype is not None and self._value.dtype != dtype:
            raise ValueError("a copy is needed to change the dtype, but copy=False was asked.")
        array = self._array()
        return np.array(array, dtype=dtype) if copy else np.asarray(array, dtype=dtype)

    @property
    def _data(self) -> Any:
        """Asked for, as `_mask` is, by numpy.ma, which computes with what it finds here: the tape sees none of it."""
        self._refuse_to_leave("what a masked array hides (numpy.ma; write np.where(mask, 0, t))")
        raise AttributeError("a tensor hides no entries")

    _mask = _data

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        """The memory as a DLPack capsule, for other array libraries to share; `stream` is None or -1, since there is none to wait for."""
        if self._node is not None:
            raise BufferError(
                "Can't export tensors that require gradient: the other library would not track it. Use tensor.detach()."
            )
        if stream is not None and not (type(stream) is int and stream == -1):
            raise BufferError(
                f"__dlpack__(stream={stream!r}) was asked for, but tensors lie in the processor's memory, which has no streams: pass None."
            )
        return self._array().__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array().__dlpack_device__()

    def __float__(self) -> float:
        self._refuse_to_leave("float(t) (or a function of the math module)")
        return float(self._number())

    def __complex__(self) -> complex:
        self._refuse_to_leave("complex(t) (or a function of the cmath module)")
        return complex(self._number())

    def __int__(self) -> int:
        return int(self._number())

    def __index__(self) -> int:
        if self._value.dtype.kind not in "iu" or self._value.ndim:
            raise TypeError(
                f"only a 0-d integer tensor can be an index, but this one has dtype {self.dtype} and shape {self.shape}."
            )
        return int(self._value)

    def __bool__(self) -> bool:
        if self._value.size != 1:
            raise RuntimeError(
                f"Boolean value of Tensor with {'more than one value' if self.size else 'no values'} "
                "is ambiguous: use t.any() or t.all()."
            )
        return bool(self._value)

    def _refuse_to_leave(self, what: str) -> None:
        """Raise GradientLost where a tracked tensor would become plain numbers, with the remedy for the library that asked."""
        if self._node is not None and is_grad_enabled():
            from .elsewhere import met  # about to raise: what it costs to find out does not matter
            from .printed import in_text, only_printed

            if in_text(sys._getframe(1)) or only_printed(sys._getframe(1)):
                return
            library = met(sys._getframe(1))
            if library:
                raise GradientLost(
                    f"{library}, or say that no gradient is wanted: t.detach(). (It was given a tensor that requires grad, "
                    "or got one from a function of yours, and the gradient would be lost.)"
                )
            raise GradientLost(
                f"{what} was asked of a tensor that requires grad, but the plain result would not be tracked and its "
                "gradient would be lost without a word. Use NumPy's function on the tensor (np.sin(t), not math.sin(t)), convert with "
                "t.astype(np.float64), not np.float64(t), join tensors with tg.stack, make buffers with tg.zeros, or say that no gradient "
                "is wanted: t.detach(), or `with tg.no_grad():`."
            )

    def _refuse_inside(self, what: str, instead: str) -> None:
        """Raise where this tensor stands for an array that a transform differentiates; elsewhere PyTorch's manners hold."""
        if self._node is not None and current().outer is not None and is_grad_enabled():
            from .printed import only_printed

            if only_printed(sys._getframe(1)):
                return
            raise GradientLost(
                f"{what} was asked inside a transform, of a tensor that is differentiated, but the plain result would not be tracked "
                f"and its gradient would be lost without a word. Write {instead} to go on with a gradient, or say that none is wanted: "
                "t.detach() first."
            )

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The namespace of the array API standard, for libraries that ask arrays for their functions."""
        array_api = seams.array_namespace()
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(
                f"version {api_version!r} of the array API standard was asked for, but tensors follow "
                f"{array_api.__array_api_version__} and those before it: ask for one of these."
            )
        return array_api

    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """The tensor itself: there is one device, "cpu"."""
        if device != Device or stream is not None:
            raise ValueError(
                f"a tensor was asked to move to device {device!r}, but there is one device: {Device!r}."
            )
        return self

    # ------------------------------------------------------------------------------------ copies

    def astype(self, dtype: Any, copy: bool = True) -> Tensor:
        """This tensor in another dtype; recorded, unless the new dtype cannot carry a gradient."""
        if not copy and self._value.dtype == dtype:
            return self
        dtype = np.dtype(dtype)
        if dtype.kind not in "fciub":
            raise TypeError(
                f"astype was asked for dtype {dtype}, but tensors hold numbers and booleans: take t.tolist() for other kinds."
            )
        return (
            seams.astype(self, dtype=dtype)
            if dtype.kind in "fc"
            else wrap(self._value.astype(dtype))
        )

    def clone(self) -> Tensor:
        """A copy in memory of its own, recorded: gradients flow through it.

        >>> import tapegrad as tg
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> y = x.clone()
        >>> y[0] = 0.0
        >>> tg.sum(y**2).backward()
        >>> x.grad
        tensor([0., 4.])
        """
        return seams.copy(self)

    def __copy__(self) -> Tensor:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A copy of a leaf with its gradient; in a transform a tracked clone; an error for other results."""
        if self._node is not None and current().outer is not None:
            # Inside a transform it stands for an array, whose copies are as differentiable as it is: a new leaf would lose that.
            t = memo[id(self)] = self.clone()
            return t
        if not self.is_leaf:
            from .elsewhere import met

            library = met(sys._getframe(1))
            if library:
                raise GradientLost(f"{library}.")
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                f"moment, but this one is the result of {self.grad_fn.name()}. Copy t.detach(), or use t.clone()."  # type: ignore[union-attr]
            )
        t = self._like(np.array(self._value))
        memo[id(self)] = t
        if self.requires_grad:
            t.requires_grad_()
        if self._grad_or_none() is not None:
            t.grad = copy.deepcopy(self._grad_or_none(), memo)
        return t

    def __reduce__(self) -> Any:
        """For pickle: values, requires_grad and gradient of a leaf."""
        if self._node is not None and current().outer is not None:
            raise GradientLost(
                "a tracked tensor was to be pickled inside a transform, but what is unpickled would not be connected to it. "
                "Pickle t.detach() if no gradient is wanted; copy.copy and copy.deepcopy make copies that are tracked."
            )
        if not self.is_leaf:
            raise RuntimeError(
                "Only leaf tensors can be pickled, but this one is the result of "
                f"{self.grad_fn.name()}, whose tape stays in this process. Pickle t.detach()."  # type: ignore[union-attr]
            )
        return _restore, (
            type(self),
            np.array(self._value),
            self.requires_grad,
            self._grad_or_none(),
        )

    def _like(self, array: Any) -> Tensor:
        t = new(type(self))
        t._value = array
        t._node = None
        return t

    def _grad_or_none(self) -> Tensor | None:
        return self._node.grad if type(self._node) is Leaf else self._get("grad")

    # ------------------------------------------------------------------------------------ as a sequence

    def __len__(self) -> int:
        if not self._value.ndim:
            raise TypeError("len() of a 0-d tensor")
        return len(self._value)

    def __iter__(self) -> Iterator[Tensor]:
        if not self._value.ndim:
            raise TypeError("iteration over a 0-d tensor: use t.item(), or reshape it first.")
        return (self[i] for i in range(len(self._value)))

    def __contains__(self, element: Any) -> bool:
        return bool(
            (self._value == (element._value if isinstance(element, Tensor) else element)).any()
        )

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __hash__(self) -> int:
        """By value for numbers without a derivative, as NumPy's: computed whole numbers and truth values, in transforms floats too.

        So `k in {0, 1}`, `table[np.argmin(x)]` and `seen.add(k)` mean what they mean in NumPy. Any other tensor is a key by identity:
        if two equal tracked numbers were one key, a cache would give the one the other's derivative. Inside a transform a search for a
        tracked number (`t in {0.0, 1.0}`, `table[t]`) would find nothing: GradientLost.
        """
        value = self._value
        if storage.is_number(value):
            if self._node is None and (
                value.dtype.kind in "biu" or (type(self) is Tensor and self._stands_for_an_array())
            ):
                return hash(value)
            if self._node is not None and self._stands_for_an_array():
                self._refuse_as_key(sys._getframe(1))
        return id(self)

    def _refuse_as_key(self, frame: FrameType) -> None:
        """Raise if code at a frame asks for the hash of a differentiated number to find an equal number, which it would not find."""
        if searches(frame):
            raise GradientLost(
                "a set or dict was searched for a number that is differentiated (t in {...}, table[t]), but such numbers are keys by "
                "identity, so an equal number is not found. Compare numbers with ==, or search for t.detach(), the value alone.",
                name="plain-value",
            )
        if collects(frame):
            raise GradientLost(
                "numbers that are differentiated were put into a set (or Counter), which would keep equal ones apart, since such numbers "
                "are keys by identity. Use np.unique(t), or make the set of t.detach(), the values alone.",
                name="plain-value",
            )

    @property
    def __class__(self) -> Any:
        """What `isinstance` sees. To the user's own code a tensor in a transform is what it stands for: an array, or NumPy's number.

        Where nothing is recorded it is a tensor: the code of a `Function`, or of a `no_grad` block, knows that it has tensors.
        """
        return self._class_for(sys._getframe(1))

    @__class__.setter
    def __class__(self, kind: type) -> None:
        set_class(self, kind)

    def _class_for(self, frame: FrameType) -> Any:
        """The class that code sees: `__class__` as it is asked from a frame."""
        if not self._stands_for_an_array() or not is_grad_enabled():
            return type(self)
        while frame.f_globals.get("__name__") in _ASKING and frame.f_back is not None:
            if dispatches_on(frame, type(self)):
                return type(self)
            frame = frame.f_back  # isinstance(t, numbers.Number)
        if not is_own(frame):
            return type(self)
        value = self._value
        if value.ndim:
            return np.ndarray
        kind = value.__class__
        return value.dtype.type if kind is np.ndarray else kind

    def _stands_for_an_array(self) -> bool:
        """Whether a transform or a trace runs, in which tensors stand for what NumPy's functions give."""
        return current().outer is not None or storage.tracing.get() is not None

    # ------------------------------------------------------------------------------------ printing

    def __repr__(self) -> str:
        return seams.tensor_text(self)

    def __str__(self) -> str:
        """As `repr`; inside a transform a number is written as NumPy's, since it stands for one: `table[str(np.argmin(x))]`."""
        return repr(self) if self.ndim or not self._stands_for_an_array() else format(self)

    def _repr_html_(self) -> str | None:
        return seams.tensor_html(self)

    def __format__(self, spec: str) -> str:
        """One number as Python prints it, `f"{loss:.3f}"`; a tensor with axes as its repr.

        Text is never refused, since printing a loss is how people look at it: who reads a number back from text loses its gradient
        (and is warned, `tg.IndependentValue`, where the value depends on nothing else).
        """
        if not self.ndim or (spec and self.size == 1):
            return format(self._number(), spec)
        if spec:
            raise TypeError(
                f"a format specification needs one element, but this tensor has shape {self.shape}."
            )
        return repr(self)

    # ------------------------------------------------------------------------------------ rare state

    def _array(self) -> np.ndarray:
        """The value as an ndarray; a NumPy scalar becomes a 0-d array that the tensor keeps, to be shared."""
        data = self._value
        if not isinstance(data, np.ndarray):
            self._value = data = storage.as_array(data)
        return data

    def _get(self, key: str, default: Any = None) -> Any:
        try:
            return self._extra.get(key, default)
        except AttributeError:
            return default

    def _put(self, key: str, value: Any) -> None:
        try:
            self._extra[key] = value
        except AttributeError:
            self._extra = {key: value}

    def _pop(self, key: str) -> Any:
        try:
            return self._extra.pop(key, None)
        except AttributeError:
            return None


blank = itertools.starmap(new, itertools.repeat((Tensor,)))
"""`next(blank)` is a Tensor whose slots are unset, for code that sets them at once: a call of its own less than `new(Tensor)`."""


class InferenceTensor(Tensor):
    """A result made under inference_mode: it may not enter a recorded computation that needs its value."""

    __slots__ = ()


class Parameter(Tensor):
    """A tensor that is meant to be fitted: it requires grad from the start, and shares memory with an array it is made from.

    >>> import tapegrad as tg
    >>> tg.Parameter(tg.zeros(2))
    tensor([0., 0.], requires_grad=True)
    """

    __slots__ = ()

    def __new__(cls, data: Any = (), requires_grad: bool = True) -> Parameter:
        made = as_tensor(data.detach() if isinstance(data, Tensor) else data)
        array = made._array()
        t = new(cls)
        t._value = array.astype(np.float64) if array.dtype.kind in "iub" else array
        t._node = None
        return t if requires_grad is False else t.requires_grad_(requires_grad)  # type: ignore[return-value]


def _restore(
    cls: type[Tensor], array: np.ndarray, requires_grad: bool, grad: Tensor | None
) -> Tensor:
    t = new(cls)
    t._value = array
    t._node = None
    if requires_grad:
        t.requires_grad_()
    if grad is not None:
        t.grad = grad
    return t


def _comparison(name: str) -> Any:
    compare = getattr(operator, name)

    def method(self: Tensor, other: Any) -> Any:
        raw = other._value if isinstance(other, Tensor) else other
        result = compare(self._value, raw)
        return result if result is NotImplemented else wrap(result)

    method.__name__ = method.__qualname__ = f"__{name}__"
    method.__doc__ = f"Elementwise comparison {name}: a tensor of booleans, never tracked."
    return method


for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Tensor, f"__{_name}__", _comparison(_name))


def value_of(x: Any) -> Any:
    """The value of a tensor, and anything else as it is."""
    return x._value if isinstance(x, Tensor) else x


def wrap(value: Any) -> Any:
    """A raw array or NumPy scalar as an untracked Tensor; anything else as it is."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    t = new(Tensor)
    t._value = value
    t._node = None
    return t


def fresh_leaf(array: Any) -> Tensor:
    """A tensor that requires grad and holds this very array, of real or complex floats."""
    t = new(Tensor)
    t._value = array
    t._node = Leaf(array, t)
    return t


def tensor(
    data: Any, dtype: Any = None, requires_grad: bool = False, *, device: Any = None
) -> Tensor:
    """A tensor with a copy of the data; float64 for Python floats, as NumPy decides.

    `data` may be numbers, nested sequences, arrays or untracked tensors. The one `device` is "cpu". Raises RuntimeError if an
    integer tensor is to require a gradient, GradientLost if a tensor in `data` is tracked.

    >>> import tapegrad as tg
    >>> tg.tensor([1.0, 2.0], requires_grad=True)
    tensor([1., 2.], requires_grad=True)
    """
    if device not in (None, Device):
        raise ValueError(
            f"a tensor was asked for on device {device!r}, but arrays live in main memory: leave device out."
        )
    return _leaf(_copied(unmasked(_plain(data)), dtype), requires_grad)


def as_tensor(data: Any, dtype: Any = None) -> Tensor:
    """The data as a tensor, sharing memory where it can; a tensor comes back as it is, graph included.

    >>> import numpy as np, tapegrad as tg
    >>> tg.as_tensor(np.arange(3))
    tensor([0, 1, 2])
    """
    if isinstance(data, Tensor):
        return data if dtype is None or data.dtype == dtype else data.astype(dtype)
    if isinstance(data, list | tuple) and _holds_tensors(data):
        return seams.array(data, dtype=dtype)
    return _leaf(storage.as_array(unmasked(data), dtype), False)


def _copied(data: Any, dtype: Any) -> Any:
    if isinstance(data, storage.StandIn):
        return storage.as_array(storage.duplicate(data), dtype)
    # The copy of a stretched array lies as what is computed from it does, which is another order than that of its strides.
    stretched = type(data) is np.ndarray and 0 in data.strides
    return np.array(data, dtype=dtype, order="C" if stretched else "K")


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor that shares the array's memory. Raises TypeError for other data, which `tg.as_tensor` takes.

    >>> import numpy as np, tapegrad as tg
    >>> a = np.zeros(2)
    >>> t = tg.from_numpy(a)
    >>> a[0] = 1
    >>> t
    tensor([1., 0.])
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(
            f"expected np.ndarray (got {type(array).__name__}): use tg.as_tensor for other data."
        )
    return _leaf(unmasked(array), False)


def from_dlpack(x: Any) -> Tensor:
    """A tensor that shares memory with an array of another library (PyTorch, JAX, CuPy on the CPU) through DLPack.

    Memory that the other library does not lend for writing makes a read-only tensor.

    >>> import numpy as np, tapegrad as tg
    >>> tg.from_dlpack(np.arange(3.0))
    tensor([0., 1., 2.])
    """
    if not hasattr(x, "__dlpack__"):
        raise TypeError(
            f"from_dlpack was given {type(x).__name__}, which has no __dlpack__: use tg.as_tensor for other data."
        )
    return _leaf(np.from_dlpack(x), False)


def unmasked(data: Any) -> Any:
    """The data, arrays of other classes as plain ones; masked arrays are refused, since a tensor has no mask."""
    if (
        not isinstance(data, np.ndarray)
        or type(data) is np.ndarray
        or isinstance(data, storage.StandIn)
    ):
        return data
    if isinstance(data, np.ma.MaskedArray):
        raise TypeError(
            "a masked array was given, but tensors have no mask, so that hidden entries would count. Fill them (array.filled(0.0)), "
            "or choose with np.where(array.mask, ..., ...)."
        )
    return data.view(np.ndarray)


def _leaf(array: np.ndarray, requires_grad: bool) -> Tensor:
    if array.dtype.kind not in "fciub":
        raise TypeError(
            f"a tensor was asked of data that NumPy holds with dtype {array.dtype}, but tensors hold numbers and booleans. "
            "Check that all rows have one length and that nothing in it is None or text."
        )
    t = new(InferenceTensor if RECORDER.get() is INFERENCE else Tensor)
    t._value = array
    t._node = None
    return t if requires_grad is False else t.requires_grad_(requires_grad)


def _holds_tensors(data: Sequence[Any]) -> bool:
    return any(
        isinstance(x, Tensor) or (isinstance(x, list | tuple) and _holds_tensors(x)) for x in data
    )


def gives_way(frame: FrameType) -> bool:
    """Whether the operator of a sparse matrix of SciPy's asks for plain numbers: of an object it knows nothing about, it returns
    NotImplemented, and Python asks the tensor's operator."""
    return frame.f_code.co_name in ("_matmul_dispatch", "_divide") and str(
        frame.f_globals.get("__name__")
    ).startswith("scipy.sparse.")


def _plain(data: Any) -> Any:
    """Nested sequences of tensors as nested sequences of arrays."""
    if isinstance(data, Tensor):
        data._refuse_to_leave("a new tensor holding a copy of t's value, tg.tensor(t),")
        return data._value
    if isinstance(data, list | tuple) and _holds_tensors(data):
        return [_plain(x) for x in data]
    return data


__all__ = [
    "InferenceTensor", "Parameter", "Tensor", "as_tensor", "from_dlpack", "from_numpy", "tensor", "wrap",
]  # fmt: skip
