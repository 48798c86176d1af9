"""The pages of the dashboard over HTTP: content, escaping, signing in, and what they refuse."""

import asyncio
import logging
import re
from html import unescape

import httpx
import postgres_server
import pytest
from dashboard_store import HOSTILE_GROUP, HOSTILE_ITEM, QUERIES, START, filled_ranker
from serving import serving

import mcfair as mf
from mcfair.policies.base import parse_policy
from mcfair.service import create_app
from mcfair.service.ranker import Ranker
from mcfair.service.web.dashboard import reads
from mcfair.service.web.dashboard.formatting import format_share
from mcfair.service.web.dashboard.pages import PAGES
from mcfair.service.web.sessions import SESSION_SECONDS

VISIBLE = ["/", "/queries", "/items", "/compare"]
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def filled():
    """A client of a service without keys, with data."""
    with filled_ranker() as ranker, serving(ranker) as client:
        client.ranker = ranker
        yield client


@pytest.fixture(scope="module")
def keyed():
    """A client of a service with keys; `keys` has one of each scope, and a revoked one."""
    with Ranker("memory:", summary_interval=0) as ranker:
        keys = {scope: ranker.add_key(scope, [scope]).key for scope in ("rank", "feedback", "read", "admin")}
        revoked = ranker.add_key("revoked", ["read"])
        ranker.revoke_key(revoked.info.id)
        with serving(ranker, admin_token="the-token") as client:
            client.ranker, client.keys = ranker, keys | {"revoked": revoked.key}
            yield client


@pytest.fixture(autouse=True)
def signed_out(keyed):
    keyed.cookies.clear()


def titles(page):
    """The headings of a page as texts, without markup."""
    found = re.findall(r"<h[12][^>]*>(.*?)</h[12]>", page.text, flags=re.DOTALL)
    return [unescape(re.sub(r"<[^>]+>", "", text)).replace("\xa0", " ") for text in found]


# --- content ---------------------------------------------------------------------------------------------------------


def test_an_empty_store_explains_what_to_do():
    with Ranker("memory:", summary_interval=0) as ranker, serving(ranker) as client:
        page = client.get("/")
        assert titles(page)[:2] == ["No lists have been ranked yet", "Rank a first list"]
        assert f"curl {client.base_url}/v1/rank" in page.text
        assert titles(client.get("/queries"))[0] == "No queries yet"
        assert client.get("/items").status_code == 200


def test_the_command_of_an_empty_store_works():
    import json
    import shlex

    with Ranker("memory:", summary_interval=0) as ranker, serving(ranker) as client:
        text = unescape(re.search(r"<pre>(curl .*?)</pre>", client.get("/").text, flags=re.DOTALL)[1])
        words = shlex.split(text.replace("\\\n", " "))
        body = json.loads(words[words.index("-d") + 1])
        assert httpx.post(words[1], json=body).status_code == 200
        assert titles(client.get("/"))[0] != "No lists have been ranked yet"


def test_figures_are_those_of_the_operations(filled):
    fairness = filled.ranker.fairness()
    page = filled.get("/")
    moved = sum(abs(each.exposure_share - each.merit_share) for each in fairness.groups) / 2
    assert titles(page)[0] == f"{100 * moved:.1f} % of all exposure goes to other groups than relevance merits"
    tiles = dict(re.findall(r"<dt>(\w+)</dt><dd><strong>([^<]*)</strong>", page.text))
    assert tiles["Lists"] == "120"
    assert tiles["Queries"] == str(filled.ranker.usage().queries) == "3"
    points = filled.ranker.history(limit=168).points
    assert tiles["Clicks"] == str(sum(point.clicks for point in points))
    assert float(tiles["Unfairness"]) == pytest.approx(fairness.unfairness, rel=5e-3)
    rows = re.findall(
        r'<th scope="row" class="text">1 Jan 2026, 05:00</th>\s*<td>(\d+)</td>\s*<td>(\d+)</td>', page.text
    )
    at_five = next(point for point in points if point.start.hour == 5 and point.start.day == 1)
    assert rows == [(str(at_five.lists), str(at_five.clicks))]


def test_policy_and_its_history(filled):
    text = unescape(filled.get("/").text)
    assert "Policy in force since 1 Jan 2026, 15:00" in text
    assert "policy: TopK → MCFair(alpha=10.0)" in text
    assert "version 2: MCFair(alpha=10.0)" in text  # marked in the chart


