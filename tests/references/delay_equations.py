"""Delay equations with 30 digits: Taylor series on every piece between two breaking points.

Independent of the package: no Runge-Kutta method, no interpolation.  On a piece the solution, and
what it looks at, are polynomials in time whose coefficients come one after the other from the
equation, in mpmath's arithmetic; a piece is divided until the last coefficients no longer count.
Run as a program it prints the digits that tests keep.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import mpmath as mp

DIGITS, ORDER = 40, 44


class Series:
    """A Taylor polynomial; products and quotients by the rules of Leibniz."""

    def __init__(self, terms):
        self.terms = list(terms)

    def __add__(self, other):
        if not isinstance(other, Series):
            return Series([self.terms[0] + other, *self.terms[1:]])
        return Series(a + b for a, b in zip(self.terms, other.terms, strict=False))

    __radd__ = __add__

    def __mul__(self, other):
        if not isinstance(other, Series):
            return Series(a * other for a in self.terms)
        count = min(len(self.terms), len(other.terms))
        a, b = self.terms, other.terms
        return Series(mp.fsum(a[j] * b[k - j] for j in range(k + 1)) for k in range(count))

    __rmul__ = __mul__

    def __neg__(self):
        return self * mp.mpf(-1)

    def __sub__(self, other):
        return self + -other

    def __pow__(self, power):
        """Return self^power by (self^power)' self = power self' self^power."""
        a, result = self.terms, [self.terms[0] ** power]
        for k in range(1, len(a)):
            total = mp.fsum((power * j - (k - j)) * a[j] * result[k - j] for j in range(1, k + 1))
            result.append(total / (k * a[0]))
        return Series(result)


def shifted(terms, by):
    """Return the coefficients of a polynomial about another point."""
    terms = list(terms)
    for k in range(len(terms)):
        for j in range(len(terms) - 2, k - 1, -1):
            terms[j] += by * terms[j + 1]
    return terms


def solve(rhs, delays, history, start, end, longest):
    """Return the state at ``end`` of u' = rhs(u, z), from 0 on; a constant history.

    ``rhs(z)`` returns the function of u, whose rates it gives; both are lists of series.  Pieces
    are no longer than ``longest``.
    """
    sums = {mp.mpf(0)}
    for _ in range(9):
        sums |= {s + tau for s in sums for tau in delays if s + tau < end}
    cuts = sorted(sums | {mp.mpf(end)})
    ends = [mp.mpf(0)]
    for first, last in pairwise(cuts):
        if last - first > mp.mpf(10) ** (5 - DIGITS):
            parts = int(mp.ceil((last - first) / longest))
            ends += [first + (last - first) * (k + 1) / parts for k in range(parts)]
    pieces, state = [], list(start)
    for t, after in pairwise(ends):
        middle, z = (t + after) / 2, []
        for tau in delays:
            k = bisect_right(ends, middle - tau) - 1
            if middle < tau:
                z.append([Series([value] + [mp.mpf(0)] * ORDER) for value in history])
            else:
                z.append([Series(shifted(terms, t - tau - ends[k])) for terms in pieces[k]])
        terms, rates_of = [[value] for value in state], rhs(z)
        for k in range(ORDER):
            rates = rates_of([Series(term) for term in terms])
            for term, rate in zip(terms, rates, strict=True):
                term.append(rate.terms[k] / (k + 1))
        pieces.append(terms)
        state = [mp.polyval(term[::-1], after - t) for term in terms]
    return state


def kermack_mckendrick(k=None, delays=(1, 10), end=40, longest=0.125):
    """Return (x0, x1, x2) of the epidemic with two delays at the end."""
    k = [mp.mpf(j) / 10 for j in range(1, 7)] if k is None else k

    def rhs(z):
        sick, earlier = z[0][1], z[1][1]
        return lambda x: [
            -k[0] * (x[0] * sick) + k[1] * earlier,
            k[2] * (x[0] * sick) - k[3] * x[1],
            k[4] * x[1] - k[5] * earlier,
        ]

    start = [mp.mpf(5), mp.mpf(1) / 10, mp.mpf(1)]
    return solve(rhs, [mp.mpf(tau) for tau in delays], start, start, end, longest)


def mackey_glass(p=None, tau=2, end=20, longest=0.0625):
    """Return x(end) of x' = a z / (1 + z^n) - b x, from 1/2."""
    a, b, n = (mp.mpf(2), mp.mpf(1), mp.mpf(7)) if p is None else p

    def rhs(z):
        growth = a * (z[0][0] * (1 + z[0][0] ** n) ** -1)
        return lambda x: [growth - b * x[0]]

    half = [mp.mpf(1) / 2]
    return solve(rhs, [mp.mpf(tau)], half, half, end, longest)


