"""What runs leave on disk, as typed records: a file for each writer, so that a stage depends on no more than it uses.

    runs/<run>/state/status.json       run.Status: what ran, or why it did not
    runs/<run>/state/trace.*           the trace (see `trainparity.parity.recording.trace`)
    runs/<run>/state/weights.safetensors
    runs/<run>/state/evaluation.json   evaluation.Evaluation, where classes are predicted and samples are held out
    runs/<run>/report/timing.json      timing.Timing, absent unless trained
    <folder>/run.json                  recorded.RunRecord, beside the trace of what `trainparity run` recorded
    runs/known-answer/result.json      known_answer.KnownAnswer
    runs/loading.json                  loading.LoadingReport
    runs/environment.json              trainparity.environment.Environment
    reports/parity.json                verdict.ParityReport, written by `compare`
    reports/curves.json                curves.CurveReport, likewise, where params.yaml has `curves`
    reports/claims.json                claims.ClaimReport, of a study

`<run>` is a configuration's name or `reference-<entry of references>`.
"""
