"""Questions for a judge, and the rules that its answers must follow."""
