"""Known-answer edits: make them, and test a judge with them.

drawing   Photograph, Region, ...  photographs that scikit-image carries, and operations on pixels
defects   FAMILIES, Defect         one defect at a time, at rising doses, each with the factor that must notice
making    probes, Probe            the set: doses, controls, injections; its manifests and runs
result    figures, ProbeResult     sensitivity, specificity, monotonicity, controls and injections from judgements
demo      pretend, EDITORS         the demo's edits: pretend editors of which two are equally good and one is worse
"""
