"""Adapters without their library: the error names the package to install."""

import importlib
import sys

import pytest

PACKAGES = {"pyterrier": ("pyterrier", "pyterrier"), "exposure_measures": ("ir_measures", "ir-measures")}


@pytest.mark.parametrize("adapter", PACKAGES)
def test_adapter_without_its_library_names_the_package(adapter, monkeypatch):
    library, package = PACKAGES[adapter]
    monkeypatch.setitem(sys.modules, library, None)  # an import of it fails, as if it were not installed
    monkeypatch.delitem(sys.modules, f"mcfair.plugs.{adapter}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=f"^mcfair.plugs.{adapter} needs {library}: pip install {package}$"):
        importlib.import_module(f"mcfair.plugs.{adapter}")
