"""Measures of compilation."""

from trainparity.claims import quantities
from trainparity.claims.measures.figure import Figure, compile_s, median_s
from trainparity.claims.study import NotMeasurable, Study
from trainparity.records.numbers import number


def compilation(measure: quantities.Compilation, study: Study) -> Figure:
    """Return Dynamo's seconds."""
    timing = study.measured(measure.run)
    return Figure(f"{number(compile_s(timing))} s", value=compile_s(timing), timings=(timing,))


def break_even(measure: quantities.BreakEven, study: Study) -> Figure:
    """Divide the compilation by what each compiled epoch saves."""
    compiled, eager = study.timing(measure.run), study.timing(measure.over)
    saved = (median_s(eager) - median_s(compiled)) * study.steps_per_epoch(measure.run)
    if saved <= 0:
        return Figure("never: a compiled epoch is no faster", value=float("inf"), timings=(compiled, eager))
    epochs = compile_s(compiled) / saved
    return Figure(f"after {number(epochs)} epochs", value=epochs, timings=(compiled, eager))


def graph_breaks(measure: quantities.GraphBreaks, study: Study) -> Figure:
    """Count graph breaks, and say where they are."""
    timing = study.measured(measure.run)
    if timing.graph_breaks is None:
        raise NotMeasurable(f"{measure.run} was not compiled, or this torch keeps no account of it")
    places = f": {'; '.join(timing.break_places)}" if timing.break_places else ""
    return Figure(f"{timing.graph_breaks} in {timing.graphs} graphs{places}", value=timing.graph_breaks)
