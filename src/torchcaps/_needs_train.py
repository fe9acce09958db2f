"""Imported first by packages that need the extra `train`: a missing package is then one sentence with the command."""

from importlib.util import find_spec

from torchcaps._extras import EXTRAS, missing_package

for _package in EXTRAS["train"]:
    if find_spec(_package) is None:
        raise missing_package(_package, "train")
