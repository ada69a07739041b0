package sessions_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/sessions"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestCreate(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme", func(r *published.MerchantRecord) {
		r.Sessions.LifetimeSeconds, r.Currency = 600, "JPY"
	}))

	before := time.Now().Add(-time.Second)
	got := f.Call(http.MethodPost, path, key, `{"amountCents": 1250}`).Want(t, http.StatusCreated)
	id := got.Text("sessionId")
	if !regexp.MustCompile(`^ps_[a-z2-7]{12}[0-9A-Za-z]{18}$`).MatchString(id) {
		t.Errorf("sessionId %q", id)
	}
	expiresAt := time.UnixMilli(int64(got.Body["expiresAt"].(float64)))
	if expiresAt.Before(before.Add(600*time.Second)) || expiresAt.After(time.Now().Add(601*time.Second)) {
		t.Errorf("expiresAt %s is not 600 s ahead", expiresAt)
	}
	want := map[string]any{
		"sessionId": id, "status": "PENDING", "expiresAt": got.Body["expiresAt"], "qrPayload": "pay://qr/" + id, "idempotent": false,
	}
	if diff := cmp.Diff(want, got.Body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if currency := got.Header.Get("Session-Currency"); currency != "JPY" {
		t.Errorf("Session-Currency %q, want that of the merchant", currency)
	}
	for _, name := range []string{"Idempotent-Replayed", "Idempotency-Mismatch", "Customer-Email-Ignored"} {
		if got.Header.Values(name) != nil {
			t.Errorf("%s on a new session", name)
		}
	}
}

