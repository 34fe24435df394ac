"""What all commands share: settings, exit codes, errors, streams, and the page about them."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

import amv as package
from amv.cli.app import app
from tests.cli.conftest import SRC, Cli
from tests.cli.test_learning import INSTANCE

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
GROUPS = ["keys", "guard", "approvals"]
KEY_ID = "(id of a key)"
"""Stands for the id of a key that was made for the test."""
DECISION_ID, APPROVAL_ID = "(id of a decision)", "(id of a request)"
ALTERNATIVES = '[{"tool": "refund", "arguments": {"order_id": "1"}}]'
POLICY = """
version: 1
actions:
  refund:
    loss: {wrong: 100, abstain: 1}
    approval: true
    rests_on:
      status: {claim: "order/{order_id}/status", require: delivered, verify_with: [desk]}
verifiers:
  desk: {cost: 0.5}
"""


def leaves(group: Any, before: str = "") -> dict[str, Any]:
    """Return the commands that do something, each under the words that call it."""
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        is_group = hasattr(command, "commands")
        found |= leaves(command, f"{before}{name} ") if is_group else {before + name: command}
    return found


COMMANDS = leaves(typer.main.get_command(app))
ARGUMENTS = {
    "add": ["text", "-n", "a"],
    "search": ["text", "-n", "a"],
    "context": ["text", "-n", "a"],
    "list": ["-n", "a"],
    "get": ["x", "-n", "a"],
    "update": ["x", "-n", "a", "--trust", "0.5"],
    "confirm": ["x", "-n", "a"],
    "refute": ["x", "-n", "a", "--value", "paid"],
    "forget": ["x", "-n", "a"],
    "stats": [],
    "sweep": [],
    "import": ["f"],
    "export": [],
    "reembed": ["hashing:64"],
    "doctor": [],
    "serve": ["--port", "0"],
    "keys create": [],
    "keys list": [],
    "keys revoke": [KEY_ID],
    "guard decide": ["refund", "-n", "a", "--arguments", '{"order_id": "1"}', "--policy", "p.yaml"],
    "guard rank": ["-n", "a", "--alternatives", ALTERNATIVES, "--policy", "p.yaml"],
    "guard decisions": [],
    "guard reconcile": [],
    "guard explain": [DECISION_ID],
    "guard replay": [],
    "guard lint": ["p.yaml"],
    "guard init": ["tools.json"],
    "guard label": [DECISION_ID, "status=held"],
    "guard calibrate": [],
    "guard certificate": [],
    "guard certify": ["instances.jsonl"],
    "approvals list": [],
    "approvals approve": [APPROVAL_ID, "--by", "Eve"],
    "approvals reject": [APPROVAL_ID, "--by", "Eve"],
}
ANSWERING = sorted(set(COMMANDS) - {"serve"})
"""Commands that end by themselves, and so have a result to show."""

WITHOUT_THE_FILE = {"guard init", "guard certify"}
"""Commands that read another file, and no memory."""

MAKING_THE_FILE = {"add", "import", "serve", "keys create"}


def test_every_command_is_run_below() -> None:
    assert set(COMMANDS) == set(ARGUMENTS)
    assert {name.rpartition(" ")[0] for name in COMMANDS} == {"", *GROUPS}


def named(command: Any) -> list[str]:
    """Return the names of a command's options."""
    return [
        name
        for parameter in command.params
        if parameter.param_type_name == "option"
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name != "--help"
    ]


