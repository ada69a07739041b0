package apiserver_test

import (
	"net/http"
	"strings"
	"testing"
)

const (
	currencyRule   = "currency must be an ISO 4217 code, such as EUR"
	paymentRefRule = "paymentRef must be a string of 1 to 128 visible ASCII characters"
	outcomeRule    = "outcome must be COMPLETED or FAILED"
	paidAtRule     = "paidAt must be a time from 1970 to 9999, as Unix milliseconds or an RFC 3339 string"
	reasonRule     = "reason must be a string of at most 255 characters without control characters"
)

// reported returns a report that is good but for what is added to it.
func reported(field string) string {
	return `{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1,` + field + `}`
}

var badReports = map[string]struct{ body, message string }{
	"nothing":             {``, notAnObject},
	"null":                {`null`, notAnObject},
	"an array":            {`[` + reported(`"x":1`) + `]`, notAnObject},
	"not closed":          {`{"paymentRef":"bank-1"`, notJSON},
	"two objects":         {`{}{}`, notJSON},
	"a form":              {`paymentRef=bank-1&outcome=COMPLETED&amountCents=1`, notJSON},
	"not UTF-8":           {reported("\"reason\":\"\xff\""), notUTF8},
	"a lone surrogate":    {reported(`"reason":"\ud83d"`), loneHalf},
	"16 KiB and more":     {reported(`"x":"` + strings.Repeat("x", 16<<10) + `"`), tooLarge},
	"200 KB":              {reported(`"x":"` + strings.Repeat("x", 200_000) + `"`), tooLarge},
	"the reference twice": {reported(`"paymentRef":"bank-1"`), `duplicate field "paymentRef"`},
	"the outcome twice":   {reported(`"outcome":"FAILED"`), `duplicate field "outcome"`},
	"the amount twice":    {reported(`"amountCents":2`), `duplicate field "amountCents"`},

	"no reference":                          {`{"outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference in another case":             {`{"paymentref":"bank-1","outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference empty":                       {`{"paymentRef":"","outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference null":                        {`{"paymentRef":null,"outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference a number":                    {`{"paymentRef":1,"outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference an array":                    {`{"paymentRef":["bank-1"],"outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference with a blank":                {report("bank 1", "COMPLETED", 1), paymentRefRule},
	"reference with a line break":           {`{"paymentRef":"bank\n1","outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference with NUL":                    {`{"paymentRef":"bank\u00001","outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference with an umlaut":              {report("bänk", "COMPLETED", 1), paymentRefRule},
	"reference of 129 characters":           {report(strings.Repeat("r", 129), "COMPLETED", 1), paymentRefRule},
	"no outcome":                            {`{"paymentRef":"bank-1","amountCents":1}`, outcomeRule},
	"outcome empty":                         {report("bank-1", "", 1), outcomeRule},
	"outcome null":                          {`{"paymentRef":"bank-1","outcome":null,"amountCents":1}`, outcomeRule},
	"outcome true":                          {`{"paymentRef":"bank-1","outcome":true,"amountCents":1}`, outcomeRule},
	"outcome in lower case":                 {report("bank-1", "completed", 1), outcomeRule},
	"outcome with a blank":                  {report("bank-1", "COMPLETED ", 1), outcomeRule},
	"outcome PENDING":                       {report("bank-1", "PENDING", 1), outcomeRule},
	"outcome EXPIRED":                       {report("bank-1", "EXPIRED", 1), outcomeRule},
	"outcome CANCELLED":                     {report("bank-1", "CANCELLED", 1), outcomeRule},
	"no amount":                             {`{"paymentRef":"bank-1","outcome":"COMPLETED"}`, amountRule},
	"amount null":                           {`{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":null}`, amountRule},
	"amount a string":                       {`{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":"1"}`, amountRule},
	"amount a fraction":                     {`{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":0.5}`, amountRule},
	"amount zero":                           {paid(0), amountRule},
	"amount negative":                       {paid(-1), amountRule},
	"amount over the maximum":               {paid(10_000_001), amountRule},
	"amount of a huge exponent":             {`{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1e999999999}`, amountRule},
	"currency empty":                        {reported(`"currency":""`), currencyRule},
	"currency a number":                     {reported(`"currency":978`), currencyRule},
	"currency in small letters":             {reported(`"currency":"eur"`), currencyRule},
	"currency a word":                       {reported(`"currency":"EURO"`), currencyRule},
	"time false":                            {reported(`"paidAt":false`), paidAtRule},
	"time an object":                        {reported(`"paidAt":{}`), paidAtRule},
	"time empty":                            {reported(`"paidAt":""`), paidAtRule},
	"time zero":                             {reported(`"paidAt":0`), paidAtRule},
	"time negative":                         {reported(`"paidAt":-1`), paidAtRule},
	"time of the year 1, in numbers":        {reported(`"paidAt":-62135596800000`), paidAtRule},
	"time of the year 1":                    {reported(`"paidAt":"0001-01-01T00:00:00Z"`), paidAtRule},
	"time of 1969":                          {reported(`"paidAt":"1969-12-31T23:59:59Z"`), paidAtRule},
	"time of the year 10000":                {reported(`"paidAt":253402300800000`), paidAtRule},
	"time of the year 10000, by its offset": {reported(`"paidAt":"9999-12-31T23:59:59-01:00"`), paidAtRule},
	"time over 18 digits":                   {reported(`"paidAt":1795246300000000000`), paidAtRule},
	"time a fraction":                       {reported(`"paidAt":1795246300000.5`), paidAtRule},
	"time a number in quotes":               {reported(`"paidAt":"1795246300000"`), paidAtRule},
	"time without an offset":                {reported(`"paidAt":"2026-11-21T10:00:00"`), paidAtRule},
	"time without a time":                   {reported(`"paidAt":"2026-11-21"`), paidAtRule},
	"time with a blank":                     {reported(`"paidAt":"2026-11-21 10:00:00Z"`), paidAtRule},
	"time with a comma":                     {reported(`"paidAt":"2026-11-21T10:00:00,5Z"`), paidAtRule},
	"time with one digit":                   {reported(`"paidAt":"2026-11-21T9:00:00Z"`), paidAtRule},
	"time of no such day":                   {reported(`"paidAt":"2026-02-30T10:00:00Z"`), paidAtRule},
	"time of no such hour":                  {reported(`"paidAt":"2026-11-21T24:00:00Z"`), paidAtRule},
	"time of no such offset":                {reported(`"paidAt":"2026-11-21T10:00:00+24:00"`), paidAtRule},
	"reason a number":                       {reported(`"reason":51`), reasonRule},
	"reason an object":                      {reported(`"reason":{"code":51}`), reasonRule},
	"reason too long":                       {reported(`"reason":"` + strings.Repeat("ä", 256) + `"`), reasonRule},
	"reason with a line break":              {reported(`"reason":"a\nb"`), reasonRule},
	"reason with NUL":                       {reported(`"reason":"a\u0000b"`), reasonRule},
}

func TestReportsThatAreRefused(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	for name, test := range badReports {
		t.Run(name, func(t *testing.T) {
			r.report(id, rail, test.body).wantError(t, http.StatusBadRequest, test.message)
		})
	}
	if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != "PENDING" {
		t.Errorf("a refused report left the session %s", status)
	}
}

func TestReportsThatAreTaken(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start()
	for name, body := range map[string]string{
		"the least":                    paid(1),
		"the longest reference":        report(strings.Repeat("~", 128), "COMPLETED", 1),
		"a reference with punctuation": `{"paymentRef":"!{}:*|%=\"\\/","outcome":"COMPLETED","amountCents":1}`,
		"an amount as 1.0":             `{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1.0}`,
		"a time in milliseconds":       reported(`"paidAt":1795246300000`),
		"a time as 1e12":               reported(`"paidAt":1e12`),
		"a time of RFC 3339":           reported(`"paidAt":"2026-11-21T10:00:00Z"`),
		"a time with an offset":        reported(`"paidAt":"2026-11-21T10:00:00.123456789+05:30"`),
		"a time in the future":         reported(`"paidAt":"2999-01-01T00:00:00Z"`),
		"null is absence":              reported(`"paidAt":null,"reason":null,"currency":null`),
		"the session's currency":       reported(`"currency":"EUR"`),
		"an empty reason is none":      reported(`"reason":""`),
		"the longest reason":           reported(`"reason":"` + strings.Repeat("ä", 255) + `"`),
		"unknown fields":               reported(`"iban":"EUR","items":[{"a":1,"a":2}],"":null`),
		"blanks around":                "\r\n " + paid(1) + " \n",
	} {
		t.Run(name, func(t *testing.T) {
			id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
			for range 2 {
				got := r.report(id, rail, body).want(t, http.StatusOK)
				if got.body["applied"] != true || got.text("status") != "COMPLETED" {
					t.Errorf("answer %s", got.raw)
				}
			}
			shown := r.call(http.MethodGet, sessions+"/"+id, key, "").want(t, http.StatusOK)
			if shown.body["reason"] != nil {
				t.Errorf("a completed session with a reason for its failure: %s", shown.raw)
			}
		})
	}
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	r.report(id, rail, paid(1), "Content-Type", "text/plain").want(t, http.StatusOK)
}