// Fields that are not of the interface change nothing, and the answer names them.
func TestCreate_IgnoredFields(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
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
			got := f.Call(http.MethodPost, path, key, test.body).Want(t, http.StatusCreated).Header.Values("Ignored-Fields")
			if strings.Join(got, "|") != test.want {
				t.Errorf("Ignored-Fields %q, want %q", got, test.want)
			}
		})
	}
	refused := f.Call(http.MethodPost, path, key, `{"x":1}`).Want(t, http.StatusBadRequest)
	if names := refused.Header.Get("Ignored-Fields"); names != "x" {
		t.Errorf("of a charge without its amount: Ignored-Fields %q, want x", names)
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

// An address never stops a sale: whatever a payer or cashier typed, the charge is made, and the
// answer says if there is no receipt.
func TestCreate_CustomerEmail(t *testing.T) {
	f := newFixture(t)
	acme := f.Merchant("acme", func(r *published.MerchantRecord) { r.Sessions.IdempotencyMismatch = v1alpha1.IdempotencyMismatchReject })
	keys := map[string]string{"live": f.Key("till", acme), "test": f.TestKey("test", acme)}
	// The email is JSON. sameAs is another one that asks for the same charge.
	for name, test := range map[string]struct {
		email, sameAs string
		ignored       bool
	}{
		"an address":               {`"ada@example.com"`, `"ada@example.com"`, false},
		"a trailing space":         {`"ada@example.com "`, `"ada@example.com"`, false},
		"a leading space":          {`" ada@example.com"`, `"ada@example.com"`, false},
		"a line break behind":      {`"ada@example.com\r\n"`, `"ada@example.com"`, false},
		"an invisible character":   {`"\ufeffada@example.com\u200b"`, `"ada@example.com"`, false},
		"an international domain":  {`"ada@müller.example"`, `"ada@müller.example"`, false},
		"none":                     {`null`, `""`, false},
		"blanks":                   {`" \n"`, `null`, false},
		"a word":                   {`"n/a"`, `null`, true},
		"half an address":          {`"ada"`, `"ada@"`, true},
		"a display name":           {`"Ada <ada@example.com>"`, `null`, true},
		"mailto":                   {`"mailto:ada@example.com"`, `null`, true},
		"two addresses":            {`"a@example.com,b@example.com"`, `null`, true},
		"a header":                 {`"ada@example.com\r\nBcc: b@example.com"`, `null`, true},
		"255 characters":           {`"` + strings.Repeat("a", 243) + `@example.com"`, `null`, true},
		"5,000 soft hyphens":       {`"ada@exam` + strings.Repeat("\u00ad", 5000) + `ple.com"`, `null`, true},
		"15 KB":                    {`"` + strings.Repeat("a@", 7500) + `"`, `null`, true},
		"an address literal":       {`"root@[10.0.0.5]"`, `null`, true},
		"a local name":             {`"a@localhost"`, `null`, true},
		"a route":                  {`"a%b@example.com"`, `null`, true},
		"a local name in disguise": {`"a@mail。ｌｏｃａｌhost"`, `null`, true},
	} {
		for mode, key := range keys {
			t.Run(name+", "+mode, func(t *testing.T) {
				create := func(email string) roomtest.Result {
					t.Helper()
					return f.Call(http.MethodPost, path, key, with(`"customerEmail":`+email), "Idempotency-Key", strings.ReplaceAll(name, " ", "-")).Want(t, http.StatusCreated)
				}
				first, again := create(test.email), create(test.email)
				other := create(test.sameAs) // a mismatch is refused
				if again.Text("sessionId") != first.Text("sessionId") || other.Text("sessionId") != first.Text("sessionId") {
					t.Error("a retry has another session")
				}
				for _, got := range []roomtest.Result{first, again} {
					if ignored := got.Header.Get("Customer-Email-Ignored"); (ignored == "true") != test.ignored {
						t.Errorf("Customer-Email-Ignored %q, want %t", ignored, test.ignored)
					}
				}
			})
		}
	}
	// Who corrects the address asks for another charge, which the session of the key is not.
	f.Call(http.MethodPost, path, keys["live"], with(`"customerEmail":"ada@example.com"`), "Idempotency-Key", "a-word").WantCode(t, http.StatusBadRequest, "idempotency_mismatch")
}

// A page leads only to the host that the Merchant has. A charge for another host is made all the same, also while the Merchant changes;
// who develops with a test key is told.
func TestCreate_ReturnURL(t *testing.T) {
	f := newFixture(t)
	acme := f.Merchant("acme", func(r *published.MerchantRecord) {
		r.Page = &v1alpha1.PageSettings{ReturnURL: "https://shop.example/thanks"}
		r.Sessions.IdempotencyMismatch = v1alpha1.IdempotencyMismatchReject
	})
	live, test, none := f.Key("live", acme), f.TestKey("test", acme), f.TestKey("none", f.Merchant("none"))
	const own, foreign = `{"amountCents":1,"returnUrl":"https://shop.example/{sessionId}"}`, `{"amountCents":1,"returnUrl":"https://evil.example/"}`
	for name, charge := range map[string]struct{ key, body, ignored, refused string }{
		"its host":                 {live, own, "", ""},
		"its host, test key":       {test, own, "", ""},
		"another host":             {live, foreign, "returnUrl", ""},
		"another host, test key":   {test, foreign, "", "returnUrl must be an https URL with the host and port of the Merchant's page.returnURL, https://shop.example/thanks"},
		"a Merchant without one":   {none, own, "", "returnUrl is not used, because the Merchant has no page.returnURL"},
		"none given":               {none, `{"amountCents":1,"returnUrl":""}`, "", ""},
		"among others, ignored":    {live, `{"x":1,"amountCents":1,"returnUrl":"https://evil.example/"}`, "x, returnUrl", ""},
		"another type of it, live": {live, with(`"returnUrl":1`), "", returnRule},
	} {
		got := f.Call(http.MethodPost, path, charge.key, charge.body)
		if charge.refused != "" {
			got.WantError(t, http.StatusBadRequest, charge.refused)
		} else {
			got.Want(t, http.StatusCreated)
		}
		if ignored := got.Header.Get("Ignored-Fields"); ignored != charge.ignored {
			t.Errorf("%s: Ignored-Fields %q, want %q", name, ignored, charge.ignored)
		}
	}

	first := f.Call(http.MethodPost, path, live, own, "Idempotency-Key", "k").Want(t, http.StatusCreated)
	acme.Page = nil
	f.PublishMerchant(acme)
	again := f.Call(http.MethodPost, path, live, own, "Idempotency-Key", "k").Want(t, http.StatusCreated)
	if again.Text("sessionId") != first.Text("sessionId") || again.Header.Get("Ignored-Fields") != "returnUrl" {
		t.Errorf("a retry after the Merchant has lost its URL: %s, Ignored-Fields %q", again.Raw, again.Header.Get("Ignored-Fields"))
	}
	f.Call(http.MethodPost, path, live, `{"amountCents":1,"returnUrl":"https://shop.example/"}`, "Idempotency-Key", "k").WantCode(t, http.StatusBadRequest, "idempotency_mismatch")
}

func TestCreate_Twice(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	first := f.Call(http.MethodPost, path, key, `{"amountCents": 1}`).Want(t, http.StatusCreated)
	second := f.Call(http.MethodPost, path, key, `{"amountCents": 1}`).Want(t, http.StatusCreated)
	if first.Text("sessionId") == second.Text("sessionId") {
		t.Error("without an Idempotency-Key the same session came back")
	}
}

func TestIdempotencyKey(t *testing.T) {
	f := newFixture(t)
	acme := f.Merchant("acme")
	till, otherTill := f.Key("till", acme), f.Key("other-till", acme)
	stranger := f.Key("stranger", f.Merchant("books"))
	create := func(key, body, idempotencyKey string) roomtest.Result {
		t.Helper()
		return f.Call(http.MethodPost, path, key, body, "Idempotency-Key", idempotencyKey).Want(t, http.StatusCreated)
	}
	const body = `{"amountCents": 1250, "orderRef": "1001"}`
	original := create(till, body, "order-1001")

	t.Run("repeated, it returns the original", func(t *testing.T) {
		got := create(till, body, "order-1001")
		want := maps.Clone(original.Body)
		want["idempotent"] = true
		if diff := cmp.Diff(want, got.Body); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
		if got.Header.Get("Idempotent-Replayed") != "true" || got.Header.Values("Idempotency-Mismatch") != nil {
			t.Errorf("headers %v", got.Header)
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
			if same := got.Text("sessionId") == original.Text("sessionId"); same != test.replayed || got.Body["idempotent"] != test.replayed {
				t.Errorf("the original: %v, idempotent: %v, want %v", same, got.Body["idempotent"], test.replayed)
			}
			if (got.Header.Get("Idempotent-Replayed") == "true") != test.replayed || (got.Header.Get("Idempotency-Mismatch") == "true") != test.mismatch {
				t.Errorf("headers %v", got.Header)
			}
		})
	}
}

func TestIdempotencyKey_Malformed(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	for name, values := range map[string][]string{
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
			for _, value := range values {
				headers = append(headers, "Idempotency-Key", value)
			}
			got := f.Call(http.MethodPost, path, key, `{"amountCents": 1}`, headers...).Want(t, http.StatusBadRequest)
			if !strings.HasPrefix(got.Text("error"), "Idempotency-Key ") {
				t.Errorf("error %q does not name the header", got.Text("error"))
			}
		})
	}
}

