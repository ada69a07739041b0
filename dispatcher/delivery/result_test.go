package delivery_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
)

func TestSend_Status(t *testing.T) {
	tests := map[int]delivery.Result{
		410: {Outcome: delivery.Gone, Reason: "gone"},
	}
	for _, code := range []int{200, 201, 202, 204, 205, 226, 299} {
		tests[code] = delivery.Result{Outcome: delivery.Delivered, Reason: "delivered"}
	}
	for _, code := range []int{300, 301, 302, 303, 304, 307, 308} {
		tests[code] = delivery.Result{Reason: "redirect"}
	}
	for _, code := range []int{400, 401, 403, 404, 408, 409, 422, 429, 451, 499} {
		tests[code] = delivery.Result{Reason: "status_4xx"}
	}
	for _, code := range []int{500, 502, 503, 504, 599} {
		tests[code] = delivery.Result{Reason: "status_5xx"}
	}
	for _, code := range []int{600, 999} {
		tests[code] = delivery.Result{Reason: "status_other"}
	}
	r := receivePlain(t, func(w http.ResponseWriter, request *http.Request) {
		code, _ := strconv.Atoi(strings.TrimPrefix(request.URL.Path, "/"))
		w.Header().Set("Location", "/followed")
		w.WriteHeader(code)
	})
	for code, want := range tests {
		want.Status = code
		if got := send(t, r.trusting(), attempt(r.URL+"/"+strconv.Itoa(code))); got != want {
			t.Errorf("%d gives %+v, want %+v", code, got, want)
		}
	}
	if hits := len(r.all()); hits != len(tests) {
		t.Errorf("%d requests for %d attempts: a redirect was followed", hits, len(tests))
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	in := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	tests := map[string]struct {
		values []string
		want   time.Duration
	}{
		"none":                    {nil, 0},
		"seconds":                 {[]string{"120"}, 2 * time.Minute},
		"no time":                 {[]string{"0"}, 0},
		"a date":                  {[]string{in(time.Hour)}, time.Hour},
		"a date of RFC 850":       {[]string{now.Add(time.Minute).Format("Monday, 02-Jan-06 15:04:05 GMT")}, time.Minute},
		"a date that is past":     {[]string{in(-time.Hour)}, 0},
		"a date too far":          {[]string{in(1000 * time.Hour)}, 24 * time.Hour},
		"seconds too many":        {[]string{"86401"}, 24 * time.Hour},
		"more than a number":      {[]string{"99999999999999999999"}, 24 * time.Hour},
		"just as many as allowed": {[]string{"86400"}, 24 * time.Hour},
		"a negative number":       {[]string{"-5"}, 0},
		"a fraction":              {[]string{"1.5"}, 0},
		"words":                   {[]string{"in a while"}, 0},
		"nothing":                 {[]string{""}, 0},
		"two":                     {[]string{"1", "2"}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := receivePlain(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Retry-After"] = test.values
				w.WriteHeader(http.StatusServiceUnavailable)
			})
			request := attempt(r.URL)
			request.Now = now
			want := delivery.Result{Status: 503, RetryAfter: test.want, Reason: "status_5xx"}
			if got := send(t, r.trusting(), request); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestGuide_NamesEveryReason(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "webhooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	reasons := slices.DeleteFunc(delivery.Reasons(), func(reason string) bool {
		return reason == delivery.ReasonDelivered || reason == delivery.ReasonInterrupted || reason == delivery.ReasonUnsigned
	}) // of which no event dies
	for _, reason := range reasons {
		if !strings.Contains(string(text), "`"+reason+"`") {
			t.Errorf("docs/webhooks.md does not name %s", reason)
		}
	}
}
