"""Elementwise functions of the standard, and arrayd's own beside them."""
from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple, Union

import numpy as np

from . import _dtypes as dt
from ._array import Array
from ._base import Base, only, refusal
from ._graph import Node, const
from ._spelling import spelled
from ._ufunc import Ufunc
from ._views import PartView

Number = Union[bool, int, float, complex]
Rule = Callable[[dt.DType], dt.DType]


def _same(t: dt.DType) -> dt.DType:
    return t


def _bool(t: dt.DType) -> dt.DType:
    return dt.BOOL


def _counted(t: dt.DType) -> dt.DType:
    """Of bools int8, as in NumPy."""
    return dt.BY_NAME["int8"] if t == dt.BOOL else t


def _unary(name: str, kinds: str, rule: Rule, text: str, op: Optional[str] = None) -> Ufunc:
    def f(self: Base, x: Array, /) -> Array:
        only(kinds, name, self._check(x)._node)
        return self._array(op or name, (x._node,), x.shape, rule(x.dtype))

    return Ufunc(name, f, 1, text)


def _binary(name: str, kinds: str, rule: Rule, text: str) -> Ufunc:
    types: Dict[Tuple[dt.DType, dt.DType], dt.DType] = {}  # of operands that there have been

    def type_of(a: Node, b: Node) -> dt.DType:
        t = dt.promote(a.dtype, b.dtype)
        if dt.kind(t) not in kinds:
            raise TypeError(refusal(name, (a, b), f"not defined for {dt.name_of(a.dtype)} and {dt.name_of(b.dtype)}"))
        return types.setdefault((a.dtype, b.dtype), rule(t))

    def f(self: Base, x1: Union[Array, Number], x2: Union[Array, Number], /) -> Array:
        a, b = self._pair(name, x1, x2)
        t = types.get((a.dtype, b.dtype))
        if t is None:
            t = type_of(a, b)
        if a.shape == b.shape or not b.shape:
            shape = a.shape
            if rule is _bool and a.op == b.op == "const" and a.dtype == b.dtype and a.value is not None and b.value is not None and a.dtype.kind != "V":
                return self._wrap(const(getattr(np, name)(a.value, b.value), dt.BOOL))  # of numbers that are known here
        else:
            shape = self._broadcast(name, a, b) if a.shape else b.shape
        return self._wrap(Node(name, (a, b), shape, t))

    return Ufunc(name, f, 2, text)


def _power(self: Base, x1: Union[Array, Number], x2: Union[Array, Number], /) -> Array:
    """Integers to the power of a negative integer, a number, are a ValueError, as in NumPy; where the exponents are an array they are 0,
    but for those of 1 and -1."""
    power = _plain_power.core(self, x1, x2)
    if dt.is_integer(power.dtype) and isinstance(x2, (int, np.integer)) and x2 < 0:
        raise ValueError("integers to negative integer powers are not integers: convert them with astype first")
    return power


_plain_power = _binary("pow", "biufc", _counted, "x1 ** x2.")


