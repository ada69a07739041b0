package apiserver_test

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
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

const pagePolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

// wantPage fails the test unless the answer is a page with the headers that protect it.
func (a result) wantPage(t *testing.T, status int, parts ...string) result {
	t.Helper()
	a.want(t, status)
	policy := pagePolicy
	if strings.Contains(string(a.raw), `<form class="screen" method="post" action="/pay/ps_test`) {
		policy = strings.Replace(policy, "form-action 'none'", "form-action 'self'", 1)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy, "Cache-Control": "no-store",
		"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
		"Cross-Origin-Opener-Policy": "same-origin", "Set-Cookie": "", "Access-Control-Allow-Origin": "",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, part := range parts {
		if !strings.Contains(string(a.raw), part) {
			t.Errorf("%q is not on the page: %s", part, a.raw)
		}
	}
	return a
}

func TestPayment(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme", func(r *published.MerchantRecord) {
		r.Page = &v1alpha1.PageSettings{AccentColor: "#0b6e4f", ReturnURL: "https://shop.example/thanks"}
	})
	key := f.key("till", acme)
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1250, "orderRef": "1001", "customerEmail": "ada@example.com"}`).text("sessionId")

	got := r.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, `lang="en"`, "Acme acme", "€12.50", `data-status="PENDING"`,
		`href="pay://qr/`+id+`"`, `?accent=0b6e4f"`, `href="/pay/`+id+`"`)
	for _, secret := range []string{"1001", "ada@example.com", key} {
		if strings.Contains(string(got.raw), secret) {
			t.Errorf("the page has %s", secret)
		}
	}
	if got.header.Get("RateLimit") == "" {
		t.Error("the page is not counted in the limit of the address")
	}
	german := r.call(http.MethodGet, "/pay/"+id, "", "", "Accept-Language", "sv", "Accept-Language", "de-AT;q=0.9")
	german.wantPage(t, http.StatusOK, `lang="de"`, "12,50\u00a0€")
	r.call(http.MethodGet, "/pay/"+id, "", "", "Accept-Language", strings.Repeat("de,", 5000)).wantPage(t, http.StatusOK, `lang="en"`)
	head := r.call(http.MethodHead, "/pay/"+id, "", "").wantPage(t, http.StatusOK)
	if len(head.raw) > 0 {
		t.Errorf("HEAD has a body: %s", head.raw)
	}

	// The currency is that of the session's creation, the look that of now.
	acme.Currency, acme.Page = "JPY", nil
	f.changeMerchant(acme)
	eventually(t, "the merchant has changed", func() bool {
		return !strings.Contains(string(r.call(http.MethodGet, "/pay/"+id, "", "").raw), "accent=")
	})
	r.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, "€12.50")
	yen := r.call(http.MethodPost, sessions, key, `{"amountCents": 1250}`).text("sessionId")
	r.call(http.MethodGet, "/pay/"+yen, "", "").wantPage(t, http.StatusOK, "¥1,250")

	r.call(http.MethodPost, sessions+"/"+id+"/cancel", key, "").want(t, http.StatusOK)
	r.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, "Payment cancelled", "do not pay again")
}

func TestPayment_Paid(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) {
		r.Page = &v1alpha1.PageSettings{ReturnURL: "https://shop.example/thanks"}
	}))
	rail := f.rail("bank")
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	r.report(id, rail, paid(1)).want(t, http.StatusOK)
	r.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, "Paid", `href="https://shop.example/thanks"`)
}

// The button leads where the platform says; the code and its text stay the payload.
func TestPayment_AppURL(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	plain := f.start()
	r := f.start(func(o *apiserver.Options) { o.PaymentAppURL = "https://bank.example/pay?session={sessionId}&from=page" })
	created := r.call(http.MethodPost, sessions, key, `{"amountCents": 1250}`)
	id := created.text("sessionId")
	if payload := created.text("qrPayload"); payload != "pay://qr/"+id {
		t.Errorf("qrPayload is %s", payload)
	}
	r.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, `href="https://bank.example/pay?session=`+id+`&amp;from=page"`)
	if got, want := r.call(http.MethodGet, "/pay/"+id+"/qr.svg", "", ""), plain.call(http.MethodGet, "/pay/"+id+"/qr.svg", "", ""); !bytes.Equal(got.raw, want.raw) {
		t.Error("the QR code is another one")
	}
}

