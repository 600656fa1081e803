"""What NumPy's arrays have as methods, beside operators and indexing: most of them call the namespace's functions."""
from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, Dict, Iterator, NamedTuple, Optional, Sequence, Tuple, TypeVar

import numpy as np

from . import _dtypes as dt
from . import _events as events
from . import _looks as looks
from ._errors import ArraydError
from ._looks import Picture, Summary

Self = TypeVar("Self", bound="Methods")


class Flags(NamedTuple):
    """An array's `flags`, which only tell: setting one is an AttributeError. `flags["C_CONTIGUOUS"]` is `flags.c_contiguous`."""

    c_contiguous: bool
    f_contiguous: bool
    contiguous: bool
    forc: bool
    writeable: bool
    owndata: bool
    aligned: bool

    def __getitem__(self, name: Any) -> Any:
        if not isinstance(name, str):
            return tuple.__getitem__(self, name)
        short = {"C": "C_CONTIGUOUS", "F": "F_CONTIGUOUS", "W": "WRITEABLE", "O": "OWNDATA", "A": "ALIGNED"}
        name = short.get(name, name)
        if name.lower() not in self._fields or not name.isupper():
            raise KeyError("Unknown flag")
        return getattr(self, name.lower())


class Methods:
    __slots__ = ()
    __array_priority__ = 1.0  # dask asks for it
    _client: Any

    if TYPE_CHECKING:

        _ghost: Any
        _view: Any

        @property
        def shape(self) -> Tuple[int, ...]: ...
        @property
        def dtype(self) -> dt.DType: ...

    if TYPE_CHECKING:  # made in _array.py

        def __add__(self: Self, other: Any, /) -> Self: ...
        def __radd__(self: Self, other: Any, /) -> Self: ...
        def __iadd__(self: Self, other: Any, /) -> Self: ...
        def __sub__(self: Self, other: Any, /) -> Self: ...
        def __rsub__(self: Self, other: Any, /) -> Self: ...
        def __isub__(self: Self, other: Any, /) -> Self: ...
        def __mul__(self: Self, other: Any, /) -> Self: ...
        def __rmul__(self: Self, other: Any, /) -> Self: ...
        def __imul__(self: Self, other: Any, /) -> Self: ...
        def __truediv__(self: Self, other: Any, /) -> Self: ...
        def __rtruediv__(self: Self, other: Any, /) -> Self: ...
        def __itruediv__(self: Self, other: Any, /) -> Self: ...
        def __floordiv__(self: Self, other: Any, /) -> Self: ...
        def __rfloordiv__(self: Self, other: Any, /) -> Self: ...
        def __ifloordiv__(self: Self, other: Any, /) -> Self: ...
        def __mod__(self: Self, other: Any, /) -> Self: ...
        def __rmod__(self: Self, other: Any, /) -> Self: ...
        def __imod__(self: Self, other: Any, /) -> Self: ...
        def __pow__(self: Self, other: Any, /) -> Self: ...
        def __rpow__(self: Self, other: Any, /) -> Self: ...
        def __ipow__(self: Self, other: Any, /) -> Self: ...
        def __and__(self: Self, other: Any, /) -> Self: ...
        def __rand__(self: Self, other: Any, /) -> Self: ...
        def __iand__(self: Self, other: Any, /) -> Self: ...
        def __or__(self: Self, other: Any, /) -> Self: ...
        def __ror__(self: Self, other: Any, /) -> Self: ...
        def __ior__(self: Self, other: Any, /) -> Self: ...
        def __xor__(self: Self, other: Any, /) -> Self: ...
        def __rxor__(self: Self, other: Any, /) -> Self: ...
        def __ixor__(self: Self, other: Any, /) -> Self: ...
        def __lshift__(self: Self, other: Any, /) -> Self: ...
        def __rlshift__(self: Self, other: Any, /) -> Self: ...
        def __ilshift__(self: Self, other: Any, /) -> Self: ...
        def __rshift__(self: Self, other: Any, /) -> Self: ...
        def __rrshift__(self: Self, other: Any, /) -> Self: ...
        def __irshift__(self: Self, other: Any, /) -> Self: ...
        def __eq__(self: Self, other: Any, /) -> Self: ...  # type: ignore[override]
        def __ne__(self: Self, other: Any, /) -> Self: ...  # type: ignore[override]
        def __lt__(self: Self, other: Any, /) -> Self: ...
        def __le__(self: Self, other: Any, /) -> Self: ...
        def __gt__(self: Self, other: Any, /) -> Self: ...
        def __ge__(self: Self, other: Any, /) -> Self: ...

    # --- reductions, as NumPy's arrays have them ---

    def sum(self: Self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, **more: Any) -> Self:
        return self._client.sum(self, axis, dtype, out, keepdims, **more)  # type: ignore[no-any-return]

    def prod(self: Self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, **more: Any) -> Self:
        return self._client.prod(self, axis, dtype, out, keepdims, **more)  # type: ignore[no-any-return]

    def mean(self: Self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, **more: Any) -> Self:
        return self._client.mean(self, axis, dtype, out, keepdims, **more)  # type: ignore[no-any-return]

    def std(self: Self, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0.0, keepdims: bool = False, **more: Any) -> Self:
        return self._client.std(self, axis, dtype, out, ddof, keepdims, **more)  # type: ignore[no-any-return]

    def var(self: Self, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0.0, keepdims: bool = False, **more: Any) -> Self:
        return self._client.var(self, axis, dtype, out, ddof, keepdims, **more)  # type: ignore[no-any-return]

    def min(self: Self, axis: Any = None, out: Any = None, keepdims: bool = False, **more: Any) -> Self:
        return self._client.min(self, axis, out, keepdims, **more)  # type: ignore[no-any-return]

    def max(self: Self, axis: Any = None, out: Any = None, keepdims: bool = False, **more: Any) -> Self:
        return self._client.max(self, axis, out, keepdims, **more)  # type: ignore[no-any-return]

    def any(self: Self, axis: Any = None, out: Any = None, keepdims: bool = False, **more: Any) -> Self:
        return self._client.any(self, axis, out, keepdims, **more)  # type: ignore[no-any-return]

    def all(self: Self, axis: Any = None, out: Any = None, keepdims: bool = False, **more: Any) -> Self:
        return self._client.all(self, axis, out, keepdims, **more)  # type: ignore[no-any-return]

    def argmax(self: Self, axis: Optional[int] = None, out: Any = None, *, keepdims: bool = False) -> Self:
        return self._client.argmax(self, axis, out, keepdims=keepdims)  # type: ignore[no-any-return]

    def argmin(self: Self, axis: Optional[int] = None, out: Any = None, *, keepdims: bool = False) -> Self:
        return self._client.argmin(self, axis, out, keepdims=keepdims)  # type: ignore[no-any-return]

    # --- shapes ---

    def reshape(self: Self, *shape: Any, order: str = "C", copy: Optional[bool] = None) -> Self:
        to = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return self._client.reshape(self, to, order, copy=copy)  # type: ignore[no-any-return]

    def transpose(self: Self, *axes: Any) -> Self:
        to = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))) else axes
        return self._client.transpose(self, to or None)  # type: ignore[no-any-return]

    def ravel(self: Self, order: str = "C") -> Self:
        return self._client.ravel(self, order)  # type: ignore[no-any-return]

    def flatten(self: Self, order: str = "C") -> Self:
        return self._client._copied(self._client.ravel(self, order))  # type: ignore[no-any-return]

    @property
    def T(self: Self) -> Self:
        """The axes in reverse order."""
        return self._client.transpose(self)  # type: ignore[no-any-return]

    @property
    def mT(self: Self) -> Self:
        """The last two axes exchanged."""
        return self._client.matrix_transpose(self)  # type: ignore[no-any-return]

    @property
    def flat(self: Self) -> Self:
        """The elements in C order, in one axis; what is written there is written here."""
        return self._client._elements(self)  # type: ignore[no-any-return]

    @flat.setter
    def flat(self, value: Any) -> None:
        self[...] = self._client.resize(value, self.shape)  # type: ignore[index]

    # --- values ---

    def astype(self: Self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True) -> Self:
        t = dt.dtype_of(dtype)
        if dt.is_complex(self.dtype) and not dt.is_complex(t) and t != dt.BOOL:
            raise TypeError("complex numbers cannot be cast to real ones: use x.real or x.imag")
        dt.check_cast("astype:", self.dtype, t, casting)
        return self._client.astype(self if copy else self._client._in_order(self, order), t, copy=copy)  # type: ignore[no-any-return]

    def copy(self: Self, order: str = "C") -> Self:
        """An independent array with the current values."""
        return self._client._copied_in(self, order)  # type: ignore[no-any-return]

    def fill(self, value: Any) -> None:
        """`value` everywhere."""
        self[...] = value  # type: ignore[index]

    def view(self: Self, dtype: Any = None, type: Any = None) -> Self:  # noqa: A002
        for t in (dtype, type):
            if t is not None and not (isinstance(t, builtins.type) and issubclass(t, Methods)) and np.dtype(t) != self.dtype:
                raise TypeError(f"a view has the array's dtype, {dt.name_of(self.dtype)}, not {np.dtype(t)}: x.astype(dtype) converts the values, and "
                                "xp.asarray(numpy.asarray(x).view(dtype)) is a copy with the same bits")
        return self[...]  # type: ignore[index,no-any-return]

    def round(self: Self, decimals: int = 0, out: Any = None) -> Self:
        return self._client.round(self, decimals, out)  # type: ignore[no-any-return]

    def conj(self: Self) -> Self:
        return self._client.conj(self) if dt.is_complex(self.dtype) else self

    conjugate = conj

    @property
    def real(self: Self) -> Self:
        return self._client.real(self)  # type: ignore[no-any-return]

    @real.setter
    def real(self, value: Any) -> None:
        self._client.real(self)[...] = value

    @property
    def imag(self: Self) -> Self:
        return self._client.imag(self)  # type: ignore[no-any-return]

    @imag.setter
    def imag(self, value: Any) -> None:
        if not dt.is_complex(self.dtype):
            raise TypeError(f"{dt.name_of(self.dtype)} has no imaginary part to write to")
        self._client.imag(self)[...] = value

    def sort(self, axis: int = -1, kind: Any = None, order: None = None, *, stable: Optional[bool] = None) -> None:
        """Sorts along an axis, in place."""
        self[...] = self._client.sort(self, axis)  # type: ignore[index]

    def partition(self, kth: Any, axis: int = -1, kind: str = "introselect", order: None = None) -> None:
        """As NumPy's, in place."""
        self[...] = self._client.partition(self, kth, axis)  # type: ignore[index]

    def put(self, indices: Any, values: Any, mode: str = "raise") -> None:
        self._client.put(self, indices, values, mode)

    # --- looks, which are computed on the server ---

    def summary(self, bins: Optional[int] = None, lo: Optional[float] = None, hi: Optional[float] = None,
                percentiles: Optional[Sequence[float]] = None, exact: bool = False) -> Summary:
        """Counts, extremes, moments, histogram and percentiles of the elements. See `Summary`."""
        return self._client._run(looks.summary(self, bins, lo, hi, percentiles, exact))  # type: ignore[no-any-return]

    def image(self, cmap: Optional[str] = None, lo: Optional[float] = None, hi: Optional[float] = None, *,
              percentiles: Optional[Tuple[float, float]] = None, width: Optional[int] = None, height: Optional[int] = None,
              pool: Optional[str] = None, bar: bool = False) -> Picture:
        """A picture of an array of two axes, or of three with 3 or 4 colours in the last. Notebooks show it; `.save(file)` writes a PNG."""
        steps = looks.image(self, cmap, lo, hi, percentiles, width, height, pool, bar)
        return self._client._run(steps)  # type: ignore[no-any-return]

    def changes(self, interval: Optional[float] = None) -> Iterator[Dict[str, Any]]:
        """The array's metadata, now and whenever its contents or the metadata have changed; `interval`: seconds between two, at least. Ends
        when the array is gone; an error is raised when it may no longer be seen."""
        stream = self._client._run(events.of_array(self, {"interval": interval}))
        for _, event in stream.all(self._client._transport):
            yield event

    def frames(self, cmap: Optional[str] = None, lo: Optional[float] = None, hi: Optional[float] = None, *,
               percentiles: Optional[Tuple[float, float]] = None, width: Optional[int] = None, height: Optional[int] = None,
               pool: Optional[str] = None, bar: bool = False, interval: Optional[float] = None) -> Iterator[Picture]:
        """Pictures as `image` makes them, now and whenever the contents have changed, while a program runs, say. See `changes`. One that
        cannot be made is an error, too."""
        query = looks.picture_query(cmap, lo, hi, percentiles, width, height, pool, bar)
        stream = self._client._run(events.of_array(self, {**query, "frames": "true", "interval": interval}))
        for _, event in stream.all(self._client._transport):
            made = events.picture_of(stream, event)
            if made is not None:
                yield made

    def _repr_png_(self) -> Optional[bytes]:
        how = looks.for_notebooks(self.shape, self.dtype)
        try:
            return None if how is None else self.image(**how).png
        except ArraydError:  # as from a daemon that makes no pictures: the text is shown
            return None

    def compress(self: Self, condition: Any, axis: Optional[int] = None, out: Any = None) -> Self:
        return self._client.compress(condition, self, axis, out)  # type: ignore[no-any-return]

    def tobytes(self, order: str = "C") -> bytes:
        """The values, as bytes in C order."""
        return self._client._fetched(self._node).tobytes(order)  # type: ignore[attr-defined,no-any-return]

    def tofile(self, file: Any, sep: str = "", format: str = "%s") -> None:
        """Writes the values to a file, as bytes or as text."""
        self._client._fetched(self._node).tofile(file, sep, format)  # type: ignore[attr-defined]

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def strides(self) -> Tuple[int, ...]:
        """As NumPy's view of an array in C order would have them."""
        return tuple(s * self.dtype.itemsize for s in self._ghost.strides)

    @strides.setter
    def strides(self, strides: Any) -> None:
        raise AttributeError("strides cannot be set: take a slice, as x.reshape(-1)[::n+1] for the diagonal of n by n elements, or np.einsum('ii->i', x), "
                             "sliding_window_view(x, n) for windows, or np.broadcast_to(x, shape) for repetitions")

    @property
    def base(self) -> Any:
        """Of a view, the array that it is of."""
        return None if self._view is None else self._view.parent

    @property
    def flags(self) -> Any:
        """Those of the elements' order, `writeable` and `owndata`."""
        order = self._ghost.flags
        view = self._view
        while view is not None and not view.is_read_only:
            view = view.parent._view
        return Flags(c_contiguous=order.c_contiguous, f_contiguous=order.f_contiguous, contiguous=order.c_contiguous,
                     forc=order.forc, writeable=view is None, owndata=self._view is None, aligned=True)

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __divmod__(self, other: Any, /) -> Any:
        return self._client.divmod(self, other)

    def __rdivmod__(self, other: Any, /) -> Any:
        return self._client.divmod(other, self)

    # --- NumPy's protocols: its functions, called with arrays of a daemon's, are the namespace's ---

    def __array_ufunc__(self, ufunc: Any, method: str, /, *inputs: Any, **more: Any) -> Any:
        return self._client._for_ufunc(ufunc, method, inputs, more)

    def __array_function__(self, function: Any, types: Any, args: Any, more: Any) -> Any:
        return self._client._for_function(function, types, args, more)


def _methods() -> None:
    """Those that only name a function, with the same arguments."""
    def method(name: str) -> Any:
        def f(self: Any, *args: Any, **more: Any) -> Any:
            return getattr(self._client, name)(self, *args, **more)

        f.__name__, f.__qualname__, f.__doc__ = name, f"Array.{name}", f"numpy.{name}, of this array."
        return f

    for name in ("argpartition", "argsort", "choose", "clip", "cumprod", "cumsum", "diagonal", "dot", "nonzero", "ptp", "repeat",
                 "searchsorted", "squeeze", "swapaxes", "take", "trace"):
        setattr(Methods, name, method(name))


_methods()
