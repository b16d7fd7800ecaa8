# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Numbers that carry derivatives, for callbacks written entry by entry; types in the .pyi."""

from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_Check
from cpython.long cimport PyLong_AsDouble, PyLong_CheckExact
from libc.math cimport (
    atan, cos, cosh, exp, expm1, fabs, isfinite, log, log1p, log10, pow, sin, sinh, sqrt, tan, tanh
)
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

cimport cython
cimport numpy as np

import numpy


np.import_array()

cdef enum Operation:
    ADD, SUBTRACT, MULTIPLY, DIVIDE, POWER

cdef enum Function:
    SIN, COS, TAN, EXP, EXPM1, LOG, LOG1P, LOG10, SQRT, SINH, COSH, TANH, ARCTAN, SQUARE
    RECIPROCAL, ABSOLUTE, NEGATIVE

cdef dict _OPERATIONS = {
    numpy.add: ADD, numpy.subtract: SUBTRACT, numpy.multiply: MULTIPLY, numpy.divide: DIVIDE,
    numpy.power: POWER,
}
cdef dict _FUNCTIONS = {
    numpy.sin: SIN, numpy.cos: COS, numpy.tan: TAN, numpy.exp: EXP, numpy.expm1: EXPM1,
    numpy.log: LOG, numpy.log1p: LOG1P, numpy.log10: LOG10, numpy.sqrt: SQRT, numpy.sinh: SINH,
    numpy.cosh: COSH, numpy.tanh: TANH, numpy.arctan: ARCTAN, numpy.square: SQUARE,
    numpy.reciprocal: RECIPROCAL, numpy.absolute: ABSOLUTE, numpy.negative: NEGATIVE,
}

cdef object _whole = None
cdef object _operate = None
cdef object _ufunc = None
cdef object _function = None


def install(whole, operate, ufunc, function):
    """Take from the arrays what a number does not know itself.

    ``whole(value, slopes, change, mixed)`` makes an array of no axes, ``operate(ufunc, x, y)``
    evaluates an operator; the others answer NumPy's protocols.
    """
    global _whole, _operate, _ufunc, _function
    _whole, _operate, _ufunc, _function = whole, operate, ufunc, function


