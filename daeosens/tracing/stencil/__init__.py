"""Functions of a grid's point and its neighbours, made into problems on distributed grids.

``problem`` is what users call; ``point`` records the function, ``derivatives`` differentiates it,
``rows`` and ``loops`` write the loops in C, ``chain`` lets the stages of a step share them,
``binding`` compiles what is called, and ``interpreted`` does without a compiler.

In come a function, a ``Grid`` and parameters; out comes a ``Problem``.  Read first: ``problem``,
``point``.
"""
