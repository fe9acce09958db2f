import torch

from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.nn import ClassCaps, DynamicRouting
from torchcaps.types import Capsules


def children(height: int = 2, width: int = 3, types: int = 4) -> Capsules:
    generator = torch.Generator().manual_seed(0)
    poses = torch.randn(2, height, width, types, 16, generator=generator)
    return Capsules(poses, torch.rand(2, height, width, types, generator=generator))


CENTRES = ([0.25, 0.75], [0.1, 0.5, 0.9])


def test_coordinates_are_added_row_first():
    layer = ClassCaps(4, 5, centres=CENTRES)
    plain = ClassCaps(4, 5)
    plain.load_state_dict(layer.state_dict())
    added = layer.trace(children()).votes - plain.trace(children()).votes
    added = added.unflatten(1, (2, 3, 4))
    for row in range(2):
        for column in range(3):
            place = torch.tensor([CENTRES[0][row], CENTRES[1][column]])
            torch.testing.assert_close(added[:, row, column, ..., :2], place.expand(2, 4, 5, 2))
    assert bool((added[..., 2:] == 0).all())


def test_weights_are_shared_over_positions():
    layer = ClassCaps(4, 5)
    assert layer.weight.shape == (4, 5, 4, 4)
    same = Capsules(children().poses[:, :1, :1].expand(-1, 2, 3, -1, -1), children().activations)
    votes = layer.trace(same).votes.unflatten(1, (6, 4))
    torch.testing.assert_close(votes[:, 0], votes[:, 5])


def test_without_coordinates_positions_do_not_matter():
    layer = ClassCaps(4, 5)
    assert layer(children(3, 1)).poses.shape == (2, 5, 16)
    flipped = Capsules(children().poses.flip(1), children().activations.flip(1))
    torch.testing.assert_close(layer(flipped).activations, layer(children()).activations)
    placed = ClassCaps(4, 5, centres=CENTRES)
    assert not torch.allclose(placed(flipped).activations, placed(children()).activations)


def test_dynamic_routing():
    layer = ClassCaps(4, 5, pose="vector", routing=DynamicRouting(), centres=CENTRES)
    assert layer(children()).activations.shape == (2, 5)


def test_coordinates_are_not_in_state_dict():
    assert sorted(ClassCaps(4, 5, centres=CENTRES).state_dict()) == ["routing.beta_a", "routing.beta_u", "weight"]
    assert "coordinates=True" in repr(ClassCaps(4, 5, centres=CENTRES))


def test_errors_name_the_argument():
    with raises_about(ShapeError, "poses", "(3, 3)"):
        ClassCaps(4, 5, centres=CENTRES)(children(3))