@cython.final
@cython.freelist(256)
cdef class DerivativeNumber:
    """A number with slopes along K directions and, of second order, their changes along one more.

    value v, slopes s [K]; of second order its change d, and those m [K] of its slopes.
    """

    cdef double v
    cdef double d
    cdef Py_ssize_t count
    cdef bint second
    cdef double *s
    cdef double *m
    cdef double few[16]

    __hash__ = None
    __array_priority__ = 1000.0

    def __dealloc__(self):
        # Few slopes have their place in the object itself.
        if self.s != NULL and self.s != &self.few[0]:
            free(self.s)

    cpdef whole(self):
        """Return it as an array of no axes."""
        cdef np.npy_intp count = self.count
        cdef np.ndarray slopes = np.PyArray_EMPTY(1, &count, np.NPY_DOUBLE, 0)
        cdef np.ndarray mixed = None
        memcpy(np.PyArray_DATA(slopes), self.s, count * sizeof(double))
        if self.second:
            mixed = np.PyArray_EMPTY(1, &count, np.NPY_DOUBLE, 0)
            memcpy(np.PyArray_DATA(mixed), self.m, count * sizeof(double))
        return _whole(self.v, slopes, self.d, mixed)

    def __add__(self, other):
        cdef object result = binary(ADD, self, other)
        return _operate(numpy.add, self, other) if result is None else result

    def __radd__(self, other):
        cdef object result = binary(ADD, other, self)
        return _operate(numpy.add, other, self) if result is None else result

    def __sub__(self, other):
        cdef object result = binary(SUBTRACT, self, other)
        return _operate(numpy.subtract, self, other) if result is None else result

    def __rsub__(self, other):
        cdef object result = binary(SUBTRACT, other, self)
        return _operate(numpy.subtract, other, self) if result is None else result

    def __mul__(self, other):
        cdef object result = binary(MULTIPLY, self, other)
        return _operate(numpy.multiply, self, other) if result is None else result

    def __rmul__(self, other):
        cdef object result = binary(MULTIPLY, other, self)
        return _operate(numpy.multiply, other, self) if result is None else result

    def __truediv__(self, other):
        cdef object result = binary(DIVIDE, self, other)
        return _operate(numpy.divide, self, other) if result is None else result

    def __rtruediv__(self, other):
        cdef object result = binary(DIVIDE, other, self)
        return _operate(numpy.divide, other, self) if result is None else result

    def __pow__(self, other, modulo):
        cdef object result = binary(POWER, self, other)
        return _operate(numpy.power, self, other) if result is None else result

    def __rpow__(self, other, modulo):
        return _operate(numpy.power, other, self)

    def __mod__(self, other):
        return _operate(numpy.remainder, self, other)

    def __rmod__(self, other):
        return _operate(numpy.remainder, other, self)

    def __floordiv__(self, other):
        return _operate(numpy.floor_divide, self, other)

    def __rfloordiv__(self, other):
        return _operate(numpy.floor_divide, other, self)

    def __divmod__(self, other):
        return self // other, self % other

    def __neg__(self):
        return unary(NEGATIVE, self)

    def __pos__(self):
        return self

    def __abs__(self):
        return unary(ABSOLUTE, self)

    def __richcmp__(self, other, int operation):
        cdef double y
        if type(other) is DerivativeNumber:
            y = (<DerivativeNumber>other).v
        elif not number(other, &y):
            return compare(self.whole(), other, operation)
        # What a comparison depends on, to see later whether a kink is near.
        if BRANCHES:
            BRANCHES[len(BRANCHES) - 1].append([self.v - y])
        if operation == 0:
            return self.v < y
        if operation == 1:
            return self.v <= y
        if operation == 4:
            return self.v > y
        if operation == 5:
            return self.v >= y
        if self.v == y:  # which says nothing of the points around
            return compare(self.whole(), other, operation)
        return operation == 3

    def __bool__(self):
        return True if self.v != 0.0 else bool(self.whole())

    def __float__(self):
        return float(self.whole())

    def __complex__(self):
        return complex(self.whole())

    def __int__(self):
        return self.whole().__int__()

    def __trunc__(self):
        return self.whole().__int__()

    def __floor__(self):
        return self.whole().__floor__()

    def __ceil__(self):
        return self.whole().__ceil__()

    def __round__(self, digits=None):
        return round(self.whole(), digits)

    def __repr__(self):
        return repr(self.whole())

    def __format__(self, code):
        return format(self.whole(), code)

    def __getitem__(self, key):
        return self.whole()[key]

    def __iter__(self):
        raise TypeError("iteration over a 0-d array")

    def __getattr__(self, name):
        return getattr(self.whole(), name)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError("a number that carries derivatives cannot be pickled")

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        cdef object result, code
        if method == "__call__" and not options:
            if len(inputs) == 2:
                code = _OPERATIONS.get(ufunc)
                if code is not None:
                    result = binary(code, inputs[0], inputs[1])
                    if result is not None:
                        return result
            elif len(inputs) == 1:
                code = _FUNCTIONS.get(ufunc)
                if code is not None:
                    return unary(code, self)
        return _ufunc(self.whole(), ufunc, method, *inputs, **options)

    def __array_function__(self, function, types, arguments, options):
        return _function(self.whole(), function, types, arguments, options)


BRANCHES = []  # what comparisons are noted in: a list for each that asks, of lists of differences


cdef compare(x, y, int operation):
    if operation == 0:
        return x < y
    if operation == 1:
        return x <= y
    if operation == 2:
        return x == y
    if operation == 3:
        return x != y
    if operation == 4:
        return x > y
    return x >= y


cdef inline bint number(object x, double *value):
    if PyFloat_Check(x):
        value[0] = PyFloat_AS_DOUBLE(x)
        return True
    if PyLong_CheckExact(x):
        value[0] = PyLong_AsDouble(x)
        return True
    return False


cdef inline DerivativeNumber fresh(Py_ssize_t count, bint second):
    cdef DerivativeNumber result = DerivativeNumber.__new__(DerivativeNumber)
    cdef Py_ssize_t size = 2 * count if second else count
    result.count = count
    result.second = second
    result.d = 0.0
    if size <= 16:
        result.s = &result.few[0]
    else:
        result.s = <double *>malloc(size * sizeof(double))
    if result.s == NULL:
        raise MemoryError
    # One block: slopes, then their changes.
    result.m = result.s + count
    return result


cdef DerivativeNumber chain(DerivativeNumber x, double f, double g, double h):
    """Return a function of x from its value and first two derivatives."""
    cdef DerivativeNumber r = fresh(x.count, x.second)
    cdef Py_ssize_t k
    cdef double bend
    r.v = f
    for k in range(x.count):
        r.s[k] = g * x.s[k]
    if x.second:
        r.d = g * x.d
        # (g s)_dot = g s_dot + g_dot s, with g_dot = h d.
        bend = h * x.d
        for k in range(x.count):
            r.m[k] = g * x.m[k] + bend * x.s[k]
    return r


