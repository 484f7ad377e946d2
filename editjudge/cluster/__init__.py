"""The same work on a cluster: a conductor whom all workers ask, workers that judge pieces, a driver that gathers."""