// The buttons of a test session's page play the rail. No live session can be paid by them, nor any from a page of another origin.
func TestPlayRail(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, testKey := f.key("till", acme), f.testKey("sandbox", acme)
	r := f.start()
	charge := func(key string) string {
		return r.call(http.MethodPost, sessions, key, `{"amountCents": 1250}`).text("sessionId")
	}
	press := func(id, body string, headers ...string) result {
		return r.call(http.MethodPost, "/pay/"+id+"/test", "", body, append(headers, "Content-Type", "application/x-www-form-urlencoded")...)
	}
	status := func(id, key string) string { return r.call(http.MethodGet, sessions+"/"+id, key, "").text("status") }
	const pays, declines = "outcome=COMPLETED", "outcome=FAILED"

	for outcome, want := range map[string]string{pays: "COMPLETED", declines: "FAILED"} {
		id := charge(testKey)
		page := r.call(http.MethodGet, "/pay/"+id, "", "").want(t, http.StatusOK)
		if !strings.Contains(string(page.raw), `action="/pay/`+id+`/test"`) || !strings.Contains(page.header.Get("Content-Security-Policy"), "form-action 'self'") {
			t.Errorf("the page has no form, or may not send it: %s\n%s", page.header.Get("Content-Security-Policy"), page.raw)
		}
		got := press(id, outcome, "Sec-Fetch-Site", "same-origin").want(t, http.StatusSeeOther)
		if location := got.header.Get("Location"); location != "/pay/"+id || status(id, testKey) != want {
			t.Errorf("%s: to %q, the session is %s", outcome, location, status(id, testKey))
		}
		// Pressed again, on a page that is still open: nothing more happens.
		press(id, declines).want(t, http.StatusSeeOther)
		press(id, pays).want(t, http.StatusSeeOther)
		sess := r.call(http.MethodGet, sessions+"/"+id, testKey, "")
		if sess.text("status") != want || strings.Contains(string(sess.raw), "refused") {
			t.Errorf("pressed again, the session is %s", sess.raw)
		}
		if page := r.call(http.MethodGet, "/pay/"+id, "", ""); strings.Contains(string(page.raw), "<form") {
			t.Error("the page of an ended session has a form")
		}
	}

	id := charge(testKey)
	press(id, pays, "Sec-Fetch-Site", "cross-site").wantError(t, http.StatusForbidden, "the form was sent by a page of another origin")
	press(id, pays, "Origin", "https://evil.example").wantError(t, http.StatusForbidden, "the form was sent by a page of another origin")
	for _, body := range []string{"", "outcome=", "outcome=EXPIRED", "outcome=completed", "x=1", strings.Repeat("x", 5000) + "&" + pays} {
		press(id, body).wantError(t, http.StatusBadRequest, "outcome must be COMPLETED or FAILED")
	}
	if got := status(id, testKey); got != "PENDING" {
		t.Errorf("a test session is %s", got)
	}

	live := charge(key)
	press(live, pays, "Sec-Fetch-Site", "same-origin").wantPage(t, http.StatusNotFound, "Payment not found")
	page := r.call(http.MethodGet, "/pay/"+live, "", "").wantPage(t, http.StatusOK)
	if got := status(live, key); got != "PENDING" || strings.Contains(string(page.raw), "<form") {
		t.Errorf("a live session is %s: %s", got, page.raw)
	}
	press("ps_test"+live[len("ps_"):], pays).wantPage(t, http.StatusNotFound, "Payment not found")
	press("x", pays).wantPage(t, http.StatusNotFound, "Payment not found")
	if got := status(live, key); got != "PENDING" {
		t.Errorf("a live session is %s", got)
	}
}

