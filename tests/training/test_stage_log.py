"""Lines of long stages: written while nothing else is, with what is done."""

import threading

from umpteen.training.stage_log import QUIET, StageLog, as_stage_log

DEADLINE = 60.0


class Lines:
    """Keeps lines, and lets a test wait for one."""

    def __init__(self):
        self.texts = []
        self._arrived = threading.Condition()

    def __call__(self, text):
        with self._arrived:
            self.texts.append(text)
            self._arrived.notify_all()

    def wait_for(self, part, times=1):
        with self._arrived:
            assert self._arrived.wait_for(
                lambda: sum(part in text for text in self.texts) >= times, DEADLINE
            ), self.texts


def test_a_long_stage_has_further_lines_with_what_is_done():
    lines = Lines()
    with StageLog(lines, first=0.02) as log, log.stage("Encoding 7 texts") as progress:
        assert lines.texts[0] == "Encoding 7 texts"
        lines.wait_for("Encoding 7 texts: 0 s")
        progress(3000, 7000)
        lines.wait_for("Encoding 7 texts: 3,000 of 7,000 (")


def test_the_innermost_stage_is_named_and_its_time_is_kept():
    lines = Lines()
    with StageLog(lines, first=0.02) as log, log.stage("Training", announced=False):
        with log.stage("Mining", kind="mining", announced=False):
            lines.wait_for("Mining: ")
        lines.wait_for("Training: ")
    assert log.seconds["mining"] > 0
    assert set(log.seconds) == {"mining", "Training"}


def test_lines_that_cannot_be_written_do_not_end_it():
    lines = Lines()

    def fail_once(text):
        lines(text)
        if len(lines.texts) == 1:
            raise OSError("disk full")

    with StageLog(fail_once, first=0.02) as log, log.stage("Writing", announced=False):
        lines.wait_for("Writing: ", times=2)


def test_without_a_thread_only_given_lines_are_written():
    lines = Lines()
    log = as_stage_log(lines)
    with log.stage("Clustering", announced=False):
        log("a line")
    assert lines.texts == ["a line"]
    other = Lines()
    log.also(other)
    log("for both")
    assert (lines.texts[1:], other.texts) == (["for both"], ["for both"])
    assert as_stage_log(log) is log
    assert QUIET("nothing") is None