func TestIdempotencyKey_RejectMismatch(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme", func(r *published.MerchantRecord) {
		r.Sessions.IdempotencyMismatch = v1alpha1.IdempotencyMismatchReject
	}))
	original := f.Call(http.MethodPost, path, key, `{"amountCents": 1}`, "Idempotency-Key", "k").Want(t, http.StatusCreated)
	refused := f.Call(http.MethodPost, path, key, `{"amountCents": 2}`, "Idempotency-Key", "k")
	refused.WantError(t, http.StatusBadRequest, "Idempotency-Key was already used for a different charge")
	if refused.Header.Get("RateLimit") == "" {
		t.Error("an admitted answer without RateLimit")
	}
	again := f.Call(http.MethodPost, path, key, `{"amountCents": 1}`, "Idempotency-Key", "k").Want(t, http.StatusCreated)
	if again.Text("sessionId") != original.Text("sessionId") {
		t.Error("the 400 changed what the Idempotency-Key stands for")
	}
}

func TestIdempotencyKey_AfterBadRequest(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	f.Call(http.MethodPost, path, key, `{"amountCents": 0}`, "Idempotency-Key", "k").Want(t, http.StatusBadRequest)
	got := f.Call(http.MethodPost, path, key, `{"amountCents": 7}`, "Idempotency-Key", "k").Want(t, http.StatusCreated)
	if got.Body["idempotent"] != false {
		t.Error("the corrected request was taken for a repetition")
	}
}

func TestIdempotencyKey_Concurrent(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	const calls = 24
	answers := make([]roomtest.Result, calls)
	var group sync.WaitGroup
	for i := range calls {
		group.Go(func() {
			answers[i] = f.Call(http.MethodPost, path, key, `{"amountCents": 5}`, "Idempotency-Key", "once")
		})
	}
	group.Wait()
	ids, created := map[string]bool{}, 0
	for _, got := range answers {
		got.Want(t, http.StatusCreated)
		ids[got.Text("sessionId")] = true
		if got.Body["idempotent"] == false {
			created++
		}
	}
	if len(ids) != 1 || created != 1 {
		t.Errorf("%d sessions, of which %d were said to be new, want 1: %v", len(ids), created, slices.Collect(maps.Keys(ids)))
	}
}

