from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.font_manager import fontManager, get_font

from torchcaps.viz import _fonts, _style, confusion, inline_svg

KEY, JAPAN = "\u9375", "\u65e5\u672c"


@pytest.fixture
def no_fonts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without any font but the default one."""
    _fonts.fonts_for.cache_clear()
    monkeypatch.setattr(_fonts, "candidates", tuple)
    yield
    _fonts.fonts_for.cache_clear()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are drawn into pixels."""
    texts: list[str] = []
    real = RendererAgg.draw_text

    def record(self: Any, gc: Any, x: Any, y: Any, s: str, *rest: Any, **named: Any) -> None:
        texts.append(s)
        real(self, gc, x, y, s, *rest, **named)

    monkeypatch.setattr(RendererAgg, "draw_text", record)
    return texts


def two_names() -> Any:
    return confusion(np.eye(3, dtype=np.int64), [KEY, "arrow", f"{JAPAN} 2"])


@pytest.mark.usefixtures("no_fonts")
def test_names_without_a_font_become_numbers_with_a_legend(drawn: list[str], tmp_path: Any) -> None:
    figure = two_names()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(tmp_path / "x.png")
    assert {"[1]", "arrow", "[2] 2"} <= set(drawn)
    assert "No installed font has these characters: [1] U+9375, [2] U+65E5 U+672C" in " ".join(drawn)
    assert not set("".join(drawn)) & set(KEY + JAPAN)
    # The figure keeps its names: a page that is written afterwards has them.
    element = inline_svg(figure, "x", "x")
    assert KEY in element
    assert "U+9375" not in element


@pytest.mark.usefixtures("no_fonts")
def test_legend_covers_no_text(drawn: list[str]) -> None:
    figure = two_names()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    lowest = figure.axes[0].get_tightbbox().y0
    assert lowest > 2 * 9 / 72 * figure.dpi * 0.9
    assert "[1]" in drawn
    assert figure.texts == []


@pytest.mark.usefixtures("no_fonts")
def test_legend_of_many_names_is_cut() -> None:
    names = [chr(0x4E00 + index) for index in range(300)]
    numbers = _fonts.Numbers(frozenset(names))
    assert numbers(" ".join(names[:2])) == "[1]"
    assert numbers(f"{names[0]} a {names[1]}") == "[2] a [3]"
    for name in names:
        numbers(name)
    lines = numbers.legend(60, 4)
    assert len(lines) == 4
    assert lines[-1].endswith("…")


def test_font_with_the_characters_is_taken(drawn: list[str], tmp_path: Any) -> None:
    default = set(get_font(_fonts._default()).get_charmap())
    stix = next(font for font in fontManager.ttflist if font.name == "STIXGeneral")
    # The private letters of STIX are in no other font of matplotlib.
    letter = chr(min(code for code in get_font(stix.fname).get_charmap() if code > 0x2000 and code not in default))
    fonts, missing = _fonts.fonts_for(frozenset({letter, "a"}))
    assert fonts
    assert not missing
    figure = _style.new_figure(3, 1)
    figure.add_subplot().set_title(letter)
    figure.savefig(tmp_path / "x.png")
    assert letter in drawn


def test_boxes_are_no_font() -> None:
    assert not any(font.name.startswith("Last Resort") for font in _fonts.candidates())
