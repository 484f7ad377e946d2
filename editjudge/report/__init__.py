"""What people read of a run: one kind of table, made from statistics, in several forms.

tables      Table, Figure        the one kind of table: terminal, Markdown, LaTeX, CSV, JSON
run_data    load, RunData        a run's judgements as the columns that statistics take
summary     measure, tables      `report`: coverage, means, aggregates, pass rates, ranks, noise
comparison  compare_tables       `compare` and `drift`
agreement   agreed, tables       `agree`: judges against people, and people among themselves
people      agreement_of         the ratings of the store beside a run
preference  tables               `agree --preferences`: which of two edits is better
forms       rendered             a whole report as HTML, Markdown, LaTeX, CSV or JSON
page        page                 the HTML report: tables, charts and galleries in one file
gallery     choices, sections    edits worth looking at, as cards
edit_view   EditView             thumbnails of an edit, and the question asked about it
charts      DotChart, HeatMap    what charts show
templating  render               Jinja2, with templates/*.html and one stylesheet
"""
