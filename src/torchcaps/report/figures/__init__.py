"""The figures of the registry, one module each: `requires(context)` and `draw(context)`."""
