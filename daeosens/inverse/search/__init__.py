"""Where a fit starts, from how many points, and how it ends.

In come a functional and the ranges of its parameters; ``start_points`` spreads starts,
``multistart`` minimises from each on groups of ranks and keeps what came of them
(``start_records``), ``plateau`` tells ends far from any minimum, ``final_newton_step`` ends fits of
nearly exact data.  Out come all attempts, best first.  Read first: ``multistart``.
"""