def chain(delays, history, start, end, longest=0.25):
    """Return x(end) of x' = -x(t - tau_1) - ... - x(t - tau_d)."""

    def rhs(z):
        total = -sum((late[0] for late in z[1:]), z[0][0])
        return lambda x: [total]

    delays = [mp.mpf(tau) for tau in delays]
    return solve(rhs, delays, [mp.mpf(history)], [mp.mpf(start)], end, longest)


def granulopoiesis(end=100, longest=0.05):
    """Return the state of Wheldon, Kirk and Finlay's leukaemia (A2 of Enright and Hayashi)."""
    start = [mp.mpf("1.05767027") / 3, mp.mpf("1.030713491") / 3]

    def rhs(z):
        made = mp.mpf("1.1") * (1 + mp.sqrt(10) * z[0][0] ** (mp.mpf(5) / 4)) ** -1

        def rates(x):
            lost = 10 * x[0] * (1 + 40 * x[1]) ** -1
            return [made - lost, 10 * lost - mp.mpf("2.43") * x[1]]

        return rates

    return solve(rhs, [mp.mpf(20)], start, start, end, longest)


def wille_baker(end=5, longest=0.25):
    """Return the state of the three equations of Wille and Baker (the first example of dde23)."""
    ones = [mp.mpf(1)] * 3

    def rhs(z):
        return lambda x: [z[0][0], z[0][0] + z[1][1], 1 * x[1]]

    return solve(rhs, [mp.mpf(1), mp.mpf(1) / 5], ones, ones, end, longest)


def slope(function, at):
    """Return the derivative of ``function`` at a number, by central differences: to 1e-20."""
    h = mp.mpf(10) ** -11
    return (function(at + h) - function(at - h)) / (2 * h)


if __name__ == "__main__":
    mp.mp.dps = DIGITS
    print("Kermack-McKendrick", [mp.nstr(x, 30) for x in kermack_mckendrick()])
    print("Mackey-Glass", [mp.nstr(x, 30) for x in mackey_glass()])
    blood = (mp.mpf("0.2"), mp.mpf("0.1"), mp.mpf(10))
    for name, solution in (
        ("A1 of Enright and Hayashi", lambda: mackey_glass(blood, tau=14, end=500, longest=0.25)),
        ("A2", granulopoiesis),
        ("Wille and Baker", wille_baker),
        ("one delay", lambda: chain([1], 0, 1, 10)),
        ("two delays", lambda: chain([mp.mpf(1) / 3, mp.mpf(1) / 5], 0, 1, 1)),
    ):
        print(name, [mp.nstr(x, 30) for x in solution()])
    a, b, n = mp.mpf(2), mp.mpf(1), mp.mpf(7)
    for name, function, at in (
        ("a", lambda x: mackey_glass((x, b, n))[0], a),
        ("n", lambda x: mackey_glass((a, b, x))[0], n),
        ("tau", lambda x: mackey_glass(tau=x)[0], mp.mpf(2)),
    ):
        print(f"Mackey-Glass, by {name}", mp.nstr(slope(function, at), 20))
