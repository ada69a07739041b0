package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

const events = "/api/v1/events"

// eventPage is a response of GET /api/v1/events.
type eventPage struct {
	Items []struct {
		ID     string          `json:"id"`
		Cursor string          `json:"cursor"`
		Event  json.RawMessage `json:"event"`
	} `json:"items"`
	Cursor string `json:"cursor"`
	Error  string `json:"error"`
}

func (r *replica) events(t *testing.T, key, query string, status int) eventPage {
	t.Helper()
	answer := r.call(http.MethodGet, events+query, key, "").want(t, status)
	var page eventPage
	if err := json.Unmarshal(answer.raw, &page); err != nil {
		t.Fatal(err)
	}
	return page
}

func after(cursor string) string { return "?after=" + url.QueryEscape(cursor) }

// cancelled creates sessions and cancels them.
func (r *replica) cancelled(t *testing.T, key string, n int) (ids []string) {
	t.Helper()
	for range n {
		id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1250, "orderRef": "<&>"}`).text("sessionId")
		r.call(http.MethodPost, sessions+"/"+id+"/cancel", key, "").want(t, http.StatusOK)
		ids = append(ids, "evt_"+strings.TrimPrefix(id, "ps_")+"_ended")
	}
	return ids
}

// A consumer that follows its cursors gets each event once, in order, on any replica and in pages of any size.
func TestEvents_FollowCursors(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, test := f.key("till", acme), f.testKey("test", acme)
	stranger := f.key("stranger", f.merchant("globex"))
	r := f.start()
	if page := r.events(t, key, "", http.StatusOK); len(page.Items) != 0 || page.Cursor == "" {
		t.Fatalf("of nothing: %+v", page)
	}
	want := r.cancelled(t, key, 7)
	whole := r.events(t, key, "", http.StatusOK)
	var got []string
	for _, item := range whole.Items {
		got = append(got, item.ID)
		if !strings.Contains(string(item.Event), `"orderRef":"<&>"`) || !strings.HasPrefix(string(item.Event), `{"type":"session.cancelled","livemode":true,"timestamp":"`) {
			t.Errorf("not the body of the webhook: %s", item.Event)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	got = nil
	for cursor := ""; len(got) <= len(want); {
		page := r.events(t, key, after(cursor)+"&limit=2", http.StatusOK)
		for _, item := range page.Items {
			got = append(got, item.ID)
		}
		if cursor = page.Cursor; len(page.Items) == 0 {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("in pages: %v, want %v", got, want)
	}
	if page := r.events(t, key, after(whole.Items[4].Cursor), http.StatusOK); len(page.Items) != 2 || page.Items[0].ID != want[5] {
		t.Errorf("after the fifth: %+v", page)
	}
	if page := r.events(t, test, "", http.StatusOK); len(page.Items) != 0 {
		t.Errorf("in test mode: %+v", page)
	}
	for _, other := range []string{test, stranger} {
		r.call(http.MethodGet, events+after(whole.Cursor), other, "").wantError(t, http.StatusBadRequest, "after must be a cursor of this feed")
	}
}

func TestEvents_BadParameters(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	const (
		limit     = "limit must be an integer from 1 to 500"
		wait      = "wait must be an integer from 0 to 25, in seconds"
		malformed = "the query is malformed: write each parameter as name=value, percent-encoded"
	)
	for query, message := range map[string]string{
		"?after=x":              "after must be a cursor of this feed",
		"?after=a&after=b":      "after must be given at most once",
		"?limit=0":              limit,
		"?limit=501":            limit,
		"?limit=":               limit,
		"?limit=%2B1":           limit,
		"?limit=01":             limit,
		"?limit=1&limit=2":      "limit must be given at most once",
		"?wait=26":              wait,
		"?wait=-1":              wait,
		"?wait=01":              wait,
		"?limit=1;wait=1":       malformed,
		"?after=" + "%zz":       malformed,
		"?wait=1&wait=soon":     "wait must be given at most once",
		"?cursor=a":             `unknown parameter "cursor"`,
		"?After=a":              `unknown parameter "After"`,
		"?limit=1&type=refunds": `unknown parameter "type"`,
	} {
		r.call(http.MethodGet, events+query, key, "").wantError(t, http.StatusBadRequest, message)
	}
}

// What a failover lost is said with the cursor of what is left; what has aged is gone.
func TestEvents_LostAndExpiredCursors(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key := f.key("till", acme)
	server := redistest.Start(t)
	r := f.start(func(o *apiserver.Options) { o.RedisURL = server.URL() })
	stored := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = stored.Close() })
	r.cancelled(t, key, 3)
	before := r.events(t, key, "", http.StatusOK)
	stream := storetest.Tag(acme.MerchantID) + "feed:" + acme.MerchantID
	cursor, err := feed.ParseCursor(acme.MerchantID, before.Cursor)
	if err != nil || cursor.HeadAt.IsZero() {
		t.Fatalf("%+v, %v", cursor, err)
	}
	if err := stored.XDel(t.Context(), stream, cursor.Entry.String()).Err(); err != nil {
		t.Fatal(err)
	}
	r.cancelled(t, key, 1)
	lost := r.events(t, key, after(before.Cursor), http.StatusConflict)
	if lost.Cursor == "" || lost.Error == "" {
		t.Fatalf("%+v", lost)
	}
	if page := r.events(t, key, after(lost.Cursor), http.StatusOK); len(page.Items) != 1 {
		t.Errorf("after the survivor: %+v", page)
	}
	long := feed.Cursor{Account: acme.MerchantID, Entry: feed.EntryID{Millis: uint64(time.Now().Add(-8 * 24 * time.Hour).UnixMilli())}}
	r.events(t, key, after(long.String()), http.StatusGone)
	long.HeadAt = time.Now().Add(-6 * 24 * time.Hour)
	if page := r.events(t, key, after(long.String()), http.StatusOK); len(page.Items) != 3 {
		t.Errorf("of a quiet merchant: %+v", page)
	}
	if err := stored.Del(t.Context(), stream).Err(); err != nil {
		t.Fatal(err)
	}
	if lost := r.events(t, key, after(before.Cursor), http.StatusConflict); lost.Cursor != (feed.Cursor{Account: acme.MerchantID}).String() {
		t.Errorf("of an empty Redis: %+v", lost)
	}
}

