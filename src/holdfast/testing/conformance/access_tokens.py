"""Access tokens: kept until they are revoked or end. What they allow is for whoever reads them to say."""

from __future__ import annotations

from holdfast.core.access import AccessToken, GrantAccess, ListAccess, RevokeAccess
from holdfast.core.data import replace
from holdfast.testing.conformance.asker import CLIENT, OTHER_CLIENT, Asker, MakeStore

RIGHTS = ("acquire:build:*", "observe:*")
WANTED = GrantAccess("5f1e00000001", "ci", "0" * 64, RIGHTS, now=100.0)
KEPT = AccessToken("5f1e00000001", "ci", "0" * 64, RIGHTS, created_at=100.0)


class AccessTokens:
    """Granted once, listed in the order of their ids, and gone for all clients at once."""

    def test_a_granted_token_is_kept(self, ask: Asker) -> None:
        assert ask.store.execute(WANTED) == KEPT
        assert self._listed(ask, now=200.0) == [KEPT]

    def test_without_tokens_there_are_none(self, ask: Asker) -> None:
        assert self._listed(ask, now=100.0) == []

    def test_all_clients_see_the_same_tokens(self, make_store: MakeStore) -> None:
        mine, other = Asker(make_store(CLIENT)), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        mine.store.execute(WANTED)
        assert self._listed(other, now=101.0) == [KEPT]
        other.store.execute(RevokeAccess(KEPT.id, now=102.0))
        assert self._listed(mine, now=102.0) == []

    def test_a_token_is_granted_once(self, ask: Asker) -> None:
        """P6: a lost answer is asked for again. And nobody puts something else under an id that is there."""
        ask.store.execute(WANTED)
        assert ask.store.execute(replace(WANTED, now=101.0)) == KEPT
        other = replace(WANTED, name="eve", digest="f" * 64, rights=("admin:*",), ttl=5.0, now=102.0)
        assert ask.store.execute(other) == KEPT
        assert self._listed(ask, now=200.0) == [KEPT]

    def test_a_revoked_token_is_gone(self, ask: Asker) -> None:
        ask.store.execute(WANTED)
        assert ask.store.execute(RevokeAccess(KEPT.id, now=101.0)) == KEPT
        assert self._listed(ask, now=101.0) == []
        assert ask.store.execute(RevokeAccess(KEPT.id, now=102.0)) is None

    def test_to_revoke_what_was_never_granted_changes_nothing(self, ask: Asker) -> None:
        ask.store.execute(WANTED)
        assert ask.store.execute(RevokeAccess("5f1e00000002", now=101.0)) is None
        assert self._listed(ask, now=101.0) == [KEPT]

    def test_a_token_ends_by_itself(self, ask: Asker) -> None:
        kept = ask.store.execute(replace(WANTED, ttl=10.0))
        assert kept == replace(KEPT, expires_at=110.0)
        assert self._listed(ask, now=109.9) == [kept]
        assert self._listed(ask, now=110.0) == []

    def test_a_token_that_has_ended_does_not_come_back(self, ask: Asker) -> None:
        """A late copy of its request must not revive it."""
        ended = ask.store.execute(replace(WANTED, ttl=10.0))
        assert ask.store.execute(replace(WANTED, ttl=10.0, now=111.0)) == ended
        assert self._listed(ask, now=111.0) == []

    def test_tokens_that_have_ended_are_swept_away_and_others_are_not(self, ask: Asker) -> None:
        ask.store.execute(replace(WANTED, ttl=10.0))
        lasting = ask.store.execute(replace(WANTED, id="5f1e00000002"))
        longer = ask.store.execute(replace(WANTED, id="5f1e00000003", ttl=11.0))
        ask.sweep(now=110.0)
        assert self._listed(ask, now=100.0) == [lasting, longer]
        assert ask.store.execute(RevokeAccess(WANTED.id, now=110.0)) is None

    def test_tokens_are_listed_in_the_order_of_their_ids(self, ask: Asker) -> None:
        ids = ["5f1e00000002", "5f1e0000000a", "5f1e00000001", "0f1e00000009", "ff1e00000000"]
        for number, each in enumerate(ids):
            ask.store.execute(replace(WANTED, id=each, now=100.0 + number))
        assert [token.id for token in self._listed(ask, now=200.0)] == sorted(ids)

    def test_names_and_many_long_rights_are_kept_as_they_are(self, ask: Asker) -> None:
        rights = tuple(f"acquire:{'锁' * 250}{number}:*" for number in range(100))
        kept = ask.store.execute(replace(WANTED, name="Zoë's laptop 💻", rights=rights))
        assert (kept.name, kept.rights) == ("Zoë's laptop 💻", rights)
        assert self._listed(ask, now=101.0) == [kept]

    def test_the_store_has_the_time(self, ask: Asker) -> None:
        kept = ask.store.execute(replace(WANTED, ttl=1000.0, now=None))
        assert kept.expires_at is not None
        assert round(kept.expires_at - kept.created_at, 6) == 1000.0
        assert list(ask.store.execute(ListAccess())) == [kept]

    @staticmethod
    def _listed(ask: Asker, *, now: float) -> list[AccessToken]:
        return list(ask.store.execute(ListAccess(now=now)))
