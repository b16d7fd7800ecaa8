"""What the check of callbacks found: a verdict for each one, printed as a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from daeosens.errors import InputError

Verdict = Literal["right", "wrong", "cannot tell", "not supplied"]


@dataclass(frozen=True)
class CheckedCallback:
    """What was found about one callback.

    Attributes
    ----------
    name : str
        As in the call that supplied it: "jacobian_p", "terminal gradient_u".
    source : str
        "callback", "compiled", "products", "complex step", "autonomous", "independent", "library"
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
    def ok(self) -> bool:
        """Whether no callback was found to be wrong."""
        return not self.wrong

    @property
    def passed(self) -> bool:
        """The same as ``ok``, under the name that a driver's report has."""
        return self.ok

    def __getitem__(self, name: str) -> CheckedCallback:
        """Return the row of a callback."""
        return {row.name: row for row in self.rows}[name]

    def raise_if_wrong(self) -> None:
        """Raise an error that names the wrong callbacks, if there are any.

        Raises
        ------
        InputError
            Some callback is not the derivative of what it should differentiate.
        """
        if self.ok:
            return
        lines = [f"{row.name} ({row.detail})" for row in self.rows if row.verdict == "wrong"]
        raise InputError(
            "wrong callbacks: " + ", ".join(lines),
            expected=f"derivatives within {self.tolerance:g} of differences",
            remedy="mend these; in NumPy style they can be left out (exact by complex step)",
        )

    def __str__(self) -> str:
        width = max([len(row.name) for row in self.rows], default=0) + 2
        lines = [f"{'callback':{width}}{'by':15}{'relative error':17}verdict"]
        for row in self.rows:
            error = "-" if math.isnan(row.error) else f"{row.error:.1e}"
            verdict = "WRONG" if row.verdict == "wrong" else row.verdict
            detail = f"  {row.detail}" if row.detail else ""
            lines.append(f"{row.name:{width}}{row.source or '-':15}{error:17}{verdict}{detail}")
        return "\n".join(lines)
