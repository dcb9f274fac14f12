"""A unit's arithmetic as one C99 header: the rule in C, the unit's parameters, and its mma."""

from __future__ import annotations

import textwrap
from importlib import import_module
from typing import NamedTuple

from tcusim.machine.formats import format_of
from tcusim.machine.rule_row import HEADER, rule_row
from tcusim.machine.rules import Rule
from tcusim.machine.shapes import MmaShape


class _Port(NamedTuple):
    """An array of elements of so many bits, in C and as a vector of SystemVerilog."""

    name: str
    type: str
    elements: int
    width: int


def header_text(unit: str, rule: Rule, tile: MmaShape) -> str:
    """Return the header of a unit's mma."""
    m, n, k = tile.m, tile.n, tile.k
    blocks = k // rule.block if rule.block else 0
    types = {"a": rule.ab, "b": rule.right, "c": rule.acc, "d": rule.acc}
    sizes = {"a": m * k, "b": k * n, "c": m * n, "d": m * n}
    a, b, c, d = (
        _Port(name, f"uint{8 * fmt.itemsize}_t", sizes[name], fmt.bits)
        for name, fmt in ((name, format_of(types[name])) for name in types)
    )
    scales = [
        _Port(f"scale_{of}", "uint8_t", size * blocks, 8) for of, size in (("a", m), ("b", n))
    ]
    inputs = [a, b, c, *(scales if blocks else [])]
    vectors = [f"input bit [{one.elements * one.width - 1}:0] {one.name}" for one in inputs]
    vectors.append(f"output bit [{d.elements * d.width - 1}:0] d")
    words = {
        "version": import_module("tcusim").__version__,
        "unit": unit,
        "about": f"{tile.name}, {rule.operands} to {rule.acc}{' with ' * bool(blocks)}{rule.scale}",
        "source": _comment(rule.source),
        "rule_h": HEADER.read_text(encoding="utf-8"),
        "row": textwrap.fill(rule_row(rule).text(), 100, subsequent_indent="    "),
        "about_scales": _SCALES if blocks else "",
        "dot_arguments": ", ".join(
            f"{one.type} c" if one is c else f"const {one.type}* {one.name}" for one in inputs
        ),
        "mma_arguments": ", ".join(
            [*(f"const {one.type}* {one.name}" for one in inputs), f"{d.type}* d"]
        ),
        "dot_scales": "scale_a, 1, scale_b, 1" if blocks else "0, 0, 0, 0",
        "mma_scales": "scale_a + at / @n@ * @blocks@, 1, scale_b + at % @n@, @n@"
        if blocks
        else "0, 0, 0, 0",
        "vectors": ",\n *         ".join(vectors),
        "dpi_arguments": ", ".join(
            [*(f"const uint32_t* {one.name}" for one in inputs), "uint32_t* d"]
        ),
        "arrays": "\n".join(
            f"    {one.type} own_{one.name}[{one.elements}];" for one in (*inputs, d)
        ),
        "filled": "\n".join(map(_filled, inputs)),
        "passed": ", ".join(f"own_{one.name}" for one in (*inputs, d)),
        **{name: str(getattr(tile, name)) for name in "mnk"},
        "block": str(rule.block),
        "blocks": str(blocks),
        "scale_type": rule.scale_type,
        "a_type": a.type,
        "b_type": b.type,
        "d_type": d.type,
        "d_elements": str(d.elements),
        "d_width": str(d.width),
    }
    text = _TEMPLATE
    for name, value in words.items():
        text = text.replace(f"@{name}@", value)
    return text


def _filled(port: _Port) -> str:
    """Return the loop that takes the elements of a port from its words."""
    return (
        f"    for (i = 0; i < {port.elements}; ++i) {{\n"
        f"        own_{port.name}[i] = "
        f"({port.type})tcusim_golden_from({port.name}, i, {port.width});\n"
        "    }"
    )


def _comment(text: str) -> str:
    """Return a text on one line that neither ends nor begins a comment of C."""
    return " ".join(text.replace("*/", "* /").replace("/*", "/ *").split())


# Of a rule with block scales.
_SCALES = """
 *
 * Scales are bytes of @scale_type@, each of @block@ products: (@m@, @blocks@) of a's rows, and
 * (@blocks@, @n@) of b's columns; @blocks@ of a row, and of a column, for one dot product."""

_TEMPLATE = """\
/* tcusim @version@: the arithmetic of the unit @unit@, @about@.
 *
 * Source of the rule: @source@
 *
 * C99 without a library. Elements are unsigned integers in the encoding of their type; matrices are
 * row-major. The results are those of tcusim.mma, bit for bit.
 *
 *     @d_type@ tcusim_golden_dot(@dot_arguments@);
 *     void tcusim_golden_mma(@mma_arguments@);
 *
 * The first has @k@ products. The second is d = a.b + c of one tile, in sizes (@m@, @k@) of a,
 * (@k@, @n@) of b, and (@m@, @n@) of c and d.@about_scales@
 *
 * For SystemVerilog, one C file of yours defines the name of a function and includes this header:
 *
 *     #define TCUSIM_GOLDEN_DPI golden_mma
 *     #include "tcusim_golden.h"
 *
 *     import "DPI-C" function void golden_mma(
 *         @vectors@);
 *
 * Its words are those of the files for $readmemh: element 0 is in the lowest bits.
 */
#ifndef TCUSIM_GOLDEN_H
#define TCUSIM_GOLDEN_H

@rule_h@
static const tcusim_rule tcusim_golden_rule =
    @row@;

TCUSIM_RULE_FUNCTION @d_type@ tcusim_golden_dot(@dot_arguments@) {
    return (@d_type@)tcusim_rule_dot(&tcusim_golden_rule, @k@, a, 1, b, 1, c, @dot_scales@);
}

TCUSIM_RULE_FUNCTION void tcusim_golden_mma(@mma_arguments@) {
    const tcusim_rule* rule = &tcusim_golden_rule;
    int at;
    for (at = 0; at < @m@ * @n@; ++at) {
        const @a_type@* row = a + at / @n@ * @k@;
        const @b_type@* column = b + at % @n@;
        d[at] = (@d_type@)tcusim_rule_dot(
            rule, @k@, row, 1, column, @n@, c[at], @mma_scales@
        );
    }
}

#ifdef TCUSIM_GOLDEN_DPI

/* An element of some bits in words of 32. */
static uint64_t tcusim_golden_from(const uint32_t* words, int element, int width) {
    uint64_t value = 0;
    int bit;
    for (bit = 0; bit < width; ++bit) {
        const int at = element * width + bit;
        value |= (uint64_t)(words[at / 32] >> at % 32 & 1) << bit;
    }
    return value;
}

static void tcusim_golden_to(uint32_t* words, int element, int width, uint64_t value) {
    int bit;
    for (bit = 0; bit < width; ++bit) {
        const int at = element * width + bit;
        const uint32_t one = (uint32_t)(value >> bit & 1) << at % 32;
        words[at / 32] = (words[at / 32] & ~((uint32_t)1 << at % 32)) | one;
    }
}

/* Some simulators compile C as C++. */
#ifdef __cplusplus
extern "C"
#endif
void TCUSIM_GOLDEN_DPI(@dpi_arguments@);

void TCUSIM_GOLDEN_DPI(@dpi_arguments@) {
@arrays@
    int i;
@filled@
    tcusim_golden_mma(@passed@);
    for (i = 0; i < @d_elements@; ++i) tcusim_golden_to(d, i, @d_width@, own_d[i]);
}

#endif

#endif
"""
