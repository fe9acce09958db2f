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
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Refuse connections to other machines, also to pip and npm."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("npm_config_offline", "true")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    open_url = urllib.request.urlopen

    def open_local(request: urllib.request.Request, *args, **options):
        if request.host.partition(":")[0] != "127.0.0.1":
            raise OSError("no network in tests")
        return open_url(request, *args, **options)

    monkeypatch.setattr(urllib.request, "urlopen", open_local)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of TORCHCAPS_DATA, with an empty cache beside it."""
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "own"))
    monkeypatch.setattr("torchcaps.data._sources._cache", lambda: tmp_path / "cache")
    (tmp_path / "own").mkdir()
    return tmp_path / "own"
