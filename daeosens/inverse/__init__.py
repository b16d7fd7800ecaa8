"""Inverse problems: fits, their uncertainty, profiles, multistart, posteriors of fields."""

from daeosens.inverse.fit import fit
from daeosens.inverse.fit_result import Fit
from daeosens.inverse.likelihood.likelihood import likelihood
from daeosens.inverse.likelihood.noise import LogNormal, Normal

__all__ = ["Fit", "LogNormal", "Normal", "fit", "likelihood"]
