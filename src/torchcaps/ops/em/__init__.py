"""EM routing between matrix capsules (Hinton, Sabour, Frosst 2018)."""

from torchcaps.ops.em.reference import em_routing, em_steps
from torchcaps.ops.em.schedules import inverse_temps

__all__ = ["em_routing", "em_steps", "inverse_temps"]
