"""The wheel that a user installs: it contains tcusim's packages, whole, and nothing else."""

from __future__ import annotations

import configparser
import email
import tomllib
import zipfile
from collections.abc import Callable
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [
    ROOT / path for path in PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
]


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def dist_info(wheel: Path, file_name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(f".dist-info/{file_name}"))
        return archive.read(path).decode()


def metadata(wheel: Path) -> Message:
    return email.message_from_string(dist_info(wheel, "METADATA"))


def test_top_level_names(wheel: Path) -> None:
    version = PYPROJECT["project"]["version"]
    top_level = {name.split("/")[0] for name in names_in(wheel)}
    assert top_level == {package.name for package in PACKAGES} | {f"tcusim-{version}.dist-info"}


def test_every_file_of_the_packages_is_there(wheel: Path) -> None:
    expected = {
        path.relative_to(package.parent).as_posix()
        for package in PACKAGES
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    missing = expected - set(names_in(wheel))
    assert not missing, "left out by .gitignore or by pyproject.toml"


def test_every_package_is_typed(wheel: Path) -> None:
    names = names_in(wheel)
    assert all(f"{package.name}/py.typed" in names for package in PACKAGES)


def test_what_an_install_pulls_in(wheel: Path) -> None:
    requirements = metadata(wheel).get_all("Requires-Dist", [])
    always = {text.split(">")[0] for text in requirements if "extra ==" not in text}
    assert always == {"numpy", "click", "rich", "textual"}


def test_extras(wheel: Path) -> None:
    extras = metadata(wheel).get_all("Provides-Extra", [])
    # Only for users: a developer's packages are in dependency groups.
    assert {"bf16", "compile", "cuda", "cupy", "pycuda"} <= set(extras)
    assert not {"check", "demo", "docs", "test"} & set(extras)


def test_gpu_libraries_leave_a_mac_resolvable(wheel: Path) -> None:
    requirements = metadata(wheel).get_all("Requires-Dist", [])
    of_gpus = [
        text for text in requirements if text.startswith(("cuda", "cupy", "nvidia", "pycuda"))
    ]
    assert of_gpus
    assert all(
        "sys_platform != 'darwin'" in text or 'sys_platform != "darwin"' in text for text in of_gpus
    )


def test_the_command(wheel: Path) -> None:
    parser = configparser.ConfigParser()
    parser.read_string(dist_info(wheel, "entry_points.txt"))
    assert parser["console_scripts"]["tcusim"] == "tcusim.cli.main:main"


def test_the_wheel_can_be_imported(
    install: Callable[[Path], Path], python: Callable[..., str]
) -> None:
    folder = install(ROOT)
    found = python("import tcusim.backends as b; print(b.__file__, b.backends()[0])", folder)
    assert found == f"{folder / 'tcusim' / 'backends.py'} numpy"


def test_the_benchmarks_stay_in_the_source(
    install: Callable[[Path], Path], python: Callable[..., str], tmp_path: Path
) -> None:
    """With the wheel alone, their commands say where they are; in a checkout, they run."""
    folder = install(ROOT)
    assert not list(folder.glob("tcusim_bench*"))
    code = "\n".join(
        (
            # An environment for development may have the source on its path.
            "import os",
            "has_it = lambda place: os.path.isdir(os.path.join(place, 'tcusim_bench'))",
            "sys.path[:] = [place for place in sys.path if not has_it(place)]",
            "import tcusim.cli.main as cli",
            "from click.testing import CliRunner",
            "def call(folder, *words):",
            "    os.chdir(folder)",
            "    done = CliRunner().invoke(cli.main, words)",
            "    return done.exit_code, done.output",
            f"print(call({str(tmp_path)!r}, 'bench', 'all', '-o', 'x'))",
            f"print(call({str(tmp_path)!r}, 'microbench', '--help')[0])",
            f"print(call({str(ROOT / 'docs')!r}, 'bench', '--help'))",
            f"print(call({str(ROOT)!r}, 'tune', '--help')[0])",
        )
    )
    refused, measured, helped, tuned = python(code, folder).splitlines()
    assert "is part of tcusim's source, and not of the installed package" in refused
    assert refused.startswith("(1, ")
    assert (measured, tuned) == ("0", "0")
    assert "Usage: main bench" in helped