def section(title: str) -> str:
    """Return the part of the page below the heading that begins with *title*."""
    found = re.search(rf"^{title}.*?$(.*?)(?=^##|\Z)", PAGE.read_text("utf-8"), re.M | re.S)
    assert found, f"docs/reference/cli.md has no heading {title!r}"
    return found[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_is_documented(command: str) -> None:
    text = section(f"### `amv {command}\\b") + section("## Every command")

    missing = [o for o in named(COMMANDS[command]) if not re.search(rf"`{o}[ `]", text)]
    assert not missing, f"docs/reference/cli.md doesn't say what {missing} of {command} does"


def test_every_option_before_the_command_is_documented() -> None:
    text = section("# Command line")

    assert [
        o for o in named(typer.main.get_command(app)) if not re.search(rf"`{o}[ `]", text)
    ] == []


def test_every_documented_command_and_option_exists() -> None:
    text = PAGE.read_text("utf-8")
    known = {name for command in COMMANDS.values() for name in named(command)}
    known |= {*named(typer.main.get_command(app)), "--help", "--"}

    assert set(re.findall(r"### `amv ([a-z ]*[a-z])", text)) == set(COMMANDS)
    assert set(re.findall(r"`(--[a-z-]*)", text)) <= known


@pytest.mark.parametrize("command", ANSWERING)
def test_every_command_speaks_json_in_success_and_in_failure(amv: Cli, command: str) -> None:
    amv("add", "text", "-n", "a", "--id", "x", "--claim", "order/1", "status", "pending")
    ids = {KEY_ID: amv("keys", "create", "--json").json["id"]}
    (amv.folder / "f").write_text('{"content": "x", "namespace": ["a"]}\n', "utf-8")
    (amv.folder / "p.yaml").write_text(POLICY, "utf-8")
    (amv.folder / "tools.json").write_text('[{"name": "refund"}]', "utf-8")
    (amv.folder / "instances.jsonl").write_text(f"{INSTANCE}\n" * 100, "utf-8")
    decided = amv("guard", "decide", *ARGUMENTS["guard decide"], "--json").json
    ids |= {DECISION_ID: decided["id"], APPROVAL_ID: decided["approval_id"]}
    # One call that was begun, and of which it is not known what became.
    rules = {"version": 1, "actions": {"send": {"loss": {"wrong": 1, "abstain": 5}}}}
    with package.Guard.open("amv.db", policy=rules) as guard:
        action = package.Action("send", namespace=("a",))
        permit = guard.decide(action).permit
        assert permit is not None
        guard.redeem(permit.token, action)
    given = [ids.get(word, word) for word in ARGUMENTS[command]]
    called = [*command.split(), *given, "--json"]

    done = amv(*called)
    missing = amv("--db", "nowhere/x.db", *called)
    misused = amv(*called, "--no-such-option")

    assert (done.code, done.err) == (0, "")
    assert all(isinstance(line, dict) for line in done.lines)
    assert done.lines
    if command not in WITHOUT_THE_FILE:
        assert (missing.code, missing.out) == (1, "")
        assert missing.error["type"] == "ConfigError"
        assert set(missing.error) == {"type", "message"}
    assert (misused.code, misused.out, misused.error["type"]) == (2, "", "UsageError")


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - MAKING_THE_FILE - WITHOUT_THE_FILE))
def test_a_mistyped_file_is_an_error_and_no_empty_memory(amv: Cli, command: str) -> None:
    (amv.folder / "p.yaml").write_text(POLICY, "utf-8")
    run = amv("--db", "mistyped.db", *command.split(), *ARGUMENTS[command])

    assert run.code == 1
    assert run.err.startswith("amv: there is no database 'mistyped.db'; name one with --db")
    assert [file.name for file in amv.folder.iterdir()] == ["p.yaml"]


def test_nothing_is_kept_in_a_memory_that_ends_with_the_command(amv: Cli) -> None:
    run = amv("--db", ":memory:", "add", "text", "-n", "a")

    assert run.code == 1
    assert ":memory:" in run.err


def test_options_win_over_the_environment(amv: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMV_DB", "from-environment.db")
    monkeypatch.setenv("AMV_EMBEDDER", "hashing:32")

    assert amv("add", "text", "-n", "a").code == 0
    assert amv("stats", "--json").json["dimension"] == 32
    assert amv("--db", "given.db", "--embedder", "hashing:64", "add", "x", "-n", "a").code == 0
    assert amv("--db", "given.db", "--embedder", "hashing:64", "stats").code == 0
    assert {"from-environment.db", "given.db"} <= {file.name for file in amv.folder.iterdir()}


def test_a_bad_environment_is_named(amv: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMV_LOG_LEVEL", "loud")

    run = amv("add", "text", "-n", "a", "--json")

    assert (run.code, run.error["type"]) == (1, "ConfigError")
    assert "AMV_LOG_LEVEL" in run.error["message"]


def test_an_unknown_embedder_is_an_error(amv: Cli) -> None:
    run = amv("--embedder", "word2vec", "add", "text", "-n", "a", "--json")

    assert (run.code, run.error["type"]) == (1, "InvalidInput")
    assert list(amv.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "command"),
        (["fly"], "'fly'"),
        (["--log-level", "loud", "stats"], "--log-level"),
        (["add"], "CONTENT"),
        (["add", "x", "y", "-n", "a"], "y"),
        (["stats", "--db", "x.db"], "--db stands before the command: amv --db ... stats"),
        (["-n", "a", "add", "x"], "put -n after the command: amv add ... -n"),
        (["--k", "5", "search", "x"], "put --k after the command: amv search ... --k"),
        (["--limit", "5"], "put --limit after the command: amv COMMAND ... --limit"),
        (["keys", "--level", "read"], "put --level after the command: amv keys COMMAND ... --l"),
        (["guard", "--session", "s", "decide", "x"], "after the command: amv guard decide ... --s"),
        (["--colour", "search", "x"], "No such option: --colour"),
        (["--k", "5", "get", "x"], "No such option: --k"),
    ],
)
def test_a_usage_error_is_one_line_that_says_where_to_look(
    amv: Cli, arguments: list[str], says: str
) -> None:
    run = amv(*arguments)

    assert (run.code, run.out) == (2, "")
    (line,) = run.err.splitlines()
    assert says in line
    assert "--help" in line