// A wait ends with the event, and a rotated key gets 401 for it.
func TestEvents_Wait(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, other := f.key("till", acme), f.key("office", acme)
	r := f.start()
	cursor := r.events(t, key, "", http.StatusOK).Cursor
	waits := make(chan eventPage, 1)
	wait := func(key string, status int) {
		t.Helper()
		go func() { waits <- r.events(t, key, after(cursor)+"&wait=25", status) }()
		eventually(t, "it waits", func() bool { return r.metric("merchant_operator_streams") == "1" })
	}
	wait(key, http.StatusOK)
	want := r.cancelled(t, other, 1)
	if page := <-waits; len(page.Items) != 1 || page.Items[0].ID != want[0] {
		t.Errorf("woken with %+v", page)
	} else {
		cursor = page.Cursor
	}
	wait(key, http.StatusUnauthorized)
	f.rotated(r, key)
	r.cancelled(t, other, 1)
	if page := <-waits; len(page.Items) != 0 {
		t.Errorf("with a dead key: %+v", page)
	}
	if page := r.events(t, other, after(cursor)+"&wait=1", http.StatusOK); len(page.Items) == 0 {
		t.Errorf("there was an event: %+v", page)
	}
}

// A merchant that is suspended while its consumer waits gets 403 with the next event.
func TestEvents_SuspendedDuringWait(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, other, rail := f.key("till", acme), f.key("office", acme), f.rail("bank")
	r := f.start()
	id := r.create(other)
	answer := make(chan eventPage, 1)
	go func() {
		defer close(answer)
		answer <- r.events(t, key, "?wait=25", http.StatusForbidden)
	}()
	eventually(t, "it waits", func() bool { return r.metric("merchant_operator_streams") == "1" })
	acme.State = v1alpha1.MerchantSuspended
	f.changeMerchant(acme)
	r.eventuallyStatus(other, http.StatusForbidden)
	r.report(id, rail, paid(1250)).want(t, http.StatusOK)
	if page := <-answer; len(page.Items) != 0 {
		t.Errorf("%+v", page)
	}
}

// session.created is in no feed, so new sessions cost a request that waits for one nothing.
func TestEvents_WaitBesideNewSessions(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme", func(m *published.MerchantRecord) {
		m.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 1000}
		m.Webhook = &published.Webhook{Webhook: v1alpha1.Webhook{
			URL: "https://shop.example/hooks", Events: []v1alpha1.WebhookEvent{v1alpha1.EventSessionCreated, v1alpha1.EventSessionCancelled},
		}}
	})
	key := f.key("till", acme)
	r := f.start()
	ended := make(chan eventPage, 1)
	go func() {
		defer close(ended)
		ended <- r.events(t, key, "?wait=25", http.StatusOK)
	}()
	eventually(t, "it waits", func() bool { return r.metric("merchant_operator_streams") == "1" })
	const charges, others = 40, 8 // others: the wait, and the end of one charge
	for range charges {
		r.create(key)
	}
	r.cancelled(t, key, 1)
	if page := <-ended; len(page.Items) != 1 {
		t.Errorf("woken with %+v", page)
	}
	limit := r.call(http.MethodGet, me, key, "").header.Get("RateLimit")
	var left int
	if _, rest, _ := strings.Cut(limit, "r="); rest == "" {
		t.Fatalf("RateLimit: %s", limit)
	} else if _, err := fmt.Sscanf(rest, "%d", &left); err != nil {
		t.Fatal(err)
	}
	if used := 1000 - left; used > charges+others {
		t.Errorf("%d charges and a wait cost %d requests", charges, used)
	}
}

func TestEvents_WaitsPerAccount(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, test := f.key("till", acme), f.testKey("test", acme)
	r := f.start()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{}, 4)
	for range 4 {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+events+"?wait=25", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+key)
		go func() {
			defer func() { ended <- struct{}{} }()
			if response, err := http.DefaultClient.Do(request); err == nil {
				_ = response.Body.Close()
			}
		}()
	}
	eventually(t, "they wait", func() bool { return r.metric("merchant_operator_streams") == "4" })
	r.call(http.MethodGet, events+"?wait=25", key, "").wantError(t, http.StatusServiceUnavailable, "too many requests wait for events of this account; end some, or poll")
	r.call(http.MethodGet, events, key, "").want(t, http.StatusOK)
	r.call(http.MethodGet, events+"?wait=1", test, "").want(t, http.StatusOK)
	stop()
	for range 4 {
		<-ended
	}
	eventually(t, "their places are free", func() bool { return r.metric("merchant_operator_streams") == "0" })
}
