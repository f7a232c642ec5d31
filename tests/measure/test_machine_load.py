import subprocess
import sys
import time

from trainparity.measure.machine_load import MachineLoadMeter, own_cpu_s


def spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def test_what_others_use_is_all_that_is_used_less_what_is_ones_own() -> None:
    meter = MachineLoadMeter()
    before = own_cpu_s()
    spin(0.5)
    own = own_cpu_s() - before
    used, others = meter.read(own_cpu_s=0.0), meter.read(own_cpu_s=own)
    assert used and others
    assert own > 0.1
    assert 0 <= others.others < used.others <= 1
    assert 0 <= used.stolen <= 1


def test_the_work_of_ones_children_is_ones_own() -> None:
    before = own_cpu_s()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        time.sleep(1.0)
        used = own_cpu_s() - before
        child.kill()
    assert used > 0.1
