# ruff: noqa: D101, D102
# %% [markdown]
# # 13. Write a backend
#
# A *backend* runs step programs somewhere: on NumPy, on a GPU, on the chip that you are designing.
# In this lesson we write one from scratch. It translates a program into Python source, one function
# for a warp, and runs that. It is small, and yet it is built like the backend for GPUs: an emitter,
# a launcher, and a test that compares every bit with the simulator.
#
# You need the grammar of step programs ([Step programs](../steps.md)) and lesson 7's barriers.

# %%
import importlib.util
from collections.abc import Callable
from typing import get_args

import numpy as np

import tcusim
import tcusim.lessons
from tcusim.backends import Backend, require_options, require_out
from tcusim.errors import Unsupported
from tcusim.machine import canonical_nan, format_of
from tcusim.program.grammar import (
    Add,
    Assign,
    Buffer,
    Const,
    Formula,
    Load,
    Loop,
    Mma,
    Operation,
    PatternKind,
    Program,
    Scope,
    Space,
    Step,
    Store,
    Sync,
    Value,
    View,
    When,
    numbered,
)
from tcusim.program.printer import line
from tcusim.testing import assert_agree, random_inputs

# %% [markdown]
# ## A backend
#
# It is an object with four things: a `name`, a `title`, `available()` and `run()`. It need not
# inherit from anything. This one only prints the names of its launches:


# %%
class Talker:
    name = "talker"
    title = "says what it would run"

    def available(self):
        return None  # or a sentence: why it cannot run here, and the command that helps

    def run(self, plan, inputs, *, out=None, stream=None, arch=None, progress=None, **options):
        for launch in plan.launches:
            print(f"{launch.program.name}: {sorted(inputs)} go in, {plan.outputs} should come out")
        return {name: np.zeros(plan.memory[name].size, np.float32) for name in plan.outputs}


tcusim.register_backend(Talker())
x = np.arange(256, dtype=np.float16) % 7
_ = tcusim.run(tcusim.build("reduction_16"), {"in": x}, backend="talker")

# %% [markdown]
# It runs a *plan*: launches of programs in order, on arrays by name. A single program is a plan of
# one launch. `plan.memory` knows how large each array is.
#
# ## The emitter: from steps to Python
#
# <!-- figure: pipeline -->
#
# A program is a tuple of steps, and there are thirteen kinds. We translate eight of them, each to
# one line of Python, and refuse the others by name. That is better than a wrong result.
#
# A view is a rectangle of a buffer: element (row, col) is at an address that is a sum of multiples
# of symbols. That address, an `Index`, prints as Python. So a view becomes a call with the address
# as a function of `row` and `col`, and with its bounds, if it has any:


# %%
def view_text(view: View) -> str:
    """Return the arguments that describe a view."""
    if view.ranges is not None:
        raise Unsupported("this backend has no ragged segments")
    inside = " & ".join(f"({bound})" for bound in view.bounds) or "True"
    name, rows, cols = view.buffer.name, view.rows, view.cols
    return f"memory[{name!r}], {rows}, {cols}, lambda row, col: ({view.address}, {inside})"


def value_text(value: Value) -> str:
    """Return a view, or a sum, as Python; "" for other formulas."""
    match value:
        case View():
            return f"gather({view_text(value)})"
        case Formula(Operation.PLUS, (View() as one, View() as two)):
            return f"add({value_text(one)}, {value_text(two)})"
    return ""


program = tcusim.build("reduction_16", masked=True)
copy = next(step for _, step in numbered(program.steps) if isinstance(step, When)).otherwise[0]
print(f"The step  {line(copy)}")
print(f"reads     {view_text(copy.src)}")

# %% [markdown]
# Now the steps. A `match` names each kind and takes it apart. A barrier of the block becomes
# `yield`, as in [CUDA in ten minutes](00_cuda_in_ten_minutes.md): the function stops there, and the
# launcher lets the block's other warps run up to the same place. A barrier of the warp needs
# nothing, since NumPy does a whole step before it begins the next.


