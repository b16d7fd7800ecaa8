"""Inverse problems: fits, their uncertainty, profiles, multistart, posteriors of fields."""

from daeosens.inverse.fitted import Fit
from daeosens.inverse.fitting import fit
from daeosens.inverse.likelihoods import likelihood
from daeosens.inverse.noise import LogNormal, Normal

__all__ = ["Fit", "LogNormal", "Normal", "fit", "likelihood"]
