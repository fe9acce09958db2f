"""What the doctests leave out: modules that need an extra that is not installed."""

import importlib.util

needing_triton = [f"torchcaps/ops/_triton/{name}.py" for name in ("kernels", "launch")]
collect_ignore = [] if importlib.util.find_spec("triton") else needing_triton
