"""Code compiled on this machine: its cache, and the message of a compiler that fails."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest

from tcusim.machine.disk_cache import cache_folder, find_code
from tcusim.machine.native import (
    CompileError,
    kept_library,
    library_path,
    shared_library,
    why_no_compiler,
)

needs_compiler = pytest.mark.skipif(why_no_compiler() is not None, reason="there is no compiler")


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TCUSIM_CACHE_DIR", "here")
    assert cache_folder() == Path.cwd() / "here"
    monkeypatch.delenv("TCUSIM_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "tcusim"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "tcusim"


@needs_compiler
def test_a_library_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(tmp_path / "cache"))
    source = tmp_path / "two.cpp"
    source.write_text('extern "C" int two() { return 2; }\n')
    assert kept_library(source, ("-O0",)) is None
    assert not (tmp_path / "cache").exists()
    path = shared_library(source, ("-O0",))
    assert kept_library(source, ("-O0",)) == path
    assert ctypes.CDLL(str(path)).two() == 2
    before = path.stat().st_mtime_ns
    assert shared_library(source, ("-O0",)) == path
    assert path.stat().st_mtime_ns == before
    assert library_path(source, ("-O1",)) != path
    assert [one.suffix for one in path.parent.iterdir()] == [".so"]
    path.write_bytes(path.read_bytes()[:-1])
    assert find_code(shared_library(source, ("-O0",))) == path


@needs_compiler
def test_another_compiler_makes_another_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(tmp_path / "cache"))
    source, compiler = tmp_path / "two.cpp", tmp_path / "compiler"
    source.write_text('extern "C" int two() { return 2; }\n')
    compiler.write_text('#!/bin/sh\nexec g++ "$@"\n')
    compiler.chmod(0o700)
    usual = library_path(source, ())
    monkeypatch.setenv("CXX", str(compiler))
    first = library_path(source, ())
    os.utime(compiler, (1, 1))
    assert len({usual, first, library_path(source, ())}) == 3


@needs_compiler
def test_what_does_not_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(tmp_path / "cache"))
    source = tmp_path / "wrong.cpp"
    source.write_text("int two() { return x; }\n")
    with pytest.raises(CompileError, match=r"g\+\+ cannot compile wrong.cpp:\n(.|\n)*x"):
        shared_library(source, ())


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++ -O2")
    if sys.platform == "linux":
        assert "no C++ compiler: '/nowhere/g++' is not on the PATH" in (why_no_compiler() or "")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert why_no_compiler() == "it needs Linux, this is darwin"
