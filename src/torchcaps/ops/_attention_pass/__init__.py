"""The pass that routings by agreement share: children share themselves out among keys of the parents."""
