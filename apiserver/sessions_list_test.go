package apiserver_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// listed are the ids of the sessions of a list.
func (a result) listed() (ids []string) {
	for _, one := range a.body["sessions"].([]any) {
		ids = append(ids, one.(map[string]any)["sessionId"].(string))
	}
	return ids
}

func charge(orderRef string) string {
	return fmt.Sprintf(`{"amountCents": 1250, "orderRef": %q}`, orderRef)
}

func byOrder(orderRef string) string { return sessions + "?orderRef=" + url.QueryEscape(orderRef) }

// A till that lost an answer asks what became of its order, at any replica.
func TestListOrder(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, stranger := f.key("till", acme), f.key("stranger", f.merchant("books"))
	test := f.testKey("test", acme)
	rail := f.rail("bank")
	r, other := f.start(), f.start()
	const order = "table 7 + 8/é&x=1"
	empty := map[string]any{"sessions": []any{}, "more": false}
	if diff := cmp.Diff(empty, other.call(http.MethodGet, byOrder(order), key, "").want(t, http.StatusOK).body); diff != "" {
		t.Errorf("before the first charge (-want +got):\n%s", diff)
	}
	first := r.call(http.MethodPost, sessions, key, charge(order)).text("sessionId")
	second := r.call(http.MethodPost, sessions, key, charge(order)).text("sessionId")
	r.call(http.MethodPost, sessions, key, charge("another"))
	r.report(first, rail, paid(1250)).want(t, http.StatusOK)

	got := other.call(http.MethodGet, byOrder(order), key, "").want(t, http.StatusOK)
	want := map[string]any{"more": false, "sessions": []any{
		other.call(http.MethodGet, sessions+"/"+second, key, "").body, other.call(http.MethodGet, sessions+"/"+first, key, "").body,
	}}
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Errorf("the newest first, each as it is read (-want +got):\n%s", diff)
	}
	for name, foreign := range map[string]string{"of another merchant": stranger, "of test mode": test} {
		if diff := cmp.Diff(empty, r.call(http.MethodGet, byOrder(order), foreign, "").want(t, http.StatusOK).body); diff != "" {
			t.Errorf("with a key %s (-want +got):\n%s", name, diff)
		}
	}
	for range 19 {
		r.call(http.MethodPost, sessions, key, charge(order)).want(t, http.StatusCreated)
	}
	got = other.call(http.MethodGet, byOrder(order), key, "").want(t, http.StatusOK)
	if ids := got.listed(); len(ids) != 20 || ids[19] != second || got.body["more"] != true {
		t.Errorf("of 21 sessions %d are listed, and more: %v", len(ids), got.body["more"])
	}
}

// ended pages through a list, and returns the ids of all pages.
func (r *replica) allEnded(key, query string) (ids []string) {
	r.t.Helper()
	path, cursor := sessions+"?"+query, ""
	for range 1000 {
		got := r.call(http.MethodGet, path+cursor, key, "").want(r.t, http.StatusOK)
		ids = append(ids, got.listed()...)
		if got.text("cursor") == "" {
			return ids
		}
		cursor = "&cursor=" + got.text("cursor")
	}
	r.t.Fatal("the list does not end")
	return nil
}

// endSessions creates sessions and ends each as its status says.
func (r *replica) endSessions(key, rail string, statuses ...string) (ids []string) {
	r.t.Helper()
	for _, status := range statuses {
		id := r.call(http.MethodPost, sessions, key, charge("1001")).want(r.t, http.StatusCreated).text("sessionId")
		switch status {
		case "COMPLETED":
			r.report(id, rail, paid(1250)).want(r.t, http.StatusOK)
		case "FAILED":
			r.report(id, rail, failure(1250)).want(r.t, http.StatusOK)
		default:
			r.call(http.MethodPost, sessions+"/"+id+"/cancel", key, "").want(r.t, http.StatusOK)
		}
		ids = append(ids, id)
	}
	return ids
}

