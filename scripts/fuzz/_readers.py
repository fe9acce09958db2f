"""Every reader of input by others, as a function of a file; success and an error of torchcaps are the only results."""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from _seeds import INDEX, RECIPE, RECORD
from safetensors.torch import save
from torch import nn

from formats import picture, pixels, zip_of
from torchcaps.data import DATASETS, InMemoryDataset, load_shards
from torchcaps.data._groups import groups_of_files
from torchcaps.data._sources import DataFile
from torchcaps.data.affnist import check_affnist
from torchcaps.data.kmnist import check_npz
from torchcaps.data.readers.archives import unpack
from torchcaps.data.readers.array_files import read_npy
from torchcaps.data.readers.cifar import read_binary, read_python
from torchcaps.data.readers.idx import read_idx
from torchcaps.data.readers.image_files import probe_image, read_image
from torchcaps.data.readers.labelled_lines import read_labelled_lines
from torchcaps.data.readers.norb_matrix import read_matrix
from torchcaps.data.readers.ts_files import read_ts
from torchcaps.data.readers.word_vectors import read_word_vectors
from torchcaps.data.svhn import check_svhn
from torchcaps.evaluation.storage import PREDICTIONS, SUMMARY, load_evaluation
from torchcaps.experiments import Claims, Comparison
from torchcaps.experiments._json import read_cache, read_json
from torchcaps.models import create_model, load_described, load_weights, save_weights
from torchcaps.models._backbones import load_backbone
from torchcaps.models._weights import KEY
from torchcaps.train import Run, load_recipe
from torchcaps.train.checkpoint import read_checkpoint

_FILE = DataFile("train-images.imgs", max_bytes=50_000_000)


def _image(path: Path) -> None:
    probe_image(path)
    read_image(path, (3, 16, 16))


def _unpack(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        unpack(path, {"a/b": ("b", 10_000), "c": ("c", 10_000)}, Path(place) / "target")


def _inside_npz(path: Path) -> None:
    """Damage inside the zip file, which its checksum would otherwise reveal."""
    path.write_bytes(zip_of({"arr_0.npy": path.read_bytes()}))
    check_npz(path, _FILE)


def _inside_checkpoint(path: Path) -> None:
    """Damaged objects inside the zip file, which its checksum would otherwise reveal."""
    from _seeds import seeds

    with zipfile.ZipFile(io.BytesIO(seeds()["checkpoint"][0])) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path.with_suffix(".ckpt"), "w") as archive:
        for name, content in members.items():
            archive.writestr(name, path.read_bytes() if name.endswith("/data.pkl") else content)
    read_checkpoint(path.with_suffix(".ckpt"))


def _folder(path: Path) -> None:
    """One damaged image among valid ones."""
    place = path.parent / "folder"
    for name in ("cat", "dog"):
        for number in range(3):
            file = place / name / f"{number}.png"
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(picture(pixels(4, 4)))
    path.replace(place / "cat" / "0.png")
    DATASETS["folder"].load("train+val", path=str(place))


def _shard(path: Path) -> None:
    place = path.parent / "shards"
    place.mkdir(exist_ok=True)
    entry = {"file": "a.tar", "count": 2, "bytes": path.stat().st_size}
    (place / "index.json").write_text(json.dumps({**INDEX, "splits": {"train": [entry]}}))
    path.replace(place / "a.tar")
    load_shards("train", place).batch([0, 1])


def _shard_index(path: Path) -> None:
    place = path.parent / "indices"
    place.mkdir(exist_ok=True)
    path.replace(place / "index.json")
    load_shards("train", place)


def _arrays(suffix: str) -> Callable[[Path], None]:
    """A file of signals or images as a data set."""

    def read(path: Path) -> None:
        DATASETS["arrays"].load("train", path=path.replace(path.with_suffix(suffix)))

    return read


def _groups(path: Path) -> None:
    """A table that names the patient of each image."""
    files = [path.parent / "cat" / name for name in ("0.png", "1.png")]
    groups_of_files(f"{path}:patient", path.parent, files, ["cat"])


_STATE = {name: tensor.detach().clone() for name, tensor in create_model("cnn_small").state_dict().items()}


def _description(path: Path) -> None:
    """The description of a model in the metadata of weights, which are those of `cnn_small`."""
    path.write_bytes(save(_STATE, {KEY: path.read_bytes().decode("utf-8", "replace")}))
    load_described(path)


def _claim(path: Path) -> None:
    path.replace(path.parent / "item.0")
    Claims(path.parent).state("item")


def _result(path: Path) -> None:
    """The result of a comparison, and values that can be computed again."""
    read_cache(path)
    read_json(Comparison, path)


def _recipe(path: Path) -> None:
    load_recipe(path.replace(path.with_suffix(".toml")))


