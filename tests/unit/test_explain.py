"""`tcusim.explain`: its inputs, its refusals, and the forms of its output."""

from __future__ import annotations

import html.parser
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import tcusim
from command_line import tcusim_command
from tcusim.errors import InputError, UnknownName, Unsupported
from tcusim.machine import FORMATS, Arch, Fused, Rule, Values, round_values
from tcusim.machine.accounts.account import hex_text, leading_exponent
from tcusim.machine.bits import from_bits, hex_bits, to_bits

# Four products of 3 * 2**-25 and four of 2**-25, beside 1: three generations, three results.
A = np.array([3, 3, 3, 3, 1, 1, 1, 1]) * 2.0**-12
B = np.full(8, 2.0**-13)
ZERO, ONE = Fraction(0), Fraction(1)
ARCHS = ("volta", "ampere", "hopper")
OPTIONS = ["--a", "0x1200*4,0x0c00*4", "--b", "0x0800*8", "--c", "1"]


@pytest.fixture(scope="module")
def told() -> tcusim.Explanation:
    return tcusim.explain(A, B, 1.0, arch=ARCHS)


# --- Data -------------------------------------------------------------------------------------


def test_three_generations_three_results(told: tcusim.Explanation) -> None:
    assert [one.bits for one in told] == ["3f800000", "3f800002", "3f800004"]
    assert [one.ulps for one in told] == [-4.0, -2.0, 0.0]
    assert [one.cut_terms for one in told] == [8, 8, 0]
    assert [len(one.steps) for one in told] == [2, 1, 1]
    assert told["hopper"].exact == told["V100"].exact == 1 + Fraction(2) ** -21


def test_a_step_tells_what_is_cut(told: tcusim.Explanation) -> None:
    (step,) = told["ampere"].steps
    assert (step.name, step.kind, step.exponent, step.lowest) == ("d1", "fused", 0, -24)
    c, first, *_, last = step.terms
    assert (c.name, c.value, c.exponent, c.is_cut) == ("c", ONE, 0, False)
    unit = Fraction(2) ** -25
    assert (first.name, first.exponent, first.significand) == ("a[0]*b[0]", -24, Fraction(3, 2))
    assert (first.value, first.kept, first.lost) == (3 * unit, 2 * unit, unit)
    assert (last.name, last.kept, last.lost) == ("a[7]*b[7]", ZERO, unit)
    assert step.total == 1 + 8 * unit
    assert (step.lost_in_alignment, step.lost_in_rounding) == (8 * unit, ZERO)
    assert (step.rounding, step.last_bit, step.bits) == ("rz", -23, "3f800002")


def test_an_addend_that_joins_late_has_a_step_of_its_own() -> None:
    ones = np.ones(40, np.float32)
    told = tcusim.explain(ones, ones, 1.0, ab="e4m3", family="mma.sync")["hopper"]
    assert [step.kind for step in told.steps] == ["fused", "fused", "addition"] * 2
    assert [term.name for term in told.steps[0].terms][:3] == [
        "a[0]*b[0]",
        "a[1]*b[1]",
        "a[4]*b[4]",
    ]
    addends = [[term.name for term in step.terms if "*" not in term.name] for step in told.steps]
    assert addends == [[], ["d1"], ["d2", "c"], [], ["d4"], ["d5", "d3"]]
    assert told.result == 41.0


def test_a_floor_of_the_exponent_is_told() -> None:
    told = tcusim.explain([2.0**-24], [2.0**-24], acc="f16")
    assert told["hopper"].steps[0].exponent == -21
    assert "E = -21, its floor" in str(told)


def test_subnormals_that_count_as_zero_are_told() -> None:
    how = Fused(4, 23, flush_inputs=True)
    rule = Rule("f16", "f32", how, "a", "b")
    tcusim.register_arch(Arch("flushing", "one that flushes", (), (), (rule,), source="a"))
    told = tcusim.explain([2.0**-24, 1.0], [1.0, 1.0], arch="flushing")
    term = told["flushing"].steps[0].terms[1]
    assert (term.exponent, term.kept, term.lost) == (None, ZERO, Fraction(2) ** -24)
    assert "subnormal, counts as zero" in str(told)


def test_kinds_of_arithmetic() -> None:
    told = tcusim.explain(A, B, 1.0, arch=("ieee", "exact"))
    assert {step.kind for step in told["ieee"].steps} == {"multiply-add"}
    assert [step.kind for step in told["exact"].steps] == ["exact"]
    wrapped = tcusim.explain([127, 1], [1, 1], 2**31 - 1, arch="ampere", ab="s8", acc="s32")
    (step,) = wrapped["ampere"].steps
    assert (step.kind, step.rounding, step.result) == ("integer", "wrap", -(2**31) + 127)
    assert wrapped["ampere"].ulps == -(2.0**32)
    assert "-2147483521, modulo 2^32" in str(wrapped)


