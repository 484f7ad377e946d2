"""Text for the reasons that statistics give, and JSON for their results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from editjudge.report.tables import figure_text
from editjudge.stats.columns import Interval, Reason
from editjudge.stats.compare import Difference, Drift
from editjudge.stats.gate import MET, UNSURE, Failures, GateCheck, GateRule


def _subject(members: int) -> str:
    return "it" if members == 1 else f"the {members} models of this scale"


def _unbeaten(members: int, others: Sequence[str], how: str, side: str) -> str:
    return (
        f"{_subject(members)} {how} against {', '.join(others)}: strength is only known to be {side}, its estimate "
        "is infinite"
    )


def _flat_models(models: Sequence[str], of: int) -> str:
    more = f" and {len(models) - 3} more" if len(models) > 3 else ""
    names = ", ".join(models[:3]) + more
    return f"undefined within {names} of {of} models: no spread in scores or ratings"


_NEEDS = (
    "an interval needs {ranks} for rank correlations and {others} for other figures"
)
_WORDS: Mapping[str, str | Callable[..., str]] = {
    # inference of a mean
    "no_scores": "no scores: nothing to estimate",
    "one_image": "only one source image: the spread over images cannot be estimated, so there is no interval",
    "no_ends": "a guaranteed interval needs a scale whose ends are known",
    "same_scores": "all scores are equal, and the ends of their scale are unknown",
    "few_carry": "too few source images contribute to the spread for a bootstrap, and the ends of the scale are unknown",
    # comparisons
    "never_paired": "no edit was asked about on both sides",
    "identical": "both sides are the same stored answers: the difference is exactly 0, and there is nothing to test",
    "unbounded": "the ends of the scale are unknown: the scores of failed judgements have no bounds",
    "no_pairs": "no edit has a score on both sides",
    "one_unpaired": "{n} edit has a score on one side only and is not compared",
    "unpaired": "{n} edits have a score on one side only and are not compared",
    "too_few_images": "{images} source images cannot show any difference at this level; {needed} can",
    "too_uneven_images": "{images} source images, as uneven as {even} of one size, cannot show any difference at this "
    "level; {needed} can",
    "few_differ": "only {moved} of {images} source images differ",
    "all_differ_alike": "all {images} source images differ by the same amount, which does not show how much others differ",
    "few_carry_spread": "only about {effective:.1f} of {images} source images contribute to the spread: with about "
    "{enough:,} like these, no guaranteed bound would be needed",
    "guaranteed_bound": "a guaranteed bound has no detectable difference",
    "ends_unknown": "the ends of the scale are unknown",
    "stopped_early": "the run ends by its claims (--until), and this interval would assume a fixed number of edits",
    # summaries and noise
    "scale_unknown": "the scale is unknown: the scores of failed judgements have no bounds",
    "value_without_weight": "{column} has the value {value!r}, and the set gives it no weight",
    "value_without_score": "no edit with the value {value!r} of {column} has a score",
    "ranks_of_one_image": "only one source image: on other images the ranks may differ",
    "no_repeats": "no repeats: the judge's noise cannot be separated from the rest",
    "one_judge": "one judge: variance between judges is not estimated",
    "few_edits_of_all": "fewer than two edits were scored by every judge: variances are not estimated",
    "edits_left_out": "{n} edits that not every judge scored are left out of the split",
    # agreement
    "nothing_in_common": "no item has both a score and a rating",
    "few_images": "{images} source images: " + _NEEDS,
    "few_images_carry": "about {images:.0f} source images contribute to the spread of scores or ratings: "
    + _NEEDS,
    "undefined_or_constant": "undefined, or the same in all draws",
    "undefined_in_draws": "undefined, or the same in every draw",
    "constant": "the same in all draws",
    "one_rater": "only one rater: there are no others to compare with",
    "no_shared_item": "no item was rated by two people",
    "few_shared": "{items} items of {images} source images were rated by two or more people: a figure needs {needed} "
    "of each",
    "no_rater_shares": "no rater shares {needed} items with others",
    "no_rater_varies": "no rater's ratings vary together with the others': correlations are undefined",
    "one_rater_alone": "one rater: agreement among people is undefined",
    "no_item_twice": "no item was rated twice: agreement among people is undefined",
    "same_ratings": "every rating is the same: chance-corrected agreement is undefined",
    "uneven_ratings": "items differ in the number of ratings: Fleiss' kappa uses those with the commonest number",
    "few_items_of_all": "fewer than two items were rated by every rater: ICC(2,k) is undefined",
    "unknown_scale": "the scale is unknown: the scores of failed judgements have no bounds",
    "no_spearman": "the judge's Spearman is undefined",
    "flat_models": _flat_models,
    "few_models": "fewer than three models: no correlation over models",
    "models_say_little": "only {models} models: a correlation over models says little",
    "few_models_or_images": "{models} models on {images} source images: an interval needs {needed_models} and "
    "{needed_images}",
    "model_missing": "a model is missing in some draws of source images, because it has too few images",
    "models_within_error": "the differences between models in {figures} are not larger than their sampling error",
    "constant_scores": "the {who} gave every item the same score: correlations are undefined",
    "other_scale": "scores are outside the range of the ratings: kappa, MAE and bias are meaningful only if the scales "
    "are the same",
    "few_pairs": "{pairs} pairs in {groups} groups: too few to calibrate (at least {needed} in 2)",
    "constant_map": "every score is the same: the map is a constant",
    "few_rated_groups": "people rated edits of fewer than two groups: their mean has no interval",
    "all_rated": "every edit was rated: the judge adds nothing",
    "unscored_edits": "{n} edits without a score of the judge are in people's mean alone",
    "few_rated_carry": "about {groups:.0f} rated groups (source images) contribute to the spread of ratings: an interval "
    "needs {needed}",
    # bridges
    "bridge_few": "{edits} edits of {images} source images have scores of both judges: a bridge needs {needed} images",
    "bridge_few_carry": "only about {images} source images contribute to the spread of scores: a bridge needs {needed}",
    "bridge_no_ends": "the ends of the old judge's scale are unknown, so no share of it is close enough",
    "bridge_ranks": "the judges rank edits differently: Spearman may be as low as {lowest:.3f}, at least {needed:g} is "
    "needed",
    "bridge_wide": "90 % of edits of other images map within {within:.2f}, at most {limit:.2f} is needed",
    "bridge_several_rubrics": "a judge scores it under several rubrics",
    "bridge_directions": "higher is better for one judge and lower for the other",
    "bridge_other_mean": "it is a mean of other factors than in the bridge",
    "bridge_missing": "it is not in the bridge",
    # pairs
    "no_two_votes": "no pair has votes of two people",
    "no_answer": "the judge answered no pair",
    "one_order": "asked in one order only: every verdict includes any position bias of the judge",
    "always_first": "it always names the first of two outputs: 0 wins, and all {pairs:,} pairs flip with the order",
    "always_second": "it always names the second of two outputs: 0 wins, and all {pairs:,} pairs flip with the order",
    "always_by_place": "it always decides by the position of an output: 0 wins, and all {pairs:,} pairs flip with the order",
    "contradicts_itself": "it contradicts itself in {share:.0%} of {pairs:,} pairs that it decides; a coin does so in "
    "half of them",
    "no_winner": "none of {pairs:,} pairs has a winner",
    "no_strengths": "no strengths: {why}",
    "no_verdict": "no pair of two models has a verdict",
    "answers_by_place": "all but {left:.0%} of answers are decided by the position of an output",
    "few_games": "games on {images} source images: an interval of strengths needs {needed}",
    "infinite_limit": "in {share:.0%} of drawn sets of images some model never loses: a limit is infinite",
    "never_met": lambda members: (
        f"{_subject(members)} never met any other: their strengths cannot be compared"
    ),
    "won_and_lost": lambda members: (
        f"{_subject(members)} won all against some and lost all against others: how much stronger or weaker is unknown"
    ),
    "never_lost": lambda members, others: _unbeaten(
        members, others, "never lost", "high"
    ),
    "never_won": lambda members, others: _unbeaten(members, others, "never won", "low"),
}


def reason_text(reason: Reason) -> str:
    """Return a reason as text."""
    figures = {
        name: reason_text(value) if isinstance(value, Reason) else value
        for name, value in reason.figures
    }
    template = _WORDS[reason.code]
    return (
        template.format(**figures) if isinstance(template, str) else template(**figures)
    )


def plain(value: object) -> Any:
    """Return a result as JSON values at full precision, without NaN or infinity."""
    if isinstance(value, Reason):
        return reason_text(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if f.repr]
        document = {name: plain(getattr(value, name)) for name in names}
        match value:
            case Difference():
                document["verdict"] = verdict(value)
            case Drift():
                document["changed"] = changes(value)
                document["verdict"] = drift_verdict(value)
            case Failures():
                document["too_many"] = value.too_many
            case GateCheck():
                del document["rule"], document["alpha_fail"]
                return {
                    "factor": value.rule.factor,
                    "rule": rule_words(value.rule),
                    "is_drop": value.rule.is_drop,
                    **document,
                    "reason": check_reason(value),
                }
        return document
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(inner) for inner in value]
    return value


# --- comparisons ----------------------------------------------------------------------------------------------


def verdict(d: Difference) -> str:
    """Return the verdict on a difference as a sentence."""
    doubt = ""
    if d.overturnable:
        doubt = f"; {d.failed} failed judgements could overturn this"
        if d.bounds is not None:
            doubt += f" (from {d.bounds.worst:+.2f} to {d.bounds.best:+.2f})"
    if d.method == "identity":
        return f"no difference: {reason_text(Reason('identical'))}"
    if d.difference is None:
        return f"cannot be compared: no edit has a score on both sides{doubt}"
    if d.p_holm is None:
        return f"cannot be decided: {d.ci_reason and reason_text(d.ci_reason)}{doubt}"
    p = f"p = {d.p_holm:.2g}"
    if d.evident:
        ci = d.ci
        if ci is not None and d.difference < 0:
            ci = Interval(-ci.hi, -ci.lo)
        size = figure_text(abs(d.difference), ci)
        return f"{d.b} {d.verdict} than {d.a} by {size} ({p}){doubt}"
    limit = (
        reason_text(d.detectable_reason)
        if d.detectable_reason
        else f"MDE {d.detectable:.2g}"
    )
    return f"{d.verdict} ({p} over {d.n} edits; {limit}){doubt}"


def changes(drift: Drift) -> list[str]:
    """Describe the settings in which two runs differ."""
    return [f"{name}: {then} -> {now}" for name, then, now in drift.changed]


def drift_verdict(drift: Drift) -> str:
    """Return the verdict on one judge's shifts as a sentence."""
    moved = [d.factor for d in drift.shifts if d.evident]
    compared = sum(d.n > 0 for d in drift.shifts)
    if not compared:
        return "cannot be compared: no edit was scored both times"
    doubtful = ", ".join(d.factor for d in drift.shifts if d.overturnable)
    doubt = (
        f"; failed judgements could overturn this for {doubtful}" if doubtful else ""
    )
    if moved:
        return f"moved beyond noise: {', '.join(moved)} ({len(moved)} of {compared} factors){doubt}"
    return f"inconclusive: no evidence of drift in {compared} factors{doubt}"


