package events_test

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

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/events"
	"github.com/merchant-operator/merchant-operator/apiserver/payer"
	"github.com/merchant-operator/merchant-operator/apiserver/sessions"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/openapitest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

var sharedRedis *redistest.Server

func TestMain(m *testing.M) {
	redistest.Main(m, func(server *redistest.Server) { sharedRedis = server })
}

const (
	path        = "/api/v1/events"
	sessionPath = "/api/v1/sessions"
	me          = "/api/v1/merchant/me"
)

// fixture is the room of the feed of one replica. Sessions make the events.
type fixture struct {
	*roomtest.Replica

	t *testing.T
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Replica: roomtest.New(t, sharedRedis.URL()), t: t}
	h := events.New(events.Options{Store: f.Store, Gate: f.Gate, Live: f.Hub(), Log: f.Log, Registerer: f.Registry})
	charges := sessions.New(sessions.Options{Store: f.Store, Gate: f.Gate, Links: payer.Links{Scheme: "pay"}, Now: time.Now})
	f.Serve(openapitest.Public, web.Routes{
		path:                         {http.MethodGet: f.Gate.WithKey(v1alpha1.PermissionList, h.List)},
		sessionPath:                  {http.MethodPost: f.Gate.WithKey(v1alpha1.PermissionCreate, charges.Create)},
		sessionPath + "/{id}/cancel": {http.MethodPost: f.Gate.WithKey(v1alpha1.PermissionCancel, charges.Cancel)},
		me:                           {http.MethodGet: f.Gate.WithKey(v1alpha1.PermissionRead, f.Gate.Me)},
	})
	return f
}

// page is a response.
type page struct {
	Items []struct {
		ID     string          `json:"id"`
		Cursor string          `json:"cursor"`
		Event  json.RawMessage `json:"event"`
	} `json:"items"`
	Cursor string `json:"cursor"`
	Error  string `json:"error"`
}

func (f *fixture) list(key, query string, status int) (got page) {
	f.t.Helper()
	storetest.Must(f.t, json.Unmarshal(f.Call(http.MethodGet, path+query, key, "").Want(f.t, status).Raw, &got))
	return got
}

func after(cursor string) string { return "?after=" + url.QueryEscape(cursor) }

// wait lists events in the background, and returns when it waits.
func (f *fixture) wait(key, query string, status int) (listed <-chan page) {
	f.t.Helper()
	pages := make(chan page, 1)
	go func() {
		defer close(pages)
		pages <- f.list(key, query, status)
	}()
	f.awaitWaits(1)
	return pages
}

func (f *fixture) awaitWaits(n int) {
	f.t.Helper()
	await.Until(f.t, storetest.Timeout, fmt.Sprintf("%d wait", n), func() bool { return f.Metric("merchant_operator_streams") == fmt.Sprint(n) })
}

func (f *fixture) create(key string) (id string) {
	f.t.Helper()
	return f.Call(http.MethodPost, sessionPath, key, `{"amountCents": 1250, "orderRef": "<&>"}`).Want(f.t, http.StatusCreated).Text("sessionId")
}

// cancelled creates sessions and cancels them.
func (f *fixture) cancelled(key string, n int) (eventIDs []string) {
	f.t.Helper()
	for range n {
		id := f.create(key)
		f.Call(http.MethodPost, sessionPath+"/"+id+"/cancel", key, "").Want(f.t, http.StatusOK)
		eventIDs = append(eventIDs, "evt_"+strings.TrimPrefix(id, "ps_")+"_ended")
	}
	return eventIDs
}

// A consumer that follows its cursors gets each event once, in order, and in pages of any size.
func TestList_FollowCursors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.Merchant("acme")
	key, test := f.Key("till", acme), f.TestKey("test", acme)
	stranger := f.Key("stranger", f.Merchant("globex"))
	if got := f.list(key, "", http.StatusOK); len(got.Items) != 0 || got.Cursor == "" {
		t.Fatalf("of nothing: %+v", got)
	}
	want := f.cancelled(key, 7)
	whole := f.list(key, "", http.StatusOK)
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
		next := f.list(key, after(cursor)+"&limit=2", http.StatusOK)
		for _, item := range next.Items {
			got = append(got, item.ID)
		}
		if cursor = next.Cursor; len(next.Items) == 0 {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("in pages: %v, want %v", got, want)
	}
	if got := f.list(key, after(whole.Items[4].Cursor), http.StatusOK); len(got.Items) != 2 || got.Items[0].ID != want[5] {
		t.Errorf("after the fifth: %+v", got)
	}
	if got := f.list(test, "", http.StatusOK); len(got.Items) != 0 {
		t.Errorf("in test mode: %+v", got)
	}
	for _, other := range []string{test, stranger} {
		f.Call(http.MethodGet, path+after(whole.Cursor), other, "").WantError(t, http.StatusBadRequest, "after must be a cursor of this feed")
	}
}

func TestList_BadParameters(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
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
		f.Call(http.MethodGet, path+query, key, "").WantError(t, http.StatusBadRequest, message)
	}
}

