"""The problems of this package, and how one is found by its name."""
