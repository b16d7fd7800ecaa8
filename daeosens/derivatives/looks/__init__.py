"""Looks at a run whose derivatives were taken: what the sweeps themselves do not see.

In come a trajectory and the costs that were differentiated; warnings go out: kinks and jumps
between two states, steps that do not resolve derivatives or running costs, a start that other
parameters do not admit.  Each look is a function in a module of its own; ``look`` says when which
of them is taken and what it costs, and is called once by each derivative.

Read first: ``look``; then ``start``, the shortest of them.
"""
