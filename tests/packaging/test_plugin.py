"""A third-party package, really installed, adds one of each kind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent / "example_plugin"

# Prints the outcome of the statement: the value, or the error with its class.
ATTEMPT = """
from tcusim import backends, errors, plugins
from tcusim.machine import shapes
try:
    print({expression})
except errors.TcusimError as error:
    print(f"{{type(error).__name__}}: {{error}}")
"""


@pytest.fixture(scope="session")
def example(install: Callable[[Path], Path]) -> Path:
    """Return the folder that the example is installed in."""
    return install(EXAMPLE)


@pytest.fixture(scope="session")
def rival(install: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of another package that uses the names of the example."""
    project = tmp_path_factory.mktemp("rival") / "project"
    shutil.copytree(EXAMPLE, project)
    shutil.move(project / "tcusim_example", project / "tcusim_rival")
    for path in (project / "pyproject.toml", *project.rglob("*.py")):
        text = path.read_text()
        text = text.replace("tcusim-example", "tcusim-rival")
        path.write_text(text.replace("tcusim_example", "tcusim_rival"))
    return install(project)


@pytest.fixture(scope="module")
def clashes(python: Callable[..., str], example: Path, rival: Path) -> list[str]:
    """Return the messages on entry points that cannot be used, where both are installed."""
    return attempt(python, "*plugins.broken(), sep='\\n'", example, rival).splitlines()


def attempt(python: Callable[..., str], expression: str, *folders: Path) -> str:
    return python(ATTEMPT.format(expression=expression), *folders)


LISTED = "'segment_ends' in [a.name for a in __import__('tcusim').algorithms.algorithms()]"


def test_nothing_is_there_without_the_package(python: Callable[..., str]) -> None:
    expression = f"backends.backends(), {LISTED}, shapes.shape_of('16x16x16')"
    listed = attempt(python, expression)
    assert "example" not in listed
    assert listed.endswith(" False 16x16x16")
    assert attempt(python, "shapes.shape_of('48x24x12').title == ''") == "True"


def test_its_shape_is_found_by_name_and_listed(python: Callable[..., str], example: Path) -> None:
    expression = "shapes.shape_of('m48n24k12').title, [s.name for s in shapes.shapes()]"
    listed = attempt(python, expression, example)
    assert listed.startswith("an example of a virtual shape [")
    assert "'48x24x12'" in listed


def test_its_backend_is_listed_without_being_imported(
    python: Callable[..., str], example: Path
) -> None:
    expression = "backends.backends(), [name for name in sys.modules if 'example' in name]"
    listed = attempt(python, expression, example)
    assert "'example'" in listed
    assert listed.endswith(" []")


def test_its_backend_runs_a_program(python: Callable[..., str], example: Path) -> None:
    expression = (
        "backends.run(__import__('tcusim').build('reduction_16'), {'in': [1.0] * 512}, "
        "backend='example')['out'].tolist()"
    )
    assert attempt(python, expression, example) == str([16.0] * 32)


def test_its_algorithm_is_listed_and_runs(python: Callable[..., str], example: Path) -> None:
    expression = (
        "backends.run(__import__('tcusim').build('segment_ends', scale=3, segment_size=4), "
        "{'in': list(range(64))})['out'].tolist()[:3]"
    )
    option = "__import__('tcusim').algorithm_of('segment_ends').options['scale'].doc"
    printed = attempt(python, f"*({expression}, {LISTED}, {option}), sep='\\n'", example)
    assert printed.splitlines() == [
        str([9.0, 21.0, 33.0]),
        "True",
        "How many times it is added up.",
    ]


def test_its_unit_is_found_by_name(python: Callable[..., str], example: Path) -> None:
    expression = "__import__('tcusim').machine.arch_of('example_unit').title"
    assert attempt(python, expression, example) == "an example of a unit"


