"""The command line: one file per verb. Nothing heavy is imported before a verb runs."""

from torchcaps.cli._main import main

__all__ = ["main"]