func TestIdempotencyKey_ReplayShowsStatus(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme", func(r *published.MerchantRecord) { r.Sessions.LifetimeSeconds = 1 }))
	create := func() roomtest.Result {
		return f.Call(http.MethodPost, path, key, `{"amountCents": 5}`, "Idempotency-Key", "k").Want(t, http.StatusCreated)
	}
	original := create()
	await.Until(t, patience, "the replay is EXPIRED", func() bool { return create().Text("status") == "EXPIRED" })
	if got := create(); got.Text("sessionId") != original.Text("sessionId") || fmt.Sprint(got.Body["expiresAt"]) != fmt.Sprint(original.Body["expiresAt"]) {
		t.Errorf("the replay is %s, of %s", got.Raw, original.Raw)
	}
}

// session.created is recorded only for merchants that subscribe to it.
func TestCreate_Event(t *testing.T) {
	own := redistest.Start(t)
	f := newFixtureOn(t, own)
	server := storetest.Inspect(t, own)
	asking := func(events ...v1alpha1.WebhookEvent) func(*published.MerchantRecord) {
		return func(r *published.MerchantRecord) {
			r.Webhook = &published.Webhook{Webhook: v1alpha1.Webhook{URL: "https://shop.example/hooks", Events: events}}
		}
	}
	keys := map[string]string{
		"no webhook":   f.Key("none", f.Merchant("none")),
		"all events":   f.Key("all", f.Merchant("all", asking())),
		"other events": f.Key("other", f.Merchant("other", asking(v1alpha1.EventSessionExpired))),
		"this event":   f.Key("this", f.Merchant("this", asking(v1alpha1.EventSessionExpired, v1alpha1.EventSessionCreated))),
	}
	for name, key := range keys {
		id := f.Call(http.MethodPost, path, key, `{"amountCents": 1}`).Want(t, http.StatusCreated).Text("sessionId")
		recorded, err := server.Keys(t.Context(), "*:event:evt_"+id[3:]+"_*").Result()
		if err != nil {
			t.Fatal(err)
		}
		if want := name == "this event"; (len(recorded) == 1) != want {
			t.Errorf("%s: recorded %v", name, recorded)
		}
	}
}

const (
	amountRule = "amountCents must be an integer from 1 to 10000000"
	taxRule    = "taxCents must be an integer from 0 to 10000000"
	tipRule    = "tipCents must be an integer from 0 to 10000000"
	orderRule  = "orderRef must be a string of at most 255 characters without control characters"
	emailRule  = "customerEmail must be a string"

	descriptionRule = "description must be a string of at most 140 characters that payers can see, on one line, without characters that change the text direction"
	returnRule      = "returnUrl must be an https URL of at most 512 visible ASCII characters, without user info, and with braces only in {sessionId}"
)

// with returns a body that is good but for what is added to it.
func with(field string) string { return `{"amountCents":1,` + field + `}` }