// The buttons have the limit of all payers.
func TestPlayRail_Limited(t *testing.T) {
	f := newFixture(t)
	testKey := f.testKey("sandbox", f.merchant("acme"))
	r := f.start(func(o *apiserver.Options) { o.PublicRateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 2} })
	id := r.call(http.MethodPost, sessions, testKey, `{"amountCents": 1250}`).text("sessionId")
	eventually(t, "the limit is exceeded", func() bool {
		return r.call(http.MethodGet, "/pay/"+id, "", "").status == http.StatusTooManyRequests
	})
	r.call(http.MethodPost, "/pay/"+id+"/test", "", "outcome=COMPLETED", "Content-Type", "application/x-www-form-urlencoded").want(t, http.StatusSeeOther)
	if got := r.call(http.MethodGet, sessions+"/"+id, testKey, "").text("status"); got != "PENDING" {
		t.Errorf("over the limit the session became %s", got)
	}
}

// The order is on a receipt only if the merchant wants that, and the time is that of the shop.
func TestPayment_Receipt(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme", func(r *published.MerchantRecord) { r.TimeZone = "Asia/Kathmandu" }) // 5:45 ahead
	key, rail := f.key("till", acme), f.rail("bank")
	r := f.start()
	const body = `{"amountCents": 1250, "orderRef": "order-1001", "taxCents": 110, "tipCents": 100, "customerEmail": "ada@example.com"}`
	id := r.call(http.MethodPost, sessions, key, body).text("sessionId")
	pending := string(r.call(http.MethodGet, "/pay/"+id, "", "").want(t, http.StatusOK).raw)
	r.report(id, rail, paid(1250)).want(t, http.StatusOK)
	ended := time.UnixMilli(int64(r.call(http.MethodGet, sessions+"/"+id, key, "").want(t, http.StatusOK).body["endedAt"].(float64)))
	local := ended.In(time.FixedZone("+0545", (5*60+45)*60)).Format("2006-01-02 15:04 MST")
	got := r.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK, "€12.50", "€1.10", "€1.00", id[len(id)-8:], strings.ReplaceAll(local, "+", "&#43;"))
	for _, page := range []string{pending, string(got.raw)} {
		for _, secret := range []string{"order-1001", "ada@example.com", "bank-1"} {
			if strings.Contains(page, secret) {
				t.Errorf("the page has %s: %s", secret, page)
			}
		}
	}
	acme.Page = &v1alpha1.PageSettings{ShowOrder: true}
	f.changeMerchant(acme)
	eventually(t, "the receipt has the order", func() bool {
		return strings.Contains(string(r.call(http.MethodGet, "/pay/"+id, "", "").raw), "order-1001")
	})
}

func TestPayment_NotFound(t *testing.T) {
	r := newFixture(t).start()
	bodies := map[string]bool{}
	for _, id := range []string{"x", "ps_00", "ps_aaaaaaaaaaaa0000000000000000AA", "ps_aaaaaaaaaaab000000000000000000", "%00", "<script>", "..%2f", strings.Repeat("a", 3000)} {
		for _, path := range []string{"/pay/" + id, "/pay/" + id + "/qr.svg"} {
			got := r.call(http.MethodGet, path, "", "", "Accept-Language", "fr")
			got.wantPage(t, http.StatusNotFound, "Paiement introuvable", `lang="fr"`)
			bodies[string(got.raw)] = true
		}
	}
	if len(bodies) != 1 {
		t.Errorf("%d different pages: an unknown session differs from a malformed one", len(bodies))
	}
	for _, path := range []string{"/pay", "/pay/", "/pay/x/", "/pay/x/y", "/pay/x/qr.png", "/pay/static/", "/pay/static/x/y"} {
		r.call(http.MethodGet, path, "", "").wantError(t, http.StatusNotFound, "path not found")
	}
}

