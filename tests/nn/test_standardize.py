import pytest
import torch

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.nn import InstanceStandardize


def test_each_image_has_mean_zero_and_deviation_one():
    images = InstanceStandardize()(torch.rand(3, 2, 8, 8) * torch.tensor([0.5, 1.0, 5.0]).view(3, 1, 1, 1) + 3)
    torch.testing.assert_close(images.mean(dim=(1, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(images.std(dim=(1, 2, 3), correction=0), torch.ones(3))


def test_constant_image_becomes_zero():
    images = torch.full((1, 1, 4, 4), 0.5, requires_grad=True)
    InstanceStandardize()(images).square().sum().backward()
    assert images.grad is not None
    assert bool(images.grad.isfinite().all())


def test_jitter_per_image_in_training():
    light = InstanceStandardize(brightness=0.5, contrast=0.25)
    images = light(torch.rand(64, 2, 8, 8))
    means, deviations = images.mean(dim=(1, 2, 3)), images.std(dim=(1, 2, 3), correction=0)  # [64]
    assert bool((means.abs() <= 0.5 + 1e-5).all())
    assert bool(((deviations - 1).abs() <= 0.25 + 1e-5).all())
    assert means.std() > 0.2
    assert deviations.std() > 0.1
    torch.testing.assert_close(light.eval()(images), InstanceStandardize()(images))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("brightness", -0.1),
        ("contrast", 1.5),
    ],
)
def test_jitter_option_is_checked(option, value):
    with raises_about(ConfigError, f"{option}:", value):
        InstanceStandardize(**{option: value})
