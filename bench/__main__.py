"""Run a benchmark: ``python -m bench COMMAND SUBJECT ...``."""

from bench.catalogue import main

if __name__ == "__main__":
    main()
