"""The panel Introduction: what a capsule, a pose, a vote, agreement and coupling are. It uses the toy's endpoints."""
