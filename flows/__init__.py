"""The flows: Prefect decides when, `flywheel/` decides what. One flow a file; the only importers of prefect."""
