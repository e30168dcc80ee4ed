"""Triton is used where it can compile, and what is missing is named."""

from __future__ import annotations

import importlib.machinery
import sysconfig

import pytest

from rlforge_cli import triton_support
from rlforge_cli.triton_support import has_triton, triton_lacks


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """One with Triton, a gcc and Python's headers, whatever this one has."""
    (tmp_path / "Python.h").touch()
    monkeypatch.delenv("CC", raising=False)
    found = {"triton": importlib.machinery.ModuleSpec("triton", None)}
    monkeypatch.setattr(triton_support, "find_spec", found.get)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/gcc" if name == "gcc" else None)
    monkeypatch.setattr(sysconfig, "get_paths", lambda scheme: {"include": str(tmp_path)})
    triton_lacks.cache_clear()
    yield tmp_path
    triton_lacks.cache_clear()


def test_it_is_used_where_nothing_is_missing():
    assert has_triton()


def test_without_triton_nothing_is_missed(monkeypatch):
    monkeypatch.setattr(triton_support, "find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert not has_triton()
    assert triton_lacks() is None


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert not has_triton()
    assert triton_lacks() == "a C compiler (CC, gcc or clang)"
    triton_lacks.cache_clear()
    monkeypatch.setenv("CC", "tcc")
    assert has_triton()


def test_missing_headers_are_named(machine):
    (machine / "Python.h").unlink()
    assert not has_triton()
    assert str(machine) in str(triton_lacks())


def test_debians_own_scheme_is_not_taken(monkeypatch, machine):
    asked = []
    monkeypatch.setattr(sysconfig, "get_default_scheme", lambda: "posix_local")
    monkeypatch.setattr(sysconfig, "get_paths", lambda scheme: asked.append(scheme) or {"include": str(machine)})
    assert has_triton()
    assert asked == ["posix_prefix"]