@pytest.mark.parametrize(
    ("a", "b", "c", "bits"),
    [
        ([np.inf, 1.0], [1.0, 1.0], 0.0, "7f800000"),
        ([np.inf], [0.0], 0.0, "7fffffff"),
        ([1.0], [1.0], np.nan, "7fffffff"),
        ([np.inf, -np.inf], [1.0, 1.0], 0.0, "7fffffff"),
    ],
)
@pytest.mark.parametrize("arch", ["volta", "hopper"])
def test_infinities_and_nan(a: list[float], b: list[float], c: float, bits: str, arch: str) -> None:
    told = tcusim.explain(a, b, c, arch=arch)
    one = told[arch]
    assert (one.bits, one.exact, one.error, one.ulps) == (bits, None, None, None)
    assert one.steps[-1].is_special
    assert "decides as in IEEE 754" in str(told)
    assert json.loads(told.to_json())["accounts"][0]["exact"] is None


def test_overflow_has_no_error_in_ulps() -> None:
    told = tcusim.explain([60000.0], [2.0], acc="f16")
    assert (told["hopper"].bits, told["hopper"].ulps) == ("7c00", None)
    assert told["hopper"].steps[0].lost_in_rounding is None
    assert "too large" in str(told)


def test_no_products_leave_the_addend() -> None:
    told = tcusim.explain([], [], 2.5)
    assert (told["hopper"].result, told["hopper"].steps) == (2.5, ())
    assert str(told).startswith("0 products of f16, and c, into f32.")


def test_a_cell_of_a_product() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((9, 9)).astype(np.float16)[:5] for _ in "ab")
    b = np.ascontiguousarray(np.concatenate([b, b])[:9])
    c = rng.standard_normal((5, 9)).astype(np.float32)
    d = tcusim.mma(a, b, c, arch="ampere")
    for cell in ((0, 0), (4, 8), (2, 3)):
        told = tcusim.explain(a, b, c, arch="ampere", cell=cell)
        assert told["ampere"].bits == f"{d[cell].view(np.uint32):08x}"
    assert tcusim.explain(a, b, cell=(1, 1))["hopper"].steps[0].terms[0].value == 0


def test_every_step_of_a_long_chain_is_in_the_data() -> None:
    ones = np.ones(400, np.float16)
    told = tcusim.explain(ones, ones, arch="volta")
    assert len(told["volta"].steps) == 100
    assert "... 84 more steps; to_json() and .accounts have them all" in str(told)
    assert "volta, step 97 of 100" in str(told)
    assert "84 more steps" in told.to_html()


# --- Refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        (([1, 2], [1]), {}, InputError, "a has 2 numbers, and b has 1; both need as many"),
        (([[1]], [[1]]), {}, InputError, "of two matrices, cell must say which output is meant"),
        (([[1]], [1]), {}, InputError, "a and b must be vectors, or matrices with a cell"),
        (([1], [1], [1, 2]), {}, InputError, r"c must be one number, got shape \(2,\)"),
        (([1], [1]), {"cell": (0, 0)}, InputError, r"with a cell, a must be \(m, k\) and b"),
        (([[1]], [[1]]), {"cell": (1, 0)}, InputError, r"row of cell must be .* 0\.\.0, got 1"),
        (([[1]], [[1]]), {"cell": 1}, InputError, r"cell must be \(row, column\), got 1"),
        (([[1]], [[1]], [1, 2]), {"cell": (0, 0)}, InputError, r"\(m, n\) = \(1, 1\), got shape"),
        (([1e6], [1]), {}, InputError, "a: f16 cannot hold 1e.06; its largest number is 65504"),
        (
            ([0.1], [1]),
            {"exact_inputs": True},
            InputError,
            "these would be rounded: a to f16, 0.1 to 0.0999755859375",
        ),
        (([1], [1]), {"arch": "volt"}, UnknownName, "architecture 'volt'. Did you mean 'volta'"),
        (([1], [1]), {"arch": ()}, InputError, "arch names no architecture"),
        (([1], [1]), {"ab": "f17"}, UnknownName, "unknown type 'f17'. Did you mean 'f16'"),
        (([1], [1]), {"family": "wmm"}, UnknownName, "unknown family 'wmm'. Did you mean 'wmma'"),
        (([1], [1]), {"arch": "volta", "ab": "bf16"}, Unsupported, "have no bf16"),
        (([1], [1]), {"ab": "f16", "acc": "f64"}, Unsupported, "f16 accumulates in f32 or f16"),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: Any, options: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        tcusim.explain(*arguments, **options)


