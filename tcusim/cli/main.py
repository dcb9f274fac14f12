"""The `tcusim` command: compute, list, and step through programs; explain, emit, compare, validate.

Exit codes: 0 done, 1 an error that the text explains, 2 wrong usage, 130 interrupted. A command's
module is imported when the command is named, and a slow import is made by the function that
needs it.
"""

from __future__ import annotations

import errno
import io
import pkgutil
import sys
from typing import Any, Final

import click

import tcusim
from tcusim import errors
from tcusim.cli.lazy import LazyCommand
from tcusim.cli.output import WORDS, examples
from tcusim.plugins import Extension, entry_points_of

_INTERRUPTED: Final = 130

_PLUGINS: Final = "tcusim.commands"
# Where each command is, in the order of the help; those of installed packages follow.
_COMMANDS: Final = {
    "run": "tcusim.cli.run:run_command",
    "list": "tcusim.cli.list:list_command",
    "unit": "tcusim.cli.unit:unit_command",
    "listing": "tcusim.cli.program:listing_command",
    "step": "tcusim.cli.step:step_command",
    "explain": "tcusim.cli.explain:explain_command",
    "layout": "tcusim.cli.layout:layout_command",
    "emit": "tcusim.cli.program:emit_command",
    "vectors": "tcusim.cli.vectors:vectors_command",
    "agree": "tcusim.cli.agree:agree_command",
    "validate": "tcusim.cli.validate:validate_command",
    "cost": "tcusim.cli.cost:cost_command",
    "explore": "tcusim.cli.explore:explore_command",
    "orders": "tcusim.cli.orders:orders_command",
}
# Commands of the packages beside tcusim: the object of each, and its line of help. Benchmarks are
# in the source tree, and in no wheel.
_BESIDE: Final = {
    "microbench": (
        "tcusim_cuda.microbench.command:microbench_command",
        "Measure this machine's GPU as a unit.",
    ),
    "bench": ("tcusim_bench.command:bench_command", "Measure speed; in a checkout of tcusim."),
    "tune": ("tcusim_bench.command:tune_command", "Find the fastest plans; in a checkout."),
}


class _Group(click.Group):
    """Turns tcusim's errors and Ctrl-C into a line of text and an exit code.

    Installed packages add commands through the entry-point group ``tcusim.commands``.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, importing none."""
        return list(dict.fromkeys([*_COMMANDS, *_BESIDE, *_installed()]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name in _COMMANDS:
            command: click.Command = pkgutil.resolve_name(_COMMANDS[cmd_name])
            return command
        if cmd_name in _BESIDE:
            return LazyCommand(cmd_name, *_BESIDE[cmd_name])
        found = _installed().get(cmd_name)
        return None if found is None else _loaded(found)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words of the command line for pages."""
        ctx.meta.update({WORDS: tuple(args)})
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the named command, or list the commands."""
        name = args[0]
        if name == "help" and name not in self.list_commands(ctx):
            if not args[1:]:
                click.echo(ctx.get_help())
                ctx.exit()
            args = [args[1], "--help"]
            name = args[0]
        if not name.startswith("-") and name not in (valid := self.list_commands(ctx)):
            ctx.fail(str(errors.unknown_name("command", name, valid)))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A terminal that lacks a letter shows a question mark, rather than a traceback.
                stream.reconfigure(errors="replace")
        try:
            return super().invoke(ctx)
        except errors.TcusimError as error:
            text, code = f"error: {error}", 1
        except MemoryError as error:
            reason = f": {error}" if str(error) else ""
            text, code = f"error: this does not fit in memory{reason}", 1
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # Click is quiet about a reader that has seen enough.
            text, code = f"error: {error.strerror or error}".lower(), 1
        except KeyboardInterrupt:
            text, code = "interrupted; nothing was written", _INTERRUPTED
        click.echo(text, err=True)
        raise click.exceptions.Exit(code)


def _installed() -> dict[str, Extension]:
    return {found.name: found for found in entry_points_of(_PLUGINS)}


def _loaded(found: Extension) -> click.Command:
    """Return the command of an installed package; a broken one says so when it is called."""
    try:
        command = found.load()
        if isinstance(command, click.Command):
            return command
        reason = f"{found} is a {type(command).__name__}, not a command of click"
    except errors.InputError as error:
        reason = str(error)

    def fail() -> None:
        raise errors.InputError(reason)

    return click.Command(found.name, callback=fail, short_help="Cannot be used; call it to see.")


@click.group(
    cls=_Group,
    epilog=examples(
        "tcusim run segmented-sum --segment-size 64 data.npy -o sums.npy",
        "tcusim run cumsum data.csv --input-type f16 --arch volta",
        "tcusim list shapes",
        "tcusim listing scan_256",
        "tcusim step reduction_16",
        "tcusim explain --a 1,1 --b 0x0001,0x0001 --c 1 --arch volta --arch hopper",
        "tcusim emit reduction_16 --arch sm_70 --compile",
        "tcusim vectors mychip.toml --count 5000",
        "tcusim agree --backend cupy --quick",
        "tcusim validate 64x8x16",
        "tcusim cost cumsum --length 2**30 --unit h200",
        "tcusim explore --fraction-bits 16:25 --fused-length 4,8,16",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(tcusim.__version__, prog_name="tcusim")
def main() -> None:
    """Sum and scan on simulated tensor cores, bit for bit and step by step."""


if __name__ == "__main__":
    main()
