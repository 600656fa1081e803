"""What the functions of the namespace have in common."""
from __future__ import annotations

import operator
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import _dtypes as dt
from ._array import Array
from ._engine import Engine
from ._graph import UNCOUNTED, Node, Shape, const, describe, host
from ._numbers import wire
from ._requests import Steps

Axis = Union[None, int, Tuple[int, ...]]

FITS = 65504.0  # into every floating dtype, that is, into float16
AxisError = getattr(np, "exceptions", np).AxisError  # an IndexError and a ValueError
PLAIN = (bool, int, float, complex)
COUNTED = (int, float)
MANY = 4096

_numbers: Dict[Tuple[Union[int, float], type, dt.DType], Node] = {}


class Base:
    """Arrays in, arrays out; nothing here waits for the server unless its name says so."""

    device: str
    _engine: Engine

    def _run(self, steps: Steps[Any]) -> Any:
        raise NotImplementedError

    def asarray(self, a: Any) -> Array:
        raise NotImplementedError

    def _hosted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, of values that are fetched for it."""
        raise NotImplementedError

    def _changing(self, name: str, function: Callable[..., Any], x: Array, *args: Any) -> None:
        """Calls what writes to its first argument."""
        raise NotImplementedError

    def _array(self, op: str, args: Sequence[Node], shape: Shape, dtype: dt.DType, /, **attrs: Any) -> Array:
        return self._wrap(Node(op, tuple(args), tuple(shape), dtype, {k: attribute(v) for k, v in attrs.items()}))

    def _wrap(self, node: Node, shared: bool = False) -> Array:
        return Array._of(node, self, shared)  # type: ignore[arg-type]

    def _from_host(self, value: Any, dtype: Optional[dt.DType] = None) -> Array:
        """Values of this process; it is uploaded when the server needs it."""
        v = dt.taken(value)
        t = dtype or dt.dtype_of(v.dtype)
        return self._wrap(host(dt.cast(v, t) if v.dtype != t else v if v.flags.owndata and v.flags.writeable else v.copy(), t))

    def _given(self, value: "np.ndarray[Any, Any]", dtype: dt.DType) -> Array:
        """Values that are somebody else's, who may change them afterwards."""
        return self._from_host(value.copy(), dtype)

    def _copied(self, x: Array) -> Array:
        """An array of its own. It shares memory that nobody writes to while it is shared."""
        node, memory = x._node, x._base._node.handle
        if memory is None or memory.steady:
            return self._wrap(node)
        return self._settled(self._array("astype", (node,), node.shape, node.dtype, dtype=dt.name_of(node.dtype)))

    def _here(self, x: Array) -> Array:
        """Of another client's array, one that this one can compute with."""
        return x

    def _settled(self, x: Array) -> Array:
        """Evaluated, where that may be waited for."""
        return x

    def _fetched(self, node: Node) -> "np.ndarray[Any, Any]":
        value: "np.ndarray[Any, Any]" = self._run(self._engine.fetch(node))
        return value

    # --- operands ---

    def _taken(self, x: Any) -> Array:
        """An array of what NumPy's functions take for one."""
        if isinstance(x, Array):
            return self._check(x)
        if isinstance(x, (np.ndarray, np.generic, list, tuple, *PLAIN)):
            return self.asarray(x)
        if isinstance(x, range) or hasattr(x, "__array__"):
            return self.asarray(dt.taken(x))
        raise TypeError(f"an array is wanted, not {type(x).__name__}")

    def _into(self, out: Any, r: Any, casting: str = "same_kind") -> Array:
        """What `out=` asks for: the result becomes the values of an array that is there."""
        if isinstance(out, tuple) and len(out) == 1:
            out = out[0]
        if not isinstance(out, Array):
            raise TypeError(f"out: an array of arrayd's is wanted, not {type(out).__name__}: values come into this process by np.asarray(x)")
        r = self._taken(r)
        if r.shape != out.shape:
            raise ValueError(f"out: a result of shape {r.shape} does not fit into shape {out.shape}")
        dt.check_cast("out: a result of", r.dtype, out.dtype, casting)
        out[...] = r
        return out

    def _check(self, x: Any, what: str = "an array") -> Array:
        if not isinstance(x, Array):
            raise TypeError(f"{what} is wanted, not {type(x).__name__}")
        home: Any = x._client
        if home is not self and home._engine.url != self._engine.url:
            raise ValueError("the array belongs to another daemon")
        return x

    def _operand(self, value: Any, beside: dt.DType) -> Node:
        """An array's node; a number of NumPy's, which has a dtype as in NumPy 2; or a Python number in the dtype that it has beside
        another."""
        if isinstance(value, Array):
            return self._check(value)._node
        if isinstance(value, np.bool_):  # whose dtype gives way in any case
            value = bool(value)
        if isinstance(value, np.generic):
            return const(value, dt.dtype_of(value.dtype))
        if isinstance(value, (bool, int, float, complex)):
            return self._number(value, dt.scalar_with(value, beside))
        if isinstance(value, (np.ndarray, list, tuple)):
            v = dt.taken(value)
            return self._given(v, dt.dtype_of(v.dtype))._node
        raise TypeError(f"an array or a number is wanted, not {type(value).__name__}")

    def _number(self, value: Any, dtype: dt.DType) -> Node:
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            if isinstance(value, int) and not info.min <= value <= info.max:
                raise OverflowError(f"{value} does not fit into {dt.name_of(dtype)}")
        elif dtype is not dt.FLOAT64 and (isinstance(value, complex) or not -FITS <= value <= FITS):
            with np.errstate(over="ignore"):
                return const(value, dtype)
        return const(value, dtype)

    def _pair(self, name: str, x1: Any, x2: Any) -> Tuple[Node, Node]:
        """The operands, one of which may be a number."""
        home: Any = self
        if isinstance(x1, Array) and x1._client is home:  # nearly always, and quickly done
            a = x1._own if x1._view is None else x1._node
            assert a is not None
            if isinstance(x2, Array):
                if x2._client is home:
                    b = x2._own if x2._view is None else x2._node
                    assert b is not None
                    return a, b
            elif x2.__class__ in COUNTED:
                return a, self._counted(x2, a.dtype)
        elif isinstance(x2, Array) and x2._client is home and x1.__class__ in COUNTED:
            b = x2._node
            return self._counted(x1, b.dtype), b
        a, b = self._operands(name, x1, x2)
        return a, b

    def _counted(self, value: Union[int, float], beside: dt.DType) -> Node:
        """A Python number as an operand. Loops have the same ones again and again: those of them that are not 0, which may be -0, are
        made once."""
        found = _numbers.get((value, value.__class__, beside))
        if found is None:
            found = self._number(value, dt.scalar_with(value, beside))
            if value:
                found.users = UNCOUNTED
                if len(_numbers) >= MANY:
                    _numbers.clear()
                _numbers[value, value.__class__, beside] = found
        return found

    def _operands(self, name: str, *given: Any) -> List[Node]:
        """Arrays and numbers; Python's are of the dtype that they have beside the others."""
        for x in given:
            if isinstance(x, Array):
                return self._beside(*given)
        raise TypeError(f"{name} wants an array, not {' and '.join(type(x).__name__ for x in given)}")

    def _beside(self, *given: Any) -> List[Node]:
        """Without any that has a dtype, Python's numbers are of that which they have together."""
        one: Optional[dt.DType] = None
        for x in given:  # arrays of one dtype, and Python's numbers: nearly always, and quickly seen
            if isinstance(x, Array) and one in (None, x.dtype):
                one = x.dtype
            elif type(x) not in PLAIN:
                break
        else:
            if one is not None:
                return [self._operand(x, one) for x in given]
        given = tuple(dt.taken(x) if isinstance(x, (list, tuple)) else x for x in given)
        typed = [x.dtype if isinstance(x, Array) else dt.dtype_of(x.dtype) for x in given
                 if isinstance(x, (Array, np.ndarray, np.generic)) and not isinstance(x, np.bool_)]
        beside = dt.result_type(typed, [] if typed else [*given])
        return [self._operand(x, beside) for x in given]

    def _cast(self, node: Node, dtype: dt.DType) -> Node:
        if node.dtype == dtype:
            return node
        rounds = dt.kind(node.dtype) in "fc" and dt.is_integer(dtype)  # which is the server's: it saturates, and NaN gives 0
        if node.op == "const" and node.value is not None and dt.bfloat16 not in (dtype, node.dtype) and not rounds:
            return const(node.value[()], dtype)
        return Node("astype", (node,), node.shape, dtype, {"dtype": dt.name_of(dtype)})

    # --- axes and shapes ---

    def _axis(self, axis: Any, rank: int) -> int:
        try:
            i = operator.index(axis)
        except TypeError:
            raise TypeError(f"an axis is an integer, or None; not {axis!r}") from None
        if not -rank <= i < rank:
            raise AxisError(f"axis {i} is out of range for an array of rank {rank}")
        return i % rank

    def _axes(self, axis: Axis, rank: int) -> List[int]:
        if axis is None:
            return list(range(rank))
        axes = [self._axis(a, rank) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
        if len(set(axes)) != len(axes):
            raise ValueError(f"an axis is there twice: {axis}")
        return axes

    @staticmethod
    def _reduced(shape: Shape, axes: List[int], keepdims: bool) -> Shape:
        return tuple(1 if k in axes else n for k, n in enumerate(shape) if keepdims or k not in axes)

    @staticmethod
    def _shape(shape: Any) -> Shape:
        s = tuple(operator.index(n) for n in shape) if isinstance(shape, (tuple, list)) or getattr(shape, "ndim", False) else (operator.index(shape),)
        if any(n < 0 for n in s):
            raise ValueError(f"a shape has no negative extents: {shape}")
        return s

    @staticmethod
    def _broadcast(op: str, *nodes: Node) -> Shape:
        shapes = {n.shape for n in nodes}
        shapes.discard(())
        if len(shapes) == 1:
            return shapes.pop()
        try:
            return tuple(np.broadcast_shapes(*shapes))
        except ValueError:
            together = " and ".join(str(n.shape) for n in nodes)
            raise ValueError(refusal(op, nodes, f"shapes {together} do not broadcast together")) from None

    def _check_device(self, device: Any) -> None:
        if device is not None and device != self.device:
            raise ValueError(f"the device of this client's arrays is {self.device!r}, not {device!r}")


def refusal(op: str, nodes: Sequence[Node], text: str) -> str:
    """What is said of an operation that cannot be: as the daemon does, with the expression below."""
    return f"{op}: {text}\n    {describe(Node(op, tuple(nodes), (), nodes[0].dtype))}"


def only(kinds: str, op: str, *nodes: Node) -> None:
    """TypeError for an operand of another kind of dtype than one of these."""
    for n in nodes:
        if dt.kind(n.dtype) not in kinds:
            raise TypeError(refusal(op, nodes, f"not defined for {' and '.join(dt.name_of(n.dtype) for n in nodes)}"))


def attribute(v: Any) -> Any:
    """An attribute of an operation as the request's tree has it: lists and numbers of Python's and NumPy's; a number that JSON has
    not, or not exactly, as a constant."""
    if isinstance(v, (Array, np.ndarray)):
        return attribute(np.asarray(v).tolist())
    if isinstance(v, (list, tuple)):
        return [attribute(x) for x in v]
    if isinstance(v, np.generic):
        v = v.item()
    w = wire(v)
    return w if w is v else {"op": "const", "value": w, "dtype": dt.name_of(dt.default_of(v))}
