"""The same work on a cluster: a coordinator that all workers ask, workers that judge splits, a driver that gathers."""

from importlib.util import find_spec

from editjudge.errors import UsageError

_missing = [name for name in ("numpy", "pyarrow", "ray") if find_spec(name) is None]
if _missing:
    raise UsageError(f"--engine ray needs an extra ({', '.join(_missing)}): pip install 'editjudge[ray]'")