def _in_run(name: str, use: Callable[[Run], object]) -> Callable[[Path], None]:
    """A reader of a run folder in which one file is damaged."""

    def read(path: Path) -> None:
        place = path.parent / f"run-{name}"
        if not place.exists():
            place.mkdir()
            (place / "recipe.toml").write_text(RECIPE.to_toml())
            (place / "run.json").write_text(json.dumps(RECORD))
            save_weights(create_model(RECIPE.model.name), place / "weights.safetensors")
        path.replace(place / name)
        use(Run.open(place))

    return read


def _use_record(run: Run) -> None:
    record = run.record
    _ = run.status, run.results
    " ".join(record.get("class_names", []))
    run.load_model()


_IMAGES, _LABELS = torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)
_DATA = InMemoryDataset("digits", "test", _IMAGES, _LABELS, ("a", "b"), "made")


def _predictions(name: str) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        from _seeds import seeds

        place = path.parent / f"evaluation-{name}"
        if not place.exists():
            place.mkdir()
            (place / SUMMARY).write_bytes(seeds()["evaluation"][0])
            (place / PREDICTIONS).write_bytes(seeds()["predictions"][0])
        path.replace(place / name)
        found = load_evaluation(place, _DATA)
        if found is not None:
            _ = found.summary(), found.headline

    return read


@cache
def _playground() -> tuple[asyncio.AbstractEventLoop, Any]:
    from torchcaps.playground import create_app, open_network

    torch.set_num_threads(1)
    return asyncio.new_event_loop(), create_app(open_network())


# An event loop keeps no reference to a task.
_TASKS: list[asyncio.Task[None]] = []


@cache
def _prediction_server() -> tuple[asyncio.AbstractEventLoop, Any]:
    from torchcaps.serving import Classifier, create_server_app

    torch.set_num_threads(1)
    app = create_server_app(Classifier("cnn_small", create_model("cnn_small").eval(), "0123456789"))
    loop, started = asyncio.new_event_loop(), asyncio.Event()

    async def run() -> None:
        async with app.router.lifespan_context(app):
            started.set()
            await asyncio.Event().wait()

    # The task that makes batches runs as long as the server.
    _TASKS.append(loop.create_task(run()))
    loop.run_until_complete(started.wait())
    return loop, app


def _request(path: Path, server: Callable[[], tuple[asyncio.AbstractEventLoop, Any]] = _playground) -> None:
    """One request to a server; a status of 5xx or an incomplete response is an error of the server."""
    head, _, body = path.read_bytes().partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    method, _, target = first.partition(b" ")
    target, _, query = target.partition(b"?")
    headers = [(key.strip().lower(), value.strip()) for key, _, value in (line.partition(b":") for line in lines)]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method.decode("latin-1").upper(),
        "scheme": "http",
        "path": target.decode("utf-8", "replace"),
        "raw_path": target,
        "query_string": query,
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8017),
        "root_path": "",
    }
    received = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return received.pop() if received else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    loop, app = server()
    loop.run_until_complete(app(scope, receive, send))
    if not sent or sent[0]["status"] >= 500 or sent[-1].get("more_body", False):
        raise AssertionError(f"response {sent[:1]}")


READERS: dict[str, Callable[[Path], object]] = {
    "idx": lambda path: read_idx(path, 3),
    "norb": lambda path: read_matrix(path, "<i4", 2),
    "cifar_binary": lambda path: read_binary(path, ("labels",)),
    "cifar_python": lambda path: read_python(path, ("labels",)),
    "svhn": lambda path: check_svhn(path, _FILE),
    "affnist": lambda path: check_affnist(path, _FILE),
    "labelled_lines": lambda path: read_labelled_lines(path, {"NUM": 0, "LOC": 1, "0": 0}, 10_000),
    "word_vectors": lambda path: read_word_vectors(path, {"the", "of"}, 3, 10_000),
    "npz": lambda path: check_npz(path, _FILE),
    "npy": _inside_npz,
    "npy_file": read_npy,
    "ts": read_ts,
    "ts_set": _arrays(".ts"),
    "npz_set": _arrays(".npz"),
    "archive": _unpack,
    "shard": _shard,
    "shard_index": _shard_index,
    "image": _image,
    "unlisted_image": _image,
    "folder": _folder,
    "groups": _groups,
    "recipe": _recipe,
    "record": _in_run("run.json", _use_record),
    "run_recipe": _in_run("recipe.toml", _use_record),
    "metrics": _in_run("metrics.csv", Run.metrics),
    "diagnostics": _in_run("diagnostics.csv", Run.diagnostics),
    "evaluation": _predictions(SUMMARY),
    "predictions": _predictions(PREDICTIONS),
    "weights": lambda path: load_weights(nn.Linear(3, 2), path),
    "backbone": lambda path: load_backbone(nn.Linear(3, 2), path),
    "description": _description,
    "other_description": _description,
    "checkpoint": read_checkpoint,
    "objects": _inside_checkpoint,
    "claim": _claim,
    "comparison": _result,
    "request": _request,
    "prediction": lambda path: _request(path, _prediction_server),
}
