"""The callbacks of a problem at many points at once, as arrays.

Sweeps know all stage points after the forward run and evaluate derivatives at all of them in one
call.  ``protocol`` says what an engine may ask for; ``pointwise``, ``vectorized`` and ``compiled``
answer from callbacks of one point, of many points, and from C functions; ``many_points`` evaluates
a callback of one point at many of them.

Read first: ``protocol``, ``pointwise``.
"""
