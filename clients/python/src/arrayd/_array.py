"""The array: an object of the Python Array API standard 2024.12 whose values are on the server."""
from __future__ import annotations

import contextlib
import math
import sys
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Protocol, Sequence, Tuple

import numpy as np

from . import _dtypes as dt
from ._carried import is_member, packed, token
from ._export import Exported
from ._graph import Node, Shape, describe, forget_the_dead, host
from ._held import Held
from ._indexing import Basic, basic_index, broadcasts, composed, simple_index, with_places
from ._known import follows
from ._lease import Lease
from ._methods import Methods
from ._requests import Steps
from ._transfers import guard, guard_asked, to_fetch
from ._turns import turns
from ._views import View, check_writable, ghost_of, part, with_part, within

if TYPE_CHECKING:
    from ._endpoint import Endpoint
    from ._engine import Engine

    class Home(Protocol):
        """What an array asks of the client that made it. Namespace, which knows arrays, has all of it."""

        @property
        def device(self) -> str: ...
        @property
        def _engine(self) -> Engine: ...
        @property
        def _transport(self) -> Endpoint: ...
        def _run(self, steps: Steps[Any]) -> Any: ...
        def _fetched(self, node: Node) -> np.ndarray[Any, Any]: ...
        def _ends(self, x: Array) -> np.ndarray[Any, Any]: ...
        def _wrap(self, node: Node, shared: bool = False) -> Array: ...
        def _reshaped_view(self, x: Array, shape: Any) -> View: ...
        def _from_host(self, value: Any, dtype: Optional[dt.DType]) -> Array: ...
        def full(self, shape: Any, fill_value: Any) -> Array: ...
        def _copied(self, x: Array) -> Array: ...
        def _copied_in(self, x: Array) -> Array: ...
        def _by_reference(self, id_: str, shape: Any, dtype: str) -> Array: ...
        def _check_version(self, api_version: Optional[str]) -> None: ...
        def _check_device(self, device: Any) -> None: ...
        def _mask_of(self, key: Any, x: Array) -> Optional[Array]: ...
        def _unmasked(self, key: Any, x: Array) -> Any: ...
        def _gather(self, x: Array, keys: Any) -> Array: ...
        def _operand(self, value: Any, beside: dt.DType) -> Node: ...
        def _cast(self, node: Node, dtype: dt.DType) -> Node: ...
        @property
        def _cores(self) -> Dict[str, Callable[..., Array]]: ...


NUMBERS = (bool, int, float, complex, np.generic)
FEW = 64  # bytes: with the reply they are no more to move than what is said of an array


