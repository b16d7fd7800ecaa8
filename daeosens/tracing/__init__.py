"""Models from plain functions: traced once, differentiated, compiled (the extra ``trace``).

In come functions of NumPy, out comes a ``Model``: a ``Problem`` whose functions and derivatives
are C.  A function is called once with symbols (``symbols``, ``ufuncs``), CasADi differentiates the
graph (``derivatives``), ``c_source`` writes C, ``compilation`` makes a library of it.  ``stencil``
does this for grids, ``weak_form`` for finite elements, ``daeo`` and ``linear_daeo`` for equations
with an optimisation problem inside.

Users call ``equations``, ``fields_in_space`` and ``optimisers``.  Read first: ``build`` (how these
follow each other), ``tracer``, ``derivatives``.
"""

from daeosens.tracing.daeo.effort import SearchEffort
from daeosens.tracing.equations import separate as separate
from daeosens.tracing.equations import separate_rates as separate_rates
from daeosens.tracing.equations import trace, trace_residual
from daeosens.tracing.fields_in_space import trace_stencil, trace_weak_form
from daeosens.tracing.model import (
    DAEOModel,
    FieldModel,
    FieldWeakForm,
    LinearDAEOModel,
    Model,
    Parametrized,
    WeakForm,
)
from daeosens.tracing.optimisers import DAEO, LinearDAEO

__all__ = [
    "DAEO",
    "DAEOModel",
    "FieldModel",
    "FieldWeakForm",
    "LinearDAEO",
    "LinearDAEOModel",
    "Model",
    "Parametrized",
    "SearchEffort",
    "WeakForm",
    "trace",
    "trace_residual",
    "trace_stencil",
    "trace_weak_form",
]
