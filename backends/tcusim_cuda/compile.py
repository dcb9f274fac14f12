"""Compile an emitted kernel to machine code with NVRTC, through NVIDIA's own Python bindings.

Neither a GPU nor its driver is needed, nor nvcc. Machine code is kept on disk.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tcusim.errors import BackendUnavailable, TcusimError, Unsupported
from tcusim.machine.disk_cache import keep_code, locked, part_of_cache, read_code, workshop
from tcusim.machine.rule_row import HEADER as RULE_HEADER
from tcusim.program.grammar import walk
from tcusim.program.printer import line
from tcusim_cuda.cubin import Usage, read_usage
from tcusim_cuda.kernel import AnyKernel, Kernel
from tcusim_cuda.nvrtc12 import Nvrtc12

INCLUDE: Final = Path(__file__).with_name("include")
REMEDY: Final = "Install it with: pip install 'tcusim[compile]'"

# Fused multiply-adds would round once where the program rounds twice, so none is made.
_OPTIONS: Final = ("-std=c++17", "-default-device", "--fmad=false")

# CUDA's wheels and toolkits lay these out differently; a set of folders must have all of them.
HEADERS: Final = ("mma.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_runtime_api.h", "crt/mma.h")

DEFAULT_TOOLKIT: Final = Path("/usr/local/cuda")


class CompileError(TcusimError):
    """The compiler refused a kernel that should not have been emitted; `log` is its log."""

    def __init__(self, kernel: AnyKernel, sm: int, compiler: str, log: str) -> None:
        self.kernel = kernel
        self.log = log
        super().__init__(
            f"{kernel.title}: {compiler} refused the emitted kernel for sm_{sm}.\n"
            f"{_with_steps(kernel, log)}\n"
            f"The emitter wrote text that is no CUDA for this GPU: please report it."
        )


@dataclass(frozen=True, slots=True)
class Cubin:
    """One compiled kernel.

    kernel: name of its function. sm: the compute capability that it is for, such as 90. code: the
    ELF file. log: the compiler's warnings. compiler: its name and version. usage: registers, memory
    and tensor-core instructions.
    """

    kernel: str
    sm: int
    code: bytes
    log: str
    compiler: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Toolkit:
    """The compiler and the headers that were found on this machine.

    version: NVRTC's. targets: the compute capabilities that it compiles for. include: folders.
    headers: CUDART_VERSION of the headers, such as 12090. nvrtc: `cuda.bindings.nvrtc`, or an
    object with its calls.
    """

    version: tuple[int, int]
    targets: tuple[int, ...]
    include: tuple[Path, ...]
    headers: int
    nvrtc: Any = field(default=None, repr=False, compare=False)

    @property
    def title(self) -> str:
        """The compiler's name and version."""
        return f"NVRTC {self.version[0]}.{self.version[1]}"

    @staticmethod
    @functools.cache
    def find(sm: int | None = None) -> Toolkit:
        """Return the installed toolkit; found once in a process.

        It is the NVRTC that cuda.bindings chose, or NVRTC 12 beside it where that one alone
        compiles for a compute capability, such as 70. BackendUnavailable names the package that is
        missing.
        """
        if sm is None:
            return _toolkit_of(_nvrtc_of_bindings())
        toolkit = Toolkit.find()
        if sm in toolkit.targets or toolkit.version[0] <= 12:
            return toolkit
        older = _find_nvrtc_12()
        return toolkit if older is None or sm not in older.targets else older

    def require_target(self, kernel: AnyKernel, sm: int) -> None:
        """Raise Unsupported unless the kernel can be compiled for this compute capability."""
        require_instructions(kernel, sm)
        if sm in self.targets:
            return
        advice = "Name one of these, or install another NVRTC."
        if sm < min(self.targets):
            advice = (
                "CUDA 13 dropped the GPUs before sm_75; NVRTC 12, which may be beside it, was not "
                "found. Install it with: pip install 'tcusim[compile]'"
            )
        elif sm > max(self.targets):
            advice = "Install a newer NVRTC: pip install --upgrade nvidia-cuda-nvrtc-cu12"
        known = ", ".join(str(target) for target in self.targets if target >= 70)
        raise Unsupported(
            f"{kernel.title}: {self.title} does not compile for sm_{sm}, only for {known}. {advice}"
        )


def require_instructions(kernel: AnyKernel, sm: int) -> None:
    """Raise Unsupported if GPUs of a compute capability lack an instruction of the kernel."""
    if sm < kernel.min_sm:
        raise Unsupported(
            f"{kernel.title} uses instructions of sm_{kernel.min_sm} and newer, sm_{sm} "
            f"lacks them. Build it with another shape or other types."
        )


