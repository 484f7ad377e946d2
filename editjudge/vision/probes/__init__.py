"""Known-answer edits: make them, and test a judge with them.

drawing   Photograph, Region, ...  photographs included in scikit-image, and operations on pixels
defects   FAMILIES, Defect         one defect at a time, at rising doses, each with the factor that must notice
making    probes, Probe            the set: doses, controls, injections; its manifests and runs
result    figures, ProbeResult     sensitivity, specificity, monotonicity, controls and injections from judgements
demo      pretend, EDITORS         edits of the demo by simulated editors, two equally good and one worse
"""