class Array(Held, Methods):
    """An array in a daemon, or the expression for one.

    Operators and functions build an expression, which is evaluated in one request when a value is needed (`float(x)`, `np.asarray(x)`,
    `print(x)`, `if x:`) or by `compute()`. Slices, `x.T`, `reshape` and the like are views, as NumPy's: an assignment (`x[…] = …`,
    `x += …`) to one changes the array that it is of, and all its views. Expressions made before an assignment keep the old values.
    For an array obtained by a name, an id or a pickle, assignments change the array on the server, which others share, in place.
    """

    __slots__ = ("_own", "_view", "_views", "_client", "_shared", "__weakref__")
    _own: Optional[Node]  # of a view: for the parent's node that it was made from
    _view: Optional[View]
    _views: "Sequence[weakref.ref[Array]]"
    _client: "Home"
    _shared: bool

    def __init__(self) -> None:
        raise TypeError("arrays are made by a client's functions: asarray, zeros, …")

    @classmethod
    def _of(cls, node: Node, client: "Home", shared: bool = False) -> "Array":
        x: Array = cls.__new__(cls)
        x._client, x._shared, x._view, x._views, x._own = client, shared, None, (), node
        users = node.users
        users.append(weakref.ref(x))
        if len(users) > 8:
            forget_the_dead(users)
        return x

    @staticmethod
    def _of_view(view: View) -> "Array":
        kind: Any = type(view.parent)
        x: Array = kind.__new__(kind)
        x._client, x._shared, x._view, x._views, x._own = view.parent._client, False, view, (), None
        view.parent._viewed_by(x)
        return x

    def _viewed_by(self, x: "Array") -> None:
        if not isinstance(self._views, list):
            self._views = []
        self._views.append(weakref.ref(x))
        if len(self._views) > 8:
            forget_the_dead(self._views)

    @property
    def _node(self) -> Node:
        view, own = self._view, self._own
        if view is None:
            assert own is not None
            return own
        parent = view.parent
        of = parent._own if parent._view is None else parent._node
        if own is None or view.of is not of:
            own = view.node_of(of)
            view.of, self._own = of, own
            own.used_by(self)
        return own  # not what another thread has made of it since

    def _set(self, node: Node) -> None:
        """The array's values from now on."""
        self._own = node
        node.used_by(self)
        if self._views:
            self._changed()

    def _changed(self) -> None:
        """Its views are of the new values, and nothing is kept of the old ones."""
        changed = [self]
        for x in changed:
            changed += [v for v in (r() for r in x._views) if v is not None and v._view is not None]
            if x._view is not None and x is not self:
                x._own = x._view.of = None

    @property
    def _ghost(self) -> "np.ndarray[Any, Any]":
        return ghost_of(self.shape) if self._view is None else self._view.ghost

    def _alone(self) -> None:
        """No view any more. Where nobody but views has what it is of, that is what it is anyway."""
        x = self
        while x._view is not None:
            if sys.getrefcount(x._view.parent) > 2:  # the view's, and the argument
                raise ValueError("what others may write to: this is a view of another array; copy it first: xp.asarray(x, copy=True)")
            x = x._view.parent
        if self._view is not None:
            self._own, self._view = self._node, None

    # --- attributes ---

    @property
    def shape(self) -> Shape:
        return self._node.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        """Another shape in place, where that needs no copy: from now on this is a view of what it was, and so are its views."""
        self._client._reshaped_view(self, shape)  # first: it says what is wrong
        base = self._client._wrap(self._node, self._shared)
        base._view, base._views = self._view, self._views
        if base._view is not None:
            base._view.parent._viewed_by(base)
        for view in (r() for r in base._views):
            if view is not None and view._view is not None:
                view._view.parent = base
        self._shared, self._views, self._own = False, (), None
        self._view = self._client._reshaped_view(base, shape)
        base._viewed_by(self)

    @property
    def dtype(self) -> dt.DType:
        return self._node.dtype

    @property
    def ndim(self) -> int:
        return len(self._node.shape)

    @property
    def size(self) -> int:
        return self._node.size

    @property
    def nbytes(self) -> int:
        return self._node.nbytes

    @property
    def device(self) -> str:
        return self._client.device

    @property
    def id(self) -> str:
        """The array's id on the server, after evaluating it."""
        return str(self.compute()._place().id)

    @property
    def name(self) -> Optional[str]:
        return self._node.handle.name if self._shared and self._node.handle else None

    # --- values ---

    def _place(self) -> Any:
        return self._client._run(self._client._engine.place(self._node))

    def _values(self) -> "np.ndarray[Any, Any]":
        return self._client._fetched(self._node)

    def compute(self) -> "Array":
        """Evaluates the expression; the values stay on the server. Returns self."""
        self._client._run(self._client._engine.compute(self._node))
        return self

    def explain(self) -> str:
        """How it would be computed now, in words: what was recognised as a loop is a program."""
        with turns.take():
            return self._client._engine.explain(self._node)

    def numpy(self) -> "np.ndarray[Any, Any]":
        """The values; read-only if they are small and kept in this process."""
        return self._values()

    def exported(self, mode: str = "read") -> Exported:
        """Maps the array's memory into this process, without a copy: `with x.exported() as m:`. The daemon must allow it
        (`--allow-export`), and the client must be connected to its Unix socket.

        With "read" other clients can read meanwhile, and none can write. With "write" no other client can use the array, and it has the
        values written here when the `with` has ended. This client's own requests can use the array meanwhile. See `Exported`."""
        return Exported(self, mode)

    def leased(self, mode: str = "write", ttl_s: float = 60.0) -> Lease:
        """Exclusive use of the array or, with "read", an unchanged array, for some requests: `with x.leased():`. See `Lease`."""
        return Lease(self, mode, ttl_s)

    @property
    def _stays(self) -> bool:
        """It is changed in place: others, or the memory that this process has of it, show the change, or there is more to the memory than
        its values."""
        handle = self._node.handle
        return self._shared or (handle is not None and (handle.stays or handle.writer is self))

    def _written_no_more(self, handle: Any) -> None:
        """The end of what made this the handle's writer."""
        if handle.writer is self:
            handle.writer = None
            if self._node.handle is handle:
                self._node.share()

    def _owning(self, keeps: bool = False) -> Steps[None]:
        """Its memory is its own: nobody else's values change when it is written to. `keeps`: it is the same as before, where it was this
        process' own."""
        self._alone()
        self._set((yield from self._client._engine.own_memory(self, keeps=keeps)))

    def item(self, *at: Any) -> Any:
        """The element there; without that, of an array of one element."""
        if at:
            return self.flat[at[0]].item() if len(at) == 1 and not isinstance(at[0], tuple) else self[at[0] if len(at) == 1 else at].item()
        if self.size != 1:
            raise ValueError(f"an array of {self.size} elements is not a single number")
        return dt.plain(self._values()).item()

    def tolist(self) -> Any:
        return dt.plain(self._values()).tolist()

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> "np.ndarray[Any, Any]":
        if copy is False and self._node.value is None:
            raise ValueError("the values are on the server: np.asarray cannot avoid a copy")
        guard_asked(to_fetch((self._node,)))
        value = self._values()
        if dtype is not None and np.dtype(dtype) != value.dtype:
            return dt.cast(value, np.dtype(dtype))
        return value.copy() if copy else dt.read_only(value)

    def _number(self, kinds: str, what: str) -> Any:
        if self.ndim:
            raise TypeError(f"an array of rank {self.ndim} is not {what}")
        if dt.kind(self.dtype) not in kinds:
            raise TypeError(f"{dt.name_of(self.dtype)} is not {what}")
        return dt.plain(self._values())[()]

    def __bool__(self) -> bool:
        if self.ndim and self.size == 1:
            return bool(self.reshape(()))
        if self.ndim:
            raise ValueError(f"an array of {self.size} elements is not a truth value: x.any() or x.all()")
        return bool(self._number("biufc", "a truth value"))

    def __int__(self) -> int:
        return int(self._number("biuf", "an integer"))

    def __index__(self) -> int:
        return int(self._number("iu", "an index"))

    def __float__(self) -> float:
        return float(self._number("biuf", "a real number"))

    def __complex__(self) -> complex:
        return complex(self._number("biufc", "a number"))

    def __format__(self, spec: str) -> str:
        if spec and self.ndim:
            raise TypeError(f"an array of rank {self.ndim} has no format")
        return format(self.item(), spec) if spec else str(self)

    def __round__(self, ndigits: Optional[int] = None) -> Any:
        return round(self._number("biuf", "a real number").item(), ndigits)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a number has no length")
        return self.shape[0]

    def __iter__(self) -> Any:
        if not self.ndim:
            raise TypeError("a number cannot be iterated over")
        return (self[i] for i in range(self.shape[0]))

    def __str__(self) -> str:
        if self._node.value is None and self._client._transport.closed:
            return repr(self)
        if self.size > np.get_printoptions()["threshold"]:
            return np.array2string(dt.plain(self._client._ends(self)), threshold=0, edgeitems=3)
        return str(dt.plain(self._values()))

    def __repr__(self) -> str:
        head = f"shape={self.shape}, dtype={dt.name_of(self.dtype)}"
        if self._node.value is None and self._client._transport.closed:
            return f"arrayd.array(…, {head})"
        if self.size > np.get_printoptions()["threshold"]:
            ends = dt.plain(self._client._ends(self))
            text = np.array2string(ends, separator=", ", prefix="arrayd.array(", threshold=0, edgeitems=3)
            return f"arrayd.array({text}, {head})"
        text = np.array2string(dt.plain(self._values()), separator=", ", prefix="arrayd.array(")
        return f"arrayd.array({text}, {head})"

    def __reduce__(self) -> Any:
        """A reference (of a view: to a copy). It is shared from now on, and remains until it is deleted: the number of pickles is unknown."""
        x = self if self._view is None else self._client._copied(self)
        if not x._shared:
            self._client._run(x._owning(x is self))
        handle = x._place()
        handle.keep()
        x._node.share()
        x._shared = True
        return self._client._by_reference, (handle.id, x.shape, dt.name_of(x.dtype))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """On a dask cluster, where each worker has its own daemon: the values."""
        return packed(self, protocol) if is_member() else self.__reduce__()

    def __dask_tokenize__(self) -> Any:
        return token(self)

    def _ended(self) -> None:
        """As the result of a task of dask's: computed, numbers here, and no view, which would keep all that it is of."""
        if self._node.nbytes <= FEW:
            self._values()
        elif self._node.value is None:
            self.compute()
        if self._view is not None:
            self._own, self._view = self._node, None

    def __copy__(self) -> "Array":
        """An independent array with the current values."""
        return self._client._copied_in(self)

    def __deepcopy__(self, _: Any) -> "Array":
        return self._client._copied_in(self)

    # --- the standard's protocols ---

    def __array_namespace__(self, *, api_version: Optional[str] = None) -> Any:
        self._client._check_version(api_version)
        return self._client

    def to_device(self, device: Any, /, *, stream: Any = None) -> "Array":
        if stream is not None:
            raise ValueError("stream must be None: the server has its own streams")
        self._client._check_device(device)
        return self

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Optional[bool] = None) -> Any:
        if dl_device is not None and tuple(dl_device) != (1, 0):
            raise BufferError("the values are copied into host memory: dl_device can only be (1, 0)")
        if copy is False:
            raise BufferError("the values are on the server: a view of them would be a copy")
        if stream is not None:
            raise BufferError("stream must be None: host memory has no streams")
        return np.array(self._values()).__dlpack__()

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (1, 0)

    # --- indexing ---

    def __getitem__(self, key: Any, /) -> "Array":
        c, node = self._client, self._node
        index = simple_index(key, node.shape)
        if index is None:
            mask = c._mask_of(key, self)
            if mask is not None:
                guard("x[mask]", to_fetch((node, mask._node)))
                return c._from_host(self._values()[mask._values()], self.dtype)
            index = basic_index(key, self.shape)
        if index is None:
            return c._gather(self, with_places(c._unmasked(key, self), self.shape))
        return Array._of_view(within(self, index)) if index.is_view else c._wrap(part(index, node))

    def __setitem__(self, key: Any, value: Any, /) -> None:
        with self._one_writer():
            asked = self._assigning(key, value)
            if asked is not None:
                self._client._run(asked)

    def _one_writer(self) -> Any:
        """One thread's write at a time: the new values are made from those that are there, and none gets lost."""
        return self._client._transport.alone or contextlib.nullcontext()

    def _assigning(self, key: Any, value: Any) -> Optional[Steps[None]]:
        """What there is to ask for it, if anything."""
        c, mask = self._client, None
        if self._view is not None:
            check_writable(self._view)
        index = simple_index(key, self._node.shape)
        if index is None:
            mask = c._mask_of(key, self)
            index = None if mask is not None else basic_index(key, self.shape)
        if index is not None and isinstance(value, Array) and value._view is not None and value._view.parent is self \
                and value._view.index is not None and value._view.index.text == index.text:
            return None  # the end of `x[…] += …`: it is there already
        dtype = self._node.dtype
        v = c._operand(value, dtype)
        if v.dtype is not dtype and dt.is_complex(v.dtype) and not dt.is_complex(dtype):
            raise TypeError(f"an assignment: values of {dt.name_of(v.dtype)} do not go into {dt.name_of(self.dtype)}\n    {describe(v)}")
        if dt.kind(v.dtype) == "f" and dt.is_integer(self.dtype) and isinstance(value, (float, np.floating)) and not math.isfinite(value):
            raise ValueError(f"an assignment: {value} is not an integer, which {dt.name_of(self.dtype)} has only")
        if dt.promote(v.dtype, self.dtype) != self.dtype:
            v = c._cast(v, self.dtype)
        if mask is not None and mask.ndim == self.ndim and v.shape == ():
            if mask.shape == self.shape:
                return self._becoming(Node("where", (mask._node, c._cast(v, self.dtype), self._node), self.shape, self.dtype))
            return None
        if index is None:
            return self._scattering([mask] if mask is not None else (key if isinstance(key, tuple) else (key,)), v)
        if (extra := len(v.shape) - len(index.shape)) > 0 and set(v.shape[:extra]) == {1}:
            v = Node("reshape", (v,), v.shape[extra:], v.dtype, {"shape": list(v.shape[extra:])})
        if v.shape and v.shape != index.shape and not broadcasts(v.shape if v.size != 1 else (), index.shape):
            raise ValueError(f"an assignment: values of shape {v.shape} do not fit a region of shape {index.shape}\n    {describe(v)}")
        return self._assigning_region(index, v)

    def _scattering(self, keys: Sequence[Any], v: Node) -> Steps[None]:
        """At single positions: done here."""
        engine = self._client._engine
        guard("x[i] = …", self.nbytes + to_fetch((self._node, v)))
        values = np.array((yield from engine.fetch(self._node)))
        at = []
        for k in keys:
            at.append((yield from engine.fetch(k._node)) if isinstance(k, Array) else k)
        values[tuple(at)] = dt.cast((yield from engine.fetch(v)), self.dtype)
        asked = self._becoming(host(values, self.dtype))
        if asked is not None:
            yield from asked

    def _becoming(self, node: Node) -> Optional[Steps[None]]:
        """All of it has new values, of its shape and dtype. What there is to ask for that, if anything."""
        view = self._view
        if view is None:
            if self._stays:
                return self._written(node)
            self._set(node)
            return None
        if view.index is not None:
            return view.parent._assigning_region(view.index, node)  # type: ignore[no-any-return]
        return view.parent._becoming(view.back(node))  # type: ignore[no-any-return]

    def _assigning_region(self, index: Basic, v: Node) -> Optional[Steps[None]]:
        c, node = self._client, self._node
        if 0 in index.shape:
            return None
        if v.shape and v.shape != index.shape and v.size == 1:
            v = Node("reshape", (v,), (), v.dtype, {"shape": []}) if v.value is None else host(v.value.reshape(()), v.dtype)
        if self._view is not None:
            inner = None if self._view.index is None else composed(self._view.index, index, self._view.parent.shape)
            if inner is not None:
                return self._view.parent._assigning_region(inner, v)  # type: ignore[no-any-return]
            return self._becoming(c._engine.assigned(with_part(node, index, v)))
        if self._stays:
            return self._written(v, index)
        if node.handle is None:
            here = node.value is not None or node.nbytes <= 4096
        else:  # it has been fetched to be read by single elements
            here = node.value is not None and node.picked > 1 and node.handle.steady
        if here and follows(v):
            assert v.value is not None
            return self._hosting(index, v.value)
        self._set(c._engine.assigned(with_part(node, index, v)))
        return None

    def _hosting(self, index: Basic, value: "np.ndarray[Any, Any]") -> Steps[None]:
        """Here, as all of it is known here, or small."""
        values = np.array((yield from self._client._engine.fetch(self._node)))
        values[index.key] = dt.cast(value, self.dtype)
        self._set(host(values, self.dtype))

    # --- operators ---

    def _binary(self, op: str, other: Any, swapped: bool = False) -> Any:
        c = self._client
        if other.__class__ is not self.__class__ and not _takes(self, op, other):
            return NotImplemented
        f = c._cores[op]
        return f(c, other, self) if swapped else f(c, self, other)

    def _in_place(self, op: str, other: Any) -> Any:
        r = self._binary(op, other)
        if r is NotImplemented or not (self.ndim or self._view or self._stays):
            return r  # what NumPy has a scalar for: `n += 1` makes another, and what has the old one keeps it
        node, mine = r._node, self._node
        del r
        if node.shape != mine.shape:
            raise ValueError(f"{op} in place: a result of shape {node.shape} does not fit into shape {mine.shape}\n    {describe(node)}")
        if node.dtype is not mine.dtype:
            if not dt.goes_into(node.dtype, mine.dtype):
                raise TypeError(f"{op} in place: a result of {dt.name_of(node.dtype)} does not go into {dt.name_of(mine.dtype)}\n    {describe(node)}")
            node = self._client._cast(node, mine.dtype)
        check_writable(self._view)
        del mine
        with self._one_writer():
            asked = self._becoming(node)
            if asked is not None:
                self._client._run(asked)
        return self

    def __abs__(self) -> "Array":
        return self._client._cores["abs"](self._client, self)

    def __neg__(self) -> "Array":
        return self._client._cores["negative"](self._client, self)

    def __pos__(self) -> "Array":
        return self._client._cores["positive"](self._client, self)

    def __invert__(self) -> "Array":
        return self._client._cores["bitwise_invert"](self._client, self)

    def __matmul__(self, other: Any, /) -> "Array":
        return self._binary("matmul", other)  # type: ignore[no-any-return]

    def __rmatmul__(self, other: Any, /) -> "Array":
        return self._binary("matmul", other, True)  # type: ignore[no-any-return]

    def __imatmul__(self, other: Any, /) -> "Array":
        return self._in_place("matmul", other)  # type: ignore[no-any-return]

    def __hash__(self) -> int:
        if self.ndim:
            raise TypeError(f"an array of rank {self.ndim} is not hashable")
        return hash(self._number("biufc", "a number"))


