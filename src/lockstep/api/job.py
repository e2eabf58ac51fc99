"""A job: its name, its options, its sources, and the graph that comes of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lockstep.api.arguments import source_spec
from lockstep.api.registry import Registry
from lockstep.api.stream import Stream
from lockstep.errors import PlanError
from lockstep.plan.graph import Graph
from lockstep.plan.schema import did_you_mean
from lockstep.plan.specs import SourceSpec, TableSpec
from lockstep.plan.sql_meaning import as_sql_means
from lockstep.plan.steps import Source

if TYPE_CHECKING:
    from lockstep.library.running import RunningJob
    from lockstep.library.view import JobResult

_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")


class Job:
    """A pipeline with a name. Options are those of ``[run]`` in `lockstep.toml`, durations as people write them.

    >>> Job("failed-logins", replicas=3, epoch_interval="200 ms").options
    {'replicas': 3, 'epoch_interval_s': 0.2}
    """

    def __init__(self, name: str, **options: Any) -> None:
        self.name = checked_job_name(name)
        self.options: Mapping[str, Any] = checked_options(options)
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

    def run(
        self,
        *,
        project: str | os.PathLike[str] | None = None,
        master: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        show: bool | None = None,
        **options: Any,
    ) -> JobResult:
        """Run the job in processes of its own, as `lockstep run` does, wait for its end, and give what it published.

        >>> result = job.run()                        # doctest: +SKIP
        >>> result.read("counts").pandas()            # doctest: +SKIP

        Without ``project`` it lives in a temporary folder that goes with the result: it processes all its input and
        ends, with one replica unless it is told otherwise. With a project folder it is what `lockstep run` is there: it
        goes on where it was, until Ctrl-C, ``until_done=True`` or ``available_now=True`` ends it. ``options`` are those
        of ``[run]`` (``replicas=2``, ``epoch_interval="200 ms"``); ``master`` and ``spark_conf`` go to Spark. ``show``
        draws the running job (default: in a notebook). Ctrl-C ends the job after the epoch under way.
        """
        # Imported late, here and below: describing a job needs no Spark.
        from lockstep.library.running import run

        return run(self, project, options, _spark(master, spark_conf), show=show)

    def start(
        self,
        *,
        project: str | os.PathLike[str] | None = None,
        master: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        **options: Any,
    ) -> RunningJob:
        """Start the job in processes of its own, and go on: the handle feeds it, looks at it and ends it.

        >>> with job.start(replicas=2) as running:    # doctest: +SKIP
        ...     running.put("logins", [{"user": "ann", "ok": False}])
        ...     running.catch_up()
        ...     print(running.read("failures").pandas())

        The arguments are those of :meth:`run`. Without ``project`` everything is in a temporary folder that goes with
        the handle. The job ends with the block, with :meth:`RunningJob.stop`, or with this program, however that ends.
        """
        from lockstep.library.running import start

        return start(self, project, options, _spark(master, spark_conf))

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


def _spark(master: str | None, conf: Mapping[str, str] | None) -> dict[str, Any]:
    settings: dict[str, Any] = {"conf": dict(conf or {})}
    return settings if master is None else {**settings, "master": master}


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
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
