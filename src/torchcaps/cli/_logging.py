"""Log messages of the package on stderr, from a level that the user chooses."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from torchcaps.cli._verb import LEVELS
from torchcaps.errors import ConfigError

VARIABLE = "TORCHCAPS_LOG"


@contextmanager
def log_to_stderr(level: str | None) -> Iterator[None]:
    """Write the messages of torchcaps to stderr while the context lasts.

    Args:
        level: Lowest level of the messages. Default: that of TORCHCAPS_LOG, or warning.

    Yields:
        Nothing.

    Raises:
        ConfigError: If TORCHCAPS_LOG has no known level.
    """
    chosen = (level or os.environ.get(VARIABLE) or "warning").lower()
    if chosen not in LEVELS:
        raise ConfigError(f"{VARIABLE}: expected one of {', '.join(LEVELS)}, got '{chosen}'")
    logger = logging.getLogger("torchcaps")
    before = logger.level
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(chosen.upper())
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
