"""Loops over the windows and the events of a run: back, forward, and second order.

In come a trajectory and a request; each loop asks for an engine (``engines/choice``), hands it one
smooth window after the other, and carries rows over the events between them.  Out come rows or
tangents at the ends.  Read first: ``backward``, the textbook case; ``forward`` is its mirror.
"""
