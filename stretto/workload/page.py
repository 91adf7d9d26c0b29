"""The HTML page of a report, from its data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from stretto.workload.plots import Line, bars, distribution, over_time, short

STYLE = """
:root { --ground: #fcfcfb; --ink: #1c1c1a; --soft: #6b6a66; --rule: #e2e1dc; --a: #2a6fb8;
  --b: #c9622c; --c: #3d7d50; --good: #2f7a45; --bad: #b3372f; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --ground: #191918; --ink: #eceae4; --soft: #a09e97;
  --rule: #393834; --a: #6aa8ea; --b: #ec935f; --c: #7cc091; --good: #7cc091; --bad: #ee8078; } }
body { background: var(--ground); color: var(--ink); margin: 0 auto; max-width: 1040px;
  padding: 32px 20px 64px; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 36px 0 8px; }
p.sub { color: var(--soft); margin: 0 0 20px; }
.verdict { border-left: 4px solid var(--good); padding: 4px 12px; margin: 16px 0; }
.verdict.bad { border-color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr));
  gap: 20px 16px;
  border-top: 1px solid var(--rule); border-bottom: 1px solid var(--rule); padding: 16px 0; }
.tiles b { display: block; font-size: 24px; font-weight: 600; }
.tiles span { color: var(--soft); font-size: 13px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr));
  gap: 24px 32px; }
