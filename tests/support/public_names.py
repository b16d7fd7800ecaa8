"""What users may import: the names of ``daeosens``, and those of its packages with a dot."""

import inspect

import daeosens

PACKAGES = (
    *("problem", "tracing", "timestepping", "costs", "derivatives", "functional", "optimize"),
    *("verify", "inverse", "errors", "petsc", "methods"),
)


def public_names():
    """Return name -> object; ``costs.AtEvent`` for what is not at the top."""
    names = {name: getattr(daeosens, name) for name in daeosens.__all__}
    for package in PACKAGES:
        module = getattr(daeosens, package)
        for name in getattr(module, "__all__", None) or classes_of(module):
            if name not in names:
                names[f"{package}.{name}"] = getattr(module, name)
    return names


def classes_of(module):
    """Return the names of the classes that a module defines."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__
    ]
