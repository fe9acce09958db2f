"""Which pixels a prediction rests on: relevance by routing, integrated gradients, Grad-CAM, and random maps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps._extras import explain_missing
from torchcaps._registry import Registry
from torchcaps.errors import ConfigError
from torchcaps.evaluation.relevance import PrimaryRelevance, routing_relevance
from torchcaps.models import ImageModel
from torchcaps.models.token_classifier import present_tokens
from torchcaps.nn import Scores, routing_layers
from torchcaps.types import Capsules

# Takes images [B, C, H, W] and labels [B], and returns maps [B, H, W]; of signals [B, T], of volumes [B, D, H, W].
Explainer = Callable[[Tensor, Tensor], Tensor]
# Random images over which a receptive field is measured.
FIELD_IMAGES = 4
IG_STEPS = 32
# Interpolation by the number of axes of a batch.
_LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}

SALIENCY: Registry[Callable[[ImageModel], Explainer]] = Registry("method")


def saliency(model: ImageModel, images: Tensor, labels: Tensor | None = None, method: str = "routing") -> Tensor:
    """Return how much each pixel, sample or token contributes to a class, by one of the methods of `SALIENCY`.

    `routing` carries the class back by coupling times activation (`routing_relevance`), and from a grid of primary
    capsules to pixels by their receptive fields; a set of capsules has no positions, and there gradient times image of
    their activations takes the last step. Tokens are capsules themselves. `ig` are integrated gradients (Sundararajan
    et al. 2017) from a black image, `gradcam` is Grad-CAM at the end of the stem (Selvaraju et al. 2017), both through
    Captum. `random` and `centre`, the same map for every image, are controls.

    Args:
        model: A classifier in evaluation mode.
        images: The images, signals, volumes, or tokens in the columns of images.
        labels: The class to explain in each image. Default: the predicted one.
        method: Name of the method.

    Shape:
        images: [B, C, H, W]; labels: [B]; returns [B, H, W]. Signals [B, C, T] have maps [B, T], volumes
        [B, C, D, H, W] have maps [B, D, H, W].

    Returns:
        Maps that are not negative and sum to 1. Padding of tokens has no relevance.

    Raises:
        ConfigError: If the model does not classify, or the method needs routing and it has none.
        MissingPackageError: If the method needs Captum and it is not installed.
        UnknownNameError: If there is no such method.

    Example:
        >>> from torchcaps import create_model
        >>> saliency(create_model("capsnet_small").eval(), torch.rand(2, 1, 28, 28)).shape
        torch.Size([2, 28, 28])
    """
    explainer = make_explainer(model, method)
    with torch.no_grad():
        predicted: Tensor = model(images).activations.argmax(dim=1)  # [B]
    return explainer(images, predicted if labels is None else labels)


def make_explainer(model: ImageModel, method: str) -> Explainer:
    """Return the function that makes the maps of `saliency`, for many batches.

    Args:
        model: A classifier in evaluation mode.
        method: Name of the method.

    Returns:
        A function of images and labels.

    Raises:
        ConfigError: If the model does not classify, or the method needs routing and it has none.
        UnknownNameError: If there is no such method.

    Example:
        >>> from torchcaps import create_model
        >>> explain = make_explainer(create_model("cnn_small").eval(), "random")
        >>> explain(torch.rand(2, 1, 28, 28), torch.tensor([0, 1])).shape
        torch.Size([2, 28, 28])
    """
    if not model.is_classifier:
        raise ConfigError(f"model: expected a classifier, got {type(model).__name__}")
    made = SALIENCY[method](model)

    def explain(images: Tensor, labels: Tensor) -> Tensor:
        # Copies: callers may be in inference mode, whose tensors have no gradients.
        with torch.inference_mode(False), torch.enable_grad():
            maps = made(images.detach().clone(), labels.clone()).detach().clamp(min=0)  # [B, H, W]
        # A map without any relevance is even.
        even = torch.ones_like(maps)
        if model.reads_tokens:
            even = even * present_tokens(images).view_as(maps)
        maps = maps * even
        total, count = (_sum_per_image(each) for each in (maps, even))  # [B, 1, 1]
        return torch.where(total > 0, maps / total.clamp(min=torch.finfo(maps.dtype).tiny), even / count)

    return explain


def _sum_per_image(maps: Tensor) -> Tensor:
    return maps.sum(dim=tuple(range(1, maps.dim())), keepdim=True)


@SALIENCY.register("routing")
def _routing(model: ImageModel) -> Explainer:
    if not routing_layers(model):
        raise ConfigError(f"method: expected a model with routing, got {type(model).__name__} (try gradcam or ig)")
    fields: dict[str, Tensor] = {}

    def explain(images: Tensor, labels: Tensor) -> Tensor:
        found = routing_relevance(model, images, labels)
        maps = images.new_zeros(images.shape[0], *images.shape[2:])
        for part in found.primary:
            if part.relevance.dim() > 2:
                if part.layer not in fields:
                    fields[part.layer] = receptive_fields(model, part.layer)
                places = part.relevance.sum(dim=-1).flatten(1)  # [B, H*W]
                maps = maps + torch.tensordot(places, fields[part.layer], dims=1)
            elif model.reads_tokens:
                maps = maps + part.relevance.view_as(maps)
            else:
                maps = maps + _by_gradient(model, part, images)
        return maps

    return explain


def receptive_fields(model: ImageModel, layer: str) -> Tensor:
    """Measure how strongly each position of a grid of capsules depends on each pixel.

    It is the mean absolute gradient over random images, the effective receptive field of Luo et al. 2016.

    Args:
        model: The network, in evaluation mode.
        layer: Path of the routing layer that reads the grid.

    Shape:
        Returns [H*W, height, width]; [T, length] of signals, [D*H*W, depth, height, width] of volumes.

    Returns:
        One map per position, each with sum 1.

    Example:
        >>> from torchcaps import create_model
        >>> receptive_fields(create_model("capsnet_small").eval(), "head").shape
        torch.Size([9, 28, 28])
    """
    generator = torch.Generator().manual_seed(0)
    weight = next(model.parameters())
    total: Tensor | None = None
    for _ in range(FIELD_IMAGES):
        image = torch.rand(1, *model.image_shape, generator=generator).to(weight)
        with torch.no_grad():
            count = _children(model, layer, image).poses[..., 0, 0].numel()
        fields = []
        # A volume has many positions.
        for places in torch.arange(count).split(64):
            images = image.repeat(len(places), *[1] * (image.dim() - 1)).requires_grad_()
            with torch.enable_grad():
                poses = _children(model, layer, images).poses.flatten(1, -3)  # [64, H*W, I, P]
                own = poses[torch.arange(len(places)), places]  # [64, I, P]
                signs = torch.randn(own.shape, generator=generator).to(own)
                (gradient,) = torch.autograd.grad((own * signs).sum(), images)
            fields.append(gradient.abs().sum(dim=1))  # [64, height, width]
        field = torch.cat(fields)  # [H*W, height, width]
        total = field if total is None else total + field
    assert total is not None
    return total / _sum_per_image(total).clamp(min=torch.finfo(total.dtype).tiny)


def _by_gradient(model: ImageModel, part: PrimaryRelevance, images: Tensor) -> Tensor:
    """Gradient times image of the activations of primary capsules, weighted by their relevance."""
    images = images.detach().clone().requires_grad_()
    with torch.enable_grad():
        activations = _children(model, part.layer, images).activations  # [B, I]
        shares = activations / activations.detach().clamp(min=1e-6)
        (gradient,) = torch.autograd.grad((part.relevance * shares).sum(), images)
    return (gradient * images.detach()).sum(dim=1).abs()  # [B, height, width]


def _children(model: ImageModel, layer: str, images: Tensor) -> Capsules:
    """Return the capsules that a layer reads in its first call."""
    read: list[Capsules] = []
    handle = model.get_submodule(layer).register_forward_pre_hook(lambda module, args: read.append(args[0]))
    try:
        model(images)
    finally:
        handle.remove()
    return read[0]


@SALIENCY.register("ig")
def _integrated_gradients(model: ImageModel) -> Explainer:
    with explain_missing():
        from captum.attr import IntegratedGradients

    made = IntegratedGradients(Scores(model, "log_probabilities"))

    def explain(images: Tensor, labels: Tensor) -> Tensor:
        found = made.attribute(images, target=labels, n_steps=IG_STEPS, internal_batch_size=max(64, len(images)))
        return found.sum(dim=1).abs()  # [B, H, W]

    return explain


@SALIENCY.register("gradcam")
def _gradcam(model: ImageModel) -> Explainer:
    with explain_missing():
        from captum.attr import LayerGradCam

    made = LayerGradCam(Scores(model, "log_probabilities"), model.stem)

    def explain(images: Tensor, labels: Tensor) -> Tensor:
        found = made.attribute(images, target=labels, relu_attributions=True)  # [B, 1, h, w]
        assert isinstance(found, Tensor)
        return F.interpolate(found, images.shape[2:], mode=_LINEAR[images.dim()], align_corners=False).squeeze(1)

    return explain


@SALIENCY.register("random")
def _random(model: ImageModel) -> Explainer:
    generator = torch.Generator().manual_seed(0)
    return lambda images, labels: torch.rand(len(images), *images.shape[2:], generator=generator).to(images)


@SALIENCY.register("centre")
def _centre(model: ImageModel) -> Explainer:
    """The same map for every image: the nearer to the centre, the more relevant."""

    def explain(images: Tensor, labels: Tensor) -> Tensor:
        axes = [torch.linspace(-1, 1, side, device=images.device).square() for side in images.shape[2:]]
        near = (-2 * torch.stack(torch.meshgrid(*axes, indexing="ij")).sum(dim=0)).exp()  # [H, W]
        return near.to(images.dtype).expand(len(images), *near.shape)

    return explain
