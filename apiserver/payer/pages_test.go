package payer_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/payer"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/sessionhash"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

const pagePolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

// wantPage fails the test unless the answer is a page with the headers that protect it.
func (a result) wantPage(t *testing.T, status int, parts ...string) result {
	t.Helper()
	a.Want(t, status)
	policy := pagePolicy
	if strings.Contains(string(a.Raw), `<form class="screen" method="post" action="/pay/ps_test`) {
		policy = strings.Replace(policy, "form-action 'none'", "form-action 'self'", 1)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy, "Cache-Control": "no-store",
		"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
		"Cross-Origin-Opener-Policy": "same-origin", "Set-Cookie": "", "Access-Control-Allow-Origin": "",
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, part := range parts {
		if !strings.Contains(string(a.Raw), part) {
			t.Errorf("%q is not on the page: %s", part, a.Raw)
		}
	}
	return a
}

func TestPayment(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.Merchant("acme", func(r *published.MerchantRecord) {
		r.Page = &v1alpha1.PageSettings{AccentColor: "#0b6e4f", ReturnURL: "https://shop.example/thanks"}
	})
	key := f.Key("till", acme)
	id := f.call(http.MethodPost, sessionPath, key, `{"amountCents": 1250, "orderRef": "1001", "customerEmail": "ada@example.com"}`).Text("sessionId")

	got := f.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, `lang="en"`, "Acme acme", "€12.50", `data-status="PENDING"`,
		`href="pay://qr/`+id+`"`, `?accent=0b6e4f"`, `href="/pay/`+id+`"`)
	for _, secret := range []string{"1001", "ada@example.com", key} {
		if strings.Contains(string(got.Raw), secret) {
			t.Errorf("the page has %s", secret)
		}
	}
	if got.Header.Get("RateLimit") == "" {
		t.Error("the page is not counted in the limit of the address")
	}
	german := f.call(http.MethodGet, "/pay/"+id, "", "", "Accept-Language", "sv", "Accept-Language", "de-AT;q=0.9")
	german.wantPage(t, http.StatusOK, `lang="de"`, "12,50\u00a0€")
	f.call(http.MethodGet, "/pay/"+id, "", "", "Accept-Language", strings.Repeat("de,", 5000)).wantPage(t, http.StatusOK, `lang="en"`)
	f.head("/pay/"+id).wantPage(t, http.StatusOK)

	// The currency is that of the session's creation, the look that of now.
	acme.Currency, acme.Page = "JPY", nil
	f.PublishMerchant(acme)
	if got := f.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, "€12.50"); strings.Contains(string(got.Raw), "accent=") {
		t.Errorf("the page has the color of before: %s", got.Raw)
	}
	yen := f.call(http.MethodPost, sessionPath, key, `{"amountCents": 1250}`).Text("sessionId")
	f.call(http.MethodGet, "/pay/"+yen, "", "").wantPage(t, http.StatusOK, "¥1,250")

	f.call(http.MethodPost, sessionPath+"/"+id+"/cancel", key, "").Want(t, http.StatusOK)
	f.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, "Payment cancelled", "do not pay again")
}

func TestPayment_Paid(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme", func(r *published.MerchantRecord) {
		r.Page = &v1alpha1.PageSettings{ReturnURL: "https://shop.example/thanks"}
	}))
	id := f.call(http.MethodPost, sessionPath, key, `{"amountCents": 1}`).Text("sessionId")
	f.Report(id, storetest.Of(1, storetest.Paid("bank-1")))
	f.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, "Paid", `href="https://shop.example/thanks"`)
}

