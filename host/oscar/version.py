"""The release, in one place: the package, its wheel, results and greetings read it."""

__version__ = "0.2.0"