# %%
def step_lines(path: str, step: Step) -> list[str]:
    """Return the lines of Python for one step."""
    match step:
        case Const(dst, pattern) if not pattern.size:
            kind, offset = pattern.kind.value, pattern.offset
            return [f"{dst.name} = constant({kind!r}, {dst.rows}, {dst.cols}, {offset})"]
        case Load(dst, View() as src):
            return [f"{dst.name} = gather({view_text(src)})"]
        case Mma(d, a, b, c):
            return [f"{d.name} = mma({a.name}, {b.name}, {c.name})"]
        case Store(dst, src):
            return [f"scatter({src.name}, {view_text(dst)})"]
        case Assign(dst, value) if value_text(value):
            return [f"scatter({value_text(value)}, {view_text(dst)})"]
        case Sync(scope):
            return ["yield"] if scope is Scope.BLOCK else ["pass  # a barrier of the warp"]
        case Loop(var, count, body):
            return [f"for {var} in range({count.constant}):", *indented(f"{path}.", body)]
        case When(bounds, body, otherwise, not_finite=None):
            condition = " and ".join(str(bound) for bound in bounds)
            lines = [f"if {condition}:", *indented(f"{path}.", body)]
            if otherwise:
                lines += ["else:", *indented(f"{path}.", otherwise, len(body) + 1)]
            return lines
    # Exercise 1 adds to these.
    if type(step) in more_steps and (text := more_steps[type(step)](step)):
        return [text]
    raise Unsupported(f"step {path}, {type(step).__name__}: this backend cannot do `{line(step)}`")


more_steps: dict[type, Callable[[Step], str | None]] = {}


def indented(prefix: str, steps: tuple[Step, ...], first: int = 1) -> list[str]:
    """Return the lines of a list of steps, indented, each step below its line of the listing."""
    lines = []
    for path, step in numbered(steps, prefix, first):
        if not isinstance(step, Loop | When):
            lines.append(f"    # {path}  {line(step)}")
        lines += [f"    {text}" for text in step_lines(path, step)]
    return lines or ["    pass"]


def to_python(program: Program) -> str:
    """Return a generator function that one warp runs."""
    scalars = ", ".join(scalar.name for scalar in program.scalars)
    head = f"def kernel(memory, block, block_row, block_col, warp, warp_row, warp_col, {scalars}):"
    return "\n".join([head, *indented("", program.steps), "    yield"])


print("reduction_16 in Python:")
print(to_python(tcusim.build("reduction_16")))

# %% [markdown]
# The simulator shows the effect of each of these lines. Your backend must leave the same numbers
# behind every step:

# %% tags=["picture"]
tcusim.trace(tcusim.build("reduction_16"), {"in": x})

# %% [markdown]
# ## The launcher: memory, blocks and warps
#
# The text uses five functions: `constant`, `gather`, `add`, `scatter` and `mma`. We write the first
# four with NumPy. Where arithmetic makes a NaN, GPUs write one pattern of bits and NumPy several;
# `canonical_nan` makes them the GPU's.


# %%
def constant(kind: str, rows: int, cols: int, offset: int) -> np.ndarray:
    """Return a matrix of zeros and ones."""
    row, col = np.ogrid[:rows, :cols]
    ones = {
        PatternKind.ZEROS: False,
        PatternKind.ONES: True,
        PatternKind.ROW: row == offset,
        PatternKind.COL: col == offset,
        PatternKind.UPPER: row <= col + offset,
        PatternKind.LOWER: col <= row + offset,
    }[PatternKind(kind)]
    return np.broadcast_to(ones, (rows, cols)).astype(np.float32)


def gather(array, rows, cols, where):
    """Return a rectangle of memory, with zeros where it is out of bounds."""
    address, inside = (
        np.broadcast_to(part, (rows, cols)) for part in where(*np.ogrid[:rows, :cols])
    )
    return np.where(inside, array[np.where(inside, address, 0)], array.dtype.type(0))


