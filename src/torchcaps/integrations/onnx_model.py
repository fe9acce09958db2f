"""An exported ONNX file as a classifier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import CheckpointError, ShapeError
from torchcaps.integrations._require import require


class OnnxModel:
    """A file that `export` wrote, run by ONNX Runtime.

    Args:
        path: The file.
        threads: Number of threads; 0 lets ONNX Runtime choose.

    Attributes:
        image_shape: Channels, height and width of the images.
        class_names: Names of the classes.
        outputs: Names of the outputs, in order.

    Raises:
        ConfigError: If onnxruntime is not installed.
        CheckpointError: If the file cannot be read or was not written by `export`.

    Example:
        >>> OnnxModel("net.onnx")(torch.rand(4, 1, 28, 28))["probabilities"].shape  # doctest: +SKIP
        torch.Size([4, 10])
    """

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
            self._session = runtime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
            stored: dict[str, Any] = json.loads(self._session.get_modelmeta().custom_metadata_map["torchcaps"])
            channels, height, width = map(int, stored["image_shape"])
            self.class_names = tuple(map(str, stored["class_names"]))
            self.outputs = tuple(output.name for output in self._session.get_outputs())
        except Exception as error:
            # ONNX Runtime has no common class of errors.
            reason = " ".join(str(error).split())[:200]
            raise CheckpointError(f"model: expected a file of `torchcaps export`, got '{path}' ({reason})") from None
        self.image_shape = (channels, height, width)

    def __call__(self, images: Tensor) -> dict[str, Tensor]:
        """Run the network.

        Args:
            images: A batch with values in [0, 1].

        Shape:
            images [B, C, H, W]; probabilities and activations [B, J]; poses [B, J, D].

        Returns:
            The outputs by name: probabilities, activations, poses, and the reconstruction if it was exported.

        Raises:
            ShapeError: If the images have another shape than those of the training.
        """
        if tuple(images.shape[1:]) != self.image_shape:
            expected = ", ".join(map(str, self.image_shape))
            raise ShapeError(f"images: expected [B, {expected}], got {tuple(images.shape)}")
        results = self._session.run(None, {"images": images.float().cpu().numpy()})
        return {name: torch.from_numpy(result) for name, result in zip(self.outputs, results, strict=True)}