def test_policies_of_a_plugin_that_is_not_loaded_any_more(tmp_path, monkeypatch):
    """Versions of the rules are kept for ever, and so are the names of policies in them."""

    class Mine(mf.TopK):
        pass

    arms = [{"name": "mine", "policy": "Mine", "share": 0.5}]
    with monkeypatch.context() as patch, Ranker(tmp_path / "mcfair.db", warm=False, summary_interval=0) as ranker:
        patch.setitem(mf.Policy.kind.registry, "Mine", Mine)
        ranker.change_policy(policy="Mine(beta=2)")
        ranker.rank("old", list("abc"), k=2)
        ranker.change_policy(policy="TopK", experiment={"name": "mine", "arms": arms})
        for i in range(8):
            ranker.rank("new", list("abc"), k=2, session=f"s{i}")
        ranker.rank("shadow", list("abc"), k=2, policy="Mine", shadow=True)
        ranker.change_policy(experiment=None)
        queries = [f"/queries/{ranker.query_state(query).query_id}" for query in ("old", "new")]
    with Ranker(tmp_path / "mcfair.db", warm=False, summary_interval=0) as ranker, serving(ranker) as client:
        pages = [*VISIBLE, "/compare?policy=MMF", *queries]
        assert {path: client.get(path).status_code for path in pages} == dict.fromkeys(pages, 200)
        assert "policy: Mine(beta=2" in unescape(client.get("/").text)
        assert "MMF would have shown" in client.get("/compare?policy=MMF").text


def test_a_policy_that_is_not_allowed_is_refused_on_the_page(filled):
    answer = filled.get("/compare?policy=MCFair(alpha%3D-1)")
    assert answer.status_code == 400
    assert ">MCFair: alpha = -1 is not allowed: expected a finite number of at least 0" in answer.text


def test_only_the_newest_changes_of_the_rules_are_parsed(monkeypatch):
    """The engine waits for it, and there may be thousands of versions."""
    parsed = []
    with Ranker("memory:", warm=False, summary_interval=0) as ranker:
        for alpha in range(2, 30):
            ranker.change_policy(policy=f"MCFair(alpha={alpha})")
        monkeypatch.setattr(reads, "parse_policy", lambda text: parsed.append(text) or parse_policy(text))
        changes = ranker.worker.read(lambda reading: reads.rule_changes(reading.store, 3), 0, {})
    assert [each.changes for each in changes] == [[f"alpha of MCFair: {a - 1}.0 → {a}.0"] for a in (29, 28, 27)]
    assert len(set(parsed)) == 4


def test_most_unfair_query_comes_first(filled):
    found = filled.ranker.unfair_queries()
    for order in ("unfairness", "visits"):
        page = filled.get(f"/queries?order={order}&limit=2")
        ids = re.findall(r'href="\./queries/(\w+)"', page.text)
        assert ids == [each.query_id for each in filled.ranker.unfair_queries(order, limit=2).queries]
        assert f"order={order}&amp;offset=2" in page.text
    assert len(found.queries) == 3
    assert titles(filled.get("/queries"))[0] == "3 queries, the most unfair first"


def test_page_of_a_query_has_its_items_and_reasons(filled):
    state = filled.ranker.query_state(QUERIES[0])
    page = filled.get(f"/queries/{state.query_id}")
    text = unescape(page.text).replace("\xa0", " ")
    for item in state.items:
        assert item.id in text
        assert f"{item.interval[0]:.2f} to {item.interval[1]:.2f}" in text
    worst = max(state.items, key=lambda item: abs(item.exposure_share - item.merit_share))
    assert titles(page)[0].startswith(f"{worst.id} has had ")
    last = filled.ranker.rank(QUERIES[0], [item.id for item in state.items], k=3)
    explained = filled.ranker.explain(last.impression)
    text = unescape(filled.get(f"/queries/{state.query_id}").text).replace("\xa0", " ")
    for each in (*explained.items, *explained.omitted):
        assert each.sentence in text


def test_items_furthest_from_what_they_merit_have_a_reason(filled):
    text = unescape(filled.get("/items").text).replace("\xa0", " ")
    listed = 0
    for order in ("under", "over"):
        for item in filled.ranker.exposed_items(order, limit=8).items:
            few = "few" if order == "under" else "many"
            earns = format_share(item.merit_share)
            assert re.search(rf"its relevance earns {earns}: [\d.,]+ views too {few}\.", text)
            listed += 1
    assert 10 < listed == text.count("In the last list: ")


