"""Figures of scores, and whether a difference is real: columns in, frozen dataclasses out, nothing read or written.

columns      Scores, Ratings         the input: one row a score, names as codes
statistic    Statistic, Interval     the output
inference    infer, mean_interval    p, interval and detectable difference of a mean, from one distribution of draws
summary      summarise, rank ...     means, intervals, failures, aggregates, pass rates, ranks
compare      compare, drift          two models, judges, prompts or points in time on the same edits
gate         gate                    pass, fail or not enough evidence
noise        noise                   variance of edits, judges and repeats; how many more are needed
ceiling      ceiling                 people among themselves, and each rater
agreement    agree                   judges against people
calibration  calibrate, powered_mean a judge's scale onto people's; few ratings and many scores
preference   accuracy ...            judges against people on which of two edits is better
pairwise     summarise, next_games   pairs asked in both orders: flips, win rates, strengths; what to ask next

Import from these modules: several are named like their function.
"""
