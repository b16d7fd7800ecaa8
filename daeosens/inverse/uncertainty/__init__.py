"""How well estimates are known: covariance, profiles, predictions, posteriors of fields.

In come a functional and its minimum; out come standard errors and intervals by the curvature
there (``covariance``), intervals that follow J itself (``profiles``), bands of outputs
(``prediction``), and posteriors of fields with many unknowns (``gaussian_prior``, ``laplace``).

Read first: ``covariance``, ``profiles``.
"""
