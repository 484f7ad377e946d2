"""Runs on a Ray cluster: each worker runs the ordinary engine on its part of the manifest."""
