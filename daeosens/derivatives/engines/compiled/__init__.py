"""Sweeps in C over the functions of a compiled model.

In comes a window of steps of a model whose functions are in C; rows, tangents or second-order rows
go out, without a line of Python in between.  ``adjoint.carrier`` says what can carry rows over
the steps of a method, and gives None where nothing can.

Read first: ``adjoint``; the recurrences are in ``petsc/_kernels``.
"""