def test_hostile_names_are_escaped(filled):
    query_id = filled.ranker.query_state(QUERIES[0]).query_id
    for path in (*VISIBLE, f"/queries/{query_id}"):
        page = filled.get(path)
        assert "<script" not in page.text
        assert not re.search(r"<img|onerror=\"", page.text)
    assert HOSTILE_GROUP in unescape(filled.get("/").text)
    assert HOSTILE_ITEM in unescape(filled.get("/items").text)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9", "[::1]"])
def test_the_host_header_is_escaped_or_refused(filled, host):
    with Ranker("memory:", summary_interval=0) as ranker, serving(ranker) as client:
        assert f"http://{host}/v1/rank" in client.get("/", headers={"host": host}).text
    for hostile in ('"><script>', "evil.example"):
        page = filled.get("/", headers={"host": hostile})
        assert page.status_code == 403
        assert "<script>" not in page.text


def test_pages_fetch_nothing_and_allow_no_script(filled):
    for path in (*VISIBLE, "/docs"):
        page = filled.get(path)
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy
        assert not re.search(r"<script|@import|url\(|<[^<>]*\s(style|src|on\w+)=", page.text)
        assert re.findall(r"<link [^>]*?href=\"(\w+):", page.text) == ["data"]


def test_lists_of_many_queries_have_pages():
    """A store with more queries than are summarised when they are asked for."""
    with Ranker("memory:", summary_interval=0, warm=False) as ranker, serving(ranker) as client:
        worse_first = [{"id": "a", "prior": 0.1}, {"id": "b", "prior": 0.9}]
        for i in range(1_010):
            ranker.rank(f"query {i}", worse_first, k=1, shadow=True)
        before = ranker.fairness()
        ranker.rank("one more", worse_first, k=1)
        assert ranker.fairness() == before  # the last summary
        page = client.get("/queries")
        assert titles(page)[0] == "20 queries of 1,010 make up 2.0 % of the unfairness above the floor"
        assert len(re.findall(r'href="\./queries/\w+"', page.text)) == 20
        ids = set()
        for offset in range(0, 1_000, 100):
            page = client.get(f"/queries?offset={offset}&limit=100")
            ids.update(re.findall(r'href="\./queries/(\w+)"', page.text))
            assert ("← Previous" in page.text) == (offset > 0)
            assert ("Next →" in page.text) == (offset < 900)
        assert len(ids) == 1_000
        for path in VISIBLE:
            assert client.get(path).status_code == 200


def test_deleted_items_and_queries_are_gone_from_all_pages():
    with filled_ranker(hours=2, lists=12) as ranker, serving(ranker) as client:
        query_id = ranker.query_state(QUERIES[0]).query_id
        paths = [*VISIBLE, f"/queries/{query_id}"]
        item = next(each.id for each in ranker.exposed_items("over").items if each.id.startswith("item"))
        assert sum(item in client.get(path).text for path in paths) == 2
        ranker.delete_item(item)
        assert sum(item in client.get(path).text for path in paths) == 0
        ranker.delete_query(QUERIES[0])
        assert query_id not in "".join(client.get(path).text for path in VISIBLE)
        assert client.get(f"/queries/{query_id}").status_code == 404


# --- searching -------------------------------------------------------------------------------------------------------


def test_search_by_text_redirects_to_the_id(filled, caplog):
    caplog.set_level(logging.DEBUG)
    for text in QUERIES:
        found = filled.post("/queries", data={"query": text})
        assert found.status_code == 303
        assert found.headers["location"] == f"queries/{filled.ranker.query_state(text).query_id}"
    by_id = filled.post("/queries", data={"query": filled.ranker.query_state(QUERIES[0]).query_id})
    assert by_id.headers["location"] == f"queries/{filled.ranker.query_state(QUERIES[0]).query_id}"


def test_a_text_that_was_never_ranked_is_not_repeated(filled, caplog):
    caplog.set_level(logging.DEBUG)
    page = filled.post("/queries", data={"query": "symptoms of a rare disease"})
    assert page.status_code == 404
    assert "No list has been ranked for a query of exactly this text." in page.text
    assert "rare disease" not in page.text
    assert "rare" not in " ".join(record.getMessage() for record in caplog.records if record.name.startswith("mcfair"))
    assert filled.get("/queries/0123").status_code == 404
    assert filled.get("/queries/%22%3E%3Cscript%3E").status_code == 404


