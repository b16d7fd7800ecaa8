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


def says(function):
    """Whether a function says that it is, or that it is not."""
    return "ollective" in (inspect.getdoc(function) or "")


def is_collective(function):
    """Whether a function says that it is: 'Collective', and not only that something is not."""
    text = inspect.getdoc(function) or ""
    return "Collective" in text.replace("Not collective", "") or " collective" in text.replace(
        "ot collective", ""
    )


def underlying(member):
    for name in ("fget", "func"):
        member = getattr(member, name, member)
    return inspect.unwrap(member) if inspect.isfunction(member) else None


def surface():
    """Yield the name, the owner and the function of what users may call or read."""
    for name, public in public_names().items():
        if inspect.isfunction(public):
            yield name, None, public
        elif inspect.isclass(public):
            for kind in public.__mro__:
                if kind.__module__.startswith("daeosens"):
                    for key, member in vars(kind).items():
                        if not key.startswith("_") and underlying(member) is not None:
                            yield f"{name}.{key}", public, member
