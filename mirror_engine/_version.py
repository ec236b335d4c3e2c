"""The version, which the package's metadata is built from."""

__version__ = "0.1.0"
