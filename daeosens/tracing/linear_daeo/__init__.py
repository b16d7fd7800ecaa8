"""DAEOs whose inner problem is a linear programme.

In come f, a linear programme whose bounds move with (t, x, p), and ranked objectives; out comes a
``Problem`` with one mode for each optimal basis, since flows are linear in the bounds as long as
the basis stays.  ``bases`` goes from one to the next by the dual simplex method, ``watch`` tells
where a flow comes to a bound.

Read first: ``build``, ``programme``, ``bases``; docs/flux_balance.md.
"""
