"""Results for people: one kind of table, made from statistics, in several formats.

answers     Answer               the answer of each verb: document, leading lines and tables
tables      Table, Figure        the one kind of table: terminal, Markdown, LaTeX, CSV, JSON
run_data    load, RunData        a run's judgements as the columns that statistics take
selection   deciding, Primary    the scores that decide, and factors that two runs have in common
summary     measure, tables      `report`: coverage, means, aggregates, pass rates, ranks, noise
comparison  compare_tables       `compare` and `drift`
agreement   agreed, tables       `agree`: judges against people, and people among themselves
pairwise    PairRun, preferred   runs of pairs, and `agree --preferences`
gating      gate_run             `gate`
page        page                 the HTML report: tables, charts and galleries in one file
gallery     choices, sections    edits worth looking at, as cards
charts      DotChart, HeatMap    charts as data, and as a plot in Python
templating  render               Jinja2, with templates/*.html and one stylesheet
notebook    Judgements           what a notebook shows of a verdict and of a run
"""
