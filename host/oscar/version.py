"""The release and the versions of methods: the package, its wheel, results and greetings read them."""

__version__ = "0.3.0"

# Raised when what a method sends, or what it returns by its defaults, changes. ASC's is its frames' format.
METHOD_VERSIONS = {  # of methods that are not named: 1
    "asc": 4,
    "asc-paper": 4,
    "oscar-sw": 2,
    "oscar-sw-best": 2,
    "oscar-sw-lossless": 2,
    "lhc": 2,
    "sketched-sgd": 2,
    "powersgd": 2,
}
