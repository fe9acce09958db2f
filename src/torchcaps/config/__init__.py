"""Typed configuration: TOML tables as frozen dataclasses, and the TOML files bundled with the package."""

from torchcaps.config.bundled import bundled_names, read_toml
from torchcaps.config.typed_toml import dump, from_table, override, parse_toml, parse_value, raise_problems

__all__ = [
    "bundled_names",
    "dump",
    "from_table",
    "override",
    "parse_toml",
    "parse_value",
    "raise_problems",
    "read_toml",
]
