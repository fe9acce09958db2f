"""The user's cache folder, where downloads are stored."""

from __future__ import annotations

from pathlib import Path

from torchcaps._extras import explain_missing


def user_cache() -> Path:
    """Return the cache folder of this user on this platform.

    Returns:
        The folder, which need not exist.

    Raises:
        MissingPackageError: If platformdirs is not installed.

    Example:
        >>> user_cache().name
        'torchcaps'
    """
    with explain_missing():
        from platformdirs import user_cache_path

    return user_cache_path("torchcaps")