cdef object unary(int code, DerivativeNumber x):
    cdef double v = x.v, f, g, h
    if code == NEGATIVE:
        return chain(x, -v, -1.0, 0.0)
    if code == ABSOLUTE:
        if BRANCHES:
            BRANCHES[len(BRANCHES) - 1].append([v])
        return chain(x, fabs(v), 1.0 if v >= 0.0 else -1.0, 0.0)
    if code == SQUARE:
        return chain(x, v * v, 2.0 * v, 2.0)
    if code == SIN:
        return chain(x, sin(v), cos(v), -sin(v))
    if code == COS:
        return chain(x, cos(v), -sin(v), -cos(v))
    if code == TAN:
        f = tan(v)
        g = 1.0 + f * f
        return chain(x, f, g, 2.0 * f * g)
    if code == EXP:
        f = exp(v)
        return chain(x, f, f, f)
    if code == EXPM1:
        f = exp(v)
        return chain(x, expm1(v), f, f)
    if code == LOG and v > 0.0:
        return chain(x, log(v), 1.0 / v, -1.0 / (v * v))
    if code == LOG1P and v > -1.0:
        g = 1.0 / (1.0 + v)
        return chain(x, log1p(v), g, -g * g)
    if code == LOG10 and v > 0.0:
        g = 1.0 / (v * log(10.0))
        return chain(x, log10(v), g, -g / v)
    if code == SQRT and v > 0.0:
        f = sqrt(v)
        return chain(x, f, 0.5 / f, -0.25 / (f * v))
    if code == SINH:
        return chain(x, sinh(v), cosh(v), sinh(v))
    if code == COSH:
        return chain(x, cosh(v), sinh(v), cosh(v))
    if code == TANH:
        f = tanh(v)
        g = cosh(v)
        g = 1.0 / (g * g)
        return chain(x, f, g, -2.0 * f * g)
    if code == ARCTAN:
        g = 1.0 / (1.0 + v * v)
        return chain(x, atan(v), g, -2.0 * v * g * g)
    if code == RECIPROCAL and v != 0.0:
        f = 1.0 / v
        return chain(x, f, -f * f, 2.0 * f * f * f)
    for ufunc, own in _FUNCTIONS.items():  # at the edge of its domain
        if own == code:
            return ufunc(x.whole())
    return None


cdef object binary(int code, object left, object right):
    """Return x + y, and so on; None where either is no number, or at the edge of the domain."""
    cdef DerivativeNumber x, y, r
    cdef double a = 0.0, b = 0.0, c
    cdef double f, fx, fy, fxy, fyy
    cdef Py_ssize_t k
    cdef bint of_x = type(left) is DerivativeNumber, of_y = type(right) is DerivativeNumber
    if of_x:
        x = <DerivativeNumber>left
        a = x.v
    elif not number(left, &a):
        return None
    if of_y:
        y = <DerivativeNumber>right
        b = y.v
    elif not number(right, &b):
        return None
    if of_x and not of_y:
        if code == ADD:
            return chain(x, a + b, 1.0, 0.0)
        if code == SUBTRACT:
            return chain(x, a - b, 1.0, 0.0)
        if code == MULTIPLY:
            return chain(x, a * b, b, 0.0)
        if code == DIVIDE:
            return chain(x, a / b, 1.0 / b, 0.0)
        if b == 2.0:
            return chain(x, a * a, 2.0 * a, 2.0)
        if b == 1.0:
            return chain(x, a, 1.0, 0.0)
        if b == 0.0:
            return chain(x, 1.0, 0.0, 0.0)
        f, fx, fy = pow(a, b), b * pow(a, b - 1.0), b * (b - 1.0) * pow(a, b - 2.0)
        # 0 ** 0.5 and its like: arrays know what to say there.
        if not (isfinite(fx) and isfinite(fy)):
            return None
        return chain(x, f, fx, fy)
    if not of_x:
        if code == ADD:
            return chain(y, a + b, 1.0, 0.0)
        if code == SUBTRACT:
            return chain(y, a - b, -1.0, 0.0)
        if code == MULTIPLY:
            return chain(y, a * b, a, 0.0)
        if code == DIVIDE:
            f = a / b
            return chain(y, f, -f / b, 2.0 * f / (b * b))
        return None
    # Both exponents and bases that vary are rare, and left to arrays.
    if x.count != y.count or x.second != y.second or code == POWER:
        return None
    r = fresh(x.count, x.second)
    if code == ADD or code == SUBTRACT:
        c = 1.0 if code == ADD else -1.0
        r.v = a + c * b
        for k in range(x.count):
            r.s[k] = x.s[k] + c * y.s[k]
        if x.second:
            r.d = x.d + c * y.d
            for k in range(x.count):
                r.m[k] = x.m[k] + c * y.m[k]
        return r
    if code == MULTIPLY:
        # f_xx is 0 for products and quotients.
        r.v, fx, fy, fxy, fyy = a * b, b, a, 1.0, 0.0
    else:
        f = a / b
        r.v, fx, fy, fxy, fyy = f, 1.0 / b, -f / b, -1.0 / (b * b), 2.0 * f / (b * b)
    for k in range(x.count):
        # s = f_x s_x + f_y s_y; its change takes the mixed and the second derivative as well.
        r.s[k] = fx * x.s[k] + fy * y.s[k]
    if x.second:
        r.d = fx * x.d + fy * y.d
        for k in range(x.count):
            r.m[k] = (
                fx * x.m[k]
                + fy * y.m[k]
                + fxy * (x.d * y.s[k] + y.d * x.s[k])
                + fyy * y.d * y.s[k]
            )
    return r


