"""Small valid inputs of every reader, which the fuzzer damages."""

from __future__ import annotations

import base64
import gzip
import inspect
import io
import json
import pickle
import struct
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from formats import (  # noqa: E402
    array_file,
    cifar_binary,
    idx,
    jpeg2000,
    mat,
    norb,
    npy,
    npz,
    picture,
    pixels,
    python2_batch,
    signal_file,
    tar_of,
    tiled_tiff,
    zip_of,
)
from torchcaps.data.readers.image_files import FORMATS  # noqa: E402
from torchcaps.diagnostics.history import to_csv  # noqa: E402
from torchcaps.experiments import Comparison, RouterMetrics, RouterRun, summarize_router  # noqa: E402
from torchcaps.experiments.claims import _dump, _own_record  # noqa: E402
from torchcaps.models import MODELS, model_rank  # noqa: E402
from torchcaps.models._create import DEFAULT_SHAPES  # noqa: E402
from torchcaps.train import load_recipe  # noqa: E402
from torchcaps.train._tables import metrics_text  # noqa: E402
from torchcaps.train.checkpoint import KEY, RunState, run_entry  # noqa: E402

# A small network, without routing: building it takes the least time.
RECIPE = load_recipe("digits", ["model.name=cnn_small", "model.options={}"])
RECORD = {
    "status": "finished",
    "seed": 0,
    "image_shape": [1, 28, 28],
    "num_classes": 10,
    "num_labels": 1,
    "class_names": [str(number) for number in range(10)],
    "images": {"train": 4500, "val": 500, "test": 500},
    "parameters": 1,
    "versions": {"torch": "2"},
    "commit": "",
    "machine": {"cores": 2},
    "resumed": [],
    "extended": [{"from": 1, "to": 2, "at": ""}],
    "seconds": 1.0,
    "results": {"test_accuracy": 0.5, "test_errors": 1, "test_images": 2, "best": {"epoch": 1}, "final": {"epoch": 1}},
}
ROWS = [{"epoch": 1.0, "step": 2.0, "train_loss": 0.5, "seconds": 1.0}]
DIAGNOSTICS = [(1, "head", 3, "entropy", 0.5), (1, "head", None, "dead", 0.0)]
INDEX = {
    "class_names": ["a", "b"],
    "image_shape": [3, 4, 4],
    "splits": {"val": [{"file": "a.tar", "count": 2, "bytes": 9}]},
}


@cache
def seeds() -> dict[str, list[bytes]]:
    """Return small valid inputs by the name of their reader."""
    return {**_data_sets(), **_images(), **_runs(), "request": _requests(), "prediction": _predictions()}


def _data_sets() -> dict[str, list[bytes]]:
    members = {"a/b": bytes(range(256)), "c": b"some words", "d/e": b"more"}
    svhn = {"X": pixels(32, 32, 3, 2), "y": np.array([[10], [3]], np.uint8)}
    affnist = {
        "affNISTdata": {
            "name": "words",
            "image": pixels(1600, 2),
            "label_int": np.array([[3.0, 4.0]]),
            "one": np.zeros((10, 2)),
        }
    }
    shard = {"0.cls": b"0", "0.png": picture(pixels(4, 4, 3)), "1.cls": b"1", "1.png": picture(pixels(4, 4, 3))}
    return {
        "idx": [idx(pixels(3, 4, 5)), gzip.compress(idx(pixels(3, 4, 5)))],
        "norb": [norb(np.arange(8, dtype="<i4").reshape(2, 4)), gzip.compress(norb(np.ones((5, 4), "<i4")))],
        "cifar_binary": [cifar_binary(pixels(2, 3, 32, 32), [1, 2])],
        "cifar_python": [
            python2_batch(pixels(2, 3, 32, 32), {"labels": [1, 2]}),
            *(pickle.dumps({"data": pixels(2, 3072), "labels": [1, 2]}, protocol) for protocol in (0, 2, 4)),
        ],
        "svhn": [mat(svhn), mat(svhn, packed=False), mat(svhn, order=">")],
        "affnist": [mat(affnist), mat(affnist, packed=False)],
        "labelled_lines": [b"NUM:dist How far is it ?\nLOC:other Where ?\n", b"0 a na\xc3\xafve one\n0 \xe9t\xe9 .\n"],
        "word_vectors": [b"the 0.1 -2 3e-1\nother 1 2 3\nof 1 2 3\n", gzip.compress(b"of 1 2 3\n")],
        "npz": [npz(pixels(3, 4, 5))],
        "npy_file": [npy(pixels(3, 4, 5)), npy(np.ones((2, 3), np.float32))],
        "npy": [zipfile.ZipFile(io.BytesIO(npz(pixels(3, 4, 5)))).read("arr_0.npy")],
        "ts": [signal_file(), gzip.compress(signal_file())],
        "ts_set": [signal_file()],
        "npz_set": [array_file(pixels(9, 4, 5)), array_file(np.ones((9, 2, 5), np.float32))],
        "groups": [
            b"file,patient\ncat/0.png,a\ncat/1.png,b\n",
            b"\xef\xbb\xbfpatient,path\r\na,0.png\r\nb,1.png\r\n",
        ],
        "archive": [zip_of(members), tar_of(members), gzip.decompress(tar_of(members))],
        "shard": [gzip.decompress(tar_of(shard))],
        "shard_index": [json.dumps(INDEX).encode()],
    }