def compile_kernel(kernel: AnyKernel, sm: int, *, options: Iterable[str] = ()) -> Cubin:
    """Compile a kernel for one compute capability, or take it from the cache on disk.

    Parameters
    ----------
    kernel : Kernel or PlainKernel
        From `tcusim_cuda.emit.emit`, or written by hand.
    sm : int
        Compute capability of the GPU, such as 70 or 90.
    options : iterable of str
        More options for NVRTC, such as ``"-lineinfo"``.

    Raises
    ------
    BackendUnavailable
        If the compiler or the CUDA headers are not installed.
    Unsupported
        If the kernel needs a newer GPU, or the compiler does not know this one.
    CompileError
        If the compiler refuses the text.
    """
    toolkit = Toolkit.find(sm)
    toolkit.require_target(kernel, sm)
    refused = functools.partial(CompileError, kernel, sm, toolkit.title)
    code, log = _kept_or_compiled(kernel.name, kernel.text, sm, toolkit, options, refused)
    return Cubin(kernel.name, sm, code, log, toolkit.title, read_usage(code, kernel.name))


def _key(text: str, toolkit: Toolkit, options: Sequence[str]) -> str:
    """Return the cache key of the machine code, from all of its inputs."""
    headers = [*sorted(INCLUDE.glob("*.cuh")), RULE_HEADER]
    own_headers = {path.name: path.read_text() for path in headers}
    parts = [text, own_headers, list(options), toolkit.version, toolkit.headers]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _kept_or_compiled(
    name: str,
    text: str,
    sm: int,
    toolkit: Toolkit,
    more: Iterable[str],
    refused: Callable[[str], Exception],
) -> tuple[bytes, str]:
    """Return machine code and log: from the cache, also if somebody else is now compiling.

    refused: returns the error for the log of a compiler that refuses the text.
    """
    options = (f"--gpu-architecture=sm_{sm}", *_OPTIONS, *more)
    path = part_of_cache("cuda") / f"{_key(text, toolkit, options)}.cubin"
    kept = read_code(path)
    if kept is None:
        with locked(path):
            kept = read_code(path)
            if kept is None:
                code, log = _compiled(name, text, toolkit, options)
                if code is None:
                    raise refused(log)
                kept = log.replace("\0", "").encode() + b"\0" + code
                # A cache that cannot be written is no error.
                with contextlib.suppress(BackendUnavailable), workshop(path.parent) as folder:
                    made = folder / path.name
                    made.write_bytes(kept)
                    keep_code(made, [path])
    said, _, code = kept.partition(b"\0")
    return code, said.decode()


def compile_kernels(kernels: Sequence[AnyKernel], sm: int) -> list[Cubin]:
    """Compile several kernels side by side, as `compile_kernel` does each."""
    if len(kernels) < 2:
        return [compile_kernel(kernel, sm) for kernel in kernels]
    Toolkit.find(sm)
    with ThreadPoolExecutor(min(len(kernels), os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda kernel: compile_kernel(kernel, sm), kernels))


def compile_text(name: str, text: str, sm: int) -> bytes:
    """Compile CUDA C++ that no program stands behind, or take it from the cache; return a cubin.

    Parameters
    ----------
    name : str
        Its name in messages.
    text : str
        Every kernel that is asked for by its name is ``extern "C"``.
    sm : int
        Compute capability of the GPU, such as 70 or 90.

    Raises
    ------
    BackendUnavailable
        If the compiler or the CUDA headers are not installed.
    Unsupported
        If the compiler refuses the text for this GPU, with the first error that it found.
    """
    toolkit = Toolkit.find(sm)

    def refused(log: str) -> Unsupported:
        lines = log.splitlines()
        said = next((one for one in lines if "error" in one), lines[0])
        return Unsupported(f"{name}: {toolkit.title} refused it for sm_{sm}: {said.strip()}")

    return _kept_or_compiled(name, text, sm, toolkit, (), refused)[0]


def why_no_compiler() -> str | None:
    """Return None if kernels can be compiled here, else the reason and the command that helps."""
    try:
        Toolkit.find()
    except BackendUnavailable as error:
        return str(error)
    return None


# --- NVRTC ------------------------------------------------------------------------------------


