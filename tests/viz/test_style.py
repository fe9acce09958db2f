from __future__ import annotations

import warnings

import pytest
from matplotlib.colors import to_rgb

from torchcaps.viz import _style, inline_svg


def luminance(colour: str) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("name", ["INK", "MUTED", "ACCENT", "WARM"])
def test_text_is_readable_on_white(name: str) -> None:
    assert 1.05 / (luminance(getattr(_style, name)) + 0.05) >= 4.4


def test_diverging_map_is_white_at_centre() -> None:
    assert _style.DIVERGING(0.5)[:3] == pytest.approx((1, 1, 1), abs=0.02)


def test_figures_are_white_and_sharp() -> None:
    figure = _style.new_figure(2, 1)
    assert figure.get_dpi() >= 150
    assert figure.get_facecolor() == (1, 1, 1, 1)


def test_long_names_are_cut() -> None:
    assert _style.shorten("abcdefghij", 5) == "abcd…"
    assert _style.shorten("a$b") == r"a\$b"


def test_names_in_any_script_give_no_warning(tmp_path):
    figure = _style.new_figure(2, 1)
    figure.add_subplot().set_title("鍵 𒀀")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(tmp_path / "x.png")
    element = inline_svg(figure, "x", 'A "title"')
    assert "鍵 𒀀" in element
    assert element.startswith('<svg role="img" aria-label="A &quot;title&quot;"')
