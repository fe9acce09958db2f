"""The blocks of Python of the docs: every block is run, or named below with the reason why not.

The blocks of a page are run in its order, in one process, in a folder with what the pages name. Pages that train
are run with `-m slow`, and their trainings are made short.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fresh import run_fresh

from .conftest import TINY
from .test_pages import PAGES, TUTORIALS, blocks, name

# Blocks that cannot run here, by a piece of their text.
NOT_RUN = {
    "InMemoryDataset.from_hub(datasets": "needs the network; tests/data/test__hub.py",
    "init_device_mesh": "needs several GPUs; tests/nn/shard_cases.py has processes on the CPU",
}
# What a page says that its reader has, by a piece of the block that needs it.
GIVEN = {
    '"val": val': "train, val, test = (tc.load_data('digits', split) for split in ('train', 'val', 'test'))",
    "capsules = model(images)  ": "images = torch.rand(2, 1, 28, 28)",
    'path="my/shards"': "tc.data.make_shards('photos', 'my/shards')",
    "http://127.0.0.1:8018": """
import threading
from torchcaps.serving import Classifier, address_of, create_server_app, listen, make_server
network = tc.create_model("capsnet_small", pretrained="mnist_dynamic")
listener = listen("127.0.0.1", 0)
server = make_server(create_server_app(Classifier("mnist", network, tuple("0123456789"))))
threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
""",
}
# Trainings on few images, of which the last of repeated values holds, and data that is bundled.
SHORTER = [
    (r'(load_recipe|choose_recipe)\(("\w+")(?:, \[(.*?)\])?\)', r"\1(\2, [*(\3,), *TINY])"),
    (r"trials=30", "trials=2"),
    (r"max_epochs=5", "max_epochs=1, limit_train_batches=4, limit_val_batches=4, accelerator='cpu'"),
    (r'load_data\("mnist"', 'load_data("digits"'),
    (r'"http://127.0.0.1:8018/predict"', 'address_of(listener, "127.0.0.1") + "predict"'),
    (r'json=\{"files": files\}', 'json={"files": files}, timeout=300'),
]
TRAINING = re.compile(r"\b(fit|repeat|sweep)\(")

CODE = {
    page: [code for code in blocks(page, "python") if not any(text in code for text in NOT_RUN)]
    for page in PAGES
    if page not in TUTORIALS
}
CODE = {page: found for page, found in CODE.items() if found}
LONG = [page for page, found in CODE.items() if any(TRAINING.search(code) for code in found)]


def runnable(code: str) -> str:
    """Return a block after what its page says that the reader has, with short trainings."""
    before = [given for text, given in GIVEN.items() if text in code]
    for pattern, replacement in SHORTER:
        code = re.sub(pattern, replacement, code).replace("(,)", "()")
    return "\n".join([*before, code])


def run_page(page: Path, place: Path) -> None:
    # Pages show the imports once, in their first block.
    code = ["import torch", "import torchcaps as tc", f"TINY = {TINY}", *map(runnable, CODE[page])]
    done = run_fresh("\n".join(code), place)
    assert done.returncode == 0, done.stderr[-2000:]


def test_reasons_are_needed() -> None:
    every = [code for page in PAGES for code in blocks(page, "python")]
    for text in (*NOT_RUN, *GIVEN):
        assert any(text in code for code in every), text
    for pattern, _ in SHORTER:
        assert any(re.search(pattern, code) for code in every), pattern


@pytest.mark.parametrize("page", [page for page in CODE if page not in LONG], ids=name)
def test_blocks_run(page: Path, place: Path) -> None:
    run_page(page, place)


@pytest.mark.slow
@pytest.mark.parametrize("page", LONG, ids=name)
def test_blocks_that_train_run(page: Path, place: Path) -> None:
    run_page(page, place)