// The page has the charge's description, and leads to the charge's URL as long as that is on the host that the Merchant has.
func TestPayment_DescriptionAndReturnURL(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.Merchant("acme", func(r *published.MerchantRecord) {
		r.Page = &v1alpha1.PageSettings{ReturnURL: "https://shop.example/thanks?session={sessionId}"}
	})
	key := f.Key("till", acme)
	create := func(fields string) (id string) {
		t.Helper()
		return f.call(http.MethodPost, sessionPath, key, `{"amountCents": 1250`+fields+`}`).Want(t, http.StatusCreated).Text("sessionId")
	}
	id := create(`, "description": "2 <b>flat</b> whites", "returnUrl": "https://shop.example/orders/1001?by={sessionId}"`)
	plain, foreign := create(""), create(`, "returnUrl": "https://evil.example/"`)
	leads := func(id, where string) {
		t.Helper()
		f.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, `href="`+where+`"`)
	}
	f.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, "2 &lt;b&gt;flat&lt;/b&gt; whites")
	leads(id, "https://shop.example/orders/1001?by="+id)
	leads(plain, "https://shop.example/thanks?session="+plain)
	leads(foreign, "https://shop.example/thanks?session="+foreign)

	acme.Page = &v1alpha1.PageSettings{ReturnURL: "https://shop.test/thanks"}
	f.PublishMerchant(acme)
	leads(id, "https://shop.test/thanks")
	acme.Page = nil
	f.PublishMerchant(acme)
	if page := f.call(http.MethodGet, "/pay/"+id, "", "").Want(t, http.StatusOK); strings.Contains(string(page.Raw), "shop.example") {
		t.Errorf("the page leads to a host that its Merchant has no more: %s", page.Raw)
	}
	f.Report(id, storetest.Paid("bank-1"))
	f.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, "Paid", "2 &lt;b&gt;flat&lt;/b&gt; whites")
	if public := f.call(http.MethodGet, "/api/v1/public/sessions/"+id, "", "").Want(t, http.StatusOK); len(public.Body) != 3 {
		t.Errorf("the public status is %s, want its three fields", public.Raw)
	}
}

// The button leads where the platform says; the code and its text stay the payload.
func TestPayment_AppURL(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *payer.Options) { o.Links.App = "https://bank.example/pay?session={sessionId}&from=page" })
	plain := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	created := f.call(http.MethodPost, sessionPath, key, `{"amountCents": 1250}`)
	id := created.Text("sessionId")
	if payload := created.Text("qrPayload"); payload != "pay://qr/"+id {
		t.Errorf("qrPayload is %s", payload)
	}
	f.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, `href="https://bank.example/pay?session=`+id+`&amp;from=page"`)
	if got, want := f.call(http.MethodGet, "/pay/"+id+"/qr.svg", "", ""), plain.call(http.MethodGet, "/pay/"+id+"/qr.svg", "", ""); !bytes.Equal(got.Raw, want.Raw) {
		t.Error("the QR code is another one")
	}
}

// The buttons of a test session's page play the rail. No live session can be paid by them, nor any from a page of another origin.
func TestPlayRail(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.Merchant("acme")
	key, testKey := f.Key("till", acme), f.TestKey("sandbox", acme)
	charge := func(key string) string {
		return f.call(http.MethodPost, sessionPath, key, `{"amountCents": 1250}`).Text("sessionId")
	}
	press := func(id, body string, headers ...string) result {
		return f.call(http.MethodPost, "/pay/"+id+"/test", "", body, append(headers, "Content-Type", "application/x-www-form-urlencoded")...)
	}
	status := func(id, key string) string { return f.call(http.MethodGet, sessionPath+"/"+id, key, "").Text("status") }
	const pays, declines = "outcome=COMPLETED", "outcome=FAILED"

	for outcome, want := range map[string]string{pays: "COMPLETED", declines: "FAILED"} {
		id := charge(testKey)
		page := f.call(http.MethodGet, "/pay/"+id, "", "").Want(t, http.StatusOK)
		if !strings.Contains(string(page.Raw), `action="/pay/`+id+`/test"`) || !strings.Contains(page.Header.Get("Content-Security-Policy"), "form-action 'self'") {
			t.Errorf("the page has no form, or may not send it: %s\n%s", page.Header.Get("Content-Security-Policy"), page.Raw)
		}
		got := press(id, outcome, "Sec-Fetch-Site", "same-origin").Want(t, http.StatusSeeOther)
		if location := got.Header.Get("Location"); location != "/pay/"+id || status(id, testKey) != want {
			t.Errorf("%s: to %q, the session is %s", outcome, location, status(id, testKey))
		}
		// Pressed again, on a page that is still open: nothing more happens.
		press(id, declines).Want(t, http.StatusSeeOther)
		press(id, pays).Want(t, http.StatusSeeOther)
		sess := f.call(http.MethodGet, sessionPath+"/"+id, testKey, "")
		if sess.Text("status") != want || strings.Contains(string(sess.Raw), "refused") {
			t.Errorf("pressed again, the session is %s", sess.Raw)
		}
		if page := f.call(http.MethodGet, "/pay/"+id, "", ""); strings.Contains(string(page.Raw), "<form") {
			t.Error("the page of an ended session has a form")
		}
	}

	id := charge(testKey)
	press(id, pays, "Sec-Fetch-Site", "cross-site").WantError(t, http.StatusForbidden, "the form was sent by a page of another origin")
	press(id, pays, "Origin", "https://evil.example").WantError(t, http.StatusForbidden, "the form was sent by a page of another origin")
	for _, body := range []string{"", "outcome=", "outcome=EXPIRED", "outcome=completed", "x=1", strings.Repeat("x", 5000) + "&" + pays} {
		press(id, body).WantError(t, http.StatusBadRequest, "outcome must be COMPLETED or FAILED")
	}
	if got := status(id, testKey); got != "PENDING" {
		t.Errorf("a test session is %s", got)
	}

	live := charge(key)
	press(live, pays, "Sec-Fetch-Site", "same-origin").wantPage(t, http.StatusNotFound, "Payment not found")
	page := f.call(http.MethodGet, "/pay/"+live, "", "").wantPage(t, http.StatusOK)
	if got := status(live, key); got != "PENDING" || strings.Contains(string(page.Raw), "<form") {
		t.Errorf("a live session is %s: %s", got, page.Raw)
	}
	press("ps_test"+live[len("ps_"):], pays).wantPage(t, http.StatusNotFound, "Payment not found")
	press("x", pays).wantPage(t, http.StatusNotFound, "Payment not found")
	if got := status(live, key); got != "PENDING" {
		t.Errorf("a live session is %s", got)
	}
}

