"""What the doctests leave out: modules that need an extra that is not installed."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("triton") else ["torchcaps/ops/dynamic/_triton_kernels.py"]
