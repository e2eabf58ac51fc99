"""A job: its name, its options, its sources, and the graph that comes of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lockstep.api.arguments import source_spec
from lockstep.api.registry import Registry
from lockstep.api.stream import Stream
from lockstep.errors import PlanError
from lockstep.plan.graph import Graph
from lockstep.plan.schema import did_you_mean
from lockstep.plan.specs import SourceSpec, TableSpec
from lockstep.plan.sql_meaning import as_sql_means
from lockstep.plan.steps import Source

_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")


class Job:
    """A pipeline with a name. Options are those of ``[run]`` in `lockstep.toml`, durations as people write them.

    >>> Job("failed-logins", replicas=3, epoch_interval="200 ms").options
    {'replicas': 3, 'epoch_interval_s': 0.2}
    """

    def __init__(self, name: str, **options: Any) -> None:
        self.name = checked_job_name(name)
        self.options: Mapping[str, Any] = _checked_options(options)
        self._registry = Registry(name)

    def source(self, name: str, spec: SourceSpec) -> Stream:
        """A stream of the records that come from ``spec``; ``name`` is what the ledger calls it.

        >>> import lockstep as ls
        >>> Job("doc").source("logins", ls.journal("logins", schema="user string, ok boolean"))
        <stream logins: user, ok>
        """
        checked = source_spec(name, spec)
        return Stream(self._registry, self._added(Source(self._registry.new_id("source", name), checked)))

    def sql(self, text: str, *, name: str | None = None, **streams: Stream | TableSpec) -> Stream:
        """A stream made by a query in SQL over streams of the job.

        >>> import lockstep as ls
        >>> job = Job("doc")
        >>> logins = job.source("logins", ls.journal("logins", schema="user string, ok boolean"))
        >>> job.sql("select user, count(*) as failures from logins where not ok group by user").columns
        ('user', 'failures')
        >>> job.sql("select user from failed", failed=logins.filter("NOT ok"))
        <stream select: user>

        Sources go by their names, other streams by the ``name=`` of their last step, or under the names that they are
        passed by; a table (``ls.table(...)``) is passed. ``name`` names the last step of the query.
        """
        # sqlglot takes a fifth of a second to import: only jobs with queries pay for it.
        from lockstep.api.sql.query import sql_stream

        return sql_stream(self._registry, text, name, streams)

    def graph(self) -> Graph:
        """The job as it stands, checked as a whole."""
        sinks = as_sql_means(self._registry.sinks, frozenset(self._registry.queried))
        return Graph(self.name, sinks, dict(self.options), tuple(self._registry.steps))

    def _added(self, source: Source) -> Source:
        self._registry.add(source)
        return source

    def __repr__(self) -> str:
        return f"<job {self.name}>"

    def _repr_html_(self) -> str:
        """The graph, for notebooks. A job without a sink is shown by its name: there is nothing to draw yet."""
        from lockstep.plan.html import graph_html, text_html

        return graph_html(self.graph()) if self._registry.sinks else text_html(repr(self))


def checked_job_name(name: object, hint: str = 'Job("{near}")') -> str:
    """``name`` if a job can have it; LS0102 if not, and ``hint`` with the nearest name that would do.

    >>> checked_job_name("failed-logins")
    'failed-logins'
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    near = re.sub(r"[^a-z0-9]+", "-", str(name).lower()).strip("-0123456789") or "my-job"
    raise PlanError(
        "LS0102",
        f"{name!r} cannot be the name of a job",
        why="it is a letter, then small letters, digits and dashes, at most 63 in all: folders and metrics bear it.",
        hint=hint.format(near=near[:63]),
    )


def _checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options under their full names, each checked as `lockstep.toml` would be."""
    if not options:
        return {}
    # pydantic takes a tenth of a second to import: only jobs that set options pay for it here.
    from pydantic import ValidationError

    from lockstep.config import RunSettings

    known = tuple(RunSettings.model_fields)
    full = {_full_option(name, known): value for name, value in options.items()}
    try:
        checked = RunSettings.model_validate(full)
    except ValidationError as error:
        lines = [f"{item['loc'][0]}: {item['msg']}" for item in error.errors()]
        raise PlanError("LS0104", "an option of the job is not valid", why="; ".join(lines)) from None
    return {name: getattr(checked, name) for name in full}


def _full_option(name: str, known: tuple[str, ...]) -> str:
    for candidate in (name, f"{name}_s"):
        if candidate in known:
            return candidate
    friendly = [option.removesuffix("_s") for option in known]
    raise PlanError(
        "LS0104",
        f'a job has no option "{name}"',
        why=f"the options are: {', '.join(friendly)}.",
        hint=did_you_mean(name, friendly),
    )
