"""Lightning's strategies for several processes: DDP, and FSDP2 with checkpoints like those of DDP."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from torchcaps.errors import ConfigError
from torchcaps.nn import CapsLinear, Router, shard_parents
from torchcaps.nn.shards import why_not_sharded
from torchcaps.train._cluster import Group
from torchcaps.train.recipe import TrainerRecipe

_FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)


def make_strategy(trainer: TrainerRecipe, group: Group) -> Any:
    """Return the strategy of a run.

    Args:
        trainer: The `trainer` table of the recipe.
        group: The processes.

    Returns:
        The strategy; "auto" for one process.
    """
    if group.world == 1:
        return "auto"
    timeout = timedelta(seconds=trainer.timeout)
    if trainer.strategy == "fsdp2":
        strategy: Any = ShardedStrategy(group.world, 1, save_distributed_checkpoint=False, timeout=timeout)
        strategy.cluster_environment = group.environment
        return strategy
    # Some routers leave a weight out of the loss: self-routing does so with the votes for the classes.
    return DDPStrategy(cluster_environment=group.environment, timeout=timeout, find_unused_parameters=True)


class ShardedStrategy(ModelParallelStrategy):
    """FSDP2 whose checkpoints are single files with whole tensors: a run resumes under any strategy and world size."""

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Read a checkpoint and distribute its tensors.

        Args:
            checkpoint_path: The file.
            weights_only: Ignored: code is never run.

        Returns:
            The rest of the checkpoint.
        """
        checkpoint = self.checkpoint_io.load_checkpoint(checkpoint_path)
        assert self.model is not None
        options = StateDictOptions(full_state_dict=True)
        set_model_state_dict(self.model, checkpoint["state_dict"], options=options)
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            set_optimizer_state_dict(self.model, optimizer, _named(state, optimizer, self.model), options=options)
        return checkpoint


def _named(state: dict[str, Any], optimizer: Any, model: nn.Module) -> dict[str, Any]:
    """Return the state of an optimiser with names of parameters in place of their numbers."""
    known = {id(parameter): name for name, parameter in model.named_parameters()}
    order = [known[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
    groups, place = [], 0
    for group in state["param_groups"]:
        groups.append({**group, "params": order[place : place + len(group["params"])]})
        place += len(group["params"])
    return {"state": {order[int(number)]: value for number, value in state["state"].items()}, "param_groups": groups}


def shard_model(model: nn.Module, mesh: Any) -> None:
    """Distribute the weights of a model over processes: each layer with parameters alone, then the rest.

    The parents of dense capsule layers are divided, and compute where they are (`nn.shard_parents`), if their number is
    a multiple of that of the processes and the routing allows it. Other weights are divided over their first axis, and
    gathered while their layer computes.

    Args:
        model: The model.
        mesh: The processes.

    Raises:
        ConfigError: If a parameter is a single number, as the learned background of EM routing is.
    """
    for name, parameter in model.named_parameters():
        if not parameter.dim():
            raise ConfigError(f"trainer.strategy: expected 'ddp' for a parameter of one number, got 'fsdp2' ({name})")
    layers = [layer for layer in model.modules() if any(True for _ in layer.parameters(recurse=False))]
    divided: set[nn.Parameter] = set()
    for layer in layers:
        if isinstance(layer, CapsLinear) and why_not_sharded(layer, mesh) is None:
            shard_parents(layer, mesh)
            divided |= {parameter for parameter in layer.parameters() if isinstance(parameter, DTensor)}
    # Inner layers first. The parameters of a router belong to the layer that reads them.
    for layer in reversed(layers):
        if layer is not model and not isinstance(layer, Router) and set(layer.parameters()) - divided:
            fully_shard(layer, mesh=mesh, ignored_params=divided)
    fully_shard(model, mesh=mesh, ignored_params=divided)


def full_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the whole weights of a model that may be distributed; all processes call it.

    Args:
        model: The model.

    Returns:
        A copy of its state dict on the CPU; without weights in all processes but the first, if it is distributed.
    """
    if isinstance(model, FSDPModule):
        return cast(dict[str, Tensor], get_model_state_dict(model, options=_FULL))
    return {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
