"""Results for people: statistics as tables, sentences and pages, in several formats.

answers         Answer                  the answer of a verb: JSON document, leading lines and tables
tables          Table, Figure           a table, written for the terminal or as Markdown, LaTeX or CSV
words           reason_text, plain      reasons of statistics as text, results as JSON
run_data        load, RunData           a run's judgements as the columns that statistics take
selection       deciding, same_rubrics  scores that a comparison uses, and factors that two runs have in common
summary         measure, report         `report`: coverage, means, aggregates, pass rates, ranks, noise
comparison      compare                 `compare`
drift           drift                   `drift`
bridge          bridge, Bridge          `bridge`, and the file by which `compare --through` maps scores
agreement       agree                   `agree`: judges against people, and people among themselves
pairwise        PairRun, report_pairs   pairwise runs, and `agree --preferences`
gating          gate                    `gate`
page            rendered                the report in every format; HTML has tables, charts and galleries in one file
gallery         choices, sections       edits worth looking at, as cards
contradictions  contradictions_of       verdicts that evidence contradicts
charts          DotChart, HeatMap       charts as data, and as a plot in Python
templating      render                  Jinja2, with templates/*.html and one stylesheet
notebook        Judgements              verdicts and runs in a notebook
"""