def scatter(values, array, rows, cols, where):
    """Write a rectangle to memory, where it is in bounds; elements are rounded to its type."""
    address, inside = (
        np.broadcast_to(part, (rows, cols)) for part in where(*np.ogrid[:rows, :cols])
    )
    if values.dtype != array.dtype:
        with np.errstate(over="ignore"):  # beyond the largest number is infinity: no warning
            values = as_on_gpu(values.astype(array.dtype))
    array[address[inside]] = np.broadcast_to(values, (rows, cols))[inside]


def add(one, two):
    """Return the sums, each rounded once."""
    with np.errstate(over="ignore", invalid="ignore"):
        return as_on_gpu(one + two)


def as_on_gpu(values):
    return canonical_nan(values, {"float16": "f16", "float32": "f32"}[values.dtype.name])


# %% [markdown]
# For `mma` we ask tcusim, so that it has the arithmetic of any GPU. Your own backend would ask its
# hardware.
#
# A launch allocates memory by its space, runs the blocks one after the other, and the warps of a
# block in turns, from barrier to barrier. Shared memory begins as NaN, so that a read too early
# shows:


# %%
def launch(program: Program, arrays, scalars, arch):
    """Run a program on NumPy arrays; return its outputs by name."""
    refuse_types(program)
    names = {"constant": constant, "gather": gather, "add": add, "scatter": scatter}
    names["mma"] = lambda a, b, c: tcusim.mma(
        a.astype(format_of(program.ab).dtype), b.astype(format_of(program.ab).dtype), c,
        ab=program.ab, acc=program.acc, arch=arch,
    )  # fmt: skip
    exec(to_python(program), names)

    sizes = {buffer.name: buffer.size.evaluate(scalars) for buffer in program.buffers}

    def fresh(buffer: Buffer) -> np.ndarray:
        return np.full(sizes[buffer.name], np.nan, format_of(buffer.dtype).dtype)

    known = [scalars[scalar.name] for scalar in program.scalars]
    memory = {name: np.asarray(array) for name, array in arrays.items()}
    memory |= {buffer.name: fresh(buffer) for buffer in program.outputs}
    for number in range(program.grid(scalars)):
        of_block = {b.name: fresh(b) for b in program.scratch if b.space is Space.SHARED}
        running = []
        for warp in range(program.warps):
            of_warp = {b.name: fresh(b) for b in program.scratch if b.space is Space.WARP}
            block, col = divmod(number, program.columns)
            places = (*divmod(block, program.rows), col)
            places += (warp, *divmod(warp, program.warp_columns))
            seen = memory | of_block | of_warp
            running.append(names["kernel"](seen, *places, *known))
        while running:  # each turn ends at the next barrier
            running = [one for one in running if next(one, "done") != "done"]
    return {buffer.name: memory[buffer.name] for buffer in program.outputs}


def refuse_types(program: Program) -> None:
    types = {program.ab, program.acc, *(buffer.dtype for buffer in program.buffers)}
    unknown = types - {"f16", "f32"}
    if unknown:
        raise Unsupported(f"this backend has f16 and f32, and no {', '.join(sorted(unknown))}")


# %% [markdown]
# ## The backend
#
# `plan.run` does the work common to all backends of the host: it takes the launches in order, hands
# each its arrays, and fills the caller's `out`. It refuses an unknown option: one that is silently
# ignored misleads.


# %%
class PythonBackend:
    name = "python"
    title = "translates programs to Python"

    def available(self) -> str | None:
        """Return None: it runs everywhere."""
        return None

    def run(self, plan, inputs, *, out=None, stream=None, arch=None, progress=None, **options):
        """Run a plan on NumPy arrays."""
        require_options(self, options)
        require_out(plan, out)

        def launched(one, arrays):
            return launch(one.program, arrays, plan.scalars(one), arch or "hopper")

        return plan.run(inputs, out, launched)


python: Backend = PythonBackend()
tcusim.register_backend(python)
out = tcusim.run(tcusim.build("reduction_16"), {"in": x}, backend="python")["out"]
print("16 sums by the new backend:", *out.astype(int))

