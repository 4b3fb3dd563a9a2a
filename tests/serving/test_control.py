"""The file that tells workers which models to serve."""

from umpteen.serving.control import Control, Wanted


def test_a_worker_is_behind_until_it_has_loaded(tmp_path):
    control = Control(str(tmp_path), Wanted({"a": "runs/a"}, "a"))
    assert control.behind() == 1
    control.acknowledge(control.wanted.generation)
    assert control.behind() == 0
    with control.change() as wanted:
        control.write(active="b", previous=wanted.active)
    assert control.behind() == 1
    again = Control(str(tmp_path), Wanted({"a": "runs/a"}, "a"))
    assert again.wanted.active == "b"
    again.acknowledge(again.wanted.generation)
    assert control.behind() == 0


def test_a_worker_that_is_gone_is_not_behind(tmp_path):
    control = Control(str(tmp_path), Wanted({"a": "runs/a"}, "a"))
    control.acknowledge(0)
    (tmp_path / "worker-4194305").write_text("-1")  # above the highest process number of Linux
    assert control.behind() == 0
