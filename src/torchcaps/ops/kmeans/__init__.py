"""Routing as clustering: k-means with soft assignment (Su Jianlin 2018)."""

from torchcaps.ops.kmeans.reference import kmeans_routing, kmeans_steps

__all__ = ["kmeans_routing", "kmeans_steps"]
