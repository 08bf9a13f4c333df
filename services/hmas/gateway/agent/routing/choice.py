"""The choice of the worker for a request: of those of its pool that serve it, the one with the least predicted backlog
(DESIGN §3.4) or, where the prompt is known, the one where it costs the fewest seconds (`route_chooser.py`)."""

from collections.abc import Collection, Sequence

from hmas.contracts.cadences import WORKER_LOST_AFTER_S
from hmas.contracts.request import Annotation, Request
from hmas.gateway.agent.pools.workers import KnownWorker
from hmas.gateway.agent.routing.route_chooser import RouteChooser, in_pace, needed_pace_s
from hmas.gateway.agent.routing.route_costs import RouteCosts
from hmas.laws.layout import pace_class, serving


def least_loaded(now_s: float, workers: Sequence[KnownWorker]) -> KnownWorker | None:
    """Returns the worker with the least predicted backlog, or None if `workers` is empty. One without a working
    engine, or silent for more than WORKER_LOST_AFTER_S seconds, is chosen only if there is no other."""
    if len(workers) == 1:
        return workers[0]
    return min(workers, key=lambda worker: _rank(now_s, worker), default=None)


def _rank(now_s: float, worker: KnownWorker) -> tuple[bool, bool, float, int, int]:
    silent = now_s - worker.heard_s > WORKER_LOST_AFTER_S
    return (
        worker.engines_up == 0,
        silent,
        worker.predicted_backlog_s,
        worker.requests,
        worker.last_sent,  # least recently used first; workers never used have 0 and keep their order
    )


def serving_workers(
    now_s: float, workers: Sequence[KnownWorker], request: Request, annotation: Annotation | None
) -> Sequence[KnownWorker]:
    """Returns those of a pool's `workers` that serve the request's pace class, and of these the ones whose steps keep
    its SLO now, if there are such."""
    return in_pace(now_s, of_class(workers, request, annotation), request, annotation)


def of_class(workers: Sequence[KnownWorker], request: Request, annotation: Annotation | None) -> Sequence[KnownWorker]:
    """Returns those of a pool's `workers` that serve the request's pace class: by their layout, of which a class
    without a working engine is merged with its neighbour. All of them where the layout is mixed."""
    cuts_s = workers[0].heartbeat.layout.cuts_s if len(workers) > 1 else ()
    if not cuts_s:
        return workers
    wanted = pace_class(cuts_s, needed_pace_s(request, annotation))
    lane = serving(len(cuts_s) + 1, frozenset().union(*(worker.classes for worker in workers)))[wanted]
    return [worker for worker in workers if lane in worker.classes] or workers


def cheapest(
    chooser: RouteChooser,
    now_s: float,
    workers: Sequence[KnownWorker],
    request: Request,
    annotation: Annotation | None,
    refused_by: Collection[str],
) -> tuple[KnownWorker, RouteCosts] | None:
    """Returns the worker of a pool's usable `workers` where a request with a known prompt costs the fewest seconds,
    and what it costs at each that was compared. None if none of these has room and works."""
    chain, tokens = request.prefix, request.prompt_tokens
    mixed = not workers[0].heartbeat.layout.cuts_s
    if not mixed:
        workers = of_class(workers, request, annotation)
    known, owner, drawn = chooser.known(chain), chooser.owner(workers, chain), chooser.drawn(now_s, len(workers))
    if drawn < len(workers):
        workers = chooser.candidates(workers, chain, known, drawn, owner)
        if not mixed:
            workers = of_class(workers, request, annotation)
    roomy = [w for w in workers if tokens <= (w.appraisal or w.appraise()).room]
    if refused_by:
        roomy = [w for w in roomy if w.name not in refused_by]
    return chooser.choose(now_s, roomy, request, annotation, known, owner) if roomy else None
