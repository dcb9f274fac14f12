"""`tcusim step`: a program, a block and a saved trace; bad options."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import tcusim
from command_line import fails, succeeds, tcusim_command
from tcusim.cli import step
from tcusim.stepper.frames import default_inputs


@pytest.fixture(name="scan", scope="module")
def scan_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tcusim.build("scan_256n")
    path = tmp_path_factory.mktemp("traces") / "scan.trace"
    tcusim.trace(program, default_inputs(program), arch="volta").save(path)
    return path


def test_a_saved_trace_shows_what_the_program_shows(scan: Path) -> None:
    options = ("--break", "mma", "--hex")
    kept = succeeds("step", "--load", str(scan), *options)
    assert kept == succeeds("step", "scan_256n", "--arch", "volta", *options)
    page = succeeds("step", "--load", str(scan), "--html", "-")
    assert page == succeeds("step", "scan_256n", "--arch", "volta", "--html", "-")


def test_a_block_is_all_its_warps() -> None:
    options = ("--warps", "2", "--only", "mma", "--plain")
    both = succeeds("step", "reduction_tn_block", *options, "--block", "0")
    parts = both.split("warp 1, of block 0")
    assert len(parts) == 2
    assert "warp 0, of block 0" in parts[0]
    one = succeeds("step", "reduction_tn_block", *options, "--warp", "1")
    assert one.partition("\nstep ")[2].strip() == parts[1].partition("\nstep ")[2].strip()


def test_publish_and_await_are_shown_too() -> None:
    program = ("scan_single_pass", "--warps", "8", "--columns", "2")
    text = succeeds("step", *program, "--break", "publish", "--plain")
    assert "break: publish\nstep " in text
    text = succeeds("step", *program, "--break", "await", "--warp", "8")
    assert "break: await\nstep " in text


def test_a_numbered_step() -> None:
    text = succeeds("step", "scan_256n", "--from", "#70")
    assert [line for line in text.splitlines() if line.startswith("step ")] == [
        *("step 70: 5.15  i = 3", "step 71: 5.16  i = 3", "step 72: 5.17  i = 3"),
    ]
    assert "no step at #99 runs in this warp" in succeeds("step", "scan_256n", "--from", "#99")


def test_a_cell_that_no_tile_has() -> None:
    result = tcusim_command("step", "scan_16", "--cell", "99,0")
    assert result.exit_code == 1
    assert "no tile of the steps that were shown has a cell 99,0" in result.stderr


@pytest.mark.parametrize(
    ("code", "options", "message"),
    [
        (2, (), "name an ALGORITHM, or a trace with --load FILE"),
        (1, ("scan_16", "--break", "mam"), "unknown breakpoint 'mam'. Did you mean 'mma'?"),
        (1, ("scan_16", "--from", "9.9"), "scan_16 has no step '9.9'"),
        (2, ("scan_16", "--only", "mam"), "unknown kind of step 'mam'. Did you mean 'mma'?"),
        (2, ("scan_16", "--member", "x"), "--member needs --input"),
        (1, ("scan_16", "--warp", "9"), "scan_16: there is no warp 9; the grid has warps 0 to 0"),
        (1, ("scan_16", "--block", "3"), "there is no block 3; the grid has blocks 0 to 0"),
        (2, ("scan_16", "--cell", "3"), "'3' is not a row and a column from 0 on, such as 3,5"),
        (2, ("scan_16", "--warp", "0", "--block", "0"), "--warp and --block exclude each other"),
        (2, ("scan_16", "--load", "x"), "ALGORITHM does not go with --load"),
        (2, ("--load", "x", "--arch", "volta"), "--arch does not go with --load"),
        (
            2,
            ("scan_16", "--arch", "volta", "--arch", "hopper"),
            "several --arch or --unit need",
        ),
        (
            2,
            ("scan_16", "--arch", "ampere", "--arch", "ada", "--html", "-", "--backend", "host"),
            "--backend has the simulator beside it",
        ),
        (2, ("--load", "x", "--tile", "8x32x16"), "--tile does not go with --load"),
        (1, ("--load", "none.trace"), "cannot read none.trace: No such file"),
    ],
)
def test_bad_options(code: int, options: tuple[str, ...], message: str) -> None:
    assert message in fails(code, "step", *options, *(("--plain",) if not options else ()))


def test_two_architectures_share_a_page() -> None:
    """Without an input they differ: it is made for that."""
    page = succeeds("step", "reduction_16", "--arch", "volta", "--arch", "hopper", "--html", "-")
    program = tcusim.build("reduction_16")
    inputs = default_inputs(program, rounded=True)
    one, two = (tcusim.trace(program, inputs, arch=arch) for arch in ("volta", "hopper"))
    assert page == one.compare(two).to_html()
    assert one.first_difference(two)


def test_bad_traces(scan: Path, tmp_path: Path) -> None:
    content = json.loads(gzip.decompress(scan.read_bytes()))
    newer = tmp_path / "newer.trace"
    newer.write_bytes(gzip.compress(json.dumps(content | {"version": 99}).encode()))
    assert "is a trace of version 99, and this tcusim reads those up to" in fails(
        1, "step", "--load", str(newer)
    )
    text = fails(1, "step", "--load", str(scan), "--warp", "3")
    assert (
        text == "error: scan_tn: there is no warp 3; the trace has warp 0\n" or "scan_256n" in text
    )
    assert "there is no block 2; the trace has block 0" in fails(
        1, "step", "--load", str(scan), "--block", "2"
    )
    assert "leave --warp or --block out" in fails(
        2, "step", "--load", str(scan), "--warp", "0", "--html", "-"
    )


def test_what_a_window_leaves_out_is_said(tmp_path: Path) -> None:
    program = tcusim.build("scan_256n")
    kept = tcusim.trace(program, {"in": np.ones(1024, np.float16)}, first=3, last=5)
    kept.save(tmp_path / "x.trace")
    result = tcusim_command("step", "--load", str(tmp_path / "x.trace"))
    assert result.exit_code == 0
    assert "3 of 72 steps are kept: the window is steps 3 to 5" in result.stderr
    assert result.stdout.count("\nstep ") == 3


def test_a_screen_needs_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setitem(os.environ, "TERM", "xterm")
    assert step._somebody_sits_here()
    monkeypatch.setitem(os.environ, "TERM", "dumb")
    assert not step._somebody_sits_here()
    monkeypatch.setitem(os.environ, "TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert not step._somebody_sits_here()