def test_an_architecture_that_was_not_asked_for(told: tcusim.Explanation) -> None:
    with pytest.raises(UnknownName, match="architecture of this explanation 'ada'"):
        told["ada"]


# --- Forms ------------------------------------------------------------------------------------


def test_text_lines_up_the_bits(told: tcusim.Explanation) -> None:
    text = str(told)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 110
    lines = [line for line in text.splitlines() if line.startswith(("    a[", "    c ", "    d"))]
    assert len(lines) == 12 + 10 + 10
    assert "+0.00000000000000000000000[11]  lost" in text
    assert "+0.000000000000000000000001[1]" in text
    assert "+0.0000000000000000000000011" in text
    # The binary points of a step are in one column.
    ampere = text.partition("ampere, one step")[2].partition("\n\n")[0]
    points = {line.rindex("+") for line in ampere.splitlines() if "+" in line}
    assert len(points) == 1


def test_a_terminal_sees_what_is_lost_in_red(told: tcusim.Explanation) -> None:
    colored = told.to_text(color=True)
    assert "\x1b[31m[11]\x1b[0m" in colored
    assert "\x1b[31m\x1b[0m" not in colored
    for escape in ("\x1b[31m", "\x1b[1m", "\x1b[0m"):
        colored = colored.replace(escape, "")
    assert colored == told.to_text()


def test_rounded_digits_are_beside_the_sum() -> None:
    text = str(tcusim.explain([1.0, 2.0**-12], [1.0, 1.0], acc="f16"))
    assert "+1.0000000000[01]" in text
    assert "3c00 = 1.0, rounded to nearest even" in text


def test_sums_too_wide_for_columns_are_in_hexadecimal() -> None:
    text = str(tcusim.explain([2.0**60, 2.0**-60], [1, 1], arch="exact", ab="bf16"))
    assert " 0x1p-60\n" in text
    assert "0x1.8p-3 is 1.5 * 2^-3" in text


def test_json_is_exact(told: tcusim.Explanation) -> None:
    accounts = json.loads(told.to_json())["accounts"]
    assert [one["bits"] for one in accounts] == ["3f800000", "3f800002", "3f800004"]
    term = accounts[1]["steps"][0]["terms"][1]
    assert term == {
        "term": "a[0]*b[0]",
        "factors": [3 * 2.0**-12, 2.0**-13],
        "value": "0x1.8p-24",
        "exponent": -24,
        "significand": "0x1.8p+0",
        "kept": "0x1p-24",
        "lost": "0x1p-25",
    }
    assert accounts[0]["error"] == "-0x1p-21"
    assert accounts[0]["error_ulps"] == -4.0


