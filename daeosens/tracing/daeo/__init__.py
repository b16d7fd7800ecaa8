"""DAEOs: differential equations with an embedded global optimisation.

In come f(t, x, y, p), h(t, x, y, p) and a box of y; out comes a ``Problem`` of x and y, y the
lowest minimiser of h, with what follows its runs.  ``search`` finds all ``minimizers`` with proof,
by interval arithmetic (``intervals``, ``tape``); ``tracker`` follows them along steps
(``followed``, ``courses``) and tells where another one is the lowest; ``inner`` differentiates y in
all that it depends on.

Read first: ``build``, ``inner``, ``tracker``; docs/daeo.md.
"""