class Elementwise(Base):
    """`xp.sin(x)` and so on. Python's numbers take the dtype of the array beside them, NumPy's have their own; integers and bools in functions of reals give
    float64."""

    acos = _unary("acos", "biufc", dt.floating, "Arc cosine, in radians.")
    acosh = _unary("acosh", "biufc", dt.floating, "Inverse hyperbolic cosine.")
    asin = _unary("asin", "biufc", dt.floating, "Arc sine, in radians.")
    asinh = _unary("asinh", "biufc", dt.floating, "Inverse hyperbolic sine.")
    atan = _unary("atan", "biufc", dt.floating, "Arc tangent, in radians.")
    atanh = _unary("atanh", "biufc", dt.floating, "Inverse hyperbolic tangent.")
    cos = _unary("cos", "biufc", dt.floating, "Cosine of x radians.")
    cosh = _unary("cosh", "biufc", dt.floating, "Hyperbolic cosine.")
    exp = _unary("exp", "biufc", dt.floating, "e to the power of x.")
    expm1 = _unary("expm1", "biufc", dt.floating, "exp(x) - 1, exact near 0.")
    log = _unary("log", "biufc", dt.floating, "Natural logarithm.")
    log1p = _unary("log1p", "biufc", dt.floating, "log(1 + x), exact near 0.")
    log2 = _unary("log2", "biufc", dt.floating, "Logarithm to base 2.")
    log10 = _unary("log10", "biufc", dt.floating, "Logarithm to base 10.")
    reciprocal = _unary("reciprocal", "biufc", dt.floating, "1/x.")
    sin = _unary("sin", "biufc", dt.floating, "Sine of x radians.")
    sinh = _unary("sinh", "biufc", dt.floating, "Hyperbolic sine.")
    sqrt = _unary("sqrt", "biufc", dt.floating, "Square root.")
    tan = _unary("tan", "biufc", dt.floating, "Tangent of x radians.")
    tanh = _unary("tanh", "biufc", dt.floating, "Hyperbolic tangent.")

    abs = _unary("abs", "biufc", dt.real_of, "Absolute value.")
    bitwise_invert = _unary("bitwise_invert", "biu", _same, "Every bit inverted; not, of bools.")
    ceil = _unary("ceil", "biuf", _same, "The least integer not below x.")
    conj = _unary("conj", "biufc", _same, "Complex conjugate.")
    floor = _unary("floor", "biuf", _same, "The greatest integer not above x.")
    isfinite = _unary("isfinite", "biufc", _bool, "Neither infinite nor NaN.")
    isinf = _unary("isinf", "biufc", _bool, "Infinite.")
    isnan = _unary("isnan", "biufc", _bool, "NaN.")
    logical_not = _unary("logical_not", "biufc", _bool, "not, of each element as a bool.")
    negative = _unary("negative", "iufc", _same, "-x.")
    positive = _unary("positive", "iufc", _same, "+x.")
    rint = _unary("rint", "biufc", _same, "Nearest integer, halves to even.", op="round")
    sign = _unary("sign", "iufc", _same, "-1, 0 or 1; x/|x| of complex numbers.")
    signbit = _unary("signbit", "f", _bool, "The sign bit is set.")
    square = _unary("square", "biufc", _counted, "x*x.")
    trunc = _unary("trunc", "biuf", _same, "The integer towards zero.")

    add = _binary("add", "biufc", _same, "x1 + x2.")
    atan2 = _binary("atan2", "biuf", dt.floating, "Arc tangent of x1/x2 in the right quadrant, in radians.")
    bitwise_and = _binary("bitwise_and", "biu", _same, "x1 & x2.")
    bitwise_left_shift = _binary("bitwise_left_shift", "biu", _counted, "x1 << x2.")
    bitwise_or = _binary("bitwise_or", "biu", _same, "x1 | x2.")
    bitwise_right_shift = _binary("bitwise_right_shift", "biu", _counted, "x1 >> x2.")
    bitwise_xor = _binary("bitwise_xor", "biu", _same, "x1 ^ x2.")
    copysign = _binary("copysign", "biuf", dt.floating, "|x1| with the sign of x2.")
    divide = _binary("divide", "biufc", dt.floating, "x1 / x2.")
    equal = _binary("equal", "biufc", _bool, "x1 == x2.")
    floor_divide = _binary("floor_divide", "biuf", _counted, "x1 // x2; integers by 0 give 0.")
    greater = _binary("greater", "biuf", _bool, "x1 > x2.")
    greater_equal = _binary("greater_equal", "biuf", _bool, "x1 >= x2.")
    hypot = _binary("hypot", "biuf", dt.floating, "sqrt(x1² + x2²) without overflow in between.")
    less = _binary("less", "biuf", _bool, "x1 < x2.")
    less_equal = _binary("less_equal", "biuf", _bool, "x1 <= x2.")
    logaddexp = _binary("logaddexp", "biuf", dt.floating, "log(exp(x1) + exp(x2)).")
    logical_and = _binary("logical_and", "biufc", _bool, "and, of elements as bools.")
    logical_or = _binary("logical_or", "biufc", _bool, "or, of elements as bools.")
    logical_xor = _binary("logical_xor", "biufc", _bool, "exclusive or, of elements as bools.")
    maximum = _binary("maximum", "biuf", _same, "The larger of the two; NaN where one is.")
    minimum = _binary("minimum", "biuf", _same, "The smaller of the two; NaN where one is.")
    multiply = _binary("multiply", "biufc", _same, "x1 * x2.")
    nextafter = _binary("nextafter", "biuf", dt.floating, "The number after x1 towards x2.")
    not_equal = _binary("not_equal", "biufc", _bool, "x1 != x2.")
    pow = Ufunc("pow", _power, 2, "x1 ** x2.")
    remainder = _binary("remainder", "biuf", _counted, "x1 % x2, with the sign of x2; integers by 0 give 0.")
    subtract = _binary("subtract", "iufc", _same, "x1 - x2.")

    # --- beside the standard ---

    absolute, arccos, arccosh, arcsin, arcsinh, arctan, arctanh = abs, acos, acosh, asin, asinh, atan, atanh
    arctan2, conjugate, mod, power, true_divide = atan2, conj, remainder, pow, divide
    bitwise_not = invert = bitwise_invert
    left_shift, right_shift = bitwise_left_shift, bitwise_right_shift

    cbrt = _unary("cbrt", "biuf", dt.floating, "Cube root.")
    erf = _unary("erf", "biuf", dt.floating, "Error function.")
    frac = _unary("frac", "biuf", dt.floating, "x - trunc(x).")
    gamma = _unary("gamma", "biuf", dt.floating, "Gamma function.")
    lgamma = _unary("lgamma", "biuf", dt.floating, "log |gamma(x)|.")
    rsqrt = _unary("rsqrt", "biufc", dt.floating, "1/sqrt(x).")
    sigmoid = _unary("sigmoid", "biufc", dt.floating, "1/(1 + exp(-x)).")
    fmod = _binary("fmod", "biuf", _counted, "Remainder with the sign of x1.")

    @spelled
    def clip(self, x: Array, /, min: Union[int, float, Array, None] = None, max: Union[int, float, Array, None] = None,
             out: Any = None, *, a_min: Any = None, a_max: Any = None) -> Array:
        """x, not below min and not above max; its dtype, or with bounds that have another one the dtype that both have together."""
        node = self._check(x)._node
        only("iuf", "clip", node)
        for bound, op in ((a_min if min is None else min, "maximum"), (a_max if max is None else max, "minimum")):
            if bound is None:
                continue
            b = self._bound(bound, x)
            if isinstance(bound, (bool, int, float, complex)) and not isinstance(bound, np.generic):
                b = self._cast(b, x.dtype)
            node = Node(op, (node, b), self._broadcast("clip", node, b), dt.promote(node.dtype, b.dtype))
        return self._wrap(node) if node is not x._node else self.positive(x)

    def _bound(self, bound: Any, x: Array) -> Node:
        """A number beyond what an integer type holds bounds nothing on that side."""
        if isinstance(bound, int) and not isinstance(bound, bool) and dt.is_integer(x.dtype):
            info = np.iinfo(x.dtype)
            bound = int(info.min) if bound < info.min else int(info.max) if bound > info.max else bound
        return self._operand(bound, x.dtype)

    # what operators call, without binding
    _cores: Dict[str, Callable[..., Array]] = {f.name: f.core for f in (
        abs, add, bitwise_and, bitwise_invert, bitwise_left_shift, bitwise_or, bitwise_right_shift, bitwise_xor, divide, equal, floor_divide,
        greater, greater_equal, less, less_equal, multiply, negative, not_equal, positive, pow, remainder, subtract)}

    def where(self, condition: Array, x1: Any = None, x2: Any = None, /) -> Any:
        """x1 where the condition holds, else x2; the branch not taken is never seen. With the condition alone: `nonzero`."""
        condition = self._taken(condition)
        if x1 is None or x2 is None:
            return self.nonzero(condition)  # type: ignore[attr-defined]
        if condition.dtype != dt.BOOL:
            condition = self.not_equal(condition, 0)
        a, b = self._beside(x1, x2)
        return self._array("where", (condition._node, a, b), self._broadcast("where", condition._node, a, b), dt.promote(a.dtype, b.dtype))

    @spelled
    def real(self, x: Array, /) -> Array:
        """Real part."""
        return self._part("real", x) if dt.is_complex(x.dtype) else x

    @spelled
    def imag(self, x: Array, /) -> Array:
        """Imaginary part, which is 0 of real numbers."""
        return self._part("imag", x) if dt.is_complex(x.dtype) else self.broadcast_to(self._zeros(x), x.shape)  # type: ignore[attr-defined]

    def _part(self, op: str, x: Array) -> Array:
        return Array._of_view(PartView(x, op, dt.real_of(x.dtype)))

    def _zeros(self, x: Array) -> Array:
        return self._array("broadcast_to", (const(0, x.dtype),), x.shape, x.dtype, shape=list(x.shape)) if x.ndim else self._wrap(const(0, x.dtype))

    def lerp(self, a: Union[Array, Number], b: Union[Array, Number], t: Union[Array, Number], /) -> Array:
        """a + t*(b - a)."""
        x, y, w = self._operands("lerp", a, b, t)
        d = dt.floating(dt.promote(dt.promote(x.dtype, y.dtype), w.dtype))
        return self._array("lerp", (x, y, w), self._broadcast("lerp", x, y, w), d)
