"""Random damage to the bytes of a file, for tests of everything that is loaded."""

import re

from hypothesis import strategies as st

JUNK = [b"\x00", b"\xff", b'"', b"[", b"{", b"}", b"null", b"-1", b"NaN", b"1e999", b"\\ud800",
        b"99999999999999999999", b"true", b"../../../../etc/passwd", b"\n", b"{}"]  # fmt: skip
NUMBERS = [b"0", b"-1", b"1", b"2147483648", b"4611686018427387904", b"0.5", b"null", b'"a"']


def cut(raw, place, _):
    return raw[: int(place * len(raw))]


def flip(raw, place, byte):
    at = min(int(place * len(raw)), len(raw) - 1)
    return raw[:at] + bytes([raw[at] ^ (byte or 1)]) + raw[at + 1 :] if raw else raw


def flip_near_the_start(raw, place, byte):
    return flip(raw, place * min(1.0, 300 / max(1, len(raw))), byte)


def insert(raw, place, byte):
    at = int(place * len(raw))
    return raw[:at] + JUNK[byte % len(JUNK)] + raw[at:]


def change_a_number(raw, place, byte):
    """Another number in the place of one: sizes, shapes and offsets that do not hold."""
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?(?:e-?\d+)?", raw[:20_000]))
    if not found:
        return insert(raw, place, byte)
    one = found[int(place * len(found))]
    return raw[: one.start()] + NUMBERS[byte % len(NUMBERS)] + raw[one.end() :]


def empty(raw, place, byte):
    return b""


CHANGES = [cut, flip, flip_near_the_start, insert, change_a_number, empty]
damages = st.lists(
    st.tuples(st.sampled_from(CHANGES), st.floats(0, 0.999), st.integers(0, 255)),
    min_size=1,
    max_size=2,
)


def damaged(raw, changes):
    for change, place, byte in changes:
        raw = change(raw, place, byte)
    return raw
