"""`--submit slurm` and `--submit local`: several workers that share the runs of a command, through submitit."""

from __future__ import annotations

import shlex
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps._registry import nearest
from torchcaps.cli._args import program, read_options
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output

# Folder of scripts and logs, beside the runs.
JOBS = "jobs"
# Minutes after which SLURM ends a worker, and submitit queues it again.
MINUTES = 24 * 60


def add_submit(parser: ArgumentParser) -> None:
    """Add the options --submit, --workers, --slurm and --print."""
    parser.add_argument(
        "--submit",
        choices=("slurm", "local"),
        help="start workers that share the runs: an array of jobs on SLURM, or processes on this host",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="with --submit: number of workers (default: 4)")
    parser.add_argument(
        "--slurm",
        action="append",
        metavar="KEY=VALUE",
        help="with --submit slurm: an option of sbatch, such as partition=gpu, time=120 (minutes), cpus_per_task=4, "
        "mem=16GB or gpus_per_node=1; may be repeated",
    )
    parser.add_argument("--print", action="store_true", help="with --submit slurm: print the script, submit nothing")


class Worker:
    """One worker: runs a command in its process. SLURM's time limit queues it again.

    Args:
        words: The verb and its arguments.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)

    def __call__(self) -> None:
        from torchcaps.cli import main

        code = main(self.words)
        if code:
            raise RuntimeError(f"torchcaps {shlex.join(self.words)}: exit code {code}")

    def checkpoint(self) -> Any:
        """Return what submitit queues when the time is over: the same command, which resumes."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit(args: Namespace, words: Sequence[str], folder: Path, out: Output) -> int | None:
    """Start the workers of a command, if `--submit` is given.

    Args:
        args: The arguments with those of `add_submit`.
        words: The verb and its arguments, without --out and without those of `add_submit`.
        folder: The folder of the experiment.
        out: The output.

    Returns:
        The exit code if the command ends here; None if it continues, after local workers or without --submit.

    Raises:
        ConfigError: If options do not fit together, an option of sbatch is unknown, or there is no SLURM.
    """
    if args.submit is None:
        for name in ("workers", "slurm", "print"):
            if getattr(args, name):
                raise ConfigError(f"--{name}: expected with --submit, got it alone")
        return None
    workers = 4 if args.workers is None else args.workers
    if workers < 1:
        raise ConfigError(f"--workers: expected at least 1, got {workers}")
    if args.submit == "local" and (args.slurm or args.print):
        raise ConfigError("--slurm, --print: expected with --submit slurm, got --submit local")
    # Models and routers of the user's own are registered in every worker.
    imports = [word for module in args.modules for word in ("--import", module)]
    worker = Worker([*words, *imports, "--out", str(folder.absolute()), "--quiet"])
    jobs = folder.absolute() / JOBS
    if args.submit == "local":
        _run_locally(worker, jobs, workers, out)
        return None
    parameters = _parameters(args.slurm or (), words[0])
    if args.print:
        script = sbatch_script(jobs, workers, parameters)
        out.document({"script": script})
        out.say(script)
        return 0
    if shutil.which("sbatch") is None or shutil.which("srun") is None:
        raise ConfigError(
            "--submit: expected SLURM on this host, but sbatch and srun are not on the PATH (--print shows the script, "
            "--submit local starts processes here)"
        )
    return _submit_array(worker, jobs, workers, parameters, out)


def sbatch_script(jobs: Path, workers: int, parameters: Mapping[str, Any]) -> str:
    """Return the script that submitit gives to sbatch.

    Args:
        jobs: Folder of scripts and logs.
        workers: Number of jobs of the array.
        parameters: Options of sbatch.

    Returns:
        The script.
    """
    from submitit.slurm.slurm import _make_sbatch_string

    command = f"{shlex.quote(sys.executable)} -u -m submitit.core._submit {shlex.quote(str(jobs))}"
    count = workers if workers > 1 else None
    return _make_sbatch_string(command=command, folder=jobs, map_count=count, **parameters)


def _parameters(words: Sequence[str], verb: str) -> dict[str, Any]:
    from submitit.slurm.slurm import _get_default_parameters

    given = {key.replace("-", "_"): value for key, value in read_options(words).items()}
    known = _get_default_parameters()
    for key in given:
        if key not in known:
            raise ConfigError(f"--slurm: unknown option '{key}' of sbatch{nearest(key, known)}")
    return {"time": MINUTES, "job_name": f"torchcaps-{verb}", **given}


def _submit_array(worker: Worker, jobs: Path, workers: int, parameters: Mapping[str, Any], out: Output) -> int:
    from submitit import SlurmExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        executor = SlurmExecutor(folder=jobs)
        executor.update_parameters(**parameters)
        with executor.batch():
            submitted = [executor.submit(worker) for _ in range(workers)]
    except (FailedJobError, FailedSubmissionError) as error:
        reason = (str(error).strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"--submit: expected sbatch to accept the array, got an error ({reason})") from None
    names = [job.job_id for job in submitted]
    command = f"{program()} {shlex.join(worker.words[:-1])}"
    out.document({"jobs": names, "logs": jobs, "command": command})
    out.say(f"submitted: {', '.join(names)}", style="bold")
    out.facts({"logs": jobs, "table, when they are done": command})
    return 0


def _run_locally(worker: Worker, jobs: Path, workers: int, out: Output) -> None:
    from submitit import LocalExecutor
    from submitit.core.utils import UncompletedJobError

    executor = LocalExecutor(folder=jobs)
    executor.update_parameters(timeout_min=MINUTES)
    started = [executor.submit(worker) for _ in range(workers)]
    if out.shows_progress:
        print(f"started {workers} workers; logs in {jobs}", file=sys.stderr)
    try:
        for job in started:
            try:
                error = job.exception()
            except UncompletedJobError:
                error = "it was killed"
            # Its runs were done by others, or are now done here.
            if error is not None:
                print(f"note: worker {job.job_id} failed, see {job.paths.stderr}", file=sys.stderr)
    finally:
        for job in started:
            if not job.done():
                job.cancel(check=False)
