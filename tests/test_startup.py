"""``umpteen --help`` is quick: a budget of CPU time, and none of the heavy packages."""

import resource
import subprocess
import sys

import pytest

BUDGET_SECONDS = 0.5
HEAVY = {"torch", "transformers", "scipy", "tokenizers", "safetensors", "pyarrow", "matplotlib"}
CALL = "import sys; from umpteen.cli import main; main(prog_name='umpteen')"


def cpu_seconds(*arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", CALL, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def test_help_stays_within_its_budget():
    # The best of three: the first call may still have to compile or fetch files from the disk.
    assert min(cpu_seconds("--help") for _ in range(3)) < BUDGET_SECONDS


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["presets"]])
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys\nfrom umpteen.cli import main\n"
        "main(sys.argv[1:], prog_name='umpteen', standalone_mode=False)\n"
        "print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    assert "umpteen" in loaded
    assert not loaded & HEAVY


def test_help_lists_every_command():
    from umpteen.cli import COMMANDS, SECTIONS

    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(COMMANDS)

    done = subprocess.run(
        [sys.executable, "-c", CALL, "--help"], capture_output=True, text=True, check=True
    )
    for name, summary in COMMANDS.items():
        assert f"\n  {name} " in done.stdout
        assert summary in " ".join(done.stdout.split())
