"""Whether one noise level for all columns of a fit is borne out by their residuals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import chdtrc

from daeosens.errors import NoiseWarning, warn
from daeosens.petsc.vectors import Array

LEVEL, RATIO, FEWEST = 1e-3, 2.0, 3
"""Levels differ that equal ones would make with less than this probability, by more than this
factor, of columns with so many measurements."""

EXACT = 1e-3
"""Residuals below this part of the data are no noise of measurements, but what steps err."""


def warn_of_unequal_noise(
    names: Sequence[str], residuals: Array, sigma: float, sizes: Array, comm: Any = None
) -> None:
    """Warn where columns that share an estimated noise level have residuals of different size.

    Parameters
    ----------
    names : sequence of str [q]
        Of the columns.
    residuals : array [K, q]
        Over the noise level; NaN where nothing was observed.
    sigma : float
        The noise level, in the data's unit (of log-normal noise: relative).
    sizes : array [q]
        Of the data, in the same unit (of log-normal noise: 1).

    Warns
    -----
    NoiseWarning
        The ratio of their likelihoods with a level for each column and with one for all, chi-square
        with q - 1 degrees of freedom, is larger than chance would have it.

    Source
    ------
    Neyman, Pearson, On the problem of k samples (1931): the test for equal variances.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.normal(size=(20, 2))
    >>> warn_of_unequal_noise(["a", "b"], noise, 1.0, np.ones(2))
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as told:
    ...     warnings.simplefilter("always")
    ...     warn_of_unequal_noise(["a", "b"], noise * [0.1, 2.0], 1.0, np.ones(2))
    >>> str(told[0].message).splitlines()[0]
    'one noise level for all columns, but their residuals differ: 0.0863 (a), 1.42 (b)'
    """
    counts = np.sum(np.isfinite(residuals), axis=0)
    known = counts >= FEWEST
    if known.sum() < 2:
        return
    counts, residuals = counts[known], residuals[:, known]
    names = [name for name, counted in zip(names, known, strict=True) if counted]
    # Mean squares S_j / n_j: the likeliest variance of each column, in units of the common one.
    squares = np.nansum(residuals**2, axis=0) / counts
    if squares.min() <= 0.0 or squares.max() <= RATIO**2 * squares.min():
        return
    pooled = float(counts @ squares / counts.sum())
    # Twice the logarithm of the likelihood ratio: N log(sum S / N) - sum_j n_j log(S_j / n_j), 0
    # where all are equal.
    ratio = float(counts.sum() * np.log(pooled) - counts @ np.log(squares))
    if chdtrc(len(names) - 1, ratio) >= LEVEL:
        return
    levels = sigma * np.sqrt(squares)
    if (levels < EXACT * sizes[known]).all():
        return
    told = ", ".join(
        f"{level:.3g} ({name})" for level, name in zip(levels.tolist(), names, strict=True)
    )
    warn(
        f"one noise level for all columns, but their residuals differ: {told}\n"
        "  expected: columns in one unit with the same noise; the fit weights them alike, and "
        "standard errors follow from that\n"
        "  try: noise=Normal(each_column=True), or a sigma for each column",
        NoiseWarning,
        comm,
    )
