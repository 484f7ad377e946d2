"""The page of all benchmarks: made from their figures and from nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Found = dict[str, Any]
Figures = dict[str, float]
OURS = "editjudge"
SAME = 0.02
"""What differs by less is called the same: rounds of one contender differ by as much."""

INTRODUCTION = """# Benchmarks

Made by `python -m bench.benchmarks` from [benchmarks.json](benchmarks.json), where every figure is; not written by
hand. Judges are stand-ins on the same machine that answer after a set time, so this is about what a tool adds to its
judge, not about how well anything judges. Each peer is used as its documentation says, with its own retries; the
settings that differ are said at the top of its script in [bench/peers](../bench/peers), and every contender meets the
same pictures, questions and server in the same run.
"""


def page(sections: dict[str, Found]) -> str:
    parts = [INTRODUCTION, *stamps(sections), *summary(sections)]
    for name, (title, render) in RENDERED.items():
        if name in sections:
            command = sections[name]["command"]
            parts += [
                f"## {title}\n",
                f"`{command}`, {sections[name]['date']}\n",
                *render(sections[name]["found"]),
            ]
        else:
            parts += [f"## {title}\n", "Not measured yet.\n"]
    return "\n".join([*parts, *ways(sections)])


def stamps(sections: dict[str, Found]) -> Iterable[str]:
    known = "{processor}, {cores} cores, {memory_gb} GB, {system}"
    machines = (known.format(**each["machine"]) for each in sections.values())
    versions = (
        f"{name} {version}"
        for each in sections.values()
        for name, version in each["versions"].items()
    )
    yield f"Machine: {'; '.join(dict.fromkeys(machines))}. Versions: {', '.join(dict.fromkeys(versions))}.\n"


# --- what it says ---------------------------------------------------------------------------------------------

Metric = tuple[str, bool, Figures]
"""What it is, whether more is better, and the figure of each contender."""


def summary(sections: dict[str, Found]) -> Iterable[str]:
    rows = [row for row in metrics(sections) if row[2]]
    names = contenders(sections)
    if not rows:
        return
    yield "## What this says\n"
    yield from sentences(sections)
    yield (
        "\nEach figure, and in brackets how many times ours it is; **bold where a peer is better** by more than "
        f"{SAME:.0%}; — where it has no such thing or could not be run.\n"
    )
    cells = [
        [title, *(cell(figures, name, more) for name in names)]
        for title, more, figures in rows
    ]
    yield table(["", *names], cells)


def contenders(sections: dict[str, Found]) -> list[str]:
    return list(
        dict.fromkeys(
            [OURS, *(name for _, _, figures in metrics(sections) for name in figures)]
        )
    )


def metrics(sections: dict[str, Found]) -> Iterable[Metric]:
    found = {name: section["found"] for name, section in sections.items()}
    for kind in ("jpeg", "png"):
        rated = peers_of(found.get("throughput", {}).get(kind, {}))
        yield f"edits a second, {kind.upper()}", True, column(rated, "rate")
        yield f"CPU ms an edit, {kind.upper()}", False, column(rated, "cpu_ms")
        yield f"peak memory MB, {kind.upper()}", False, column(rated, "peak_mb")
    spoilt = found.get("faults", {}).get("contenders", {})
    patient = {
        name.removesuffix(", patient"): each
        for name, each in spoilt.items()
        if name.endswith(", patient")
    }
    usual = peers_of(spoilt)
    for how, those in (
        ("", usual),
        (", peers told to be patient", {OURS: usual.get(OURS, {}), **patient}),
    ):
        yield f"% right under faults{how}", True, column(those, "right", 100)
        yield f"% made up under faults{how}", False, column(those, "made_up", 100)
        yield (
            f"answers paid for a right one{how}",
            False,
            column(those, "paid_per_answer"),
        )
    started = peers_of(found.get("startup", {}).get("milliseconds", {}))
    yield "import, ms", False, column(started, "import")
    yield "`--help`, ms", False, column(started, "help")
    yield (
        "one edit judged, Python's start included, ms",
        False,
        column(started, "one_edit"),
    )
    weighed = peers_of(
        {
            OURS if name == "core" else name: each
            for name, each in found.get("sizes", {}).items()
        }
    )
    yield "installed, MB", False, column(weighed, "mb")
    yield "packages", False, column(weighed, "packages")


def peers_of(figures: dict[str, Any]) -> dict[str, Found]:
    """Without what is no tool: bare clients, bare Python, our extras."""
    from bench.peers import PEERS

    return {name: each for name, each in figures.items() if name in (OURS, *PEERS)}


def column(figures: dict[str, Found], key: str, times: float = 1) -> Figures:
    return {
        name: times * each[key]
        for name, each in figures.items()
        if each.get(key) is not None
    }


def cell(figures: Figures, name: str, more: bool) -> str:
    if (value := figures.get(name)) is None:
        return "—"
    ours = figures.get(OURS)
    if name == OURS or not ours:
        better = ours is not None and value != ours and (value > ours) == more
        return f"**{number(value)}**" if better else number(value)
    better = value > ours * (1 + SAME) if more else value < ours * (1 - SAME)
    told = f"{number(value)} ({number(value / ours)})"
    return f"**{told}**" if better else told


def sentences(sections: dict[str, Found]) -> Iterable[str]:
    """Ours beside the best and the worst of the peers, whoever that is."""
    for title, more, figures in metrics(sections):
        others = {name: value for name, value in figures.items() if name != OURS}
        if title in SPOKEN and OURS in figures and others:
            best, worst = (
                pick(others, key=lambda name: others[name])
                for pick in ((max, min) if more else (min, max))
            )
            ends = f"peers from {number(others[best])} ({best}) to {number(others[worst])} ({worst})"
            yield f"- {SPOKEN[title]}: {number(figures[OURS])}; {ends}."
    bare = sections.get("throughput", {}).get("found", {}).get("jpeg", {}).get(OURS, {})
    if "rate_to_bare" in bare:
        yield (
            f"- Beside a bare aiohttp client that checks and keeps nothing, we reach {number(bare['rate_to_bare'])} of "
            f"the rate with {number(bare['cpu_to_bare'])} times its CPU and {number(bare['memory_to_bare'])} times its "
            "memory."
        )


SPOKEN = {
    "edits a second, JPEG": "Edits a second, where 128 is the most that the judge allows",
    "CPU ms an edit, JPEG": "CPU milliseconds an edit",
    "% right under faults": "Percent of edits right when the server misbehaves",
    "answers paid for a right one": "Answers paid for each of them",
    "one edit judged, Python's start included, ms": "Milliseconds until one edit is judged, from nothing",
    "installed, MB": "Megabytes installed",
}


# --- tables ---------------------------------------------------------------------------------------------------


def table(heads: list[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return (
        "\n".join(
            "| " + " | ".join(str(word) for word in line) + " |" for line in lines
        )
        + "\n"
    )


def number(value: object) -> str:
    """Three digits that matter."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "—" if value is None else str(value)
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def listed(figures: dict[str, Found], heads: dict[str, str], first: str = "") -> str:
    """A row for each by name; one that has no figures says why."""
    rows = []
    for name, each in figures.items():
        why = (
            [f"not run: {each['could_not_be_run']}"]
            if "could_not_be_run" in each
            else []
        )
        rows.append(
            [
                name,
                *(
                    why + [""] * (len(heads) - 1)
                    if why
                    else [number(each.get(key)) for key in heads]
                ),
            ]
        )
    return table([first, *heads.values()], rows)


