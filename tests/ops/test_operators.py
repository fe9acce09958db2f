"""The custom operators of all kernels: derivatives, memory, and what direct calls must refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError, TorchcapsError
from torchcaps.nn import CapsLinear
from torchcaps.ops import _native
from torchcaps.ops._triton import device
from torchcaps.types import Capsules

missing = _native.missing_reason()
pytestmark = pytest.mark.skipif(missing is not None, reason=str(missing))


class Operator(NamedTuple):
    """An operator with valid arguments: tensors by name, then numbers."""

    name: str
    tensors: dict[str, Tensor | None]
    numbers: tuple[Any, ...] = ()
    without_gradient: tuple[str, ...] = ()

    @property
    def op(self) -> Any:
        return getattr(torch.ops.torchcaps, self.name).default

    def run(self, **changes: Any) -> list[Tensor]:
        out = self.op(*{**self.tensors, **changes}.values(), *self.numbers)
        return [out] if isinstance(out, Tensor) else list(out)

    def gradients(self, change: Callable[[Tensor], Tensor] = lambda tensor: tensor) -> list[Tensor]:
        """Results and gradients with every input replaced by `change` of it."""
        leaves = {
            name: None if tensor is None else change(tensor).requires_grad_(name not in self.without_gradient)
            for name, tensor in self.tensors.items()
        }
        out = self.run(**leaves)
        given = [leaf for leaf in leaves.values() if leaf is not None and leaf.requires_grad]
        torch.manual_seed(1)
        weights = [torch.randn_like(tensor) for tensor in out]
        grads = torch.autograd.grad(out, given, weights)
        return [tensor.detach() for tensor in [*out, *grads]]


def make_operators() -> dict[str, Operator]:
    torch.manual_seed(0)
    poses, weight = torch.randn(3, 9, 4), 0.5 * torch.randn(9, 3, 4, 6)
    grid = {
        "poses": torch.randn(2, 3, 4, 2, 16),
        "activations": torch.rand(2, 3, 4, 2),
        "weight": torch.randn(8, 5, 4, 4),
        "betas": torch.randn(2, 5),
    }
    window = ([2, 2, 1, 0, 0], [0.1, 1e-8, 0.0, 0.01, 0.02, 1.0, 1.0])
    options = ([2, 2, 1, 2, 1], [0.1, 1e-8, 0.1, 0.01, 0.02, 0.25, 0.5])
    vectors = {**grid, "poses": torch.randn(2, 3, 4, 2, 5), "weight": torch.randn(8, 5, 5, 3)}
    nines = {**grid, "poses": torch.randn(2, 3, 4, 2, 9), "weight": torch.randn(2, 5, 3, 3)}
    em_constants = [0.1, 1e-7, 0.1, 0.01, 0.02, 0.25, 0.5]
    logits = {"logits": torch.randn(9, 3, 3), "activations": torch.rand(9, 3)}
    seen = {name: vectors[name] for name in ("poses", "activations", "weight")}
    key, pairs, route = torch.randn(2, 2, 3, 5, 3), torch.randn(8, 5), torch.randn(8, 5, 5)
    return {
        "dynamic": Operator(
            "dynamic_routing", {"poses": poses, "weight": weight, "bias": torch.randn(3, 6)}, (3, False, False, 0)
        ),
        "dynamic without bias": Operator(
            "dynamic_routing", {"poses": poses, "weight": weight[0], "bias": None}, (2, True, True, 1)
        ),
        "agree": Operator(
            "agree", {"poses": poses, "weight": weight, "key": torch.randn(3, 3, 6), "prior": torch.randn(9, 3)}
        ),
        "agree without key": Operator("agree", {"poses": poses, "weight": weight, "key": None, "prior": None}),
        "self_agree": Operator("self_agree", {"poses": poses, "weight": 0.3 * weight, "prior": torch.randn(9, 3)}),
        "self_agree without prior": Operator("self_agree", {"poses": poses, "weight": 0.3 * weight[0], "prior": None}),
        "sum_votes": Operator("sum_votes", {"share": torch.randn(9, 3, 3), "poses": poses, "weight": weight}),
        "agreement": Operator("agreement", {"key": torch.randn(3, 3, 6), "poses": poses, "weight": weight}),
        "self_routing": Operator("self_routing", {**logits, "poses": poses, "weight": weight}),
        "em": Operator("em_routing", {**grid, "offsets": torch.randn(4, 2)}, window, ("offsets",)),
        "em without offsets": Operator("em_routing", {**grid, "offsets": None}, window),
        "gaussian em": Operator(
            "gaussian_routing",
            {**vectors, "betas": torch.randn(3, 5), "offsets": torch.randn(4, 2)},
            ([2, 2, 1, 2, 1, 0], 2, False, em_constants),
            ("offsets",),
        ),
        "gaussian variational": Operator(
            "gaussian_routing", {**nines, "offsets": None}, ([2, 2, 1, 0, 0, 1], 3, True, [1.0, 0.5, 2.0])
        ),
        "grid attention": Operator(
            "grid_attention",
            {**seen, "key": key, "prior": pairs, "base": None, "route": None, "offsets": torch.randn(4, 2)},
            ([2, 2, 1, 0, 0, 0], True, False, True),
            ("offsets",),
        ),
        "grid attention, weighted": Operator(
            "grid_attention",
            {**seen, "key": None, "prior": None, "base": pairs.clone(), "route": route, "offsets": None},
            ([2, 2, 1, 1, 0, 0], False, True, True),
        ),
        "kuramoto": Operator(
            "kuramoto_pass",
            {**seen, "keys": 0.2 * torch.randn(2, 2, 3, 5, 2 * (3 + 2)), "offsets": torch.randn(4, 2)},
            ([2, 2, 1, 0, 0, 0], 2, [4.0, 1.0]),
            ("offsets",),
        ),
        "kuramoto, first": Operator(
            "kuramoto_pass", {**seen, "keys": None, "offsets": None}, ([2, 2, 1, 1, 0, 0], 0, [4.0, 1.0])
        ),
        "em with background": Operator("em_routing", {**grid, "betas": torch.randn(3, 5), "offsets": None}, options),
    }


OPERATORS = make_operators()
every_operator = pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
every_tensor = pytest.mark.parametrize(
    ("operator", "argument"),
    [
        pytest.param(operator, argument, id=f"{name}-{argument}")
        for name, operator in OPERATORS.items()
        for argument, tensor in operator.tensors.items()
        if tensor is not None
    ],
)


def off_by_one_value(tensor: Tensor) -> Tensor:
    """A copy whose address is aligned to one value only."""
    storage = tensor.new_empty(tensor.numel() + 1)
    storage[1:] = tensor.flatten()
    return storage[1:].view(tensor.shape)


def reversed_strides(tensor: Tensor) -> Tensor:
    """A copy with the strides of the transposed tensor."""
    axes = list(range(tensor.dim()))[::-1]
    return tensor.permute(axes).contiguous().permute(axes)


# From torch itself, since 2.15.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@every_operator
def test_opcheck(operator: Operator) -> None:
    leaves = [
        None if tensor is None else tensor.clone().requires_grad_(name not in operator.without_gradient)
        for name, tensor in operator.tensors.items()
    ]
    torch.library.opcheck(operator.op, (*leaves, *operator.numbers))


@every_operator
@pytest.mark.parametrize("change", [off_by_one_value, reversed_strides])
def test_layout_of_inputs_changes_no_bit(operator: Operator, change: Callable[[Tensor], Tensor]) -> None:
    for expected, got in zip(operator.gradients(), operator.gradients(change), strict=True):
        assert torch.equal(expected, got)


@every_operator
def test_every_output_is_written(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = operator.gradients()
    assert all(tensor.isfinite().all() for tensor in expected)
    monkeypatch.setattr(_native, "_allocate", lambda like, shape: like.new_full(tuple(shape), float("nan")))
    for before, got in zip(expected, operator.gradients(), strict=True):
        # The last parents of the saved EM state are padding, which no result depends on.
        assert torch.equal(before, got) or (operator.name == "em_routing" and before.dim() == 5)


@every_operator
def test_saved_tensors_may_be_misaligned(operator: Operator) -> None:
    expected = operator.gradients()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, off_by_one_value):
        got = operator.gradients()
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


@every_operator
def test_gradient_of_a_gradient_is_refused(operator: Operator) -> None:
    poses = operator.tensors["poses"]
    assert poses is not None
    leaf = poses.clone().requires_grad_()
    (grad,) = torch.autograd.grad(operator.run(poses=leaf)[0].sum(), leaf, create_graph=True)
    with raises_about(ConfigError, "backend", "reference"):
        grad.sum().backward()


@every_tensor
def test_wrong_shapes_are_refused(operator: Operator, argument: str) -> None:
    tensor = operator.tensors[argument]
    assert tensor is not None
    # The last axis of a weight is the size of the parents, which only the other tensors fix.
    shorter = tensor[..., :-1, :] if argument == "weight" else tensor[..., :-1]
    for wrong in (shorter, tensor.flatten()[:1], tensor.unsqueeze(0)):
        with pytest.raises(ShapeError):
            operator.run(**{argument: wrong})


@every_tensor
@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.float8_e4m3fn, torch.float64, torch.bfloat16])
def test_other_types_are_refused(operator: Operator, argument: str, dtype: torch.dtype) -> None:
    tensor = operator.tensors[argument]
    assert tensor is not None
    with pytest.raises(TorchcapsError, match=re.escape(str(dtype))):
        operator.run(**{argument: tensor.to(dtype)})


@every_tensor
def test_meta_tensors_beside_others_are_refused(operator: Operator, argument: str) -> None:
    tensor = operator.tensors[argument]
    assert tensor is not None
    with raises_about(ConfigError, "meta", "cpu"):
        operator.run(**{argument: tensor.to("meta")})


def test_meta_layer_with_cpu_input_is_refused() -> None:
    layer = CapsLinear(5, 3, 4, 6, backend="cpu").to("meta")
    with raises_about(ConfigError, "weight", "meta"):
        layer(Capsules(torch.randn(2, 5, 4), torch.rand(2, 5)))


@pytest.mark.parametrize(
    "numbers",
    [
        ([2, 2, 0, 0, 0], [0.1, 1e-8, 0.0, 0.1, 1.0]),
        ([4, 2, 1, 0, 0], [0.1, 1e-8, 0.0, 0.1, 1.0]),
        ([2, 2, 1, 3, 0], [0.1, 1e-8, 0.0, 0.1, 1.0]),
        ([2, 2, 1, 0, 2], [0.1, 1e-8, 0.0, 0.1, 1.0]),
        ([2, 2, 1, 0, 0], [0.1, 1e-8, 0.0, 0.1]),
        ([2, 2, 1, 0, 0], [0.1, 1e-8, 0.0]),
    ],
)
def test_em_window_and_constants_are_checked(numbers: tuple[Any, ...]) -> None:
    operator = OPERATORS["em"]
    with pytest.raises(TorchcapsError):
        operator.op(*operator.tensors.values(), *numbers)


@pytest.mark.parametrize(
    "numbers",
    [
        ([2, 2, 0, 0, 0, 0], 1, True, [1.0, 1.0, 1.0]),
        ([4, 2, 1, 0, 0, 0], 1, True, [1.0, 1.0, 1.0]),
        ([2, 2, 1, 3, 0, 0], 1, True, [1.0, 1.0, 1.0]),
        ([2, 2, 1, 0, 2, 0], 1, True, [1.0, 1.0, 1.0]),
        ([2, 2, 1, 0, 0, 2], 1, True, [1.0, 1.0, 1.0]),
        ([2, 2, 1, 0, 0, 1], 1, True, [1.0, 1.0, 1.0]),
        ([2, 2, 1, 0, 0], 1, True, [1.0, 1.0, 1.0]),
        ([2, 2, 1, 0, 0, 0], 0, True, [1.0, 1.0, 1.0]),
        ([2, 2, 1, 0, 0, 0], 1, True, [1.0, 1.0]),
        ([2, 2, 1, 0, 0, 0], 2, False, [0.1, 1e-7, 0.0, 1.0, 1.0]),
    ],
)
def test_gaussian_numbers_are_checked(numbers: tuple[Any, ...]) -> None:
    tensors = {**OPERATORS["gaussian em"].tensors, "betas": torch.randn(2, 5)}
    with pytest.raises(TorchcapsError):
        torch.ops.torchcaps.gaussian_routing(*tensors.values(), *numbers)


def test_seven_betas_for_seven_thousand_parents() -> None:
    tensors = {**OPERATORS["em"].tensors, "weight": torch.zeros(8, 7000, 4, 4), "betas": torch.zeros(2, 7)}
    with raises_about(ShapeError, "betas", (2, 7)):
        OPERATORS["em"].run(**tensors)


@pytest.mark.parametrize("numbers", [(0, False, False, 0), (3, False, False, 3), (3, False, False, -1)])
def test_dynamic_numbers_are_checked(numbers: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError):
        torch.ops.torchcaps.dynamic_routing(*OPERATORS["dynamic"].tensors.values(), *numbers)


def test_backward_checks_gradients_and_saved_outputs() -> None:
    poses, weight, bias = OPERATORS["dynamic"].tensors.values()
    presquash, grad = torch.randn(3, 3, 3, 6), torch.randn(3, 3, 6)
    call = torch.ops.torchcaps.dynamic_routing_backward
    numbers, needed = (3, False, False, 0), [True] * 3
    assert len(call([poses, weight, bias], [True] * 3, [presquash], [grad, presquash], *numbers, needed)) == 3
    with raises_about(ShapeError, "saved"):
        call([poses, weight, bias], [True] * 3, [presquash[:1]], [grad, presquash], *numbers, needed)
    with raises_about(ShapeError, "grads"):
        call([poses, weight, bias], [True] * 3, [presquash], [grad[:1], presquash], *numbers, needed)


# Held to the reference in Triton's interpreter: tests/ops/triton.
TRITON = {"dynamic_triton", "attend_triton", "gaussian_triton"}


def test_every_registered_operator_is_covered() -> None:
    names = {name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("torchcaps::")}
    covered = {operator.name for operator in OPERATORS.values()} | {"recompute"} | TRITON
    # The first schema of an operator carries its overload; backward operators belong to their forward ones.
    assert {name.partition(".")[0].removesuffix("_backward") for name in names} == covered


@every_operator
def test_empty_batch_has_empty_results_and_zero_gradients(operator: Operator) -> None:
    batch_axis = {"logits": 2, "share": 2, "activations": 1 if operator.name == "self_routing" else 0}
    batch_axis |= dict.fromkeys(("poses", "key", "keys"), 0)
    empty = {
        name: None if tensor is None else tensor.narrow(batch_axis[name], 0, 0) if name in batch_axis else tensor
        for name, tensor in operator.tensors.items()
    }
    leaves = {
        name: None if tensor is None else tensor.clone().requires_grad_(name not in operator.without_gradient)
        for name, tensor in empty.items()
    }
    out = operator.run(**leaves)
    assert not any(tensor.numel() for tensor in out)
    given = [leaf for leaf in leaves.values() if leaf is not None and leaf.requires_grad]
    for grad in torch.autograd.grad(out, given, [torch.zeros_like(tensor) for tensor in out]):
        assert bool((grad == 0).all())


@pytest.mark.parametrize("shared", [False, True])
def test_poses_without_entries(shared: bool) -> None:
    # A pose size of 0 divided by zero in the backward pass, which ended the process.
    poses = torch.zeros(2, 5, 0, requires_grad=True)
    weight = torch.zeros(*([] if shared else [5]), 3, 0, 6, requires_grad=True)
    bias = torch.randn(3, 6, requires_grad=True)
    out, _ = torch.ops.torchcaps.dynamic_routing(poses, weight, bias, 3, False, False, 0)
    assert out.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), [poses, weight, bias]))


@pytest.mark.parametrize("name", ["em", "gaussian em"])
def test_grids_with_too_many_cells_or_no_children_are_refused(name: str) -> None:
    operator = OPERATORS[name]
    size = operator.tensors["poses"].shape[-1]  # pyright: ignore[reportOptionalMemberAccess]
    for grid in ((2**16, 2**16, 2), (3, 4, 0)):
        meta = {key: None if tensor is None else tensor.to("meta") for key, tensor in operator.tensors.items()}
        meta["poses"] = torch.empty(2, *grid, size, device="meta")
        meta["activations"] = torch.empty(2, *grid, device="meta")
        with raises_about(ShapeError, "poses"):
            operator.run(**meta)


def test_library_refuses_grids_with_too_many_cells() -> None:
    sizes = [1, 2**16, 2**16, 1, 1, 1, 1, 1, 2**20, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0]
    with pytest.raises(RuntimeError, match="cells"):
        _native.call("gaussian_forward", [torch.ones(9)] * 9, sizes)


@pytest.mark.parametrize(
    ("tensors", "present", "needed", "argument"),
    [
        (3, [True, True], [True] * 3, "present"),
        (2, [False, True, True], [True] * 3, "present"),
        (2, [True] * 3, [True] * 3, "tensors"),
        (3, [True] * 3, [True], "needed"),
    ],
)
def test_lists_of_backward_operators_are_checked(tensors: int, present: Any, needed: Any, argument: str) -> None:
    given = list(OPERATORS["dynamic"].tensors.values())[:tensors]
    presquash, grad = torch.randn(3, 3, 3, 6), torch.randn(3, 3, 6)
    with raises_about(ConfigError, argument):
        torch.ops.torchcaps.dynamic_routing_backward(
            given, present, [presquash], [grad, presquash], 3, False, False, 0, needed
        )


def recompute(poses: Tensor, activations: Tensor, weight: Tensor, options: str = "{}", window: Any = None) -> Any:
    numbers, kinds = ([0] * 5, "") if window is None else (window, "global matrix")
    return torch.ops.torchcaps.recompute(
        "dynamic", poses, activations, weight, None, [], "", options, numbers, kinds, 1000, False
    )


def test_recompute_checks_its_arguments() -> None:
    poses, activations, weight = torch.randn(2, 5, 4), torch.rand(2, 5), torch.randn(5, 3, 4, 6)
    assert recompute(poses, activations, weight)[0].isfinite().all()
    for changed in ((poses.to("meta"), activations, weight), (poses, activations, weight.to("meta"))):
        with raises_about(ConfigError, "device", "meta"):
            recompute(*changed)
    with raises_about(ConfigError, "options"):
        recompute(poses, activations, weight, "[" * 9)
    with raises_about(ShapeError, "poses"):
        recompute(poses, activations, weight, window=[7, 7, 3, 3, 1])


def test_triton_checks_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "unavailable", lambda device, dtype: "no GPU")
    poses, weight = torch.randn(2, 5, 4), torch.randn(5, 3, 4, 6)
    call = torch.ops.torchcaps.dynamic_triton
    with raises_about(ConfigError, "triton", "no GPU"):
        call(poses, weight, None, 3, False, True)
    with raises_about(ShapeError, "poses"):
        call(poses[:, 1:], weight, None, 3, False, True)
    with raises_about(ConfigError, "weight", "meta"):
        call(poses, weight.to("meta"), None, 3, False, True)
    with raises_about(ConfigError, "iters", 0):
        call(poses, weight, None, 0, False, True)
    with raises_about(ShapeError, "presquash"):
        torch.ops.torchcaps.dynamic_triton_backward(
            torch.randn(2, 3, 6), poses, weight, torch.randn(3, 1, 3, 6), False, True
        )


def test_triton_passes_check_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "unavailable", lambda device, dtype: "no GPU")
    poses, activations, weight = torch.randn(2, 6, 1, 4), torch.rand(2, 6, 1), torch.randn(4, 3, 4, 5)
    window, flags = [3, 2, 2, 2, 1, 0], [False, False, True, False]
    key = torch.randn(2, 2, 3, 5)

    def attend(poses: Tensor = poses, key: Tensor | None = key, window: list[int] = window, flags: Any = flags) -> Any:
        return torch.ops.torchcaps.attend_triton(poses, activations, weight, key, *[None] * 4, window, flags)

    with raises_about(ConfigError, "triton", "no GPU"):
        attend()
    with raises_about(ShapeError, "poses", "(2, 5, 1, 4)"):
        attend(poses[:, 1:])
    with raises_about(ShapeError, "key", "(2, 1, 3, 5)"):
        attend(key=key[:, 1:])
    with raises_about(ShapeError, "window", "(4, 2)"):
        attend(window=[3, 2, 4, 2, 1, 0])
    with raises_about(ConfigError, "window", "[3, 2, 0, 2, 1, 0]"):
        attend(window=[3, 2, 0, 2, 1, 0])
    with raises_about(ConfigError, "weighted"):
        attend(flags=[False, True, True, False])
    with raises_about(ConfigError, "poses", "int64"):
        attend(poses.long())
    gaussian = torch.ops.torchcaps.gaussian_triton
    with raises_about(ConfigError, "triton", "no GPU"):
        gaussian(poses, activations, weight, key, None, None, None, None, window, False)
    with raises_about(ConfigError, "sharp"):
        gaussian(poses, activations, weight, key, key, None, None, None, window, False)
    with raises_about(ShapeError, "activations", "(2, 5, 1)"):
        gaussian(poses, activations[:, 1:], weight, key, None, None, None, None, window, False)
