package apiserver_test

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

const sessions = "/api/v1/sessions"

func TestCreateSession(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) { r.Sessions.LifetimeSeconds = 600 }))
	r := f.start(func(o *apiserver.Options) { o.QRScheme = "acme+pay" })

	before := time.Now().Add(-time.Second)
	got := r.call(http.MethodPost, sessions, key, `{"amountCents": 1250}`).want(t, http.StatusCreated)
	id := got.text("sessionId")
	if !regexp.MustCompile(`^ps_[a-z2-7]{12}[0-9A-Za-z]{18}$`).MatchString(id) {
		t.Errorf("sessionId %q", id)
	}
	expiresAt := time.UnixMilli(int64(got.body["expiresAt"].(float64)))
	if expiresAt.Before(before.Add(600*time.Second)) || expiresAt.After(time.Now().Add(601*time.Second)) {
		t.Errorf("expiresAt %s is not 600 s ahead", expiresAt)
	}
	want := map[string]any{
		"sessionId": id, "status": "PENDING", "expiresAt": got.body["expiresAt"], "qrPayload": "acme+pay://qr/" + id, "idempotent": false,
	}
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	for _, name := range []string{"Idempotent-Replayed", "Idempotency-Mismatch"} {
		if got.header.Values(name) != nil {
			t.Errorf("%s on a new session", name)
		}
	}
}

// Link names the payer's page: under --public-url, else relative to where the caller has sent the request.
func TestCreateSession_Link(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	inside, known := f.start(), f.start(func(o *apiserver.Options) { o.PublicURL = "https://pay.example.com/" })
	var id string
	create := func(r *replica) string {
		t.Helper()
		got := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`, "Idempotency-Key", "order-1", "X-Forwarded-Host", "evil.example")
		id = got.want(t, http.StatusCreated).text("sessionId")
		return got.header.Get("Link")
	}
	if link := create(inside); link != "</pay/"+id+`>; rel="payment"` {
		t.Errorf("Link %s", link)
	}
	inside.call(http.MethodGet, "/pay/"+id, "", "").want(t, http.StatusOK)
	if link := create(known); link != "<https://pay.example.com/pay/"+id+`>; rel="payment"` {
		t.Errorf("with --public-url, of a replay: Link %s", link)
	}
}

// Fields that are not of the interface change nothing, and the answer names them.
func TestIgnoredFields(t *testing.T) {
	f := newFixture(t)
	key, rail, console := f.key("till", f.merchant("acme")), f.rail("bank"), f.issuer("console")
	r := f.start()
	nine := `{"amountCents":1,"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}`
	for name, test := range map[string]struct{ body, want string }{
		"none":                   {`{"amountCents":1,"orderRef":"1","taxCents":null}`, ""},
		"a typing error":         {`{"amountCents":1,"orderref":"1"}`, "orderref"},
		"of another interface":   {`{"currency":"EUR","amountCents":1}`, "currency"},
		"in the body's order":    {`{"z":1,"amountCents":1,"a_b.c-9":[{"x":1}]}`, "z, a_b.c-9"},
		"eight":                  {strings.Replace(nine, `,"i":1`, "", 1), "a, b, c, d, e, f, g, h"},
		"nine":                   {nine, "a, b, c, d, e, f, g, h, …"},
		"64 characters":          {`{"amountCents":1,"` + strings.Repeat("x", 64) + `":1}`, strings.Repeat("x", 64)},
		"65 characters":          {`{"amountCents":1,"` + strings.Repeat("x", 65) + `":1,"y":1}`, "y, …"},
		"no name":                {`{"amountCents":1,"":1}`, "…"},
		"an umlaut":              {`{"amountCents":1,"ä":1}`, "…"},
		"a header of its own":    {`{"amountCents":1,"x\r\nSet-Cookie: a=b":1,"y, z":1}`, "…"},
		"of more than 16 fields": {`{"amountCents":1` + moreFields(20) + `}`, "f0, f1, f2, f3, f4, f5, f6, f7, …"},
	} {
		t.Run(name, func(t *testing.T) {
			got := r.call(http.MethodPost, sessions, key, test.body).want(t, http.StatusCreated).header.Values("Ignored-Fields")
			if strings.Join(got, "|") != test.want {
				t.Errorf("Ignored-Fields %q, want %q", got, test.want)
			}
		})
	}
	id := r.call(http.MethodPost, sessions, key, `{"amountCents":1}`).text("sessionId")
	for name, test := range map[string]struct {
		got  result
		want int
	}{
		"a charge without its amount": {r.call(http.MethodPost, sessions, key, `{"x":1}`), http.StatusBadRequest},
		"a report":                    {r.report(id, rail, `{"paymentRef":"a","outcome":"COMPLETED","amountCents":1,"x":1}`), http.StatusOK},
		"a rotation":                  {r.issue(key[8:20], console, `{`+f.source("till")+`,"expectedGeneration":1,"overlapSeconds":0,"actor":"a","x":1}`), http.StatusOK},
	} {
		if got := test.got.want(t, test.want).header.Get("Ignored-Fields"); got != "x" {
			t.Errorf("%s: Ignored-Fields %q, want x", name, got)
		}
	}
}

// moreFields is the middle of an object of n more fields.
func moreFields(n int) string {
	var fields strings.Builder
	for i := range n {
		fmt.Fprintf(&fields, `,"f%d":1`, i)
	}
	return fields.String()
}

func TestTwoCreatesAreTwoSessions(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	first := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated)
	second := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated)
	if first.text("sessionId") == second.text("sessionId") {
		t.Error("without an Idempotency-Key the same session came back")
	}
}