OPERANDS = (Array, *NUMBERS, np.ndarray, list, tuple)


def _takes(x: Array, op: str, other: Any) -> bool:
    """Whether the operator is x's affair. A list times a number is a longer list: Python does that."""
    return isinstance(other, OPERANDS) and not (op == "multiply" and isinstance(other, (list, tuple)) and not x.ndim and dt.is_integer(x.dtype))



def _operators() -> None:
    table = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
             "mod": "remainder", "pow": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
             "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift"}
    compare = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}

    def method(name: str, body: Any) -> None:
        body.__name__ = f"__{name}__"
        body.__qualname__ = f"Array.__{name}__"
        setattr(Array, f"__{name}__", body)

    def binary(op: str) -> Any:  # `_binary`, without a call more
        def f(self: Array, other: Any, /) -> Any:
            c = self._client
            if other.__class__ is not self.__class__ and not _takes(self, op, other):
                never = op in ("equal", "not_equal") and self.shape and (other is None or isinstance(other, (str, bytes)))
                return c.full(self.shape, op == "not_equal") if never else NotImplemented  # no number is text, or None
            return c._cores[op](c, self, other)

        return f

    for name, op in {**table, **compare}.items():
        method(name, binary(op))
    for name, op in table.items():
        method("r" + name, lambda self, other, /, op=op: self._binary(op, other, True))
        method("i" + name, lambda self, other, /, op=op: self._in_place(op, other))


_operators()
