from __future__ import annotations

import pytest
import torch

from torchcaps import create_model
from torchcaps.data import Augment, load_data, to_float
from torchcaps.diagnostics import EpochDiagnostics, LayerDiagnostics, Snapshot, coupling_entropy, diagnose_layers
from torchcaps.nn import LOSSES, MarginLoss


def test_values_from_sixteen_images():
    data = load_data("digits", "val")
    torch.manual_seed(0)
    model = create_model("capsnet_small")
    found = EpochDiagnostics(data, Augment())(model, MarginLoss()).summary()
    assert list(found) == ["entropy", "dead", "gradient_norm"]
    places = torch.linspace(0, len(data) - 1, 16).round().long()
    images, labels = to_float(data.images[places]), data.labels[places]
    with torch.no_grad():
        trace = model.trace(images)
    assert found["entropy"] == pytest.approx(float(coupling_entropy(trace.coupling[-1:])), rel=1e-5)
    assert found["dead"] == pytest.approx(float((trace.activations[-1].amax(dim=0) < 0.05).float().mean()))
    MarginLoss()(model(images), labels).backward()
    square = sum(float(weight.grad.square().sum()) for weight in model.parameters() if weight.grad is not None)
    assert found["gradient_norm"] == pytest.approx(square**0.5, rel=1e-4)


def test_network_without_routing_has_gradients_only():
    found = EpochDiagnostics(load_data("digits", "val"), Augment())(
        create_model("cnn_small"), LOSSES["cross_entropy"]()
    )
    assert list(found.summary()) == ["gradient_norm"]
    assert {measure for _, _, _, measure, _ in found.rows(1)} == {"gradient_norm", "gradient_coherence"}


def test_rows_for_layers_and_iterations():
    torch.manual_seed(0)
    model, data = create_model("matrix_capsnet_small", routing={"name": "em", "iters": 3}), load_data("digits", "val")
    snapshot = EpochDiagnostics(data, Augment())(model, LOSSES["spread"]())
    assert [layer.name for layer in snapshot.layers] == ["lower", "upper", "head"]
    rows = snapshot.rows(7)
    assert {epoch for epoch, *_ in rows} == {7}
    table = {row[1:4]: row[4] for row in rows}
    assert len(table) == len(rows)
    for layer in snapshot.layers:
        steps = [(place, measure) for name, place, measure in table if name == layer.name and place]
        assert steps == [(1, "entropy"), (2, "entropy"), (3, "entropy"), (2, "logit_change"), (3, "logit_change")]
        assert tuple(table[layer.name, place, "entropy"] for place in (1, 2, 3)) == layer.entropy
        for measure in ("changed", "dead", "starved"):
            assert table[layer.name, None, measure] == getattr(layer, measure)
        assert table[layer.name, None, "gradient_norm"] == snapshot.gradient_norms[layer.name]
    total = sum(value**2 for (_, _, measure), value in table.items() if measure == "gradient_norm")
    assert snapshot.summary()["gradient_norm"] == pytest.approx(total**0.5)


def test_lower_layers_use_fewer_images():
    # 460,800 votes in an image: four of the sixteen, evenly spaced.
    torch.manual_seed(0)
    model, data = create_model("matrix_capsnet_small").eval(), load_data("digits", "val")
    diagnostics = EpochDiagnostics(data, Augment())
    lower = diagnostics(model, LOSSES["spread"]()).layers[0]
    (by_hand,) = diagnose_layers(model, [diagnostics.images[[0, 5, 10, 15]]], ["lower"])
    assert lower.entropy == pytest.approx(by_hand.entropy, rel=1e-5)
    assert lower.changed == by_hand.changed


def test_unknown_share_has_no_row():
    layer = LayerDiagnostics("head", "em", 8, 2, (1.0,), (), None, (0.9, 0.04), (1.0, 1.0))
    rows = Snapshot("digits", "val", 1, (layer,), {}).rows(1)
    assert [row[3] for row in rows] == ["entropy", "dead", "starved"]


def test_stateful_loss_is_unchanged():
    loss = LOSSES["spread"]()
    EpochDiagnostics(load_data("digits", "val"), Augment())(create_model("capsnet_small"), loss)
    assert int(loss.get_buffer("step")) == 0
    assert loss.training
