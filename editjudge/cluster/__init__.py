"""The same work on a cluster: a coordinator that all workers ask, workers that judge splits, a driver that gathers."""