// An id that is none costs the address as much as another one.
func TestPayment_NotFoundIsLimited(t *testing.T) {
	r := newFixture(t).start(func(o *apiserver.Options) { o.PublicRateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 3} })
	for _, path := range []string{"/pay/x", "/pay/x/qr.svg", public + "/x"} {
		eventually(t, "the limit is exceeded by "+path, func() bool {
			got := r.call(http.MethodGet, path, "", "")
			return got.status == http.StatusTooManyRequests && got.header.Get("Retry-After") != ""
		})
	}
}

func TestPayment_Unavailable(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	redis := redistest.Start(t)
	r := f.start(func(o *apiserver.Options) {
		o.RedisURL, o.PublicRateLimit = redis.URL(), v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 3}
	})
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	eventually(t, "the limit is exceeded", func() bool {
		return r.call(http.MethodGet, "/pay/"+id, "", "").status == http.StatusTooManyRequests
	})
	got := r.call(http.MethodGet, "/pay/"+id+"/qr.svg", "", "").wantPage(t, http.StatusTooManyRequests, "Too many requests")
	if got.header.Get("Retry-After") == "" {
		t.Error("429 without Retry-After")
	}
	redis.Stop()
	eventually(t, "the address may read again", func() bool {
		return r.call(http.MethodGet, "/pay/"+id, "", "").status != http.StatusTooManyRequests
	})
	got = r.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusServiceUnavailable, "Temporarily unavailable", "do not pay again")
	if got.header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
}

func TestQRCode_Size(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start(func(o *apiserver.Options) {
		o.QRContent, o.PublicURL = apiserver.QRContentLink, "https://pay.example.com/"
	})
	created := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`)
	id := created.text("sessionId")
	if payload := created.text("qrPayload"); payload != "pay://qr/"+id {
		t.Errorf("qrPayload is %q", payload)
	}
	path := "/pay/" + id + "/qr.svg"
	for size, width := range map[string]string{"": "320", "?size=96": "96", "?size=2048": "2048"} {
		got := r.call(http.MethodGet, path+size, "", "").want(t, http.StatusOK)
		if got.header.Get("Content-Type") != "image/svg+xml" || got.header.Get("Cache-Control") != "no-store" ||
			got.header.Get("Content-Security-Policy") != pagePolicy || !strings.Contains(string(got.raw), `width="`+width+`" height="`+width+`"`) {
			t.Errorf("size %q: %v %s", size, got.header, got.raw)
		}
	}
	for _, size := range []string{"95", "2049", "-1", "0", "1e3", "3.5", "x", "99999999999999999999", "%00"} {
		r.call(http.MethodGet, path+"?size="+size, "", "").wantError(t, http.StatusBadRequest, "size must be an integer from 96 to 2048")
	}
	r.call(http.MethodPost, sessions+"/"+id+"/cancel", key, "").want(t, http.StatusOK)
	r.call(http.MethodGet, path, "", "").wantPage(t, http.StatusGone, "Payment cancelled")
}

// assetLinks are the addresses of stylesheet and script on a page.
var assetLinks = regexp.MustCompile(`(?:href|src)="(/pay/static/[^"]+)"`)

func TestAssets(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) {
		r.Page = &v1alpha1.PageSettings{AccentColor: "#0B6E4F"}
	}))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	page := r.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK)
	var types []string
	for _, found := range assetLinks.FindAllStringSubmatch(string(page.raw), -1) {
		got := r.call(http.MethodGet, found[1], "", "").want(t, http.StatusOK)
		types = append(types, got.header.Get("Content-Type"))
		if cached := got.header.Get("Cache-Control"); cached != "public, max-age=31536000, immutable" {
			t.Errorf("%s has Cache-Control %q", found[1], cached)
		}
	}
	if !slices.Equal(types, []string{"text/css; charset=utf-8", "text/javascript; charset=utf-8"}) {
		t.Errorf("the page loads %v", types)
	}
	// A page of another version, while replicas are replaced.
	if got := r.call(http.MethodGet, "/pay/static/000000000000/page.css", "", "").want(t, http.StatusOK); got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("an asset of another version is kept: %s", got.header.Get("Cache-Control"))
	}
	for _, path := range []string{"1/page.css?accent=777777", "1/page.css?accent=red", "1/page.js?accent=0b6e4f", "1/x.css", "1/page.html", "page.css"} {
		r.call(http.MethodGet, "/pay/static/"+path, "", "").wantError(t, http.StatusNotFound, "path not found")
	}
}

