import os
import urllib.request
from pathlib import Path

import pytest


@pytest.fixture
def real_data() -> Path:
    folder = os.environ.get("TORCHCAPS_DATA")
    if not folder:
        pytest.skip("needs the real data sets: set TORCHCAPS_DATA to the folder that holds them")
    return Path(folder)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test asks anyone but this machine."""
    ask = urllib.request.urlopen

    def ask_here(request: urllib.request.Request, *args, **options):
        if request.host.partition(":")[0] != "127.0.0.1":
            raise OSError("no network in tests")
        return ask(request, *args, **options)

    monkeypatch.setattr(urllib.request, "urlopen", ask_here)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that TORCHCAPS_DATA names, with an empty cache beside it."""
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "own"))
    monkeypatch.setattr("torchcaps.data._files._cache", lambda: tmp_path / "cache")
    (tmp_path / "own").mkdir()
    return tmp_path / "own"