def _images() -> dict[str, list[bytes]]:
    modes = ("RGB", "L", "P", "RGBA", "CMYK", "1", "I;16")
    return {
        "image": [*written_images(FORMATS, modes), tiled_tiff(9, 7, 16), jpeg2000(64, 0x44)],
        "unlisted_image": unlisted_images(),
        "folder": [picture(pixels(9, 7, 3))],
    }


def written_images(kinds: Iterable[str], modes: Iterable[str]) -> list[bytes]:
    """Return an image in each of these formats and modes that Pillow writes."""
    found = []
    for kind in kinds:
        for mode in modes:
            content = io.BytesIO()
            # Not every format has every mode, and some need a program or library that is missing.
            try:
                Image.fromarray(pixels(9, 7, 3)).convert(mode).save(content, kind)
            except Exception:
                continue
            found.append(content.getvalue())
    return found


def unlisted_images() -> list[bytes]:
    """Return images in the formats that must not be opened, also in those that Pillow only reads."""
    Image.init()
    fits = b"".join(f"{key:8}= {value:>20}".encode().ljust(80) for key, value in (("SIMPLE", "T"), ("BITPIX", 8)))
    only_read = [
        b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 9, 7, 8, 3) + bytes(300),  # PSD
        fits.ljust(5760),
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504),  # FPX, MIC
        b"gimp xcf file\0" + bytes(64),
        b"\x31\xbe\0\0" + bytes(128),
        b"\xd7\xcd\xc6\x9a" + bytes(64),  # WMF
        b"\x89HDF\r\n\x1a\n" + bytes(64),
        b"GRIB" + bytes(60),
        b"IIRO" + bytes(60),
        b"P7 332\n" + bytes(100),  # XVThumb
        b"/* XPM */\nstatic char *x[] = {\n" + bytes(40),
        b"DDS " + struct.pack("<I", 124) + bytes(124),
        b"\x11\xaf" + bytes(140),  # FLI
        b"qoif" + struct.pack(">IIBB", 7, 9, 3, 0) + bytes(30),
    ]
    return [*only_read, *written_images(sorted(set(Image.SAVE) - {*FORMATS, "DIB", "MPO"}), ("RGB", "1"))]


