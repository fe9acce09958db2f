import torch

from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.nn import PrimaryMatrixCaps2d


def test_pose_is_channels_of_one_type():
    layer = PrimaryMatrixCaps2d(1, 3)
    with torch.no_grad():
        layer.poses.weight.copy_(torch.arange(48.0).view(48, 1, 1, 1))
        layer.poses.bias.zero_()  # pyright: ignore[reportOptionalMemberAccess]
    features = torch.tensor([[[[1.0, 100.0], [10000.0, 1000000.0]]]])
    capsules = layer(features)
    assert capsules.poses.shape == (1, 2, 2, 3, 16)
    torch.testing.assert_close(capsules.poses[0, 1, 0, 2], 10000.0 * torch.arange(32.0, 48.0))
    assert capsules.activations.shape == (1, 2, 2, 3)
    assert bool((capsules.activations >= 0).all() and (capsules.activations <= 1).all())


def test_errors_name_the_argument():
    with raises_about(ShapeError, "features", "(1, 2, 2) (3 axes)"):
        PrimaryMatrixCaps2d(1, 3)(torch.zeros(1, 2, 2))