class _Tags(html.parser.HTMLParser):
    """Collects elements; fails where one is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_stands_alone(told: tcusim.Explanation) -> None:
    for text in (told.to_html(), told._repr_html_()):
        tags = _Tags()
        tags.feed(text)
        assert tags.open == []
        assert "table" in tags.seen
        assert not {"script", "link", "img", "iframe"} & set(tags.seen)
        assert not {"src", "href"} & tags.attributes
        assert "url(" not in text
        assert "prefers-color-scheme: dark" in text
        assert "<del>[11]</del>" in text
    assert told.to_html().startswith("<!DOCTYPE html>")


def test_svg_is_well_formed(told: tcusim.Explanation) -> None:
    root = ElementTree.fromstring(told.to_svg())
    name = "{http://www.w3.org/2000/svg}"
    lost = [text.text for text in root.iter(f"{name}text") if text.get("class") == "lost"]
    assert lost == ["[11]"] * 4 + ["[01]"] * 4 + ["[1]"] * 8
    columns = {text.get("x") for text in root.iter(f"{name}text") if text.text == "[11]"}
    assert len(columns) == 1


# --- The command ------------------------------------------------------------------------------


def test_the_command_prints_the_text(told: tcusim.Explanation) -> None:
    result = tcusim_command(
        "explain", *OPTIONS, *(word for arch in ARCHS for word in ("--arch", arch))
    )
    assert (result.exit_code, result.output) == (0, told.to_text())


def test_the_command_writes_a_page_and_a_drawing(tmp_path: Path) -> None:
    page, drawing = tmp_path / "sum.html", tmp_path / "sum.svg"
    result = tcusim_command("explain", *OPTIONS, "--html", str(page), "--svg", str(drawing))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"wrote {page}\nwrote {drawing}\n"
    one = tcusim.explain(A, B, 1.0)
    assert page.read_text(encoding="utf-8") == one.to_html()
    assert drawing.read_text(encoding="utf-8") == one.to_svg()
    assert tcusim_command("explain", *OPTIONS, "--svg", "-").output == one.to_svg()


def test_the_command_reads_files(tmp_path: Path) -> None:
    a, b = tmp_path / "a.npy", tmp_path / "b.npy"
    np.save(a, np.stack([A, 2 * A]).astype(np.float16))
    np.save(b, B[:, None])
    result = tcusim_command("explain", "--a", str(a), "--b", str(b), "--cell", "1,0", "--json")
    assert result.exit_code == 0
    assert json.loads(result.output)["accounts"][0]["result"] == 2.0**-20


def test_numbers_are_rounded_and_the_account_says_so(tmp_path: Path) -> None:
    """Whether Python has them, the command or a file: the same bits, and the same words."""
    paths = [str(tmp_path / name) for name in ("a.npy", "b.npy")]
    for numbers, ab in (
        ([0.1, 0.5, 0.1], "f16"),
        ([0.1, 0.2, 0.3, 0.4, 0.6], "bf16"),
        ([0.1, 2.5], "e4m3"),
        ([1 / 3, 2.0], "tf32"),
        ([0.1, 3.0], "f64"),
    ):
        ones, acc = [1.0] * len(numbers), "f64" if ab == "f64" else "f32"
        for path, array in zip(paths, (numbers, ones), strict=True):
            np.save(path, np.array(array))
        options = ("--ab", ab, "--acc", acc)
        listed = [",".join(map(repr, array)) for array in (numbers, ones)]
        said = tcusim.explain(numbers, ones, ab=ab, acc=acc)
        for a, b in (listed, paths):
            result = tcusim_command("explain", "--a", a, "--b", b, *options)
            assert (result.exit_code, result.output) == (0, said.to_text())
            assert (
                tcusim_command("explain", "--a", a, "--b", b, *options, "--json").output
                == said.to_json() + "\n"
            )
            refused = tcusim_command("explain", "--a", a, "--b", b, *options, "--exact-inputs")
            assert (refused.exit_code == 0) == (ab == "f64")
        (account,) = said
        assert account.rounded or ab == "f64"
        assert "".join(account.rounded).replace(", and 2 more", "") in str(said)
    (account,) = tcusim.explain([0.1, 0.5, 0.1], [1, 1, 1], 0.7, acc="f16")
    assert account.rounded[0] == "a to f16, 0.1 to 0.0999755859375 (0x2e66)"
    assert account.rounded[1].startswith("c to f16, 0.7 to ")
    assert account.result == float(np.float16(2 * 0.0999755859375 + 0.5 + np.float16(0.7)))
    (many,) = tcusim.explain([0.1, 0.2, 0.3, 0.4, 0.6], [1] * 5)
    assert many.rounded[0].endswith("0.3 to 0.300048828125 (0x34cd), and 2 more")
    # Beyond 2**53 a float64 holds not every integer, and float32 fewer.
    (whole,) = tcusim.explain([1], [1], 2**53 + 1)
    assert whole.rounded == ("c to f32, 9007199254740993 to 9007199254740992.0 (0x5a000000)",)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--a", "1", "--b", "1e6"], r"--b: f16 cannot hold 1e\+06; its largest number is 65504"),
        (["--a", "x", "--b", "1"], "--a: 'x' is no number; write decimals, or bits such as"),
        (["--a", "0x12345", "--b", "1"], "--a: 0x12345 is not 16 bits, as f16 has"),
        (["--a", "1", "--b", "no.npy"], "there is no file no.npy"),
        (["--a", "1", "--b", "1", "--cell", "3"], "--cell must be a row and a column, such as 0,3"),
        (["--a", "1", "--b", "1", "--ab", "bf16", "--arch", "volta"], "use --arch ampere"),
        (["--a", "300", "--b", "1", "--ab", "u8", "--acc", "s32"], "whole numbers from 0 to 255"),
        (["--a", "inf", "--b", "1", "--ab", "e4m3"], "e4m3 cannot hold inf; .* no infinity"),
    ],
)
def test_the_command_says_what_is_wrong(words: list[str], text: str) -> None:
    result = tcusim_command("explain", *words)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    with pytest.raises(AssertionError, match=text):
        raise AssertionError(result.stderr)


def test_numbers_of_the_command() -> None:
    def factors(*words: str) -> list[float]:
        account = json.loads(tcusim_command("explain", *words, "--json").output)["accounts"][0]
        return [term["factors"][0] for term in account["steps"][0]["terms"]]

    assert factors("--a", "0xbc00,0x1.8p-3, 2", "--b", "1,1,1") == [0.0, -1.0, 0.1875, 2.0]
    assert factors("--a", "0x3f80*2,-inf", "--b", "1*3", "--ab", "bf16") == [
        0.0,
        1.0,
        1.0,
        "-Infinity",
    ]
    assert factors("--a", "-7", "--b", "1", "--c", "0xffffffff", "--ab", "s8", "--acc", "s32") == [
        -1,
        -7,
    ]


# --- Bits and numbers -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "s8", "u8"])
def test_bits_of_8_bit_types_there_and_back(name: str) -> None:
    fmt = FORMATS[name]
    for bits in range(256):
        value = from_bits(bits, fmt)
        if not np.isnan(value):
            assert to_bits(value, fmt) == bits
            if fmt.is_float and math.isfinite(value):
                assert round_values(value.reshape(1), fmt)[0] == value


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_bits_of_8_bit_floats_are_those_of_ml_dtypes(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    expected = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, FORMATS[name].array_name))
    ours: Values = np.array([from_bits(bits, FORMATS[name]) for bits in range(256)])
    assert np.array_equal(ours, expected.astype(np.float32), equal_nan=True)
    assert np.array_equal(np.signbit(ours), np.signbit(expected.astype(np.float32)))


@pytest.mark.parametrize(
    ("name", "value", "bits"),
    [
        ("f16", -2.0, "c000"),
        ("bf16", 1.5, "3fc0"),
        ("tf32", 1.5, "3fc00000"),
        ("f32", 1.0, "3f800000"),
        ("f64", -0.0, "8000000000000000"),
        ("s32", -1, "ffffffff"),
        ("e4m3", 448.0, "7e"),
        ("e5m2", -np.inf, "fc"),
    ],
)
def test_bits_of_other_types(name: str, value: float, bits: str) -> None:
    fmt = FORMATS[name]
    given = np.asarray(value, fmt.dtype)
    assert hex_bits(to_bits(given, fmt), fmt) == bits
    assert from_bits(int(bits, 16), fmt) == given


def test_numbers_in_hexadecimal_are_those_of_python() -> None:
    rng = np.random.default_rng(1)
    for number in [0.5, -3.0, 2.0**-40 / 3, *rng.standard_normal(50).tolist()]:
        assert float.fromhex(hex_text(Fraction(number))) == number
        assert leading_exponent(Fraction(number)) == math.frexp(number)[1] - 1


def test_float32_operands_are_cut_everywhere_and_it_is_said() -> None:
    """`mma`, `explain` and the command take float32 for tf32, and ignore its low bits."""
    a, b = np.array([3.14, 1.5], np.float32), np.array([1, 1024.5], np.float32)
    told = tcusim.explain(a, b, ab="tf32")
    (account,) = told
    assert account.cut_operands == 2
    assert account.result == tcusim.mma(a[None], b[:, None], ab="tf32") == 3.138671875 + 1536
    sentence = "Float32 operands that were cut to tf32, of which the instruction ignores the last"
    assert sentence in str(told)
    assert sentence in told.to_html()
    assert json.loads(told.to_json())["accounts"][0]["cut_operands"] == 2
    ran = tcusim_command(
        "explain", *["--ab", "tf32", "--a", "3.14,1.5", "--b", "1,1024.5", "--json"]
    )
    assert ran.exit_code == 0, ran.output
    wide = tcusim.explain([3.14, 1.5], [1, 1024.5], ab="tf32")
    assert json.loads(ran.output) == json.loads(wide.to_json())
    assert wide["hopper"].bits == account.bits
    assert "cut to tf32" not in str(tcusim.explain(a[1:], [1.0], ab="tf32"))
    ran = tcusim_command("explain", *["--ab", "tf32", "--a", "1e39", "--b", "1"])
    assert "--a: f32 cannot hold 1e+39; its largest number is 3.40282e+38" in ran.stderr
    ran = tcusim_command("explain", *["--ab", "e5m2.e4m3", "--a", "0x01", "--b", "0x01", "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.output)["accounts"][0]["ab"] == "e5m2.e4m3"
    assert json.loads(ran.output)["accounts"][0]["exact"] == "0x1p-25"
