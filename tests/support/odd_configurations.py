"""Configurations with mistakes in them: other values, keys, signs and bytes."""

from __future__ import annotations

import random
import re

VALUES = (
    *("nan", "inf", "-inf", "0", "-1", "1", "2", "0.0", "-0.0", "1e-320", "1e308", "1e400"),
    *("9223372036854775808", "1" + "0" * 400, "true", "false", '""', '"text"', '"rk4"', '"nan"'),
    *("[]", "[[]]", "[0]", "[1.0, 2.0]", "[2.0, 1.0]", "[nan]", '["a", "a"]', '[1, "a"]', "{}"),
    *("{a = 1}", "[{a = 1}]", "1979-05-27", "07:32:00", "0x10", "'''", '"\\u0000"', '"/"', '"."'),
    *("1_000", "+1", "1.", "rk4", "[" * 3000, "{a = " * 500, '"' + "a" * 10000 + '"', '"é"'),
)
LETTERS = "abz09=[]{}\"'#.,-+ \n\t\r\0\x7fé∞\ufeff"


def with_mistakes(text: str, seed: int) -> bytes:
    """Return a configuration with one to three mistakes."""
    chance = random.Random(seed)
    for _ in range(chance.randrange(1, 4)):
        text = chance.choice(MISTAKES)(text, chance)
    content = text.encode("utf-8", errors="surrogatepass")
    if chance.random() < 0.03:
        place = chance.randrange(len(content) + 1)
        content = content[:place] + bytes([chance.randrange(128, 256)]) + content[place:]
    return content


def _other_value(text: str, chance: random.Random) -> str:
    places = list(re.finditer(r"^([\w.]+ *= *)([^#\n]*)", text, re.M))
    if not places:
        return text
    place = chance.choice(places)
    return text[: place.start(2)] + chance.choice(VALUES) + text[place.end(2) :]


def _lines(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    k = chance.randrange(len(lines))
    return "".join(
        chance.choice(
            (
                [*lines[:k], *lines[k + 1 :]],
                [*lines[:k], lines[k], *lines[k:]],
                chance.sample(lines, len(lines)),
                lines[:k],
            )
        )
    )


def _letters(text: str, chance: random.Random) -> str:
    k = chance.randrange(len(text) + 1)
    letter = chance.choice(LETTERS)
    return chance.choice((text[:k] + letter + text[k:], text[:k] + text[k + 1 :], text[:k]))


def _keys(text: str, chance: random.Random) -> str:
    places = list(re.finditer(r"^(\[*)([\w.]+)", text, re.M))
    if not places:
        return text
    place = chance.choice(places)
    other = chance.choice(
        (place[2][::-1], place[2] + "s", place[2][1:] or "x", "t_span", "driver", "a.b.c", '""')
    )
    return text[: place.start(2)] + other + text[place.end(2) :]


def _more(text: str, chance: random.Random) -> str:
    line = f"{chance.choice(('more', 'watchdog', 'options', 'events'))} = {chance.choice(VALUES)}\n"
    return line + text if chance.random() < 0.5 else text + line


MISTAKES = (_other_value, _other_value, _other_value, _lines, _letters, _keys, _more)
