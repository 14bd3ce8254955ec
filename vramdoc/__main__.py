"""``python -m vramdoc`` and the console script."""

from __future__ import annotations


def main() -> None:
    """Run the command line; the import is late so that importing the package stays instant."""
    from vramdoc.cli.app import run  # noqa: PLC0415

    run()


if __name__ == "__main__":
    main()
