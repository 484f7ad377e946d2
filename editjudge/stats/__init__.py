"""What scores mean and whether a difference is real: columns in, frozen dataclasses out, nothing read or written.

columns      Scores, Ratings         what goes in: one row a score, names as codes
summary      summarise, rank ...     means, intervals, failures, aggregates, pass rates, ranks
compare      compare                 two models, judges or prompts on the same edits
noise        noise                   variance of edits, judges and repeats; how many more are needed
agreement    agree                   judges against people
ceiling      ceiling                 people among themselves, and each rater
preference   accuracy ...            which of two edits is better
pairwise     summarise               the same asked in both orders: flips, win rates, strengths
active       next_games              which pairs of models to ask about next
calibration  calibrate, powered_mean a judge's scale onto people's; few ratings and many scores
gate, drift  gate, drift             pass / fail / not enough evidence; the same edits at another time
bootstrap, concordance               draws of whole groups, and figures of paired columns in every draw
inference    infer, mean_interval    p, interval and detectable difference of a mean, from one distribution
correction   holm, wilcoxon          p-values corrected together; a test by ranks
spread       crossed ...             variance within cells and between rows and columns
statistic    Statistic, Interval     what comes out

Import from these modules: several are named like their function, and nothing here costs time to import.
"""