# %% [markdown]
# ## Does it return the right bits?
#
# `assert_agree` runs a program on both backends and compares all bits of all outputs. The inputs
# are random numbers of several kinds: ordinary ones, ones of very different sizes, and small
# integers. Our backend must pass for each program that it takes:

# %%
cases = {
    "reduction_16": {},
    "reduction_256n": {"segment_size": 1024},
    "reduction_kn": {"segment_size": 200, "masked": True},
    "reduction_256n_block": {"warps": 4, "segment_size": 4096},
    "scan_256": {},
    "scan_256n_block": {"warps": 4, "segment_size": 2048, "combine": "mma"},
    "scan_single_pass": {"warps": 2, "columns": 8},
}


def verdicts(cases: dict[str, dict[str, object]]) -> dict[str, str]:
    """Compare the backend with the simulator; return the result of each program."""
    found = {}
    for name, options in cases.items():
        program = tcusim.build(name, **options)
        length = program.scalars[0].multiple_of if program.scalars[0].multiple_of > 1 else 1000
        inputs = random_inputs(program, "normal", length, np.random.default_rng(13))
        try:
            assert_agree(program, inputs, backends=("numpy", "python"), arch="volta")
            found[name] = "all bits agree"
        except Unsupported as error:
            found[name] = f"refused: {error}"
        except (tcusim.AgreementError, NameError, SyntaxError) as error:
            found[name] = f"wrong: {error}"
    return found


agreed = verdicts(cases)
for name, verdict in agreed.items():
    print(f"{name:>20}: {verdict[:75]}")

# %% [markdown]
# Programs with barriers between warps agree, too. Those that need a step that we left out are
# refused, and the message names the step. Exercise 1 adds one.
#
# ## A wrong backend
#
# Suppose that somebody computes the products in IEEE float32, one term after the other, and forgets
# what `arch` says. Most sums of random numbers even agree. A good test finds it, says which element
# differs, and at which step the two runs part:

# %%
segment = np.zeros(16, np.float16)
segment[0], segment[1:9] = 1, 2.0**-24
tiny = {"in": np.tile(segment, 16)}


class Careless(PythonBackend):
    name = "careless"

    def run(self, plan, inputs, *, arch=None, **options):
        return super().run(plan, inputs, arch="ieee", **options)


def difference_of(backend: Backend) -> str:
    """Return the error of `assert_agree` for a backend."""
    try:
        assert_agree(tcusim.build("reduction_16"), tiny, ("numpy", backend), arch="hopper")
    except tcusim.AgreementError as error:
        return str(error)
    return "nothing"


difference = difference_of(Careless())
print(f"Against our backend it says: {difference_of(python)}.")
print(f"Against the careless one it says:\n{difference}")

# %% [markdown]
# ## Put it into a package
#
# An installed package announces its backend in its `pyproject.toml`. Users then write
# `backend="python"` without importing anything; the module is imported when somebody asks for it:
#
# ```toml
# [project]
# name = "tcusim-python"
# dependencies = ["tcusim"]
#
# [project.entry-points."tcusim.backends"]
# python = "tcusim_python:BACKEND"   # the object in the module tcusim_python
#
# [project.optional-dependencies]
# python = ["its-library"]   # what it needs, under the backend's name
# ```
#
# Then `tcusim list backends` names it, and `tcusim agree` tries every algorithm on every tile. For
# this backend it printed (in November 2026):
#
# ```console
# $ tcusim agree --backend python
# ...
# python and the simulator (hopper): 314 cases, 180,417 outputs compared, 0 differ, ...
# not run, 119: this backend has f16 and f32, and no bf16
# ...
# not run, 4: step 26, Add: this backend cannot do `C ← C + S  (rounded)`
# ```
#
# The list of programs not run is a list of work to do next. The command is also a better tester
# than we are: before `canonical_nan`, 45 of these outputs differed, all of them NaN.
#
# In the source, `tests/packaging/example_plugin` is a whole package of this kind.
#
# A backend that works on arrays in GPU memory has a little more: `prepare(plan)`, which returns a
# *session* that only launches, and a few methods that describe and arrange the arrays of a library
# ([Extending tcusim](../extending.md#a-backend)).

