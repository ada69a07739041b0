package console

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
	"github.com/merchant-operator/merchant-operator/test/repository"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// Ten thousand forms and sign-ins from one subscriber, who changes the address within its block: Redis and the Kubernetes API see what
// the limit lets pass, and others are served meanwhile.
func TestConsole_Flood(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	f.merchant("acme")
	f.grant(user(alice), []string{"get"})
	attackers, beside := findCookie(t, f, f.signedIn(bob), loginCookie), f.signedIn(alice)
	reviews, redis := f.countReviews(), storetest.Inspect(t, f.redis)
	if err := redis.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	handler := f.handler()
	send := func(n int) *httptest.ResponseRecorder {
		request := httptest.NewRequest(http.MethodGet, f.URL+"/sign-in", nil)
		if n%2 == 0 {
			request = httptest.NewRequest(http.MethodPost, f.URL+"/merchants/"+f.namespace+"/acme/allowlist", strings.NewReader("generation=1"))
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			request.Header.Set("Sec-Fetch-Site", "same-origin")
		}
		request.AddCookie(attackers)
		request.RemoteAddr = "127.0.0.1:1"
		request.Header.Set("X-Forwarded-For", fmt.Sprintf("2001:db8::%x", n))
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		return answer
	}

	const forms, senders, visits = 10_000, 8, 20
	var passed, limited atomic.Int64
	var flood sync.WaitGroup
	started := time.Now()
	for sender := range senders {
		flood.Go(func() {
			for n := sender; n < forms; n += senders {
				switch answer := send(n); answer.Code {
				case http.StatusTooManyRequests:
					limited.Add(1)
					if seconds, err := strconv.Atoi(answer.Header().Get("Retry-After")); err != nil || seconds < 1 || !strings.Contains(answer.Body.String(), "Too many requests") {
						t.Errorf("Retry-After: %q, %s", answer.Header().Get("Retry-After"), answer.Body)
					}
				case http.StatusNotFound, http.StatusSeeOther:
					passed.Add(1)
				default:
					t.Errorf("%d: %s", answer.Code, answer.Body)
				}
			}
		})
	}
	for range visits {
		request := httptest.NewRequest(http.MethodGet, f.URL+"/merchants/"+f.namespace+"/acme", nil)
		request.RequestURI = ""
		request.Header.Set("X-Forwarded-For", "2001:db8:0:1::1")
		if page := beside.Do(t, request); page.Status != http.StatusOK || !strings.Contains(page.Text, "ACME") {
			t.Errorf("another address gets %d", page.Status)
		}
	}
	flood.Wait()

	limit := f.options.RequestLimit
	most := limit.Burst + 1 + limit.RequestsPerSecond*int64(time.Since(started)/time.Second+1)
	if passed.Load() > most || passed.Load() < limit.Burst || limited.Load() == 0 {
		t.Errorf("%d passed and %d were limited; want %d to %d", passed.Load(), limited.Load(), limit.Burst, most)
	}
	if scripts := scriptsRun(t, redis.Info(t.Context(), "commandstats").Val()); scripts > passed.Load()+visits {
		t.Errorf("Redis ran %d scripts for %d requests that passed", scripts, passed.Load())
	}
	if got := reviews.Load(); got > passed.Load() {
		t.Errorf("the Kubernetes API got %d reviews for %d requests that passed", got, passed.Load())
	}
	f.advance(time.Minute)
	if answer := send(0); answer.Code != http.StatusNotFound {
		t.Errorf("a minute later the address gets %d", answer.Code)
	}
}

