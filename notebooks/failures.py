"""A notebook on a lake of traces: what fails, where, and what it costs. A plain Python file for marimo.

marimo edit notebooks/failures.py       with FLYWHEEL_ROOT set, or from inside a workspace
python notebooks/failures.py            runs every cell, as the tests do
"""

import marimo

app = marimo.App(app_title="What fails")


@app.cell
def _():
    import marimo as mo

    import flywheel

    con = flywheel.connect()
    mo.md("# What fails\n\nThe views are explained in `docs/sql.md`; `con` is a connection over the newest snapshot.")
    return con, mo


@app.cell
def _(con, mo):
    funnel = con.sql("from funnel").fetchall()
    mo.vstack(
        [mo.md("## From what came in to what is served"), mo.ui.table([{"stage": s, "traces": n} for s, n in funnel])]
    )
    return (funnel,)


@app.cell
def _(con, mo):
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    found = con.sql(
        "select code, sum(n)::INT as n from failures_by_model group by code order by n desc limit 12"
    ).fetchall()
    figure, axes = plt.subplots(figsize=(7, 0.4 * len(found) + 1))
    axes.barh([code for code, _ in found], [n for _, n in found], color="#4269d0")
    axes.invert_yaxis()
    axes.set_xlabel("failures")
    figure.tight_layout()
    mo.vstack([mo.md("## Failures by code"), figure])
    return (found,)


@app.cell
def _(con, mo):
    errors = con.sql("from tool_errors limit 10").fetchall()
    mo.vstack(
        [
            mo.md("## What tools answered"),
            mo.ui.table([{"tool": tool, "message": message, "n": n} for tool, message, n, *_ in errors]),
        ]
    )
    return (errors,)


@app.cell
def _(con, mo):
    cost = con.sql("select model, traces, passed, tokens_per_success from cost").fetchall()
    names = ("model", "traces", "passed", "tokens per success")
    mo.vstack([mo.md("## What a success costs"), mo.ui.table([dict(zip(names, row, strict=True)) for row in cost])])
    return (cost,)


if __name__ == "__main__":
    app.run()
