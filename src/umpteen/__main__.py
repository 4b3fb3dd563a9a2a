"""``python -m umpteen``: the command line, where its script is not on the path."""

from umpteen.cli import main

main(prog_name="umpteen")