var badBodies = map[string]struct{ body, message string }{
	"nothing":                 {``, roomtest.NotAnObject},
	"blanks":                  {" \n\t", roomtest.NotAnObject},
	"null":                    {`null`, roomtest.NotAnObject},
	"an array":                {`[]`, roomtest.NotAnObject},
	"an array of an object":   {`[{"amountCents":1}]`, roomtest.NotAnObject},
	"a string":                {`"amountCents"`, roomtest.NotAnObject},
	"a number":                {`1`, roomtest.NotAnObject},
	"not closed":              {`{"amountCents":1`, roomtest.NotJSON},
	"closed wrongly":          {`{"amountCents":1]`, roomtest.NotJSON},
	"a trailing comma":        {`{"amountCents":1,}`, roomtest.NotJSON},
	"single quotes":           {`{'amountCents':1}`, roomtest.NotJSON},
	"a bare name":             {`{amountCents:1}`, roomtest.NotJSON},
	"a comment":               {`{"amountCents":1/**/}`, roomtest.NotJSON},
	"a second object":         {`{"amountCents":1}{}`, roomtest.NotJSON},
	"trailing text":           {`{"amountCents":1} x`, roomtest.NotJSON},
	"a byte order mark":       {"\ufeff" + `{"amountCents":1}`, roomtest.NotJSON},
	"a form":                  {`amountCents=1`, roomtest.NotJSON},
	"NaN":                     {`{"amountCents":NaN}`, roomtest.NotJSON},
	"Infinity":                {`{"amountCents":Infinity}`, roomtest.NotJSON},
	"a leading zero":          {`{"amountCents":01}`, roomtest.NotJSON},
	"a plus sign":             {`{"amountCents":+1}`, roomtest.NotJSON},
	"hexadecimal":             {`{"amountCents":0x10}`, roomtest.NotJSON},
	"a raw control character": {with("\"orderRef\":\"a\x01b\""), roomtest.NotJSON},
	"a raw newline":           {with("\"orderRef\":\"a\nb\""), roomtest.NotJSON},
	"a bad escape":            {with(`"orderRef":"\x41"`), roomtest.NotJSON},
	"invalid UTF-8":           {with("\"orderRef\":\"\xff\""), roomtest.NotUTF8},
	"overlong UTF-8":          {with("\"orderRef\":\"\xc0\xaf\""), roomtest.NotUTF8},
	"a surrogate in UTF-8":    {with("\"orderRef\":\"\xed\xa0\x80\""), roomtest.NotUTF8},
	"UTF-16":                  {"\xff\xfe{\x00}\x00", roomtest.NotUTF8},
	"a lone high surrogate":   {with(`"orderRef":"\ud83d"`), roomtest.LoneSurrogate},
	"a lone low surrogate":    {with(`"orderRef":"\ude00"`), roomtest.LoneSurrogate},
	"two high surrogates":     {with(`"orderRef":"\ud83d\ud83d"`), roomtest.LoneSurrogate},
	"a high one, then text":   {with(`"orderRef":"\uD83Dx\uDE00"`), roomtest.LoneSurrogate},
	"a high one, an escape":   {with(`"orderRef":"\uD83D\n"`), roomtest.LoneSurrogate},
	"a lone one in a name":    {with(`"\udead":1`), roomtest.LoneSurrogate},
	"16 KiB and one byte":     {with(`"x":"` + strings.Repeat("x", 16<<10-23) + `"`), roomtest.BodyTooLarge},
	"200 KB":                  {with(`"x":"` + strings.Repeat("x", 200_000) + `"`), roomtest.BodyTooLarge},
	"200 KB of nothing":       {strings.Repeat(" ", 200_000), roomtest.BodyTooLarge},

	"no amount":                  {`{}`, amountRule},
	"an amount in another case":  {`{"AmountCents":1,"amountcents":1}`, amountRule},
	"amount null":                {`{"amountCents":null}`, amountRule},
	"amount a string":            {`{"amountCents":"1000"}`, amountRule},
	"amount true":                {`{"amountCents":true}`, amountRule},
	"amount an array":            {`{"amountCents":[1]}`, amountRule},
	"amount an object":           {`{"amountCents":{}}`, amountRule},
	"amount a fraction":          {`{"amountCents":12.5}`, amountRule},
	"amount a tiny fraction":     {`{"amountCents":1.0000000000000000000001}`, amountRule},
	"amount zero":                {`{"amountCents":0}`, amountRule},
	"amount minus zero":          {`{"amountCents":-0}`, amountRule},
	"amount negative":            {`{"amountCents":-1}`, amountRule},
	"amount over the maximum":    {`{"amountCents":10000001}`, amountRule},
	"amount over 64 bits":        {`{"amountCents":18446744073709551617}`, amountRule},
	"amount over a float":        {`{"amountCents":1e400}`, amountRule},
	"amount of a huge exponent":  {`{"amountCents":1e999999999}`, amountRule},
	"amount of a tiny exponent":  {`{"amountCents":1e-999999999}`, amountRule},
	"amount of many digits":      {`{"amountCents":` + strings.Repeat("9", 16000) + `}`, amountRule},
	"the amount twice":           {`{"amountCents":1,"amountCents":1}`, `duplicate field "amountCents"`},
	"the amount twice, hidden":   {`{"amountCents":1,"amount\u0043ents":9}`, `duplicate field "amountCents"`},
	"another field twice":        {with(`"orderRef":"a","orderRef":"b"`), `duplicate field "orderRef"`},
	"null and then a value":      {with(`"orderRef":null,"orderRef":"b"`), `duplicate field "orderRef"`},
	"an unknown field twice":     {with(`"x":1,"x":1`), `duplicate field "x"`},
	"an odd field twice":         {with(`"<ä\u0000":1,"<ä\u0000":1`), `duplicate field "<\u00e4\x00"`},
	"tax negative":               {with(`"taxCents":-1`), taxRule},
	"tax over the maximum":       {with(`"taxCents":10000001`), taxRule},
	"tax a fraction":             {with(`"taxCents":0.5`), taxRule},
	"tax a string":               {with(`"taxCents":"1"`), taxRule},
	"tip negative":               {with(`"tipCents":-1`), tipRule},
	"tip over the maximum":       {with(`"tipCents":1e8`), tipRule},
	"tip false":                  {with(`"tipCents":false`), tipRule},
	"order reference a number":   {with(`"orderRef":1001`), orderRule},
	"order reference an array":   {with(`"orderRef":["1001"]`), orderRule},
	"order reference too long":   {with(`"orderRef":"` + strings.Repeat("ä", 256) + `"`), orderRule},
	"order reference with NUL":   {with(`"orderRef":"a\u0000b"`), orderRule},
	"order reference with a tab": {with(`"orderRef":"a\tb"`), orderRule},
	"order reference with DEL":   {with(`"orderRef":"a\u007fb"`), orderRule},
	"description a number":       {with(`"description":2`), descriptionRule},
	"description too long":       {with(`"description":"` + strings.Repeat("ä", 141) + `"`), descriptionRule},
	"description of two lines":   {with(`"description":"2 flat whites\n1 croissant"`), descriptionRule},
	"description nobody sees":    {with(`"description":"\u200b"`), descriptionRule},
	"return URL an object":       {with(`"returnUrl":{}`), returnRule},
	"return URL a path":          {with(`"returnUrl":"/orders/1001"`), returnRule},
	"return URL of plain http":   {with(`"returnUrl":"http://shop.example/"`), returnRule},
	"e-mail a number":            {with(`"customerEmail":1`), emailRule},
	"e-mail true":                {with(`"customerEmail":true`), emailRule},
	"e-mail an array":            {with(`"customerEmail":["ada@example.com"]`), emailRule},
	"e-mail an object":           {with(`"customerEmail":{"address":"ada@example.com"}`), emailRule},
	"e-mail a lone surrogate":    {with(`"customerEmail":"\ud83d@example.com"`), roomtest.LoneSurrogate},
	"a good e-mail, no amount":   {`{"customerEmail":"ada@example.com"}`, amountRule},
	"a bad e-mail, no amount":    {`{"customerEmail":"n/a"}`, amountRule},
}

