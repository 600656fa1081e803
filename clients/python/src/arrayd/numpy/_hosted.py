"""What NumPy computes in this process, of values that are fetched for it: one table of names, and how one of them is called.

What the namespace defines itself comes before this table: a name leaves it when the server has the function."""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Tuple

import numpy as np

from .. import _dtypes as dt
from .._array import Array
from .._carried import own_client
from .._errors import no_attribute
from .._ns_host import Host
from .._transfers import guard, to_fetch

HOSTED: Dict[str, Tuple[str, ...]] = {part: tuple(names.split()) for part, names in {
    "": """
        apply_along_axis apply_over_axes argpartition bartlett bincount bitwise_count blackman choose convolve corrcoef correlate cov cross
        diag_indices diag_indices_from digitize ediff1d einsum_path frexp frombuffer fromfile fromiter fromstring gcd genfromtxt
        geomspace hamming hanning histogram histogram2d histogram_bin_edges histogramdd i0 in1d insert interp intersect1d ix_
        kaiser kron lcm ldexp lexsort load loadtxt logspace mask_indices matvec median nanmedian nanpercentile nanquantile
        packbits partition percentile poly polyadd polyder polydiv polyfit polyint polymul polysub polyval quantile ravel_multi_index
        resize roots setdiff1d setxor1d sort_complex spacing tril_indices tril_indices_from triu_indices triu_indices_from
        union1d unique unpackbits unravel_index unwrap vander vecmat""",
    "linalg": """
        cholesky cond cross det eig eigh eigvals eigvalsh inv lstsq matrix_norm matrix_power matrix_rank multi_dot norm pinv qr slogdet solve
        svd svdvals tensorinv tensorsolve vector_norm""",
    "fft": """
        fft fft2 fftfreq fftn hfft ifft ifft2 ifftn ihfft irfft irfft2 irfftn rfft rfft2 rfftfreq rfftn""",
}.items()}
OWN = """broadcast broadcast_shapes format_float_positional format_float_scientific get_printoptions geterr index_exp isscalar issubdtype
iterable min_scalar_type ndenumerate ndindex nditer printoptions promote_types s_ set_printoptions typename vectorize""".split()  # as they are
TOLD = ("errstate", "seterr")  # as they are, too, but for what nothing here does
ON_SERVER = {"linalg": ("diagonal", "matmul", "matrix_transpose", "outer", "tensordot", "trace", "vecdot")}  # the namespace's
ASKED = ("save", "savez", "savez_compressed", "savetxt", "array2string", "array_repr", "array_str", "tofile", "copyto")  # values are asked for

OUT_OF_RANDOM = {"random": 2, "standard_normal": 2, "standard_exponential": 3, "standard_gamma": 3}  # where `out` may be by its place


