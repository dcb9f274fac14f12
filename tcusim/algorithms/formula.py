"""Formulas of mma steps, such as ``N + ceil(m/k)``: texts for readers, which also compute."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from fractions import Fraction

from tcusim.errors import InputError


def evaluate(formula: str, values: Mapping[str, int]) -> int:
    """Return the value of a formula in integers, their names, ``+ - * /`` and ``ceil()``.

    Divisions are exact; a formula with a fractional value is an error.
    """
    result = _value(ast.parse(formula, mode="eval").body, formula, values)
    if result.denominator != 1:
        raise InputError(f"{formula} is {result}, which is no number of steps")
    return int(result)


def _value(node: ast.expr, formula: str, values: Mapping[str, int]) -> Fraction:
    match node:
        case ast.Constant(int(number)):
            return Fraction(number)
        case ast.Name(name) if name in values:
            return Fraction(values[name])
        case ast.Call(ast.Name("ceil"), [inner], []):
            return Fraction(math.ceil(_value(inner, formula, values)))
        case ast.BinOp(one, operator, two):
            left, right = _value(one, formula, values), _value(two, formula, values)
            match operator:
                case ast.Add():
                    return left + right
                case ast.Sub():
                    return left - right
                case ast.Mult():
                    return left * right
                case ast.Div():
                    return left / right
    known = ", ".join(sorted(values))
    raise InputError(
        f"{ast.unparse(node)!r} in {formula!r} is not understood: a formula has integers, "
        f"+, -, *, /, ceil() and the names {known}"
    )