@pytest.mark.parametrize(
    "content", [b"query=%FF", b"query=\xff", b"&" * 99, b"query=" + b"a" * 4097], ids=["utf-8", "ascii", "many", "long"]
)
def test_forms_that_are_not_allowed_are_refused_by_a_page(filled, content):
    page = filled.post("/queries", content=content, headers=FORM)
    assert page.status_code == 400
    assert page.headers["content-type"] == "text/html; charset=utf-8"


def test_other_bodies_and_options_are_refused(filled):
    assert filled.post("/queries", json={"query": "red shoes"}).status_code == 415
    for query in ("?hours=5", "?hours=x", "?refresh=1", "?other=1", "?hours=24&hours=24", "?%FF=1"):
        assert filled.get(f"/{query}").status_code == 400
    assert filled.get("/queries?offset=-1").status_code == 400
    assert '<meta http-equiv="refresh" content="5">' in filled.get("/?refresh=5").text
    assert filled.put("/queries").status_code == 405


# --- signing in ------------------------------------------------------------------------------------------------------


def sign_in(client, key, **fields):
    return client.post("/sign-in", data={"key": key, **fields})


def test_pages_ask_for_a_key(keyed):
    for path in VISIBLE:
        page = keyed.get(path)
        assert page.status_code == 401
        assert page.headers["www-authenticate"] == "Bearer"
        assert titles(page) == ["Sign in"]
        assert f'name="page" value="{path[1:]}"' in page.text
    assert keyed.post("/queries", data={"query": "q"}).status_code == 401
    assert keyed.get("/docs").status_code == 200


def test_sign_in_with_a_key_that_may_read(keyed):
    for key in (keyed.keys["read"], keyed.keys["admin"], "the-token", f"  {keyed.keys['read']}\n"):
        found = sign_in(keyed, key, page="items")
        assert (found.status_code, found.headers["location"]) == (303, "items")
        cookie = found.headers["set-cookie"]
        assert "; HttpOnly; SameSite=Strict" in cookie
        assert f"Max-Age={SESSION_SECONDS}" in cookie
        assert "Secure" not in cookie  # the connection is not encrypted
        assert key.strip() not in cookie
        assert key.strip().split("_", 2)[-1] not in cookie
        for path in VISIBLE:
            page = keyed.get(path)
            assert page.status_code == 200
            assert "Sign out" in page.text
        assert keyed.post("/queries", data={"query": "q"}).status_code == 404
        ended = keyed.post("/sign-out", headers=FORM)
        assert ended.status_code == 303
        assert keyed.get("/").status_code == 401


@pytest.mark.parametrize("key", ["", "wrong", "mcfair_x_y", "é", "rank", "feedback", "revoked"])
def test_other_keys_are_refused(keyed, key):
    page = sign_in(keyed, keyed.keys.get(key, key))
    assert page.status_code == (403 if key in ("rank", "feedback") else 401)
    assert "set-cookie" not in page.headers
    assert ("lacks the scope" if key in ("rank", "feedback") else "unknown or revoked") in page.text
    assert keyed.get("/").status_code == 401


