"""Known-answer edits: make them, judge a judge with them.

photographs  Photograph, load      what scikit-image carries, and where in it things are
drawing      recoloured, ball ...  operations on pixels
defects      FAMILIES, Defect      one defect at a time, at rising doses, each with the factor that must notice
making       probes, Probe         the whole set: doses, controls, injections
still_life   still_life            drawn scenes, for the demo
pretend      pretend, EDITORS      the demo's edits: pretend editors of which two are equally good and one is worse
result       figures, ProbeResult       sensitivity, specificity, monotonicity, controls and injections from judgements
page         tables, html          the same for people
"""
