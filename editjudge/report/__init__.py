"""What people read of a run: one kind of table, made from statistics, in several forms.

tables      Table, Figure       the one kind of table; as terminal text, Markdown, LaTeX, CSV and JSON
scored      load, Judged        a run's judgements as the columns that statistics take
means       tables, document    `report`: coverage, means, aggregates, pass rates, ranks, noise
differences tables              `compare` and `drift`
agreement   tables              `agree`: judges against people, and people among themselves
"""