figure { margin: 0; } figcaption { font-weight: 600; margin-bottom: 4px; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
.grid { stroke: var(--rule); } .axis { stroke: var(--soft); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.line.a { stroke: var(--a); } .line.b { stroke: var(--b); } .line.c { stroke: var(--c); }
.dot.a, .bar.a { fill: var(--a); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 10px; border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 500; } th:first-child, td:first-child { text-align: left; }
td.good { color: var(--good); } td.bad { color: var(--bad); }
td:first-child { overflow-wrap: anywhere; }
"""


def number(value: Any) -> str:
    """A cell: whole numbers with commas, others with three digits, None as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; the first column is text."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(number(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><tr>{heads}</tr>{lines}</table></div>'


def section(title: str, body: str) -> str:
    """A part of the page; none if there is nothing to say."""
    return f"<h2>{escape(title)}</h2>\n{body}\n" if body else ""


def counted(head: Sequence[str], counts: Mapping[str, int] | None) -> str:
    """A table of counts, the largest first."""
    if not counts:
        return ""
    return table(head, sorted(counts.items(), key=lambda item: -item[1]))


def page_of(data: Mapping[str, Any], bound_ms: Sequence[float]) -> str:
    """The page. ``bound_ms``: created→bound of every bound pod, ascending."""
    title = f"{data['title']} · {data['run']}"
    body = "".join(
        [
            f"<h1>{escape(data['title'])}</h1>\n<p class='sub'>run {escape(data['run'])}</p>\n",
            _verdict(data),
            _tiles(data),
            section("Over time", _plots(data, bound_ms)),
            section("Latency", _latency(data)),
            section("Checks", _checks(data["checks"])),
            section(
                "Pods that wait, and why", counted(["reason", "pods"], data["waiting_reasons"])
            ),
            section("Creations that failed", counted(["reason", "pods"], data["create_failures"])),
            section("Conflicts", counted(["lost to", "proposals"], data["conflicts"])),
            section("Processes", _processes(data)),
            section("Requests to the API server", _requests(data)),
            section("Conditions", _conditions(data)),
            section("Notes", _notes(data["notes"])),
        ]
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n"
        "</html>\n"
    )


def _verdict(data: Mapping[str, Any]) -> str:
    counts = data["counts"]
    broken = [check["name"] for check in data["checks"] if not check["held"]]
    faults = []
    if not data["finished"]:
        faults.append("the run was stopped before its end")
    if broken:
        faults.append(f"checks that did not hold: {', '.join(broken)}")
    if counts["rebound"]:
        faults.append(f"{counts['rebound']:,} pods were seen on two nodes")
    if counts["refused"]:
        faults.append(f"{counts['refused']:,} pods were turned away by their kubelet")
    if counts["create_failed"]:
        faults.append(f"{counts['create_failed']:,} pods could not be created")
    untold = counts["waiting"] - counts["told"]
    if untold:
        faults.append(f"{untold:,} pods wait without having been told why")
    told = f"{counts['bound']:,} of {counts['created']:,} pods were bound"
    if counts["waiting"]:
        told += f"; {counts['told']:,} wait and were told why"
    if faults:
        return f'<p class="verdict bad">{escape(told)}. But {escape("; ".join(faults))}.</p>\n'
    return (
        f'<p class="verdict">{escape(told)}{"; every check held" if data["checks"] else ""}.</p>\n'
    )


def _tiles(data: Mapping[str, Any]) -> str:
    counts = data["counts"]
    latency = data["latency_ms"]["created_to_bound"]
    tiles = [
        (number(counts["created"]), "pods created"),
        (number(counts["bound"]), "bound"),
        (number(counts["unfinished"]), "unfinished"),
        (number(counts["create_failed"]), "failed to be created"),
        (f"{data['pods_per_s']:,.0f}", "pods/s, first to last bind"),
        (f"{short(round(latency['p50'], 1))} ms", "created → bound, median"),
        (f"{short(round(latency['p99'], 1))} ms", "created → bound, p99"),
        (number(data["conflicts_total"]), "conflicts"),
        (number(data["attempts_per_pod"]), "attempts a pod"),
        (number(data["api_writes_per_pod"]), "API writes a pod"),
        (number(data["cpu_ms_per_pod"]), "CPU ms a pod"),
        (number(counts["nodes_used"]), "nodes used"),
    ]
    cells = "".join(
        f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>"
        for value, name in tiles
        if value != "–"
    )
    return f'<div class="tiles">{cells}</div>\n'


def _plots(data: Mapping[str, Any], bound_ms: Sequence[float]) -> str:
    series = data["series"]
    plots = [
        (
            "Created and bound",
            over_time(
                "Pods created and bound each second",
                [
                    Line("created", "b", series["created_per_s"]),
                    Line("bound", "a", series["bound_per_s"]),
                ],
                unit="pods/s",
            ),
        ),
        (
            "Waiting",
            over_time(
                "Pods that wait", [Line("waiting", "a", series["waiting"] or [0])], unit="pods"
            ),
        ),
        (
            "Created → bound",
            distribution(
                "Distribution of the time from created to bound", bound_ms, unit="milliseconds"
            ),
        ),
    ]
    if data["processes"]:
        used = [(p["name"], round(p["cpu_s"], 2)) for p in data["processes"]]
        plots.append(("CPU", bars("CPU seconds by process", used, unit="CPU seconds")))
    figures = "".join(
        f"<figure><figcaption>{escape(name)}</figcaption>{svg}</figure>" for name, svg in plots
    )
    return f'<div class="plots">{figures}</div>'


def _latency(data: Mapping[str, Any]) -> str:
    columns = ("count", "mean", "p50", "p90", "p99", "p999", "largest")
    names = {
        "created_to_decided": "created → first word of the scheduler",
        "decided_to_bound": "told why it waits → bound",
        "created_to_bound": "created → bound",
    }
    rows = [
        [names[name], *(values[column] for column in columns)]
        for name, values in data["latency_ms"].items()
        if values["count"]
    ]
    rows += [
        [f"inside: {name}", *(values[column] for column in columns)]
        for name, values in data["stages_ms"].items()
    ]
    return (
        table(["milliseconds", "count", "mean", "p50", "p90", "p99", "p99.9", "largest"], rows)
        + "<p class='sub'>The first rows are as a watch shows them; the first word is a node, or "
        "the reason why there is none. Inside: by the scheduler's own histograms, to the width of "
        "their buckets.</p>"
    )


def _checks(checks: Sequence[Mapping[str, Any]]) -> str:
    if not checks:
        return ""
    rows = "".join(
        f"<tr><td>{escape(check['name'])}</td><td>{escape(check['detail'])}</td>"
        f'<td class="{"good" if check["held"] else "bad"}">'
        f"{'held' if check['held'] else 'BROKEN'}</td></tr>"
        for check in checks
    )
    return f'<div class="wide"><table><tr><th>check</th><th></th><th></th></tr>{rows}</table></div>'


def _processes(data: Mapping[str, Any]) -> str:
    bound = data["counts"]["bound"]
    if not data["processes"]:
        return ""
    rows = [
        [
            p["name"],
            p["cpu_s"],
            p["cpu_s"] * 1000 / bound if bound else None,
            p["resident_mib"],
            p["peak_mib"],
        ]
        for p in data["processes"]
    ]
    return table(["process", "CPU s", "CPU ms/pod", "resident MiB", "peak MiB"], rows)


def _requests(data: Mapping[str, Any]) -> str:
    bound = data["counts"]["bound"]
    rows = [
        [who, call, count, count / bound if bound else None]
        for who, calls in (
            *(data["scheduler_api_requests"] or {}).items(),
            ("load generator", data["generator_api_requests"]),
        )
        for call, count in sorted((calls or {}).items(), key=lambda item: -item[1])
    ]
    return table(["by", "request", "count", "per bound pod"], rows) if rows else ""


def _conditions(data: Mapping[str, Any]) -> str:
    rows = list(data["conditions"].items())
    rows += [(key, value) for key, value in data["settings"].items() if value not in ("", None)]
    return table(["what", "value"], rows)


def _notes(notes: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>" if notes else ""