// The buttons have the limit of all payers.
func TestPlayRail_Limited(t *testing.T) {
	t.Parallel()
	f := newFixture(t, limited(2))
	testKey := f.TestKey("sandbox", f.Merchant("acme"))
	id := f.call(http.MethodPost, sessionPath, testKey, `{"amountCents": 1250}`).Text("sessionId")
	eventually(t, "the limit is exceeded", func() bool {
		return f.call(http.MethodGet, "/pay/"+id, "", "").Status == http.StatusTooManyRequests
	})
	f.call(http.MethodPost, "/pay/"+id+"/test", "", "outcome=COMPLETED", "Content-Type", "application/x-www-form-urlencoded").Want(t, http.StatusSeeOther)
	if got := f.call(http.MethodGet, sessionPath+"/"+id, testKey, "").Text("status"); got != "PENDING" {
		t.Errorf("over the limit the session became %s", got)
	}
}

// The order is on a receipt only if the merchant wants that, and the time is that of the shop.
func TestPayment_Receipt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.Merchant("acme", func(r *published.MerchantRecord) { r.TimeZone = "Asia/Kathmandu" }) // 5:45 ahead
	key := f.Key("till", acme)
	const body = `{"amountCents": 1250, "orderRef": "order-1001", "taxCents": 110, "tipCents": 100, "customerEmail": "ada@example.com"}`
	id := f.call(http.MethodPost, sessionPath, key, body).Text("sessionId")
	pending := string(f.call(http.MethodGet, "/pay/"+id, "", "").Want(t, http.StatusOK).Raw)
	f.Report(id, storetest.Paid("bank-1"))
	ended := time.UnixMilli(int64(f.call(http.MethodGet, sessionPath+"/"+id, key, "").Want(t, http.StatusOK).Body["endedAt"].(float64)))
	local := ended.In(time.FixedZone("+0545", (5*60+45)*60)).Format("2006-01-02 15:04 MST")
	got := f.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, "€12.50", "€1.10", "€1.00", id[len(id)-8:], strings.ReplaceAll(local, "+", "&#43;"))
	for _, page := range []string{pending, string(got.Raw)} {
		for _, secret := range []string{"order-1001", "ada@example.com", "bank-1"} {
			if strings.Contains(page, secret) {
				t.Errorf("the page has %s: %s", secret, page)
			}
		}
	}
	acme.Page = &v1alpha1.PageSettings{ShowOrder: true}
	f.PublishMerchant(acme)
	f.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, "order-1001")
}

// Payments that a session did not take cannot be read. Its page has all else, and its QR code is there.
func TestPayment_RefusedUnread(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	id := f.call(http.MethodPost, sessionPath, key, `{"amountCents": 1250}`).Text("sessionId")
	f.Report(id, storetest.Of(1300, storetest.Paid("wrong")))
	f.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, `<div id="refused"><p><strong>We received <bdi>€13.00</bdi>`)
	parsed, err := session.ParseID(id)
	storetest.Must(t, err)
	hash := storetest.BucketTag(parsed.Bucket()) + sessionhash.Key + id
	storetest.Must(t, storetest.Inspect(t, sharedRedis).HSet(t.Context(), hash, sessionhash.RefusedField, "unreadable").Err())
	f.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, `data-status="PENDING"`, `<div id="refused" hidden></div>`)
	f.call(http.MethodGet, "/pay/"+id+"/qr.svg", "", "").Want(t, http.StatusOK)
	f.call(http.MethodPost, sessionPath+"/"+id+"/cancel", key, "").Want(t, http.StatusOK)
	f.call(http.MethodGet, "/pay/"+id+"/qr.svg", "", "").wantPage(t, http.StatusGone, "Payment cancelled", `<div id="refused" hidden></div>`)
}