// While a person has as many pages in progress as one person may, or all have, the next page waits, then says that it
// could not begin. Pages of others, forms, and the page again when another one has ended are answered.
func TestConsole_PagesInTurn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.merchant("acme")
	f.merchant("globex")
	f.grant(group("shop-staff"), []string{"get", "viewpayments", "issuekeys"})
	alices, others := f.signedIn(alice), f.signedIn(many)
	acme := f.URL + "/merchants/" + f.namespace + "/acme"
	for name, who := range map[string]func(n int) (person, tenant string){
		"of one person": func(int) (string, string) { return "oidc:alice", f.namespace },
		"of all":        func(n int) (string, string) { return somebody(n), somebody(n) },
	} {
		t.Run(name, func(t *testing.T) {
			var ends []func()
			for n := 0; ; n++ {
				end, err := f.turns.Begin(who(n))
				if err != nil {
					break
				}
				ends = append(ends, end)
			}
			f.turnTimeout = time.Millisecond
			for _, path := range []string{f.URL + "/", acme, acme + "/payments", acme + "/payments/ps_1"} {
				page := alices.Get(t, path)
				if page.Status != http.StatusServiceUnavailable || page.Header.Get("Retry-After") == "" || !strings.Contains(page.Text, "Too many pages") {
					t.Errorf("%s: %d %s", path, page.Status, page.Text)
				}
			}
			if page := alices.Get(t, acme+"/new-key"); page.Status != http.StatusOK {
				t.Errorf("a form: %d %s", page.Status, page.Text)
			}
			want := http.StatusOK
			if len(ends) == maxPages {
				want = http.StatusServiceUnavailable
			}
			if want == http.StatusOK {
				f.turnTimeout = defaultTurnTimeout
			}
			if page := others.Get(t, acme); page.Status != want {
				t.Errorf("the page of another person: %d, want %d: %s", page.Status, want, page.Text)
			}
			for _, end := range ends {
				end()
			}
			f.turnTimeout = defaultTurnTimeout
			if page := alices.Get(t, acme); page.Status != http.StatusOK {
				t.Errorf("when the others have ended: %d %s", page.Status, page.Text)
			}
			wantIdle(t, f.turns, maxPages)
			f.turns = web.NewInflight(maxPages, maxPersonPages, errTooManyPages) // wantIdle has filled it
		})
	}
}

// stalledReader is a client that reads nothing until it goes on.
type stalledReader struct {
	*httptest.ResponseRecorder

	stalled chan<- struct{}
	goOn    <-chan struct{}
}

// Write waits as on a full socket.
func (r stalledReader) Write(p []byte) (int, error) {
	r.stalled <- struct{}{}
	<-r.goOn
	return r.ResponseRecorder.Write(p)
}

// Four people each stall as many pages as one person may have, which are all pages that may be in progress at once. Pages
// of another person are served, and a fifth page of one of the four waits for the pages of its person.
func TestConsole_StalledReaders(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.merchant("acme")
	f.grant(group("shop-staff"), []string{"get", "viewpayments"})
	stalling, others := []oidctest.User{alice, bob, dora, mallory}, f.signedIn(many)
	stalled, goOn := make(chan struct{}), make(chan struct{})
	var readers sync.WaitGroup
	alices := f.signedIn(alice)
	for _, who := range stalling {
		cookie := findCookie(t, f, f.signedIn(who), loginCookie)
		for range maxPages / len(stalling) {
			request := httptest.NewRequest(http.MethodGet, f.URL+"/?all=yes", nil)
			request.AddCookie(cookie)
			answer := httptest.NewRecorder()
			readers.Go(func() {
				f.handler().ServeHTTP(stalledReader{answer, stalled, goOn}, request)
				length, err := strconv.Atoi(answer.Header().Get("Content-Length"))
				if answer.Code != http.StatusOK || err != nil || answer.Body.Len() != length {
					t.Errorf("a stalled page: %d, %d bytes of %q", answer.Code, answer.Body.Len(), answer.Header().Get("Content-Length"))
				}
			})
			<-stalled
		}
	}
	for _, path := range []string{"/", "/merchants/" + f.namespace + "/acme", "/merchants/" + f.namespace + "/acme/payments"} {
		if page := others.Get(t, f.URL+path); page.Status != http.StatusOK {
			t.Errorf("another person's page %s: %d %s", path, page.Status, page.Text)
		}
	}
	f.turnTimeout = time.Millisecond
	if page := alices.Get(t, f.URL+"/"); page.Status != http.StatusServiceUnavailable || page.Header.Get("Retry-After") == "" {
		t.Errorf("a fifth page of a person: %d %s", page.Status, page.Text)
	}
	close(goOn)
	readers.Wait()
	f.turnTimeout = defaultTurnTimeout
	if page := alices.Get(t, f.URL+"/"); page.Status != http.StatusOK {
		t.Errorf("when the readers have gone on: %d %s", page.Status, page.Text)
	}
}

