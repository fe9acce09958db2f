"""The light install: layers and models without extras, and one sentence where an extra is missing."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from fresh import run_fresh
from raising import raises_about
from torchcaps._extras import EXTRAS, explain_missing
from torchcaps.errors import MissingPackageError

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
# torch itself depends on these two.
OPTIONAL = sorted({name for names in EXTRAS.values() for name in names} - {"filelock", "jinja2"})
# Import names that differ from the name of the package.
RENAMED = {"PIL": "pillow", "sklearn": "scikit-learn", "mlflow": "mlflow-skinny"}


def run_light(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which no optional package can be imported."""
    return run_fresh(f"import sys\nfor name in {OPTIONAL}: sys.modules[name] = None\n{code}")


def test_table_lists_what_the_project_file_lists() -> None:
    for extra, packages in EXTRAS.items():
        declared = PROJECT["optional-dependencies"][extra]
        names = {re.split(r"[^A-Za-z0-9-]", each)[0] for each in declared} - {"torchcaps"}
        assert {str(RENAMED.get(package, package)).replace("_", "-") for package in packages} == names


def test_base_install_needs_three_packages() -> None:
    assert [re.split(r"[^A-Za-z0-9-]", each)[0] for each in PROJECT["dependencies"]] == [
        "numpy",
        "safetensors",
        "torch",
    ]


def test_layers_models_and_weights_work_without_extras() -> None:
    code = """
import torch, torchcaps as tc
capsules = tc.create_model("capsnet_small", pretrained="mnist_dynamic")(torch.rand(2, 1, 28, 28))
loss = tc.nn.MarginLoss()(capsules, torch.tensor([1, 2]))
loss.backward()
tc.testing, tc.ops, tc.diagnostics
print(len(tc.load_data("digits", "test")), tc.list_routers()[0])
"""
    done = run_light(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "1000"


@pytest.mark.parametrize(
    "code",
    [
        "import torchcaps as tc; tc.viz",
        "import torchcaps as tc; tc.evaluation",
        "import torchcaps as tc; tc.train.fit",
        "import torchcaps as tc; tc.report.write_report",
        "import torchcaps as tc; tc.data.read_image('image.png', (1, 28, 28))",
        "import torchcaps.viz",
        "import torchcaps.experiments",
    ],
)
def test_missing_extra_is_one_sentence_with_the_command(code: str) -> None:
    done = run_light(code)
    assert done.returncode == 1
    assert "pip install 'torchcaps[train]'" in done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("command", [["models"], ["info"], ["train", "digits"]])
def test_commands_name_the_missing_extra(command: list[str]) -> None:
    done = run_light(f"from torchcaps.cli import main; sys.exit(main({command}))")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'torchcaps[train]'" in done.stderr


def test_help_and_version_need_no_extra() -> None:
    done = run_light("from torchcaps.cli import main; sys.exit(main(['--version']) or main(['--help']))")
    assert done.returncode == 0, done.stderr
    assert importlib.metadata.version("torchcaps") in done.stdout


def test_other_missing_modules_stay_as_they_are() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), explain_missing():
        importlib.import_module("no_such_module")
    with raises_about(MissingPackageError, "optuna:", "torchcaps[sweep]"), explain_missing():
        raise ModuleNotFoundError("No module named 'optuna'", name="optuna")
