"""Questions to a judge, and the contract of its answers."""