# --- gates ----------------------------------------------------------------------------------------------------


def rule_words(rule: GateRule) -> str:
    """Return a threshold as text, such as `alignment >= 5`."""
    if rule.is_drop:
        verb = "rises" if rule.falling else "drops"
        return f"{rule.factor} {verb} by at most {rule.limit:g}"
    return f"{rule.factor} {'<=' if rule.falling else '>='} {rule.limit:g}"


def check_reason(check: GateCheck) -> str:
    """Return the reason for the outcome of a check."""
    ci = check.ci
    lost = _lost(check)
    if check.estimate is None:
        return f"no scores to decide on{lost}"
    if check.method == "identity":
        return reason_text(Reason("identical"))
    mean = f"{check.estimate:.3f} over {check.n} scores"
    if ci is None:
        return f"{mean}, without an interval: {check.ci_reason and reason_text(check.ci_reason)}{lost}"
    limit = f"{check.rule.threshold:g}"
    bad, good = ("above", "below") if check.rule.falling else ("below", "above")
    side = f"wholly {bad} {limit}"
    if check.outcome == MET:
        side = f"wholly at or {good} {limit}"
    elif check.outcome == UNSURE:
        more = "inconclusive at any practical number"
        if check.needed:
            more = f"about {check.needed:,} source images would decide"
        if ci.lo <= check.rule.threshold <= ci.hi:
            side = f"which contains {limit}: {more}"
        else:
            level = f"{100 * check.alpha_fail:.3g} %"
            side += (
                f", but not at the {level} at which one of several checks fails: {more}"
            )
    return f"{mean}, interval [{ci.lo:.3f}, {ci.hi:.3f}], {side}{lost}"


def _lost(check: GateCheck) -> str:
    """Describe how many judgements failed and how this could affect the result."""
    failed = check.failed + check.failed_baseline
    if not failed:
        return ""
    base = (
        f" ({check.failed_baseline} of the baseline)" if check.failed_baseline else ""
    )
    lost = f"; {failed} failed judgements{base} are not in it"
    bounds = check.bounds
    if bounds is None or bounds.worst is None or bounds.best is None:
        reason = check.bounds_reason
        unbounded = reason_text(reason) if reason else "nothing bounds them"
        return f"{lost}, and could overturn this: {unbounded}"
    lost += f": from {bounds.worst:.3f} to {bounds.best:.3f} with them at the ends of the scale"
    return f"{lost}, which could overturn this" if check.overturnable else lost