def absent(found: Found) -> Iterable[str]:
    if found.get("absent"):
        yield f"Not installed, so not run: {', '.join(found['absent'])}.\n"


def throughput(found: Found) -> Iterable[str]:
    ratios = {
        "rate_to_bare": "rate to bare",
        "cpu_to_bare": "CPU to bare",
        "memory_to_bare": "memory to bare",
    }
    heads = {"rate": "edits a second", "cpu_ms": "CPU ms an edit", "peak_mb": "peak MB"}
    few, many = found["sizes"]
    rounds = (
        "one round" if found["rounds"] == 1 else f"medians of {found['rounds']} rounds"
    )
    yield (
        f"CPU and rate between {few} and {many} edits of two 1024 x 1024 pictures, 64 in flight, answers after 500 ms, "
        f"so {number(found['ideal_rate'])} a second is the most; {rounds}.\n"
    )
    yield from (
        listed(found[kind], {**ratios, **heads}, kind.upper())
        for kind in ("jpeg", "png")
        if kind in found
    )
    yield from absent(found)


def faults(found: Found) -> Iterable[str]:
    mix = ", ".join(
        f"{share:.0%} {name.replace('_', ' ')}"
        for name, share in found["faults"].items()
    )
    yield f"{found['edits']} edits, {found['in_flight']} in flight; of the requests {mix}. Shares of edits:\n"
    heads = {
        "right": "right",
        "made_up": "made up",
        "missing": "missing",
        "paid_per_answer": "paid for a right one",
    }
    times = {"seconds": "seconds", "times_bare": "time to bare"}
    heads |= {
        "paid_to_least": "paid to the least possible",
        "requests": "requests",
        **times,
    }
    yield listed(found["contenders"], heads)
    yield from (f"- {name}, patient: {how}" for name, how in found["patient"].items())
    yield "\nOurs has no such setting: patience is its default. `ImageEditing` asks two questions an edit.\n"
    yield from absent(found)


def startup(found: Found) -> Iterable[str]:
    heads = {"import": "import", "help": "`--help`", "one_edit": "one edit judged"}
    yield f"Milliseconds of a whole process, medians of {found['calls']} calls in turn.\n"
    yield listed(found["milliseconds"], heads)
    yield from absent(found)


