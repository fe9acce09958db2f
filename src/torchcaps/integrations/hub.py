"""Networks in folders and repositories of the Hugging Face hub."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from torchcaps import __version__
from torchcaps._files import make_folder, write_text
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.integrations._require import require
from torchcaps.models import (
    ImageModel,
    ModelCard,
    ModelDescription,
    create_model,
    pretrained_card,
    read_description,
    save_weights,
)
from torchcaps.models import load_described as load_file
from torchcaps.types import Capsules

require("huggingface_hub", "hub")

import huggingface_hub as hf  # noqa: E402

__all__ = ["HubModel"]

WEIGHTS = "model.safetensors"


class HubModel(
    nn.Module,
    hf.ModelHubMixin,
    library_name="torchcaps",
    tags=["capsule-network", "image-classification"],
    pipeline_tag="image-classification",
):
    """A network with `save_pretrained`, `from_pretrained` and `push_to_hub` of huggingface_hub.

    A folder has `model.safetensors` (the weights; its metadata describe the network), `config.json` (the same
    description, for readers) and `README.md` (the model card). Only the first is read back: nothing is unpickled, the
    name, options and sizes are checked before memory is reserved, and files of others cannot execute code.

    Args:
        model: A network made by `create_model`.
        class_names: Names of the classes. Default: their numbers.
        num_labels: Labels per image; 2 for overlapping digits.
        card: Model card of the weights, for the README.

    Attributes:
        description: Name, options, image shape and class names of the network.

    Shape:
        images [B, C, H, W]; returns poses [B, J, D] and activations [B, J].

    Raises:
        ConfigError: If the network was not made by `create_model`, has options that are not values of JSON, or the
            number of names is not that of the classes.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> HubModel(create_model("cnn_small", num_classes=2), class_names=("cat", "dog")).save_pretrained(folder)
        >>> HubModel.from_pretrained(folder).description.class_names
        ('cat', 'dog')
    """

    def __init__(
        self,
        model: ImageModel,
        *,
        class_names: Sequence[str] = (),
        num_labels: int = 1,
        card: ModelCard | None = None,
    ) -> None:
        super().__init__()
        self.model, self.card = model, card
        self.description = _describe(model, class_names, num_labels)
        # What the mixin would write instead of the description.
        self._hub_mixin_config = None

    @classmethod
    def from_bundled(cls, name: str) -> HubModel:
        """Return a pretrained network of torchcaps with its model card.

        Args:
            name: Name of the weights, see `list_pretrained`.

        Returns:
            The network in evaluation mode.

        Raises:
            UnknownNameError: If there are no weights of this name.
        """
        card = pretrained_card(name)
        model = create_model(card.model, pretrained=name)
        return cls(model, class_names=card.class_names, num_labels=card.num_labels, card=card)

    @classmethod
    def from_pretrained(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, source: str | Path, *, revision: str | None = None, token: Any = None, **download: Any
    ) -> HubModel:
        """Load a network from a folder or from the hub.

        Args:
            source: A folder that `save_pretrained` wrote, or the name of a repository, "user/name".
            revision: Branch, tag or commit of the repository.
            token: Access token of the hub.
            **download: Further options of `huggingface_hub.hf_hub_download`, such as `cache_dir`.

        Returns:
            The network in evaluation mode.

        Raises:
            CheckpointError: If there is no such folder or repository, or it does not hold a network of torchcaps.
        """
        file = Path(source) / WEIGHTS
        if not Path(source).is_dir():
            try:
                file = Path(hf.hf_hub_download(str(source), WEIGHTS, revision=revision, token=token, **download))
            except Exception as error:
                # Errors of the hub, of HTTP and of the disk have no common class.
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
                raise CheckpointError(
                    f"source: expected a folder or a repository of the hub, got '{source}' ({reason})"
                ) from None
        described = read_description(file)
        return cls(load_file(file), class_names=described.class_names, num_labels=described.num_labels)

    def forward(self, images: Tensor) -> Capsules:
        """Return the class capsules of a batch of images.

        Args:
            images: The images, in [0, 1].

        Returns:
            The class capsules.
        """
        return self.model(images)

    def _save_pretrained(self, save_directory: Path) -> None:
        folder = make_folder(save_directory)
        described = {**self.description._asdict(), "options": dict(self.description.options)}
        save_weights(self.model, folder / WEIGHTS, description=described)
        write_text(folder / "config.json", json.dumps({"torchcaps": __version__, **described}, indent=1) + "\n")
        write_text(folder / "README.md", str(self.generate_model_card()))

    def generate_model_card(self, *args: Any, **options: Any) -> hf.ModelCard:
        """Return the model card: a header in YAML, then origin, accuracy, limits and a program that uses the network.

        Args:
            *args: Not used; they belong to the method of the mixin.
            **options: Not used.

        Returns:
            The card.
        """
        data = hf.ModelCardData(
            library_name="torchcaps",
            pipeline_tag="image-classification",
            tags=["capsule-network", "image-classification"],
            **_header(self.card),
        )
        return hf.ModelCard(f"---\n{data.to_yaml()}\n---\n\n{_text(self.description, self.card)}")


def _describe(model: ImageModel, class_names: Sequence[str], num_labels: int) -> ModelDescription:
    if model.spec is None:
        raise ConfigError(f"model: expected a network made by create_model, got a {type(model).__name__}")
    names = tuple(class_names) or tuple(map(str, range(model.num_classes)))
    if len(names) != model.num_classes:
        raise ConfigError(f"class_names: expected {model.num_classes} names, got {len(names)}")
    try:
        options = json.loads(json.dumps(dict(model.spec.options)))
    except TypeError as error:
        raise ConfigError(f"options: expected values of JSON, got {model.spec.options} ({error})") from None
    return ModelDescription(model.spec.name, options, model.image_shape, names, num_labels)


def _header(card: ModelCard | None) -> dict[str, Any]:
    """Return the entries of the YAML header that come from a model card."""
    if card is None:
        return {}
    accuracy = hf.EvalResult(
        task_type="image-classification",
        dataset_type=card.data["name"],
        dataset_name=card.data["name"],
        dataset_split="test",
        metric_type="accuracy",
        metric_value=card.test_accuracy,
    )
    # The licence of the weights is the user's to state; that of the data is named in the text.
    return {"datasets": [card.data["name"]], "model_name": card.name, "eval_results": [accuracy]}


def _text(description: ModelDescription, card: ModelCard | None) -> str:
    size = "x".join(map(str, description.image_shape))
    lines = [
        f"# {card.name if card else description.name}",
        "",
        f"A capsule network of [torchcaps](https://pypi.org/project/torchcaps): `{description.name}`, images of "
        f"{size} with values from 0 to 1, {len(description.class_names)} classes.",
        "",
        "```python",
        "from torchcaps.integrations.hub import HubModel",
        "",
        'net = HubModel.from_pretrained("user/name")  # or a folder',
        "net(images).activations",
        "```",
    ]
    if card is not None:
        rows = {
            "data": f"{card.data['name']} ({card.data_licence}{', research only' if card.research_only else ''})",
            "test accuracy": f"{card.test_accuracy:.2%} of {card.test_images:,} images",
            "parameters": f"{card.parameters:,}",
            "training": f"{card.epochs} epochs, {card.seconds / 3600:.1f} hours, seed {card.seed}",
            "commit": card.commit or "unknown",
        }
        lines += ["", "| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
        lines += ["", "## Limits", "", *(f"- {limit}" for limit in card.limits)]
    return "\n".join([*lines, ""])
