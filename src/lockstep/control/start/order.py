"""How a job's epochs are ordered, settled before its first replica starts: agreed on one by one, or derived."""

from __future__ import annotations

from lockstep.clock import Clock, wall_us
from lockstep.config import RunSettings
from lockstep.connect.kafka.order import check_topic, topic_start
from lockstep.connect.kafka.specs import KafkaSource
from lockstep.errors import RunError
from lockstep.plan.graph import Graph
from lockstep.runtime.decide.deriving import DerivedOrder, begun
from lockstep.store.derived import ORDER
from lockstep.store.protocols import Store


def settle_order(store: Store, graph: Graph, settings: RunSettings, clock: Clock = wall_us) -> None:
    """See to it that the job has the order that is asked for; where epochs are derived, from when on is agreed here."""
    held = store.fact(ORDER)
    if settings.order == "agreed":
        if held is not None:
            raise _fixed(graph.name, "derived")
        return
    topics = _topics(graph, settings)
    if held is None:
        if store.head() is not None:
            raise _fixed(graph.name, "agreed")
        starts = {source: topic_start(spec) for source, spec in topics.items()}
        store.put_fact_if_absent(ORDER, begun(settings, starts, clock()).to_text())
        return
    for spec in topics.values():
        check_topic(spec)
    _tell_interval(store, DerivedOrder.from_text(held), settings)


def _topics(graph: Graph, settings: RunSettings) -> dict[str, KafkaSource]:
    """The sources of a job whose epochs can be derived; LS0617 if they cannot."""
    topics = {step.id: step.spec for step in graph.sources if isinstance(step.spec, KafkaSource)}
    other = [step.id for step in graph.sources if step.id not in topics]
    if other:
        raise _cannot(f'the source "{other[0]}" is no Kafka topic', "only Kafka's brokers stamp records in a log")
    if len(graph.stages) > 1 or graph.loops:
        raise _cannot(
            f"it has {len(graph.stages)} stages" if len(graph.stages) > 1 else "it has a loop",
            "how far the journal inside it is read does not follow from the topics",
        )
    if settings.ends_by_itself:
        raise _cannot("the run is to end by itself", "the stamps of a log do not tell where it ends")
    return topics


def _tell_interval(store: Store, order: DerivedOrder, settings: RunSettings) -> None:
    wanted_ms = round(settings.epoch_interval_s * 1000)
    if wanted_ms != order.interval_ms:
        text = f"epoch_interval_s stays {order.interval_ms / 1000:g}: the bounds of all epochs follow from it"
        store.add_event("order-interval", text)


def _cannot(what: str, why: str) -> RunError:
    return RunError(
        "LS0617",
        f"the epochs of this job cannot be derived: {what}",
        why=f"{why}, and all replicas have to derive the same epochs without asking anybody.",
        hint='run it with order="agreed", which is the default.',
    )


def _fixed(job: str, held: str) -> RunError:
    return RunError(
        "LS0616",
        f'job "{job}" was begun with order="{held}"',
        why="its epochs so far have their cuts by that order, and the two do not continue each other.",
        hint=f'run it with order="{held}", or give Job(...) another name and its sinks other places.',
    )
