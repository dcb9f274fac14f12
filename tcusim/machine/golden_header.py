"""A unit's arithmetic as one C99 header: the rule in C, the unit's parameters, and its mma."""

from __future__ import annotations

import textwrap
from importlib import import_module

from tcusim.machine.formats import format_of
from tcusim.machine.rule_row import HEADER, rule_row
from tcusim.machine.rules import Rule
from tcusim.machine.shapes import MmaShape

__all__ = ["header_text"]


def header_text(unit: str, rule: Rule, tile: MmaShape) -> str:
    """Return the header of a unit's mma, for a rule without block scales."""
    types = {"a": rule.ab, "b": rule.right, "c": rule.acc, "d": rule.acc}
    shapes = {
        "a": (tile.m, tile.k),
        "b": (tile.k, tile.n),
        "c": (tile.m, tile.n),
        "d": (tile.m, tile.n),
    }
    widths = {port: format_of(name).bits for port, name in types.items()}
    sizes = {port: rows * columns for port, (rows, columns) in shapes.items()}
    words = {
        "version": import_module("tcusim").__version__,
        "unit": unit,
        "about": f"{tile.name}, {rule.operands} to {rule.acc}",
        "source": _comment(rule.source),
        "rule_h": HEADER.read_text(encoding="utf-8"),
        "row": textwrap.fill(rule_row(rule).text(), 100, subsequent_indent="    "),
        **{name: str(getattr(tile, name)) for name in "mnk"},
        **{f"{port}_type": f"uint{8 * format_of(name).itemsize}_t" for port, name in types.items()},
        **{f"{port}_elements": str(size) for port, size in sizes.items()},
        **{f"{port}_width": str(width) for port, width in widths.items()},
        **{f"{port}_high": str(sizes[port] * widths[port] - 1) for port in types},
    }
    text = _TEMPLATE
    for name, value in words.items():
        text = text.replace(f"@{name}@", value)
    return text


def _comment(text: str) -> str:
    """Return a text on one line that neither ends nor begins a comment of C."""
    return " ".join(text.replace("*/", "* /").replace("/*", "/ *").split())


_TEMPLATE = """\
/* tcusim @version@: the arithmetic of the unit @unit@, @about@.
 *
 * Source of the rule: @source@
 *
 * C99 without a library. Elements are unsigned integers in the encoding of their type; matrices are
 * row-major. The results are those of tcusim.mma, bit for bit.
 *
 *     @d_type@ tcusim_golden_dot(const @a_type@* a, const @b_type@* b, @c_type@ c);
 *     void tcusim_golden_mma(const @a_type@* a, const @b_type@* b, const @c_type@* c, @d_type@* d);
 *
 * The first has @k@ products. The second is d = a.b + c of one tile, in sizes (@m@, @k@) of a,
 * (@k@, @n@) of b, and (@m@, @n@) of c and d.
 *
 * For SystemVerilog, one C file of yours defines the name of a function and includes this header:
 *
 *     #define TCUSIM_GOLDEN_DPI golden_mma
 *     #include "tcusim_golden.h"
 *
 *     import "DPI-C" function void golden_mma(
 *         input bit [@a_high@:0] a, input bit [@b_high@:0] b,
 *         input bit [@c_high@:0] c, output bit [@d_high@:0] d);
 *
 * Its words are those of the files for $readmemh: element 0 is in the lowest bits.
 */
#ifndef TCUSIM_GOLDEN_H
#define TCUSIM_GOLDEN_H

@rule_h@
static const tcusim_rule tcusim_golden_rule =
    @row@;

TCUSIM_RULE_FUNCTION @d_type@ tcusim_golden_dot(const @a_type@* a, const @b_type@* b, @c_type@ c) {
    return (@d_type@)tcusim_rule_dot(&tcusim_golden_rule, @k@, a, 1, b, 1, c, 0, 0, 0, 0);
}

TCUSIM_RULE_FUNCTION void tcusim_golden_mma(
    const @a_type@* a, const @b_type@* b, const @c_type@* c, @d_type@* d
) {
    const tcusim_rule* rule = &tcusim_golden_rule;
    int at;
    for (at = 0; at < @m@ * @n@; ++at) {
        const @a_type@* row = a + at / @n@ * @k@;
        const @b_type@* column = b + at % @n@;
        d[at] = (@d_type@)tcusim_rule_dot(rule, @k@, row, 1, column, @n@, c[at], 0, 0, 0, 0);
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
void TCUSIM_GOLDEN_DPI(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* d);

void TCUSIM_GOLDEN_DPI(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* d) {
    @a_type@ left[@a_elements@];
    @b_type@ right[@b_elements@];
    @c_type@ addend[@c_elements@];
    @d_type@ sum[@d_elements@];
    int i;
    for (i = 0; i < @a_elements@; ++i) left[i] = (@a_type@)tcusim_golden_from(a, i, @a_width@);
    for (i = 0; i < @b_elements@; ++i) right[i] = (@b_type@)tcusim_golden_from(b, i, @b_width@);
    for (i = 0; i < @c_elements@; ++i) addend[i] = (@c_type@)tcusim_golden_from(c, i, @c_width@);
    tcusim_golden_mma(left, right, addend, sum);
    for (i = 0; i < @d_elements@; ++i) tcusim_golden_to(d, i, @d_width@, sum[i]);
}

#endif

#endif
"""
