"""Judges and checks that compute on pixels: the measured judge, metrics, probes, and a screen for degenerate outputs."""