func TestCreate_BadBodies(t *testing.T) {
	own := redistest.Start(t)
	f := newFixtureOn(t, own)
	key := f.Key("till", f.Merchant("acme"))
	for name, test := range badBodies {
		t.Run(name, func(t *testing.T) {
			got := f.Call(http.MethodPost, path, key, test.body, "Idempotency-Key", "same")
			got.WantError(t, http.StatusBadRequest, test.message)
			if got.Header.Get("RateLimit") == "" {
				t.Error("an admitted answer without RateLimit")
			}
		})
	}

	server := storetest.Inspect(t, own)
	for _, pattern := range []string{"*:session:*", "*:idem:*"} {
		if stored, err := server.Keys(t.Context(), pattern).Result(); err != nil || len(stored) > 0 {
			t.Errorf("refused bodies left %v, %v", stored, err)
		}
	}
}

func TestCreate_GoodBodies(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	for name, body := range map[string]string{
		"the least":                      `{"amountCents":1}`,
		"the most":                       `{"amountCents":10000000,"taxCents":10000000,"tipCents":0,"orderRef":"` + strings.Repeat("ä", 255) + `","customerEmail":"ada@example.com"}`,
		"an integer as 1000.0":           `{"amountCents":1000.0}`,
		"an integer as 1e3":              `{"amountCents":1e3}`,
		"an integer as 100000E-2":        `{"amountCents":100000E-2}`,
		"blanks around":                  "\r\n { \"amountCents\" : 1 } \n",
		"unknown fields":                 with(`"currency":"EUR","items":[{"a":1,"a":2}],"":null`),
		"a deep unknown field":           with(`"deep":` + strings.Repeat("[", 8000) + strings.Repeat("]", 8000)),
		"an escaped name":                `{"amount\u0043ents":1}`,
		"a pair of surrogates":           with(`"orderRef":"\ud83d\ude00 \\ud83d"`),
		"a character beyond 16 bits":     with(`"orderRef":"😀"`),
		"null is absence":                with(`"taxCents":null,"tipCents":null,"orderRef":null,"customerEmail":null`),
		"empty strings are none":         with(`"orderRef":"","customerEmail":""`),
		"exactly 16 KiB":                 with(`"x":"` + strings.Repeat("x", 16<<10-24) + `"`),
		"markup is text":                 with(`"orderRef":"<script>&'\""`),
		"what looks like another format": with(`"orderRef":"%s {{.}} ${x} '; DROP TABLE"`),
	} {
		t.Run(name, func(t *testing.T) {
			f.Call(http.MethodPost, path, key, body).Want(t, http.StatusCreated)
		})
	}
	for _, contentType := range []string{"text/plain", "application/x-www-form-urlencoded", "nonsense"} {
		f.Call(http.MethodPost, path, key, `{"amountCents":1}`, "Content-Type", contentType).Want(t, http.StatusCreated)
	}
}

