"""The documents' examples run as they stand, and answer what stands beneath them; their links lead somewhere."""

import re
from pathlib import Path

import pytest

from documents import Examples, anchors, fences, links, same, statements
from harness import Cluster

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [*PAGES, *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md")]
LONGEST = {"README.md": 120, "ARCHITECTURE.md": 150}
# Where crates are; others lie below engine/.
CRATES = {
    "isobar": "isobar", "node": "isobar/node", "import": "isobar/import", "columnar": "columnar", "mpp": "mpp",
}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def programs(client) -> dict[str, str]:
    """What the examples call, and what it is called here."""
    return {"mysql": client("mariadb", "mysql"), "mysqldump": client("mariadb-dump", "mysqldump")}


def has_examples(path: Path) -> bool:
    """Whether a page has a fence that is no picture."""
    return re.search(r"```\w", path.read_text(encoding="utf-8")) is not None


@pytest.mark.parametrize("path", list(filter(has_examples, PAGES)), ids=name)
def test_the_examples_of_a_document(path: Path, cluster: Cluster, jar: Path, client, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")  # nothing of Spark's needs the network
    monkeypatch.chdir(tmp_path)
    cluster.clear()
    cluster.sql("CREATE DATABASE doc")
    examples = Examples(cluster, jar, tmp_path, programs(client))
    try:
        for fence in fences(path.read_text(encoding="utf-8")):
            where = f"{name(path)}:{fence.line}"
            try:
                found = examples.run(fence)
            except Exception as error:
                raise AssertionError(f"{where}: {error}") from error
            if found is None:
                continue
            if fence.answer is not None:
                assert same(fence.answer, found), f"{where}: the answer is\n{found}"
            else:
                assert "ERROR" not in found, f"{where}: {found}"
    finally:
        examples.close()


def test_a_wrong_answer_is_found(cluster: Cluster, jar: Path, client, tmp_path: Path):
    cluster.clear()
    cluster.sql("CREATE DATABASE doc")
    examples = Examples(cluster, jar, tmp_path, programs(client))
    page = "```sql\nSELECT 6 * 7 AS n, 'a;b' AS t; -- a remark; more\n```\n\n```text\n{}\n```\n"
    right = "+------+-----+\n| n    | t   |\n+------+-----+\n|   42 | a;b |\n+------+-----+"
    try:
        shell = fences("```sh\nmysql -h 127.0.0.1 -P 4000 -u root --skip-ssl -t -e \"SELECT 6 * 7 AS n, 'a;b' AS t\"\n```")
        assert examples.run(shell[0]).rstrip() == right, "tables are drawn as the client draws them"
        for shown, agrees in (
            (right, True),
            (right.replace("42", "…"), True),
            ("+------+-----+\n…\n+------+-----+", True),
            (right.replace("42", "43"), False),
            (right + "\n| 43 | a;b |", False),
            ("…\n| 43 | a;b |\n…", False),
        ):
            (fence, _) = fences(page.format(shown))
            assert same(fence.answer, examples.run(fence)) == agrees, shown
        (fence, _) = fences(page.format("").replace("6 * 7", "missing"))
        assert examples.run(fence).startswith("ERROR 1054: ")
        for command in ("isobar ctl stat", "isobar playground --rows 3", "isobar serve --conf x", "isobar import --header | isobar nothing"):
            with pytest.raises(AssertionError, match="isobar"):
                examples.check_commands(command)
        examples.check_commands("isobar ctl status --placement a:1,b:2 --json | head -1 # isobar nothing\nisobar diff a b --fix f.sql")
    finally:
        examples.close()


@pytest.mark.parametrize("wrong", ["```sql\nSELECT 1;", "```sq\n```", "```sh no-run:\n```", "- ```sql\n```"])
def test_a_fence_that_would_be_passed_over_is_an_error(wrong: str):
    with pytest.raises(ValueError, match="line 1"):
        fences(wrong)


def test_a_statement_without_an_end_is_an_error():
    with pytest.raises(ValueError, match="semicolon"):
        statements("SELECT 1; SELECT 2")


@pytest.mark.parametrize("path", sorted(set(LINKED)), ids=name)
def test_links_lead_somewhere(path: Path):
    for link in links(path.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), f"{name(path)}: {link} leads nowhere"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file.read_text(encoding="utf-8")), f"{name(path)}: {link} has no such heading"


@pytest.mark.parametrize("page, most", LONGEST.items())
def test_pages_that_are_read_first_are_short(page: str, most: int):
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= most


def test_every_page_is_linked_from_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in links(text) if not link.startswith("http")}
    assert set(PAGES[1:]) <= linked, sorted(map(name, set(PAGES[1:]) - linked))


@pytest.mark.parametrize("path", [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs/architecture").glob("*.md"))], ids=name)
def test_the_code_that_is_named_is_there(path: Path):
    """`crate::module` is a file or a name in one of the crate's; `folder/file` is there."""
    absent = []
    for word in re.findall(r"`([^`\n]+)`", path.read_text(encoding="utf-8")):
        if re.fullmatch(r"[a-z]+(::\w+)+", word):
            crate, *names = word.split("::")
            sources = ROOT / CRATES.get(crate, f"engine/{crate}") / "src"
            module = sources.joinpath(*names)
            if not module.is_dir() and not module.with_suffix(".rs").is_file():
                named = re.compile(rf"\b(?:struct|enum|trait|fn|type|const|mod)\s+{names[-1]}\b")
                if not any(named.search(file.read_text(encoding="utf-8")) for file in sources.rglob("*.rs")):
                    absent.append(word)
        elif re.fullmatch(r"[\w.]+(/[\w.]+)+", word) and not (ROOT / word).exists():
            absent.append(word)
    assert absent == []