func TestPayment_NotFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	bodies := map[string]bool{}
	for _, id := range []string{"x", "ps_00", "ps_aaaaaaaaaaaa0000000000000000AA", "ps_aaaaaaaaaaab000000000000000000", "%00", "<script>", "..%2f", strings.Repeat("a", 3000)} {
		for _, path := range []string{"/pay/" + id, "/pay/" + id + "/qr.svg"} {
			got := f.call(http.MethodGet, path, "", "", "Accept-Language", "fr")
			got.wantPage(t, http.StatusNotFound, "Paiement introuvable", `lang="fr"`)
			bodies[string(got.Raw)] = true
		}
	}
	if len(bodies) != 1 {
		t.Errorf("%d different pages: an unknown session differs from a malformed one", len(bodies))
	}
	for _, path := range []string{"/pay", "/pay/", "/pay/x/", "/pay/x/y", "/pay/x/qr.png", "/pay/static/", "/pay/static/x/y"} {
		f.call(http.MethodGet, path, "", "").WantError(t, http.StatusNotFound, "path not found")
	}
}

// An id that is none costs the address as much as another one.
func TestPayment_NotFoundIsLimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t, limited(3))
	for _, path := range []string{"/pay/x", "/pay/x/qr.svg", public + "/x"} {
		eventually(t, "the limit is exceeded by "+path, func() bool {
			got := f.call(http.MethodGet, path, "", "")
			return got.Status == http.StatusTooManyRequests && got.Header.Get("Retry-After") != ""
		})
	}
}

func TestPayment_Unavailable(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	f := newFixtureOn(t, redis, limited(3))
	key := f.Key("till", f.Merchant("acme"))
	id := f.call(http.MethodPost, sessionPath, key, `{"amountCents": 1}`).Text("sessionId")
	eventually(t, "the limit is exceeded", func() bool {
		return f.call(http.MethodGet, "/pay/"+id, "", "").Status == http.StatusTooManyRequests
	})
	got := f.call(http.MethodGet, "/pay/"+id+"/qr.svg", "", "").wantPage(t, http.StatusTooManyRequests, "Too many requests")
	if got.Header.Get("Retry-After") == "" {
		t.Error("429 without Retry-After")
	}
	redis.Stop()
	eventually(t, "the address may read again", func() bool {
		return f.call(http.MethodGet, "/pay/"+id, "", "").Status != http.StatusTooManyRequests
	})
	got = f.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusServiceUnavailable, "Temporarily unavailable", "do not pay again")
	if got.Header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
}

func TestQRCode_Size(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *payer.Options) { o.LinkInQR, o.Links.Base = true, "https://pay.example.com" })
	key := f.Key("till", f.Merchant("acme"))
	created := f.call(http.MethodPost, sessionPath, key, `{"amountCents": 1}`)
	id := created.Text("sessionId")
	if payload := created.Text("qrPayload"); payload != "pay://qr/"+id {
		t.Errorf("qrPayload is %q", payload)
	}
	path := "/pay/" + id + "/qr.svg"
	for size, width := range map[string]string{"": "320", "?size=96": "96", "?size=2048": "2048"} {
		got := f.call(http.MethodGet, path+size, "", "").Want(t, http.StatusOK)
		if got.Header.Get("Content-Type") != "image/svg+xml" || got.Header.Get("Cache-Control") != "no-store" ||
			got.Header.Get("Content-Security-Policy") != pagePolicy || !strings.Contains(string(got.Raw), `width="`+width+`" height="`+width+`"`) {
			t.Errorf("size %q: %v %s", size, got.Header, got.Raw)
		}
	}
	for _, size := range []string{"95", "2049", "-1", "0", "1e3", "3.5", "x", "99999999999999999999", "%00"} {
		f.call(http.MethodGet, path+"?size="+size, "", "").WantError(t, http.StatusBadRequest, "size must be an integer from 96 to 2048")
	}
	f.call(http.MethodPost, sessionPath+"/"+id+"/cancel", key, "").Want(t, http.StatusOK)
	f.call(http.MethodGet, path, "", "").wantPage(t, http.StatusGone, "Payment cancelled")
}

// assetLinks are the addresses of stylesheet and script on a page.
var assetLinks = regexp.MustCompile(`(?:href|src)="(/pay/static/[^"]+)"`)