func scriptsRun(t *testing.T, commandStatistics string) (calls int64) {
	t.Helper()
	for line := range strings.Lines(commandStatistics) {
		if found, is := strings.CutPrefix(line, "cmdstat_evalsha:calls="); is {
			number, _, _ := strings.Cut(found, ",")
			calls, _ = strconv.ParseInt(number, 10, 64)
		}
	}
	if calls == 0 {
		t.Fatalf("Redis ran no script: %s", commandStatistics)
	}
	return calls
}

// Who writes an X-Forwarded-For of their own is counted by the address of the connection.
func TestConsole_ForgedAddressCountsAsOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) { o.RequestLimit = ratelimit.Policy{RequestsPerSecond: 1, Burst: 3} })
	var last int
	for n := range 4 {
		request := httptest.NewRequest(http.MethodGet, f.URL+"/signed-out", nil)
		request.Header.Set("X-Forwarded-For", "203.0.113."+strconv.Itoa(n))
		answer := httptest.NewRecorder()
		f.handler().ServeHTTP(answer, request)
		last = answer.Code
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("the fourth request with an address of its own gets %d", last)
	}
}

// No name in a request, of a person or of a merchant becomes a header, a path of the Kubernetes API, or another site.
func TestConsole_NamesAreEscaped(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) { o.Provider.GroupsPrefix = "" })
	f.merchant("acme")
	f.grant(user(alice), []string{"get", "issuekeys", "rotatekeys", "editallowlist", "editwebhook"})
	browser := f.signedIn(alice)
	const line = "%0d%0aX-Injected:%20yes%0d%0a%0d%0a<script>alert(1)</script>"
	for _, path := range []string{
		"/?q=" + line, "/?page=" + line, "/" + line,
		"/merchants/" + line + "/acme", "/merchants/" + f.namespace + "/" + line,
		"/merchants/" + f.namespace + "/acme?address=" + line,
		"/merchants/" + f.namespace + "/acme/keys/" + line + "/rotate",
		"/merchants/" + f.namespace + "/acme%2f..%2facme", "/merchants/" + f.namespace + "/..%2facme", "/merchants/" + f.namespace + "/acme%3fwatch=true",
		"/merchants/" + f.namespace + "/acme/keys/..%2f..%2fmerchants%2facme/rotate",
		"/sign-in?returnTo=/" + line,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			request := httptest.NewRequest(method, f.URL+path, nil)
			request.RequestURI = ""
			request.Header.Set("Sec-Fetch-Site", "same-origin")
			page := browser.Do(t, request)
			if page.Header.Get("X-Injected") != "" || strings.Contains(page.Text, "<script>alert") || page.Status >= http.StatusInternalServerError {
				t.Errorf("%s %s: %d %v %s", method, path, page.Status, page.Header, page.Text)
			}
		}
	}
}

// A sign-in returns to the console, whatever the address or the cookie says.
func TestSignIn_OpenRedirect(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, evil := range []string{"https://evil.example/", "//evil.example/", `/\evil.example/`, "/callback", "javascript:alert(1)"} {
		page := identities.SignIn(t, oidctest.NewBrowser(t), f.URL+"/sign-in?returnTo="+url.QueryEscape(evil), bob)
		if page.URL.String() != f.URL+"/" || page.Status != http.StatusOK {
			t.Errorf("returnTo=%s leads to %s with %d", evil, page.URL, page.Status)
		}
		browser, callback := begin(t, f, bob)
		begun := findCookie(t, f, browser, attemptCookie)
		attempt := strings.Split(begun.Value, ".")
		attempt[len(attempt)-1] = base64.RawURLEncoding.EncodeToString([]byte(evil))
		browser.Jar.SetCookies(parse(t, f.URL), []*http.Cookie{{Name: begun.Name, Value: strings.Join(attempt, "."), Path: "/"}})
		browser.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
			if r.URL.Host != parse(t, f.URL).Host {
				t.Errorf("a cookie with %s leads to %s", evil, r.URL)
				return http.ErrUseLastResponse
			}
			return nil
		}
		if page := browser.Get(t, callback.String()); page.URL.String() != f.URL+"/" {
			t.Errorf("a cookie with %s leads to %s", evil, page.URL)
		}
	}
}

