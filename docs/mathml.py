"""Formulas as MathML, which browsers draw themselves: the pages need nothing from other hosts."""

from __future__ import annotations

import re
from typing import Any
from unicodedata import normalize

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def to_mathml(formula: str, *, block: bool) -> str:
    r"""Return a formula of LaTeX as MathML.

    Args:
        formula: The formula.
        block: Whether it is a paragraph of its own.

    Returns:
        The element.

    Example:
        >>> to_mathml(r"\hat u_i", block=False).startswith("<math")
        True
    """
    # docutils sets the index of an accented letter below it; one character has no such place.
    formula = re.sub(r"\\hat *(?:{(\w)}|(\w))", lambda hat: normalize("NFC", f"{hat[1] or hat[2]}\u0302"), formula)
    return tex2mathml(formula, as_block=block).replace("&ApplyFunction;", "\u2061")


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(to_mathml(node.astext(), block=False))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{to_mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    """Register the renderer; Sphinx calls this function."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
