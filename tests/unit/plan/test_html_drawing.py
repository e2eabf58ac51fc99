"""A job as a notebook shows it: well-formed, complete, escaped, and without anything from elsewhere."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

import lockstep as ls
from lockstep import F
from lockstep.plan.draw import words
from lockstep.plan.html import graph_html, stream_html
from lockstep.plan.steps import Step
from tests.unit.plan.fakes_for_plan import one_of_each

SVG = "{http://www.w3.org/2000/svg}"


def _job() -> ls.Job:
    job = ls.Job("alerts")
    logins = job.source("logins", ls.journal("logins", schema="user string, ok boolean, at timestamp"))
    more = job.source("more", ls.journal("more", schema="user string, ok boolean, at timestamp"))
    failed = logins.union(more).event_time("at", out_of_order="5 seconds").filter("NOT ok AND user <> '<b>&'")
    failed.to(ls.files("out/failed"), name="failed")
    counts = failed.key_by("user").window(ls.tumbling("1 minute")).agg(failures=F.count("*"))
    counts.map(dict, schema="user string").to(ls.files("out/alerts"), name="alerts")
    return job


def _svg(html: str) -> ElementTree.Element:
    """The picture; parsing it fails if anything is not closed or not escaped."""
    parsed = ElementTree.fromstring(html.replace("&#160;", " "))
    svg = parsed.find(f"{SVG}svg")
    assert svg is not None
    return svg


def test_every_step_is_a_box_with_its_words_and_every_input_an_edge() -> None:
    graph = _job().graph()
    svg = _svg(graph_html(graph))
    titles = [title.text or "" for title in svg.iter(f"{SVG}title")]
    assert sorted(titles) == sorted(f"{step.id}: {words(step)}" for step in graph.steps)
    assert len(list(svg.iter(f"{SVG}path"))) >= sum(len(step.inputs) for step in graph.steps)


def test_a_step_stands_below_its_inputs_and_boxes_do_not_overlap() -> None:
    graph = _job().graph()
    boxes = {}
    for group in _svg(graph_html(graph)).iter(f"{SVG}g"):
        title, frame = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and frame is not None and title.text is not None
        x, y, width, height = (float(frame.attrib[name]) for name in ("x", "y", "width", "height"))
        boxes[title.text.partition(":")[0]] = (x, y, x + width, y + height)
    for step in graph.steps:
        for before in step.inputs:
            assert boxes[before.id][3] < boxes[step.id][1], f"{before.id} is not above {step.id}"
    placed = sorted(boxes.values())
    for number, (left, top, right, bottom) in enumerate(placed):
        for other in placed[number + 1 :]:
            apart = other[0] >= right or other[2] <= left or other[1] >= bottom or other[3] <= top
            assert apart, (left, top, right, bottom, other)


def test_it_needs_nothing_from_elsewhere_and_fixes_no_colour_of_text() -> None:
    html = graph_html(_job().graph())
    assert not re.search(r"<script|<style|<link|<img|href=|src=|url\(", html)
    assert set(re.findall(r"https?://[^\"]*", html)) == {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r'<text[^>]* fill="([^"]*)"', html)) == {"currentColor"}
    assert "<b>" not in html


def test_a_long_text_is_cut_in_the_box_and_whole_in_its_title() -> None:
    job = ls.Job("long")
    start = job.source(
        "numbers", ls.journal("numbers", schema=", ".join(f"a_long_column_{n} bigint" for n in range(30)))
    )
    html = stream_html(start._step, "numbers")
    assert "…" in html
    assert "a_long_column_29 bigint</title>" in html
    assert max(len(text.text or "") for text in _svg(html).iter(f"{SVG}text")) <= 40


@pytest.mark.parametrize("step", one_of_each(), ids=lambda step: type(step).__name__)
def test_every_kind_of_step_can_be_drawn_for_a_notebook(step: Step) -> None:
    assert f"<title>{step.id}: " in stream_html(step, "doc")


def test_a_cut_between_stages_is_dashed() -> None:
    job = ls.Job("staged")
    events = job.source("events", ls.journal("events", schema="user string, at timestamp")).event_time("at")
    counts = events.key_by("user").window(ls.tumbling("1 minute")).agg(n=F.count("*"))
    counts.key_by("n").agg(users=F.count("*")).to(ls.files("out"))
    html = graph_html(job.graph())
    assert html.count('stroke-dasharray="5 4"') == 1
    assert "2 stages" in html and "through a journal" in html
    assert "stroke-dasharray" not in graph_html(_job().graph())


def test_jobs_and_streams_show_themselves() -> None:
    job = ls.Job("doc")
    assert job._repr_html_() == '<div style="font-family:system-ui,sans-serif;font-size:12px">&lt;job doc&gt;</div>'
    stream = job.source("logins", ls.journal("logins", schema="user string")).filter("user > 'a'")
    assert "stream filter: user" in stream._repr_html_()
    stream.to(ls.console())
    assert "job doc" in job._repr_html_()
