"""TOML files by path, or by the name of one that is bundled with the package (recipes and reproductions)."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from torchcaps._files import read_bounded
from torchcaps._registry import nearest
from torchcaps.config.typed_toml import MAX_BYTES, parse_toml
from torchcaps.errors import ConfigError, UnknownNameError


def bundled_names(kind: str) -> list[str]:
    """Return the names of the bundled files of a kind.

    Args:
        kind: "recipe" or "reproduction".

    Returns:
        The names in alphabetical order.

    Example:
        >>> "digits" in bundled_names("recipe")
        True
    """
    return sorted(Path(entry.name).stem for entry in _folder(kind).iterdir() if entry.name.endswith(".toml"))


def read_toml(kind: str, source: str | Path) -> dict[str, Any]:
    """Read a TOML file, or a bundled one by name.

    Args:
        kind: "recipe" or "reproduction".
        source: A path that ends in .toml, or a name.

    Returns:
        The table.

    Raises:
        ConfigError: If the file cannot be read or is not TOML.
        UnknownNameError: If no bundled file has the name.

    Example:
        >>> read_toml("recipe", "digits")["model"]["name"]
        'capsnet_small'
    """
    path, origin = Path(source), f"{kind} '{source}'"
    if path.suffix == ".toml":
        try:
            return parse_toml(read_bounded(path, MAX_BYTES), origin)
        except OSError as error:
            raise ConfigError(f"{kind}: expected a TOML file, got '{source}' ({error.strerror or error})") from None
    names = bundled_names(kind)
    if str(source) not in names:
        raise UnknownNameError(f"unknown {kind} '{source}'{nearest(str(source), names)}")
    return parse_toml((_folder(kind) / f"{source}.toml").read_bytes(), origin)


def _folder(kind: str) -> Any:
    return resources.files("torchcaps") / f"{kind}s"
