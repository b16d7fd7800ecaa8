"""What checks found, printed as tables: a verdict for each callback, and those of a Taylor test."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from daeosens.petsc.vectors import Array

Verdict = Literal["right", "wrong", "cannot tell", "not supplied"]


@dataclass(frozen=True)
class CheckedCallback:
    """What was found about one callback.

    Attributes
    ----------
    name : str
        As in the call that supplied it: "jacobian_p", "terminal gradient_u".
    source : str
        "callback", "compiled", "products", "automatic", "autonomous", "independent", "library"
        or empty.
    error : float
        Relative error; NaN if there is nothing to compare.
    verdict : str
        "right", "wrong", "cannot tell" (the callback that it differentiates is too rough for
        differences) or "not supplied".
    detail : str
        The worst entry in words, or why the callback failed.
    """

    name: str
    source: str
    error: float
    verdict: Verdict
    detail: str = ""


@dataclass(frozen=True)
class Check:
    """The result of ``check``: one row for each callback; prints itself as a table."""

    rows: tuple[CheckedCallback, ...]
    tolerance: float

    @property
    def wrong(self) -> tuple[str, ...]:
        """Names of the callbacks that are wrong."""
        return tuple(row.name for row in self.rows if row.verdict == "wrong")

    @property
    def unclear(self) -> tuple[str, ...]:
        """Names of the callbacks that differences cannot judge at this point."""
        return tuple(row.name for row in self.rows if row.verdict == "cannot tell")

    @property
    def passed(self) -> bool:
        """Whether no callback was found to be wrong."""
        return not self.wrong

    def __getitem__(self, name: str) -> CheckedCallback:
        """Return the row of a callback."""
        return {row.name: row for row in self.rows}[name]

    def __str__(self) -> str:
        width = max([len(row.name) for row in self.rows], default=0) + 2
        lines = [f"{'callback':{width}}{'by':15}{'relative error':17}verdict"]
        for row in self.rows:
            error = "-" if math.isnan(row.error) else f"{row.error:.1e}"
            verdict = "WRONG" if row.verdict == "wrong" else row.verdict
            detail = f"  {row.detail}" if row.detail else ""
            lines.append(f"{row.name:{width}}{row.source or '-':15}{error:17}{verdict}{detail}")
        return "\n".join(lines)


SECOND_ORDER, THIRD_ORDER = 1.9, 2.9
"""What the order of the remainder has to reach: with the gradient, with the Hessian too."""

NOISY = 50.0
"""A remainder below so many times the noise of J says nothing about an order."""


@dataclass(frozen=True, eq=False)
class Taylor:
    """The result of ``taylor``; prints itself as a table.

    Iterating gives the order of the remainder with the highest derivative, so that a test reads
    ``assert min(taylor(functional)) > 1.9``, or with ``hessian=True`` > 2.9.

    Attributes
    ----------
    value, derivative : float
        J(x) and dJ.d.
    epsilons : array [K]
        Decreasing step sizes.
    remainders : array [2 or 3, K]
        |J(x + eps d) - J(x)|, the same minus eps dJ.d, and minus eps^2/2 d.H d if asked for.
    noise : float
        Estimated rounding of J.
    curvature : float
        d.H d; NaN if not asked for.
    jumps : bool
        Whether steps were chosen anew at each point, so that J jumps by about their tolerance: a
        remainder that stalls says nothing then.

    Examples
    --------
    >>> import numpy as np
    >>> epsilons = np.array([0.2, 0.1, 0.05])
    >>> remainders = np.array([epsilons + epsilons**2, epsilons**2])
    >>> test = Taylor(1.0, 1.0, epsilons, remainders, noise=1e-16)
    >>> list(test), test.passed
    ([2.0], True)
    """

    value: float
    derivative: float
    epsilons: Array
    remainders: Array
    noise: float
    curvature: float = np.nan
    jumps: bool = False

    @property
    def orders(self) -> Array:
        """Observed orders [2 or 3, K-1]; NaN where noise dominates a remainder of the pair."""
        # A remainder c eps^k: the order is the slope between neighbours, log of the quotient over
        # that of the step sizes.
        credible = self.remainders > NOISY * self.noise
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = np.log2(self.remainders[:, :-1] / self.remainders[:, 1:])
        slopes = slopes / np.log2(self.epsilons[:-1] / self.epsilons[1:])
        return np.where(credible[:, :-1] & credible[:, 1:], slopes, np.nan)

    @property
    def order(self) -> float:
        """Order of the remainder with the gradient: 2 if the gradient is right.

        The larger one of the last two credible orders: before them steps may be too large for the
        order to show, and rounding touches the last one.  Infinite where the whole remainder is
        noise, while the change of J is not (J is linear along the direction, as far as can be
        seen); NaN where nothing can be seen.
        """
        return self._order(1)

    @property
    def hessian_order(self) -> float:
        """Order of the remainder with the Hessian: 3 if it is right.

        Judged, infinite and NaN as for ``order``; NaN also where the Hessian was not asked for.
        """
        return self._order(2) if len(self.remainders) > 2 else np.nan

    def _order(self, row: int) -> float:
        orders = self.orders[row]
        if np.isfinite(orders).any():
            # The last two, of which rounding may spoil the very last.
            return float(orders[np.isfinite(orders)][-2:].max())
        largest_change, largest_remainder = self.remainders[row - 1 : row + 1, 0]
        # Nothing credible is left: at the largest step the remainder is far below the change that
        # it is a remainder of, or there is none to see.
        if largest_remainder <= 1e-4 * largest_change or largest_remainder == 0.0:
            return np.inf
        return np.nan

    @property
    def passed(self) -> bool:
        """Whether the remainder with the gradient (and the Hessian) falls as fast as it should.

        If that with the Hessian does, both are right, however slowly the other one gets there.
        """
        if len(self.remainders) > 2:
            return self.hessian_order > THIRD_ORDER
        return self.order > SECOND_ORDER

    def __iter__(self) -> Iterator[float]:
        """Iterate over the order of the last remainder, the only one."""
        return iter([self._order(len(self.remainders) - 1)])

    def __str__(self) -> str:
        headings = ["|J(x+eps d)-J|", "|... - eps dJ.d|", "|... - eps^2/2 d.Hd|"]
        lines = [f"Taylor test: J = {self.value:.9g}, dJ.d = {self.derivative:.9g}"]
        if len(self.remainders) > 2:
            lines[0] += f", d.Hd = {self.curvature:.9g}"
        columns = [f"{heading:<21}order " for heading in headings[: len(self.remainders)]]
        lines.append(("eps        " + " ".join(columns)).rstrip())
        orders = np.column_stack([np.full(len(self.remainders), np.nan), self.orders])
        for k, eps in enumerate(self.epsilons):
            cells = [
                f"{remainder:<21.6e}{_words(order):6}"
                for remainder, order in zip(self.remainders[:, k], orders[:, k], strict=True)
            ]
            lines.append((f"{eps:<11.3e}" + " ".join(cells)).rstrip())
        lines.append(
            f"order {self.order:.3f}, rounding of J {self.noise:.1e}: "
            f"the gradient {self._verdict(self.order, SECOND_ORDER, known=self.passed)}"
        )
        if len(self.remainders) > 2:
            lines.append(
                f"order {self.hessian_order:.3f}: "
                f"the Hessian {self._verdict(self.hessian_order, THIRD_ORDER)}"
            )
        return "\n".join(lines)

    def _verdict(self, order: float, wanted: float, *, known: bool = False) -> str:
        if known or order > wanted:
            return "is right"
        if np.isnan(order):
            return "cannot be judged: the remainder is noise"
        if self.jumps:
            return "cannot be judged: adaptive steps through events jump; take fixed steps, dt"
        return "is WRONG"


def _words(order: float) -> str:
    return "-" if np.isnan(order) else f"{order:.3f}"