@pytest.mark.parametrize("called", [["search", "x", "-n", "a"], ["keys", "list"], ["keys"]])
def test_json_before_the_command_is_pointed_behind_it(amv: Cli, called: list[str]) -> None:
    run = amv("--json", *called)

    assert (run.code, run.error["type"]) == (2, "UsageError")
    assert run.error["message"].startswith("put --json after the command: amv ")


def test_an_error_of_ours_is_one_line_and_its_origin_only_for_debugging(amv: Cli) -> None:
    amv("add", "text", "-n", "a")

    plain = amv("get", "nowhere", "-n", "a")
    debugged = amv("--log-level", "debug", "get", "nowhere", "-n", "a")

    assert len(plain.err.splitlines()) == 1
    assert "Traceback" in debugged.err
    assert debugged.err.endswith(plain.err)


def test_an_error_of_another_kind_keeps_its_traceback(
    amv: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a bug, and hiding where it came from would help nobody."""
    amv("add", "text", "-n", "a")

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(package.Memory, "stats", broken)
    with pytest.raises(ZeroDivisionError):
        amv("stats")


def test_ctrl_c_ends_with_130(amv: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    amv("add", "text", "-n", "a")

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(package.Memory, "stats", stopped)
    run = amv("stats")

    assert (run.code, run.out, run.err) == (130, "", "")


INTERRUPTING = """
import os, signal, sys

class Interrupting:
    \"\"\"Stands before all finders: when a module is about to be loaded, Ctrl-C is pressed.\"\"\"

    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED_AT"]:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""


@pytest.mark.parametrize("module", ["amv.cli.app", "typer", "amv.config", "numpy", "apsw"])
@pytest.mark.parametrize(
    "called",
    [["-m", "amv"], ["-c", "import sys; from amv.cli import main; sys.exit(main())"]],
    ids=["module", "script"],
)
def test_ctrl_c_while_modules_are_loaded_ends_as_it_does_later(
    amv: Cli, called: list[str], module: str
) -> None:
    """That takes most of a short command's time, and a traceback helps nobody."""
    amv("add", "text", "-n", "a")
    (amv.folder / "sitecustomize.py").write_text(INTERRUPTING, "utf-8")
    environ = {"PYTHONPATH": os.pathsep.join([str(SRC), str(amv.folder)]), "INTERRUPTED_AT": module}

    run = subprocess.run(
        [sys.executable, *called, "stats"],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")


def test_the_version_is_that_of_the_package(amv: Cli) -> None:
    assert amv("--version").out == f"amv {package.__version__}\n"


@pytest.mark.parametrize("command", ["", *GROUPS, *COMMANDS])
def test_help_is_there_without_a_memory_or_a_sound_environment(
    amv: Cli, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("AMV_LOG_LEVEL", "loud")

    run = amv(*command.split(), "--help")

    assert run.code == 0
    assert run.out.startswith(f"Usage: amv {command}")


def test_the_command_line_loads_nothing_heavy_before_a_command_runs() -> None:
    """Help and errors should not wait for numpy, a model or a table library."""
    code = (
        "import sys\n"
        "from amv.cli import main\n"
        "assert main(['add', '--help']) == 0\n"
        "heavy = {'numpy', 'onnxruntime', 'apsw', 'rich', 'usearch', 'amv.wiring', 'amv.config'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    environ = os.environ | {"PYTHONPATH": str(SRC)}

    run = subprocess.run(
        [sys.executable, "-c", code], env=environ, check=True, capture_output=True, text=True
    )

    assert run.stderr == "[]\n"


# streams of a real process


def on_a_terminal(amv: Cli, width: int, *arguments: str) -> str:
    """Return what a terminal of *width* columns gets to see of a run."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "amv", *arguments],
        env=os.environ | {"PYTHONPATH": str(SRC), "COLUMNS": str(width), "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError), process:
        # Linux ends a terminal that nobody writes to any more with an error.
        while got := os.read(ours, 4096):
            seen += got
    os.close(ours)
    assert process.wait() == 0, seen
    return seen.decode()


def test_a_terminal_gets_tables_that_fit_and_ids_that_are_whole(amv: Cli) -> None:
    usual = amv("add", "text \x1b[31m" + "word " * 50, "-n", "a", "--json").json["id"]
    amv("add", "text", "-n", "a", "--id", "i" * 200)

    for arguments in (
        ["search", "text", "-n", "a"],
        ["list", "-n", "a"],
        ["get", usual, "-n", "a"],
    ):
        seen = on_a_terminal(amv, 80, *arguments)
        # What is left without styles.
        plain = re.sub(r"\x1b\[[0-9;]*m", "", seen)
        assert "\x1b" not in plain
        assert max(len(line) for line in plain.splitlines()) <= 80
        assert usual in plain
        assert "text \\x1b[31m" in plain
        if arguments[0] != "get":
            assert "".join(re.findall(r"^i+(?=[ \r])", plain, re.M)) == "i" * 200


def test_a_terminal_obeys_nothing_in_a_block_and_a_pipe_gets_it_as_it_is(amv: Cli) -> None:
    """A terminal would turn red or be renamed; a prompt needs the text that was remembered."""
    text = "alarm \x1b[31m\x07 \u202e turned \x9b2J\tline"
    amv("add", text, "-n", "a")

    seen = on_a_terminal(amv, 80, "context", "alarm", "-n", "a")
    piped = amv("context", "alarm", "-n", "a").out

    assert not set(seen) & set("\x1b\x07\u202e\x9b")
    assert "alarm \\x1b[31m\\x07 \\u202e turned \\x9b2J\tline" in seen
    assert text in piped


def test_a_terminal_sees_an_import_move_on_and_what_it_skips(amv: Cli) -> None:
    lines = "".join(json.dumps({"content": f"n {n}"}) + "\nnonsense\n" for n in range(3))
    (amv.folder / "f").write_text(lines, "utf-8")

    seen = on_a_terminal(amv, 80, "import", "f", "-n", "a", "--skip-bad")

    assert "importing" in seen
    assert "skipped line 2" in seen
    assert "6 lines: 3 items added" in seen


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_seen_enough_is_no_error(amv: Cli, unbuffered: str) -> None:
    lines = "".join(json.dumps({"content": f"n {n} " + "x" * 500}) + "\n" for n in range(1000))
    amv("import", "-", "-n", "a", stdin=lines)

    for arguments in (["export"], ["list", "-n", "a", "--all"]):
        with amv.start(*arguments, environ={"PYTHONUNBUFFERED": unbuffered}) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline()
            process.stdout.close()
            said = process.stderr.read()
        assert (process.returncode, said) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_an_error(amv: Cli) -> None:
    amv("add", "text", "-n", "a")

    with open("/dev/full", "wb") as full:
        run = subprocess.run(
            [sys.executable, "-m", "amv", "export", "--json"],
            env=os.environ | {"PYTHONPATH": str(SRC)},
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert run.returncode == 1
    assert json.loads(run.stderr)["error"]["type"] == "OutputFailed"


def test_any_locale_will_do(amv: Cli) -> None:
    """JSON is UTF-8 whatever the locale; for people, what it lacks is shown as an escape."""
    amv("add", "café 🏛", "-n", "a", "--id", "x")
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}

    said = {}
    for arguments in (["export"], ["get", "x", "-n", "a", "--json"], ["get", "x", "-n", "a"]):
        with amv.start(*arguments, environ=ascii_only) as process:
            out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        said[" ".join(arguments)] = out

    assert json.loads(said["export"])["content"] == "café 🏛"
    assert "café 🏛".encode() in said["get x -n a --json"]
    assert b"caf\\xe9 \\U0001f3db" in said["get x -n a"]


def test_python_m_amv_is_the_command_line(amv: Cli) -> None:
    with amv.start("--version") as process:
        out, _ = process.communicate(timeout=60)

    assert (process.returncode, out.decode()) == (0, f"amv {package.__version__}\n")
