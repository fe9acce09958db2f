"""A SLURM cluster of this host alone: the real munged, slurmctld and slurmd, in a folder of their own, on loopback."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "squeue", "scancel")
# Tasks need no control groups, and a job may be requeued at once.
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=requeue_delay=1,batch_sched_delay=1,sched_min_interval=1000000
ReturnToService=2
KillWait=60
MinJobAge=300
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def missing_reason() -> str | None:
    """Why there can be no cluster here, or None."""
    if os.geteuid() != 0:
        return "slurmctld and slurmd of a cluster of their own need root"
    found = [program for program in PROGRAMS if find(program) is None]
    return f"not installed: {', '.join(found)} (apt-get install slurm-wlm)" if found else None


def find(program: str) -> str | None:
    places = [os.environ.get("PATH", ""), "/usr/sbin", "/opt/slurm/bin", "/opt/slurm/sbin"]
    return shutil.which(program, path=os.pathsep.join(places))


class Cluster:
    """A cluster that runs; `environment` is that of its commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = {str(Path(find(program) or "").parent) for program in PROGRAMS}
        path = os.pathsep.join([*sorted(programs), os.environ["PATH"]])
        # Tests may themselves run in a job.
        outer = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        self.environment = {**outer, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": path, "OMP_NUM_THREADS": "1"}

    def run(self, *words: str, check: bool = True) -> str:
        """The output of a command."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=900, check=False)
        assert not check or done.returncode == 0, (words, done.stdout, done.stderr, self.logs())
        return done.stdout.strip()

    def state(self, job: str) -> str:
        """The state of a job: PENDING, RUNNING, COMPLETED, ..."""
        words = self.run("scontrol", "show", "job", job).split()
        return next(word.partition("=")[2] for word in words if word.startswith("JobState="))

    def logs(self) -> str:
        files = [self.folder / f"{name}.log" for name in ("slurmctld", "slurmd", "munged")]
        return "\n".join(f"{file.name}: {file.read_text()[-1500:]}" for file in files if file.exists())


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster and end its processes, whatever happens."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    # munged refuses folders that others may write to.
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    config = CONFIG.format(host=host, folder=folder, ports=_free_ports(2), cpus=2)
    (folder / "slurm.conf").write_text(config)
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    found = Cluster(folder)
    munge = [f"--{name}={folder}/munge{ending}" for name, ending in (("socket", ".socket"), ("key-file", ".key"))]
    munge += [f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed"]
    commands = [["munged", "--foreground", "--force", *munge], ["slurmctld", "-D", "-c"], ["slurmd", "-D"]]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for words in commands:
            program = find(words[0])
            assert program is not None
            with (folder / f"{words[0]}.out").open("wb") as out:
                processes.append(
                    subprocess.Popen([program, *words[1:]], env=found.environment, stdout=out, stderr=subprocess.STDOUT)
                )
            time.sleep(1)
        _wait_until_idle(found, processes)
        yield found
    finally:
        for process in reversed(processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_idle(found: Cluster, processes: list[subprocess.Popen[bytes]]) -> None:
    end = time.monotonic() + 900
    while "State=IDLE" not in found.run("scontrol", "show", "node", check=False):
        ended = [process.args for process in processes if process.poll() is not None]
        assert not ended, (ended, found.logs(), [file.read_text() for file in found.folder.glob("*.out")])
        assert time.monotonic() < end, found.logs()
        time.sleep(0.5)