// What a failover lost is said with the cursor of what is left; what has aged is gone.
func TestList_LostAndExpiredCursors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.Merchant("acme")
	key := f.Key("till", acme)
	stored := storetest.Inspect(t, sharedRedis)
	f.cancelled(key, 3)
	before := f.list(key, "", http.StatusOK)
	stream := storetest.Tag(acme.MerchantID) + "feed:" + acme.MerchantID
	cursor, err := feed.ParseCursor(acme.MerchantID, before.Cursor)
	if err != nil || cursor.HeadAt.IsZero() {
		t.Fatalf("%+v, %v", cursor, err)
	}
	storetest.Must(t, stored.XDel(t.Context(), stream, cursor.Entry.String()).Err())
	f.cancelled(key, 1)
	lost := f.list(key, after(before.Cursor), http.StatusConflict)
	if lost.Cursor == "" || lost.Error == "" {
		t.Fatalf("%+v", lost)
	}
	if got := f.list(key, after(lost.Cursor), http.StatusOK); len(got.Items) != 1 {
		t.Errorf("after the survivor: %+v", got)
	}
	long := feed.Cursor{Account: acme.MerchantID, Entry: feed.EntryID{Millis: uint64(time.Now().Add(-8 * 24 * time.Hour).UnixMilli())}}
	f.list(key, after(long.String()), http.StatusGone)
	long.HeadAt = time.Now().Add(-6 * 24 * time.Hour)
	if got := f.list(key, after(long.String()), http.StatusOK); len(got.Items) != 3 {
		t.Errorf("of a quiet merchant: %+v", got)
	}
	storetest.Must(t, stored.Del(t.Context(), stream).Err())
	if lost := f.list(key, after(before.Cursor), http.StatusConflict); lost.Cursor != (feed.Cursor{Account: acme.MerchantID}).String() {
		t.Errorf("of an empty Redis: %+v", lost)
	}
}

// A wait ends with the event, and a rotated key gets 401 for it.
func TestList_Wait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.Merchant("acme")
	till, issued := roomtest.NewKey(t, "till", "till", acme.MerchantID)
	f.PublishKey(issued)
	key, other := till.Reveal(), f.Key("office", acme)
	cursor := f.list(key, "", http.StatusOK).Cursor
	listed := f.wait(key, after(cursor)+"&wait=25", http.StatusOK)
	want := f.cancelled(other, 1)
	got := <-listed
	if len(got.Items) != 1 || got.Items[0].ID != want[0] {
		t.Fatalf("woken with %+v", got)
	}
	listed = f.wait(key, after(got.Cursor)+"&wait=25", http.StatusUnauthorized)
	f.Rotate(issued)
	f.cancelled(other, 1)
	if got := <-listed; len(got.Items) != 0 {
		t.Errorf("with a dead key: %+v", got)
	}
	if got := f.list(other, after(got.Cursor)+"&wait=1", http.StatusOK); len(got.Items) == 0 {
		t.Errorf("there was an event: %+v", got)
	}
}

// A merchant that is suspended while its consumer waits gets 403 with the next event.
func TestList_SuspendedDuringWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.Merchant("acme")
	key := f.Key("till", acme)
	id := f.create(key)
	listed := f.wait(key, "?wait=25", http.StatusForbidden)
	acme.State = v1alpha1.MerchantSuspended
	f.PublishMerchant(acme)
	f.Report(id, storetest.Paid("bank-1"))
	if got := <-listed; len(got.Items) != 0 {
		t.Errorf("%+v", got)
	}
}

// session.created is in no feed, so new sessions cost a request that waits for one nothing.
func TestList_WaitBesideNewSessions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.Merchant("acme", func(m *published.MerchantRecord) {
		m.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 1000}
		m.Webhook = &published.Webhook{Webhook: v1alpha1.Webhook{
			URL: "https://shop.example/hooks", Events: []v1alpha1.WebhookEvent{v1alpha1.EventSessionCreated, v1alpha1.EventSessionCancelled},
		}}
	})
	key := f.Key("till", acme)
	listed := f.wait(key, "?wait=25", http.StatusOK)
	const charges, others = 40, 8 // others: the wait, and the end of one charge
	for range charges {
		f.create(key)
	}
	f.cancelled(key, 1)
	if got := <-listed; len(got.Items) != 1 {
		t.Errorf("woken with %+v", got)
	}
	limit := f.Call(http.MethodGet, me, key, "").Header.Get("RateLimit")
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

func TestList_WaitsPerAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.Merchant("acme")
	key, test := f.Key("till", acme), f.TestKey("test", acme)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{}, 4)
	for range cap(ended) {
		request := f.NewRequest(http.MethodGet, path+"?wait=25", key, "").WithContext(ctx)
		go func() {
			f.ServeHTTP(roomtest.NewRecorder(), request)
			ended <- struct{}{}
		}()
	}
	f.awaitWaits(4)
	f.Call(http.MethodGet, path+"?wait=25", key, "").WantError(t, http.StatusServiceUnavailable, "too many requests wait for events of this account; end some, or poll")
	f.Call(http.MethodGet, path, key, "").Want(t, http.StatusOK)
	f.Call(http.MethodGet, path+"?wait=1", test, "").Want(t, http.StatusOK)
	stop()
	for range cap(ended) {
		<-ended
	}
	f.awaitWaits(0)
}
