from trainparity.records.later_steps import LaterSteps


def test_what_judges_later_steps_is_said_with_what_to_do() -> None:
    later = LaterSteps(first=8, last=23, judged_by="weights at the end")
    bitwise, equivalent = (later.sentence(bitwise=equal) for equal in (True, False))
    assert bitwise == (
        "compared by the weights at the end alone: steps 8 to 23. Record every step (`interval=1`, or `--interval 1`) "
        "to compare these"
    )
    assert equivalent == bitwise.replace(
        "to 23.", "to 23: a fault within the noise floor of these weights is not seen."
    )


def test_what_nothing_judges_is_said_louder() -> None:
    one = LaterSteps(first=8, last=8, judged_by="nothing", because="gone", model="G")
    assert one.sentence(bitwise=True).startswith("NOT compared: step 8 of the model G: gone. Record every step")


def test_where_recording_has_ended_no_interval_helps() -> None:
    endless = LaterSteps(first=5, last=None, judged_by="nothing", because="the model has other parameters")
    assert endless.sentence(bitwise=False) == "NOT compared: the steps from 5 on: the model has other parameters"