// The user of Redis that docs/design/redis.md has for the console can do all that it does, and changes no payment. With the further
// selector it asks for refunds.
func TestConsole_RedisUser(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme", withWebhook)
	f.grant(user(alice), []string{"get", "viewpayments", "refundpayments", "editwebhook"})
	letter := f.deadLetter(m, "first")
	id := f.charge(m, "key", session.Charge{AmountCents: 1250, OrderRef: "1001"})
	f.settle(id, session.Payment{Ref: "card-1", Outcome: session.Completed, AmountCents: 1250})

	document := repository.Read(t, "docs/design/redis.md")
	found := regexp.MustCompile("(?s)The console's user.*?`([^`]+)`").FindStringSubmatch(document)
	refunds := regexp.MustCompile("(?s)a further selector:\\s+`([^`]+)`, `([^`]+)`").FindStringSubmatch(document)
	if found == nil || refunds == nil {
		t.Fatal("docs/design/redis.md has no user for the console, or none with refunds")
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
	f.payments.Store, f.webhook.Outbox = storetest.Store(t, client), outbox.New(client)
	login, err := newLogin(f.options, f.problems.origin, client, prometheus.NewRegistry())
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
	form := refundPage{f, browser, base + "/payments/" + id.String() + "/refund"}
	confirm := form.send(form.open(), "5", "")
	form.want(form.send(confirm, "5.00", ""), http.StatusServiceUnavailable, "Perhaps asked for")
	if err := root.Do(t.Context(), "ACL", "SETUSER", "console", strings.Join(strings.Fields(refunds[1]), " "), refunds[2]).Err(); err != nil {
		t.Fatal(err)
	}
	form.want(form.send(confirm, "5.00", ""), http.StatusOK, "Asked for")
	if page := browser.Post(t, f.URL+"/sign-out-everywhere", nil); page.Status != http.StatusOK {
		t.Errorf("sign out: %d %s\n%s", page.Status, page.Text, &f.log)
	}
}

// The many people of one tenant take no place that another tenant's people need for a page, a form, a download or an
// action, also if they hold theirs for long.
func TestConsole_CrowdOfOneTenant(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme")
	f.apiKey(m, "till-1")
	f.grant(user(alice), []string{"get", "viewpayments", "issuekeys"})
	browser, path := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme"
	for name, places := range map[string]*web.Inflight{
		"pages": f.turns, "unsent pages": f.unsent, "downloads": f.payments.Downloads, "waits": f.webhook.Waits,
	} {
		most := 0
		for n := range 2 * maxUnsentPages {
			if end, err := places.Begin(somebody(n), "crowd"); err == nil {
				t.Cleanup(end)
				most++
			}
		}
		if most < 8 {
			t.Errorf("%s: one tenant alone has %d", name, most)
		}
		if end, err := places.Begin("oidc:alice", f.namespace); err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			end()
		}
	}
	for _, page := range []string{"", "/payments", "/payments.csv", "/keys/till-1/disable"} {
		if answer := browser.Get(t, path+page); answer.Status != http.StatusOK {
			t.Errorf("%q: %d %s", page, answer.Status, answer.Text)
		}
	}
	if page := browser.Get(t, f.URL+"/?all=yes"); page.Status != http.StatusOK {
		t.Errorf("the list: %d %s", page.Status, page.Text)
	}
}