def told(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's errstate or seterr. The server gives no warnings and stops at no number, so it takes "ignore" and "warn" only."""
    @functools.wraps(function)
    def f(*args: Any, **more: Any) -> Any:
        for v in (*args, *more.values()):
            if isinstance(v, str) and v not in ("ignore", "warn"):
                raise NotImplementedError(f"{function.__name__}: {v!r}: the server does not tell of divisions by 0, overflow and the like: "
                                          "ask np.isfinite(x).all() of the result; numpy's own is for values in this process")
        return function(*args, **more)

    return f


class Hosted:
    """A function of NumPy's: arrays among its arguments are fetched, and arrays of its result given back as the namespace's."""

    def __init__(self, client: Any, name: str, function: Callable[..., Any]):
        self._client, self.__name__, self.__wrapped__ = client, name, function
        self.__doc__ = f"{name}, computed by NumPy in this process.\n\n{function.__doc__ or ''}"

    def __repr__(self) -> str:
        return f"<arrayd function {self.__name__!r}, by NumPy in this process>"

    def __call__(self, *args: Any, out: Any = None, **more: Any) -> Any:
        arrays: List[Array] = []
        _find((args, more), arrays)
        for x in arrays:
            self._client._check(x)
        moved = to_fetch(x._node for x in arrays)
        if self.__name__ not in ASKED:
            guard(self.__name__, moved)
        nin = getattr(self.__wrapped__, "nin", len(args))
        if len(args) == nin + 1 and out is None and getattr(self.__wrapped__, "nout", 0) == 1:
            args, out = args[:nin], args[nin]
        more.pop("overwrite_input", None)  # what is here is a copy anyway
        here: Dict[int, np.ndarray[Any, Any]] = {id(x): dt.plain(dt.read_only(x._values())) for x in arrays}
        result = self.__wrapped__(*_here(args, here), **_here(more, here))
        back: List[int] = []
        r = self._back(result, back, [*here.values()])
        if self.__name__ not in ASKED:
            guard(self.__name__, moved + sum(back))
        return r if out is None else self._client._into(out, r)

    def _back(self, r: Any, nbytes: List[int], given: List[Any]) -> Any:
        """What is a view of something `given` cannot be written to: it would have to be written there, too."""
        if isinstance(r, (np.ndarray, np.generic)):
            if r.dtype not in dt.NAME_OF:
                return r
            nbytes.append(r.nbytes)
            back = self._client._from_host(r)
            return self._client.broadcast_to(back, r.shape) if any(np.may_share_memory(r, v) for v in given) else back
        if isinstance(r, tuple):
            values = [self._back(v, nbytes, given) for v in r]
            return type(r)._make(values) if hasattr(r, "_make") else tuple(values)
        if isinstance(r, list):
            return [self._back(v, nbytes, given) for v in r]
        return r


def _find(value: Any, arrays: List[Array]) -> None:
    if isinstance(value, Array):
        arrays.append(value)
    elif isinstance(value, (list, tuple)):
        for v in value:
            _find(v, arrays)
    elif isinstance(value, dict):
        for v in value.values():
            _find(v, arrays)


def _here(value: Any, of: Dict[int, "np.ndarray[Any, Any]"]) -> Any:
    """With these values for arrays."""
    if isinstance(value, Array):
        v = of[id(value)]
        return v if v.ndim else v[()]
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return type(value)._make([_here(v, of) for v in value])
    if isinstance(value, (list, tuple)):
        return type(value)(_here(v, of) for v in value)
    if isinstance(value, dict):
        return {k: _here(v, of) for k, v in value.items()}
    return value


class Part:
    """`linalg` or `fft`: NumPy's of that name."""

    def __init__(self, client: Any, name: str):
        self._client, self._name = client, name

    def __repr__(self) -> str:
        return f"<arrayd.{self._name} of {self._client!r}>"

    def __getattr__(self, name: str) -> Any:
        if name in ON_SERVER.get(self._name, ()):
            return getattr(self._client, name)
        numpys = getattr(np, self._name)
        if name in HOSTED[self._name] and hasattr(numpys, name):
            return Hosted(self._client, f"{self._name}.{name}", getattr(numpys, name))
        if isinstance(getattr(numpys, name, None), type):  # LinAlgError
            return getattr(numpys, name)
        raise no_attribute(f"{type(self).__name__!r} object", name, lambda: dir(self))

    def __dir__(self) -> List[str]:
        return sorted((*object.__dir__(self), *HOSTED[self._name], *ON_SERVER.get(self._name, ())))


class Linalg(Part):
    """What the server computes of it; the standard's meaning where NumPy's differs."""

    def __init__(self, client: Any):
        super().__init__(client, "linalg")

    def norm(self, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
        """numpy.linalg.norm."""
        x = self._client._taken(x)
        axes = 1 if isinstance(axis, int) else len(axis) if axis is not None else x.ndim
        if ord is None or (ord == 2 and axes == 1) or (ord == "fro" and axes == 2):
            return self._client.norm(x, axis, keepdims=keepdims)
        return Hosted(self._client, "linalg.norm", np.linalg.norm)(x, ord, axis, keepdims)

    def vector_norm(self, x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
        """The norm of vectors along the axes."""
        c, x = self._client, self._client._taken(x)
        if ord == 2:
            return c.norm(x, axis, keepdims=keepdims)
        if ord in (1, np.inf, -np.inf):
            f = c.sum if ord == 1 else c.max if ord > 0 else c.min
            return f(c.abs(x), axis, keepdims=keepdims)
        if ord == 0:
            return c.astype(c.count_nonzero(x, axis, keepdims=keepdims), dt.real_of(dt.floating(x.dtype)))
        return c.sum(c.abs(x) ** ord, axis, keepdims=keepdims) ** (1.0 / ord)

    def diagonal(self, x: Any, /, *, offset: int = 0) -> Any:
        """The diagonal of the last two axes."""
        return self._client.diagonal(x, offset, -2, -1)

    def trace(self, x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
        """Its sum."""
        return self._client.trace(x, offset, -2, -1, dtype)


class Fft(Part):
    """What the server computes of it."""

    def __init__(self, client: Any):
        super().__init__(client, "fft")

    def fftshift(self, x: Any, /, axes: Any = None) -> Any:
        """The frequency 0 moved to the middle."""
        return self._shifted(x, axes, lambda n: n // 2)

    def ifftshift(self, x: Any, /, axes: Any = None) -> Any:
        """And back."""
        return self._shifted(x, axes, lambda n: -(n // 2))

    def _shifted(self, x: Any, axes: Any, by: Callable[[int], int]) -> Any:
        x = self._client._taken(x)
        along = tuple(self._client._axes(tuple(axes) if isinstance(axes, list) else axes, x.ndim))
        return self._client.roll(x, tuple(by(x.shape[k]) for k in along), along)


class Random:
    """NumPy's random numbers, drawn in this process, as arrays; called, the server's own: `xp.random((3, 3), seed=1)`."""

    def __init__(self, client: Any, of: Any = np.random):
        self._client, self._of = client, of

    def __call__(self, *args: Any, **more: Any) -> Any:
        return self._client._random(*args, **more)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For isinstance: a generator is one of NumPy's."""
        return Random if self._of is np.random else type(self._of)

    def __reduce__(self) -> Any:
        return _random, (self._of,)

    def __repr__(self) -> str:
        return f"<arrayd's arrays of {self._of!r}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._of, name)
        if not callable(value) or (isinstance(value, type) and name not in ("RandomState",)):
            return value
        if name in ("default_rng", "RandomState", "spawn"):
            def made(*args: Any, **more: Any) -> Any:
                r = value(*(a._of if type(a) is Random else a for a in args), **more)
                return [Random(self._client, g) for g in r] if name == "spawn" else Random(self._client, r)

            return made
        if name == "shuffle":
            return lambda x, *args, **more: self._client._changing("random.shuffle", value, x, *args, **more) if isinstance(x, Array) else value(x, *args, **more)
        return lambda *args, **more: self._drawn(name, value, args, more)

    def _drawn(self, name: str, function: Callable[..., Any], args: Tuple[Any, ...], more: Dict[str, Any]) -> Any:
        """`out=`: NumPy fills an array of this process', which is then assigned."""
        at = OUT_OF_RANDOM.get(name, len(args))
        out = more.pop("out", None) if len(args) <= at else args[at]
        if out is None:
            return Hosted(self._client, f"random.{name}", function)(*args[:at], **more)
        if not isinstance(out, Array):
            raise TypeError(f"random.{name}: `out` is an array of arrayd's, not {type(out).__name__}")
        into = np.empty(out.shape, out.dtype)
        return Hosted(self._client, f"random.{name}", lambda *a, **m: function(*a, out=into, **m))(*args[:at], out=out, **more)


def _random(of: Any) -> Random:
    """A copied or unpickled one, of this process' client."""
    return Random(own_client(), of)


class Named:
    """A name of the table, in the class of namespaces. (`__getattr__` would make every other attribute slower.)"""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, client: Any, owner: Any = None) -> Any:
        return self if client is None else Hosted(client, self._name, getattr(np, self._name))


class Hosting(Host):
    """The names of the table, on a namespace."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def _hosted(self, name: str, function: Callable[..., Any]) -> Hosted:
        return Hosted(self, name, function)

    def _changing(self, name: str, function: Callable[..., Any], x: Array, *args: Any, **more: Any) -> None:
        if not isinstance(x, Array):
            raise TypeError(f"{name}: an array of arrayd's is wanted, not {type(x).__name__}")

        def changed(value: Any, *args: Any, **more: Any) -> Any:
            value = np.array(value)
            function(value, *args, **more)
            return value

        x[...] = Hosted(self, name, changed)(x, *args, **more)

    @property
    def linalg(self) -> Linalg:
        """numpy.linalg."""
        return Linalg(self)

    @property
    def fft(self) -> Fft:
        """numpy.fft."""
        return Fft(self)

    @property
    def random(self) -> Random:
        """Random numbers of the server's, `xp.random(shape, seed=…)`; those of numpy.random, drawn in this process: `xp.random.rand(3)`."""
        return Random(self)


for _name in HOSTED[""]:
    if hasattr(np, _name):  # it depends on NumPy's version
        setattr(Hosting, _name, Named(_name))
for _name in OWN:
    setattr(Hosting, _name, staticmethod(_own) if callable(_own := getattr(np, _name)) else _own)
for _name in TOLD:
    setattr(Hosting, _name, staticmethod(told(getattr(np, _name))))
