"""Facts of sources: the same from the cache folder as from the text, and never those of another text or user."""

from hashlib import sha256

import pytest

from tracer.compile import source_facts as module
from tracer.compile.source_facts import parsed_facts, source_facts

TEXT = '"""Words."""\nfrom . import b\nfrom .c import VALUE\nimport numpy.linalg\n'
IMPORTS = {"pack", "pack.b", "pack.c", "pack.c.VALUE", "numpy", "numpy.linalg"}


@pytest.fixture
def source(monkeypatch, tmp_path):
    """A source file. Its cache folder is empty."""
    monkeypatch.setenv("T3SIM_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "a.py"
    path.write_text(TEXT)
    return path


@pytest.fixture
def parsed(monkeypatch):
    """The texts that were parsed."""
    texts = []
    monkeypatch.setattr(module, "parsed_facts", lambda text, package: texts.append(text) or parsed_facts(text, package))
    return texts


def found_again(path, name="pack.a"):
    """The facts as a new process finds them."""
    module._facts_of.cache_clear()
    return source_facts(path, name)


def entries(path):
    return list(path.parent.glob("cache/sources-*/*.facts"))


def test_facts_of_a_text(source, parsed):
    facts = source_facts(source, "pack.a")
    assert facts.imports == IMPORTS
    assert facts == found_again(source) == parsed_facts(TEXT.encode(), "pack")
    assert len(parsed) == 1


def test_another_text_or_package_has_other_facts(source, parsed):
    facts = source_facts(source, "pack.a")
    assert found_again(source, "other.a").imports == {name.replace("pack", "other") for name in IMPORTS}
    source.write_text(TEXT + "VALUE = 1\n")
    assert found_again(source).syntax_hash != facts.syntax_hash
    assert len(parsed) == len(entries(source)) == 3


def test_a_damaged_entry_is_not_used(source, parsed):
    facts = source_facts(source, "pack.a")
    kept = entries(source)[0].read_bytes()
    for damage in (b"", b"\n", b"\xff", kept[:-1], kept[1:], kept.replace(b"numpy", b"numba"), kept + b"\n"):
        entries(source)[0].write_bytes(damage)
        assert found_again(source) == facts
    assert len(parsed) == 8


@pytest.mark.parametrize("place", ["file", "folder", "root"])
def test_what_others_may_write_is_not_used(source, parsed, place):
    facts = source_facts(source, "pack.a")
    entry = entries(source)[0]
    wrong = "wrong\nwrong"
    entry.write_text(f"{sha256(wrong.encode()).hexdigest()}\n{wrong}")
    assert found_again(source).imports == {"wrong"}  # it is read
    {"file": entry, "folder": entry.parent, "root": entry.parent.parent}[place].chmod(0o770)
    assert found_again(source) == facts
    assert len(parsed) == 2


def test_without_a_folder_facts_are_parsed(source, parsed, monkeypatch):
    (source.parent / "file").write_text("")
    monkeypatch.setenv("T3SIM_CACHE_DIR", str(source.parent / "file"))
    assert source_facts(source, "pack.a") == found_again(source)
    assert len(parsed) == 2


@pytest.mark.parametrize("content", [b"def f(:\n", b"a = 1\0\n", b"\xff\xfe"])
def test_no_python(source, content):
    source.write_bytes(content)
    facts = source_facts(source, "pack.a")
    assert not facts.imports and facts == found_again(source)
    source.write_bytes(content + b"\n")
    assert found_again(source).syntax_hash != facts.syntax_hash
