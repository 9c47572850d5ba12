"""Measurements: ours, the peers and the floor, side by side in one run."""
