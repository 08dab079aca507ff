"""XXH64, the hash by which Java Hudi derives lock names from table paths."""

from __future__ import annotations

_PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_MASK = (1 << 64) - 1
_STRIPE = 32

HUDI_SEED = 0xFFFFFFFFDABADABA


def xxhash64(data: bytes, seed: int) -> int:
    """The 64-bit hash of `data` as an unsigned number."""
    one, two, three, four, five = _PRIMES
    at = 0
    if len(data) >= _STRIPE:
        lanes = [(seed + one + two) & _MASK, (seed + two) & _MASK, seed & _MASK, (seed - one) & _MASK]
        while at + _STRIPE <= len(data):
            lanes = [_round(lane, _word(data, at + 8 * number)) for number, lane in enumerate(lanes)]
            at += _STRIPE
        found = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * one + four) & _MASK
    else:
        found = (seed + five) & _MASK
    found = (found + len(data)) & _MASK
    while at + 8 <= len(data):
        found = (_rotated(found ^ _round(0, _word(data, at)), 27) * one + four) & _MASK
        at += 8
    if at + 4 <= len(data):
        found = (_rotated(found ^ (int.from_bytes(data[at : at + 4], "little") * one & _MASK), 23) * two + three) & _MASK
        at += 4
    for byte in data[at:]:
        found = (_rotated(found ^ (byte * five & _MASK), 11) * one) & _MASK
    found = ((found ^ (found >> 33)) * two) & _MASK
    found = ((found ^ (found >> 29)) * three) & _MASK
    return found ^ (found >> 32)


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _round(lane: int, word: int) -> int:
    return (_rotated((lane + word * _PRIMES[1]) & _MASK, 31) * _PRIMES[0]) & _MASK
