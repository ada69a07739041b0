package console

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/repository"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// The user of Redis that docs/design/redis.md has for the console can do all that it does, and change no payment.
func TestRedisUser(t *testing.T) {
	f := newFixture(t)
	m := f.merchant("acme", withWebhook)
	f.grant(user(alice), []string{"get", "viewpayments", "editwebhook"})
	letter := f.deadLetter(m, "first")
	id := f.charge(m, "key", session.Charge{AmountCents: 1250, OrderRef: "1001"})
	f.settle(id, session.Payment{Ref: "card-1", Outcome: session.Completed, AmountCents: 1250})

	found := regexp.MustCompile("(?s)The console's user.*?`([^`]+)`").FindStringSubmatch(repository.Read(t, "docs/design/redis.md"))
	if found == nil {
		t.Fatal("docs/design/redis.md has no user for the console")
	}
	root := storetest.Inspect(t, f.redis)
	arguments := []any{"ACL", "SETUSER", "console", "on", ">secret"}
	rules, selector, _ := strings.Cut(strings.Join(strings.Fields(found[1]), " "), " (")
	for rule := range strings.FieldsSeq(rules) {
		arguments = append(arguments, rule)
	}
	if err := root.Do(t.Context(), append(arguments, "("+selector)...).Err(); err != nil {
		t.Fatal(err)
	}
	client := storetest.Client(t, strings.Replace(f.redis.URL(), "redis://", "redis://console:secret@", 1))
	f.payments, f.outbox = storetest.Store(t, client), outbox.New(client)
	login, err := f.newLogin(client, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	browser := f.signedIn(alice)
	f.login = login
	base := f.URL + "/merchants/" + f.namespace + "/acme"
	for path, want := range map[string]string{
		"": "Your server answered 503.", "/payments": "€12.50", "/payments?order=1001": "order 1001", "/payments/" + id.String(): "card-1", "/payments.csv": "card-1",
	} {
		if page := browser.Get(t, base+path); page.Status != http.StatusOK || !strings.Contains(page.Text, want) {
			t.Errorf("%q: %d %s\n%s", path, page.Status, page.Text, &f.log)
		}
	}
	if page := browser.Post(t, base+"/dead-letters/resend", url.Values{"event": {letter}, "resume": {"yes"}}); page.Status != http.StatusOK || f.endpoint(m).Dead != 0 {
		t.Errorf("send again: %d %s\n%s", page.Status, page.Text, &f.log)
	}
	tag := storetest.Tag(published.ID(m.UID))
	inspect := storetest.Inspect(t, f.redis)
	conn := inspect.Conn()
	defer func() { _ = conn.Close() }()
	if err := conn.AuthACL(t.Context(), "console", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	forbidden := regexp.MustCompile(`NOPERM|can't access|No permissions`) // a script's error is worded by the server
	for _, command := range [][]any{
		{"XADD", tag + "feed:" + published.ID(m.UID), "*", "e", "x"}, {"DEL", tag + "feed:" + published.ID(m.UID)}, {"XTRIM", tag + "feed:" + published.ID(m.UID), "MAXLEN", "0"},
		{"HSET", tag + "session:" + id.String(), "s", "FAILED"}, {"DEL", tag + "session:" + id.String()},
		{"EVAL", "return redis.call('DEL', KEYS[1])", "1", tag + "feed:" + published.ID(m.UID)},
	} {
		if err := conn.Do(t.Context(), command...).Err(); err == nil || !forbidden.MatchString(err.Error()) {
			t.Errorf("%v: %v", command, err)
		}
	}
	if page := browser.Post(t, f.URL+"/sign-out-everywhere", nil); page.Status != http.StatusOK {
		t.Errorf("sign out: %d %s\n%s", page.Status, page.Text, &f.log)
	}
}