func TestIdempotencyKey(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	till, otherTill := f.key("till", acme), f.key("other-till", acme)
	stranger := f.key("stranger", f.merchant("books"))
	r := f.start()
	create := func(key, body, idempotencyKey string) result {
		t.Helper()
		return r.call(http.MethodPost, sessions, key, body, "Idempotency-Key", idempotencyKey).want(t, http.StatusCreated)
	}
	const body = `{"amountCents": 1250, "orderRef": "1001"}`
	original := create(till, body, "order-1001")

	t.Run("repeated, it returns the original", func(t *testing.T) {
		got := create(till, body, "order-1001")
		want := maps.Clone(original.body)
		want["idempotent"] = true
		if diff := cmp.Diff(want, got.body); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
		if got.header.Get("Idempotent-Replayed") != "true" || got.header.Values("Idempotency-Mismatch") != nil {
			t.Errorf("headers %v", got.header)
		}
	})
	for name, test := range map[string]struct {
		key, body, idempotencyKey string
		replayed, mismatch        bool
	}{
		"in quotes it is the same":               {till, body, `"order-1001"`, true, false},
		"another key of the merchant shares it":  {otherTill, body, "order-1001", true, false},
		"the same charge in another spelling":    {till, `{"orderRef":"1001","unknown":[{}],"amountCents":125e1}`, "order-1001", true, false},
		"another amount":                         {till, `{"amountCents": 1251, "orderRef": "1001"}`, "order-1001", true, true},
		"another optional field":                 {till, `{"amountCents": 1250, "orderRef": "1001", "tipCents": 0}`, "order-1001", true, true},
		"another Idempotency-Key":                {till, body, "order-1002", false, false},
		"it is case-sensitive":                   {till, body, "Order-1001", false, false},
		"another merchant does not know of it":   {stranger, body, "order-1001", false, false},
		"255 characters are allowed":             {till, body, strings.Repeat("k", 255), false, false},
		"255 characters in quotes are the same":  {till, body, `"` + strings.Repeat("q", 255) + `"`, false, false},
		"all visible ASCII but quotes is usable": {till, body, "!#$%&'()*+,-./:;<=>?@[]^_`{|}~", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := create(test.key, test.body, test.idempotencyKey)
			if same := got.text("sessionId") == original.text("sessionId"); same != test.replayed || got.body["idempotent"] != test.replayed {
				t.Errorf("the original: %v, idempotent: %v, want %v", same, got.body["idempotent"], test.replayed)
			}
			if (got.header.Get("Idempotent-Replayed") == "true") != test.replayed || (got.header.Get("Idempotency-Mismatch") == "true") != test.mismatch {
				t.Errorf("headers %v", got.header)
			}
		})
	}
}

