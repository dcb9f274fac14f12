"""A matrix unit that no GPU has: two products a step and ten fraction bits."""

from tcusim.machine.rules import Arch, Fused, Rule

UNIT = Arch(
    name="example_unit",
    title="an example of a unit",
    sm=(),
    aliases=(),
    rows=(
        Rule(
            ab="f16",
            acc="f32",
            how=Fused(length=2, fraction_bits=10),
            source="[EXAMPLE]",
            evidence="invented",
        ),
    ),
    source="[EXAMPLE]",
)