func TestAssets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme", func(r *published.MerchantRecord) {
		r.Page = &v1alpha1.PageSettings{AccentColor: "#0B6E4F"}
	}))
	id := f.call(http.MethodPost, sessionPath, key, `{"amountCents": 1}`).Text("sessionId")
	page := f.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK)
	var types []string
	for _, found := range assetLinks.FindAllStringSubmatch(string(page.Raw), -1) {
		got := f.call(http.MethodGet, found[1], "", "").Want(t, http.StatusOK)
		types = append(types, got.Header.Get("Content-Type"))
		if cached := got.Header.Get("Cache-Control"); cached != "public, max-age=31536000, immutable" {
			t.Errorf("%s has Cache-Control %q", found[1], cached)
		}
	}
	if !slices.Equal(types, []string{"text/css; charset=utf-8", "text/javascript; charset=utf-8"}) {
		t.Errorf("the page loads %v", types)
	}
	// A page of another version, while replicas are replaced.
	if got := f.call(http.MethodGet, "/pay/static/000000000000/page.css", "", "").Want(t, http.StatusOK); got.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("an asset of another version is kept: %s", got.Header.Get("Cache-Control"))
	}
	for _, path := range []string{"1/page.css?accent=777777", "1/page.css?accent=red", "1/page.js?accent=0b6e4f", "1/x.css", "1/page.html", "page.css"} {
		f.call(http.MethodGet, "/pay/static/"+path, "", "").WantError(t, http.StatusNotFound, "path not found")
	}
}

// The client of this test decides about compression, as a browser does.
func TestPayment_Compressed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	id := f.call(http.MethodPost, sessionPath, key, `{"amountCents": 1}`).Text("sessionId")
	page := f.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK)
	const limit = 15 << 10
	total := 0
	paths := []string{"/pay/" + id}
	for _, found := range assetLinks.FindAllStringSubmatch(string(page.Raw), -1) {
		paths = append(paths, found[1])
	}
	for _, path := range paths {
		for accepted, compressed := range map[string]bool{
			"gzip": true, "br, GZIP;q=0.5": true, "deflate, gzip": true, "identity": false, "gzip;q=0": false, "gzip;q=0.0, br": false, "x-gzip": false,
		} {
			got := f.call(http.MethodGet, path, "", "", "Accept-Encoding", accepted).Want(t, http.StatusOK)
			if (got.Header.Get("Content-Encoding") == "gzip") != compressed {
				t.Errorf("%s, Accept-Encoding %q: Content-Encoding %q", path, accepted, got.Header.Get("Content-Encoding"))
				continue
			}
			if !compressed {
				continue
			}
			if accepted == "gzip" {
				total += len(got.Raw)
			}
			reader, err := gzip.NewReader(strings.NewReader(string(got.Raw)))
			if err != nil {
				t.Fatal(err)
			}
			if content, err := io.ReadAll(reader); err != nil || len(content) < len(got.Raw) {
				t.Errorf("%s: %d bytes of %d, %v", path, len(content), len(got.Raw), err)
			}
		}
	}
	if len(paths) != 3 || total > limit {
		t.Errorf("%d bytes in %d requests, want at most %d in 3", total, len(paths), limit)
	}
}

func TestWidget(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := f.call(http.MethodGet, "/widget/v1.js", "", "", "Origin", "https://shop.example").Want(t, http.StatusOK)
	for name, want := range map[string]string{
		"Content-Type": "text/javascript; charset=utf-8", "Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin",
		"Cache-Control": "public, max-age=300", "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding", "Set-Cookie": "",
	} {
		if got := got.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if !strings.Contains(string(got.Raw), "customElements.define('payment-session'") {
		t.Errorf("the script is %.80q", got.Raw)
	}
	tag := got.Header.Get("ETag")
	again := f.call(http.MethodGet, "/widget/v1.js", "", "", "If-None-Match", tag).Want(t, http.StatusNotModified)
	if len(again.Raw) > 0 || again.Header.Get("ETag") != tag || again.Header.Get("Cache-Control") != "public, max-age=300" {
		t.Errorf("unchanged: %v %q", again.Header, again.Raw)
	}
	packed := f.call(http.MethodGet, "/widget/v1.js", "", "", "Accept-Encoding", "gzip", "Range", "bytes=0-9").Want(t, http.StatusOK)
	if packed.Header.Get("Content-Encoding") != "gzip" || len(packed.Raw) >= len(got.Raw) || packed.Header.Get("ETag") != tag {
		t.Errorf("compressed: %v, %d bytes", packed.Header, len(packed.Raw))
	}
	f.head("/widget/v1.js").Want(t, http.StatusOK)
	f.call(http.MethodGet, "/widget/v2.js", "", "").Want(t, http.StatusNotFound)
}