# Prints the command's output, of several calls.
COMMANDS = """
import click.testing
from tcusim.cli.main import main
for words in {words}:
    done = click.testing.CliRunner().invoke(main, words.split())
    assert done.exit_code == 0, done.output
    print(done.output, "END OF COMMAND", sep="")
"""
END = "END OF COMMAND"


def test_its_unit_is_everywhere_by_its_entry_point_alone(
    python: Callable[..., str], example: Path
) -> None:
    words = [
        "list units example_chip",
        "explain --a 1,1 --b 1,0x0c00 --unit example_chip",
        "step reduction_k --unit example_chip --plain --only mma",
        "validate 40x24x12 reduction_k --unit example_chip",
        "cost sum --length 1e6 --unit example_chip",
        "validate example_chip reduction_kn --tile 8x24x12",
        "explore --unit example_chip --fraction-bits 12 --tile 8x8x4 --fused-length 4 --csv - "
        "--algorithm reduction_kn --length 256 --jobs 2",
    ]
    printed = python(COMMANDS.format(words=words), example).split(END)
    listed, explained, stepped, validated, cost, judged, explored = map(str.strip, printed[:-1])
    listed = " ".join(listed.split())
    assert "clock 1.2e+09 Hz (assumed: [EXAMPLE])" in listed
    assert "40x24x12 f16→f32 latency 20 cycles (assumed: [EXAMPLE])" in listed
    assert "up to 4 products a step" in explained
    assert "cut to 12 bits" in " ".join(explained.split())
    assert "40x24x12, f16 to f32" in stepped
    assert "40x24x12, f16 to f32, example_chip" in validated
    # Its own tile with its time; figures that it lacks are named.
    assert "on example_chip: the time is unknown" in cost
    assert "the unit does not say: memory_latency" in cost
    assert "latency of 40x24x12" not in cost
    assert "example_chip" in judged
    # Its two tiles beside the invented one, in processes that know it by its entry point, too.
    table = explored[explored.index("unit,tile") :]
    rows = [line.split(",")[:2] for line in table.splitlines()[1:]]
    assert rows == [["", "8x8x4"], ["example_chip", "40x24x12"], ["example_chip", "8x24x12"]]
    expression = "__import__('tcusim').machine.unit_of('example_chip').cores.value"
    assert attempt(python, expression, example) == "8"


def test_a_missing_library_says_what_to_install(python: Callable[..., str], example: Path) -> None:
    assert attempt(python, "backends.get_backend('example_missing')", example) == (
        "BackendUnavailable: example_missing: entry point 'example_missing' = "
        "'tcusim_example.needs_library:BACKEND' (tcusim.backends) of tcusim-example 1.0 cannot be "
        "loaded: No module named 'a_library_that_is_not_there'. "
        "Install it with: pip install 'tcusim-example[example-missing]'"
    )


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("example", "tcusim.backends"),
        ("example", "tcusim.shapes"),
        ("example_ends", "tcusim.algorithms"),
        ("example_unit", "tcusim.arches"),
        ("example_chip", "tcusim.units"),
    ],
)
def test_a_clash_names_both_packages(clashes: list[str], name: str, group: str) -> None:
    (text,) = [line for line in clashes if f"{name!r} in {group}." in line]
    assert "tcusim-example 1.0" in text
    assert "tcusim-rival 1.0" in text
    assert text.endswith(f"an entry point {name!r} in {group}. Uninstall one of them.")


def test_a_clash_is_told_to_who_asks_for_that_name(
    python: Callable[..., str], example: Path, rival: Path
) -> None:
    text = attempt(python, "backends.get_backend('example')", example, rival)
    assert text.startswith("BackendUnavailable: example: ")
    assert text.endswith(
        "both have an entry point 'example' in tcusim.backends. Uninstall one of them."
    )


def test_a_clash_leaves_the_built_in_shapes_usable(
    python: Callable[..., str], example: Path, rival: Path
) -> None:
    assert attempt(python, "shapes.shape_of('16x16x16')", example, rival) == "16x16x16"
