"""Sweeps over whole runs of delay equations, by arrays.

A step looks at states of many earlier ones, so that no window has all that it needs: in comes a
whole run, out come its tangents, adjoints and second order.  Read first: ``program`` (the run as
one linearised program), ``tangents`` and ``adjoints`` (both ways through it), then ``sweep``.
"""