def _runs() -> dict[str, list[bytes]]:
    entry = run_entry(RECIPE, RunState(ROWS, DIAGNOSTICS, {"epoch": 1.0}, 1.0), torch.zeros(3), 1, RECORD)
    checkpoint = io.BytesIO()
    torch.save({"state_dict": {"a": torch.zeros(2)}, "epoch": 1, KEY: entry}, checkpoint)
    recipes = [load_recipe(name).to_toml().encode() for name in ("digits", "folder", "smallnorb")]
    evaluation = {
        "data": "digits",
        "split": "test",
        "count": 2,
        "accuracy": 0.5,
        "confusion": [[1, 0], [1, 0]],
        "seconds": 0.1,
        "weights_sha256": None,
    }
    linear = save({"weight": torch.rand(2, 3), "bias": torch.rand(2)})
    tensors = {"activations": torch.rand(2, 2), "labels": torch.tensor([0, 1]), "confusion": torch.eye(2).long()}
    return {
        "recipe": recipes,
        "run_recipe": [RECIPE.to_toml().encode()],
        "record": [json.dumps(RECORD, indent=2).encode()],
        "metrics": [metrics_text(ROWS).encode()],
        "diagnostics": [to_csv(DIAGNOSTICS).encode()],
        "evaluation": [json.dumps(evaluation).encode()],
        "predictions": [save(tensors)],
        "weights": [linear],
        "backbone": [linear],
        "description": [_description("cnn_small")],
        "other_description": [_description(name) for name in MODELS if name != "cnn_small"],
        "claim": [_dump(_own_record()).encode()],
        "comparison": [json.dumps(asdict(_comparison())).encode()],
        "checkpoint": [checkpoint.getvalue()],
        "objects": [_objects(checkpoint.getvalue())],
    }


def _objects(checkpoint: bytes) -> bytes:
    """Return everything in a checkpoint that is not a tensor."""
    with zipfile.ZipFile(io.BytesIO(checkpoint)) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        return archive.read(name)


def _comparison() -> Comparison:
    runs = [RouterRun(seed, "finished", RouterMetrics(0.9, 0.8, 1.0, 2.0, 100)) for seed in (0, 1)]
    rows = [summarize_router("dynamic", {"iters": 3}, runs)]
    return Comparison(
        {"name": "digits"}, "finished", "2026-01-01", "abc", {"torch": "2"}, {"cores": 2}, [0, 1], [], rows
    )


def _description(name: str) -> bytes:
    """Return the description of a model with the defaults of its options."""
    parameters = inspect.signature(MODELS[name]).parameters.values()
    options = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    table = {"name": name, "options": options, "image_shape": DEFAULT_SHAPES[model_rank(name)]}
    classes = [str(number) for number in range(10)]
    return json.dumps({**table, "class_names": classes, "num_labels": 1, "temperature": 1.5}).encode()


def _predictions() -> list[bytes]:
    """Requests of the prediction server, as those of the playground."""
    file = picture(pixels(9, 7, 3))
    head = "POST /predict?invert=true\r\nhost: localhost\r\ncontent-type: {}\r\n\r\n"
    images = [[[[0.5] * 28] * 28]]
    bodies = [{"images": images}, {"files": [base64.b64encode(file).decode()], "invert": True}]
    return [
        head.format("image/png").encode() + file,
        *(head.format("application/json").encode() + json.dumps(body).encode() for body in bodies),
        *(f"GET {path}\r\nhost: localhost\r\n\r\n".encode() for path in ("/model", "/health", "/metrics")),
    ]


def _requests() -> list[bytes]:
    """Requests of the playground: method, path and headers, an empty line, the body."""
    sample = {"source": {"sample": 3}}
    pose = {"label": 3, "pose": [0.1] * 16}
    drawing = {"source": {"drawing": {"width": 2, "height": 2, "pixels": "/wD/AA=="}}}
    part = {"kind": "triangle", "x": 0, "y": 0, "angle": 0, "size": 1}
    bodies = {
        "draw/predict": [sample, drawing],
        "draw/samples": [{"count": 2}],
        "pose/decode": [pose],
        "pose/grid": [pose],
        "pose/capsule": [sample],
        "routing/trace": [{**sample, "routers": ["own", "em"]}],
        "toy/scene": [{"name": "both"}],
        "toy/route": [{"parts": [part], "upside_down": True}],
        "clusters/cluster": [{"points": [[0, 1], [1, 0]], "clusters": 2, "iters": 4, "covariance": "full"}],
    }
    head = "POST /api/{}\r\nhost: localhost\r\ncontent-type: application/json\r\n\r\n{}"
    posts = [head.format(path, json.dumps(body)).encode() for path, many in bodies.items() for body in many]
    return [*posts, b"GET /\r\nhost: localhost\r\n\r\n", b"GET /api/info\r\nhost: 127.0.0.1:8017\r\n\r\n"]
