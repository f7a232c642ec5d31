"""The registry of causes: rules on recorded evidence, tried in the order of `RULES`.

A new cause is a function with `@rule(...)` in a file of this folder, its line in `RULES` and its page in docs/causes;
`make docs` writes what the documents say of its proof and advice.
"""

from trainparity.parity.causes import (
    accumulation,
    averages,
    backward,
    batchnorm,
    buffers,
    by_hand,
    clipping,
    detached,
    forward,
    frozen,
    inputs,
    loss,
    modes,
    optimizer,
    optimizer_state,
    penalties,
    precision,
    randomness,
    ranks,
    rate,
    reduction,
    replicas,
    samples,
    scaler,
    shards,
    start,
    targets,
    unmoved,
    update,
    weights,
    zeros,
)
from trainparity.parity.causes.finding import Evidence, Finding, Rule

__all__ = ["FACTS", "IDENTIFIERS", "RULES", "Evidence", "Finding", "Rule"]

RULES: tuple[Rule, ...] = (
    # What holds whatever else is off: other ranks, another start, other inputs.
    unmoved.steps_left_out,
    update.evaluated_again,
    replicas.apart_in_a_group,
    ranks.clipped_by_own_norms,
    shards.clipped_apart,
    shards.scaled_apart,
    ranks.ranks_disagree,  # of copies beside such shards
    start.changed_between_steps,
    start.not_moved_back,
    averages.written_before_the_update,
    averages.averaged_by_another_part,
    start.weights_not_loaded,
    start.averaged_otherwise,
    unmoved.made_after_the_optimizer,
    modes.eval_mode,
    unmoved.neither_moved_nor_zeroed,
    accumulation.gradients_not_zeroed,  # what is thrown away counts as no sample
    accumulation.updated_before,
    detached.flows_through_targets,
    detached.inputs_take_gradients,
    detached.detached_between_calls,
    detached.passed_without_gradients,
    samples.other_samples,
    inputs.other_values,
    inputs.made_otherwise,
    inputs.other_inputs_beside,
    # What is done to the gradient between backward and the update, seen as it happens.
    unmoved.never_reached,
    accumulation.takes_more,
    accumulation.missing_backward,
    accumulation.updated_again,
    ranks.never_reduced,
    ranks.last_not_reduced,
    ranks.never_averaged,
    scaler.grad_scaler,
    clipping.clipped_too_early,
    clipping.clipped_while_scaled,
    precision.overflow,
    frozen.frozen_parameter,
    scaler.unscaled_again,
    by_hand.clipped_by_hand,
    # What explains the whole gradient by arithmetic, or that of some parameters.
    reduction.divided_otherwise,
    zeros.scaled_by_zeros,
    backward.scaled_inside,
    loss.turned,
    loss.scaled,
    loss.scaled_at_the_outputs,
    loss.batch_coupled,
    weights.weighted_otherwise,
    weights.weighted_at_the_outputs,
    # What updates have done before.
    update.other_update_before,
    # What changes the forward pass.
    batchnorm.batchnorm_statistics,
    forward.power_iterations,
    modes.dropout_rate,
    randomness.randomness,
    precision.other_format,
    buffers.read_from_buffers,
    # What no named fault explains, placed by outputs and their gradients.
    forward.forward,
    zeros.hidden_by_zeros,
    zeros.hidden_behind_zeros,
    update.moved_otherwise,
    detached.stopped_between_calls,
    targets.loss_or_targets,
    penalties.weights_penalised,
    penalties.taken_by_the_loss,
    penalties.gradients_penalised,
    targets.other_value,
    targets.other_value_compiled,
    forward.hidden_inside,
    backward.backward,
    by_hand.changed_by_hand,
    samples.made_left_out,
    inputs.made_by_the_loop,
    forward.called_another_number_of_times,
    # The gradient is right and the update is not.
    frozen.none_for_zeros,
    unmoved.parameters_not_updated,
    optimizer.held_by_another,
    rate.learning_rate,
    rate.schedule,
    clipping.clipped_in_parts,
    by_hand.changed_after_clipping,
    clipping.clipped_otherwise,
    optimizer.optimizer_options,
    precision.updates_round_otherwise,
    optimizer_state.optimizer_state,
    inputs.other_values_before_the_update,
    update.kept_otherwise,
    update.other_update,
    buffers.fed_by_buffers,
    buffers.with_other_constants,
    buffers.buffers_only,
)

FACTS: tuple[Rule, ...] = tuple(rule for rule in RULES if rule.differs)
"""Rules of what is recorded exactly: where one differs, the runs are different."""

IDENTIFIERS: tuple[str, ...] = tuple(dict.fromkeys(rule.cause for rule in RULES))
"""The causes that can be named, besides `unknown`."""
