import importlib.metadata

import pytest

import downside as ds
from downside._machine import versions


def test_our_version_is_known_where_the_package_is_not_installed(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert versions("downside") == {"downside": ds.__version__}
    with pytest.raises(importlib.metadata.PackageNotFoundError, match="jax"):
        versions("jax")
