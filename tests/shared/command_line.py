"""Run the command `tcusim` as a user would, for tests of what it says."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess

import click.testing

from tcusim.cli import main as cli


def tcusim_command(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli.main, arguments)


def succeeds(*arguments: str) -> str:
    result = tcusim_command(*arguments)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return str(result.stdout)


def fails(code: int, *arguments: str) -> str:
    result = tcusim_command(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return str(result.stderr)


def on_a_terminal(command: list[str], keys: bytes, columns: int = 140) -> str:
    """Run a command on a terminal of its own; return what it shows."""
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
