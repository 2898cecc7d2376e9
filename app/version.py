"""The version of what is installed, or of the checkout."""

from importlib import metadata


def version() -> str:
    """The distribution's version; a bare checkout says so."""
    try:
        return metadata.version("runner-local")
    except metadata.PackageNotFoundError:
        return "0.1.0+checkout"
