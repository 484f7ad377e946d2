"""Edits with known answers: making them, and testing a judge with them.

drawing   Photograph, Region, ...  photographs included in scikit-image, and operations on pixels
defects   FAMILIES, Defect         single defects at rising doses, each with the factor that must notice it
making    probes, Probe            the probe set (doses, controls, injections), its manifests and runs
result    figures, ProbeResult     sensitivity, specificity, monotonicity, controls and injections from judgements
cues      CUES, HACKS              what must not raise a score, each with its sham
passport  PassportSet, issue       questions about what a judge may be trusted with, and the passport of the answers
demo      pretend, EDITORS         edits for the demo by simulated editors, two equally good and one worse
"""
