"""One step of a method, as a map of state, parameters, time and size, with its derivatives.

In come a problem and a step; out come the step's tangent, adjoint and second-order adjoint, on
vectors or on blocks of arrays.  A family of methods is a folder: ``rk``, ``esdirk``, ``theta``;
``events`` holds the steps that end at an event with the reset, ``dae`` algebraic equations.

A method of a family that exists is a line of its ``method`` and coefficients in its ``tableau``.

Read first: ``method`` (what a method is), ``registry`` (which there are), ``step`` and ``rk/step``
(the textbook case, with its adjoint).
"""

from daeosens.methods.registry import METHODS, find_method

__all__ = ["METHODS", "find_method"]
