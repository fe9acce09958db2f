import torch

from torchcaps.nn import Standardise


def test_each_image_has_mean_zero_and_deviation_one():
    images = Standardise()(torch.rand(3, 2, 8, 8) * torch.tensor([0.5, 1.0, 5.0]).view(3, 1, 1, 1) + 3)
    torch.testing.assert_close(images.mean(dim=(1, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(images.std(dim=(1, 2, 3), correction=0), torch.ones(3))


def test_an_even_image_becomes_zero_with_finite_gradients():
    images = torch.full((1, 1, 4, 4), 0.5, requires_grad=True)
    Standardise()(images).square().sum().backward()
    assert images.grad is not None
    assert bool(images.grad.isfinite().all())