def _compiled(
    name: str, text: str, toolkit: Toolkit, options: Sequence[str]
) -> tuple[bytes | None, str]:
    """Return the machine code, None if the compiler refuses the text, and the log."""
    nvrtc = toolkit.nvrtc
    folders = [
        f"--include-path={folder}" for folder in (INCLUDE, RULE_HEADER.parent, *toolkit.include)
    ]
    arguments = [option.encode() for option in (*options, *folders)]
    program = _value(nvrtc.nvrtcCreateProgram(text.encode(), f"{name}.cu".encode(), 0, [], []))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(arguments), arguments)
        log = _filled(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        said = log.rstrip(b"\0").decode(errors="replace").strip()
        if int(status):
            return None, said or str(status)
        return _filled(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), said
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _value(result: tuple[Any, ...]) -> Any:
    """Return the values of a call of the bindings; its status must be success."""
    status, *values = result
    if int(status):
        raise BackendUnavailable(f"NVRTC failed: {status}. {REMEDY}")
    return values[0] if len(values) == 1 else tuple(values)


def _filled(size_of: Any, fill: Any, program: Any) -> bytes:
    """Return the bytes that a call writes into a buffer; another call gives its size."""
    # The bindings write into an object of type bytes. Python shares those of one byte: the only
    # thing ever written into one is the zero that ends an empty log, and a new one has it.
    buffer = bytes(_value(size_of(program)))
    _value((*fill(program, buffer), None))
    return buffer


def _nvrtc_of_bindings() -> Any:
    """Return `cuda.bindings.nvrtc`, with the library that it found."""
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise BackendUnavailable(
            f"kernels are compiled through NVIDIA's package cuda-bindings, which cannot be "
            f"imported ({error}). {REMEDY}"
        ) from error
    try:
        # The first call looks for the library.
        nvrtc.nvrtcVersion()
    except (RuntimeError, OSError) as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise BackendUnavailable(
            f"NVRTC, NVIDIA's run-time compiler, was not found by cuda-bindings ({reason}). "
            f"{REMEDY}"
        ) from error
    return nvrtc


def _find_nvrtc_12() -> Toolkit | None:
    """Return NVRTC 12 as pip installs it; None if it is not there."""
    for root in _nvidia_packages():
        for path in (root / "cuda_nvrtc").glob("*/*nvrtc*12*"):
            if path.name in ("libnvrtc.so.12", "nvrtc64_120_0.dll"):
                with contextlib.suppress(OSError):
                    return _toolkit_of(Nvrtc12(path))
    return None


def _toolkit_of(nvrtc: Any) -> Toolkit:
    """Return a compiler with the headers that go with it."""
    version, targets = _value(nvrtc.nvrtcVersion()), _value(nvrtc.nvrtcGetSupportedArchs())
    include, headers = _find_headers(version[0])
    return Toolkit(tuple(version), tuple(targets), include, headers, nvrtc)


# --- CUDA's headers ---------------------------------------------------------------------------


def _find_headers(major: int) -> tuple[tuple[Path, ...], int]:
    """Return folders that have all of CUDA's headers, and their version: the compiler's if any."""
    there = [tuple(folder for folder in folders if folder.is_dir()) for folders in _header_sets()]
    sets = {folders: _headers_version(folders) for folders in there if folders}
    complete = {folders: version for folders, version in sets.items() if version is not None}
    if complete:
        fitting = (item for item in complete.items() if item[1] // 1000 == major)
        return next(fitting, next(iter(complete.items())))
    looked = ", ".join(str(folder) for folders in sets for folder in folders)
    raise BackendUnavailable(
        f"CUDA's headers {', '.join(HEADERS)} were not found together; looked in "
        f"{looked or 'no folder: there is none'}. {REMEDY}, or set CUDA_HOME to a CUDA toolkit"
    )


def _header_sets() -> Iterator[list[Path]]:
    """Yield sets of folders to look in: of pip packages first, then of toolkits."""
    roots = _nvidia_packages()
    # The packages of CUDA 12 lack crt/: two others have it, one of them of CUDA 13.
    parts = ("cuda_runtime", "cuda_nvcc", "cu13")
    yield [root / part / "include" for part in parts for root in roots]
    yield [root / "cu13" / "include" for root in roots]
    nvcc = shutil.which("nvcc")
    beside = None if nvcc is None else Path(nvcc).resolve().parents[1]
    home, path, conda = map(os.environ.get, ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"))
    for named in (home, path, DEFAULT_TOOLKIT, beside, conda):
        if not named:
            continue
        toolkit = Path(named)
        yield [toolkit / "include"]
        # Conda's packages have their headers in targets.
        for include in sorted(toolkit.glob("targets/*/include")):
            yield [include]


def _nvidia_packages() -> list[Path]:
    """Return the folders `nvidia` of NVIDIA's packages from pip."""
    spec = importlib.util.find_spec("nvidia")
    found = None if spec is None else spec.submodule_search_locations
    return [Path(folder) for folder in found or ()]


def _headers_version(folders: tuple[Path, ...]) -> int | None:
    """Return CUDART_VERSION if these folders have every header, else None."""
    if not all(any((folder / name).is_file() for folder in folders) for name in HEADERS):
        return None
    paths = (folder / "cuda_runtime_api.h" for folder in folders)
    text = next(path for path in paths if path.is_file()).read_text(errors="replace")
    version = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", text)
    return int(version[1]) if version else 0


# --- Errors -----------------------------------------------------------------------------------


def _with_steps(kernel: AnyKernel, log: str) -> str:
    """Return the compiler's log; below each message of a kernel's line, the step it came from."""
    if not isinstance(kernel, Kernel):
        return log
    steps = dict(walk(kernel.program.steps))
    where = re.compile(
        rf"^{re.escape(kernel.name)}\.cu\((\d+)\)|at line (\d+) of {kernel.name}\.cu"
    )
    result = []
    for text in log.splitlines():
        result.append(text)
        match = where.search(text)
        number = int(match[1] or match[2]) if match else 0
        path = kernel.paths[number - 1] if 0 < number <= len(kernel.paths) else ""
        if path in steps:
            result.append(f"    {kernel.title}, step {path}: {line(steps[path])}")
    return "\n".join(result)
