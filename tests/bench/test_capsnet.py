from __future__ import annotations

import pytest
import torch

from torchcaps.bench import CASES
from torchcaps.bench.capsnet import UsualHead, conv_flops, digits, training_step
from torchcaps.models import create_model


def test_naive_network_matches_capsnet():
    torch.manual_seed(0)
    model = create_model("capsnet")
    usual = UsualHead()
    usual.load_state_dict(model.get_submodule("head").state_dict())
    images, _ = digits({"batch": 2})
    with torch.no_grad():
        expected = model(images)
        model.add_module("head", usual)
        got = model(images)
    torch.testing.assert_close(got.poses, expected.poses)
    torch.testing.assert_close(got.activations, expected.activations)


def test_conv_flops_match_torch():
    from torch.utils.flop_counter import FlopCounterMode

    tasks = CASES["capsnet"].candidate("convolutions only").prepare({"batch": 2})
    with FlopCounterMode(display=False) as counter:
        tasks["step"]()
    assert counter.get_total_flops() == conv_flops({"batch": 2})


def test_step_updates_every_parameter():
    model = create_model("capsnet_small")
    before = [parameter.detach().clone() for parameter in model.parameters()]
    training_step(model, torch.optim.Adam(model.parameters()), {"batch": 2})["step"]()
    assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("case", "candidate", "task"),
    [
        (case, candidate.name, task)
        for case, task in (("capsnet", "step"), ("precision", "step"), ("one_image", "forward"))
        for candidate in CASES[case].candidates
    ],
)
def test_every_candidate_runs(case: str, candidate: str, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchcaps.bench.capsnet.SIDE", 8)
    tasks = CASES[case].candidate(candidate).prepare({"batch": 1})
    assert list(tasks) == [task]
    tasks[task]()
