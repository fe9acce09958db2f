from __future__ import annotations

import pytest
import torch

from torchcaps.models import create_model


def test_parameters_of_the_papers_baseline() -> None:
    with torch.device("meta"):
        model = create_model("cnn_baseline")
    count = sum(parameter.numel() for parameter in model.parameters())
    assert round(count / 1e6, 1) == 35.4


@pytest.mark.parametrize("name", ["cnn_baseline", "cnn_small"])
def test_a_class_is_a_capsule_whose_pose_is_its_score(name: str) -> None:
    out = create_model(name, image_shape=(1, 6, 7), num_classes=4).eval()(torch.rand(2, 1, 6, 7))
    assert out.poses.shape == (2, 4, 1)
    torch.testing.assert_close(out.activations, out.poses.squeeze(-1).softmax(-1))
    torch.testing.assert_close(out.activations.sum(-1), torch.ones(2))


@pytest.mark.parametrize("name", ["cnn_baseline", "cnn_small"])
def test_dropout_is_for_training_only(name: str) -> None:
    model = create_model(name, image_shape=(1, 6, 7), num_classes=4, dropout=0.9)
    images = torch.rand(2, 1, 6, 7)
    assert not torch.equal(model.train()(images).poses, model(images).poses)
    assert torch.equal(model.eval()(images).poses, model(images).poses)