cdef inline bint plain(object x, int axes):
    """Whether x is an array of doubles, of so many axes, without gaps."""
    return (
        type(x) is np.ndarray
        and np.PyArray_TYPE(<np.ndarray>x) == np.NPY_DOUBLE
        and np.PyArray_NDIM(<np.ndarray>x) == axes
        and np.PyArray_IS_C_CONTIGUOUS(<np.ndarray>x)
    )


def entry(array, Py_ssize_t k):
    """Return the entry k of an array [n] that carries derivatives; None where it is another kind."""
    cdef object value = array.value, slopes = array.slopes, change = None, mixed = None
    cdef bint second = type(value) is type(array)
    cdef DerivativeNumber result
    cdef Py_ssize_t size, count
    if second:
        change, value = value.slopes, value.value
        mixed, slopes = slopes.slopes, slopes.value
        if not (plain(change, 2) and plain(mixed, 3)):
            return None
        # Numbers of second order know one direction; arrays may have several.
        if np.PyArray_DIM(<np.ndarray>change, 1) != 1:
            return None
    if not (plain(value, 1) and plain(slopes, 2)):
        return None
    size = np.PyArray_DIM(<np.ndarray>value, 0)
    count = np.PyArray_DIM(<np.ndarray>slopes, 1)
    if k < 0:
        k += size
    if k < 0 or k >= size:
        raise IndexError(f"index {k} is out of bounds for axis 0 with size {size}")
    result = fresh(count, second)
    result.v = (<double *>np.PyArray_DATA(<np.ndarray>value))[k]
    memcpy(
        result.s, <double *>np.PyArray_DATA(<np.ndarray>slopes) + k * count, count * sizeof(double)
    )
    if second:
        result.d = (<double *>np.PyArray_DATA(<np.ndarray>change))[k]
        memcpy(
            result.m,
            <double *>np.PyArray_DATA(<np.ndarray>mixed) + k * count,
            count * sizeof(double),
        )
    return result


def together(list things):
    """Return (values [n], slopes [n, K], changes [n, 1], mixed [n, K, 1]) of numbers in a list.

    The last two are None for first order; None where there is anything but numbers, or none that
    carries derivatives.
    """
    cdef Py_ssize_t n = len(things), i, count = -1
    cdef bint second = False
    cdef DerivativeNumber x
    cdef double number_here
    cdef object thing
    cdef np.npy_intp shape[3]
    cdef np.ndarray values, slopes, changes = None, mixed = None
    cdef double *v
    cdef double *s
    cdef double *d = NULL
    cdef double *m = NULL
    for thing in things:
        if type(thing) is DerivativeNumber:
            x = <DerivativeNumber>thing
            if count == -1:
                count, second = x.count, x.second
            elif count != x.count or second != x.second:
                return None
        elif not number(thing, &number_here):
            return None
    # Only plain numbers: an ordinary array does.
    if count == -1:
        return None
    shape[0], shape[1], shape[2] = n, count, 1
    values = np.PyArray_EMPTY(1, shape, np.NPY_DOUBLE, 0)
    slopes = np.PyArray_EMPTY(2, shape, np.NPY_DOUBLE, 0)
    v, s = <double *>np.PyArray_DATA(values), <double *>np.PyArray_DATA(slopes)
    if second:
        mixed = np.PyArray_EMPTY(3, shape, np.NPY_DOUBLE, 0)
        shape[1] = 1
        changes = np.PyArray_EMPTY(2, shape, np.NPY_DOUBLE, 0)
        d, m = <double *>np.PyArray_DATA(changes), <double *>np.PyArray_DATA(mixed)
    for i in range(n):
        thing = things[i]
        if type(thing) is DerivativeNumber:
            x = <DerivativeNumber>thing
            v[i] = x.v
            memcpy(s + i * count, x.s, count * sizeof(double))
            if second:
                d[i] = x.d
                memcpy(m + i * count, x.m, count * sizeof(double))
        else:
            number(thing, v + i)
            # A plain number does not vary.
            memset(s + i * count, 0, count * sizeof(double))
            if second:
                d[i] = 0.0
                memset(m + i * count, 0, count * sizeof(double))
    return values, slopes, changes, mixed


def value_of_number(DerivativeNumber x):
    """Return the value."""
    return x.v