def sizes(found: Found) -> Iterable[str]:
    ours = {
        name: each
        for name, each in found.items()
        if isinstance(each, dict) and "import_editjudge_ms" in each
    }
    others = {
        name: each
        for name, each in found.items()
        if isinstance(each, dict) and name not in ours
    }
    yield (
        f"The wheel has {found['wheel_kb']:,} KB. Each row is an empty venv with nothing else; import times are over "
        "bare Python in it.\n"
    )
    heads = {
        "mb": "MB",
        "packages": "packages",
        "import_editjudge_ms": "`import editjudge`, ms",
    }
    heads |= {"import_used_ms": "what uses the extra, ms"}
    rows = [
        [
            name,
            *(number(each[key]) for key in heads),
            ", ".join(f"`{need}`" for need in each["needs"]),
        ]
        for name, each in ours.items()
    ]
    yield table(["", *heads.values(), "asks for"], rows)
    yield listed(
        others, {"mb": "MB", "packages": "packages", "import_used_ms": "import, ms"}
    )


def flat(found: Found, before: str = "") -> Iterable[tuple[str, object]]:
    for key, value in found.items():
        name = f"{before}{key.replace('_', ' ')}"
        if isinstance(value, dict):
            yield from flat(value, f"{name}: ")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield from flat(
                {f"{name} {count}": each for count, each in enumerate(value, 1)}
            )
        elif isinstance(value, list):
            yield name, ", ".join(map(number, value))
        else:
            yield name, number(value)


def plain(found: Found) -> Iterable[str]:
    yield table(["", ""], flat(found))


def web(found: Found) -> Iterable[str]:
    pages = (
        "first_page",
        "deep_page",
        "sorted_page",
        "filtered_page",
        "edit_page",
        "edit_page_in_sorted_view",
    )
    rows = [
        [
            name.replace("_", " "),
            *(number(each[name]["median_ms"]) for each in found["sizes"]),
        ]
        for name in pages
    ]
    rows += [
        [
            "peak memory, MB",
            *(number(each["memory_mb"]["peak"]) for each in found["sizes"]),
        ]
    ]
    yield table(
        [
            "median ms",
            *(f"{each['judgements']:,} judgements" for each in found["sizes"]),
        ],
        rows,
    )


def scale(found: Found) -> Iterable[str]:
    heads = {
        "seconds": "seconds",
        "edits_per_second": "edits a second",
        "cpu_ms": "CPU ms a judgement",
    }
    heads |= {"peak_mb": "peak MB", "seconds_to_local": "time to local"}
    for judge in ("stub", "measured"):
        for each in found.get(judge, []):
            runs = {
                name: figures
                for name, figures in each.items()
                if isinstance(figures, dict)
            }
            yield f"{each['edits']:,} edits, three questions each, judge: {judge}.\n"
            yield listed(runs, heads)
    if resumed := found.get("resume"):
        yield f"Run again with all {resumed['keys']:,} keys done, seconds:\n"
        runs = {name: {when: each["seconds"] for when, each in times.items()} for name, times in resumed.items()
                if isinstance(times, dict)}  # fmt: skip
        yield listed(runs, {"first": "first", "again": "again"})


def million(found: Found) -> Iterable[str]:
    yield from scale(found)
    small, large = (each["local"] for each in (found["stub"][0], found["stub"][-1]))
    yield (
        f"A hundred times the judgements take {number(large['peak_mb'] / small['peak_mb'])} times the memory and "
        f"{number(large['cpu_ms'] / small['cpu_ms'])} times the CPU each. The difference in memory is SQLite's page "
        "cache, which holds up to 64 MB for each connection and which the smaller store does not fill. "
        f"The machine's load was {number(found['load'])} at the end: above 1, seconds and rates say little.\n"
    )


RENDERED: dict[str, tuple[str, Callable[[Found], Iterable[str]]]] = {
    "throughput": ("Throughput, CPU and memory", throughput),
    "faults": ("Under faults", faults),
    "startup": ("Start-up", startup),
    "sizes": ("Size on disk", sizes),
    "resume": ("Resuming", plain),
    "store": ("The store", plain),
    "rewards": ("Rewards", plain),
    "web": ("Pages in the browser", web),
    "scale": ("One process and Ray", scale),
    "statistics": ("Statistics of a million judgements", plain),
    "measured": ("The measured judge beside SSIM and CIEDE2000", plain),
    "million": ("A million judgements", million),
}


def ways(sections: dict[str, Found]) -> Iterable[str]:
    yield "## How each was run\n"
    yield "Load is that of the machine in the minute before; a figure of time beside a load above 1 says little.\n"
    rows = [
        [
            name,
            f"`{each['command']}`",
            each["date"],
            number(each.get("minutes")),
            number(each.get("load_before")),
        ]
        for name, each in sections.items()
    ]
    yield table(["section", "command", "date", "minutes", "load before"], rows)
