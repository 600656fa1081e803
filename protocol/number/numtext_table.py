#!/usr/bin/env python3
"""Writes numtext_table.h: the powers of ten that numtext.c prints and reads floats with.

Row k holds ceil(10^k * 2^-(floor(log2(10^k)) - 127)): the 128 leading bits of 10^k, rounded up.
Usage: numtext_table.py > numtext_table.h
"""
from fractions import Fraction

FIRST, LAST = -292, 324


def row(k):
    value = Fraction(10) ** k
    log2 = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** log2 > value:
        log2 -= 1
    assert Fraction(2) ** log2 <= value < Fraction(2) ** (log2 + 1)
    scaled = value * Fraction(2) ** (127 - log2)
    g = -(-scaled.numerator // scaled.denominator)
    assert 1 << 127 <= g < 1 << 128
    return g


print("/* Made by numtext_table.py; not to be edited. The 128 leading bits of 10^k, rounded up, high")
print(" * word first, for k from NUMTEXT_POWER_FIRST on. */")
print("/* clang-format off */")
print(f"#define NUMTEXT_POWER_FIRST ({FIRST})")
print(f"#define NUMTEXT_POWER_LAST  {LAST}")
print("static const uint64_t numtext_powers[][2] = {")
for at in range(FIRST, LAST + 1, 2):
    cells = []
    for k in (at, at + 1):
        if k <= LAST:
            g = row(k)
            cells.append(f"{{0x{g >> 64:016x}, 0x{g & (1 << 64) - 1:016x}}},")
    print("    " + " ".join(cells))
print("};")
print("/* clang-format on */")
