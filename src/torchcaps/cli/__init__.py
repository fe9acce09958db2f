"""The command line: one file per command. Torch is imported only when a command runs."""

from torchcaps.cli._main import main

__all__ = ["main"]
