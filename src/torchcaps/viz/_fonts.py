"""Fonts for characters that the default font does not have, and numbers where no installed font has them."""

from __future__ import annotations

import re
import textwrap
from functools import cache

from matplotlib.font_manager import FontEntry, findSystemFonts, fontManager, get_font

DEFAULT = "DejaVu Sans"
# Fonts with Chinese, Japanese and Korean characters, as common systems have them, are taken before others.
_FIRST = ("Noto Sans CJK", "Source Han Sans", "WenQuanYi", "Hiragino", "PingFang", "Yu Gothic", "Microsoft YaHei")
_FIRST += ("Malgun Gothic", "Apple SD Gothic", "IPA", "Takao", "Droid Sans Fallback", "Arial Unicode", "Noto Sans")
# Fonts of boxes, and of coloured bitmaps that matplotlib cannot draw.
_NEVER = ("Last Resort", "Noto Color Emoji", "Apple Color Emoji")


@cache
def fonts_for(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return installed fonts for characters that the default font does not have, and the characters that none has.

    Args:
        characters: The characters.

    Returns:
        Names of fonts, and the rest of the characters.
    """
    missing = {each for each in characters if each.isprintable() and ord(each) not in _glyphs(_default())}
    names: list[str] = []
    for font in candidates() if missing else ():
        found = {each for each in missing if ord(each) in _glyphs(font.fname)}
        if found:
            names.append(font.name)
            missing -= found
        if not missing:
            break
    return tuple(names), frozenset(missing)


@cache
def candidates() -> tuple[FontEntry, ...]:
    """Return the installed fonts of regular weight, with those that came after matplotlib made its list."""
    known = {font.fname for font in fontManager.ttflist}
    for file in findSystemFonts():
        if file not in known:
            try:
                fontManager.addfont(file)
            except (OSError, RuntimeError):
                # A damaged font, or one of a kind that matplotlib does not read.
                continue
    fonts = [font for font in fontManager.ttflist if not font.name.startswith(_NEVER) and font.style == "normal"]
    return tuple(sorted(fonts, key=lambda font: (_rank(font.name), font.name, abs(_weight(font) - 400))))


class Numbers:
    """Numbers in brackets instead of characters that no font has, and what they stand for.

    Args:
        missing: The characters, at least one.
    """

    def __init__(self, missing: frozenset[str]) -> None:
        some = "[" + re.escape("".join(sorted(missing))) + "]+"
        self._pattern = re.compile(rf"{some}(?: {some})*")
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> str:
        """Return a text with a number instead of each run of missing characters."""
        return self._pattern.sub(lambda run: f"[{self._numbers.setdefault(run[0], len(self._numbers) + 1)}]", text)

    def legend(self, width: int, most: int) -> list[str]:
        """Return lines that explain the numbers, at most `most` lines of `width` characters.

        Args:
            width: Characters per line.
            most: Number of lines.

        Returns:
            The lines.
        """
        names = [f"[{number}] {_codes(run)}" for run, number in self._numbers.items()]
        text = f"No installed font has these characters: {', '.join(names)}"
        return textwrap.wrap(text, width, max_lines=most, placeholder=" …")


def _codes(run: str) -> str:
    return " ".join(f"U+{ord(each):04X}" for each in run if each != " ")


def _rank(name: str) -> int:
    return next((place for place, start in enumerate(_FIRST) if name.startswith(start)), len(_FIRST))


def _weight(font: FontEntry) -> int:
    return font.weight if isinstance(font.weight, int) else 400


@cache
def _default() -> str:
    return str(next(font.fname for font in fontManager.ttflist if font.name == DEFAULT))


@cache
def _glyphs(file: str) -> frozenset[int]:
    try:
        return frozenset(get_font(file).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()