func TestIdempotencyKeyThatIsRefused(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	for name, lines := range map[string][]string{
		"empty":                {""},
		"empty in quotes":      {`""`},
		"a space inside":       {"a b"},
		"a tab inside":         {"a\tb"},
		"an umlaut":            {"ä"},
		"256 characters":       {strings.Repeat("k", 256)},
		"300 characters":       {strings.Repeat("k", 300)},
		"an open quote":        {`"open`},
		"given twice":          {"one", "two"},
		"given twice the same": {"one", "one"},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []string
			for _, line := range lines {
				headers = append(headers, "Idempotency-Key", line)
			}
			got := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`, headers...).want(t, http.StatusBadRequest)
			if !strings.HasPrefix(got.text("error"), "Idempotency-Key ") {
				t.Errorf("error %q does not name the header", got.text("error"))
			}
		})
	}
}

func TestIdempotencyMismatchCanBeRejected(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) {
		r.Sessions.IdempotencyMismatch = v1alpha1.IdempotencyMismatchReject
	}))
	r := f.start()
	original := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`, "Idempotency-Key", "k").want(t, http.StatusCreated)
	refused := r.call(http.MethodPost, sessions, key, `{"amountCents": 2}`, "Idempotency-Key", "k")
	refused.wantError(t, http.StatusBadRequest, "Idempotency-Key was already used for a different charge")
	if refused.header.Get("RateLimit") == "" {
		t.Error("an admitted answer without RateLimit")
	}
	again := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`, "Idempotency-Key", "k").want(t, http.StatusCreated)
	if again.text("sessionId") != original.text("sessionId") {
		t.Error("the refusal changed what the Idempotency-Key stands for")
	}
}

func TestARefusedRequestDoesNotUseUpItsIdempotencyKey(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	r.call(http.MethodPost, sessions, key, `{"amountCents": 0}`, "Idempotency-Key", "k").want(t, http.StatusBadRequest)
	got := r.call(http.MethodPost, sessions, key, `{"amountCents": 7}`, "Idempotency-Key", "k").want(t, http.StatusCreated)
	if got.body["idempotent"] != false {
		t.Error("the corrected request was taken for a repetition")
	}
}

func TestConcurrentCallsToTwoReplicasMakeOneSession(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	replicas := []*replica{f.start(), f.start()}
	const calls = 24
	answers := make([]result, calls)
	var group sync.WaitGroup
	for i := range calls {
		group.Go(func() {
			answers[i] = replicas[i%2].call(http.MethodPost, sessions, key, `{"amountCents": 5}`, "Idempotency-Key", "once")
		})
	}
	group.Wait()
	ids, created := map[string]bool{}, 0
	for _, got := range answers {
		got.want(t, http.StatusCreated)
		ids[got.text("sessionId")] = true
		if got.body["idempotent"] == false {
			created++
		}
	}
	if len(ids) != 1 || created != 1 {
		t.Errorf("%d sessions, of which %d were said to be new, want 1: %v", len(ids), created, slices.Collect(maps.Keys(ids)))
	}
}

func TestAReplayShowsTheLiveStatus(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) { r.Sessions.LifetimeSeconds = 1 }))
	r := f.start()
	create := func() result {
		return r.call(http.MethodPost, sessions, key, `{"amountCents": 5}`, "Idempotency-Key", "k").want(t, http.StatusCreated)
	}
	original := create()
	eventually(t, "the replay is EXPIRED", func() bool { return create().text("status") == "EXPIRED" })
	if got := create(); got.text("sessionId") != original.text("sessionId") || fmt.Sprint(got.body["expiresAt"]) != fmt.Sprint(original.body["expiresAt"]) {
		t.Errorf("the replay is %s, of %s", got.raw, original.raw)
	}
}

// session.created is recorded only for merchants that subscribe to it.
func TestCreateEmitsAnEventToSubscribers(t *testing.T) {
	f := newFixture(t)
	own := redistest.Start(t)
	server := redis.NewClient(&redis.Options{Addr: own.Addr()})
	defer func() { _ = server.Close() }()
	asking := func(events ...v1alpha1.WebhookEvent) func(*published.MerchantRecord) {
		return func(r *published.MerchantRecord) {
			r.Webhook = &published.Webhook{Webhook: v1alpha1.Webhook{URL: "https://shop.example/hooks", Events: events}}
		}
	}
	keys := map[string]string{
		"no webhook":   f.key("none", f.merchant("none")),
		"all events":   f.key("all", f.merchant("all", asking())),
		"other events": f.key("other", f.merchant("other", asking(v1alpha1.EventSessionExpired))),
		"this event":   f.key("this", f.merchant("this", asking(v1alpha1.EventSessionExpired, v1alpha1.EventSessionCreated))),
	}
	r := f.start(func(o *apiserver.Options) { o.RedisURL = own.URL() })
	for name, key := range keys {
		id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated).text("sessionId")
		recorded, err := server.Keys(t.Context(), "*:event:evt_"+id[3:]+"_*").Result()
		if err != nil {
			t.Fatal(err)
		}
		if want := name == "this event"; (len(recorded) == 1) != want {
			t.Errorf("%s: recorded %v", name, recorded)
		}
	}
}
