"""Which methods there are."""

from pathlib import Path

from daeosens.methods.registry import METHODS


def test_the_table_of_methods_has_all_of_them_with_their_orders():
    page = (Path(__file__).parents[2] / "docs" / "stepping.md").read_text()
    table = page.partition("| method | order | error estimate |\n")[2].partition("\n\n")[0]
    orders = {}
    for row in table.splitlines()[1:]:
        names, numbers, _ = (cell.split(", ") for cell in row.strip("| ").split(" | "))
        orders |= dict(
            zip(names, numbers if len(numbers) > 1 else numbers * len(names), strict=True)
        )
    by_theta = {name: orders.pop(name) for name in list(orders) if name.startswith("theta:")}
    assert list(by_theta.values()) == ["1", "2"]
    assert orders == {name: str(method.order) for name, method in METHODS.items()}
