"""What every store of the gate does with requests to a person, as tests; see `guard_contract`."""

from amv.guard.ports import GuardStore, GuardWriter
from amv.testing.guard_contract import (
    OWNER,
    GuardStoreContract,
    approval_row,
    each,
    record_row,
    text_row,
)


class RequestContract(GuardStoreContract):
    """What is asked of any store about requests, and the pages of them."""

    def test_requests_come_oldest_first_by_state(self, store: GuardStore) -> None:
        """One that is put again replaces the one before."""
        rows = [
            approval_row("b", created_s=2.0),
            approval_row("c", created_s=1.0),
            approval_row("a", created_s=2.0, state="used"),
        ]
        store.write(lambda tx: each(tx.put_approval, rows))
        with store.read() as reader:
            assert [row.approval_id for row in reader.approvals()] == ["c", "a", "b"]
            assert reader.approvals("pending") == [rows[1], rows[0]]
            assert reader.approval("a") == rows[2]
            assert reader.approvals_of("digest", "pending") == [rows[1], rows[0]]
            assert reader.approvals_of("digest", "used") == [rows[2]]
            assert reader.approvals_of("other", "pending") == []
        store.write(lambda tx: tx.put_approval(rows[0]._replace(state="approved")))

        with store.read() as reader:
            assert reader.approvals("pending") == [rows[1]]

    def test_requests_are_found_by_the_namespace_of_their_decision(self, store: GuardStore) -> None:
        """As long as the words that say it are there; all of them without a namespace."""
        names = {"d0": ("a",), "d1": ("a", "b"), "d2": ("ab",), "d3": ('a"',), "d4": ("a",)}

        def work(tx: GuardWriter) -> None:
            for decision_id, name in names.items():
                tx.put_text(text_row(decision_id)._replace(namespace=name))
                state = "used" if decision_id == "d4" else "pending"
                tx.put_approval(approval_row(decision_id, decision_id=decision_id, state=state))
            tx.put_approval(approval_row("d5", decision_id="d5"))

        store.write(work)

        def found(state: str | None, *name: str) -> list[str]:
            with store.read() as reader:
                return [row.approval_id for row in reader.approvals(state, namespace=name)]

        assert found(None, "a") == ["d0", "d1", "d4"]
        assert found("pending", "a") == ["d0", "d1"]
        assert found("used", "a") == ["d4"]
        assert found(None, "a", "b") == ["d1"]
        assert found(None, 'a"') == ["d3"]
        assert found("used", "ab") == found(None, "b") == []
        assert found("pending") == ["d0", "d1", "d2", "d3", "d5"]

    def test_requests_come_page_by_page(self, store: GuardStore) -> None:
        """Those of one time in the order of their ids, whatever else changes in between."""
        names = [("a",), ("a", "b"), ("b",)]

        def work(tx: GuardWriter) -> None:
            for n, name in enumerate(names):
                tx.put_text(text_row(f"d{n}")._replace(namespace=name))
            for n in range(30):
                row = approval_row(
                    f"r{n * 7 % 30:02}",
                    decision_id=f"d{n % 3}",
                    state="used" if n % 4 == 0 else "pending",
                    created_s=float(n // 10),
                )
                tx.put_approval(row)

        store.write(work)

        for state in (None, "pending", "used"):
            for namespace in ((), ("a",), ("a", "b"), ("c",)):
                for limit in (1, 4, 30):
                    with store.read() as reader:
                        whole = reader.approvals(state, namespace=namespace)
                        pages, after = [], None
                        while page := reader.approvals(
                            state, namespace=namespace, after=after, limit=limit
                        ):
                            assert len(page) <= limit
                            pages += page
                            after = (page[-1].created_s, page[-1].approval_id)
                    assert pages == whole
                    assert pages == sorted(pages, key=lambda r: (r.created_s, r.approval_id))
        with store.read() as reader:
            assert len(reader.approvals("pending", namespace=("a",))) == 14

    def test_words_that_are_kept_anew_keep_their_place(self, store: GuardStore) -> None:
        """So do the requests of their decision; what is forgotten has none."""

        def work(tx: GuardWriter) -> None:
            tx.append(record_row(1, "d1"))
            tx.put_approval(approval_row("a"))
            tx.put_text(text_row("d1"))

        def again(tx: GuardWriter) -> None:
            tx.put_text(text_row("d1")._replace(body=b"new"))
            tx.put_approval(approval_row("a", state="used"))
            tx.put_approval(approval_row("b"))

        for one in (work, again):
            store.write(one)
            with store.read() as reader:
                assert [row.number for row in reader.opened(OWNER, after=0)] == [1]
                assert [row.number for row in reader.opened(OWNER[:1], after=0)] == [1]
                found = [row.approval_id for row in reader.approvals(namespace=OWNER[:1])]
                assert found == [row.approval_id for row in reader.approvals()]
        with store.read() as reader:
            assert len(reader.approvals("used", namespace=OWNER)) == 1
