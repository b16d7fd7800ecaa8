"""Configurations: TOML files and command lines in, checked dataclasses out.

``schema`` says what a field may be, ``values`` reads it, ``read`` puts the file, the command line
and the defaults together, ``arguments`` makes the command line's help.  Read first: ``read``.
"""
