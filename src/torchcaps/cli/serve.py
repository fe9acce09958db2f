"""`torchcaps serve`: a web server that classifies images."""

from __future__ import annotations

import os
import stat
import sys
import warnings
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.cli._opened import open_network
from torchcaps.cli._verb import Verb
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.serving import ServeLimits

PORT = 8018
KEY_VARIABLE = "TORCHCAPS_API_KEY"
MIN_KEY, MAX_KEY = 16, 4096


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="folder of a run, its weights.safetensors, or an ONNX file of `torchcaps export`; or give --pretrained",
    )
    parser.add_argument("--pretrained", metavar="NAME", help="bundled weights (`torchcaps models` lists them)")
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="where to listen (default: this machine only)")
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help=f"default: {PORT}; 0 selects a free one")
    parser.add_argument(
        "--api-key-file",
        metavar="FILE",
        help=f"file with the key that requests must carry as `Authorization: Bearer KEY` (or the environment variable "
        f"{KEY_VARIABLE})",
    )
    parser.add_argument(
        "--max-batch", type=int, default=32, metavar="N", help="images that are computed together (default: 32)"
    )
    parser.add_argument(
        "--max-wait",
        type=float,
        default=5.0,
        metavar="MS",
        help="milliseconds that an image waits for others (default: 5)",
    )
    parser.add_argument("--max-images", type=int, default=64, metavar="N", help="images in one request (default: 64)")
    parser.add_argument("--max-body", type=float, default=8.0, metavar="MB", help="size of a request (default: 8)")
    parser.add_argument(
        "--max-pixels", type=int, default=16_000_000, metavar="N", help="pixels of an image file (default: 16,000,000)"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="processor threads of the network (default: all)")


def _run(args: Namespace, out: Output) -> int:
    import torch

    from torchcaps.serving import Classifier, address_of, create_server_app, is_loopback, listen, run

    limits, key = _limits(args), _read_key(args.api_key_file)
    # A port in use is reported before a network is loaded.
    with listen(args.host, args.port) as listener:
        opened = open_network("serve", args.run, args.pretrained)
        if args.threads is not None:
            torch.set_num_threads(args.threads)
        name = str(next(iter(opened.origin.values())))
        classifier = Classifier(name, opened.model, opened.class_names, opened.num_labels, opened.rejection)
        # The first batch initialises libraries, and shows that the network computes.
        classifier.predict([torch.zeros(opened.model.image_shape)] * limits.max_batch)
        app = create_server_app(classifier, host=args.host, limits=limits, api_key=key)
        url = address_of(listener, args.host)
        if key is None and not is_loopback(args.host):
            warnings.warn(
                f"--host {args.host}: everybody who reaches this machine can use the server; --api-key-file FILE "
                f"requires a key",
                stacklevel=2,
            )

        def announce() -> None:
            out.document({"url": url, **opened.origin, "classes": list(opened.class_names), "key": key is not None})
            out.say(f"{name}: {len(opened.class_names)} classes, images {list(opened.model.image_shape)}")
            out.say(f"POST {url}predict   (GET {url}openapi.json describes it; Ctrl-C stops it)", style="bold")
            # A reader of a pipe waits for the address.
            sys.stdout.flush()

        run(app, listener, on_start=announce)
    return 0


def _limits(args: Namespace) -> ServeLimits:
    from torchcaps.serving import ServeLimits

    least = {"max_batch": 1, "max_images": 1, "max_pixels": 1, "threads": 1}
    for name, bound in least.items():
        value = getattr(args, name)
        if value is not None and value < bound:
            raise ConfigError(f"--{name.replace('_', '-')}: expected a count of at least {bound}, got {value}")
    if not 0.001 <= args.max_body <= 1024:
        raise ConfigError(f"--max-body: expected from 0.001 to 1024 megabytes, got {args.max_body:g}")
    if not 0 <= args.max_wait <= 60_000:
        raise ConfigError(f"--max-wait: expected from 0 to 60,000 milliseconds, got {args.max_wait:g}")
    return ServeLimits(
        max_batch=args.max_batch,
        max_wait=args.max_wait / 1000,
        max_queue=max(1024, args.max_images),
        max_images=args.max_images,
        max_body=int(args.max_body * 1024 * 1024),
        max_pixels=args.max_pixels,
    )


def _read_key(file: str | None) -> str | None:
    """Return the key of a file or of the environment; arguments are visible to every user of the machine."""
    from torchcaps._files import read_bounded

    if file is None:
        key, name = os.environ.get(KEY_VARIABLE), KEY_VARIABLE
    else:
        name = "--api-key-file"
        try:
            key = read_bounded(file, MAX_KEY).decode().strip()
            if Path(file).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
                warnings.warn(f"{file}: other users can read the key (chmod 600 {file})", stacklevel=2)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--api-key-file: expected a readable text file, got '{file}' ({error})") from None
    plain = key is None or (key.isascii() and key.isprintable() and " " not in key)
    if key is not None and not (plain and MIN_KEY <= len(key) <= MAX_KEY):
        raise ConfigError(
            f"{name}: expected a key of at least {MIN_KEY} characters without spaces, got {len(key)} characters "
            '(python -c "import secrets; print(secrets.token_urlsafe())" makes one)'
        )
    return key


VERB = Verb(
    name="serve",
    summary="serve a trained network: POST images, get predictions",
    description="Starts a web server on this machine. POST an image file to /predict (curl --data-binary @digit.png "
    "-H 'content-type: image/png' http://127.0.0.1:8018/predict), or JSON with several images; the response has "
    "labels, probabilities, activations, and why an image is probably none of the classes. Images of different "
    "requests are computed together. /model describes the network, /health reports the state of the server, /metrics "
    "has counters for Prometheus, /openapi.json the schema. SIGTERM answers every accepted request, then ends with "
    "exit code 0. Needs the extra `play`: pip install 'torchcaps[play]'.",
    examples=(
        ("torchcaps serve runs/NAME", "a network that you trained"),
        ("torchcaps serve model.onnx --port 9000", "a file of `torchcaps export`"),
        ("torchcaps serve --pretrained mnist --max-batch 1", "each image alone, for comparison"),
        ("torchcaps serve --pretrained mnist --host 0.0.0.0 --api-key-file key.txt", "for other machines, with a key"),
    ),
    configure=_configure,
    run=_run,
)
