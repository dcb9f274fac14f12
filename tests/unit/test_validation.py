"""`validate_shape` and `tcusim validate`: good shapes pass, planted faults are found and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click.testing
import pytest

import tcusim
from command_line import runner
from faulty import plant
from some import Some, marked
from tcusim.algorithms import algorithm_of, algorithms, grid, reduce, register_algorithm, scan
from tcusim.algorithms.builder import LENGTH, Builder, Work
from tcusim.algorithms.order import Order
from tcusim.algorithms.rows import data
from tcusim.cli import files
from tcusim.cli import main as cli
from tcusim.errors import InputError, UnknownName, Unsupported
from tcusim.judge.correctness import memory, validation
from tcusim.judge.correctness.kinds import exact_up_to
from tcusim.judge.correctness.shape_report import ShapeReport, ShapeRow
from tcusim.judge.correctness.validation import Trial, validate_shape
from tcusim.judge.verdict.subjects import subject_of
from tcusim.judge.verdict.tasks import seconds_of
from tcusim.machine import Arch, Fused, Rule, format_of, register_arch, rule_for
from tcusim.machine.shapes import shape_of
from tcusim.program.checks import verifier, writes
from tcusim.program.grammar import Extent, Program
from tcusim.simulate.interpreter import run_numpy

# Of each kind one, so that a test takes a second or two.
SOME = ["reduction_t", "scan_k", "scan_t", "reduction_kn"]


def rows_of(report: ShapeReport, name: str) -> dict[str, ShapeRow]:
    """Return the rows of an algorithm with its options, by side."""
    return {row.side: row for row in report.rows if row.name == name}


# --- Shapes that are fine ---------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["4x4x4"])
def test_every_algorithm_is_right_on_small_tiles(shape: str, some: Some) -> None:
    names = some((row.name for row in algorithms()), 5)
    report = validate_shape(shape, algorithms=names if len(names) < len(algorithms()) else None)
    assert report.ok, str(report)
    assert {row.algorithm for row in report.rows} == set(names)
    for row in report.rows:
        assert row.possible == (not row.name.endswith("[U|1]")), row
        if row.possible:
            assert row.right == row.cases >= 5, row


@pytest.mark.parametrize("shape", marked(["64x8x16", "16x16x16", "5x7x3"], 2))
def test_some_algorithms_are_right_on_larger_tiles(shape: str) -> None:
    report = validate_shape(shape, algorithms=SOME)
    assert report.ok, str(report)
    assert min(row.cases for row in report.rows if row.possible) >= 15


def test_some_algorithms_are_right_on_a_tile_of_one_element() -> None:
    report = validate_shape("1x1x1", algorithms=SOME)
    assert report.ok, str(report)
    assert min(row.cases for row in report.rows if row.possible) >= 5
    counted = [count for row in report.rows for count in row.counts]
    assert sum(count.formula is not None for count in counted) >= 6


def test_the_figures_of_the_wmma_shapes() -> None:
    report = validate_shape("32x8x16", algorithms=["reduction_k", "scan_t"])
    left, right = (rows_of(report, "reduction_k")[side] for side in "ab")
    # A product sums w*k elements, w being the rows of data: 1/8 and 1/32 of m*n*k multiply-adds.
    assert (left.elements, left.mma, left.useful) == (512, 1, 1 / 8)
    assert (right.elements, right.mma, right.useful) == (128, 1, 1 / 32)
    assert (left.tile_used, left.elements_per_mma) == (1 / 8, 512)
    scan = rows_of(report, "scan_t (LA)1")["a"]
    assert [(count.repeats, count.counted, count.formula) for count in scan.counts] == [(1, 8, 8)]
    assert rows_of(report, "scan_t L(A1)")["a"].counts[0].counted == 7
    assert rows_of(report, "scan_t [U|1]")["a"].reason.startswith("form '[U|1]' needs more result")
    assert rows_of(report, "scan_t [U|1]")["b"].mma == 2


def test_tile_used_counts_factors_that_are_not_zero() -> None:
    row = rows_of(validate_shape("4x4x4", algorithms=["scan_k"]), "scan_k")["a"]
    # U has 4*5/2 ones of 16; the data have no zero.
    assert row.tile_used == 10 / 16
    assert row.useful == 16 / 64


def test_shared_memory_is_what_the_program_declares() -> None:
    for row in validate_shape("16x16x16", algorithms=["scan_kn"]).rows:
        program = tcusim.build("scan_kn", side=row.side)
        sizes = [b.size.evaluate({}) * format_of(b.dtype).itemsize for b in program.scratch]
        assert row.shared_bytes == sum(sizes) > 0
        assert row.block_bytes == 0


def test_what_a_gpu_would_run() -> None:
    def gpu(shape: str, name: str = "reduction_k") -> set[str]:
        return {row.gpu for row in validate_shape(shape, algorithms=[name]).rows}

    assert gpu("16x16x16") == {"wmma m16n16k16"}
    assert gpu("64x8x16") == {"grid of 4 x 1 x 1 mma.sync m16n8k16"}
    assert gpu("16x16x16", "scan_ragged_simt") == {"without tensor core"}
    assert gpu("5x7x3") == {"lanes"}


def test_shared_memory_that_no_gpu_has() -> None:
    # V alone has 256 KB.
    report = validate_shape((256, 256, 16), algorithms=["reduction_k"])
    row = rows_of(report, "reduction_k")["a"]
    assert report.ok
    assert row.gpu == ""
    assert "bytes of shared memory; no GPU gives more than 232,448" in row.gpu_reason


def test_a_shape_that_nobody_registered_or_that_somebody_made() -> None:
    made = tcusim.MmaShape(m=64, n=8, k=16, title="my own")
    report = tcusim.validate_shape(made, algorithms=["reduction_k"])
    assert (report.shape, report.ok) == ("64x8x16", True)
    assert validate_shape((3, 2, 9), algorithms=["reduction_k"]).shape == "3x2x9"
    assert shape_of("m7n6k5").name == "7x6x5"
    assert shape_of("16x16x16") is tcusim.shape_of("16x16x16")


@pytest.mark.parametrize(
    ("shape", "ab", "acc", "arch"),
    [
        ("16x16x16", "s8", "s32", "exact"),
        pytest.param("16x16x16", "u8", "s32", "hopper", marks=pytest.mark.full),
        ("16x8x32", "e5m2", "f32", "blackwell"),
        ("16x16x16", "f16", "f16", "volta"),
        ("16x16x8", "tf32", "f32", "ampere"),
        ("8x8x4", "f64", "f64", "hopper"),
    ],
)
def test_other_types_and_units(shape: str, ab: str, acc: str, arch: str) -> None:
    names = ["reduction_tn", "scan_kn"]
    report = validate_shape(shape, ab=ab, acc=acc, arch=arch, algorithms=names)
    assert report.ok, str(report)
    combines = {row.combines for row in report.rows if row.algorithm == "reduction_tn"}
    # Partial sums are no operands of 8 bits, so that they are combined by additions alone.
    assert combines == ({("add",)} if ab in ("s8", "u8") else {("mma", "add")})


def test_a_registered_unit() -> None:
    rule = Rule("f16", "f32", Fused(length=2, fraction_bits=5), "invented", "invented")
    register_arch(Arch("coarse", "five bits", (), (), (rule,), "invented"))
    assert exact_up_to("f16", "f32", rule) == 2**5
    assert exact_up_to("f16", "f32", rule_for("exact", "f16", "f32")) == 2**11
    report = validate_shape("4x4x4", arch="coarse", algorithms=["reduction_tn", "scan_kn"])
    assert report.ok, str(report)


def test_full_tries_more() -> None:
    few, many = (
        validate_shape("2x3x2", algorithms=["scan_k"], full=full) for full in (False, True)
    )
    assert few.ok
    assert many.ok
    assert many.rows[0].cases > 3 * few.rows[0].cases


def test_progress() -> None:
    seen: list[tuple[int, int]] = []
    validate_shape("1x1x1", algorithms=["scan_k"], progress=lambda *now: seen.append(now))
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {1000}
    # Once before the first side, and after each.
    assert len(seen) == 3
    assert seen[-1] == (1000, 1000)


# --- Planted faults ---------------------------------------------------------------------------


def test_a_wrong_algorithm_is_told_with_its_case() -> None:
    plant()
    report = validate_shape((4, 4, 4), algorithms=["planted", "scan_k"])
    assert not report.ok
    row = rows_of(report, "planted")["a"]
    assert row.possible
    assert 0 < row.right < row.cases
    assert row.first_wrong.startswith("segment_size=5 masked=1 length=")
    assert "elements are wrong" in row.first_wrong
    assert "WRONG: planted (data in a, b): segment_size=5 " in str(report)
    assert rows_of(report, "scan_k")["a"].ok
    assert "NOT RIGHT" in report.summary()


def test_wrong_segments_by_offsets_are_told() -> None:
    def from_the_end(b: Builder, cut: int) -> int | Work:
        """Scan each piece from its end."""
        return scan.scan_ragged(b, cut, order=Order(reverse=True))

    plant(from_the_end, kind="irregular_scan")
    row = rows_of(validate_shape("4x4x4", algorithms=["planted"]), "planted")["a"]
    # Pieces of one element are right.
    assert 0 < row.right < row.cases
    assert row.first_wrong.startswith("segment_size=4 length=")


def test_a_wrong_order_of_blocks_is_told() -> None:
    def from_the_end(b: Builder, segment_size: int | None, **options: int) -> Work:
        """Scan each segment from its end."""
        return grid.scan_single_pass(b, segment_size, order=Order(reverse=True))

    row = algorithm_of("scan_single_pass")
    register_algorithm(replace(row, name="planted", formula="", function=from_the_end))
    found = rows_of(validate_shape("4x4x4", algorithms=["planted"]), "planted")["a"]
    assert 0 < found.right < found.cases
    assert "elements are wrong" in found.first_wrong


def test_a_wrong_formula_is_told_with_both_numbers() -> None:
    row = algorithm_of("scan_kn")
    register_algorithm(replace(row, name="costly", alias="", formula="4*ceil(k/n)"))
    # The formula is right for N = 4, the default, alone.
    report = validate_shape("16x16x16", algorithms=["costly"])
    assert not report.ok
    found = report.rows[0]
    assert found.right == found.cases
    assert [(count.repeats, count.counted, count.formula) for count in found.counts] == [
        (4, 4, 4),
        (1, 1, 4),
        (2, 2, 4),
        (5, 5, 4),
    ]
    assert "1 mma steps where the formula has 4 (N = 1)" in str(report)
    assert "1, formula 4" in str(report)


def crashes(b: Builder, segment_size: int) -> int:
    """Divide by zero."""
    return segment_size // 0


def crashes_late(b: Builder, segment_size: int) -> int:
    """Divide by zero where a segment is one element."""
    elements = reduce.reduction_kn(b, segment_size)
    assert isinstance(elements, int)
    return elements // min(1, segment_size - 1)


def races(b: Builder, segment_size: int) -> int:
    """Read shared memory that nobody wrote."""
    out = b.output("out", b.options.result, Extent(LENGTH, segment_size))
    data(b)
    b.copy(b.rect(out, b.item, 1, 1, 1), b.rect(b.scratch("x", "f32", 1), 0, 1, 1, 1))
    return segment_size


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (crashes, "ZeroDivisionError"),
        (crashes_late, "segment_size=1 masked=1: ZeroDivisionError"),
        (races, "VerifyError: planted"),
    ],
)
def test_a_crash_is_a_finding(function: Callable[..., int], text: str) -> None:
    plant(function, kind="reduction")
    report = validate_shape("4x4x4", algorithms=["planted", "scan_k"])
    assert not report.ok
    assert text in report.rows[0].first_wrong
    assert report.rows[-1].ok


def test_a_result_of_the_wrong_size() -> None:
    plant(reduce.reduction_kn)
    report = validate_shape("4x4x4", algorithms=["planted"])
    assert "'out' has " in report.rows[0].first_wrong
    assert not report.ok


def test_what_is_not_proven_of_programs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    report = validate_shape("4x4x4", algorithms=["scan_k"])
    programs = sum(row.programs for row in report.rows)
    assert programs > 4
    assert report.verified() == f"{programs} programs verified for all sizes"
    assert "not proven" not in str(report)
    verifier._verify_once.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(writes, "all_written", lambda *_: False)
        report = validate_shape("4x4x4", algorithms=["scan_k"])
    verifier._verify_once.cache_clear()
    assert report.verified().endswith("programs verified but for what notes of 2 rows say")
    assert "not proven: scan_k (data in a, b): " in str(report)
    assert "every output element is written: tried for " in str(report)
    assert report.ok
    assert ShapeReport.from_json(report.to_json()) == report


def test_inputs_that_nobody_knows_are_skipped() -> None:
    def of_two_inputs(b: Builder, segment_size: int) -> int | Work:
        """Sum one of two inputs."""
        other = b.input("weights", "f16", Extent(LENGTH))
        b.copy(b.rect(b.scratch("w", "f16", 1), 0, 1, 1, 1), b.rect(other, 0, 1, 1, 1))
        return reduce.reduction_kn(b, segment_size)

    plant(of_two_inputs, kind="reduction", name="other")
    report = validate_shape("4x4x4", algorithms=["other"])
    assert "what must come out is not known here for an input 'weights'" in str(report)
    assert not report.ok
    assert report.summary().endswith(
        "0 of 1 algorithms possible, 0 of 0 cases right: NOTHING IS POSSIBLE"
    )


# --- Cases that cannot be validated -----------------------------------------------------------


def test_what_does_not_go_together() -> None:
    with pytest.raises(Unsupported, match=r"does not take f16 to f32; it takes tf32 to f32"):
        validate_shape("16x16x8")
    with pytest.raises(Unsupported, match="4x4x4 does not take f16 to bf16; it takes f16 to f32 "):
        validate_shape("4x4x4", acc="bf16")
    with pytest.raises(Unsupported, match="Volta tensor cores have no bf16"):
        validate_shape("4x4x4", ab="bf16", arch="volta")
    for keywords in ({"arch": "volt"}, {"ab": "f17"}, {"algorithms": ["scan_x"]}):
        with pytest.raises(UnknownName):
            validate_shape("4x4x4", **keywords)
    for shape in ("16x16", "0x4x4", "axbxc", (4, 4), (4, 4, 0)):
        with pytest.raises(InputError, match="a shape is written '16x16x16'"):
            validate_shape(shape)  # type: ignore[arg-type]


# --- The command ------------------------------------------------------------------------------


def command(*arguments: str) -> click.testing.Result:
    return runner().invoke(cli.main, ["validate", *arguments])


def test_a_text_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    files.check_file_writable(path)
    assert list(tmp_path.iterdir()) == []
    files.write_text(path, "é\n")
    assert path.read_bytes() == b"\xc3\xa9\n"

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match="no space left on device"):
        files.write_text(path, "new")
    assert path.read_bytes() == b"\xc3\xa9\n"
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


# --- Sizes that are too large -----------------------------------------------------------------


@pytest.mark.parametrize("shape", ["20000x20000x20000", "100000x100000x100000"])
def test_a_tile_that_does_not_fit_in_memory_is_refused(shape: str) -> None:
    result = command(shape, "reduction_k")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"one mma of {shape} tiles on the simulator needs about " in result.stderr
    assert "of memory, and " in result.stderr


def test_programs_that_do_not_fit_are_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # The program of three warps needs three times this, and as much again to multiply.
    monkeypatch.setattr(memory, "free_bytes", lambda: 5 * 64 * 3 * 16)
    row, _ = validate_shape("4x4x4", algorithms=["scan_k"]).rows
    assert row.ok
    assert row.left_out == 2
    assert "warps=3" in row.why_left_out
    assert "needs about" in row.why_left_out


def test_a_run_out_of_memory_is_no_wrong_result(monkeypatch: pytest.MonkeyPatch) -> None:
    real = run_numpy

    def full(program: Program, inputs: Any, **options: Any) -> Any:
        if inputs["in"].size > 20:
            raise MemoryError("Unable to allocate 3 TiB")
        return real(program, inputs, **options)

    monkeypatch.setattr(validation, "run_numpy", full)
    report = validate_shape("4x4x4", algorithms=["scan_k"])
    assert report.ok
    assert all(row.left_out for row in report.rows)
    assert "too large: scan_k (data in a, b): " in str(report)
    assert "Unable to allocate 3 TiB" in str(report)
    assert ShapeReport.from_json(report.to_json()) == report


def test_the_time_is_told_before_it_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(tile: str, algorithms: list[str] | None = None, *, full: bool = False) -> float:
        return seconds_of(subject_of(tile), algorithms, full=full)

    assert 1 < seconds("16x16x16") < seconds("16x16x16", full=True)
    assert seconds("3000x3000x3000", ["scan_tn"]) > 3600
    assert seconds("2x2x2", ["scan_k"]) < 60
    done = validate_shape("2x2x2", algorithms=["scan_k"]).rows[0]
    monkeypatch.setattr(Trial, "run", lambda trial: done)
    for shape, said in (("3000x3000x3000", "this takes roughly "), ("2x2x2", "")):
        # In this process: it has the replacement of the run.
        result = command(shape, "scan_tn", "--jobs", "1", "--section", "correctness")
        assert result.exit_code == 0
        assert result.stderr[: len(said)] == said
        assert bool(result.stderr) == bool(said)


def test_a_fault_of_tcusim_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(b: Builder, segment_size: int) -> int:
        return segment_size // 0

    broken.__module__ = "tcusim.algorithms.scan"
    plant(broken)
    with pytest.raises(ZeroDivisionError):
        validate_shape("4x4x4", algorithms=["planted"])
