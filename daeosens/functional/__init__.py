"""A simulation as a function of unknowns: x -> J(x), its gradient and Hessian products.

In come a problem, costs, a stepping and ``Parameters`` (which unknowns there are, on which scale);
out comes a ``Functional``, which is all that optimisers and checks see.  ``Joint`` adds several of
them, ``Ensemble`` runs one problem many times.  Read first: ``functional``, ``reduced``,
``parameters``.
"""

from daeosens.functional.distributed_controls import FieldParameter, InitialState
from daeosens.functional.ensemble import Ensemble, solve_batch
from daeosens.functional.field_parameters import FieldParameters
from daeosens.functional.joint import Joint

__all__ = ["Ensemble", "FieldParameter", "FieldParameters", "InitialState", "Joint", "solve_batch"]
