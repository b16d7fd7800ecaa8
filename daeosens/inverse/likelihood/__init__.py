"""Data and noise of experiments, and the likelihood that they make.

In come tables of measurements, noise models and perhaps several experiments; out comes a functional
of the parameters, the negative log-likelihood, with noise levels known or estimated
(``noise_levels``).  Read first: ``likelihood``, ``measurements``, ``noise``.
"""
