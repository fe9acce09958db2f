"""Every model with the rest of PyTorch: meta initialisation, export, sharding."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import torchcaps as tc
from model_shapes import by_name, fit_shape, mark_slow
from torchcaps.models import create_model, list_models
from torchcaps.types import Capsules, Routed, Trace

SHAPE = (1, 20, 20)
EXPORTED = {
    "backbone_capsnet",
    "capsnet_small",
    "cnn_small",
    "efficient_capsnet",
    "matrix_capsnet_small",
    "token_capsnet",
}


def make(name: str) -> tc.models.ImageModel:
    torch.manual_seed(0)
    return create_model(name, image_shape=fit_shape(name, SHAPE), num_classes=3).eval()


@by_name
def test_weights_are_contiguous(name: str) -> None:
    with torch.device("meta"):
        model = create_model(name, image_shape=fit_shape(name, SHAPE), num_classes=3)
    # The strides decide, not is_contiguous(): a weight of one channel may be contiguous in two formats at once.
    for key, tensor in model.state_dict().items():
        assert tensor.stride() == torch.empty(tensor.shape, device="meta").stride(), key


@by_name
def test_meta_initialisation(name: str) -> None:
    source = make(name)
    with torch.device("meta"):
        model = create_model(name, image_shape=fit_shape(name, SHAPE), num_classes=3)
    model = model.to_empty(device="cpu")
    # Memory that to_empty leaves uninitialised may hold the right numbers by chance.
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.data.fill_(torch.nan if tensor.is_floating_point() else 7)
    model.load_state_dict(source.state_dict())
    images = torch.rand(2, *fit_shape(name, SHAPE))
    with torch.no_grad():
        for ours, theirs in zip(model.eval()(images), source(images), strict=True):
            assert torch.equal(ours, theirs)


@by_name
def test_modules_with_parameters_can_be_reset(name: str) -> None:
    module: Any
    for path, module in make(name).named_modules():
        own = list(module.parameters(recurse=False))
        if own:
            assert hasattr(module, "reset_parameters"), f"{path}: {type(module).__name__}"
            with torch.no_grad():
                for parameter in own:
                    parameter.fill_(torch.nan)
            module.reset_parameters()
            assert all(parameter.isfinite().all() for parameter in own), path


# The graphs of the others take torch.export ten seconds and more.
@pytest.mark.parametrize("name", mark_slow(list_models(), set(list_models()) - EXPORTED))
def test_export_is_saved_and_loaded(name: str) -> None:
    model, images = make(name), torch.rand(2, *fit_shape(name, SHAPE))
    program = torch.export.export(model, (images,), strict=False)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()(images)
    assert isinstance(loaded, Capsules)
    with torch.no_grad():
        for ours, theirs in zip(loaded, model(images), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_results_are_loaded_with_weights_only() -> None:
    torch.manual_seed(0)
    trace = make("capsnet_small").trace(torch.rand(1, *SHAPE))
    for value in (trace, trace.routed, trace.routed.capsules):
        file = io.BytesIO()
        torch.save(value, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=True)
        assert type(loaded) in (Trace, Routed, Capsules)
        assert type(loaded) is type(value)
        assert torch.equal(loaded.poses, value.poses)


@pytest.fixture(scope="module")
def process_group() -> Iterator[None]:
    store = torch.distributed.HashStore()  # pyright: ignore[reportPrivateImportUsage]
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


# Class poses may be a view of another tensor; nothing here changes them in place.
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module .* returned a view tensor")
@pytest.mark.slow
@by_name
def test_fully_shard(name: str, process_group: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    plain, model = make(name), make(name)
    images = torch.rand(2, *fit_shape(name, SHAPE))
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    losses: list[torch.Tensor] = []
    for each in (plain, model):
        optimiser = torch.optim.SGD(each.parameters(), lr=0.01)
        for _ in range(2):
            optimiser.zero_grad()
            poses, activations = each(images)
            loss = poses.square().mean() + activations.square().mean()
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
    torch.testing.assert_close(losses[2:], losses[:2])


# Random operators of torch on a mesh of CPUs are marked as incomplete.
@pytest.mark.filterwarnings("ignore:DTensor random operators:UserWarning")
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module .* returned a view tensor")
@pytest.mark.slow
@by_name
def test_fully_shard_from_meta(name: str, process_group: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        model = create_model(name, image_shape=fit_shape(name, SHAPE), num_classes=3)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    model.to_empty(device="cpu")
    module: Any
    for module in model.modules():
        if [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
            module.reset_parameters()
    assert model(torch.rand(2, *fit_shape(name, SHAPE))).activations.isfinite().all()


def test_conv_stem_runs_channels_last() -> None:
    seen = []
    model = make("cnn_small").train()
    for layer in model.stem:
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda module, args, out: seen.append(out))
    model(torch.rand(2, *SHAPE))
    assert len(seen) == 3
    for maps in seen:
        assert maps.is_contiguous(memory_format=torch.channels_last)
        assert not maps.is_contiguous()