// Above the sessions of a day only creates are refused.
func TestCreate_MaxPerDay(t *testing.T) {
	started, later := time.Now(), atomic.Int64{}
	f := newFixture(t, func(o *sessions.Options) {
		o.MaxPerDay, o.Now = 2, func() time.Time { return started.Add(time.Duration(later.Load())) }
	})
	key, other := f.Key("one", f.Merchant("acme")), f.Key("other", f.Merchant("books"))
	f.Call(http.MethodPost, path, key, `{"amountCents":1}`, "Idempotency-Key", "a").Want(t, http.StatusCreated)
	f.Call(http.MethodPost, path, key, `{"amountCents":1}`, "Idempotency-Key", "a").Want(t, http.StatusCreated) // creates none
	f.Call(http.MethodPost, path, key, `{"amountCents":0}`).Want(t, http.StatusBadRequest)
	f.Call(http.MethodPost, path, key, `{"amountCents":1}`).Want(t, http.StatusCreated)
	f.Call(http.MethodPost, path, other, `{"amountCents":1}`).Want(t, http.StatusCreated)
	f.Call(http.MethodPost, path, key+"x", `{"amountCents":1}`).Want(t, http.StatusUnauthorized)
	refused := f.Call(http.MethodPost, path, key, `{"amountCents":1}`)
	refused.WantError(t, http.StatusTooManyRequests, "the merchant made as many sessions and refunds as one may in a day; retry after the time in Retry-After")
	if after := refused.Header.Get("Retry-After"); after != "1" {
		t.Errorf("Retry-After %q, want 1", after)
	}
	if code := refused.Header.Get("Error-Code"); code != "rate_limited" {
		t.Errorf("Error-Code %q", code)
	}
	if counted := f.Metric(`merchant_operator_http_rate_limited_total{limit="sessions"}`); counted != "1" {
		t.Errorf("%s requests are counted as over this limit", counted)
	}
	f.Call(http.MethodGet, path+"?orderRef=1", key, "").Want(t, http.StatusOK)
	later.Store(int64(time.Second))
	f.Call(http.MethodPost, path, key, `{"amountCents":1}`).Want(t, http.StatusCreated)
}

// Who has no key of the merchant that may create sessions uses up none of its day, also not with requests whose client goes away.
func TestCreate_MaxPerDay_WithoutRight(t *testing.T) {
	f := newFixture(t, func(o *sessions.Options) { o.MaxPerDay = 1 })
	acme := f.Merchant("acme")
	till := f.Key("till", acme)
	id, _ := apikey.ParseID(till)
	wrong, err := apikey.New(id)
	if err != nil {
		t.Fatal(err)
	}
	reader := f.Key("screen", acme, func(r *published.KeyRecord) { r.Permissions = []v1alpha1.Permission{v1alpha1.PermissionRead} })
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, key := range []string{wrong.Reveal(), reader} {
		for _, ctx := range []context.Context{t.Context(), gone} {
			for _, target := range []string{path, path + "/ps_abcdefgh2345T2xV9bLrYc8WdNeHq7/refunds"} {
				request := httptest.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(`{"amountCents":1}`))
				request.Header.Set("Authorization", "Bearer "+key)
				request.Header.Set("Idempotency-Key", "a")
				f.ServeHTTP(httptest.NewRecorder(), request)
			}
		}
	}
	f.Call(http.MethodPost, path, till, `{"amountCents":1}`).Want(t, http.StatusCreated)
}

