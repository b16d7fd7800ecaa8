"""Sweeps with derivatives at all stage points at once, as blocks of arrays.

In comes a window of steps; derivatives of all its points come from one call of the callbacks
(``problem/batched``), and only the recurrence over the steps is left.  Out come rows, tangents or
second-order rows.  ``step_blocks`` keeps blocks within a bounded memory.

Read first: ``step_blocks``, then ``adjoint``; ``methods/rk/block`` has the recurrence.
"""
