package payer_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/payer"
	"github.com/merchant-operator/merchant-operator/apiserver/payer/page"
	"github.com/merchant-operator/merchant-operator/apiserver/sessions"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
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
	sessionPath = "/api/v1/sessions"
	public      = "/api/v1/public/sessions"
)

// fixture is the room of payers of one replica. Merchants create and read the sessions.
type fixture struct {
	*roomtest.Replica

	t   *testing.T
	url string // of the server, once there is one
}

func newFixture(t *testing.T, change ...func(*payer.Options)) *fixture {
	t.Helper()
	return newFixtureOn(t, sharedRedis, change...)
}

func newFixtureOn(t *testing.T, redis *redistest.Server, change ...func(*payer.Options)) *fixture {
	t.Helper()
	f := &fixture{Replica: roomtest.New(t, redis.URL()), t: t}
	clients, err := clientaddr.NewResolver(nil)
	storetest.Must(t, err)
	options := payer.Options{
		Store: f.Store, Directory: f.Directory, Clients: clients, Live: f.Hub(), Links: payer.Links{Scheme: "pay"},
		Limit: ratelimit.Policy{RequestsPerSecond: 10_000, Burst: 100_000}, Now: time.Now, MaxConnections: 1000,
		Streams: payer.StreamOptions{Heartbeat: time.Minute, WriteTimeout: patience}, Registerer: f.Registry,
	}
	for _, c := range change {
		c(&options)
	}
	h, err := payer.New(options)
	storetest.Must(t, err)
	t.Cleanup(h.Close)
	charges := sessions.New(sessions.Options{Store: f.Store, Gate: f.Gate, Links: options.Links, Now: time.Now})
	f.Serve(openapitest.Public, web.Routes{
		public + "/{id}":               {http.MethodGet: h.Status},
		"/pay/{id}":                    {http.MethodGet: h.Page(h.Payment)},
		"/pay/{id}/test":               {http.MethodPost: h.Page(h.PlayRail)},
		"/pay/{id}/qr.svg":             {http.MethodGet: h.Page(h.QRCode)},
		"/pay/static/{version}/{file}": {http.MethodGet: h.Asset},
		page.WidgetPath:                {http.MethodGet: h.Widget},
		sessionPath:                    {http.MethodPost: f.Gate.WithKey(v1alpha1.PermissionCreate, charges.Create)},
		sessionPath + "/{id}":          {http.MethodGet: f.Gate.WithKey(v1alpha1.PermissionRead, charges.Get)},
		sessionPath + "/{id}/cancel":   {http.MethodPost: f.Gate.WithKey(v1alpha1.PermissionCancel, charges.Cancel)},
	})
	return f
}

// limited is an option: an address may send as many requests at once, and then one a second.
func limited(burst int64) func(*payer.Options) {
	return func(o *payer.Options) { o.Limit = ratelimit.Policy{RequestsPerSecond: 1, Burst: burst} }
}

// patience bounds every wait for something that takes milliseconds on an idle machine.
const patience = 30 * time.Second

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	await.Until(t, patience, what, holds)
}

// result is a response as a payer sees it.
type result struct{ roomtest.Result }

func (f *fixture) call(method, path, key, body string, headers ...string) result {
	f.t.Helper()
	return result{f.Call(method, path, key, body, headers...)}
}

// served returns the URL of a server, for what only a connection shows.
func (f *fixture) served() (url string) {
	f.t.Helper()
	if f.url == "" {
		server := httptest.NewServer(f)
		f.t.Cleanup(server.Close)
		f.url = server.URL
	}
	return f.url
}

// stream opens a stream of a session, or gets another answer.
func (f *fixture) stream(id string, headers ...string) *roomtest.Stream {
	f.t.Helper()
	return roomtest.OpenStream(f.t, f.served()+public+"/"+id, headers...)
}

// head sends HEAD, and fails the test if the response has a body.
func (f *fixture) head(path string, headers ...string) result {
	f.t.Helper()
	request := f.NewRequest(http.MethodHead, f.served()+path, "", "", headers...)
	response, err := http.DefaultClient.Do(request)
	storetest.Must(f.t, err)
	defer func() { _ = response.Body.Close() }()
	got := f.Received(response)
	if len(got.Raw) > 0 {
		f.t.Errorf("HEAD has a body: %s", got.Raw)
	}
	return result{got}
}
