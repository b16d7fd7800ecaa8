# cython: language_level=3, cdivision=True
"""Polynomials through values, and slopes, of a function of one number; types in interpolants.pyi.

Nothing of PETSc is in them; as Python they would take as long as a step of a small system.
"""

from libc.math cimport copysign, fabs, sqrt
from libc.stdlib cimport free, malloc


cdef class Interpolant:
    """A polynomial in Newton's form: sum of c_k (x - x_0) ... (x - x_(k-1)).

    The nodes x_k, of which one given with its slope stands twice, and as many divided differences
    c_k.  Made by ``interpolate``.

    Examples
    --------
    >>> parabola = interpolate([(0.0, 1.0, -2.0), (1.0, 1.0, None)])
    >>> parabola.at(2.0), parabola.extrema()
    ((5.0, 6.0), [0.5])
    """

    cdef int count
    cdef double *x
    cdef double *c

    def __cinit__(self, int count):
        self.count = count
        self.x = <double *>malloc(<size_t>(2 * count) * sizeof(double))
        if self.x == NULL:
            raise MemoryError
        self.c = self.x + count

    def __dealloc__(self):
        free(self.x)

    cdef double values(self, double x, double *slope) noexcept:
        cdef double value = 0.0, difference
        cdef int k
        slope[0] = 0.0
        for k in range(self.count - 1, -1, -1):
            difference = x - self.x[k]
            # Horner in Newton's form; the slope is that of the product rule, step by step.
            slope[0] = slope[0] * difference + value
            value = value * difference + self.c[k]
        return value

    cdef double slope(self, double x) noexcept:
        cdef double slope
        self.values(x, &slope)
        return slope

    def at(self, double x):
        """Return the value and the derivative at x."""
        cdef double slope
        cdef double value = self.values(x, &slope)
        return value, slope

    def extrema(self):
        """Return where the derivative changes its sign strictly between 0 and 1, in order.

        Up to degree 3 all of them; beyond, those between which one of nine points lies.
        """
        cdef double first = self.slope(0.0), last = self.slope(1.0), middle, low, high
        cdef int k
        if self.count <= 3:
            # The derivative of a parabola is a straight line.
            return [first / (first - last)] if first * last < 0.0 else []
        if self.count == 4:
            # That of a cubic is a parabola through its values at 0, 1/2 and 1.
            middle = self.slope(0.5)
            return zeros(
                2.0 * (first - 2.0 * middle + last), 4.0 * middle - 3.0 * first - last, first)
        extrema = []
        low = first
        for k in range(8):
            high = self.slope(0.125 * (k + 1))
            if low * high < 0.0:
                extrema.append(self.extremum(0.125 * k, 0.125 * (k + 1), low, high))
            low = high
        return extrema

    cdef double extremum(self, double low, double high, double at_low, double at_high) noexcept:
        """Return where the derivative is zero, by secants whose stale end is weighed by a half."""
        cdef double x, slope
        cdef int k
        for k in range(8):
            x = low - at_low * (high - low) / (at_high - at_low)
            slope = self.slope(x)
            if slope * at_low > 0.0:
                low, at_low, at_high = x, slope, 0.5 * at_high
            elif slope * at_high > 0.0:
                high, at_high, at_low = x, slope, 0.5 * at_low
            else:
                return x
        return low - at_low * (high - low) / (at_high - at_low)

    def root(self, double low, double high):
        """Return a zero between two points; the point nearer to zero if the signs do not differ."""
        cdef double slope, value, x, following
        cdef double at_low = self.values(low, &slope), at_high = self.values(high, &slope)
        cdef int k
        if at_low * at_high >= 0.0:
            return low if fabs(at_low) < fabs(at_high) else high
        x = low - at_low * (high - low) / (at_high - at_low)
        for k in range(100):
            value = self.values(x, &slope)
            if value * at_low > 0.0:
                low = x
            else:
                high = x
            following = x - value / slope if slope else low
            # Newton inside a bracket, else bisection.
            if not low <= following <= high:
                following = 0.5 * (low + high)
            if fabs(following - x) <= 1e-8 * fabs(x) or value == 0.0:
                return following  # an error of its square is left
            x = following
        return x

    def nearest(self, double x):
        """Return the distance from x to the nearest node."""
        cdef double least = fabs(x - self.x[0])
        cdef int k
        for k in range(1, self.count):
            least = min(least, fabs(x - self.x[k]))
        return least

    def deflated(self):
        """Return the polynomial divided by x - x_0, where x_0 is a zero."""
        cdef Interpolant rest = Interpolant(self.count - 1)
        cdef int k
        for k in range(rest.count):
            rest.x[k], rest.c[k] = self.x[k + 1], self.c[k + 1]
        return rest

    def add(self, double x, double value):
        """Return the polynomial through one more point."""
        cdef Interpolant more = Interpolant(self.count + 1)
        cdef double product = 1.0, slope
        cdef int k
        for k in range(self.count):
            more.x[k], more.c[k] = self.x[k], self.c[k]
            product *= x - self.x[k]
        more.x[self.count] = x
        more.c[self.count] = (value - self.values(x, &slope)) / product
        return more


def interpolate(points):
    """Return the polynomial through points (x, value, slope or None), in increasing order of x."""
    cdef int count = 0, order, k
    cdef double x, value, gap
    for _, _, slope in points:
        count += 1 if slope is None else 2
    cdef Interpolant polynomial = Interpolant(count), slopes = Interpolant(count)
    count = 0
    for x, value, slope in points:
        for _ in range(1 if slope is None else 2):
            polynomial.x[count], polynomial.c[count] = x, value
            slopes.c[count] = 0.0 if slope is None else slope
            count += 1
    for order in range(1, count):
        for k in range(count - 1, order - 1, -1):
            gap = polynomial.x[k] - polynomial.x[k - order]
            # Divided differences in place; at a node that stands twice the first one is the
            # slope.
            polynomial.c[k] = (polynomial.c[k] - polynomial.c[k - 1]) / gap if gap else slopes.c[k]
    return polynomial


cdef list zeros(double a, double b, double c):
    """Return the simple zeros of a x^2 + b x + c strictly between 0 and 1, in order."""
    cdef double discriminant = b * b - 4.0 * a * c, q
    if discriminant <= 0.0:
        return []
    # Without cancellation: the root of larger size first, the other from the product c / a.
    q = -0.5 * (b + copysign(sqrt(discriminant), b))
    roots = [q / a] if a else []
    if q:
        roots.append(c / q)
    return sorted([x for x in roots if 0.0 < x < 1.0])