// The client of this test decides about compression, as a browser does.
func TestPayment_Compressed(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	page := r.call(http.MethodGet, "/pay/"+id, "", "").wantPage(t, http.StatusOK)
	const limit = 15 << 10
	total := 0
	paths := []string{"/pay/" + id}
	for _, found := range assetLinks.FindAllStringSubmatch(string(page.raw), -1) {
		paths = append(paths, found[1])
	}
	for _, path := range paths {
		for accepted, compressed := range map[string]bool{
			"gzip": true, "br, GZIP;q=0.5": true, "deflate, gzip": true, "identity": false, "gzip;q=0": false, "gzip;q=0.0, br": false, "x-gzip": false,
		} {
			got := r.call(http.MethodGet, path, "", "", "Accept-Encoding", accepted).want(t, http.StatusOK)
			if (got.header.Get("Content-Encoding") == "gzip") != compressed {
				t.Errorf("%s, Accept-Encoding %q: Content-Encoding %q", path, accepted, got.header.Get("Content-Encoding"))
				continue
			}
			if !compressed {
				continue
			}
			if accepted == "gzip" {
				total += len(got.raw)
			}
			reader, err := gzip.NewReader(strings.NewReader(string(got.raw)))
			if err != nil {
				t.Fatal(err)
			}
			if content, err := io.ReadAll(reader); err != nil || len(content) < len(got.raw) {
				t.Errorf("%s: %d bytes of %d, %v", path, len(content), len(got.raw), err)
			}
		}
	}
	if len(paths) != 3 || total > limit {
		t.Errorf("%d bytes in %d requests, want at most %d in 3", total, len(paths), limit)
	}
}

func TestWidget(t *testing.T) {
	f := newFixture(t)
	r := f.start()
	got := r.call(http.MethodGet, "/widget/v1.js", "", "", "Origin", "https://shop.example").want(t, http.StatusOK)
	for name, want := range map[string]string{
		"Content-Type": "text/javascript; charset=utf-8", "Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin",
		"Cache-Control": "public, max-age=300", "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding", "Set-Cookie": "",
	} {
		if got := got.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if !strings.Contains(string(got.raw), "customElements.define('payment-session'") {
		t.Errorf("the script is %.80q", got.raw)
	}
	tag := got.header.Get("ETag")
	again := r.call(http.MethodGet, "/widget/v1.js", "", "", "If-None-Match", tag).want(t, http.StatusNotModified)
	if len(again.raw) > 0 || again.header.Get("ETag") != tag || again.header.Get("Cache-Control") != "public, max-age=300" {
		t.Errorf("unchanged: %v %q", again.header, again.raw)
	}
	packed := r.call(http.MethodGet, "/widget/v1.js", "", "", "Accept-Encoding", "gzip", "Range", "bytes=0-9").want(t, http.StatusOK)
	if packed.header.Get("Content-Encoding") != "gzip" || len(packed.raw) >= len(got.raw) || packed.header.Get("ETag") != tag {
		t.Errorf("compressed: %v, %d bytes", packed.header, len(packed.raw))
	}
	if head := r.call(http.MethodHead, "/widget/v1.js", "", "").want(t, http.StatusOK); len(head.raw) > 0 {
		t.Errorf("HEAD has a body of %d bytes", len(head.raw))
	}
	r.call(http.MethodGet, "/widget/v2.js", "", "").want(t, http.StatusNotFound)
}
