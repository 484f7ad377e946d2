"""Statistics of scores and tests of differences: columns go in, frozen dataclasses come out, and nothing is read or
written.

columns      Scores, Ratings         the input, one row per score with names as codes, and types of the output
inference    infer, mean_interval    p, interval and detectable difference of a mean, from one distribution of draws
summary      summarise, rank ...     means, intervals, failures, aggregates, pass rates, ranks
compare      compare, drift          two models, judges, prompts or points in time on the same edits
gate         gate                    pass, fail or not enough evidence
noise        noise                   variance of edits, judges and repeats; number of edits or repeats needed
ceiling      ceiling                 agreement among people, and of each rater with the others
agreement    agree                   agreement of judges with people
calibration  calibrate, powered_mean map from a judge's scale to people's; estimates from few ratings and many scores
bridge       bridge, mapped          map from a new judge's scale to an old one's, with its error on other images
pairwise     summarise, accuracy     pairs judged in both orders: flips, win rates; accuracy against people's votes
strengths    bradley_terry ...       strengths of models from games between them; which pairs to ask next

Import from these modules: several have the same name as their function.
"""
