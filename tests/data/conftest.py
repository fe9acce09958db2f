import os
from pathlib import Path

import pytest


@pytest.fixture
def real_data() -> Path:
    folder = os.environ.get("TORCHCAPS_DATA")
    if not folder:
        pytest.skip("needs the real data sets: set TORCHCAPS_DATA to the folder that holds them")
    return Path(folder)
