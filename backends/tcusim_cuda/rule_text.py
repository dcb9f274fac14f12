"""A rule, and element types that CUDA does not have, as C++ for `tiles.cuh`."""

from __future__ import annotations

from typing import Final

from tcusim.machine import Rule, format_of
from tcusim.machine.rule_row import format_row, rule_row
from tcusim_cuda.text import comment, is_coded

# The class in a kernel that gives its rule.
RULE: Final = "Arithmetic"


def rule_lines(rule: Rule) -> list[str]:
    """Return a class with the rule, for the beginning of a kernel."""
    return [
        comment(f"{rule.operands} to {rule.acc}: {rule.source}"),
        f"struct {RULE} {{",
        "    __device__ static constexpr tcusim_rule rule() {",
        f"        return {rule_row(rule).text()};",
        "    }",
        "};",
    ]


def coded_lines(dtypes: set[str]) -> list[str]:
    """Return the declarations of those types that CUDA does not have, for before a kernel."""
    return [line for name in sorted(filter(is_coded, dtypes)) for line in _declaration(name)]


def _declaration(name: str) -> list[str]:
    fmt = format_of(name)
    word = {1: "char", 2: "short", 4: "int"}[fmt.itemsize]
    # Several kernels may be compiled as one text.
    return [
        f"#ifndef TCUSIM_{name}",
        f"#define TCUSIM_{name}",
        "namespace tcu {",
        f"struct {name}_format {{",
        f"    using Word = unsigned {word};",
        "    __device__ static constexpr tcusim_format format() {",
        f"        return {format_row(fmt).text()};",
        "    }",
        "};",
        f"using {name} = Coded<{name}_format>;",
        "}  // namespace tcu",
        "#endif",
    ]
