"""What people read of a run: one kind of table, made from statistics, in several forms.

tables      Table, Figure       the one kind of table; as terminal text, Markdown, LaTeX, CSV and JSON
scored      load, Judged        a run's judgements as the columns that statistics take
means       tables, document    `report`: coverage, means, aggregates, pass rates, ranks, noise
differences tables              `compare` and `drift`
agreement   tables              `agree`: judges against people, and people among themselves
preference  preferred, tables   `agree --preferences`: which of two edits is better
page        page                `report -o FILE.html`: all of it in one file, with charts and galleries
gallery     choices, galleries  edits worth looking at, as cards
charts      dots, heat ...      inline SVG
markup      tag, table          HTML that escapes whatever it did not make
"""
