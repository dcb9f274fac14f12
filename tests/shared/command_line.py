"""Run the command `tcusim` as a user would, for tests of its output."""

from __future__ import annotations

import contextlib
import inspect
import os
import pty
import subprocess
from typing import Any

import click.testing

from tcusim.cli import main as cli
from tcusim.cli import output

# Tests look at stderr for errors; slow work on a busy machine prints no notice there.
output._SOON = 3600.0


def tcusim_command(*arguments: str) -> click.testing.Result:
    return runner().invoke(cli.main, arguments)


def runner() -> click.testing.CliRunner:
    """Return a runner that keeps stderr apart from stdout, the default from click 8.2 on."""
    known = inspect.signature(click.testing.CliRunner).parameters
    options: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in known else {}
    return click.testing.CliRunner(**options)


def succeeds(*arguments: str) -> str:
    """Return the output of a command; its stderr may only name the files that it wrote."""
    result = tcusim_command(*arguments)
    said = [line for line in result.stderr.splitlines() if not line.startswith("wrote ")]
    assert (result.exit_code, said) == (0, []), result.output
    return str(result.stdout)


def fails(code: int, *arguments: str) -> str:
    result = tcusim_command(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return str(result.stderr)


def on_a_terminal(command: list[str], keys: bytes, columns: int = 140) -> str:
    """Run a command on a terminal of its own; return its screen."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": str(columns), "PYTHONUTF8": "1"}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    )
    os.close(theirs)
    os.write(ours, keys)
    shown = b""
    # Linux reports a terminal that the other side has closed as an error.
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 4096):
            shown += piece
    os.close(ours)
    assert process.wait(30) == 0, shown.decode()
    return shown.decode()