// Who deletes a Merchant and creates another one has another account, but no other namespace.
func TestCreate_MaxPerDay_Namespace(t *testing.T) {
	f := newFixture(t, func(o *sessions.Options) { o.MaxPerDay, o.Now = 1, sync.OnceValue(time.Now) })
	key := func(name, namespace string) string {
		return f.Key(name, f.Merchant(name, func(m *published.MerchantRecord) { m.Namespace = namespace }))
	}
	var hers []string
	for n := range 11 {
		hers = append(hers, key(fmt.Sprintf("shop-%d", n), "hers"))
	}
	his := key("bakery", "his")
	create := func(key string) roomtest.Result { return f.Call(http.MethodPost, path, key, `{"amountCents":1}`) }
	for _, key := range hers[:10] {
		create(key).Want(t, http.StatusCreated)
	}
	create(hers[10]).Want(t, http.StatusTooManyRequests)
	create(his).Want(t, http.StatusCreated)
}

// A test key is refused what a live key is warned about, so that an integration finds its mistake before it costs money.
func TestCreate_UnknownField(t *testing.T) {
	f := newFixture(t)
	acme := f.Merchant("acme")
	key, live := f.TestKey("test", acme), f.Key("live", acme)
	f.Call(http.MethodPost, path, key, `{"amountCents": 1, "orderRef": "1", "taxCents": null}`).Want(t, http.StatusCreated)
	for body, field := range map[string]string{
		`{"amountCents": 1, "orderref": "1001"}`:                    `"orderref"`,
		`{"amount": 1}`:                                             `"amount"`, // and not that amountCents is missing
		`{"amountCents": "1", "x": 1, "y": 1}`:                      `"x"`,
		`{"amountCents": 1, "currency": null}`:                      `"currency"`,
		`{"amountCents": 1, "ä\n": 1}`:                              `"\u00e4\n"`,
		`{"amountCents": 1, "` + strings.Repeat("x", 200) + `": 1}`: `"` + strings.Repeat("x", 64) + `\u2026"`,
	} {
		got := f.Call(http.MethodPost, path, key, body, "Idempotency-Key", "order-1")
		got.WantError(t, http.StatusBadRequest, "unknown field "+field)
		if got.Header.Get("Ignored-Fields") != "" {
			t.Errorf("%s: refused and ignored: %s", body, got.Header.Get("Ignored-Fields"))
		}
	}
	f.Call(http.MethodPost, path, live, `{"amountCents": 1, "orderref": "1001"}`).Want(t, http.StatusCreated)
	f.Call(http.MethodPost, path, key, `{"amountCents": 1}`, "Idempotency-Key", "order-1").Want(t, http.StatusCreated)
}

// BenchmarkCreate is a whole charge except the network and the authentication.
func BenchmarkCreate(b *testing.B) {
	registry := prometheus.NewRegistry()
	opened := storetest.Open(b, redistest.Start(b).URL(), func(o *redis.Options) { o.Registerer = registry })
	h := sessions.New(sessions.Options{Store: opened, Links: links{}})
	from := caller.Caller{Principal: directory.Principal{KeyID: "abcdefgh2345", Digest: apikey.NewDigest("a key"), Accepted: true, Live: true, Merchant: &directory.Merchant{
		ID: "abcdefgh2345", DisplayName: "Acme", State: v1alpha1.MerchantActive,
		RateLimit: v1alpha1.RateLimit{RequestsPerSecond: 1_000_000, Burst: 1_000_000},
		Sessions:  v1alpha1.SessionSettings{LifetimeSeconds: 900},
	}}}
	options := web.Options{Log: slog.New(slog.DiscardHandler), Draining: func() bool { return false }, Answer: func(err error) web.Answer { return web.Answer{Message: err.Error()} }}
	handler := web.New(options, web.NewMetrics(registry), web.Routes{"/api/v1/sessions": {
		http.MethodPost: func(e *web.Event, w http.ResponseWriter, r *http.Request) error {
			return h.Create(e, w, r, from)
		},
	}})
	b.ReportAllocs()
	for b.Loop() {
		request := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/api/v1/sessions", strings.NewReader(`{"amountCents": 1250, "orderRef": "1001"}`))
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code != http.StatusCreated {
			b.Fatalf("status %d: %s", answer.Code, answer.Body)
		}
	}
}
