"""An exported ONNX file as a classifier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcaps._files import MAX_TENSORS, read_bounded
from torchcaps.errors import CheckpointError
from torchcaps.integrations._require import require
from torchcaps.models import ImageModel
from torchcaps.types import Capsules


class OnnxModel(ImageModel):
    """A file that `export` wrote, run by ONNX Runtime. It has no gradients.

    Args:
        path: The file.
        threads: Number of threads; 0 lets ONNX Runtime choose.

    Attributes:
        class_names: Names of the classes.
        num_labels: Labels per image; 2 for overlapping digits.
        temperature: Temperature of the probabilities.
        outputs: Names of the outputs, in order.

    Shape:
        images [B, C, H, W] with values in [0, 1]; returns poses [B, J, D] and activations [B, J].

    Raises:
        ConfigError: If onnxruntime is not installed.
        CheckpointError: If the file cannot be read or was not written by `export`.

    Example:
        >>> OnnxModel("net.onnx")(torch.rand(4, 1, 28, 28)).activations.shape  # doctest: +SKIP
        torch.Size([4, 10])
    """

    ranks = (1, 2, 3)

    def __init__(self, path: str | Path, *, threads: int = 0) -> None:
        runtime = require("onnxruntime", "export")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        # Errors are raised; the log on stderr would repeat them.
        options.log_severity_level = 4
        path = Path(path)
        if not path.is_file():
            raise CheckpointError(f"model: expected an ONNX file, got '{path}' (no such file)")
        try:
            content = read_bounded(path, MAX_TENSORS)
            session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
            stored: dict[str, Any] = json.loads(session.get_modelmeta().custom_metadata_map["torchcaps"])
            shape = tuple(map(int, stored["image_shape"]))
            names = tuple(map(str, stored["class_names"]))
            super().__init__(shape, len(names))
            self.num_labels = int(stored["num_labels"])
            self.temperature = None if stored["temperature"] is None else float(stored["temperature"])
        except Exception as error:
            # ONNX Runtime has no common class of errors.
            reason = " ".join(str(error).split())[:200]
            raise CheckpointError(f"model: expected a file of `torchcaps export`, got '{path}' ({reason})") from None
        self.class_names = names
        self.outputs = tuple(output.name for output in session.get_outputs())
        self._session = session
        self.eval()

    def run(self, images: Tensor) -> dict[str, Tensor]:
        """Return all outputs of the file.

        Args:
            images: A batch with values in [0, 1].

        Shape:
            images [B, C, H, W]; probabilities and activations [B, J]; poses [B, J, D].

        Returns:
            The outputs by name: probabilities, activations, poses, and the reconstruction if it was exported.

        Raises:
            ShapeError: If the images have another shape than those of the training.
        """
        self.check_images(images)
        results = self._session.run(None, {"images": images.detach().float().cpu().numpy()})
        return {name: torch.from_numpy(result) for name, result in zip(self.outputs, results, strict=True)}

    def forward(self, images: Tensor) -> Capsules:
        results = self.run(images)
        return Capsules(results["poses"], results["activations"])