func TestListEnded(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, stranger, rail := f.key("till", acme), f.key("stranger", f.merchant("books")), f.rail("bank")
	test := f.testKey("test", acme)
	r, other := f.start(), f.start()
	r.call(http.MethodPost, sessions, key, charge("pending")).want(t, http.StatusCreated)
	ended := r.endSessions(key, rail, "COMPLETED", "FAILED", "CANCELLED", "COMPLETED", "CANCELLED")
	tested := r.endSessions(test, rail, "CANCELLED")
	r.report(ended[0], rail, report("bank-2", "COMPLETED", 1250)) // a refused payment is no end
	slices.Reverse(ended)

	now := time.Now()
	from, to := now.Add(-time.Hour).UnixMilli(), now.Add(time.Hour).UnixMilli()
	period := fmt.Sprintf("endedFrom=%d&endedTo=%d", from, to)
	for name, test := range map[string]struct {
		key, query string
		want       []string
	}{
		"all":                 {key, period, ended},
		"until now":           {key, fmt.Sprintf("endedFrom=%d", from), ended},
		"in pages":            {key, period + "&limit=2", ended},
		"one by one":          {key, period + "&limit=1", ended},
		"paid":                {key, period + "&status=COMPLETED", []string{ended[1], ended[4]}},
		"paid, one by one":    {key, period + "&status=COMPLETED&limit=1", []string{ended[1], ended[4]}},
		"expired":             {key, period + "&status=EXPIRED", nil},
		"later":               {key, fmt.Sprintf("endedFrom=%d&endedTo=%d", to, to+1), nil},
		"earlier":             {key, fmt.Sprintf("endedFrom=%d&endedTo=%d", from-1, from), nil},
		"of another merchant": {stranger, period, nil},
		"of test mode":        {test, period, tested},
	} {
		t.Run(name, func(t *testing.T) {
			if got := other.allEnded(test.key, test.query); !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
	got := r.call(http.MethodGet, sessions+"?"+period, key, "").want(t, http.StatusOK)
	for i, one := range got.body["sessions"].([]any) {
		sess := r.call(http.MethodGet, sessions+"/"+ended[i], key, "").body
		delete(sess, "payments") // what went back later is not in the list, which is of ends
		if diff := cmp.Diff(sess, one); diff != "" {
			t.Errorf("%s is listed otherwise than it is read (-want +got):\n%s", ended[i], diff)
		}
	}
	if got.body["completeFrom"] != nil {
		t.Errorf("of the last hour: %s", got.raw)
	}
	old := r.call(http.MethodGet, sessions+"?endedFrom=1", key, "").want(t, http.StatusOK)
	if since, _ := old.body["completeFrom"].(float64); time.Since(time.UnixMilli(int64(since))).Round(time.Hour) != 7*24*time.Hour {
		t.Errorf("the response does not say what is no longer kept: %s", old.raw)
	}
}

// The day of a till that goes on selling: what ends while it is read is on no later page, and nothing is missing or there twice.
func TestListEnded_StableWhileSalesComeIn(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start()
	before := r.endSessions(key, rail, slices.Repeat([]string{"CANCELLED", "COMPLETED"}, 10)...)
	slices.Reverse(before)
	selling, stop := sync.WaitGroup{}, make(chan struct{})
	selling.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				r.endSessions(key, rail, "CANCELLED")
			}
		}
	})
	got := r.allEnded(key, "endedFrom="+strconv.FormatInt(time.Now().Add(-time.Hour).UnixMilli(), 10)+"&limit=3")
	close(stop)
	selling.Wait()
	if len(got) < len(before) || !slices.Equal(got[len(got)-len(before):], before) {
		t.Errorf("%d sessions, whose last are not the %d that had ended before:\n%v\n%v", len(got), len(before), got, before)
	}
	if len(got) > len(before)+3 {
		t.Errorf("%d sessions: later pages have what ended meanwhile", len(got))
	}
}

func TestList_BadParameters(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, rail := f.key("till", acme), f.rail("bank")
	stranger := f.key("stranger", f.merchant("books"))
	r := f.start()
	r.endSessions(stranger, rail, "CANCELLED", "CANCELLED")
	foreign := r.call(http.MethodGet, sessions+"?endedFrom=1&limit=1", stranger, "").want(t, http.StatusOK).text("cursor")
	const (
		timestamp = " must be a Unix timestamp in milliseconds"
		cursor    = "cursor must be one that an earlier page of this list returned"
		status    = "status must be COMPLETED, FAILED, EXPIRED or CANCELLED"
		limit     = "limit must be an integer from 1 to 200"
		nothing   = "give orderRef, or endedFrom and optionally endedTo, status, cursor and limit"
	)
	for query, want := range map[string]string{
		"":                              nothing,
		"status=COMPLETED":              nothing,
		"endedTo=1":                     nothing,
		"cursor=" + foreign:             nothing,
		"orderRef=":                     "orderRef must not be empty",
		"orderRef":                      "orderRef must not be empty",
		"orderRef=%00":                  "orderRef must be a string of at most 255 characters without control characters",
		"orderRef=%ff":                  "orderRef must be a string of at most 255 characters without control characters",
		"orderRef=a&orderRef=b":         "orderRef must be given at most once",
		"orderRef=a&endedFrom=1":        "endedFrom cannot be combined with orderRef",
		"orderRef=a&limit=1":            "limit cannot be combined with orderRef",
		"orderRef=a&orderref=a":         `unknown parameter "orderref"`,
		"order=a":                       `unknown parameter "order"`,
		"endedFrom=1&x%0a=1":            `unknown parameter "x\n"`,
		"endedFrom=1&endedFrom=1":       "endedFrom must be given at most once",
		"endedFrom=":                    "endedFrom" + timestamp,
		"endedFrom=0":                   "endedFrom" + timestamp,
		"endedFrom=-1":                  "endedFrom" + timestamp,
		"endedFrom=%2B1":                "endedFrom" + timestamp,
		"endedFrom=01":                  "endedFrom" + timestamp,
		"endedFrom=1e3":                 "endedFrom" + timestamp,
		"endedFrom=2026-11-22":          "endedFrom" + timestamp,
		"endedFrom=9999999999999999":    "endedFrom" + timestamp,
		"endedFrom=1&endedTo=x":         "endedTo" + timestamp,
		"endedFrom=2&endedTo=2":         "endedTo must be later than endedFrom",
		"endedFrom=2&endedTo=1":         "endedTo must be later than endedFrom",
		"endedFrom=1&status=PENDING":    status,
		"endedFrom=1&status=":           status,
		"endedFrom=1&status=paid":       status,
		"endedFrom=1&limit=0":           limit,
		"endedFrom=1&limit=201":         limit,
		"endedFrom=1&limit=ten":         limit,
		"endedFrom=1&cursor=":           cursor,
		"endedFrom=1&cursor=1-0":        cursor,
		"endedFrom=1&cursor=" + foreign: cursor,
		"endedFrom=%zz":                 "the query is malformed: write each parameter as name=value, percent-encoded",
		"endedFrom=1;limit=2":           "the query is malformed: write each parameter as name=value, percent-encoded",
	} {
		got := r.call(http.MethodGet, sessions+"?"+query, key, "")
		got.wantError(t, http.StatusBadRequest, want)
		if got.header.Get("Error-Code") != "invalid_request" || got.header.Get("RateLimit") == "" {
			t.Errorf("%s: %v", query, got.header)
		}
	}
	r.call(http.MethodGet, sessions+"?nothing", "", "").want(t, http.StatusUnauthorized)
}
