"""Where the steps of a run are to end, so that its derivatives can follow them.

In come a run and how to take it again; out comes the run, or another one with steps that end at
kinks, resolve oscillations, pulses and tangents, or fill a rest.  Each is a function in a module of
its own; ``solve`` calls them in their order.

Read first: ``rests``, the shortest; then ``kink_cuts``, over ``kinks_inside`` and
``branch_passages``.
"""