def test_a_key_in_the_header_needs_no_session(keyed):
    headers = {"authorization": f"Bearer {keyed.keys['read']}"}
    assert keyed.get("/", headers=headers).status_code == 200
    assert keyed.get("/", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert keyed.get("/", headers={"authorization": f"Bearer {keyed.keys['rank']}"}).status_code == 403
    assert keyed.get(f"/?key={keyed.keys['read']}").status_code == 401  # never in a URL


def test_a_session_is_not_accepted_by_the_api(keyed):
    sign_in(keyed, keyed.keys["admin"])
    assert keyed.get("/").status_code == 200
    for path in ("/v1/usage", "/v1/keys", "/metrics"):
        assert keyed.get(path).status_code == 401
    assert keyed.post("/v1/reset", json={"confirm": "reset"}).status_code == 401


def test_a_session_ends_with_its_key(keyed):
    made = keyed.ranker.add_key("short", ["read"])
    sign_in(keyed, made.key)
    assert keyed.get("/").status_code == 200
    keyed.ranker.revoke_key(made.info.id)
    page = keyed.get("/")
    assert page.status_code == 401
    assert "The session has ended" in page.text


def test_cookies_that_were_not_made_here_are_refused(keyed, monkeypatch):
    sign_in(keyed, keyed.keys["read"])
    good = keyed.cookies["mcfair_session"]
    name, expires, signature = good.split(".")
    other = keyed.keys["admin"].split("_")[1]
    forged = [f"{other}.{expires}.{signature}", f"{name}.{int(expires) + 1}.{signature}", f"{name}.{expires}.", name]
    forged += [f"{name}.{expires}.{signature[:-1]}", f"{name}.{'9' * 40}.{signature}", f"{name}.\u00b2.{signature}"]
    forged += ["a.b.c", "admin-token.1."]
    keyed.cookies.clear()
    for value in forged:
        assert keyed.get("/", headers={"cookie": f"mcfair_session={value}".encode()}).status_code == 401, value
    assert keyed.get("/", headers={"cookie": f"other=1; mcfair_session={good}"}).status_code == 200
    monkeypatch.setattr("time.time", lambda: int(expires))
    assert keyed.get("/", headers={"cookie": f"mcfair_session={good}"}).status_code == 401


@pytest.mark.skipif(postgres_server.missing() is not None, reason=str(postgres_server.missing()))
def test_a_session_is_accepted_by_every_instance_over_postgresql():
    url = postgres_server.shared_server().new_database()
    options = {"warm": False, "summary_interval": 0}
    with Ranker(url, **options) as one, Ranker(url, **options) as two:
        one.rank("red shoes", ["a", "b", "c"], k=2)
        key = one.add_key("reader", ["read"]).key
        assert two.keys()  # it has noticed the key
        with serving(one) as first, serving(two) as second:
            cookie = sign_in(first, key).headers["set-cookie"].partition(";")[0]
            assert second.get("/").status_code == 401
            for path in VISIBLE:
                assert second.get(path, headers={"cookie": cookie}).status_code == 200
            found = second.post("/queries", data={"query": "red shoes"}, headers={"cookie": cookie})
            page = second.get(f"/{found.headers['location']}", headers={"cookie": cookie})
            assert "Ranked 1st" in page.text


def test_cookies_of_strangers_cost_little(keyed):
    """Quotes, which a session never has, are not decoded: that may take the square of their number."""
    session = sign_in(keyed, keyed.keys["read"]).headers["set-cookie"].partition(";")[0]
    keyed.cookies.clear()
    name, _, value = session.partition("=")
    quoted = [
        f'{name}="{value}"',
        name + '="' + '\\"' * 30_000 + '"',
        f"{name}x={value}",
        f"x{name}={value}",
        f"{name}=",
    ]
    for cookie in quoted:
        assert keyed.get("/", headers={"cookie": cookie}).status_code == 401
    for cookie in (session, f"a=b; {session}", f'a="b;{session};c=d'):
        assert keyed.get("/", headers={"cookie": cookie}).status_code == 200


def test_forms_of_other_sites_are_refused(keyed):
    for site in ("cross-site", "same-site"):
        for path in ("/sign-in", "/sign-out", "/queries"):
            page = keyed.post(path, data={"key": keyed.keys["read"]}, headers={"sec-fetch-site": site})
            assert page.status_code == 403
            assert "set-cookie" not in page.headers
    assert keyed.post(
        "/sign-in", data={"key": keyed.keys["read"]}, headers={"sec-fetch-site": "same-origin"}
    ).is_redirect


def test_browsers_that_name_the_origin_only_are_heard_too(keyed):
    """Over plain HTTP browsers send no Sec-Fetch-Site, except to this machine."""
    form = {"data": {"key": keyed.keys["read"]}}
    for origin in ("http://evil.example", "null", "http://[", f"http://{keyed.base_url.host}.evil.example"):
        for path in ("/sign-in", "/sign-out", "/queries"):
            page = keyed.post(path, headers={"origin": origin}, **form)
            assert (page.status_code, "set-cookie" in page.headers) == (403, False)
    same = ("http://shop.example:8000", "Shop.example:8000"), ("https://shop.example", "shop.example:443")
    for origin, host in (*same, ("https://shop.example:443", "shop.example")):
        assert keyed.post("/sign-in", headers={"origin": origin, "host": host}, **form).is_redirect
    for origin, host in (
        ("http://shop.example:9000", "shop.example:8000"),
        ("http://shop.example", "shop.example:8000"),
    ):
        page = keyed.post("/sign-in", headers={"origin": origin, "host": host}, **form)
        assert (page.status_code, "another site" in page.text) == (403, True)


def test_form_that_asks_for_a_key_is_rendered_once(keyed):
    """Anybody may ask for it, for any page and any number of times."""
    kept = keyed.server.app.dashboard.sign_in_pages
    before = len(kept)
    for i in range(100):
        for path in ("/", "/items", f"/queries/{i:032x}"):
            page = keyed.get(path)
            assert page.status_code == 401
            assert f'name="page" value="{path[1:]}"' in page.text
            assert sign_in(keyed, f"mcfair_{i}_wrong").status_code == 401
    assert len(kept) <= before + 3


@pytest.mark.parametrize(("page", "target"), [("queries/0f", "queries/0f"), ("//evil.example", "./"), ("../x", "./")])
def test_sign_in_returns_to_pages_of_the_dashboard_only(keyed, page, target):
    assert sign_in(keyed, keyed.keys["read"], page=page).headers["location"] == target


def test_without_keys_only_this_machine_sees_pages(filled):
    assert filled.get("/", headers={"x-forwarded-for": "203.0.113.7"}).status_code == 403

    async def run():
        stranger = httpx.ASGITransport(create_app(filled.ranker), client=("203.0.113.7", 1234))
        async with httpx.AsyncClient(transport=stranger, base_url="http://localhost") as client:
            for page in PAGES:
                path = page.path.replace("{query_id}", "0f")
                form = {"data": {"query": "q"}} if page.method == "POST" else {}
                answer = await client.request(page.method, path, **form)
                assert answer.status_code == (303 if page.path == "/sign-out" else 401)

    asyncio.run(run())


def test_cookies_of_encrypted_connections_are_secure_and_belong_to_the_mount(keyed):
    async def run():
        transport = httpx.ASGITransport(create_app(keyed.ranker), root_path="/ranking")
        async with httpx.AsyncClient(transport=transport, base_url="https://shop.example") as client:
            found = await client.post("/ranking/sign-in", data={"key": keyed.keys["read"]})
            assert "; Secure" in found.headers["set-cookie"]
            assert "; Path=/ranking;" in found.headers["set-cookie"]
            page = await client.get("/ranking/")
            assert page.status_code == 200
            assert set(re.findall(r'href="([^"#:]*)"', page.text)) == {
                "./",
                "./queries",
                "./items",
                "./compare",
                "./docs",
            }
            missing = await client.get("/ranking/queries/0f")
            assert missing.status_code == 404
            assert 'href="../queries"' in missing.text

    asyncio.run(run())


def test_refusals_under_overload_and_while_stopping_are_pages(filled):
    filled.server.app.lifecycle.max_in_flight, before = 0, filled.server.app.lifecycle.max_in_flight
    try:
        page = filled.get("/")
    finally:
        filled.server.app.lifecycle.max_in_flight = before
    assert (page.status_code, page.headers["retry-after"]) == (503, "1")
    assert titles(page) == ["Service Unavailable"]


def test_strangers_use_up_no_places(keyed):
    """Sign-in needs no key, so neither overload nor a slow form may keep other requests from being served."""
    lifecycle = keyed.server.app.lifecycle
    before, lifecycle.max_in_flight = lifecycle.max_in_flight, 0
    try:
        assert sign_in(keyed, keyed.keys["read"]).status_code == 303
        assert keyed.get("/").status_code == 503
        keyed.cookies.clear()
        assert keyed.get("/").status_code == 401
    finally:
        lifecycle.max_in_flight = before


def test_forms_are_small(filled, keyed):
    for client, path in ((filled, "/queries"), (keyed, "/sign-in")):
        assert client.post(path, data={"query": "é" * 2048, "key": "x"}).status_code in (404, 401)
        for content in (b"key=" + b"a" * (1 << 14), iter([b"key=", b"a" * (1 << 14)])):
            assert client.post(path, content=content, headers=FORM).status_code == 413


def test_times_start_where_the_data_does(filled):
    assert filled.ranker.history(limit=168).points[0].start.timestamp() * 1000 == START
    for hours, rows in ((24, 24), (168, 30), (672, 2), (8760, 2)):
        text = filled.get(f"/?hours={hours}").text
        assert len(re.findall(r'<th scope="row" class="text">\d+ Jan 2026, \d\d:00</th>', text)) == 2 * rows
