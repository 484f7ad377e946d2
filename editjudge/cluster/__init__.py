"""Runs on a Ray cluster. Each worker runs the ordinary engine on its part of the manifest."""
