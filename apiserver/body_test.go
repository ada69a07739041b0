package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

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

func TestBodiesThatAreRefused(t *testing.T) {
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

func TestBodiesThatAreTaken(t *testing.T) {
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
