"""Inverse problems: fits, their uncertainty, profiles, multistart, posteriors of fields.

In come a problem, measurements with their noise, and ``Parameters``; out come estimates and how
well they are known.  ``likelihood`` makes a functional of data, ``bilevel`` and ``search`` find
where a fit begins and whether it has ended (``fit_search`` leads through that), ``uncertainty``
says how well estimates are known, ``fit_conclusion`` what comes of a fit, and ``discovery`` looks
for the terms of an equation.

Read first: ``fit`` (all of these in order), ``fit_result``, ``uncertainty/covariance``.
"""

from daeosens.inverse.bilevel import Bilevel, bilevel
from daeosens.inverse.discovered_model import Discovered
from daeosens.inverse.discovery import Discovery
from daeosens.inverse.fit import fit
from daeosens.inverse.fit_discretization import Discretization
from daeosens.inverse.fit_result import Fit
from daeosens.inverse.identifiability import identifiability
from daeosens.inverse.likelihood.likelihood import likelihood
from daeosens.inverse.likelihood.noise import LogNormal, Normal
from daeosens.inverse.saved_fits import SavedFit, load_fit, save_fit
from daeosens.inverse.search.multistart import Multistart, multistart
from daeosens.inverse.search.start_points import starting_points
from daeosens.inverse.term_library import Term, feature_library, polynomials
from daeosens.inverse.term_selection import Selected
from daeosens.inverse.uncertainty.covariance import Covariance, covariance
from daeosens.inverse.uncertainty.field_terms import FieldPenalty, joint_prior, total_variation
from daeosens.inverse.uncertainty.gaussian_prior import GaussianPrior, matern
from daeosens.inverse.uncertainty.laplace import Posterior, laplace
from daeosens.inverse.uncertainty.prediction import Prediction, predict
from daeosens.inverse.uncertainty.profiles import Profile, Profiles, profile
from daeosens.inverse.uncertainty.regularized import Regularized

__all__ = [
    "Bilevel",
    "Covariance",
    "Discovered",
    "Discovery",
    "Discretization",
    "FieldPenalty",
    "Fit",
    "GaussianPrior",
    "LogNormal",
    "Multistart",
    "Normal",
    "Posterior",
    "Prediction",
    "Profile",
    "Profiles",
    "Regularized",
    "SavedFit",
    "Selected",
    "Term",
    "bilevel",
    "covariance",
    "feature_library",
    "fit",
    "identifiability",
    "joint_prior",
    "laplace",
    "likelihood",
    "load_fit",
    "matern",
    "multistart",
    "polynomials",
    "predict",
    "profile",
    "save_fit",
    "starting_points",
    "total_variation",
]
