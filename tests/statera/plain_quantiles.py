"""Weights and quantiles of lengths by their definitions, to compare the conformal calibration with."""


def plain_weights(rows: list[tuple[int, bool]], weights: list[float]) -> list[float]:
    """The weight of each answer that ended over the share that is known so far: for every length at which some still
    run, that of the others among those that are as long or longer, the ended ones of just that length left out."""
    found = []
    for (tokens, censored), weight in zip(rows, weights, strict=True):
        known = 1.0
        for length in {t for t, cut in rows if cut and t < tokens}:
            running = sum(w for (t, cut), w in zip(rows, weights, strict=True) if cut and t == length)
            longer = sum(w for (t, _), w in zip(rows, weights, strict=True) if t > length)
            known *= 1.0 - running / (running + longer)
        found.append(0.0 if censored else weight / known)
    return found


def plain_quantile(pairs: list[tuple[float, float]], total: float, epsilon: float) -> float:
    weight = sum(w for _, w in pairs)
    rank = max(total, weight) * (1.0 - epsilon) * (1.0 + sum(w * w for _, w in pairs) / weight**2)
    below = 0.0
    for error, w in pairs:
        below += w
        if w > 0.0 and below >= rank - 1e-9:
            return error
    return pairs[-1][0]
