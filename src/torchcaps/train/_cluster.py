"""The processes of one run: started by torchrun, SLURM, MPI, or the run itself; found and joined in one way."""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.mpi import MPIEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh

from torchcaps.errors import ConfigError, MissingPackageError, ProcessError
from torchcaps.train.recipe import TrainerRecipe


class Group:
    """This process among those that train one run together.

    Args:
        environment: Environment of the launcher; None for one process.
        nodes: Number of hosts.
        devices: Number of processes on each host.

    Attributes:
        rank: Index of this process; the first one makes the folder, writes and evaluates.
    """

    def __init__(self, environment: ClusterEnvironment | None = None, nodes: int = 1, devices: int = 1) -> None:
        self.environment = environment
        self.nodes = nodes
        self.devices = devices
        self.rank = 0 if environment is None else environment.global_rank()
        self._sent = False
        self._trainer = TrainerRecipe()

    @property
    def world(self) -> int:
        """Number of processes."""
        return self.nodes * self.devices

    def send(self, message: dict[str, Any]) -> None:
        """Send the other processes what they need to train, or why they cannot; the first process calls it once.

        Args:
            message: The message.
        """
        if self.world > 1 and not self._sent:
            self._sent = True
            with self._reporting():
                distributed.broadcast_object_list([message], src=0, device=torch.device("cpu"))

    def receive(self) -> dict[str, Any]:
        """Wait for the message of the first process.

        Returns:
            The message.

        Raises:
            ProcessError: If the first process cannot train.
        """
        messages: list[Any] = [None]
        with self._reporting():
            distributed.broadcast_object_list(messages, src=0, device=torch.device("cpu"))
        if "error" in messages[0]:
            raise ProcessError(messages[0]["error"])
        return messages[0]

    @contextmanager
    def joined(self, trainer: TrainerRecipe) -> Iterator[Group]:
        """Connect the processes; a process that is gone or silent is an error after `trainer.timeout` seconds.

        Args:
            trainer: The `trainer` table of the recipe.

        Yields:
            The group.

        Raises:
            ProcessError: If a process does not answer.
        """
        if self.environment is None or self.world == 1:
            yield self
            return
        os.environ["MASTER_ADDR"] = self.environment.main_address
        os.environ["MASTER_PORT"] = str(self.environment.main_port)
        cuda = trainer.accelerator in ("auto", "cuda") and torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(self.environment.local_rank())
        self._trainer = trainer
        reason = "the first process has stopped"
        try:
            with self._reporting():
                distributed.init_process_group(
                    "cpu:gloo,cuda:nccl" if cuda else "gloo",
                    rank=self.rank,
                    world_size=self.world,
                    timeout=timedelta(seconds=trainer.timeout),
                )
            yield self
        except BaseException as error:
            reason = str(error)
            raise
        finally:
            # The others may still wait for a message; if they do not, the first error counts.
            if self.rank == 0 and distributed.is_initialized():
                with suppress(ProcessError):
                    self.send({"error": reason})
            self.leave()

    def _reporting(self) -> AbstractContextManager[None]:
        return reporting_lost(self._trainer, self.world)

    def leave(self) -> None:
        """Close the connections: the evaluation after a training is done by the first process alone."""
        self._sent = True
        if distributed.is_initialized():
            # What refers to the connections, such as divided weights, ends before they do.
            gc.collect()
            _release_meshes()
            distributed.destroy_process_group()


def _release_meshes() -> None:
    """Let all device meshes forget their connections: PyTorch's caches of divided tensors keep the meshes.

    Else the threads of gloo live until the interpreter ends, where what they hold can no longer be destroyed: the
    process aborts now and then.
    """
    for mesh in gc.get_objects():
        if type(mesh) is DeviceMesh:
            vars(mesh).get("_pg_registry", {}).clear()


@contextmanager
def reporting_lost(trainer: TrainerRecipe, world: int, hint: str = "") -> Iterator[None]:
    """Replace the error of a lost connection by one sentence.

    Args:
        trainer: The `trainer` table of the recipe.
        world: Number of processes.
        hint: How to continue.

    Yields:
        Nothing.

    Raises:
        ProcessError: If a process is gone, or did not answer in time.
    """
    try:
        yield
    except ProcessError:
        raise
    except (RuntimeError, ConnectionError) as error:
        if world == 1 or not _is_lost(error):
            raise
        expected = f"trainer.timeout: expected {world} processes that answer within {trainer.timeout:g} s"
        raise ProcessError(f"{expected}, got one that is gone or silent{hint}") from error