# %% [markdown]
# ## Exercise 1: one more step
#
# `Add(d, a, b)` adds two accumulators, element by element, and rounds each sum once. Write the line
# of Python for it.
#
# <details><summary>Hint</summary>
# The text has a function <code>add</code> already. <code>step.d.name</code> is the name of the
# result.
# </details>


# %% tags=["exercise"]
def add_line(step: Add) -> str | None:
    """Return the line of Python for an Add."""


# %% tags=["solution"]
def add_line(step: Add) -> str | None:
    return f"{step.d.name} = add({step.a.name}, {step.b.name})"


# %% tags=["check"]
more_steps[Add] = add_line
blocked = {"reduction_kn": {"segment_size": 1024, "accumulation_length": 4, "combine": "mma"}}
(verdict,) = verdicts(blocked).values()
del more_steps[Add]
tcusim.lessons.check(
    "13.1 One more step",
    None if "cannot do" in verdict else verdict == "all bits agree",
    f"blocked summation should agree now, and it says: {verdict}",
)

# %% [markdown]
# ## Exercise 2: say why not
#
# If a backend cannot run here, `available()` returns one sentence: the missing part, and the
# command that helps. Write that sentence for a module that is not installed, and "" for one that
# is.
#
# <details><summary>Hint</summary>
# <code>importlib.util.find_spec(module)</code> is None if there is no such module, and does not
# import it.
# </details>


# %% tags=["exercise"]
def what_is_missing(module: str) -> str | None:
    """Return "", or a sentence with `pip install MODULE`."""


# %% tags=["solution"]
def what_is_missing(module: str) -> str | None:
    if importlib.util.find_spec(module) is not None:
        return ""
    return f"the module {module} is not installed. Install it: pip install {module}"


# %% tags=["check"]
nothing, sentence = what_is_missing("numpy"), what_is_missing("no_such_library")
tcusim.lessons.check(
    "13.2 Say why not",
    None
    if nothing is None or sentence is None
    else nothing == "" and "pip install no_such_library" in sentence,
    'numpy is installed, so the first answer is ""; the other must have the command',
)

# %% [markdown]
# ## Exercise 3: another order
#
# A GPU runs the warps of a block in any order, and our `while` loop always runs warp 0 first. A
# program that is right in one order may be wrong in another. Write the order of one turn: the
# numbers 0 to `count - 1`, shuffled by `rng`.
#
# <details><summary>Hint</summary>
# NumPy's generators have <code>permutation</code>.
# </details>


# %% tags=["exercise"]
def order_of_turn(count: int, rng: np.random.Generator) -> list[int] | None:
    """Return the numbers of the warps in the order in which they run."""


# %% tags=["solution"]
def order_of_turn(count: int, rng: np.random.Generator) -> list[int] | None:
    return rng.permutation(count).tolist()


# %% tags=["check"]
turns = [order_of_turn(8, np.random.default_rng(seed)) for seed in range(5)]
tcusim.lessons.check(
    "13.3 Another order",
    None
    if None in turns
    else all(sorted(turn) == list(range(8)) for turn in turns) and len(set(map(tuple, turns))) > 1,
    "each of the 8 warps must run exactly once a turn, and the order must change with the seed",
)

# %% [markdown]
# ## In short
#
# - A backend has a name, a title, `available()` and `run(plan, inputs)`.
# - Translate step by step, and refuse by name a step that you cannot do.
# - Its test is equality of bits: `assert_agree`, and `tcusim agree` for everything.
#
# Next: [is a unit any good?](../validate.md)

# %%
kept = [name for name, verdict in agreed.items() if verdict == "all bits agree"]
assert kept == list(cases)[:6]
assert len(get_args(Step)) == 13
assert "refused" in agreed["scan_single_pass"]
assert difference_of(python) == "nothing"
assert "step 4" in difference
