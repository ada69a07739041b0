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
func TestCreateSession_IgnoredFields(t *testing.T) {
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

func TestCreateSession_Twice(t *testing.T) {
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

func TestIdempotencyKey_Malformed(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
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
			got := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`, headers...).want(t, http.StatusBadRequest)
			if !strings.HasPrefix(got.text("error"), "Idempotency-Key ") {
				t.Errorf("error %q does not name the header", got.text("error"))
			}
		})
	}
}

func TestIdempotencyKey_RejectMismatch(t *testing.T) {
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
		t.Error("the 400 changed what the Idempotency-Key stands for")
	}
}

func TestIdempotencyKey_AfterBadRequest(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	r.call(http.MethodPost, sessions, key, `{"amountCents": 0}`, "Idempotency-Key", "k").want(t, http.StatusBadRequest)
	got := r.call(http.MethodPost, sessions, key, `{"amountCents": 7}`, "Idempotency-Key", "k").want(t, http.StatusCreated)
	if got.body["idempotent"] != false {
		t.Error("the corrected request was taken for a repetition")
	}
}

func TestIdempotencyKey_Concurrent(t *testing.T) {
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

func TestIdempotencyKey_ReplayShowsStatus(t *testing.T) {
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
func TestCreateSession_Event(t *testing.T) {
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

const (
	notAnObject = "body must be one JSON object"
	notJSON     = "body is not valid JSON"
	notUTF8     = "body is not valid UTF-8"
	loneHalf    = "body has an unpaired surrogate escape"
	amountRule  = "amountCents must be an integer from 1 to 10000000"
	taxRule     = "taxCents must be an integer from 0 to 10000000"
	tipRule     = "tipCents must be an integer from 0 to 10000000"
	orderRule   = "orderRef must be a string of at most 255 characters without control characters"
	emailRule   = "customerEmail must be a string with one e-mail address of at most 254 characters, without a display name"
	tooLarge    = "body is larger than 16 KiB"
)

// with returns a body that is good but for what is added to it.
func with(field string) string { return `{"amountCents":1,` + field + `}` }

var badBodies = map[string]struct{ body, message string }{
	"nothing":                 {``, notAnObject},
	"blanks":                  {" \n\t", notAnObject},
	"null":                    {`null`, notAnObject},
	"an array":                {`[]`, notAnObject},
	"an array of an object":   {`[{"amountCents":1}]`, notAnObject},
	"a string":                {`"amountCents"`, notAnObject},
	"a number":                {`1`, notAnObject},
	"not closed":              {`{"amountCents":1`, notJSON},
	"closed wrongly":          {`{"amountCents":1]`, notJSON},
	"a trailing comma":        {`{"amountCents":1,}`, notJSON},
	"single quotes":           {`{'amountCents':1}`, notJSON},
	"a bare name":             {`{amountCents:1}`, notJSON},
	"a comment":               {`{"amountCents":1/**/}`, notJSON},
	"a second object":         {`{"amountCents":1}{}`, notJSON},
	"trailing text":           {`{"amountCents":1} x`, notJSON},
	"a byte order mark":       {"\ufeff" + `{"amountCents":1}`, notJSON},
	"a form":                  {`amountCents=1`, notJSON},
	"NaN":                     {`{"amountCents":NaN}`, notJSON},
	"Infinity":                {`{"amountCents":Infinity}`, notJSON},
	"a leading zero":          {`{"amountCents":01}`, notJSON},
	"a plus sign":             {`{"amountCents":+1}`, notJSON},
	"hexadecimal":             {`{"amountCents":0x10}`, notJSON},
	"a raw control character": {with("\"orderRef\":\"a\x01b\""), notJSON},
	"a raw newline":           {with("\"orderRef\":\"a\nb\""), notJSON},
	"a bad escape":            {with(`"orderRef":"\x41"`), notJSON},
	"invalid UTF-8":           {with("\"orderRef\":\"\xff\""), notUTF8},
	"overlong UTF-8":          {with("\"orderRef\":\"\xc0\xaf\""), notUTF8},
	"a surrogate in UTF-8":    {with("\"orderRef\":\"\xed\xa0\x80\""), notUTF8},
	"UTF-16":                  {"\xff\xfe{\x00}\x00", notUTF8},
	"a lone high surrogate":   {with(`"orderRef":"\ud83d"`), loneHalf},
	"a lone low surrogate":    {with(`"orderRef":"\ude00"`), loneHalf},
	"two high surrogates":     {with(`"orderRef":"\ud83d\ud83d"`), loneHalf},
	"a high one, then text":   {with(`"orderRef":"\uD83Dx\uDE00"`), loneHalf},
	"a high one, an escape":   {with(`"orderRef":"\uD83D\n"`), loneHalf},
	"a lone one in a name":    {with(`"\udead":1`), loneHalf},
	"16 KiB and one byte":     {with(`"x":"` + strings.Repeat("x", 16<<10-23) + `"`), tooLarge},
	"200 KB":                  {with(`"x":"` + strings.Repeat("x", 200_000) + `"`), tooLarge},
	"200 KB of nothing":       {strings.Repeat(" ", 200_000), tooLarge},

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
	"e-mail a number":            {with(`"customerEmail":1`), emailRule},
	"e-mail no address":          {with(`"customerEmail":"ada"`), emailRule},
	"e-mail two addresses":       {with(`"customerEmail":"a@example.com,b@example.com"`), emailRule},
	"e-mail with a name":         {with(`"customerEmail":"Ada <ada@example.com>"`), emailRule},
	"e-mail with a line break":   {with(`"customerEmail":"ada@example.com\r\nBcc: b@example.com"`), emailRule},
	"e-mail too long":            {with(`"customerEmail":"` + strings.Repeat("a", 250) + `@example.com"`), emailRule},
}

func TestCreateSession_BadBodies(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	own := redistest.Start(t)
	r := f.start(func(o *apiserver.Options) { o.RedisURL = own.URL() })
	for name, test := range badBodies {
		t.Run(name, func(t *testing.T) {
			got := r.call(http.MethodPost, sessions, key, test.body, "Idempotency-Key", "same")
			got.wantError(t, http.StatusBadRequest, test.message)
			if got.header.Get("RateLimit") == "" {
				t.Error("an admitted answer without RateLimit")
			}
		})
	}

	server := redis.NewClient(&redis.Options{Addr: own.Addr()})
	defer func() { _ = server.Close() }()
	for _, pattern := range []string{"*:session:*", "*:idem:*"} {
		if stored, err := server.Keys(t.Context(), pattern).Result(); err != nil || len(stored) > 0 {
			t.Errorf("refused bodies left %v, %v", stored, err)
		}
	}
}

func TestCreateSession_GoodBodies(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
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
		"an e-mail without a receipt":    with(`"customerEmail":"root@[10.0.0.5]"`),
		"exactly 16 KiB":                 with(`"x":"` + strings.Repeat("x", 16<<10-24) + `"`),
		"markup is text":                 with(`"orderRef":"<script>&'\""`),
		"what looks like another format": with(`"orderRef":"%s {{.}} ${x} '; DROP TABLE"`),
	} {
		t.Run(name, func(t *testing.T) {
			r.call(http.MethodPost, sessions, key, body).want(t, http.StatusCreated)
		})
	}
	for _, contentType := range []string{"text/plain", "application/x-www-form-urlencoded", "nonsense"} {
		r.call(http.MethodPost, sessions, key, `{"amountCents":1}`, "Content-Type", contentType).want(t, http.StatusCreated)
	}
}

func TestGetSession(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r, other := f.start(), f.start()
	for name, test := range map[string]struct {
		body string
		want map[string]any // beside what every session has
	}{
		"the least":      {`{"amountCents": 1250}`, map[string]any{}},
		"everything":     {`{"amountCents": 1250, "orderRef": "1001", "taxCents": 110, "tipCents": 90, "customerEmail": "ada@example.com"}`, map[string]any{"orderRef": "1001", "taxCents": 110.0, "tipCents": 90.0}},
		"zero is given":  {`{"amountCents": 1250, "taxCents": 0, "tipCents": 0}`, map[string]any{"taxCents": 0.0, "tipCents": 0.0}},
		"a strange text": {`{"amountCents": 1250, "orderRef": "<a href=\"x\">é😀\u2028</a>"}`, map[string]any{"orderRef": "<a href=\"x\">é😀\u2028</a>"}},
	} {
		t.Run(name, func(t *testing.T) {
			created := r.call(http.MethodPost, sessions, key, test.body).want(t, http.StatusCreated)
			got := other.call(http.MethodGet, sessions+"/"+created.text("sessionId"), key, "").want(t, http.StatusOK)
			want := map[string]any{
				"sessionId": created.body["sessionId"], "status": "PENDING", "amountCents": 1250.0, "currency": "EUR", "keyId": key[8:20],
				"createdAt": created.body["expiresAt"].(float64) - 900_000, "expiresAt": created.body["expiresAt"],
				"qrPayload": created.body["qrPayload"],
			}
			maps.Copy(want, test.want)
			if diff := cmp.Diff(want, got.body); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGetSession_Expires(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) { r.Sessions.LifetimeSeconds = 1 }))
	r := f.start()
	path := sessions + "/" + r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	eventually(t, "the session is EXPIRED", func() bool {
		return r.call(http.MethodGet, path, key, "").want(t, http.StatusOK).text("status") == "EXPIRED"
	})
	got := r.call(http.MethodGet, path, key, "")
	if got.body["endedAt"] != got.body["expiresAt"] || time.UnixMilli(int64(got.body["endedAt"].(float64))).After(time.Now().Add(time.Second)) {
		t.Errorf("endedAt is not expiresAt, in the past: %s", got.raw)
	}
}

func TestGetSession_NotFound(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, colleague := f.key("till", acme), f.key("colleague", acme)
	stranger := f.key("stranger", f.merchant("books"))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	r.call(http.MethodGet, sessions+"/"+id, colleague, "").want(t, http.StatusOK)

	const missing = "session not found"
	foreign := r.call(http.MethodGet, sessions+"/"+id, stranger, "")
	foreign.wantError(t, http.StatusNotFound, missing)
	for name, segment := range map[string]string{
		"never created":        "ps_aaaaaaaaaaaa000000000000000000",
		"another bucket":       "ps_" + otherBucket(id) + id[5:],
		"no such bucket":       "ps_ff" + id[5:],
		"upper case merchant":  "ps_A" + id[4:],
		"shorter":              id[:28],
		"longer":               id + "0",
		"another label":        "px_" + id[3:],
		"a blank":              "%20",
		"NUL":                  id[:10] + "%00" + id[11:],
		"a slash":              id[:10] + "%2F" + id[11:],
		"dots":                 "%2e%2e",
		"a hash tag of Redis":  "%7Bb00m%7D:session:" + id,
		"a wildcard":           "*",
		"a line break":         id + "%0A",
		"invalid UTF-8":        "%ff%fe",
		"very long":            strings.Repeat("x", 8000),
		"an umlaut":            "ps_00ä",
		"an id in upper case":  strings.ToUpper(id),
		"an id with a comment": id + "%3b--",
	} {
		t.Run(name, func(t *testing.T) {
			got := r.call(http.MethodGet, sessions+"/"+segment, key, "")
			got.wantError(t, http.StatusNotFound, missing)
			if got.header.Get("RateLimit") == "" {
				t.Error("an admitted answer without RateLimit")
			}
			r.call(http.MethodGet, public+"/"+segment, "", "").wantError(t, http.StatusNotFound, missing)
		})
	}
}

// otherBucket returns a bucket that is not the id's.
func otherBucket(id string) string {
	if id[3:5] == "00" {
		return "01"
	}
	return "00"
}

func TestCancelSession(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, colleague := f.key("till", acme), f.key("colleague", acme)
	r, other := f.start(), f.start()
	created := r.call(http.MethodPost, sessions, key, `{"amountCents": 1250, "orderRef": "1001"}`).want(t, http.StatusCreated)
	path := sessions + "/" + created.text("sessionId")

	cancelled := r.call(http.MethodPost, path+"/cancel", key, "").want(t, http.StatusOK)
	endedAt, _ := cancelled.body["endedAt"].(float64)
	want := map[string]any{
		"sessionId": created.body["sessionId"], "status": "CANCELLED", "amountCents": 1250.0, "currency": "EUR", "keyId": key[8:20], "orderRef": "1001",
		"createdAt": created.body["expiresAt"].(float64) - 900_000, "expiresAt": created.body["expiresAt"],
		"qrPayload": created.body["qrPayload"], "endedAt": endedAt,
	}
	if diff := cmp.Diff(want, cancelled.body); diff != "" || endedAt < want["createdAt"].(float64) {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if cancelled.header.Get("RateLimit") == "" {
		t.Error("an admitted answer without RateLimit")
	}
	for _, got := range []result{
		other.call(http.MethodPost, path+"/cancel", key, ""), // an answer that was lost
		other.call(http.MethodPost, path+"/cancel", colleague, ""),
		other.call(http.MethodGet, path, key, ""),
	} {
		if diff := cmp.Diff(want, got.want(t, http.StatusOK).body); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
	}
	if got := other.call(http.MethodGet, public+"/"+created.text("sessionId"), "", ""); got.text("status") != "CANCELLED" {
		t.Errorf("the payer sees %s", got.raw)
	}
}

func TestCancelSession_IgnoresBody(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	for _, body := range []string{"{}", "{", `{"status":"COMPLETED"}`, "\x00\xff", strings.Repeat("x", 200_000)} {
		id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
		if got := r.call(http.MethodPost, sessions+"/"+id+"/cancel", key, body).want(t, http.StatusOK); got.text("status") != "CANCELLED" {
			t.Errorf("%.20q: %s", body, got.raw)
		}
	}
}

func TestCancelSession_Ended(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start()
	for outcome, report := range map[string]string{"COMPLETED": paid(1), "FAILED": failure(1)} {
		id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
		r.report(id, rail, report).want(t, http.StatusOK)
		got := r.call(http.MethodPost, sessions+"/"+id+"/cancel", key, "")
		got.wantError(t, http.StatusConflict, "session is already "+outcome)
		if got.header.Get("RateLimit") == "" {
			t.Error("an admitted answer without RateLimit")
		}
		if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != outcome {
			t.Errorf("the session is %s, want %s", status, outcome)
		}
	}
}

func TestCancelSession_NotFound(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	stranger := f.key("stranger", f.merchant("books"))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	for _, request := range []struct{ key, segment string }{
		{stranger, id},
		{key, "ps_aaaaaaaaaaaa000000000000000000"},
		{key, "ps_" + otherBucket(id) + id[5:]},
		{key, "x"},
		{key, "%00"},
		{key, id[:10] + "%2F" + id[11:]},
	} {
		got := r.call(http.MethodPost, sessions+"/"+request.segment+"/cancel", request.key, "")
		got.wantError(t, http.StatusNotFound, "session not found")
		if got.header.Get("RateLimit") == "" {
			t.Error("an admitted answer without RateLimit")
		}
	}
	r.call(http.MethodPost, sessions+"/"+id+"/cancel", "", "").want(t, http.StatusUnauthorized)
	if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != "PENDING" {
		t.Errorf("the session is %s", status)
	}
}