def _is_lost(error: BaseException) -> bool:
    words, text = ("gloo", "nccl", "connection closed", "connection reset", "timed out", "timeout"), str(error).lower()
    return isinstance(error, distributed.DistError | ConnectionError) or any(word in text for word in words)


def launched() -> Group | None:
    """Return the processes that torchrun, srun or mpirun started.

    Returns:
        The group, not yet connected; None if this process was started alone.

    Raises:
        ConfigError: If hosts have different numbers of processes.
    """
    if TorchElasticEnvironment.detect():
        world, local = int(os.environ["WORLD_SIZE"]), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        environment: ClusterEnvironment = TorchElasticEnvironment()
        nodes = max(1, world // local)
    elif (sizes := _mpi_sizes()) is not None:
        world, local = sizes
        environment, nodes = _mpi_environment(), max(1, world // local)
    # In a job script without srun there is one task, and nothing to join.
    elif int(os.environ.get("SLURM_NTASKS", 1)) > 1 and "SLURM_PROCID" in os.environ and SLURMEnvironment.detect():
        world, nodes = int(os.environ["SLURM_NTASKS"]), int(os.environ.get("SLURM_NNODES", 1))
        # srun -n alone does not set what Lightning reads.
        os.environ.setdefault("SLURM_NTASKS_PER_NODE", str(_tasks_per_node(world, nodes)))
        # Lightning's own way to put a job back into the queue has checkpoints of its own; `requeue` uses ours.
        environment = SLURMEnvironment(auto_requeue=False)
    else:
        return None
    if world % nodes:
        raise ConfigError(f"trainer.devices: expected as many processes on each of {nodes} hosts, got {world} in all")
    return Group(environment, nodes, world // nodes)


def _tasks_per_node(world: int, nodes: int) -> int:
    """Return the number of SLURM's tasks on each node."""
    text = os.environ.get("SLURM_STEP_TASKS_PER_NODE", os.environ.get("SLURM_TASKS_PER_NODE", str(world // nodes)))
    # 4(x2) stands for 4,4.
    counts = {int(part) for part in re.findall(r"(\d+)(?:\(x\d+\))?", text)}
    if len(counts) != 1:
        raise ConfigError(f"--ntasks-per-node: expected as many tasks on each node, got {text} (set it for srun)")
    return counts.pop()


def _mpi_sizes() -> tuple[int, int] | None:
    """Return the number of processes that mpirun started, in all and on this host; None if it started none or one."""
    names = [("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")]
    # srun sets these too.
    if "SLURM_PROCID" not in os.environ:
        names.append(("PMI_SIZE", "MPI_LOCALNRANKS"))
    for of_all, of_host in names:
        world = int(os.environ.get(of_all, 1))
        if world > 1:
            return world, int(os.environ.get(of_host, world))
    return None


def _mpi_environment() -> ClusterEnvironment:
    if importlib.util.find_spec("mpi4py") is None:
        raise MissingPackageError(
            "mpi4py: expected an installed package under mpirun, but it is missing (pip install mpi4py)"
        )
    return MPIEnvironment()


def is_first_process() -> bool:
    """Return whether this process writes and reports: the only one, or the first of those of a launcher.

    Returns:
        True in exactly one process.

    Example:
        >>> is_first_process()
        True
    """
    group = launched()
    return group is None or group.rank == 0


def is_restarted() -> bool:
    """Return whether torchrun or SLURM has started this command again, after a failure or from the queue.

    Returns:
        True from the second time.
    """
    return any(int(os.environ.get(f"{name}_RESTART_COUNT", 0)) > 0 for name in ("TORCHELASTIC", "SLURM"))


def launch_id() -> str | None:
    """Return what identifies the launch, also after a restart: the id of the rendezvous or of the job.

    Returns:
        The id; None without a launcher, or if torchrun was not given one.
    """
    found = os.environ.get("TORCHELASTIC_RUN_ID", os.environ.get("SLURM_JOB_ID"))
    return None if found in (None, "", "none") else found


def requeue() -> None:
    """Put the SLURM job of this process back into the queue, if it is one."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    command = ["scontrol", "requeue", job if array is None else f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        warnings.warn(f"{' '.join(command)}: expected the job to be queued again, got {error}", stacklevel=2)
